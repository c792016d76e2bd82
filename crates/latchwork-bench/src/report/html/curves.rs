//! Curves: how a figure changes with the number of tasks, the size of a message or block, the size of the parent, or
//! the work in a section. Beside each speed stands the work for each second of processor time, where it was measured.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::scale::{Axis, brief};
use super::tables;
use crate::report::layout::{Side, is_base, is_ours};
use crate::result::{Better, Row, ScenarioResult, Spread};
use crate::table::{PARAMS, Param};

/// The number of tasks, as a parameter and as an axis.
pub(super) const TASKS: &str = "tasks";

/// The parameters that a curve may follow, and what its axis says.
const ALONG: [(&str, &str); 8] = [
    (TASKS, TASKS),
    ("objects", "objects"),
    ("regions", "regions"),
    ("parent MiB", "resident memory of the parent, MiB"),
    ("size", "size, bytes"),
    ("load", "pauses in the section"),
    ("beside", "spinning programs beside"),
    ("read %", "readers, %"),
];

/// So many panels of a scenario are shown at once; the others open at a touch.
const OPEN: usize = 4;

/// The most curves of each side in a panel: more could not be told apart.
const MOST: [(Side, usize); 4] = [
    (Side::Ours, 4),
    (Side::Base, 1),
    (Side::Other, 3),
    (Side::Floor, 1),
];

/// In this scenario the parameter belongs to the name of a curve, not to the heading of a panel: its contestants
/// differ by it.
const OF_CURVES: [(&str, &str); 2] = [("context-switch", "kind"), ("spawn", "case")];

/// In this scenario the parameter follows from the others.
const DERIVED: [(&str, &str); 2] = [("fine-grained", "placement"), ("fine-grained", "sched")];

pub(super) struct Panel<'a> {
    pub(super) heading: String,
    pub(super) axis: &'static str,
    pub(super) measure: Measure,
    pub(super) curves: Vec<Curve<'a>>,
    /// Curves beyond [`MOST`]; the tables below have them.
    left_out: usize,
}

pub(super) struct Curve<'a> {
    pub(super) name: String,
    pub(super) side: Side,
    pub(super) points: Vec<(f64, &'a Row)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    Figure,
    WorkPerCpu,
}

impl Measure {
    fn of(self, row: &Row) -> Option<Spread> {
        match self {
            Self::Figure => Some(row.figure),
            Self::WorkPerCpu => tables::work_per_cpu(row).map(|(work, _)| Spread {
                median: work,
                min: work,
                max: work,
            }),
        }
    }

    fn unit(self, row: &Row) -> &'static str {
        match self {
            Self::Figure => tables::unit(row.unit),
            Self::WorkPerCpu => tables::work_per_cpu(row).map_or("", |(_, unit)| unit),
        }
    }

    fn better(self, row: &Row) -> Better {
        match self {
            Self::Figure => row.better,
            Self::WorkPerCpu => Better::Higher,
        }
    }
}

/// The curves of a result; empty if none of its parameters varies.
pub(super) fn curves(result: &ScenarioResult) -> Markup {
    let panels = panels(result);
    let (first, rest) = panels.split_at(panels.len().min(OPEN));
    html! {
        @if !first.is_empty() {
            div.panels { @for panel in first { (figure(panel, result)) } }
        }
        @if !rest.is_empty() {
            details.more { summary { (rest.len()) " more plots" }
                div.panels { @for panel in rest { (figure(panel, result)) } }
            }
        }
    }
}

/// The plots of a result, those with the most points first.
pub(super) fn panels(result: &ScenarioResult) -> Vec<Panel<'_>> {
    let mut panels = Vec::new();
    for (parameter, axis) in ALONG {
        let Some(along) = PARAMS.iter().find(|(name, _)| *name == parameter) else {
            continue;
        };
        panels.extend(panels_along(result, along, axis));
    }
    // Those with the most points first; of a speed and the work per processor time, the speed.
    let points = |panel: &Panel<'_>| {
        let places = panel.curves.iter().flat_map(|curve| &curve.points);
        places
            .map(|(place, _)| place.to_bits())
            .collect::<BTreeSet<_>>()
            .len()
    };
    panels.sort_by_cached_key(|panel| std::cmp::Reverse(points(panel)));
    let mut all = Vec::new();
    for panel in panels {
        let works = Panel {
            heading: panel.heading.clone(),
            axis: panel.axis,
            measure: Measure::WorkPerCpu,
            curves: panel.curves.iter().filter_map(Curve::of_work).collect(),
            left_out: panel.left_out,
        };
        all.push(panel);
        if !works.curves.is_empty() {
            all.push(works);
        }
    }
    all
}

impl<'a> Curve<'a> {
    fn of_work(&self) -> Option<Self> {
        let has_work = |(_, row): &&(f64, &Row)| tables::work_per_cpu(row).is_some();
        let points: Vec<_> = self.points.iter().filter(has_work).copied().collect();
        (points.len() > 1).then(|| Self {
            name: self.name.clone(),
            side: self.side,
            points,
        })
    }

    /// The figure at the end of the curve, larger if better.
    fn merit(&self) -> f64 {
        let last = self
            .points
            .last()
            .map(|(_, row)| (row.figure.median, row.better));
        match last {
            Some((figure, Better::Higher)) => figure,
            Some((figure, Better::Lower)) => -figure,
            None => f64::NEG_INFINITY,
        }
    }
}

fn belongs(list: &[(&str, &str)], result: &ScenarioResult, parameter: &str) -> bool {
    list.contains(&(result.scenario.as_str(), parameter))
}

fn panels_along<'a>(
    result: &'a ScenarioResult,
    along: &Param,
    axis: &'static str,
) -> Vec<Panel<'a>> {
    // The parameters that tell one panel from another.
    let of_panels: Vec<&Param> = PARAMS
        .iter()
        .filter(|(name, _)| {
            *name != along.0
                && !belongs(&OF_CURVES, result, name)
                && !belongs(&DERIVED, result, name)
        })
        .collect();
    let varying: Vec<&Param> = of_panels
        .iter()
        .filter(|(_, value)| {
            let values: BTreeSet<_> = result.rows.iter().map(|row| value(&row.params)).collect();
            values.len() > 1
        })
        .copied()
        .collect();
    let mut found: Vec<(Vec<Option<String>>, Panel<'a>)> = Vec::new();
    for row in &result.rows {
        let place = (along.1)(&row.params).and_then(|value| value.parse::<f64>().ok());
        let Some(place) = place.filter(|_| !row.is_disturbed(result.rounds)) else {
            continue;
        };
        let key: Vec<Option<String>> = of_panels
            .iter()
            .map(|(_, value)| value(&row.params))
            .collect();
        let index = found.iter().position(|(known, _)| *known == key);
        let index = index.unwrap_or_else(|| {
            let words = varying
                .iter()
                .filter_map(|(name, value)| Some(words(name, &value(&row.params)?)));
            let heading = words.collect::<Vec<_>>().join(", ");
            let panel = Panel {
                heading,
                axis,
                measure: Measure::Figure,
                curves: Vec::new(),
                left_out: 0,
            };
            found.push((key, panel));
            found.len() - 1
        });
        found[index]
            .1
            .add(name_of(row, result), place, (row, result));
    }
    let panels = found.into_iter().map(|(_, panel)| panel.finish());
    panels.filter(|panel| !panel.curves.is_empty()).collect()
}

/// The side of a curve. Where ratios are to the smallest size, the base is a point of the curve.
fn side_of(row: &Row, result: &ScenarioResult) -> Side {
    let is_bases = row.contestant == result.base && (row.ratio.is_none() || is_base(row, result));
    match (is_ours(row), is_bases) {
        (true, _) => Side::Ours,
        (_, true) => Side::Base,
        _ => Side::of(row, result),
    }
}

/// A parameter in a heading: words alone, numbers with the parameter's name.
fn words(name: &str, value: &str) -> String {
    match value.parse::<f64>() {
        Ok(_) => format!("{name} {value}"),
        Err(_) => value.to_owned(),
    }
}

fn name_of(row: &Row, result: &ScenarioResult) -> String {
    let of_curves = PARAMS
        .iter()
        .filter(|(name, _)| belongs(&OF_CURVES, result, name));
    let values: Vec<String> = of_curves
        .filter_map(|(_, value)| value(&row.params))
        .collect();
    match values.is_empty() {
        true => row.contestant.clone(),
        false => format!("{}, {}", row.contestant, values.join(", ")),
    }
}

impl<'a> Panel<'a> {
    fn add(&mut self, name: String, place: f64, (row, result): (&'a Row, &ScenarioResult)) {
        let index = self.curves.iter().position(|curve| curve.name == name);
        let index = index.unwrap_or_else(|| {
            self.curves.push(Curve {
                name,
                side: side_of(row, result),
                points: Vec::new(),
            });
            self.curves.len() - 1
        });
        let points = &mut self.curves[index].points;
        if !points.iter().any(|(known, _)| *known == place) {
            points.push((place, row));
        }
    }

    /// Keeps the best curves of each side that have two points or more.
    fn finish(mut self) -> Self {
        self.curves.retain(|curve| curve.points.len() > 1);
        for curve in &mut self.curves {
            curve
                .points
                .sort_by(|(one, _), (other, _)| one.total_cmp(other));
        }
        self.curves
            .sort_by(|one, other| other.merit().total_cmp(&one.merit()));
        let all = self.curves.len();
        for (side, most) in MOST {
            let mut seen = 0;
            self.curves.retain(|curve| {
                seen += usize::from(curve.side == side);
                curve.side != side || seen <= most
            });
        }
        self.left_out = all - self.curves.len();
        self
    }
}

fn figure(panel: &Panel<'_>, result: &ScenarioResult) -> Markup {
    let points = || panel.curves.iter().flat_map(|curve| &curve.points);
    let spreads: Vec<Spread> = points()
        .filter_map(|(_, row)| panel.measure.of(row))
        .collect();
    let across = Axis::of_parameter(points().map(|(place, _)| *place));
    let up = Axis::from_zero(
        spreads
            .iter()
            .flat_map(|spread| [spread.median, spread.max]),
    );
    let first = points().next().map(|(_, row)| *row);
    let unit = first.map_or("", |row| panel.measure.unit(row));
    let better = match first.map(|row| panel.measure.better(row)) {
        Some(Better::Higher) => "more is better",
        _ => "less is better",
    };
    let mut places: Vec<f64> = points().map(|(place, _)| *place).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let label = format!("{}: {unit} by {}", result.scenario, panel.axis);
    html! {
        figure.panel {
            figcaption {
                b { @if panel.heading.is_empty() { (result.scenario) } @else { (panel.heading) } }
                " " (unit) ", " (better) @if up.is_logarithmic { ", logarithmic" }
            }
            div.plot {
                div.up aria-hidden="true" {
                    @for tick in up.ticks(6) {
                        span style=(format!("bottom:{:.2}%", up.place(tick))) { (brief(tick)) }
                    }
                }
                svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label=(label) {
                    @for tick in up.ticks(6) {
                        @let y = 100.0 - up.place(tick);
                        line.grid x1="0" x2="100" y1=(format!("{y:.2}")) y2=(format!("{y:.2}")) {}
                    }
                    @for (index, curve) in named(panel) { (drawn(curve, &index, panel.measure, (across, up))) }
                }
                div.across aria-hidden="true" {
                    @for place in thinned(&places) {
                        span style=(format!("left:{:.2}%", across.place(*place))) { (brief(*place)) }
                    }
                }
            }
            p.axis-title { (panel.axis) }
            ul.legend {
                @for (index, curve) in named(panel) {
                    li { i.(index) {} (curve.name) }
                }
                @if panel.left_out > 0 { li.note { "and " (panel.left_out) " more, in the tables" } }
            }
            (table(panel, &places))
        }
    }
}

/// At most six places, the last one among them.
fn thinned(places: &[f64]) -> Vec<&f64> {
    let step = places.len().div_ceil(6).max(1);
    let mut kept: Vec<&f64> = places.iter().rev().step_by(step).collect();
    kept.reverse();
    kept
}

/// The curves with the class of each, which gives it its colour.
fn named<'p, 'a>(panel: &'p Panel<'a>) -> Vec<(String, &'p Curve<'a>)> {
    let mut seen = [0_usize; 4];
    let name = |curve: &'p Curve<'a>| {
        let (index, word) = match curve.side {
            Side::Ours => (0, "ours"),
            Side::Base => (1, "base"),
            Side::Other => (2, "other"),
            Side::Floor => (3, "floor"),
        };
        seen[index] += 1;
        (format!("{word}-{}", seen[index]), curve)
    };
    panel.curves.iter().map(name).collect()
}

fn drawn(curve: &Curve<'_>, class: &str, measure: Measure, (across, up): (Axis, Axis)) -> Markup {
    let point = |(place, row): &(f64, &Row)| {
        let spread = measure.of(row)?;
        let y = |figure: f64| 100.0 - up.place(figure);
        Some((
            across.place(*place),
            y(spread.median),
            y(spread.min),
            y(spread.max),
        ))
    };
    let points: Vec<_> = curve.points.iter().filter_map(point).collect();
    let line: Vec<String> = points
        .iter()
        .map(|(x, y, ..)| format!("{x:.2},{y:.2}"))
        .collect();
    let dots: String = points
        .iter()
        .map(|(x, y, ..)| format!("M{x:.2} {y:.2}h0"))
        .collect();
    let whiskers: String = points
        .iter()
        .map(|(x, _, low, high)| format!("M{x:.2} {low:.2}V{high:.2}"))
        .collect();
    html! {
        g.curve.(class) {
            title { (curve.name) }
            path.whisker d=(whiskers) {}
            polyline points=(line.join(" ")) {}
            path.dots d=(dots) {}
        }
    }
}

fn table(panel: &Panel<'_>, places: &[f64]) -> Markup {
    let cell = |curve: &Curve<'_>, place: f64| {
        let point = curve.points.iter().find(|(known, _)| *known == place);
        point.and_then(|(_, row)| panel.measure.of(row))
    };
    html! {
        details.data {
            summary { "Data" }
            div.wide { table {
                thead { tr {
                    th { (panel.axis) }
                    @for curve in &panel.curves { th.number { (curve.name) } }
                } }
                tbody { @for place in places { tr {
                    td { (brief(*place)) }
                    @for curve in &panel.curves { td.number {
                        @match cell(curve, *place) {
                            Some(spread) if spread.min < spread.max => {
                                (brief(spread.median)) " (" (brief(spread.min)) " – " (brief(spread.max)) ")"
                            },
                            Some(spread) => (brief(spread.median)),
                            None => "–",
                        }
                    } }
                } } }
            } }
        }
    }
}
