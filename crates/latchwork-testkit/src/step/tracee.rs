//! The traced child: its walk through the operation, and its sleeps.
#![allow(unsafe_code)]

use super::alarm::Alarm;
use super::{Point, Span};
use crate::child::state_of;
use crate::{Child, Exit};
use core::fmt;
use latchwork_step::{ENDLESS, Place, Recording, Resume, Stepped, Task};
use std::io::{Error, ErrorKind};

/// Exit code of a child that may not be traced.
const FORBIDDEN: i32 = 77;

/// A traced child.
pub(super) struct Tracee {
    pub(super) child: Child,
}

impl Tracee {
    /// A child at the beginning of its operation; `None` if tracing is forbidden.
    pub(super) fn start(body: impl FnOnce(Span)) -> Option<Self> {
        Self::start_by(|body| Child::fork(body), body)
    }

    /// As [`Self::start`], in the PID namespace of this process.
    pub(super) fn start_here(body: impl FnOnce(Span)) -> Option<Self> {
        Self::start_by(|body| Child::fork_here(body), body)
    }

    fn start_by(
        fork: impl FnOnce(Box<dyn FnOnce() + '_>) -> Child,
        body: impl FnOnce(Span),
    ) -> Option<Self> {
        let child = fork(Box::new(|| {
            // SAFETY: requests tracing by the parent; the other arguments are ignored.
            if unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } != 0 {
                // SAFETY: `_exit` has no preconditions.
                unsafe { libc::_exit(FORBIDDEN) };
            }
            body(Span(()));
        }));
        let mut tracee = Self { child };
        match wait(tracee.child.pid(), 0) {
            Seen::Stopped(libc::SIGSTOP) => Some(tracee),
            Seen::Gone => {
                let exit = tracee.child.wait();
                assert_eq!(
                    exit,
                    Exit::Code(FORBIDDEN),
                    "the child ended before its operation"
                );
                None
            }
            other => {
                let task = Task(tracee.child.pid());
                panic!(
                    "the child stopped before its operation: {other:?}, {}",
                    fault(task)
                )
            }
        }
    }

    pub(super) fn resume(&self, how: Resume) {
        let resumed = Task(self.child.pid()).resume(how, 0);
        resumed.expect("a child that is stopped");
    }

    /// Waits for the next stop; `None` if the child sleeps, as `sleeps` says. The alarm ends each wait, so it must be on.
    pub(super) fn wait_or_asleep(&self, alarm: &Alarm, sleeps: fn(&Child) -> bool) -> Option<Seen> {
        let pid = self.child.pid();
        loop {
            if let Some(seen) = look(pid, 0) {
                alarm.reset();
                return Some(seen);
            }
            if sleeps(&self.child) && state_of(pid) == Some('S') {
                return None;
            }
            alarm.back_off();
        }
    }

    pub(super) fn finish(mut self) {
        let detached = Task(self.child.pid()).detach();
        detached.expect("a child that is stopped");
        let exit = self.child.wait();
        assert!(
            matches!(exit, Exit::Code(0) | Exit::Signal(libc::SIGKILL)),
            "the child after its operation: {exit:?}"
        );
    }

    pub(super) fn kill(mut self) {
        let exit = self.child.kill();
        assert_eq!(exit, Exit::Signal(libc::SIGKILL));
    }
}

/// Why a walk through the operation ended.
#[derive(Debug)]
pub(super) struct End(pub(super) Point);

impl From<Error> for End {
    /// The child is stopped whenever it is examined, and nobody else kills it.
    fn from(error: Error) -> Self {
        panic!("ptrace: {error}")
    }
}

/// A child that is stopped in its operation.
pub(super) struct Stop<'a> {
    tracee: &'a Tracee,
    /// Called when the child sleeps: whether it will be woken.
    unblock: &'a mut dyn FnMut() -> bool,
    alarm: Alarm,
}

impl fmt::Debug for Stop<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Stop").field(&self.task()).finish()
    }
}

impl<'a> Stop<'a> {
    pub(super) fn new(tracee: &'a Tracee, unblock: &'a mut dyn FnMut() -> bool) -> Self {
        Self {
            tracee,
            unblock,
            alarm: Alarm::new(),
        }
    }

    /// Lets the child walk. The alarm is on meanwhile: to turn it on for each wait would take longer than most waits.
    fn walk<T>(&mut self, walk: impl FnOnce(&mut Self) -> T) -> T {
        self.alarm.set(true);
        let end = walk(self);
        self.alarm.set(false);
        end
    }

    /// Whether the child, which sleeps, will be woken.
    fn is_unblocked(&mut self) -> bool {
        self.alarm.set(false);
        let unblocked = (self.unblock)();
        self.alarm.set(true);
        unblocked
    }

    /// Steps through the operation.
    pub(super) fn record(&mut self, recording: &mut Recording) -> Point {
        let watch = &mut |address| recording.add(address);
        match self.walk(|stop| latchwork_step::step_through(stop, watch)) {
            Some(End(point)) => point,
            None => panic!("no end after {ENDLESS} instructions"),
        }
    }

    /// Runs to a place, if the operation does not end before.
    pub(super) fn run_to(&mut self, place: Place) -> Point {
        match self.walk(|stop| latchwork_step::run_to(stop, place)) {
            Ok(()) => Point::Instruction(place.at),
            Err(End(point)) => point,
        }
    }

    /// Runs to the operation's end.
    pub(super) fn run_to_end(&mut self) -> Point {
        match self.walk(|stop| stop.go(Resume::Run, 0)) {
            Ok(()) => panic!("a trap"),
            Err(End(point)) => point,
        }
    }
}

impl Stepped for Stop<'_> {
    type End = End;

    fn task(&self) -> Task {
        Task(self.tracee.child.pid())
    }

    fn go(&mut self, how: Resume, at: u64) -> Result<(), End> {
        self.tracee.resume(how);
        loop {
            return match self.tracee.wait_or_asleep(&self.alarm, Child::is_in_futex) {
                Some(Seen::Stopped(libc::SIGTRAP)) => Ok(()),
                Some(Seen::Stopped(libc::SIGSTOP)) => Err(End(Point::Finished)),
                None if self.is_unblocked() => continue,
                None => Err(End(Point::Asleep(at))),
                Some(Seen::Stopped(signal)) => {
                    panic!(
                        "at instruction {at}: signal {signal}, {}",
                        fault(self.task())
                    )
                }
                Some(other) => panic!("at instruction {at}: {other:?}"),
            };
        }
    }
}

/// Where a signal has stopped a task, the mappings of what it executes and of what it has accessed, its registers, and all
/// mappings.
fn fault(task: Task) -> String {
    // SAFETY: zero is a valid siginfo_t, the call fills it in, and each signal has the field's bytes.
    let (code, accessed) = unsafe {
        let mut info: libc::siginfo_t = core::mem::zeroed();
        libc::ptrace(libc::PTRACE_GETSIGINFO, task.0, 0_usize, &raw mut info);
        (info.si_code, info.si_addr().addr() as u64)
    };
    let executed = task.address().unwrap_or_default();
    let bytes = task.code(executed).unwrap_or_default().to_le_bytes();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", task.0)).unwrap_or_default();
    let mapping = |address: u64| {
        let is_there = |line: &&str| {
            let range = line.split_once(' ').and_then(|it| it.0.split_once('-'));
            let [Some(first), Some(end)] = [range.map(|it| it.0), range.map(|it| it.1)]
                .map(|bound| u64::from_str_radix(bound?, 16).ok())
            else {
                return false;
            };
            (first..end).contains(&address)
        };
        maps.lines().find(is_there).unwrap_or("nothing is mapped")
    };
    format!(
        "code {code}, executes {executed:#x} ({bytes:02x?}; {}), accesses {accessed:#x} ({}), registers {:x?}\n{maps}",
        mapping(executed),
        mapping(accessed),
        task.all_registers().unwrap_or_default()
    )
}

#[derive(Debug)]
pub(super) enum Seen {
    Nothing,
    Stopped(i32),
    Gone,
}

pub(super) fn wait(pid: i32, flags: i32) -> Seen {
    loop {
        if let Some(seen) = look(pid, flags) {
            return seen;
        }
    }
}

/// What has become of a child; `None` if a signal ended the wait.
///
/// It consumes a stop, and leaves an exit for [`Child`] to reap.
fn look(pid: i32, flags: i32) -> Option<Seen> {
    let seen = wait_for(pid, libc::WSTOPPED | libc::WNOHANG & flags);
    if matches!(seen, Ok(Seen::Stopped(_))) {
        return seen.ok();
    }
    // The call above fails (with ECHILD) when the child ends. This one also sees a stop, as any wait for a tracee does.
    let gone = wait_for(pid, libc::WEXITED | libc::WNOWAIT | libc::WNOHANG);
    if matches!(gone, Ok(Seen::Gone)) {
        return gone.ok();
    }
    match seen {
        Err(error) if error.kind() == ErrorKind::Interrupted => None,
        Err(error) => panic!("waitid: {error}"),
        Ok(seen) => Some(seen),
    }
}

/// Waits until a child has come to one of the states of `flags`.
pub(super) fn wait_for(pid: i32, flags: i32) -> Result<Seen, Error> {
    // SAFETY: zero is a valid siginfo_t, and waitid fills it in.
    let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
    // SAFETY: waits for a child of this process, and writes a local variable.
    let result =
        unsafe { libc::waitid(libc::P_PID, pid as u32, &raw mut info, flags | libc::__WALL) };
    if result != 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: filled in by waitid, or all zero.
    let (child, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok(match info.si_code {
        _ if child == 0 => Seen::Nothing,
        libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED => Seen::Gone,
        _ => Seen::Stopped(status),
    })
}
