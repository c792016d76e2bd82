//! Priority inversion: how long a high-priority task waits for a lock that a low-priority task holds,
//! while a load of medium priority keeps the low one from its CPU.
//!
//! Source: the talk "Recent new features in NPTL" (CELF Technical Jamboree 16, 2007), pages 9 and 10: a real system got
//! its data at intervals of at most 16 ms, of 805 ms under load without priority inheritance, and of 23 ms with it.
//! These are shown beside the measured figures ([`published`]), though only their proportions can be compared, since the
//! tasks here are different.
//!
//! Three threads share one CPU in SCHED_FIFO. The high one wakes up every 5 ms, acquires the lock for a moment, and
//! records the time since it did so before. The low one holds the lock for 1 ms of its own computing, then sleeps for
//! about as long. The medium one computes for 62 ms of each 92 or so. The figure is the longest interval of a round:
//! the period plus all delays; nothing is subtracted. The row "undisturbed" is measured without the medium task. All of
//! them leave the CPU idle for a sixth of the time, more than real-time throttling requires.
//!
//! Real-time priorities need CAP_SYS_NICE, or an RLIMIT_RTPRIO.

mod published;

use std::io;
use std::pin::Pin;
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
use crate::peers::{
    BELOW_CEILING, CEILING, Lock, SharedPage, burn, enter_fifo, on_thread, pin_to, placed,
    sleep_until,
};
use crate::plan::Plan;
use crate::published::{Experiment, NPTL, Source};
use crate::result::{Kind, Params, Placement, Sched, Unit, Variant};

pub(super) struct Inversion;

const PEERS: &[&Peer] = &[
    locks::GLIBC,
    locks::WAIT_WAKE,
    locks::INHERIT,
    locks::PROTECT,
    locks::SEMAPHORE_INHERIT_MIRRORED,
    locks::SEMAPHORE_CEILING_MIRRORED,
    locks::SEMAPHORE_MRSP_MIRRORED,
    locks::GLIBC_PI,
    locks::GLIBC_PP,
];

const LOW: c_int = BELOW_CEILING;
const MEDIUM: c_int = (BELOW_CEILING + CEILING) / 2;
const HIGH: c_int = CEILING;

const PERIOD: Duration = Duration::from_millis(5);
/// How long the low task computes under the lock, and then sleeps.
const SECTION: Duration = Duration::from_millis(1);
/// How long the medium task computes without a break.
const BURST: Duration = Duration::from_millis(62);
/// How long it then sleeps: these times in turn, so that the tasks do not synchronise.
const GAPS_MS: [u64; 5] = [31, 26, 34, 29, 32];

impl Scenario for Inversion {
    fn name(&self) -> &'static str {
        "inversion"
    }

    fn about(&self) -> &'static str {
        "a high-priority task of 5 ms period and a low-priority one share a lock, a medium-priority \
         load disturbs; the longest interval in us"
    }

    fn source(&self) -> Option<Source> {
        Some(Source {
            document: &NPTL,
            place: ", pages 9 and 10",
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

    fn contestants(&self) -> Vec<Contestant> {
        contestants_at(HIGH, PEERS)
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        if on_thread(Some(HIGH), None, || Ok(())).is_err() {
            return prepared;
        }
        let cpu = machine::cpus().last().copied().unwrap_or(0);
        let peers = self.available(plan);
        for case in [Variant::Undisturbed, Variant::Disturbed] {
            let params = Params {
                case: Some(case),
                tasks: Some(if case == Variant::Disturbed { 3 } else { 2 }),
                kind: Some(Kind::Threads),
                placement: Some(Placement::SameCpu),
                sched: Some(Sched::Fifo),
                ..Params::default()
            };
            let cases = peers.iter().filter_map(|peer| {
                let periodic = Periodic {
                    cpu,
                    // Several bursts.
                    time: (plan.window * 6).max(PERIOD * 3),
                    disturbed: case == Variant::Disturbed,
                };
                Some(Case {
                    contestant: peer.name,
                    params: params.clone(),
                    group: params.clone(),
                    is_base: peer.name == self.base(),
                    unit: Unit::Us,
                    further: Vec::new(),
                    sampler: peer.visit(Between::Threads, periodic).ok()?,
                })
            });
            prepared.cases.extend(cases);
        }
        prepared
    }
}

/// Measures a lock.
struct Periodic {
    cpu: usize,
    time: Duration,
    disturbed: bool,
}

impl Visitor for Periodic {
    type Output = Sampler;

    fn visit<L: Lock>(self, make: impl Fn() -> io::Result<L> + Send + Sync + 'static) -> Sampler {
        Box::new(move || {
            let lock = placed(make()?)?;
            let intervals = self.run(&lock)?;
            Ok(Sample {
                figure: intervals.longest() / 1000.0,
                extra: vec![("intervals", intervals.len() as f64)],
                timed: Some(Timed {
                    durations: intervals,
                    of: "interval",
                    unit: Unit::Us,
                }),
            })
        })
    }
}

impl Periodic {
    fn run<L: Lock>(&self, lock: &SharedPage<L>) -> io::Result<Durations> {
        let start = Start::default();
        let lives: &[Life<L>] = &[
            (LOW, |lock, end, _| hold(lock, end)),
            (HIGH, |lock, end, intervals| wait(lock, end, intervals)),
            (MEDIUM, |_, end, _| disturb(end)),
        ];
        let lives = &lives[..if self.disturbed { 3 } else { 2 }];
        thread::scope(|scope| {
            let spawn = |&(priority, life): &Life<L>| {
                let (start, tasks) = (&start, lives.len());
                let task = move || {
                    let mut intervals = Durations::new()?;
                    let _enlisted = pin_to(self.cpu)
                        .and_then(|()| enter_fifo(priority))
                        .and_then(|()| L::enlist())
                        .inspect_err(|_| start.give_up())?;
                    start.wait_for(tasks)?;
                    life(lock.pin(), Deadline::after(self.time), &mut intervals);
                    Ok(intervals)
                };
                let spawned = thread::Builder::new().spawn_scoped(scope, task);
                spawned.inspect_err(|_| start.give_up())
            };
            let threads = lives.iter().map(spawn).collect::<io::Result<Vec<_>>>()?;
            let mut all = Durations::new()?;
            for thread in threads {
                let panicked = |_| Err(io::Error::other("a task panicked"));
                all.merge(&thread.join().unwrap_or_else(panicked)?)?;
            }
            Ok(all)
        })
    }
}

/// A task: its priority, and its function until the end. One of the tasks has intervals.
type Life<L> = (c_int, fn(Pin<&L>, Deadline, &mut Durations));

/// The low-priority task.
fn hold<L: Lock>(lock: Pin<&L>, end: Deadline) {
    while !end.has_passed() {
        let mut held = lock.lock();
        *held += 1;
        burn(SECTION, end);
        drop(held);
        sleep_until(Deadline::after(SECTION));
    }
}

/// The medium-priority load.
fn disturb(end: Deadline) {
    for gap in GAPS_MS.into_iter().cycle() {
        if end.has_passed() {
            return;
        }
        burn(BURST, end);
        sleep_until(Deadline::after(Duration::from_millis(gap)));
    }
}

/// The high-priority task.
fn wait<L: Lock>(lock: Pin<&L>, end: Deadline, intervals: &mut Durations) {
    // As if it had just had the lock: the first wait counts like any other.
    let mut before = Deadline::now();
    let mut next = before.saturating_add(PERIOD);
    loop {
        sleep_until(next);
        *lock.lock() += 1;
        let now = Deadline::now();
        intervals.add(now.as_nanoseconds() - before.as_nanoseconds());
        before = now;
        // Missed periods are skipped.
        while next <= now {
            next = next.saturating_add(PERIOD);
        }
        if next >= end {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Run(Periodic);

    impl Visitor for Run {
        type Output = io::Result<Durations>;

        fn visit<L: Lock>(
            self,
            make: impl Fn() -> io::Result<L> + Send + Sync + 'static,
        ) -> Self::Output {
            self.0.run(&placed(make()?)?)
        }
    }

    /// Regardless of how soon it ends, and what keeps the task from its lock.
    #[test]
    fn every_run_has_an_interval() {
        if on_thread(Some(HIGH), None, || Ok(())).is_err() {
            println!("skipped: no right to SCHED_FIFO");
            return;
        }
        for _ in 0..10 {
            let short = Periodic {
                cpu: machine::cpus()[0],
                time: Duration::from_millis(1),
                disturbed: true,
            };
            let run = locks::WAIT_WAKE.visit(Between::Threads, Run(short));
            assert!(run.unwrap().unwrap().len() > 0);
        }
    }

    #[test]
    fn tasks_that_cannot_begin_end() {
        let nowhere = Periodic {
            cpu: rustix::thread::CpuSet::MAX_CPU - 1,
            time: PERIOD,
            disturbed: true,
        };
        let run = locks::GLIBC.visit(Between::Threads, Run(nowhere));
        assert!(run.unwrap().is_err());
    }
}
