//! One operation, killed at every instruction.
//!
//! A traced child is first single-stepped through the operation. Each execution of an instruction is a *point*, up to
//! the first three executions of each instruction (loops have many). Then, for each point, a new child runs to a
//! breakpoint there and is killed, and the test checks the state that it left. If an operation has more points than the
//! budget allows, every *s*-th is used, beginning with a random one: other runs cover other points.
//!
//! A task is killed before and after a system call; one that sleeps is a point of its own ("asleep"). On aarch64 the instructions from a load-exclusive to its store-exclusive are one point, and the kernel's
//! code that reads a clock belongs to the call of it: see `latchwork-step`.
#![allow(unsafe_code)]

mod alarm;
mod at_end;
mod outcome;
mod point;
mod rounds;
mod seized;
mod tracee;

use crate::{Child, Exit, Trial};
pub use alarm::Alarm;
pub use at_end::AtEnd;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;
use latchwork_step::{Pinned, Place, Recording, Resume, Task};
pub use outcome::{Covered, Outcome, done, reported};
pub use point::{Point, Span};
use rounds::{BUDGET, Parts, Rounds, VICTIMS, VISITS};
pub use seized::each_instruction_to_the_end;
use tracee::{Seen, Stop, Tracee, wait};

/// Kills an operation at its instructions, one in each round.
///
/// In each round, `before` makes the shared state, in this process. `child` runs in a fork, and calls [`Span::run`]
/// once. `unblock` is called, in this process, when the operation sleeps in a system call; it returns whether it will
/// wake the operation (if not, the child is killed asleep, and the operation counts as ended). `check` is called, in
/// this process, with the state and the place of the kill. What it returns is the round's [`Outcome`].
///
/// Prints a line and returns `None` if tracing is forbidden.
///
/// # Panics
/// If the child panics, or does not reach the operation's end.
pub fn each_instruction<W, O: Outcome>(
    trial: &Trial,
    name: &str,
    mut before: impl FnMut() -> W,
    child: impl Fn(&W, Span),
    mut unblock: impl FnMut(&W) -> bool,
    mut check: impl FnMut(W, Point) -> O,
) -> Option<Covered> {
    let parts = Parts {
        before: &mut before,
        child: &child,
        unblock: &mut unblock,
        check: &mut check,
    };
    Rounds::new(trial, name, parts).run(None)
}

/// As [`each_instruction`]; in further rounds a second task is killed, as it recovers from the death of the first, in as many
/// of the operations as [`Trial::share_of_recoveries`] says.
///
/// `recover` runs in a fork, after the operation was killed, and calls [`Span::run`] once: it does what brings to light that
/// a task died, and repairs what it left. It is killed at one of its instructions, and then `check` has the state that both
/// deaths left ([`Point::Twice`]). If it sleeps, `unblock` is called; and whatever that returns, its sleep must end.
///
/// # Panics
/// As for [`each_instruction`].
pub fn each_instruction_and_recovery<W, O: Outcome>(
    trial: &Trial,
    name: &str,
    mut before: impl FnMut() -> W,
    child: impl Fn(&W, Span),
    mut unblock: impl FnMut(&W) -> bool,
    recover: impl Fn(&W, Span),
    mut check: impl FnMut(W, Point) -> O,
) -> Option<Covered> {
    let parts = Parts {
        before: &mut before,
        child: &child,
        unblock: &mut unblock,
        check: &mut check,
    };
    Rounds::new(trial, name, parts).run(Some(&recover))
}

/// Stops an operation at its instructions, one in each round, and then lets it continue.
///
/// As [`each_instruction`], but nothing is killed: `meanwhile` is called, in this process, while the child is stopped.
/// `check` then examines how the operation dealt with the changed state, before the child ends, since the child's death
/// would make other tasks repair the state. The operation must not sleep for ever.
///
/// # Panics
/// As for [`each_instruction`].
pub fn each_standstill<W>(
    trial: &Trial,
    name: &str,
    mut before: impl FnMut() -> W,
    child: impl Fn(&W, Span),
    mut meanwhile: impl FnMut(&mut W),
    mut check: impl FnMut(W, Point),
) {
    let _pinned = Pinned::new();
    let mut round = |run: &mut dyn FnMut(&mut Stop<'_>) -> Point| {
        let mut world = before();
        let Some(tracee) = Tracee::start(|span| child(&world, span)) else {
            println!("skipped: {name}: ptrace is forbidden here");
            return false;
        };
        let mut unblock = || true;
        let mut stop = Stop::new(&tracee, &mut unblock);
        let point = run(&mut stop);
        trial.progress();
        if point != Point::Finished {
            meanwhile(&mut world);
            let end = stop.run_to_end();
            assert_eq!(end, Point::Finished, "stopped at {point:?}");
        }
        check(world, point);
        tracee.finish();
        true
    };
    let mut recording = Recording::new(VISITS);
    if !round(&mut |stop| stop.record(&mut recording)) {
        return;
    }
    let points = recording.places;
    // A round needs several context switches.
    let stride = points
        .len()
        .div_ceil(trial.points(BUDGET / 2) as usize)
        .max(1);
    let first = trial.seed().rng(recording.instructions).usize(..stride);
    let mut stopped = 0_u64;
    for place in points.iter().skip(first).step_by(stride) {
        round(&mut |stop| {
            let point = stop.run_to(*place);
            stopped += u64::from(point != Point::Finished);
            point
        });
    }
    println!(
        "{}: {name}: stopped at {stopped} of {} points",
        trial.name(),
        points.len()
    );
}

/// The places in an operation, for victims that are killed at a random one of them.
#[derive(Debug)]
pub struct Places {
    points: Vec<Place>,
}

impl Places {
    /// Runs the operation once, to its end; `None` if tracing is forbidden.
    ///
    /// # Panics
    /// If the operation sleeps.
    #[must_use]
    pub fn record(child: impl FnOnce(Span)) -> Option<Self> {
        let tracee = Tracee::start(child)?;
        let mut recording = Recording::new(VISITS);
        let end = Stop::new(&tracee, &mut || false).record(&mut recording);
        assert_eq!(end, Point::Finished);
        tracee.finish();
        Some(Self {
            points: recording.places,
        })
    }

    /// Runs the operation in a child, and kills it at a random place (or at its end, if it does not reach that place).
    ///
    /// # Panics
    /// If the operation sleeps, or tracing has become forbidden.
    pub fn kill(&self, rng: &mut fastrand::Rng, child: impl FnOnce(Span)) {
        VICTIMS.fetch_add(1, Relaxed);
        let place = self.points[rng.usize(..self.points.len())];
        let tracee = Tracee::start(child).expect("a child that may be traced");
        Stop::new(&tracee, &mut || false).run_to(place);
        tracee.kill();
    }
}

/// A child that has slept in a futex call, and is stopped at the end of that call, before it executes another
/// instruction; or that is stopped at the beginning of one.
///
/// So it has consumed a wake-up and not yet acted on it, or has decided to sleep and does not sleep yet, for as long as the test
/// needs.
pub struct Frozen {
    child: Child,
    woken: bool,
}

impl fmt::Debug for Frozen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Frozen")
            .field("pid", &self.child.pid())
            .field("woken", &self.woken)
            .finish()
    }
}

impl Frozen {
    /// Runs `body` in a child until it sleeps in a futex call; `None` if tracing is forbidden.
    #[must_use]
    pub fn in_futex(trial: &Trial, body: impl FnOnce()) -> Option<Self> {
        Self::asleep(trial, Child::is_in_futex, body)
    }

    /// Runs `body` in a child until it sleeps until a task of its region dies; `None` if tracing is forbidden.
    #[must_use]
    pub fn in_region_sleep(trial: &Trial, body: impl FnOnce()) -> Option<Self> {
        Self::asleep(trial, Child::is_in_region_sleep, body)
    }

    fn asleep(trial: &Trial, sleeps: fn(&Child) -> bool, body: impl FnOnce()) -> Option<Self> {
        let Some(tracee) = Tracee::start(|span| span.run(body)) else {
            println!("skipped: {}: ptrace is forbidden here", trial.name());
            return None;
        };
        let alarm = Alarm::new();
        alarm.set(true);
        // Each PTRACE_SYSCALL stops at the next entry into, or exit from, a system call.
        loop {
            tracee.resume(Resume::ToCall);
            match tracee.wait_or_asleep(&alarm, sleeps) {
                None => {
                    return Some(Self {
                        child: tracee.child,
                        woken: false,
                    });
                }
                Some(Seen::Stopped(libc::SIGTRAP)) => {}
                Some(other) => panic!("a child that was to sleep in a futex call: {other:?}"),
            }
            trial.progress();
        }
    }

    /// Runs `body` in a child until it enters the system call with this number for the first time; `None` if tracing is
    /// forbidden.
    ///
    /// # Panics
    /// If the child does not come to it.
    #[must_use]
    pub fn before_call(trial: &Trial, number: i64, body: impl FnOnce()) -> Option<Self> {
        // The body may return after the end of the tracing, so the span ends before.
        let start = |span: Span| {
            span.run(|| ());
            body();
        };
        let Some(tracee) = Tracee::start(start) else {
            println!("skipped: {}: ptrace is forbidden here", trial.name());
            return None;
        };
        let task = Task(tracee.child.pid());
        let marked = task.set_options(libc::PTRACE_O_TRACESYSGOOD);
        marked.expect("a child that is stopped");
        loop {
            tracee.resume(Resume::ToCall);
            match wait(tracee.child.pid(), 0) {
                Seen::Stopped(signal) if signal == libc::SIGTRAP | 0x80 => {}
                Seen::Stopped(libc::SIGSTOP) => continue,
                other => panic!("a child that was to make system call {number}: {other:?}"),
            }
            let call = task.call_entered().expect("a child that is stopped");
            if call.is_some_and(|call| call.number == number as u64) {
                return Some(Self {
                    child: tracee.child,
                    woken: true,
                });
            }
            trial.progress();
        }
    }

    /// Waits until the sleep has ended.
    pub fn wait_until_woken(&mut self, trial: &Trial) {
        trial.wait_until(|| self.is_woken());
    }

    /// Whether the sleep has ended.
    pub fn is_woken(&mut self) -> bool {
        self.woken |= matches!(
            wait(self.child.pid(), libc::WNOHANG),
            Seen::Stopped(libc::SIGTRAP)
        );
        self.woken
    }

    /// As [`is_in_region_sleep`](crate::is_in_region_sleep).
    #[must_use]
    pub fn is_in_region_sleep(&self) -> bool {
        self.child.is_in_region_sleep()
    }

    /// Lets it continue.
    #[must_use]
    pub fn thaw(self) -> Child {
        assert!(self.woken, "it is not stopped");
        let detached = Task(self.child.pid()).detach();
        detached.expect("a child that is stopped");
        self.child
    }

    /// Kills it where it is stopped.
    pub fn kill(&mut self) {
        assert_eq!(self.child.kill(), Exit::Signal(libc::SIGKILL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// The kernel's code that reads a clock starts again at each tick, so a walk through it might not end.
    #[test]
    fn no_point_is_in_the_vdso() {
        let read = |span: Span| {
            span.run(|| {
                for _ in 0..3 {
                    std::hint::black_box(Instant::now());
                }
            });
        };
        let Some(places) = Places::record(read) else {
            println!("skipped: ptrace is forbidden here");
            return;
        };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap();
        let (start, rest) = line.split_once('-').unwrap();
        let end = rest.split_once(' ').unwrap().0;
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        assert!(!places.points.is_empty());
        for place in &places.points {
            assert!(!(start..end).contains(&place.address), "{place:?}");
        }
        // Kills before, at and behind the calls.
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20 {
            places.kill(&mut rng, read);
        }
    }
}
