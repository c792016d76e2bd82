//! The cost of handing work over through locks: two tasks pass three locks round.
//!
//! Source: the talk "Recent new features in NPTL" (CELF Technical Jamboree 16, 2007), pages 14 and 22. Task B holds
//! lock 1 and continues with `lock((n+2)%3)`, `unlock((n+1)%3)`; C holds lock 2 and does the same one step later: each
//! waits for the lock that the other one releases next. The figure is the time divided by the steps of both, with
//! nothing subtracted.
//!
//! The tasks are threads or forked processes, on one CPU or on two, in SCHED_OTHER or SCHED_FIFO (of one priority).
//! Impossible cases are left out: locks for threads between processes, and endless spinning on the CPU that the lock's
//! owner needs.
//!
//! [`published`] has the talk's figures (pages 16 and 25); those of page 25 are shown beside the measured ones of
//! processes on one CPU.

mod published;

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libc::c_int;

use super::start::Start;
use super::{Prepared, Scenario};
use crate::machine;
use crate::measure::{Case, Pace, Sampler};
use crate::peers::locks::{self, Between, Peer, Visitor};
use crate::peers::process::{self, Child};
use crate::peers::{BELOW_CEILING, Lock, SharedPage, enter_fifo, on_thread, pin_to, placed};
use crate::plan::Plan;
use crate::published::{Experiment, NPTL, Source};
use crate::result::{Kind, Params, Placement, Sched, Unit, Warning};

pub(super) struct WaitWakeup;

const PEERS: &[&Peer] = &[
    locks::WAIT_WAKE,
    locks::THROUGHPUT,
    locks::INHERIT,
    locks::INHERIT_PLAIN,
    locks::PROTECT,
    locks::ROBUST,
    locks::IN_REGION,
    locks::IN_REGION_THROUGHPUT,
    locks::ROBUST_INHERIT,
    locks::ROBUST_THROUGHPUT,
    locks::GLIBC,
    locks::GLIBC_ADAPTIVE,
    locks::GLIBC_ROBUST,
    locks::GLIBC_PI,
    locks::GLIBC_PP,
    locks::GLIBC_SEM,
    locks::SYSV,
    locks::SYSV_UNDO,
    locks::SEMAPHORE_COUNTING,
    locks::SEMAPHORE_BINARY,
    locks::SEMAPHORE_INHERIT,
    locks::FUTEX,
    locks::SPINNING,
];

/// Steps after which both tasks certainly run.
const IN_STEP: u64 = 10;

impl Scenario for WaitWakeup {
    fn name(&self) -> &'static str {
        "wait-wakeup"
    }

    fn about(&self) -> &'static str {
        "two tasks hand three locks round, so that each waits for the other; ns per hand-over"
    }

    fn source(&self) -> Option<Source> {
        Some(Source {
            document: &NPTL,
            place: ", pages 14 (right) to 16, 22 (right) and 25",
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
        let mut prepared = Prepared::default();
        let mut classes = vec![(Sched::Other, None)];
        match on_thread(Some(BELOW_CEILING), None, || Ok(())) {
            Ok(()) => classes.push((Sched::Fifo, Some(BELOW_CEILING))),
            Err(error) => prepared.warnings.push(Warning::Skipped {
                text: format!(
                    "tasks in SCHED_FIFO skipped: {error}; they need CAP_SYS_NICE, or an \
                     RLIMIT_RTPRIO of {BELOW_CEILING}"
                ),
            }),
        }
        let cpus = machine::cpus();
        let mut placements = vec![(Placement::SameCpu, [cpus[0]; 2])];
        if cpus.len() > 1 {
            placements.push((Placement::DifferentCpu, [cpus[0], cpus[1]]));
        } else {
            prepared.warnings.push(Warning::FewCpus {
                text: "1 CPU: tasks on different CPUs are left out".into(),
            });
        }
        let peers = self.available(plan);
        for kind in [Kind::Threads, Kind::Processes] {
            for (placement, cpus) in &placements {
                for (sched, priority) in &classes {
                    let params = Params {
                        kind: Some(kind),
                        placement: Some(*placement),
                        sched: Some(*sched),
                        ..Params::default()
                    };
                    let cases = peers.iter().filter_map(|peer| {
                        let hand_over = HandOver {
                            kind,
                            cpus: *cpus,
                            priority: *priority,
                            sample: plan.sample,
                        };
                        Some(Case {
                            contestant: peer.name,
                            params: params.clone(),
                            group: params.clone(),
                            is_base: peer.name == self.base(),
                            unit: Unit::Ns,
                            further: Vec::new(),
                            sampler: sampler(peer, hand_over)?,
                        })
                    });
                    prepared.cases.extend(cases);
                }
            }
        }
        prepared
    }
}

/// Measures `peer`, if it supports these parameters.
fn sampler(peer: &Peer, hand_over: HandOver) -> Option<Sampler> {
    let spins = ptr::eq(peer, locks::SPINNING);
    if spins && hand_over.cpus[0] == hand_over.cpus[1] {
        return None;
    }
    if peer.real_time_only && hand_over.priority.is_none() {
        return None;
    }
    let between = match hand_over.kind {
        Kind::Threads => Between::Threads,
        Kind::Processes | Kind::Coprocs => Between::Processes,
    };
    peer.visit(between, hand_over).ok()
}

/// Measures a lock.
struct HandOver {
    kind: Kind,
    /// The CPUs of the two tasks.
    cpus: [usize; 2],
    /// Their priority in SCHED_FIFO, if they run in it.
    priority: Option<c_int>,
    sample: Duration,
}

impl Visitor for HandOver {
    type Output = Sampler;

    fn visit<L: Lock>(self, make: impl Fn() -> io::Result<L> + Send + Sync + 'static) -> Sampler {
        let mut pace = Pace::new(self.sample);
        Box::new(move || {
            let figure = pace.ns(|steps| {
                let new = || placed(make()?);
                let scene = Scene {
                    locks: [new()?, new()?, new()?],
                    meeting: SharedPage::new(Meeting::default())?,
                    steps,
                };
                match self.kind {
                    Kind::Threads => scene.by_threads(&self),
                    Kind::Processes | Kind::Coprocs => scene.by_processes(&self),
                }
            })?;
            // The figure is for the steps of both tasks.
            Ok((figure / 2.0).into())
        })
    }
}

/// Three locks, and two tasks that pass them round.
struct Scene<L: Lock> {
    locks: [SharedPage<L>; 3],
    meeting: SharedPage<Meeting>,
    steps: u64,
}

/// A barrier for the start, and the tasks' results.
#[derive(Default)]
struct Meeting {
    start: Start,
    nanoseconds: [AtomicU64; 2],
}

impl Meeting {
    /// The time until the later task had finished.
    fn elapsed(&self) -> Duration {
        let times = self.nanoseconds.each_ref();
        // Relaxed: the tasks have ended.
        let times = times.map(|time| time.load(Ordering::Relaxed));
        Duration::from_nanos(times[0].max(times[1]))
    }
}

impl<L: Lock> Scene<L> {
    /// The function of task B (0) or C (1).
    fn live(&self, number: usize, hand_over: &HandOver) -> io::Result<()> {
        let begun = pin_to(hand_over.cpus[number])
            .and_then(|()| hand_over.priority.map_or(Ok(()), enter_fifo));
        begun.inspect_err(|_| self.meeting.start.give_up())?;
        let time = self.hand_round(number)?;
        let nanoseconds = time.as_nanos() as u64;
        // Relaxed: read after this task has ended.
        self.meeting.nanoseconds[number].store(nanoseconds, Ordering::Relaxed);
        Ok(())
    }

    /// Kept out of line, so that the loop's code does not depend on what surrounds it.
    #[inline(never)]
    fn hand_round(&self, number: usize) -> io::Result<Duration> {
        // B holds 1 and wants 2; C holds 2 and wants 0, which is free.
        let mut next = number + 1;
        let mut held = self.locks[next].pin().lock();
        let mut go_on = |steps| {
            for _ in 0..steps {
                next = if next == 2 { 0 } else { next + 1 };
                let wanted = self.locks[next].pin().lock();
                // The assignment drops the previous guard, which unlocks its lock.
                held = wanted;
            }
        };
        self.meeting.start.wait_for(2)?;
        // They have met, but one of them may still be waking up.
        go_on(IN_STEP);
        let started = Instant::now();
        go_on(self.steps);
        Ok(started.elapsed())
    }

    fn by_threads(&self, hand_over: &HandOver) -> io::Result<Duration> {
        thread::scope(|scope| {
            let spawn = |number| {
                let life = move || self.live(number, hand_over);
                let spawned = thread::Builder::new().spawn_scoped(scope, life);
                spawned.inspect_err(|_| self.meeting.start.give_up())
            };
            let threads = [spawn(0)?, spawn(1)?];
            for thread in threads {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a task panicked")))?;
            }
            Ok(self.meeting.elapsed())
        })
    }

    fn by_processes(&self, hand_over: &HandOver) -> io::Result<Duration> {
        let fork = |number| Child::fork(|| i32::from(self.live(number, hand_over).is_err()));
        process::wait_all(vec![fork(0)?, fork(1)?])?;
        Ok(self.meeting.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Steps(HandOver, u64);

    impl Visitor for Steps {
        type Output = io::Result<Duration>;

        fn visit<L: Lock>(
            self,
            make: impl Fn() -> io::Result<L> + Send + Sync + 'static,
        ) -> Self::Output {
            let new = || placed(make()?);
            let scene = Scene {
                locks: [new()?, new()?, new()?],
                meeting: SharedPage::new(Meeting::default())?,
                steps: self.1,
            };
            let elapsed = match self.0.kind {
                Kind::Threads => scene.by_threads(&self.0)?,
                _ => scene.by_processes(&self.0)?,
            };
            // All are free again.
            scene.locks.iter().for_each(|lock| drop(lock.pin().lock()));
            Ok(elapsed)
        }
    }

    fn hand_over(kind: Kind, cpu: usize) -> HandOver {
        HandOver {
            kind,
            cpus: [cpu; 2],
            priority: None,
            sample: Duration::ZERO,
        }
    }

    #[test]
    fn locks_are_passed_round_and_free_at_the_end() {
        let cpu = machine::cpus()[0];
        for (kind, between) in [
            (Kind::Threads, Between::Threads),
            (Kind::Processes, Between::Processes),
        ] {
            for peer in [locks::WAIT_WAKE, locks::ROBUST, locks::GLIBC, locks::FUTEX] {
                for steps in [0, 1, 2, 100] {
                    let steps = Steps(hand_over(kind, cpu), steps);
                    peer.visit(between, steps).unwrap().unwrap();
                }
            }
        }
    }

    #[test]
    fn a_task_that_cannot_begin_ends_the_other_one() {
        let cpus = [
            machine::cpus()[0],
            usize::MAX % rustix::thread::CpuSet::MAX_CPU,
        ];
        for (kind, between) in [
            (Kind::Threads, Between::Threads),
            (Kind::Processes, Between::Processes),
        ] {
            let hand_over = HandOver {
                cpus,
                ..hand_over(kind, 0)
            };
            let run = locks::GLIBC.visit(between, Steps(hand_over, 10));
            assert!(run.unwrap().is_err());
        }
    }
}
