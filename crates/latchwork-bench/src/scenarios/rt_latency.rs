//! The wake-up latency of a task that waits until a point in time.
//!
//! Source: cyclictest, on which evaluations of real-time systems are based: a task sleeps until the next millisecond
//! begins, reads the clock, and records how late it is. Here it does so by `clock_nanosleep`, as cyclictest does, and
//! by Latchwork's timed waits and their rivals: it waits for a lock that another task holds all the time, or for an
//! event that does not happen. Nothing is subtracted.
//!
//! The task is pinned to one CPU, and runs in SCHED_FIFO where that is permitted. In SCHED_OTHER the kernel may delay
//! timers by up to 50 µs to combine them (the timer slack), which is left unchanged; waits for priority-inheriting
//! locks have no slack. The figure is the median of a round; the maximum of all rounds is shown beside it. A maximum
//! means little without a load, and without hours of measuring.

use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use latchwork::completion::Completion;
use latchwork::condvar::{Condvar, Waited};
use latchwork::mutex::Mutex;
use latchwork::time::Deadline;

use super::{Prepared, Scenario};
use crate::contestant::Contestant;
use crate::histogram::{Durations, Timed};
use crate::machine;
use crate::measure::{Case, Sample, Sampler};
use crate::peers::locks::{self, Between, Peer, Visitor};
use crate::peers::{BELOW_CEILING, Lock, on_thread, placed, sleep_until};
use crate::plan::Plan;
use crate::published::{CYCLICTEST, Source};
use crate::result::{Params, Sched, Unit, Warning};

pub(super) struct RtLatency;

/// The waits for locks.
const PEERS: &[&Peer] = &[
    locks::WAIT_WAKE,
    locks::THROUGHPUT,
    locks::INHERIT,
    locks::ROBUST,
    locks::GLIBC,
    locks::GLIBC_PI,
    locks::GLIBC_ROBUST,
    locks::PARKING_LOT,
];

const SLEEP: &str = "clock_nanosleep";
const CONDVAR: &str = "latchwork condvar";
const COMPLETION: &str = "latchwork completion";

const INTERVAL: Duration = Duration::from_millis(1);

impl Scenario for RtLatency {
    fn name(&self) -> &'static str {
        "rt-latency"
    }

    fn about(&self) -> &'static str {
        "a task waits until the next millisecond by timed waits that time out; by how many us it is \
         late"
    }

    fn source(&self) -> Option<Source> {
        Some(Source {
            document: &CYCLICTEST,
            place: ": the lateness of periodic wake-ups",
        })
    }

    fn base(&self) -> &'static str {
        SLEEP
    }

    fn locks(&self) -> &'static [&'static Peer] {
        PEERS
    }

    fn contestants(&self) -> Vec<Contestant> {
        let waits = [SLEEP, CONDVAR, COMPLETION].map(Contestant::ready);
        let locks = PEERS.iter().map(|peer| peer.contestant());
        waits.into_iter().chain(locks).collect()
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let mut classes = vec![Sched::Other];
        match on_thread(Some(BELOW_CEILING), None, || Ok(())) {
            Ok(()) => classes.push(Sched::Fifo),
            Err(error) => prepared.warnings.push(Warning::Skipped {
                text: format!(
                    "tasks in SCHED_FIFO skipped: {error}; they need CAP_SYS_NICE, or an \
                     RLIMIT_RTPRIO of {BELOW_CEILING}"
                ),
            }),
        }
        for sched in classes {
            let timer = Timer {
                cpu: machine::cpus().last().copied().unwrap_or(0),
                sched,
                times: (plan.window.as_nanos() / INTERVAL.as_nanos()).max(2) as u32,
            };
            let mut samplers = vec![
                (SLEEP, timer.sleeps()),
                (CONDVAR, timer.waits_for_a_condition()),
                (COMPLETION, timer.waits_for_completion()),
            ];
            samplers.retain(|(name, _)| plan.wants(self.base(), name));
            samplers.extend(self.available(plan).into_iter().filter_map(|peer| {
                let sampler = peer.visit(Between::Threads, timer).ok()?;
                Some((peer.name, sampler))
            }));
            let params = Params {
                sched: Some(sched),
                ..Params::default()
            };
            prepared
                .cases
                .extend(samplers.into_iter().map(|(name, sampler)| Case {
                    contestant: name,
                    params: params.clone(),
                    group: params.clone(),
                    is_base: name == self.base(),
                    unit: Unit::Us,
                    further: Vec::new(),
                    sampler,
                }));
        }
        prepared
    }
}

/// A task that waits repeatedly.
#[derive(Clone, Copy)]
struct Timer {
    cpu: usize,
    sched: Sched,
    times: u32,
}

impl Timer {
    fn sleeps(self) -> Sampler {
        Box::new(move || {
            self.lateness(|deadline| {
                sleep_until(deadline);
                Ok(true)
            })
        })
    }

    fn waits_for_a_condition(self) -> Sampler {
        Box::new(move || {
            let (mutex, condvar) = (Mutex::new(false), Condvar::new());
            self.lateness(|deadline| {
                let (held, waited) = condvar.wait_until(mutex.lock(), deadline);
                drop(held);
                Ok(waited == Waited::TimedOut)
            })
        })
    }

    fn waits_for_completion(self) -> Sampler {
        Box::new(move || {
            let completion = Completion::new();
            self.lateness(|deadline| Ok(!completion.wait_until(deadline)))
        })
    }

    /// By how much repeated waits return late; `wait` returns whether it ended because the time had come.
    fn lateness(
        self,
        mut wait: impl FnMut(Deadline) -> io::Result<bool> + Send,
    ) -> io::Result<Sample> {
        let priority = (self.sched == Sched::Fifo).then_some(BELOW_CEILING);
        let late = on_thread(priority, Some(self.cpu), || {
            let mut late = Durations::new()?;
            let mut next = Deadline::after(INTERVAL);
            let mut missed = 0_u32;
            while late.len() < u64::from(self.times) {
                let timed_out = wait(next)?;
                let now = Deadline::now();
                if timed_out {
                    late.add(now.as_nanoseconds().saturating_sub(next.as_nanoseconds()));
                } else {
                    // A spurious wake-up is allowed, but not endlessly.
                    missed += 1;
                    if missed > self.times {
                        return Err(io::Error::other("the wait ends before its time"));
                    }
                    continue;
                }
                while next <= now {
                    next = next.saturating_add(INTERVAL);
                }
            }
            Ok(late)
        })?;
        Ok(Sample {
            figure: late.percentile(50.0) / 1000.0,
            extra: Vec::new(),
            timed: Some(Timed {
                durations: late,
                of: "lateness",
                unit: Unit::Us,
            }),
        })
    }
}

impl Visitor for Timer {
    type Output = Sampler;

    fn visit<L: Lock>(self, make: impl Fn() -> io::Result<L> + Send + Sync + 'static) -> Sampler {
        Box::new(move || {
            let lock = placed(make()?)?;
            // Locks know their owners, so another thread must hold it.
            let (begun, over) = (Barrier::new(2), Barrier::new(2));
            thread::scope(|scope| {
                thread::Builder::new().spawn_scoped(scope, || {
                    let held = lock.pin().lock();
                    begun.wait();
                    over.wait();
                    drop(held);
                })?;
                begun.wait();
                let late = self.lateness(|deadline| lock.pin().times_out(deadline));
                over.wait();
                late
            })
        })
    }
}
