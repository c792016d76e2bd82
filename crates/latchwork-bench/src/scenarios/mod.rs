//! The scenarios.

mod call_overhead;
mod contention;
mod context_switch;
mod footprint;
mod futex_lock;
mod futex_rwlock;
mod heap;
mod inversion;
mod rt_latency;
mod spawn;
mod start;
mod wait_wakeup;

use std::any::Any;
use std::fmt;

use crate::measure::Case;
use crate::plan::Plan;
use crate::result::Warning;

/// Every scenario, in the order of `list`.
pub(crate) const ALL: &[&dyn Scenario] = &[
    &call_overhead::CallOverhead,
    &wait_wakeup::WaitWakeup,
    &inversion::Inversion,
    &futex_lock::FutexLock,
    &futex_rwlock::FutexRwLock,
    &context_switch::ContextSwitch,
    &spawn::Spawn,
    &heap::Heap,
    &footprint::Footprint,
    &rt_latency::RtLatency,
];

/// One kind of work, and those who do it.
pub(crate) trait Scenario: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What runs, and the figure, in one line.
    fn about(&self) -> &'static str;

    /// The contestant that ratios refer to.
    fn base(&self) -> &'static str;

    /// Whether `--tasks` applies.
    fn varies_tasks(&self) -> bool {
        false
    }

    /// Who takes part, available or not.
    fn contestants(&self) -> Vec<Contestant>;

    /// Sets up every case of the contestants that the plan wants and that are available.
    fn prepare(&self, plan: &Plan) -> Prepared;
}

/// A contestant and whether it is available here.
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) absent: Option<Absent>,
}

impl Contestant {
    /// One that every machine has.
    pub(crate) fn ready(name: &'static str) -> Self {
        Self { name, absent: None }
    }
}

/// Why a contestant is not available.
#[derive(Debug, Clone)]
pub(crate) struct Absent {
    pub(crate) reason: String,
    /// The Debian package that brings it.
    pub(crate) package: Option<&'static str>,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match self.package {
            Some(package) => write!(f, "; the Debian package {package} brings it"),
            None => Ok(()),
        }
    }
}

/// What a scenario is about to measure.
#[derive(Default)]
pub(crate) struct Prepared {
    pub(crate) cases: Vec<Case>,
    pub(crate) warnings: Vec<Warning>,
    /// What has to live while the cases run.
    pub(crate) company: Option<Box<dyn Any>>,
}
