//! The first screen: what Latchwork is best at, what it costs, where it loses; and the table of verdicts.

use maud::{Markup, html};

use super::questions::Role;
use super::scale::{brief, duration};
use super::tables;
use super::verdict::{Duel, Outcome, Verdict};
use crate::result::{Params, Row, ScenarioResult, Spread, Unit};
use crate::table::PARAMS;

/// So many lines in each card.
const LINES: usize = 4;

/// The three answers.
pub(super) fn cards(verdicts: &[Verdict<'_>], results: &[ScenarioResult]) -> Markup {
    let of = |role: Role| {
        verdicts
            .iter()
            .filter(move |verdict| verdict.question.role == role)
    };
    let all: Vec<&Verdict<'_>> = of(Role::Verdict).collect();

    let mut best: Vec<&Verdict<'_>> = all.clone();
    best.retain(|verdict| verdict.outcome() == Outcome::Better);
    best.sort_by(|one, other| {
        let advantage = |verdict: &Verdict<'_>| verdict.middle().advantage.median;
        advantage(other).total_cmp(&advantage(one))
    });
    let best = one_each(best);

    let mut lost: Vec<&Verdict<'_>> = all.clone();
    lost.retain(|verdict| verdict.count(Outcome::Worse) > 0);
    lost.sort_by(|one, other| {
        let advantage = |verdict: &Verdict<'_>| verdict.worst().advantage.median;
        advantage(one).total_cmp(&advantage(other))
    });
    let losses = lost.len();
    let lost = one_each(lost);
    let prices: Vec<&Verdict<'_>> = of(Role::Price).collect();

    html! {
        div.cards {
            section.card.best {
                h2 { "Best at" }
                @for verdict in &best {
                    @let duel = verdict.middle();
                    (line(times(duel.advantage.median), "better", verdict.question.about, &against(duel)))
                }
                @if best.is_empty() { p.none { "Better beyond the spread in none of the " (all.len()) " comparisons." } }
            }
            section.card.costs {
                h2 { "What it costs" }
                @for verdict in prices.iter().take(LINES + 1) {
                    @let duel = verdict.middle();
                    (line(times(1.0 / duel.advantage.median), "the cost", verdict.question.about, &price(duel)))
                }
                @if prices.is_empty() { p.none { "Not among these results: call-overhead, check-overhead and footprint measure it." } }
            }
            section.card.loses {
                h2 { "Where it loses" }
                @for verdict in &lost {
                    @let duel = verdict.worst();
                    @let detail = format!("{}; {}", against(duel), cases(verdict));
                    (line(times(1.0 / duel.advantage.median), "worse", verdict.question.about, &detail))
                }
                @if losses == 0 {
                    p.none { "Worse beyond the spread in none of the " (all.len()) " comparisons." }
                }
            }
        }
        p.note {
            "Each line compares the best of ours with the best rival, from " (results.len()) " scenarios; "
            (losses) " of " (all.len()) " comparisons have a case that Latchwork loses. The table below has all of them."
        }
    }
}

/// The first verdicts, at most two of each scenario, so that one scenario does not fill the card.
fn one_each<'v, 'a>(verdicts: Vec<&'v Verdict<'a>>) -> Vec<&'v Verdict<'a>> {
    let mut kept: Vec<&Verdict<'_>> = Vec::new();
    for verdict in verdicts {
        let scenario = verdict.question.scenario;
        let same = kept
            .iter()
            .filter(|other| other.question.scenario == scenario);
        if kept.len() < LINES && same.count() < 1 {
            kept.push(verdict);
        }
    }
    kept
}

fn line(factor: String, word: &str, about: &str, detail: &str) -> Markup {
    html! {
        p.answer {
            b.factor { (factor) small { " " (word) } }
            span { (about) small { (detail) } }
        }
    }
}

/// A factor in about two digits.
pub(super) fn times(factor: f64) -> String {
    match factor {
        large if large >= 9.95 => format!("{large:.0}×"),
        middle if middle >= 1.95 => format!("{middle:.1}×"),
        small => format!("{small:.2}×"),
    }
}

fn with_figure(row: &Row) -> String {
    let median = row.figure.median;
    let figure = match row.unit {
        Unit::Ns => duration(median),
        Unit::Us => duration(median * 1e3),
        unit => format!("{} {}", brief(median), tables::unit(unit)),
    };
    format!("{} {figure}", row.contestant)
}

/// The contestants of a duel, and the parameters that say most.
fn against(duel: &Duel<'_>) -> String {
    let params = in_few_words(&duel.ours.params);
    let comma = if params.is_empty() { "" } else { ", " };
    let (ours, theirs) = (name(duel.ours, duel.theirs), name(duel.theirs, duel.ours));
    format!("{ours} against {theirs}{comma}{params}")
}

/// A contestant, by its kind of tasks where both sides have the same one.
fn name(row: &Row, other: &Row) -> String {
    match row
        .params
        .kind
        .filter(|_| row.contestant == other.contestant)
    {
        Some(kind) => format!("{} of {kind}", row.contestant),
        None => row.contestant.clone(),
    }
}

/// Parameters without those that are the rule.
fn in_few_words(params: &Params) -> String {
    let usual = [
        ("kind", "threads"),
        ("placement", "free"),
        ("sched", "other"),
        ("sleeps/1024", "0"),
    ];
    let words = PARAMS.iter().filter_map(|(name, value)| {
        let value = value(params)?;
        let is_usual = usual.contains(&(*name, value.as_str()));
        let said = match (*name, value.parse::<f64>().is_ok()) {
            ("tasks", _) if value == "1" => "1 task".to_owned(),
            ("tasks", _) => format!("{value} tasks"),
            ("size", _) => format!("{value} B"),
            ("parent MiB", _) => format!("parent of {value} MiB"),
            (name, true) => format!("{name} {value}"),
            (_, false) => value,
        };
        (!is_usual).then_some(said)
    });
    words.collect::<Vec<_>>().join(", ")
}

fn price(duel: &Duel<'_>) -> String {
    format!(
        "{} against {}",
        with_figure(duel.ours),
        with_figure(duel.theirs)
    )
}

fn cases(verdict: &Verdict<'_>) -> String {
    let (lost, all) = (verdict.count(Outcome::Worse), verdict.duels.len());
    match all {
        1 => "the only case".to_owned(),
        _ => format!("{lost} of {all} cases lost"),
    }
}

/// The table of all verdicts.
pub(super) fn table(verdicts: &[Verdict<'_>], results: &[ScenarioResult]) -> Markup {
    let shown: Vec<&Verdict<'_>> = verdicts
        .iter()
        .filter(|verdict| verdict.question.role == Role::Verdict)
        .collect();
    let count = |outcome: Outcome| {
        shown
            .iter()
            .filter(|verdict| verdict.outcome() == outcome)
            .count()
    };
    html! {
        section id="verdicts" {
            h2 { "Verdicts" }
            p.note {
                "Of " (shown.len()) " comparisons, Latchwork is better in " (count(Outcome::Better)) ", worse in "
                (count(Outcome::Worse)) ", better or worse by the case in " (count(Outcome::Mixed)) ", and even in "
                (count(Outcome::Even)) ". The advantage says how many times better our best contestant is than the best \
                 rival (below 1: worse), in the case in the middle, with the range of its rounds. A case counts as decided \
                 only if that range lies on one side of 1 (of work per CPU time, which has no range, if it differs by more than \
                 10 %); a comparison, by most of its cases."
            }
            table.verdicts {
                thead { tr {
                    th { "work" } th { "verdict" } th.number { "advantage" } th.number { "rounds" } th.number { "all cases" }
                    th.number { "better · even · worse" } th { "case in the middle" }
                } }
                tbody { @for verdict in &shown { (row(verdict, results)) } }
            }
        }
    }
}

fn row(verdict: &Verdict<'_>, results: &[ScenarioResult]) -> Markup {
    let duel = verdict.middle();
    let (least, most) = verdict.range();
    let (class, word) = match verdict.outcome() {
        Outcome::Better => ("better", "better"),
        Outcome::Even => ("even", "even"),
        Outcome::Worse => ("worse", "worse"),
        Outcome::Mixed => ("mixed", "by case"),
    };
    let counts = [Outcome::Better, Outcome::Even, Outcome::Worse]
        .map(|outcome| verdict.count(outcome).to_string());
    let Spread { median, min, max } = duel.advantage;
    let scenario = verdict.question.scenario;
    let is_linked = results.iter().any(|result| result.scenario == scenario);
    html! {
        tr {
            td { (verdict.question.about) " "
                @if is_linked { a href=(format!("#{scenario}")) { (scenario) } }
            }
            td { span.(format!("pill {class}")) { (word) } }
            td.number data-label="advantage" { b.(class) { (times(median)) } }
            (range("rounds", (min, max), min < max && verdict.question.extra.is_none()))
            (range("all cases", (least, most), verdict.duels.len() > 1))
            td.number data-label="better · even · worse" { (counts.join(" · ")) }
            td.case { (against(duel)) }
        }
    }
}

/// A cell with a range, if there is one.
fn range(label: &str, (from, to): (f64, f64), is_there: bool) -> Markup {
    html! {
        td.number.empty[!is_there] data-label=(label) {
            @if is_there { (format!("{from:.2} – {to:.2}")) } @else { "–" }
        }
    }
}
