//! The plan of a run: the checked options, and what follows from them.

use std::time::Duration;

use crate::args::Options;
use crate::disturbance::{Blind, Others, Watch};
use crate::{Error, Load};

/// With fewer rounds, a median and a range mean little.
const FEWEST_ROUNDS: u32 = 5;

/// The loads without repetitions.
fn each_once(loads: &[Load]) -> Vec<Load> {
    let mut once = Vec::new();
    for load in loads {
        if !once.contains(load) {
            once.push(*load);
        }
    }
    once
}

/// The parameters of a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) quick: bool,
    pub(crate) rounds: u32,
    /// The length of one sample of work that takes nanoseconds.
    pub(crate) sample: Duration,
    /// The length of one sample of work that must be observed for a while.
    pub(crate) window: Duration,
    /// Task counts that the user has chosen; empty for the scenario's own.
    pub(crate) tasks: Vec<u32>,
    /// Work inside critical sections that the user has chosen, each once; empty for the scenario's own.
    pub(crate) loads: Vec<Load>,
    /// The window that the user has chosen, for a scenario that takes one.
    pub(crate) chosen_window: Option<Duration>,
    /// Resident sizes of the parent in `spawn`.
    pub(crate) parents_mib: &'static [u64],
    /// How many other programs spin during the run, except in scenarios that have their own.
    pub(crate) beside: Option<u32>,
    only: Vec<String>,
    /// The options that change what is measured, as words of a command line.
    pub(crate) words: String,
    /// Whether other programs' use of the CPUs is measured.
    watches: bool,
}

impl Plan {
    /// The plan that `options` request, independent of the scenarios.
    pub(crate) fn new(options: &Options) -> Result<Self, Error> {
        let rounds = options.rounds.unwrap_or(FEWEST_ROUNDS);
        if rounds == 0 || rounds < FEWEST_ROUNDS && !options.quick {
            return Err(Error::TooFewRounds { rounds });
        }
        Ok(Self {
            quick: options.quick,
            rounds,
            sample: Duration::from_millis(if options.quick { 20 } else { 40 }),
            window: Duration::from_millis(if options.quick { 80 } else { 1000 }),
            tasks: options.tasks.clone(),
            loads: each_once(&options.load),
            chosen_window: options
                .window
                .map(|milliseconds| Duration::from_millis(milliseconds.into())),
            parents_mib: if options.quick {
                &[10, 1024]
            } else {
                &[10, 1024, 8192]
            },
            beside: options.beside,
            only: options.only.clone(),
            words: options.words(),
            watches: true,
        })
    }

    /// The user's task counts, or the scenario's `own`.
    pub(crate) fn tasks_or<'a>(&'a self, own: &'a [u32]) -> &'a [u32] {
        if self.tasks.is_empty() {
            own
        } else {
            &self.tasks
        }
    }

    /// Whether `contestant` runs; the base always does, since the ratios need it.
    pub(crate) fn wants(&self, base: &str, contestant: &str) -> bool {
        self.only.is_empty()
            || contestant == base
            || self.only.iter().any(|name| name == contestant)
    }

    /// Whether this process may be put under a quota: not if other tests run in it.
    pub(crate) fn may_be_confined(&self) -> bool {
        self.watches
    }

    /// The measurement of other programs' use of the CPUs.
    pub(crate) fn watch(&self) -> Box<dyn Watch> {
        match self.watches {
            true => Box::new(Others::new()),
            false => Box::new(Blind),
        }
    }

    /// Whether `contestant` was requested by name, or no contestant was.
    pub(crate) fn names(&self, contestant: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == contestant)
    }

    /// A plan for tests: all code runs, but no figure means anything.
    #[cfg(test)]
    pub(crate) fn tiny() -> Self {
        Self {
            quick: true,
            rounds: 2,
            sample: Duration::from_micros(100),
            window: Duration::from_millis(2),
            tasks: Vec::new(),
            loads: Vec::new(),
            chosen_window: None,
            parents_mib: &[1, 2],
            beside: None,
            only: Vec::new(),
            words: String::new(),
            watches: false,
        }
    }

    /// As [`Self::tiny`], with one contestant beside the bases.
    #[cfg(test)]
    pub(crate) fn tiny_with(contestant: &str) -> Self {
        Self {
            only: vec![contestant.into()],
            ..Self::tiny()
        }
    }
}
