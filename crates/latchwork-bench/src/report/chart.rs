//! A chart of a scenario's result: a bar for the median of each row, with a whisker from its fastest round to its
//! slowest, and circles for published figures.
//!
//! Bars begin at 0 on a linear axis. If the figures differ too much for that, the axis is logarithmic, and the end of a
//! bar matters, not its length. Axis and grid are drawn by plotters; this file lays out the rest, since plotters offers
//! no chart of named bars in groups.

use std::io;

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::{
    BindKeyPoints, ChartBuilder, Circle, Color, DrawingArea, DrawingAreaErrorKind, FontDesc,
    FontFamily, FontStyle, IntoDrawingArea, IntoLogRange, LabelAreaPosition, PathElement, RGBColor,
    Ranged, Rectangle, TRANSPARENT, TextStyle, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::layout::{Axis, Line, Side, common, lines, published, scale, ticks, units};
use crate::result::{Better, Row, ScenarioResult, Unit};
use crate::table::short;

/// Sizes in pixels.
const WIDTH: i32 = 900;
const MARGIN: i32 = 14;
/// Title, subtitle and legend.
const HEAD: i32 = 84;
/// The numbers above and below the bars.
const AXIS: i32 = 26;
const HEADING: i32 = 26;
const ROW: i32 = 20;
const BAR: i32 = 12;
/// The largest width of names, which are cut off there.
const NAMES: i32 = 330;
/// The two columns of figures to the right of the bars.
const FIGURES: i32 = 150;
const MEDIAN_END: i32 = WIDTH - 74;
const RATIO_END: i32 = WIDTH - MARGIN;
/// About the width of a character of [`SMALL`] size.
const CHARACTER: i32 = 7;

/// Font sizes, which plotters takes as 1.24 times what they become.
pub(super) const SMALL: f64 = 15.0;
pub(super) const LARGE: f64 = 23.0;

pub(super) const INK: RGBColor = RGBColor(0x21, 0x25, 0x29);
pub(super) const FAINT: RGBColor = RGBColor(0x5f, 0x67, 0x6f);
pub(super) const GRID: RGBColor = RGBColor(0xdd, 0xe1, 0xe5);
const PUBLISHED: [RGBColor; 3] = [
    RGBColor(0xc9, 0x2a, 0x2a),
    RGBColor(0x86, 0x2e, 0x9c),
    RGBColor(0x36, 0x4f, 0xc7),
];

/// The colours of the sides.
const SIDES: [(Side, RGBColor, &str); 4] = [
    (Side::Ours, RGBColor(0x3f, 0xa7, 0x96), "Latchwork"),
    (Side::Base, RGBColor(0x8a, 0x93, 0x9c), "base of the ratios"),
    (Side::Other, RGBColor(0xc3, 0xca, 0xd1), "others"),
    (Side::Floor, RGBColor(0xf0, 0xcf, 0x7b), "floor"),
];

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

/// The chart of a result, as SVG, without the rows that were disturbed.
pub(super) fn draw(result: &ScenarioResult) -> io::Result<String> {
    let mut sound = result.clone();
    sound.rows.retain(|row| !row.is_disturbed(result.rounds));
    let mut chart = Chart::new(&sound);
    let disturbed = result.rows.len() - sound.rows.len();
    if disturbed > 0 {
        chart.subtitle += &format!("; not drawn, since disturbed: {disturbed}");
    }
    let rows: i32 = chart.lines.iter().map(height).sum();
    let mut svg = String::new();
    let size = (
        WIDTH.unsigned_abs(),
        (HEAD + AXIS + rows + AXIS).unsigned_abs(),
    );
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let drawn = chart.draw_on(&area).and_then(|()| area.present());
    drop(area);
    drawn.map_err(io::Error::other)?;
    Ok(svg)
}

/// The contents of a chart.
struct Chart<'a> {
    title: String,
    subtitle: String,
    /// Rows of another unit are converted.
    unit: Unit,
    lines: Vec<Line<'a>>,
    /// The publishers of figures for some of the rows.
    publishers: Vec<&'a str>,
    axis: Axis,
    /// Where the bars begin.
    left: i32,
}

impl<'a> Chart<'a> {
    fn new(result: &'a ScenarioResult) -> Self {
        let first = result.rows.first();
        let unit = first.map_or(Unit::Ns, |row| row.unit);
        let better = match first.map(|row| row.better) {
            Some(Better::Higher) => "more",
            _ => "less",
        };
        let axis = Axis::of(&result.rows, unit);
        let logarithmic = match axis {
            Axis::Linear(_) => "",
            Axis::Log(_) => ", logarithmic",
        };
        let mut publishers: Vec<&str> = result
            .rows
            .iter()
            .flat_map(|row| published(row, unit))
            .map(|(publisher, _)| publisher)
            .collect();
        publishers.sort_unstable();
        publishers.dedup();
        let lines = lines(result);
        let longest = lines.iter().map(|line| match line {
            Line::Heading(_) => 0,
            Line::Row { label, .. } => width(label),
        });
        let common = common(result);
        let comma = if common.is_empty() { "" } else { ", " };
        Self {
            title: result.scenario.clone(),
            subtitle: format!(
                "{}{logarithmic}, {better} is better; medians and ranges of {} rounds{comma}{common}",
                units(&result.rows, unit),
                result.rounds
            ),
            unit,
            left: MARGIN + longest.max().unwrap_or(0).min(NAMES) + 12,
            lines,
            publishers,
            axis,
        }
    }

    fn draw_on(&self, area: &Area<'_>) -> Drawn {
        area.fill(&WHITE)?;
        let title = style(LARGE, FontStyle::Bold, &INK, HPos::Left);
        area.draw_text(&self.title, &title, (MARGIN, 22))?;
        area.draw_text(&self.subtitle, &small(&FAINT, HPos::Left), (MARGIN, 46))?;
        self.draw_legend(area)?;
        match &self.axis {
            Axis::Linear(range) => self.draw_rows(area, range.clone()),
            Axis::Log(range) => {
                let axis = range.clone().log_scale().with_key_points(ticks(range));
                self.draw_rows(area, axis)
            }
        }
    }

    fn draw_legend(&self, area: &Area<'_>) -> Drawn {
        let y = 68;
        let mut x = MARGIN;
        for (side, colour, label) in SIDES {
            if self.lines.iter().any(|line| is_of(line, side)) {
                let square = [(x, y - BAR / 2), (x + BAR, y + BAR / 2)];
                area.draw(&Rectangle::new(square, colour.filled()))?;
                area.draw_text(label, &small(&INK, HPos::Left), (x + BAR + 5, y))?;
                x += BAR + 5 + width(label) + 12;
            }
        }
        for (publisher, colour) in self.publishers.iter().zip(PUBLISHED) {
            let label = format!("published, {publisher}");
            area.draw(&Circle::new((x + 5, y), 4, colour.stroke_width(2)))?;
            area.draw_text(&label, &small(&INK, HPos::Left), (x + 14, y))?;
            x += 14 + width(&label) + 12;
        }
        let [median, ratio] = [(MEDIAN_END, "median"), (RATIO_END, "ratio")];
        for (end, label) in [median, ratio] {
            area.draw_text(
                label,
                &small(&FAINT, HPos::Right),
                (end, HEAD + AXIS / 2 - 3),
            )?;
        }
        Ok(())
    }

    fn draw_rows<X>(&self, area: &Area<'_>, axis: X) -> Drawn
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let no_ticks = (0..1).with_key_points(Vec::new());
        let mut plot = ChartBuilder::on(area)
            .margin_top(HEAD)
            .margin_left(self.left)
            .margin_right(FIGURES)
            .set_label_area_size(LabelAreaPosition::Top, AXIS)
            .set_label_area_size(LabelAreaPosition::Bottom, AXIS)
            .build_cartesian_2d(axis, no_ticks)?;
        plot.configure_mesh()
            .x_labels(8)
            .x_label_formatter(&tick)
            .x_label_style(small(&FAINT, HPos::Center))
            .axis_style(GRID)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .draw()?;

        let range = self.axis.range();
        let pixel = |figure: f64| {
            let inside = figure.clamp(range.start, range.end);
            plot.backend_coord(&(inside, 0)).0
        };
        let mut top = HEAD + AXIS;
        for line in &self.lines {
            let middle = top + height(line) / 2;
            match line {
                Line::Heading(text) => {
                    let bold = style(SMALL, FontStyle::Bold, &INK, HPos::Left);
                    area.draw_text(text, &bold, (MARGIN, middle + 3))?;
                }
                Line::Row { label, side, row } => {
                    self.draw_bar(area, (*side, row), middle, &pixel)?;
                    self.draw_words(area, label, row, middle)?;
                }
            }
            top += height(line);
        }
        Ok(())
    }

    fn draw_bar(
        &self,
        area: &Area<'_>,
        (side, row): (Side, &Row),
        middle: i32,
        pixel: &impl Fn(f64) -> i32,
    ) -> Drawn {
        let own = scale(row.unit, self.unit);
        let ends = [pixel(0.0), pixel(row.figure.median * own)];
        let bar = [
            (ends[0].min(ends[1]), middle - BAR / 2),
            (ends[0].max(ends[1]), middle + BAR / 2),
        ];
        area.draw(&Rectangle::new(bar, colour_of(side).filled()))?;

        let [from, to] = [row.figure.min * own, row.figure.max * own];
        let whisker = vec![(pixel(from), middle), (pixel(to), middle)];
        area.draw(&PathElement::new(whisker, INK))?;
        // A whisker that leaves the chart has no end mark there.
        for end in [from, to] {
            if self.axis.range().contains(&end) {
                let cap = vec![(pixel(end), middle - 3), (pixel(end), middle + 3)];
                area.draw(&PathElement::new(cap, INK))?;
            }
        }
        for (publisher, figure) in published(row, self.unit) {
            let colours = self.publishers.iter().zip(PUBLISHED);
            for (_, colour) in colours.filter(|(known, _)| **known == publisher) {
                let circle = Circle::new((pixel(figure), middle), 4, colour.stroke_width(2));
                area.draw(&circle)?;
            }
        }
        Ok(())
    }

    fn draw_words(&self, area: &Area<'_>, label: &str, row: &Row, middle: i32) -> Drawn {
        let most = usize::try_from(NAMES / CHARACTER).unwrap_or(0);
        let name = if label.chars().count() > most {
            label.chars().take(most - 1).chain(['…']).collect()
        } else {
            label.to_owned()
        };
        let right = small(&INK, HPos::Right);
        area.draw_text(&name, &right, (self.left - 8, middle))?;
        let median = row.figure.median * scale(row.unit, self.unit);
        area.draw_text(&short(median), &right, (MEDIAN_END, middle))?;
        if let Some(ratio) = row.ratio {
            let ratio = format!("× {}", short(ratio.median));
            area.draw_text(&ratio, &right, (RATIO_END, middle))?;
        }
        Ok(())
    }
}

/// The colour of a side's bars.
pub(super) fn colour_of(side: Side) -> RGBColor {
    let colour = SIDES.iter().find(|(known, ..)| *known == side);
    colour.map_or(INK, |(_, colour, _)| *colour)
}

fn is_of(line: &Line<'_>, wanted: Side) -> bool {
    matches!(line, Line::Row { side, .. } if *side == wanted)
}

fn height(line: &Line<'_>) -> i32 {
    match line {
        Line::Heading(_) => HEADING,
        Line::Row { .. } => ROW,
    }
}

/// An estimate of the width of a text of [`SMALL`] size, since the viewer chooses the font.
fn width(text: &str) -> i32 {
    i32::try_from(text.chars().count()).map_or(i32::MAX, |count| count.saturating_mul(CHARACTER))
}

pub(super) fn small(colour: &'static RGBColor, side: HPos) -> TextStyle<'static> {
    style(SMALL, FontStyle::Normal, colour, side)
}

pub(super) fn style(
    size: f64,
    weight: FontStyle,
    colour: &'static RGBColor,
    side: HPos,
) -> TextStyle<'static> {
    let font = FontDesc::new(FontFamily::SansSerif, size, weight);
    TextStyle::from(font)
        .color(colour)
        .pos(Pos::new(side, VPos::Center))
}

/// A number on the axis, without the rounding errors of sums of tenths.
fn tick(value: &f64) -> String {
    ((value * 1e6).round() / 1e6 + 0.0).to_string()
}
