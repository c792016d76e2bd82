//! The classes of semaphores and the queue disciplines, as the tables name them.

use super::classic::{attribute, status};
use crate::conformance::NotApplicable;

/// No class of semaphores has these properties.
pub(super) const NOT_CLASSIC: NotApplicable = NotApplicable("NotClassic");

/// The system under test has too few schedulers.
pub(super) const FEW_SCHEDULERS: NotApplicable = NotApplicable("FewSchedulers");
/// A task would need different priorities in its schedulers.
pub(super) const ONE_PRIORITY: NotApplicable = NotApplicable("OnePriority");

/// A table's name for a result: "Ok" for success, else one of these.
pub(super) fn text_of(answer: u32, others: &[(u32, &str)]) -> String {
    match others.iter().find(|(status, _)| *status == answer) {
        _ if answer == status::SUCCESSFUL => "Ok".to_owned(),
        Some((_, text)) => (*text).to_owned(),
        None => format!("status {answer}"),
    }
}

/// The class of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Counting,
    Simple,
    Binary,
    PrioCeiling,
    PrioInherit,
    MrsP,
}

impl Class {
    pub(super) const ALL: [Self; 6] = [
        Self::Counting,
        Self::Simple,
        Self::Binary,
        Self::PrioCeiling,
        Self::PrioInherit,
        Self::MrsP,
    ];

    /// The class that tables call by this name.
    pub(super) fn named(name: &str) -> Self {
        let class = Self::ALL.into_iter().find(|class| class.name() == name);
        class.unwrap_or_else(|| panic!("there is no class {name}"))
    }

    pub(super) fn name(self) -> String {
        format!("{self:?}")
    }

    pub(super) fn is_mutex(self) -> bool {
        !matches!(self, Self::Counting | Self::Simple)
    }

    pub(super) fn has_ceiling(self) -> bool {
        matches!(self, Self::PrioCeiling | Self::MrsP)
    }

    pub(super) fn attributes(self) -> u32 {
        match self {
            Self::Counting => 0,
            Self::Simple => attribute::SIMPLE_BINARY,
            Self::Binary => attribute::BINARY,
            Self::PrioCeiling => attribute::BINARY | attribute::CEILING,
            Self::PrioInherit => attribute::BINARY | attribute::INHERIT,
            Self::MrsP => attribute::BINARY | attribute::MRSP,
        }
    }
}

/// The order in which waiters are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Discipline {
    Fifo,
    Priority,
}

impl Discipline {
    pub(super) const ALL: [Self; 2] = [Self::Fifo, Self::Priority];

    pub(super) fn named(name: &str) -> Self {
        match name {
            "FIFO" => Self::Fifo,
            "Priority" => Self::Priority,
            other => panic!("there is no discipline {other}"),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fifo => "FIFO",
            Self::Priority => "Priority",
        }
    }

    pub(super) fn attribute(self) -> u32 {
        match self {
            Self::Fifo => attribute::FIFO,
            Self::Priority => attribute::PRIORITY,
        }
    }
}
