//! Who is better, by how much, and with which spread: the comparisons of `questions.rs`, answered from results.
//!
//! A comparison has *cases*: sets of parameters under which both sides have a sound row. In each case the best of ours
//! meets the best of the others; floors are no rivals. The *advantage* is how many times better ours is: above 1 it
//! wins, below 1 it loses. Its range takes our worst round against their best one, and the reverse, where possible as
//! ratios to the base of the same round. A case is decided only if this range lies on one side of 1: otherwise it is
//! even. A counter has no range, so it needs a difference of [`TOLERATED`]. A question is answered by most of its cases.
//! Rows that other programs disturbed take no part.

use super::questions::{QUESTIONS, Question, Who};
use crate::report::layout::Side;
use crate::result::{Better, Params, Row, ScenarioResult, Spread};

/// How far two counters may lie apart that count as even.
pub(super) const TOLERATED: f64 = 0.1;

/// Ours against theirs, under one set of parameters.
#[derive(Debug, Clone)]
pub(super) struct Duel<'a> {
    pub(super) ours: &'a Row,
    pub(super) theirs: &'a Row,
    /// How many times better ours is.
    pub(super) advantage: Spread,
}

/// The outcome of one duel, or of all duels of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Better,
    Even,
    Worse,
    /// Better in some cases, and worse in others.
    Mixed,
}

/// A question, and the duels that answer it.
pub(super) struct Verdict<'a> {
    pub(super) question: &'static Question,
    pub(super) duels: Vec<Duel<'a>>,
}

impl Duel<'_> {
    pub(super) fn outcome(&self) -> Outcome {
        match self.advantage {
            Spread { min, .. } if min > 1.0 => Outcome::Better,
            Spread { max, .. } if max < 1.0 => Outcome::Worse,
            _ => Outcome::Even,
        }
    }
}

impl<'a> Verdict<'a> {
    /// The number of duels with this outcome.
    pub(super) fn count(&self, outcome: Outcome) -> usize {
        let duels = self.duels.iter();
        duels.filter(|duel| duel.outcome() == outcome).count()
    }

    pub(super) fn outcome(&self) -> Outcome {
        let (better, worse) = (self.count(Outcome::Better), self.count(Outcome::Worse));
        let is_most = |count: usize| 2 * count > self.duels.len();
        match (better, worse) {
            (_, 0) if is_most(better) => Outcome::Better,
            (0, _) if is_most(worse) => Outcome::Worse,
            (_, 0) | (0, _) => Outcome::Even,
            _ => Outcome::Mixed,
        }
    }

    /// The advantage in the middle of all duels: of an even number of them the lesser one in the middle, so that it is
    /// that of a duel that can be shown.
    pub(super) fn middle(&self) -> &Duel<'a> {
        let mut sorted: Vec<&Duel<'a>> = self.duels.iter().collect();
        sorted.sort_by(|one, other| one.advantage.median.total_cmp(&other.advantage.median));
        sorted[(sorted.len() - 1) / 2]
    }

    /// The duel in which ours does worst.
    pub(super) fn worst(&self) -> &Duel<'a> {
        let less = |one: &&Duel<'_>, other: &&Duel<'_>| {
            one.advantage.median.total_cmp(&other.advantage.median)
        };
        let worst = self.duels.iter().min_by(less);
        worst.unwrap_or(&self.duels[0])
    }

    /// The smallest and the largest advantage of all duels, in their medians.
    pub(super) fn range(&self) -> (f64, f64) {
        let medians = self.duels.iter().map(|duel| duel.advantage.median);
        medians.fold((f64::INFINITY, 0.0), |(least, most), one| {
            (least.min(one), most.max(one))
        })
    }
}

/// The answers to all questions that these results answer, in the order of the questions.
pub(super) fn verdicts(results: &[ScenarioResult]) -> Vec<Verdict<'_>> {
    let answer = |question: &'static Question| {
        let is_its = |result: &&ScenarioResult| result.scenario == question.scenario;
        let duels = duels(question, results.iter().find(is_its)?);
        (!duels.is_empty()).then_some(Verdict { question, duels })
    };
    QUESTIONS.iter().filter_map(answer).collect()
}

fn duels<'a>(question: &Question, result: &'a ScenarioResult) -> Vec<Duel<'a>> {
    let mut cases: Vec<(Params, Vec<&'a Row>)> = Vec::new();
    for row in &result.rows {
        let is_of = !row.is_disturbed(result.rounds) && (question.which)(&row.params);
        if !is_of || Side::of(row, result) == Side::Floor || figure(question, row).is_none() {
            continue;
        }
        let key = (question.key)(&row.params);
        match cases.iter_mut().find(|(known, _)| *known == key) {
            Some((_, rows)) => rows.push(row),
            None => cases.push((key, vec![row])),
        }
    }
    let duel = |(_, rows): &(Params, Vec<&'a Row>)| {
        let best = |who: &Who| {
            let side = rows.iter().copied().filter(|row| who.is(row));
            side.min_by(|one, other| compare(question, one, other))
        };
        let (ours, theirs) = (best(&question.ours)?, best(&question.theirs)?);
        let advantage = advantage(question, ours, theirs)?;
        Some(Duel {
            ours,
            theirs,
            advantage,
        })
    };
    cases.iter().filter_map(duel).collect()
}

/// The figure that a question compares.
fn figure(question: &Question, row: &Row) -> Option<Spread> {
    match question.extra {
        None => Some(row.figure),
        // Counters have no range.
        Some((name, _)) => row.extra.get(name).map(|figure| Spread {
            median: *figure,
            min: *figure,
            max: *figure,
        }),
    }
}

fn better(question: &Question, row: &Row) -> Better {
    question.extra.map_or(row.better, |(_, better)| better)
}

/// The better row first.
fn compare(question: &Question, one: &Row, other: &Row) -> core::cmp::Ordering {
    let median = |row| figure(question, row).map_or(f64::NAN, |figure| figure.median);
    let ascending = median(one).total_cmp(&median(other));
    match better(question, one) {
        Better::Lower => ascending,
        Better::Higher => ascending.reverse(),
    }
}

/// How many times better ours is; `None` if figures around zero make that meaningless.
fn advantage(question: &Question, ours: &Row, theirs: &Row) -> Option<Spread> {
    let of = |row: &Row| match row.ratio.filter(|_| question.extra.is_none()) {
        // Ratios within a round do not contain the machine's drift between rounds.
        Some(ratio) if ours.ratio.is_some() && theirs.ratio.is_some() => Some(ratio),
        _ => figure(question, row),
    };
    let (ours_is, theirs_is) = (of(ours)?, of(theirs)?);
    let divide = |above: Spread, below: Spread| {
        let is_sound = [above.min, below.min].iter().all(|figure| *figure > 0.0);
        is_sound.then(|| Spread {
            median: above.median / below.median,
            min: above.min / below.max,
            max: above.max / below.min,
        })
    };
    let mut advantage = match better(question, ours) {
        Better::Lower => divide(theirs_is, ours_is),
        Better::Higher => divide(ours_is, theirs_is),
    }?;
    if question.extra.is_some() {
        advantage.min /= 1.0 + TOLERATED;
        advantage.max *= 1.0 + TOLERATED;
    }
    Some(advantage)
}
