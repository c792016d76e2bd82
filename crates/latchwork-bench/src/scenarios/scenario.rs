//! What every scenario implements, and what it hands over to be measured.

use std::any::Any;

use libc::c_int;

use crate::contestant::{Absent, Contestant};
use crate::measure::Case;
use crate::peers::locks::Peer;
use crate::peers::on_thread;
use crate::plan::Plan;
use crate::published::{Experiment, Source};
use crate::result::Warning;

/// One kind of work, and its contestants.
pub(crate) trait Scenario: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// The work and the figure, in one line.
    fn about(&self) -> &'static str;

    /// The published experiment that it repeats, and the pages or tables with it; `None` for one of Latchwork's own.
    fn source(&self) -> Option<Source>;

    /// What was published of these experiments, and the rows that correspond to it; empty if no figures were.
    fn experiments(&self) -> Vec<Experiment> {
        Vec::new()
    }

    /// The contestant that ratios refer to.
    fn base(&self) -> &'static str;

    /// Whether `--tasks` applies.
    fn varies_tasks(&self) -> bool {
        false
    }

    /// Whether `--load` and `--window` apply.
    fn varies_loads(&self) -> bool {
        false
    }

    /// Whether the process is another one afterwards, so that later scenarios would measure something else. Such
    /// scenarios are run last.
    fn changes_the_process(&self) -> bool {
        false
    }

    /// The mutual-exclusion locks that it compares, if any.
    fn locks(&self) -> &'static [&'static Peer] {
        &[]
    }

    /// The locks that `plan` wants and that are available: absent ones have been reported.
    fn available(&self, plan: &Plan) -> Vec<&'static Peer> {
        let wanted = |peer: &&Peer| plan.wants(self.base(), peer.name);
        let available = |peer: &&Peer| peer.contestant().absent.is_none();
        let locks = self.locks().iter().copied();
        locks.filter(wanted).filter(available).collect()
    }

    /// The contestants, available or not.
    fn contestants(&self) -> Vec<Contestant> {
        self.locks().iter().map(|peer| peer.contestant()).collect()
    }

    /// Sets up every case of the contestants that the plan wants and that are available.
    fn prepare(&self, plan: &Plan) -> Prepared;
}

/// The prepared cases of a scenario.
#[derive(Default)]
pub(crate) struct Prepared {
    pub(crate) cases: Vec<Case>,
    pub(crate) warnings: Vec<Warning>,
    /// An object that has to live while the cases run.
    pub(crate) background: Option<Box<dyn Any>>,
}

/// These peers as contestants of a scenario whose tasks have real-time priorities up to `priority`.
pub(super) fn contestants_at(priority: c_int, peers: &[&Peer]) -> Vec<Contestant> {
    let absent = on_thread(Some(priority), None, || Ok(()))
        .err()
        .map(|error| Absent {
            reason: format!("{error}; it needs CAP_SYS_NICE, or an RLIMIT_RTPRIO of {priority}"),
            package: None,
        });
    let contestant = |peer: &&Peer| match &absent {
        None => peer.contestant(),
        Some(absent) => Contestant {
            name: peer.name,
            absent: Some(absent.clone()),
        },
    };
    peers.iter().map(contestant).collect()
}
