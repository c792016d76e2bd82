//! Bars of ratios: for each group of rows that have a common base, one bar a row, with a whisker from its best round to
//! its worst.

use maud::{Markup, html};

use super::scale::{Axis, brief};
use super::tables;
use crate::report::layout::{self, Line, Side};
use crate::result::{Better, Row, ScenarioResult, Spread};
use crate::table::short;

/// So many closed groups are listed; the others open at a touch, together.
const LISTED: usize = 7;

/// The rows of a scenario that are compared with one another.
struct Group<'a> {
    heading: String,
    rows: Vec<(String, Side, &'a Row)>,
}

/// The bars of a result.
pub(super) fn bars(result: &ScenarioResult) -> Markup {
    let mut groups = groups(result);
    // The one in which most is to be seen comes first, and is open.
    if let Some(index) = widest(&groups, result) {
        groups[..=index].rotate_right(1);
    }
    let (first, rest) = groups.split_at(groups.len().min(1));
    let (listed, more) = rest.split_at(rest.len().min(LISTED));
    let closed = |group: &Group<'_>| {
        html! { details.group { (summary(group, result)) (figure(group, result)) } }
    };
    html! {
        @for group in first {
            @if rest.is_empty() {
                (figure(group, result))
            } @else {
                details.group open="open" { (summary(group, result)) (figure(group, result)) }
            }
        }
        @for group in listed { (closed(group)) }
        @if !more.is_empty() {
            details.more { summary { (more.len()) " more cases" }
                @for group in more { (closed(group)) }
            }
        }
    }
}

/// The group whose sound rows differ most from one another.
fn widest(groups: &[Group<'_>], result: &ScenarioResult) -> Option<usize> {
    let width = |group: &Group<'_>| {
        let sound = group
            .rows
            .iter()
            .filter(|(.., row)| !row.is_disturbed(result.rounds));
        let medians = sound
            .map(|(.., row)| row.figure.median)
            .filter(|median| *median > 0.0);
        let ends = medians.fold((f64::INFINITY, 0.0_f64), |(least, most), one| {
            (least.min(one), most.max(one))
        });
        if ends.0.is_finite() {
            ends.1 / ends.0
        } else {
            0.0
        }
    };
    let widths = groups.iter().map(width).enumerate();
    // The first one, of several.
    let most = widths.reduce(|one, other| if other.1 > one.1 { other } else { one });
    most.map(|(index, _)| index)
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
        Some(Better::Higher) => "more is better",
        _ => "less is better",
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
    // A logarithmic axis has no zero: a ratio then begins at 1.
    let begin = if ratios && axis.is_logarithmic {
        axis.place(1.0)
    } else {
        0.0
    };
    let end = axis.place(spread.median);
    html! {
        div.bar.(class(side)) {
            span.name { (label) }
            span.track {
                @if ratios {
                    i.one style=(format!("left:{:.2}%", axis.place(1.0))) {}
                }
                i.fill style=(format!("left:{:.2}%;width:{:.2}%", begin.min(end), (end - begin).abs())) {}
                i.whisker style=(format!("left:{from:.2}%;width:{:.2}%", to - from)) {}
            }
            span.figure { (brief(row.figure.median)) " " (tables::unit(row.unit)) }
            span.ratio { @if let Some(ratio) = row.ratio { "× " (short(ratio.median)) } }
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
