//! Histograms of durations, one for each row, on the same logarithmic axes, so that tails can be compared.

use maud::{Markup, html};

use super::bars::class;
use super::scale::{Axis, brief, duration};
use crate::report::layout::{Side, described, is_base};
use crate::report::panels;
use crate::result::{Distribution, Row, ScenarioResult};

/// Scenarios in which each row is shown; in the others, three rows are chosen as in `panels.rs`.
const ABOUT_DURATIONS: [&str; 3] = ["inversion", "rt-latency", "donation"];

/// So many histograms of a scenario are shown at once; the others open at a touch.
const OPEN: usize = 6;

/// Where bars begin, which have no zero on a logarithmic axis.
const FLOOR: f64 = 0.7;

type Shown<'a> = (&'a Row, &'a Distribution);

/// The histograms of a result; empty if it has no durations.
pub(super) fn histograms(result: &ScenarioResult) -> Markup {
    let shown = choose(result);
    let bins = || shown.iter().flat_map(|(_, durations)| &durations.bins);
    let from = bins().map(|bin| bin.above_ns).min().unwrap_or(0).max(10);
    let to = bins()
        .map(|bin| bin.up_to_ns)
        .max()
        .unwrap_or(10)
        .max(from * 10);
    let most = bins().map(|bin| bin.count).max().unwrap_or(1);
    let across = Axis::logarithmic(from as f64, to as f64);
    let up = Axis::logarithmic(FLOOR, most as f64 * 1.2);
    let rows: Vec<&Row> = shown.iter().map(|(row, _)| *row).collect();
    let draw = |one: &Shown<'_>| figure(*one, (across, up), &described(one.0, &rows), result);
    let (first, rest) = shown.split_at(shown.len().min(OPEN));
    html! {
        @if let Some((_, durations)) = first.first() {
            h3 { "Histograms of each " (durations.of) ", of all rounds" }
            p.note { "Both axes are logarithmic; the line marks the longest." }
            div.panels.small { @for one in first { (draw(one)) } }
        }
        @if !rest.is_empty() {
            details.more { summary { (rest.len()) " more histograms" }
                div.panels.small { @for one in rest { (draw(one)) } }
            }
        }
    }
}

fn choose(result: &ScenarioResult) -> Vec<Shown<'_>> {
    if !ABOUT_DURATIONS.contains(&result.scenario.as_str()) {
        return panels::choose(result);
    }
    let sound = result
        .rows
        .iter()
        .filter(|row| !row.is_disturbed(result.rounds));
    let timed = sound.filter_map(|row| Some((row, row.durations.as_ref()?)));
    let timed: Vec<Shown<'_>> = timed
        .filter(|(_, durations)| !durations.bins.is_empty())
        .collect();
    // First the case in which the base's durations are longest, the base and ours before the others.
    let of_base = |row: &Row| {
        let bases = timed.iter().filter(|(base, _)| is_base(base, result));
        let same = bases.filter(|(base, _)| base.params == row.params);
        same.map(|(_, durations)| durations.longest_ns).max()
    };
    let key = |(row, durations): &Shown<'_>| {
        let side = match Side::of(row, result) {
            Side::Base => 0,
            Side::Ours => 1,
            Side::Other | Side::Floor => 2,
        };
        (std::cmp::Reverse(of_base(row)), side, durations.longest_ns)
    };
    let mut timed: Vec<_> = timed.iter().map(|one| (key(one), *one)).collect();
    timed.sort_by_key(|(key, _)| *key);
    let timed: Vec<Shown<'_>> = timed.into_iter().map(|(_, one)| one).collect();
    timed
}

fn figure(
    (row, durations): Shown<'_>,
    (across, up): (Axis, Axis),
    parameters: &str,
    result: &ScenarioResult,
) -> Markup {
    let longest = across.place(durations.longest_ns as f64);
    let summary = format!(
        "longest {}, 99.9 % within {}, {} in all",
        duration(durations.longest_ns as f64),
        duration(durations.p999_ns as f64),
        durations.count
    );
    html! {
        figure.panel {
            figcaption { b { (row.contestant) } " " (parameters) span.line { (summary) } }
            div.plot {
                div.up aria-hidden="true" {
                    @for tick in up.ticks(4) {
                        span style=(format!("bottom:{:.2}%", up.place(tick))) { (brief(tick)) }
                    }
                }
                svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img"
                    aria-label=(format!("{}: durations of {}, {summary}", result.scenario, row.contestant)) {
                    @for tick in up.ticks(4) {
                        @let y = 100.0 - up.place(tick);
                        line.grid x1="0" x2="100" y1=(format!("{y:.2}")) y2=(format!("{y:.2}")) {}
                    }
                    g.bins.(class(Side::of(row, result))) {
                        @for bin in &durations.bins {
                            @let (from, to) = (across.place(bin.above_ns as f64), across.place(bin.up_to_ns as f64));
                            @let high = up.place(bin.count as f64);
                            rect x=(format!("{from:.2}")) y=(format!("{:.2}", 100.0 - high))
                                width=(format!("{:.2}", (to - from).max(0.4))) height=(format!("{high:.2}")) {}
                        }
                    }
                    line.longest x1=(format!("{longest:.2}")) x2=(format!("{longest:.2}")) y1="0" y2="100" {}
                }
                div.across aria-hidden="true" {
                    @for tick in across.ticks(5) {
                        span style=(format!("left:{:.2}%", across.place(tick))) { (duration(tick)) }
                    }
                }
            }
            (table(durations))
        }
    }
}

fn table(durations: &Distribution) -> Markup {
    html! {
        details.data {
            summary { "Data: " (durations.bins.len()) " bins" }
            div.wide { table {
                thead { tr { th.number { "longer than" } th.number { "up to" } th.number { "count" } } }
                tbody { @for bin in &durations.bins { tr {
                    td.number { (duration(bin.above_ns as f64)) }
                    td.number { (duration(bin.up_to_ns as f64)) }
                    td.number { (bin.count) }
                } } }
            } }
        }
    }
}
