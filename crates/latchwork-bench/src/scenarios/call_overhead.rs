//! The cost of locking without contention: one task locks a free lock, increments the datum beside it, and unlocks.
//! Other threads exist, but sleep: in a process of one thread glibc omits its atomic operations, which would measure
//! something that no program with a lock does. The lock is one for the threads of a process, and one for processes, where
//! there are both.
//!
//! In the case `apart`, a dozen instructions lie between a pair and the next. Without them, some processors begin the
//! locked instruction of a short lock early, since three instructions or fewer separate it from the one before (2 of 15 ns
//! on a Xeon). A program that does anything between its critical sections does not see that.
//!
//! Source: the talk "Recent new features in NPTL" (CELF Technical Jamboree 16, 2007), pages 14 and 22. Nothing is
//! subtracted. [`published`] has the talk's figures (pages 16 and 25).

mod published;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use libc::c_int;

use super::{Prepared, Scenario};
use crate::measure::{Case, Pace, Sampler};
use crate::peers::floor::dozen_instructions;
use crate::peers::locks::{self, Between, Peer, Visitor};
use crate::peers::{Lock, on_thread, placed};
use crate::plan::Plan;
use crate::published::{Experiment, NPTL, Source};
use crate::result::{Kind, Params, Unit, Variant};

pub(super) struct CallOverhead;

/// Threads asleep while the task is measured.
pub(super) const PARKED: usize = 4;

const PEERS: &[&Peer] = &[
    locks::WAIT_WAKE,
    locks::THROUGHPUT,
    locks::INHERIT,
    locks::INHERIT_PLAIN,
    locks::PROTECT,
    locks::PROTECT_AT_CEILING,
    locks::PROTECT_KEPT,
    locks::ROBUST,
    locks::IN_REGION,
    locks::IN_REGION_THROUGHPUT,
    locks::ROBUST_INHERIT,
    locks::ROBUST_PROTECT,
    locks::ROBUST_THROUGHPUT,
    locks::SEMAPHORE_COUNTING,
    locks::SEMAPHORE_BINARY,
    locks::SEMAPHORE_INHERIT,
    locks::SEMAPHORE_CEILING,
    locks::SEMAPHORE_MRSP,
    locks::SEMAPHORE_INHERIT_MIRRORED,
    locks::SEMAPHORE_CEILING_MIRRORED,
    locks::SEMAPHORE_MRSP_MIRRORED,
    locks::GLIBC,
    locks::GLIBC_ADAPTIVE,
    locks::GLIBC_ROBUST,
    locks::GLIBC_PI,
    locks::GLIBC_ROBUST_PI,
    locks::GLIBC_PP,
    locks::GLIBC_PP_AT_CEILING,
    locks::GLIBC_RWLOCK,
    locks::GLIBC_SEM,
    locks::STD,
    locks::PARKING_LOT,
    locks::NSYNC,
    locks::ABSL,
    locks::SYSV,
    locks::SYSV_UNDO,
    locks::TWO_RMW,
    locks::PRIORITY_CALLS,
];

impl Scenario for CallOverhead {
    fn name(&self) -> &'static str {
        "call-overhead"
    }

    fn about(&self) -> &'static str {
        "one task locks and unlocks a free lock; ns per pair"
    }

    fn source(&self) -> Option<Source> {
        Some(Source {
            document: &NPTL,
            place: ", pages 14 (left) to 16, 22 (left) and 25",
        })
    }

    fn experiments(&self) -> Vec<Experiment> {
        published::experiments()
    }

    fn base(&self) -> &'static str {
        locks::GLIBC.name
    }

    fn locks(&self) -> &'static [&'static Peer] {
        PEERS
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let peers = self.available(plan);
        let uses = [
            (Kind::Threads, Between::Threads, None),
            (Kind::Threads, Between::Threads, Some(Variant::Apart)),
            (Kind::Processes, Between::Processes, None),
        ];
        let cases = uses.into_iter().flat_map(|(kind, between, case)| {
            let params = Params {
                tasks: Some(1),
                kind: Some(kind),
                case,
                ..Params::default()
            };
            peers.iter().filter_map(move |peer| {
                let one_task = OneTask {
                    sample: plan.sample,
                    priority: peer.priority,
                    is_apart: case == Some(Variant::Apart),
                };
                Some(Case {
                    contestant: peer.name,
                    params: params.clone(),
                    group: params.clone(),
                    is_base: peer.name == self.base(),
                    unit: Unit::Ns,
                    further: Vec::new(),
                    sampler: peer.visit(between, one_task).ok()?,
                })
            })
        });
        Prepared {
            cases: cases.collect(),
            background: Some(Box::new(Parked::new(PARKED))),
            ..Prepared::default()
        }
    }
}

/// Measures a lock with one task, in the scheduling class that the lock needs.
pub(super) struct OneTask {
    pub(super) sample: Duration,
    pub(super) priority: Option<c_int>,
    /// Whether some instructions lie between a pair and the next.
    pub(super) is_apart: bool,
}

impl Visitor for OneTask {
    type Output = Sampler;

    fn visit<L: Lock>(self, make: impl Fn() -> io::Result<L> + Send + Sync + 'static) -> Sampler {
        let mut pace = Pace::new(self.sample);
        Box::new(move || {
            let lock = placed(make()?)?;
            let lock = lock.pin();
            let figure = on_thread(self.priority, None, || {
                let _enlisted = L::enlist()?;
                if self.is_apart {
                    pace.ns_per_call(|| {
                        dozen_instructions();
                        *lock.lock() += 1;
                        Ok(())
                    })
                } else {
                    pace.ns_per_call(|| {
                        *lock.lock() += 1;
                        Ok(())
                    })
                }
            })?;
            Ok(figure.into())
        })
    }
}

/// Threads that sleep until this is dropped.
pub(super) struct Parked {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Parked {
    pub(super) fn new(count: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let sleeper = |_| {
            let over = Arc::clone(&over);
            thread::spawn(move || {
                // Relaxed: unpark and park provide the necessary ordering.
                while !over.load(Ordering::Relaxed) {
                    thread::park();
                }
            })
        };
        let threads = (0..count).map(sleeper).collect();
        Self { over, threads }
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        // Relaxed: the `unpark` below provides the necessary ordering.
        self.over.store(true, Ordering::Relaxed);
        for sleeper in self.threads.drain(..) {
            sleeper.thread().unpark();
            // A sleeper runs nothing that panics.
            let _ = sleeper.join();
        }
    }
}
