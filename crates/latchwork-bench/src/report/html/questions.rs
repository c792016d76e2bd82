//! What the verdicts compare: which of our contestants, with which of the others, in which cases.

mod contestants;
mod list;

pub(super) use list::QUESTIONS;

use crate::report::layout::is_ours;
use crate::result::{Better, Kind, Params, Row};

/// A comparison within a scenario.
pub(super) struct Question {
    pub(super) scenario: &'static str,
    /// The work, as the beginning of a line.
    pub(super) about: &'static str,
    pub(super) ours: Who,
    pub(super) theirs: Who,
    /// Whether rows with these parameters count.
    pub(super) which: fn(&Params) -> bool,
    /// The parameters that both sides must have in common.
    pub(super) key: fn(&Params) -> Params,
    /// A further figure to compare instead of the row's own, and which direction is better.
    pub(super) extra: Option<(&'static str, Better)>,
    /// What the page does with the answer.
    pub(super) role: Role,
}

/// The use of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Ours against others.
    Verdict,
    /// Ours with a feature against ours without it: the price of the feature.
    Price,
}

/// The contestants of a side.
pub(super) enum Who {
    /// By name.
    Named(&'static [&'static str]),
    /// All of ours, or all but ours; [`Side::Floor`](crate::report::layout::Side) never counts.
    Ours,
    Others,
    /// A kind of tasks, whatever the contestant.
    Kind(Kind),
}

impl Who {
    pub(super) fn is(&self, row: &Row) -> bool {
        match self {
            Self::Named(names) => names.contains(&row.contestant.as_str()),
            Self::Ours => is_ours(row),
            Self::Others => !is_ours(row) && !row.contestant.starts_with("giant-lock"),
            Self::Kind(kind) => row.params.kind == Some(*kind),
        }
    }
}
