//! The cost of checking locks: a lock and an unlock without contention, as in call-overhead, and a lock that several
//! threads want at the same time, as in futex-lock, each with the checker and without. In addition whole programs, see
//! `programs.rs`, with ratios to the unmodified program.
//!
//! Source: none; the debugging mutexes of Linux, whose rules the checker enforces, published no figures. A lock that is
//! not checked contains none of the checker's instructions: the machine code shows that (`tests/fast_path.rs` of the
//! library), rather than a measurement.

mod programs;
mod run;
mod servers;

use super::call_overhead::{OneTask, PARKED, Parked};
use super::contention::{self, Contenders, USUAL_LOAD, Work};
use super::futex_lock::Contend;
use super::{Prepared, Scenario};
use crate::contestant::Contestant;
use crate::measure::Case;
use crate::peers::locks::{self, Between, Peer};
use crate::plan::Plan;
use crate::published::Source;
use crate::result::{Kind, Params, Placement, Unit};

pub(super) struct CheckOverhead;

const PEERS: &[&Peer] = &[
    locks::WAIT_WAKE,
    locks::CHECKED_WAIT_WAKE,
    locks::THROUGHPUT,
    locks::CHECKED_THROUGHPUT,
    locks::GLIBC,
];

impl Scenario for CheckOverhead {
    fn name(&self) -> &'static str {
        "check-overhead"
    }

    fn about(&self) -> &'static str {
        "the same lock checked and not: ns per pair of a free one, operations per second of a contended one; and \
         whole programs, against themselves as they are: work per second"
    }

    fn source(&self) -> Option<Source> {
        None
    }

    fn base(&self) -> &'static str {
        locks::WAIT_WAKE.name
    }

    fn varies_tasks(&self) -> bool {
        true
    }

    /// The first checked lock begins to observe all semaphores and queues of the process.
    fn changes_the_process(&self) -> bool {
        true
    }

    fn locks(&self) -> &'static [&'static Peer] {
        PEERS
    }

    fn contestants(&self) -> Vec<Contestant> {
        let locks = self.locks().iter().map(|peer| peer.contestant());
        locks.chain(programs::contestants()).collect()
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let tasks = contention::tasks(plan, &mut prepared.warnings);
        for peer in self.available(plan) {
            let one_task = OneTask {
                sample: plan.sample,
                priority: peer.priority,
                is_apart: false,
            };
            let alone = Params {
                tasks: Some(1),
                ..Params::default()
            };
            if let Ok(sampler) = peer.visit(Between::Threads, one_task) {
                prepared.cases.push(Case {
                    contestant: peer.name,
                    params: alone.clone(),
                    group: alone,
                    is_base: peer.name == self.base(),
                    unit: Unit::Ns,
                    further: Vec::new(),
                    sampler,
                });
            }
            for &tasks in tasks.iter().filter(|tasks| **tasks > 1) {
                let contend = Contend {
                    contenders: Contenders {
                        kind: Kind::Threads,
                        tasks,
                    },
                    work: Work {
                        load: USUAL_LOAD,
                        sleeps: 0,
                    },
                    window: plan.window,
                };
                let params = Params {
                    tasks: Some(tasks),
                    load: Some(USUAL_LOAD),
                    sleeps: Some(0),
                    placement: Some(Placement::Free),
                    kind: Some(Kind::Threads),
                    ..Params::default()
                };
                if let Ok(sampler) = peer.visit(Between::Threads, contend) {
                    prepared.cases.push(Case {
                        contestant: peer.name,
                        params: params.clone(),
                        group: params,
                        is_base: peer.name == self.base(),
                        unit: Unit::OpsPerSecond,
                        further: Vec::new(),
                        sampler,
                    });
                }
            }
        }
        programs::prepare(plan, &mut prepared.cases, &mut prepared.warnings);
        prepared.background = Some(Box::new(Parked::new(PARKED)));
        prepared
    }
}
