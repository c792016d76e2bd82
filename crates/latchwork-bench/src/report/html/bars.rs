//! Bars of ratios: for each group of rows that have a common base, one bar a row, with a whisker from its best round to
//! its worst.

use maud::{Markup, html};

use super::scale::{Axis, brief};
use super::tables;
use crate::report::layout::{self, Line, Side};
use crate::result::{Better, Row, ScenarioResult, Spread};

/// So many groups are shown at once; the others open at a touch.
const OPEN: usize = 1;

/// The rows of a scenario that are compared with one another.
struct Group<'a> {
    heading: String,
    rows: Vec<(String, Side, &'a Row)>,
}

/// The bars of a result.
pub(super) fn bars(result: &ScenarioResult) -> Markup {
    let groups = groups(result);
    html! {
        @for (index, group) in groups.iter().enumerate() {
            @if groups.len() == 1 {
                (figure(group, result))
            } @else if index < OPEN {
                details.group open="open" { (summary(group, result)) (figure(group, result)) }
            } @else {
                details.group { (summary(group, result)) (figure(group, result)) }
            }
        }
    }
}

fn groups(result: &ScenarioResult) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for line in layout::lines(result) {
        match line {
            Line::Heading(heading) => groups.push(Group {
                heading,
                rows: Vec::new(),
            }),
            Line::Row { label, side, row } => {
                if groups.is_empty() {
                    groups.push(Group {
                        heading: String::new(),
                        rows: Vec::new(),
                    });
                }
                if let Some(group) = groups.last_mut() {
                    group.rows.push((label, side, row));
                }
            }
        }
    }
    for group in &mut groups {
        group
            .rows
            .sort_by(|(.., one), (.., other)| best_first(one, other));
    }
    groups
}

fn best_first(one: &Row, other: &Row) -> std::cmp::Ordering {
    let ascending = one.figure.median.total_cmp(&other.figure.median);
    match one.better {
        Better::Lower => ascending,
        Better::Higher => ascending.reverse(),
    }
}

/// The line by which a closed group is opened: its parameters, and the best of each side.
fn summary(group: &Group<'_>, result: &ScenarioResult) -> Markup {
    let best = |wanted: &[Side]| {
        let mut rows = group.rows.iter();
        rows.find(|(_, side, row)| wanted.contains(side) && !row.is_disturbed(result.rounds))
    };
    let ours = best(&[Side::Ours]);
    let theirs = best(&[Side::Base, Side::Other]);
    html! {
        summary {
            b { (group.heading) }
            @for (label, side, row) in [ours, theirs].into_iter().flatten() {
                span.top {
                    i.(class(*side)) {}
                    (label) " " (brief(row.figure.median)) " " (tables::unit(row.unit))
                }
            }
        }
    }
}

/// What a bar shows: ratios if all sound rows have one, otherwise figures.
fn shown(row: &Row, ratios: bool) -> Option<Spread> {
    match ratios {
        true => row.ratio,
        false => Some(row.figure),
    }
}

fn figure(group: &Group<'_>, result: &ScenarioResult) -> Markup {
    let is_sound = |row: &Row| !row.is_disturbed(result.rounds);
    let sound: Vec<_> = group
        .rows
        .iter()
        .filter(|(.., row)| is_sound(row))
        .collect();
    let ratios = sound.iter().all(|(.., row)| row.ratio.is_some());
    let spreads: Vec<Spread> = sound
        .iter()
        .filter_map(|(.., row)| shown(row, ratios))
        .collect();
    let axis = Axis::from_zero(
        spreads
            .iter()
            .flat_map(|spread| [spread.median, spread.max]),
    );
    let left_out = group.rows.len() - sound.len();
    let works = sound
        .iter()
        .any(|(.., row)| tables::work_per_cpu(row).is_some());
    let better = match sound.first().map(|(.., row)| row.better) {
        Some(Better::Higher) => "longer bars are better",
        _ => "shorter bars are better",
    };
    let what = match (ratios, sound.first()) {
        (true, _) => format!("ratio to {}", result.base),
        (false, Some((.., row))) => tables::unit(row.unit).to_owned(),
        (false, None) => String::new(),
    };
    html! {
        @if sound.is_empty() {
            p.none { "Not drawn: other programs disturbed all " (left_out) " rows." }
        } @else {
            div.bars.works[works] role="group" aria-label=(format!("{}: {what}, {}", result.scenario, group.heading)) {
                p.axis-title { (what) ", " (better) @if axis.is_logarithmic { ", logarithmic" } }
                @for (label, side, row) in &sound {
                    @if let Some(spread) = shown(row, ratios) {
                        (bar(label, *side, row, spread, (axis, ratios)))
                    }
                }
                div.ticks aria-hidden="true" {
                    @for tick in axis.ticks(6) {
                        span style=(format!("left:{:.2}%", axis.place(tick))) { (brief(tick)) }
                    }
                }
            }
            @if left_out > 0 {
                p.note { "Not drawn, since other programs disturbed them: " (left_out) " of " (group.rows.len()) " rows." }
            }
        }
        (tables::of_rows(group.rows.iter().map(|(.., row)| *row), result))
    }
}

fn bar(label: &str, side: Side, row: &Row, spread: Spread, (axis, ratios): (Axis, bool)) -> Markup {
    let [from, to] = [axis.place(spread.min), axis.place(spread.max)];
    html! {
        div.bar.(class(side)) {
            span.name { (label) }
            span.track {
                @if ratios {
                    i.one style=(format!("left:{:.2}%", axis.place(1.0))) {}
                }
                i.fill style=(format!("width:{:.2}%", axis.place(spread.median))) {}
                i.whisker style=(format!("left:{from:.2}%;width:{:.2}%", to - from)) {}
            }
            span.figure { (brief(row.figure.median)) " " (tables::unit(row.unit)) }
            span.ratio { @if let Some(ratio) = row.ratio { "× " (brief(ratio.median)) } }
            @if let Some((work, name)) = tables::work_per_cpu(row) {
                span.work { (brief(work)) " " (name) }
            }
        }
    }
}

/// The class that gives a side its colour.
pub(super) fn class(side: Side) -> &'static str {
    match side {
        Side::Ours => "ours",
        Side::Base => "base",
        Side::Other => "other",
        Side::Floor => "floor",
    }
}
