//! How figures change from the fewest tasks to the most, in every scenario that varies them, with the work for each
//! second of processor time beside each speed.

use maud::{Markup, html};

use super::curves::{self, Curve, Measure, Panel, TASKS};
use super::scale::brief;
use super::tables;
use crate::report::layout::Side;
use crate::result::{Row, ScenarioResult};

/// So many cases of a scenario: those with the most task counts.
const CASES: usize = 3;
/// So many of ours in each case, the best with the most tasks.
const OURS: usize = 2;

/// A table of all scenarios that vary the number of tasks; nothing if there is none.
pub(super) fn section(results: &[ScenarioResult]) -> Markup {
    let plots: Vec<(&ScenarioResult, Panel<'_>)> = results
        .iter()
        .flat_map(|result| {
            let panels = curves::panels(result).into_iter();
            let of_tasks =
                panels.filter(|panel| panel.axis == TASKS && panel.measure == Measure::Figure);
            of_tasks.take(CASES).map(move |panel| (result, panel))
        })
        .collect();
    html! {
        section id="scale" {
            h2 { "Scale" }
            @if plots.is_empty() {
                p.none { "No result has more than one number of tasks: " code { "latchwork bench scale" } " measures them." }
            } @else {
                p.note {
                    "From the fewest tasks to the most of each case; the curves stand with the scenarios. Work for each second \
                     of processor time says what a speed costs. What grows with the objects and regions is in region-scale."
                }
                div.wide { table {
                    thead { tr {
                        th { "scenario" } th { "case" } th { "contestant" }
                        th.number { "tasks" } th.number { "figure" } th.number { "change" }
                        th.number { "work per CPU time" } th.number { "change" }
                    } }
                    tbody { @for (result, panel) in &plots {
                        @for curve in chosen(panel) { (line(result, panel, curve)) }
                    } }
                } }
            }
        }
    }
}

/// The base, the best of ours, and the best of the others.
fn chosen<'p, 'a>(panel: &'p Panel<'a>) -> Vec<&'p Curve<'a>> {
    let of = |side: Side, most: usize| {
        let curves = panel.curves.iter().filter(move |curve| curve.side == side);
        curves.take(most)
    };
    let chosen = of(Side::Ours, OURS)
        .chain(of(Side::Base, 1))
        .chain(of(Side::Other, 1));
    chosen.collect()
}

fn line(result: &ScenarioResult, panel: &Panel<'_>, curve: &Curve<'_>) -> Markup {
    let ends = curve.points.first().zip(curve.points.last());
    let work = |row: &Row| tables::work_per_cpu(row);
    html! {
        @if let Some(((few, first), (most, last))) = ends {
            tr.here[curve.side == Side::Ours] {
                td { a href=(format!("#{}", result.scenario)) { (result.scenario) } }
                td { (panel.heading) }
                td { (curve.name) }
                td.number { (brief(*few)) " → " (brief(*most)) }
                td.number { (brief(first.figure.median)) " → " (brief(last.figure.median)) " " (tables::unit(first.unit)) }
                td.number { (change(first.figure.median, last.figure.median)) }
                @match (work(first), work(last)) {
                    (Some((before, unit)), Some((after, _))) => {
                        td.number { (brief(before)) " → " (brief(after)) " " (unit) }
                        td.number { (change(before, after)) }
                    },
                    _ => { td.number { "–" } td.number { "–" } },
                }
            }
        }
    }
}

fn change(before: f64, after: f64) -> String {
    match before > 0.0 {
        true => format!("× {:.2}", after / before),
        false => "–".to_owned(),
    }
}
