//! The layout of a chart before it is drawn: its lines and its axis.

use std::ops::Range;

use crate::result::{Kind, Row, ScenarioResult, Unit};
use crate::table::{PARAMS, Param};

/// A larger ratio between figures needs a logarithmic axis.
const FAR_APART: f64 = 50.0;

/// The side that a row belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Ours,
    Base,
    Other,
    Floor,
}

impl Side {
    pub(super) fn of(row: &Row, result: &ScenarioResult) -> Self {
        if is_base(row, result) {
            Self::Base
        } else if is_ours(row) {
            Self::Ours
        } else if row.contestant.starts_with("floor") {
            Self::Floor
        } else {
            Self::Other
        }
    }
}

/// Whether a row is one of Latchwork's own.
pub(super) fn is_ours(row: &Row) -> bool {
    row.contestant.starts_with("latchwork") || row.params.kind == Some(Kind::Coprocs)
}

/// Whether the ratios of a group refer to this row: if contestants differ by a parameter, the base's name alone does
/// not identify it.
pub(super) fn is_base(row: &Row, result: &ScenarioResult) -> bool {
    let to_itself = |ratio: crate::result::Spread| [ratio.median, ratio.min, ratio.max] == [1.0; 3];
    row.contestant == result.base && row.ratio.is_some_and(to_itself)
}

/// A line of a chart.
#[derive(Debug, PartialEq)]
pub(super) enum Line<'a> {
    /// The parameters that the rows below have in common.
    Heading(String),
    /// A contestant.
    Row {
        label: String,
        side: Side,
        row: &'a Row,
    },
}

/// The parameters that all rows have in common, as text.
pub(super) fn common(result: &ScenarioResult) -> String {
    let common: Vec<Param> = PARAMS
        .iter()
        .filter(|param| !varies(param, &mut result.rows.iter()))
        .copied()
        .collect();
    result
        .rows
        .first()
        .map_or(String::new(), |row| describe(&common, row))
}

/// The parameters of `row` by which `rows` differ, as text.
pub(super) fn described(row: &Row, rows: &[&Row]) -> String {
    let differ: Vec<Param> = PARAMS
        .iter()
        .filter(|param| varies(param, &mut rows.iter().copied()))
        .copied()
        .collect();
    describe(&differ, row)
}

/// The rows, group by group: the rows of one group have a common base and are compared with one another.
pub(super) fn lines(result: &ScenarioResult) -> Vec<Line<'_>> {
    let rows = &result.rows;
    let bases: Vec<&Row> = rows.iter().filter(|row| is_base(row, result)).collect();
    let all: Vec<&Row> = rows.iter().collect();
    let heads = if bases.is_empty() { &all } else { &bases };
    // A parameter that varies among the bases distinguishes groups; one that otherwise varies distinguishes the rows of
    // a group.
    let (of_groups, others): (Vec<Param>, Vec<Param>) = PARAMS
        .iter()
        .partition(|param| varies(param, &mut heads.iter().copied()));
    let of_rows: Vec<Param> = others
        .into_iter()
        .filter(|param| varies(param, &mut rows.iter()))
        .collect();
    let one_contestant = rows.iter().all(|row| row.contestant == rows[0].contestant);

    let mut groups: Vec<(String, Vec<Line<'_>>)> = Vec::new();
    for row in rows {
        let mut label = describe(&of_rows, row);
        if !one_contestant || label.is_empty() {
            let comma = if label.is_empty() { "" } else { ", " };
            label = format!("{}{comma}{label}", row.contestant);
        }
        let line = Line::Row {
            label,
            side: Side::of(row, result),
            row,
        };
        let heading = describe(&of_groups, row);
        match groups.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, lines)) => lines.push(line),
            None => groups.push((heading, vec![line])),
        }
    }
    groups
        .into_iter()
        .flat_map(|(heading, lines)| {
            let heading = Some(heading).filter(|heading| !heading.is_empty());
            heading.map(Line::Heading).into_iter().chain(lines)
        })
        .collect()
}

fn varies<'a>((_, value): &Param, rows: &mut impl Iterator<Item = &'a Row>) -> bool {
    rows.next().is_some_and(|first| {
        let first = value(&first.params);
        rows.any(|row| value(&row.params) != first)
    })
}

fn describe(params: &[Param], row: &Row) -> String {
    let words: Vec<String> = params
        .iter()
        .filter_map(|(name, value)| Some(format!("{name} {}", value(&row.params)?)))
        .collect();
    words.join(", ")
}

/// The factor that converts a figure from `from` to `to`; 1 if there is no conversion, and the chart then says that it
/// shows several units.
pub(super) fn scale(from: Unit, to: Unit) -> f64 {
    let nanoseconds = |unit| match unit {
        Unit::Ns => Some(1.0),
        Unit::Us => Some(1000.0),
        Unit::OpsPerSecond | Unit::Bytes | Unit::Instructions => None,
    };
    match (nanoseconds(from), nanoseconds(to)) {
        (Some(from), Some(to)) => from / to,
        _ => 1.0,
    }
}

/// The units that a chart in `unit` shows, as text: times are converted into one.
pub(super) fn units(rows: &[Row], unit: Unit) -> String {
    let is_time = |unit| matches!(unit, Unit::Ns | Unit::Us);
    let mut units = vec![unit];
    for row in rows {
        if !(units.contains(&row.unit) || is_time(unit) && is_time(row.unit)) {
            units.push(row.unit);
        }
    }
    let words: Vec<String> = units.iter().map(Unit::to_string).collect();
    words.join(" and ")
}

/// The published figures for a row: the publisher, and the figure in `unit`.
pub(super) fn published(row: &Row, unit: Unit) -> impl Iterator<Item = (&str, f64)> {
    row.extra.iter().filter_map(move |(name, figure)| {
        let (who, suffix) = name.strip_prefix("published_")?.rsplit_once('_')?;
        let theirs = Unit::ALL
            .into_iter()
            .find(|unit| unit.to_string() == suffix)?;
        Some((who, figure * scale(theirs, unit)))
    })
}

/// The axis of the figures: from, to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Axis {
    Linear(Range<f64>),
    Log(Range<f64>),
}

impl Axis {
    /// An axis for figures of these rows in `unit`.
    pub(super) fn of(rows: &[Row], unit: Unit) -> Self {
        let mut lowest = 0.0_f64;
        let mut highest = 0.0_f64;
        // A single very fast round, or a net time of zero, does not make the axis logarithmic: its whisker leaves the
        // chart.
        let mut smallest = f64::INFINITY;
        for row in rows {
            let own = scale(row.unit, unit);
            lowest = lowest.min(row.figure.min * own);
            highest = highest.max(row.figure.max * own);
            for shown in published(row, unit)
                .map(|(_, figure)| figure)
                .chain([row.figure.median * own])
            {
                highest = highest.max(shown);
                if shown > 0.0 {
                    smallest = smallest.min(shown);
                }
            }
        }
        if highest > FAR_APART * smallest {
            // The shortest bar must be visible.
            Self::Log(round_down(smallest / 1.5)..highest * 1.1)
        } else if highest > lowest {
            Self::Linear(lowest * 1.05..highest * 1.05)
        } else {
            Self::Linear(0.0..1.0)
        }
    }

    pub(super) fn range(&self) -> &Range<f64> {
        match self {
            Self::Linear(range) | Self::Log(range) => range,
        }
    }
}

/// The largest number not above the given one that is 1, 2 or 5 times a power of ten.
fn round_down(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0]
        .into_iter()
        .map(|step| step * power)
        .find(|round| *round <= value)
        .unwrap_or(power)
}

/// The numbers on a logarithmic axis.
pub(super) fn ticks(range: &Range<f64>) -> Vec<f64> {
    let first = range.start.log10().floor() as i32;
    let last = range.end.log10().ceil() as i32;
    // More numbers would overlap.
    let steps: &[f64] = if range.end <= range.start * 1000.0 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    (first..=last)
        .flat_map(|exponent| steps.iter().map(move |step| step * 10_f64.powi(exponent)))
        .filter(|tick| range.contains(tick))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{result, row};
    use super::*;

    fn words(lines: &[Line<'_>]) -> Vec<String> {
        lines
            .iter()
            .map(|line| match line {
                Line::Heading(text) => format!("# {text}"),
                Line::Row { label, side, .. } => format!("{side:?} {label}"),
            })
            .collect()
    }

    #[test]
    fn parameters_of_the_bases_head_groups_and_others_name_rows() {
        let mut rows = Vec::new();
        for tasks in [2, 8] {
            for (kind, ratio) in [
                (Kind::Threads, 1.0),
                (Kind::Processes, 1.2),
                (Kind::Coprocs, 1.1),
            ] {
                let mut row = row("pipe", 1.0, Some(ratio));
                row.params.tasks = Some(tasks);
                row.params.kind = Some(kind);
                row.params.size = Some(16);
                rows.push(row);
            }
        }
        let result = result("pipe", rows);
        assert_eq!(common(&result), "size 16");
        let group = [
            "Base kind threads",
            "Other kind processes",
            "Ours kind coprocs",
        ];
        assert_eq!(
            words(&lines(&result)),
            [&["# tasks 2"][..], &group, &["# tasks 8"], &group].concat()
        );
    }

    #[test]
    fn rows_that_differ_by_name_alone_are_one_group_without_a_heading() {
        let rows = vec![
            row("latchwork robust", 2.0, Some(0.5)),
            row("glibc normal", 4.0, Some(1.0)),
            row("floor two-rmw", 1.0, Some(0.25)),
        ];
        let result = result("glibc normal", rows);
        assert_eq!(
            words(&lines(&result)),
            [
                "Ours latchwork robust",
                "Base glibc normal",
                "Floor floor two-rmw"
            ]
        );
    }

    #[test]
    fn without_a_base_every_parameter_that_varies_heads_a_group() {
        let mut rows = vec![row("a", 1.0, None), row("a", 2.0, None)];
        rows[0].params.tasks = Some(1);
        rows[1].params.tasks = Some(2);
        assert_eq!(
            words(&lines(&result("base", rows))),
            ["# tasks 1", "Other a", "# tasks 2", "Other a"]
        );
    }

    #[test]
    fn the_axis_is_logarithmic_where_figures_lie_far_apart() {
        let near = [row("a", 1.0, None), row("b", 40.0, None)];
        assert_eq!(Axis::of(&near, Unit::Ns), Axis::Linear(0.0..44.1));
        let far = [row("a", 3.0, None), row("b", 5000.0, None)];
        let Axis::Log(range) = Axis::of(&far, Unit::Ns) else {
            panic!("linear");
        };
        assert_eq!(range.start, 2.0);
        assert!(range.end > 5250.0);
        assert_eq!(ticks(&range), [10.0, 100.0, 1000.0]);
        assert_eq!(ticks(&(0.05..0.6)), [0.05, 0.1, 0.2, 0.5]);
    }

    #[test]
    fn figures_around_zero_have_an_axis() {
        let mut net = row("a", 0.0, None);
        net.figure.min = -2.0;
        net.figure.max = 10.0;
        assert_eq!(Axis::of(&[net], Unit::Ns), Axis::Linear(-2.1..10.5));
        assert_eq!(Axis::of(&[], Unit::Ns), Axis::Linear(0.0..1.0));
    }

    #[test]
    fn published_figures_are_converted() {
        let mut row = row("a", 100.0, None);
        row.extra.insert("published_core2_us".into(), 1.5);
        row.extra.insert("page_faults".into(), 7.0);
        let published: Vec<_> = published(&row, Unit::Ns).collect();
        assert_eq!(published, [("core2", 1500.0)]);
    }
}
