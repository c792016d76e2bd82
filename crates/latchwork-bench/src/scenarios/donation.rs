//! How fast a lock's owner inherits the priority of a waiter, along a chain of owners.
//!
//! Source: priority inheritance is transitive (`Documentation/locking/rt-mutex-design.rst` of Linux); the bound that a
//! user needs is the time from the wait to the first instruction of the owner at the end of the chain.
//!
//! One CPU runs the owners, all in SCHED_FIFO. The first one owns a lock, and computes; each of the others, one
//! priority higher than the one before, owns a lock and waits for the lock of the one before. A task of medium priority
//! computes on the same CPU, so that the first owner does not run. Then a task of high priority, on another CPU if
//! there is one, locks the last owner's lock. The figure is the time from this call until the first owner computes
//! again: spinning before the system call, the walk along the chain, an interrupt to the other CPU, and a context
//! switch there; nothing is subtracted. *tasks* is the number of owners.
//!
//! Real-time priorities need CAP_SYS_NICE, or an RLIMIT_RTPRIO.

use std::hint;
use std::io;
use std::pin::Pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use latchwork::time::Deadline;
use libc::c_int;

use super::start::Start;
use super::{Prepared, Scenario, contestants_at};
use crate::contestant::Contestant;
use crate::histogram::{Durations, Timed};
use crate::machine;
use crate::measure::{Case, Sample, Sampler};
use crate::peers::locks::{self, Between, Peer, Visitor};
use crate::peers::{CEILING, Lock, SharedPage, enter_fifo, on_thread, pin_to, placed, sleep_until};
use crate::plan::Plan;
use crate::published::Source;
use crate::result::{Kind, Params, Placement, Sched, Unit};

pub(super) struct Donation;

const PEERS: &[&Peer] = &[
    locks::INHERIT,
    locks::INHERIT_PLAIN,
    locks::ROBUST_INHERIT,
    locks::GLIBC_PI,
    locks::GLIBC_ROBUST_PI,
];

/// Lengths of the chain.
const HOLDERS: [u32; 3] = [1, 2, 3];
const HIGH: c_int = CEILING;
const MEDIUM: c_int = HIGH - 1;
const LOWEST: c_int = HIGH - 9;

/// How often a task polls for another's step; it sleeps in between, since the other may need its CPU.
const POLL_INTERVAL: Duration = Duration::from_micros(50);
/// The time within which a task that is about to sleep does so, and one that begins to compute has begun.
const SETTLING: Duration = Duration::from_micros(300);

impl Scenario for Donation {
    fn name(&self) -> &'static str {
        "donation"
    }

    fn about(&self) -> &'static str {
        "a high-priority task waits at the end of a chain of holders, the first of which is kept from \
         its CPU; us until that one runs"
    }

    fn source(&self) -> Option<Source> {
        None
    }

    fn base(&self) -> &'static str {
        locks::GLIBC_PI.name
    }

    fn locks(&self) -> &'static [&'static Peer] {
        PEERS
    }

    fn contestants(&self) -> Vec<Contestant> {
        contestants_at(HIGH, PEERS)
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        if on_thread(Some(HIGH), None, || Ok(())).is_err() {
            return prepared;
        }
        let cpus = machine::cpus();
        let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
        for holders in HOLDERS {
            let params = Params {
                tasks: Some(holders),
                kind: Some(Kind::Threads),
                placement: Some(if first == last {
                    Placement::SameCpu
                } else {
                    Placement::DifferentCpu
                }),
                sched: Some(Sched::Fifo),
                ..Params::default()
            };
            let cases = self.available(plan).into_iter().filter_map(|peer| {
                let chain = Chain {
                    holders: holders as usize,
                    times: if plan.quick { 50 } else { 500 },
                    cpus: [first, last],
                };
                Some(Case {
                    contestant: peer.name,
                    params: params.clone(),
                    group: params.clone(),
                    is_base: peer.name == self.base(),
                    unit: Unit::Us,
                    further: Vec::new(),
                    sampler: peer.visit(Between::Threads, chain).ok()?,
                })
            });
            prepared.cases.extend(cases);
        }
        prepared
    }
}

/// Measures a lock.
struct Chain {
    holders: usize,
    times: u32,
    /// The waiter's CPU, and the owners'.
    cpus: [usize; 2],
}

impl Visitor for Chain {
    type Output = Sampler;

    fn visit<L: Lock>(self, make: impl Fn() -> io::Result<L> + Send + Sync + 'static) -> Sampler {
        Box::new(move || {
            let locks = (0..self.holders)
                .map(|_| placed(make()?))
                .collect::<io::Result<Vec<_>>>()?;
            let delays = self.run(&locks)?;
            Ok(Sample {
                figure: delays.percentile(50.0) / 1000.0,
                extra: Vec::new(),
                timed: Some(Timed {
                    durations: delays,
                    of: "delay",
                    unit: Unit::Us,
                }),
            })
        })
    }
}

/// The state that the tasks share in one repetition.
#[derive(Default)]
struct Stage {
    /// How many owners have acquired their locks.
    held: AtomicUsize,
    is_busy: AtomicBool,
    /// When the waiter called, in nanoseconds; 0 before.
    called: AtomicU64,
    is_over: AtomicBool,
}

impl Stage {
    fn clear(&self) {
        // Relaxed, here and below: a barrier separates the repetitions, and nothing else is handed over.
        self.held.store(0, Ordering::Relaxed);
        self.is_busy.store(false, Ordering::Relaxed);
        self.called.store(0, Ordering::Relaxed);
        self.is_over.store(false, Ordering::Relaxed);
    }

    /// The owner of this number: it acquires its lock, and waits for the previous one's. The first one computes until
    /// it sees the call, and returns how long that took.
    fn hold<L: Lock>(&self, number: usize, locks: &[SharedPage<L>]) -> Option<u64> {
        look_until(|| self.held.load(Ordering::Relaxed) == number);
        let mine = locks[number].pin().lock();
        self.held.store(number + 1, Ordering::Relaxed);
        if number > 0 {
            *locks[number - 1].pin().lock() += 1;
            return None;
        }
        let called = loop {
            let called = self.called.load(Ordering::Relaxed);
            if called != 0 {
                break called;
            }
        };
        let delay = Deadline::now().as_nanoseconds().saturating_sub(called);
        self.is_over.store(true, Ordering::Relaxed);
        drop(mine);
        Some(delay)
    }

    /// The task of medium priority.
    fn compute(&self, holders: usize) {
        look_until(|| self.held.load(Ordering::Relaxed) == holders);
        sleep_until(Deadline::after(SETTLING));
        self.is_busy.store(true, Ordering::Relaxed);
        while !self.is_over.load(Ordering::Relaxed) {
            hint::spin_loop();
        }
    }

    /// The task of high priority.
    fn wait<L: Lock>(&self, last: Pin<&L>) {
        look_until(|| self.is_busy.load(Ordering::Relaxed));
        sleep_until(Deadline::after(SETTLING));
        self.called
            .store(Deadline::now().as_nanoseconds(), Ordering::Relaxed);
        *last.lock() += 1;
    }
}

fn look_until(has_come: impl Fn() -> bool) {
    while !has_come() {
        sleep_until(Deadline::after(POLL_INTERVAL));
    }
}

impl Chain {
    fn run<L: Lock>(&self, locks: &[SharedPage<L>]) -> io::Result<Durations> {
        let tasks = self.holders + 2;
        let (start, stage, turn) = (Start::default(), Stage::default(), Barrier::new(tasks));
        let [waiters_cpu, holders_cpu] = self.cpus;
        thread::scope(|scope| {
            let spawn = |task: usize| {
                let (start, stage, turn) = (&start, &stage, &turn);
                let (cpu, priority) = match task {
                    0 => (waiters_cpu, HIGH),
                    1 => (holders_cpu, MEDIUM),
                    _ => (holders_cpu, LOWEST + task as c_int),
                };
                let life = move || {
                    let mut delays = Durations::new()?;
                    pin_to(cpu)
                        .and_then(|()| enter_fifo(priority))
                        .inspect_err(|_| start.give_up())?;
                    // A task's first lock call does more than later ones.
                    locks[0].pin().check().inspect_err(|_| start.give_up())?;
                    start.wait_for(tasks)?;
                    for _ in 0..self.times {
                        turn.wait();
                        match task {
                            0 => stage.wait(locks[self.holders - 1].pin()),
                            1 => stage.compute(self.holders),
                            _ => stage
                                .hold(task - 2, locks)
                                .into_iter()
                                .for_each(|delay| delays.add(delay)),
                        }
                        if turn.wait().is_leader() {
                            stage.clear();
                        }
                        turn.wait();
                    }
                    Ok(delays)
                };
                let spawned = thread::Builder::new().spawn_scoped(scope, life);
                spawned.inspect_err(|_| start.give_up())
            };
            let threads = (0..tasks).map(spawn).collect::<io::Result<Vec<_>>>()?;
            let mut all = Durations::new()?;
            for thread in threads {
                let panicked = |_| Err(io::Error::other("a task panicked"));
                all.merge(&thread.join().unwrap_or_else(panicked)?)?;
            }
            Ok(all)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Run(Chain);

    impl Visitor for Run {
        type Output = io::Result<Durations>;

        fn visit<L: Lock>(
            self,
            make: impl Fn() -> io::Result<L> + Send + Sync + 'static,
        ) -> Self::Output {
            let locks = (0..self.0.holders).map(|_| placed(make()?));
            self.0.run(&locks.collect::<io::Result<Vec<_>>>()?)
        }
    }

    #[test]
    fn each_time_has_a_delay_also_where_all_share_a_cpu() {
        if on_thread(Some(HIGH), None, || Ok(())).is_err() {
            println!("skipped: no right to SCHED_FIFO");
            return;
        }
        let cpu = machine::cpus()[0];
        let chain = Chain {
            holders: 3,
            times: 5,
            cpus: [cpu, cpu],
        };
        let run = locks::INHERIT.visit(Between::Threads, Run(chain));
        assert_eq!(run.unwrap().unwrap().len(), 5);
    }
}
