//! Three histograms of durations side by side: the base where its longest duration is shortest, the base where that is
//! longest, and the best contestant there. Their axes are the same, and logarithmic, so that tails are visible.

use std::io;
use std::ops::Range;

use plotters::backend::SVGBackend;
use plotters::prelude::{
    BindKeyPoints, ChartBuilder, Color, FontStyle, IntoDrawingArea, IntoLogRange,
    LabelAreaPosition, PathElement, Rectangle, TRANSPARENT, WHITE,
};
use plotters::style::text_anchor::HPos;

use super::chart::{Area, Drawn, FAINT, GRID, INK, LARGE, SMALL, colour_of, small, style};
use super::layout::{Side, described, ticks};
use crate::result::{Distribution, Row, ScenarioResult};
use crate::table::short;

/// Sizes in pixels.
const WIDTH: u32 = 900;
const HEIGHT: u32 = 330;
/// The title of the picture, and that of each panel.
const HEAD: u32 = 44;
const TITLE: i32 = 78;
const NUMBERS: i32 = 46;
const AXIS: i32 = 28;
const GAP: i32 = 12;
/// A panel's title has at most so many characters.
const MOST: usize = 40;
/// Where bars begin, which have no zero on a logarithmic axis.
const FLOOR: f64 = 0.7;

/// Whether a result has panels.
pub(super) fn are_there(result: &ScenarioResult) -> bool {
    !choose(result).is_empty()
}

/// The panels of a result, as SVG; `None` if its base has no durations.
pub(super) fn draw(result: &ScenarioResult) -> io::Result<Option<String>> {
    let panels = choose(result);
    if panels.is_empty() {
        return Ok(None);
    }
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
    let drawn = draw_on(&area, result, &panels).and_then(|()| area.present());
    drop(area);
    drawn.map_err(io::Error::other)?;
    Ok(Some(svg))
}

/// A row that is drawn.
type Panel<'a> = (&'a Row, &'a Distribution);

/// The rows to draw, none of which was disturbed.
pub(super) fn choose(result: &ScenarioResult) -> Vec<Panel<'_>> {
    let sound = result
        .rows
        .iter()
        .filter(|row| !row.is_disturbed(result.rounds));
    let timed: Vec<Panel<'_>> = sound
        .filter_map(|row| Some((row, row.durations.as_ref()?)))
        .collect();
    let longest = |panel: &&Panel<'_>| panel.1.longest_ns;
    let is_base = |panel: &&Panel<'_>| panel.0.contestant == result.base;
    let bases = || timed.iter().filter(is_base);
    let (Some(quiet), Some(loud)) = (bases().min_by_key(longest), bases().max_by_key(longest))
    else {
        return Vec::new();
    };
    let rivals = || {
        let others = timed.iter().filter(|panel| !is_base(panel));
        others.filter(|(row, _)| row.params == loud.0.params)
    };
    let is_ours = |panel: &&Panel<'_>| Side::of(panel.0, result) == Side::Ours;
    let is_floor = |panel: &&Panel<'_>| Side::of(panel.0, result) == Side::Floor;
    let best = rivals().filter(is_ours).min_by_key(longest).or_else(|| {
        rivals()
            .filter(|panel| !is_floor(panel))
            .min_by_key(longest)
    });
    let quiet = (quiet.0.params != loud.0.params).then_some(quiet);
    quiet
        .into_iter()
        .chain([loud])
        .chain(best)
        .copied()
        .collect()
}

fn draw_on(area: &Area<'_>, result: &ScenarioResult, panels: &[Panel<'_>]) -> Drawn {
    area.fill(&WHITE)?;
    let of = panels.first().map_or("", |(_, durations)| &durations.of);
    let title = style(LARGE, FontStyle::Bold, &INK, HPos::Left);
    area.draw_text(&format!("{}: {of}", result.scenario), &title, (GAP, 22))?;
    let bins = || panels.iter().flat_map(|(_, durations)| &durations.bins);
    let from = bins().map(|bin| bin.above_ns).min().unwrap_or(0).max(1);
    let to = bins().map(|bin| bin.up_to_ns).max().unwrap_or(10);
    let most = bins().map(|bin| bin.count).max().unwrap_or(1);
    let times = from as f64..to as f64 * 1.1;
    let counts = FLOOR..most as f64 * 1.5;
    let (_, below) = area.split_vertically(HEAD);
    let rows: Vec<&Row> = panels.iter().map(|(row, _)| *row).collect();
    let columns = below.split_evenly((1, 3));
    for (panel, column) in panels.iter().zip(&columns) {
        let parameters = described(panel.0, &rows);
        let side = Side::of(panel.0, result);
        draw_panel(column, *panel, side, &parameters, (&times, &counts))?;
    }
    Ok(())
}

fn draw_panel(
    area: &Area<'_>,
    (row, durations): Panel<'_>,
    side: Side,
    parameters: &str,
    (times, counts): (&Range<f64>, &Range<f64>),
) -> Drawn {
    let summary = format!(
        "max {}, p99.9 {}, n {}",
        time(durations.longest_ns as f64),
        time(durations.p999_ns as f64),
        durations.count
    );
    let bold = style(SMALL, FontStyle::Bold, &INK, HPos::Left);
    area.draw_text(&cut(&row.contestant), &bold, (GAP, 10))?;
    area.draw_text(&cut(parameters), &small(&FAINT, HPos::Left), (GAP, 30))?;
    area.draw_text(&cut(&summary), &small(&INK, HPos::Left), (GAP, 50))?;

    let across = times.clone().log_scale().with_key_points(marks(times));
    let up = counts.clone().log_scale().with_key_points(powers(counts));
    let mut plot = ChartBuilder::on(area)
        .margin_top(TITLE - 10)
        .margin_right(GAP)
        .set_label_area_size(LabelAreaPosition::Left, NUMBERS)
        .set_label_area_size(LabelAreaPosition::Bottom, AXIS)
        .build_cartesian_2d(across, up)?;
    plot.configure_mesh()
        .x_label_formatter(&|value| time(*value))
        .y_label_formatter(&|value| count(*value))
        .label_style(small(&FAINT, HPos::Center))
        .y_label_style(small(&FAINT, HPos::Right))
        .axis_style(GRID)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .draw()?;
    let colour = colour_of(side);
    plot.draw_series(durations.bins.iter().map(|bin| {
        let from = (bin.above_ns as f64).max(times.start);
        let corners = [(from, FLOOR), (bin.up_to_ns as f64, bin.count as f64)];
        Rectangle::new(corners, colour.filled())
    }))?;
    let longest = (durations.longest_ns as f64).clamp(times.start, times.end);
    let line = vec![(longest, counts.start), (longest, counts.end)];
    plot.draw_series([PathElement::new(line, INK)])?;
    Ok(())
}

/// A text that fits above a panel.
fn cut(text: &str) -> String {
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST - 1).chain(['…']).collect()
}

/// Nanoseconds in the unit that needs the fewest digits.
fn time(nanoseconds: f64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
    let fits = |(size, _): &&(f64, &str)| nanoseconds >= *size;
    let (size, unit) = units.iter().find(fits).copied().unwrap_or((1.0, "ns"));
    let figure = short(nanoseconds / size);
    let figure = if figure.contains('.') {
        figure.trim_end_matches('0').trim_end_matches('.')
    } else {
        &figure
    };
    format!("{figure} {unit}")
}

/// A count in at most four characters.
fn count(value: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let fits = |(size, _): &&(f64, &str)| value >= *size;
    let (size, unit) = units.iter().find(fits).copied().unwrap_or((1.0, ""));
    format!("{:.0}{unit}", value / size)
}

/// The powers of ten on an axis; of more than five every second or third one.
fn powers(range: &Range<f64>) -> Vec<f64> {
    let (first, last) = (range.start.log10().ceil(), range.end.log10().floor());
    let (first, last) = (first as i32, last as i32);
    let step = 1 + usize::try_from((last - first) / 5).unwrap_or(0);
    let powers = (first..=last).step_by(step);
    powers.map(|exponent| 10_f64.powi(exponent)).collect()
}

/// The numbers on the axis of durations: on a short one those in between, too.
fn marks(range: &Range<f64>) -> Vec<f64> {
    if range.end > range.start * 30.0 {
        powers(range)
    } else {
        ticks(range)
    }
}
