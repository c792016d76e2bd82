//! The end of a process that the test has not forked, killed at each instruction.
#![allow(unsafe_code)]

use super::Point;
use super::at_end::seize;
use super::outcome::{Covered, Outcome, Outcomes};
use super::rounds::{BUDGET, sample, visits};
use super::tracee::{Seen, wait_for};
use crate::Trial;
use latchwork_step::{Place, Recording, Resume, Stepped, Task, run_to, step_through};
use std::io::{Error, ErrorKind};

/// The signal at which a process that this thread traces has stopped next, or `None` if it has ended. The end is left to
/// whoever joins the process: it may be a child of this one.
fn wait_for_stop(process: i32) -> Option<i32> {
    loop {
        match wait_for(process, libc::WSTOPPED) {
            Ok(Seen::Stopped(signal)) => return Some(signal),
            Ok(other) => panic!("a process that was to stop: {other:?}"),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // It stops no more.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return None,
            Err(error) => panic!("waitid: {error}"),
        }
    }
}

/// A process that this thread traces, until it ends.
struct Seized(Task);

/// It ended.
struct Ended;

impl From<Error> for Ended {
    /// It is stopped whenever it is examined, and nobody else kills it.
    fn from(error: Error) -> Self {
        panic!("ptrace: {error}")
    }
}

impl Seized {
    /// Traces the process, and waits for the SIGSTOP with which it says, after `go`, that its end begins. `None` if that is
    /// forbidden: then it is killed at once.
    fn begin(process: u32, go: impl FnOnce()) -> Option<Self> {
        let process = process as i32;
        let Some(task) = seize(process, libc::PTRACE_O_EXITKILL) else {
            // SAFETY: it waits for `go`, so that it has not ended, and its ID is its own.
            unsafe { libc::kill(process, libc::SIGKILL) };
            return None;
        };
        go();
        let stopped = wait_for_stop(process);
        assert_eq!(stopped, Some(libc::SIGSTOP), "before its end");
        Some(Self(task))
    }

    /// Kills it, if it has not ended.
    fn kill(self) {
        // SAFETY: it is stopped, so that it has not ended, and its ID is its own.
        unsafe { libc::kill(self.0.0, libc::SIGKILL) };
        assert_eq!(wait_for_stop(self.0.0), None, "a stop after a kill");
    }
}

impl Stepped for Seized {
    type End = Ended;

    fn task(&self) -> Task {
        self.0
    }

    fn go(&mut self, how: Resume, at: u64) -> Result<(), Ended> {
        let resumed = self.0.resume(how, 0);
        resumed.expect("a process that is stopped");
        match wait_for_stop(self.0.0) {
            Some(libc::SIGTRAP) => Ok(()),
            Some(signal) => panic!("at instruction {at}: signal {signal}"),
            None => Err(Ended),
        }
    }
}

/// As [`each_instruction`](super::each_instruction), of a process that the test has not forked: it is killed at each
/// instruction of its end.
///
/// `before` makes the shared state, and returns it with the ID of the process, which has one thread. It waits until `go` is
/// called, raises SIGSTOP, and ends then; where it sleeps on its way, others wake it. `check` is called when it has ended.
///
/// # Panics
/// If it gets another signal, or is killed in no round.
pub fn each_instruction_to_the_end<W, O: Outcome>(
    trial: &Trial,
    name: &str,
    mut before: impl FnMut() -> (W, u32),
    go: impl Fn(&W),
    mut check: impl FnMut(W, Point) -> O,
) -> Option<Covered> {
    let (mut covered, mut outcomes) = (Covered::default(), Outcomes::default());
    let mut round = |walk: &mut dyn FnMut(&mut Seized) -> Option<Place>| {
        let (world, process) = before();
        let mut seized = Seized::begin(process, || go(&world))?;
        let point = match walk(&mut seized) {
            Some(place) => {
                seized.kill();
                Point::Instruction(place.at)
            }
            None => Point::Finished,
        };
        trial.progress();
        outcomes.add(check(world, point));
        Some(point)
    };
    let mut recording = Recording::new(visits(trial));
    round(&mut |seized| {
        let end = step_through(seized, &mut |address| recording.add(address));
        assert!(end.is_some(), "no end");
        None
    })?;
    covered.instructions = recording.instructions;
    covered.points = recording.places.len() as u64;
    let mut rng = trial.seed().rng(recording.instructions);
    for place in sample(&recording.places, trial.points(BUDGET), &mut rng) {
        let point = round(&mut |seized| run_to(seized, place).is_ok().then_some(place))?;
        covered.killed_at += u64::from(point != Point::Finished);
    }
    assert!(
        covered.killed_at > 0,
        "{name}: each round ended before its point"
    );
    println!(
        "{}: {name}: killed at {} of {} points ({} instructions)",
        trial.name(),
        covered.killed_at,
        covered.points,
        covered.instructions
    );
    outcomes.report(trial, name, &covered);
    Some(covered)
}
