//! One operation, killed at every instruction.
//!
//! A child is traced, single-stepped through the operation to its *k*-th instruction, and killed
//! there; then the test checks what it left. This for *k* = 0, 1, 2 … up to the operation's end, but
//! for the later rounds of loops: an instruction counts at its first [`VISITS`] executions.
//! That takes steps in the square of the operation's length, so where these are more than the
//! budget allows, every *s*-th point is taken, from a random first one on: another run covers others.
//!
//! A kill inside a system call is a kill before or after it; one that sleeps is a point of its own
//! ("asleep").
#![allow(unsafe_code)]

use crate::child::state_of;
use crate::{Child, Exit, Trial};
use core::fmt;
use std::collections::HashMap;
use std::io::Error;

/// Single steps per operation, unless `LATCHWORK_KILLS` says otherwise; about a second.
const BUDGET: u64 = 150_000;
/// How many rounds of a loop are of interest.
const VISITS: u8 = 3;
/// More instructions than any operation has: a loop that does not end when it is stepped.
const ENDLESS: u64 = 5_000_000;
/// Exit code of a child that may not be traced.
const FORBIDDEN: i32 = 77;

/// In the child: the operation begins and ends here.
#[derive(Debug)]
pub struct Span(());

impl Span {
    /// Runs what is to be stepped through.
    pub fn run<T>(self, operation: impl FnOnce() -> T) -> T {
        stop_here();
        let result = operation();
        stop_here();
        result
    }
}

fn stop_here() {
    // SAFETY: a signal to oneself, at which the tracer takes over.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Where the child was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Before this instruction of the operation.
    Instruction(u64),
    /// Asleep in a system call, after so many instructions.
    Asleep(u64),
    /// Not at all.
    Finished,
}

/// What was covered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Covered {
    /// Instructions that an undisturbed run of the operation executes.
    pub instructions: u64,
    /// Those of them that are points of interest.
    pub points: u64,
    /// At how many of those it was killed.
    pub killed_at: u64,
    /// How often it was killed asleep.
    pub asleep: u64,
}

/// Kills an operation at its instructions, one in each round.
///
/// In each round `before` makes a world, here; `child` runs in a fork, and calls [`Span::run`] once;
/// `unblock` is called, here, when the operation sleeps in a system call, and returns whether that
/// will wake it (if not, the child is killed asleep, and the operation counts as ended); `check`
/// is called, here, with the world and the place of the kill.
///
/// Returns `None`, and says so, where tracing is forbidden.
///
/// # Panics
/// If the child panics, or does not come to the operation's end.
pub fn each_instruction<W>(
    trial: &Trial,
    name: &str,
    mut before: impl FnMut() -> W,
    child: impl Fn(&W, Span),
    mut unblock: impl FnMut(&W) -> bool,
    mut check: impl FnMut(W, Point),
) -> Option<Covered> {
    let _pinned = Pinned::new();
    let mut covered = Covered::default();
    let mut round = |limit: u64, watch: &mut dyn FnMut(u64)| {
        let world = before();
        let Some(mut tracee) = Tracee::start(|span| child(&world, span)) else {
            println!("SKIPPED: {name}: ptrace is forbidden here");
            return None;
        };
        let point = tracee.step(limit, || unblock(&world), watch);
        trial.progress();
        if point == Point::Finished {
            tracee.finish();
        } else {
            tracee.kill();
        }
        check(world, point);
        Some(point)
    };
    let mut visits = HashMap::<u64, u8>::new();
    let mut points = Vec::new();
    let end = round(ENDLESS, &mut |address| {
        let visits = visits.entry(address).or_default();
        if *visits < VISITS {
            *visits += 1;
            points.push(covered.instructions);
        }
        covered.instructions += 1;
    })?;
    assert!(!matches!(end, Point::Instruction(_)), "{name}: no end after {ENDLESS} instructions");
    covered.points = points.len() as u64;
    covered.asleep += u64::from(matches!(end, Point::Asleep(_)));
    let stride = points.iter().sum::<u64>().div_ceil(trial.times(BUDGET)).max(1) as usize;
    let first = trial.seed().rng(covered.instructions).usize(..stride);
    for at in points.into_iter().skip(first).step_by(stride) {
        match round(at, &mut |_| {})? {
            Point::Instruction(_) => covered.killed_at += 1,
            Point::Asleep(_) => covered.asleep += 1,
            // Another course of events took fewer instructions.
            Point::Finished => {}
        }
    }
    let Covered { instructions, points, killed_at, asleep } = covered;
    let asleep = if asleep > 0 { format!(", and {asleep} times asleep") } else { String::new() };
    println!("{}: {name}: killed at {killed_at} of {points} points ({instructions} instructions){asleep}", trial.name());
    Some(covered)
}

/// A child that was asleep in a futex call, and stops at its end, before it runs an instruction more.
///
/// So it has consumed a wake-up and not yet acted upon it, for as long as the test likes.
pub struct Frozen {
    child: Child,
    woken: bool,
}

impl fmt::Debug for Frozen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Frozen").field("pid", &self.child.pid()).field("woken", &self.woken).finish()
    }
}

impl Frozen {
    /// Runs `body` in a child until it sleeps in a futex call; `None` if tracing is forbidden.
    #[must_use]
    pub fn in_futex(trial: &Trial, body: impl FnOnce()) -> Option<Self> {
        let Some(tracee) = Tracee::start(|span| span.run(body)) else {
            println!("SKIPPED: {}: ptrace is forbidden here", trial.name());
            return None;
        };
        // Each PTRACE_SYSCALL stops at the next entry into or exit from a system call.
        loop {
            request(libc::PTRACE_SYSCALL, tracee.child.pid());
            match tracee.wait_or_asleep() {
                None => return Some(Self { child: tracee.child, woken: false }),
                Some(Seen::Stopped(libc::SIGTRAP)) => {}
                Some(other) => panic!("a child that was to sleep in a futex call: {other:?}"),
            }
            trial.progress();
        }
    }

    /// Waits until the sleep has ended.
    pub fn wait_until_woken(&mut self, trial: &Trial) {
        trial.wait_until(|| self.is_woken());
    }

    /// Whether the sleep has ended by now.
    pub fn is_woken(&mut self) -> bool {
        self.woken |= matches!(wait(self.child.pid(), libc::WNOHANG), Seen::Stopped(libc::SIGTRAP));
        self.woken
    }

    /// Lets it go on.
    #[must_use]
    pub fn thaw(self) -> Child {
        assert!(self.woken, "it is not stopped");
        request(libc::PTRACE_DETACH, self.child.pid());
        self.child
    }

    /// Kills it where it is.
    pub fn kill(&mut self) {
        assert_eq!(self.child.kill(), Exit::Signal(libc::SIGKILL));
    }
}

/// A traced child.
struct Tracee {
    child: Child,
    steps: u64,
}

impl Tracee {
    /// A child at the beginning of its operation; `None` if tracing is forbidden.
    fn start(body: impl FnOnce(Span)) -> Option<Self> {
        let child = Child::fork(|| {
            // SAFETY: asks to be traced by the parent; the other arguments are not looked at.
            if unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } != 0 {
                // SAFETY: ends the process.
                unsafe { libc::_exit(FORBIDDEN) };
            }
            body(Span(()));
        });
        let mut tracee = Self { child, steps: 0 };
        match wait(tracee.child.pid(), 0) {
            Seen::Stopped(libc::SIGSTOP) => Some(tracee),
            Seen::Gone => {
                let exit = tracee.child.wait();
                assert_eq!(exit, Exit::Code(FORBIDDEN), "the child ended before its operation");
                None
            }
            other => panic!("the child stopped before its operation: {other:?}"),
        }
    }

    /// Goes to the instruction `limit`; `watch` is told the addresses on the way if there is no limit.
    fn step(&mut self, limit: u64, mut unblock: impl FnMut() -> bool, watch: &mut dyn FnMut(u64)) -> Point {
        let pid = self.child.pid();
        while self.steps < limit {
            if limit == ENDLESS {
                watch(program_counter(pid));
            }
            request(libc::PTRACE_SINGLESTEP, pid);
            loop {
                match self.wait_or_asleep() {
                    Some(Seen::Stopped(libc::SIGTRAP)) => break,
                    Some(Seen::Stopped(libc::SIGSTOP)) => return Point::Finished,
                    None if unblock() => {}
                    None => return Point::Asleep(self.steps),
                    Some(other) => panic!("after {} instructions: {other:?}", self.steps),
                }
            }
            self.steps += 1;
        }
        Point::Instruction(self.steps)
    }

    /// Waits for the next stop; `None` if the child is asleep in a futex call.
    fn wait_or_asleep(&self) -> Option<Seen> {
        let pid = self.child.pid();
        for round in 0_u64.. {
            match wait(pid, libc::WNOHANG) {
                Seen::Nothing => {}
                seen => return Some(seen),
            }
            if round % 64 == 63 && self.child.is_in_futex() && state_of(pid) == Some('S') {
                return None;
            }
            std::thread::yield_now();
        }
        None
    }

    fn finish(mut self) {
        request(libc::PTRACE_DETACH, self.child.pid());
        let exit = self.child.wait();
        assert_eq!(exit, Exit::Code(0), "the child after its operation");
    }

    fn kill(mut self) {
        let exit = self.child.kill();
        assert_eq!(exit, Exit::Signal(libc::SIGKILL));
    }
}

#[derive(Debug)]
enum Seen {
    Nothing,
    Stopped(i32),
    Gone,
}

fn wait(pid: i32, flags: i32) -> Seen {
    let mut status = 0;
    // WNOWAIT is not for waitpid: an exit is left for `Child` to reap.
    // SAFETY: zero is a valid siginfo_t, and waitid fills it in.
    let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
    let look = libc::WEXITED | libc::WNOWAIT | (libc::WNOHANG & flags);
    // SAFETY: looks for our own child and writes the variable.
    let gone = unsafe { libc::waitid(libc::P_PID, pid as u32, &raw mut info, look | libc::WSTOPPED | libc::__WALL) };
    assert_eq!(gone, 0, "waitid: {}", Error::last_os_error());
    // SAFETY: filled in by waitid, or all zero.
    if unsafe { info.si_pid() } == 0 {
        return Seen::Nothing;
    }
    if matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) {
        return Seen::Gone;
    }
    // SAFETY: takes the stop that was seen above.
    unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    if libc::WIFSTOPPED(status) { Seen::Stopped(libc::WSTOPSIG(status)) } else { Seen::Gone }
}

fn request(request: libc::c_uint, pid: i32) {
    // SAFETY: acts on our stopped tracee; the last two arguments are 0: no address, no signal.
    let result = unsafe { libc::ptrace(request, pid, 0, 0) };
    assert_eq!(result, 0, "ptrace({request}): {}", Error::last_os_error());
}

fn program_counter(pid: i32) -> u64 {
    // SAFETY: all-zero is a valid set of registers.
    let mut registers: libc::user_regs_struct = unsafe { core::mem::zeroed() };
    let mut place = libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of_val(&registers) };
    // SAFETY: writes our stopped tracee's registers to the place described.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, pid, libc::NT_PRSTATUS, &raw mut place) };
    assert_eq!(result, 0, "ptrace: {}", Error::last_os_error());
    #[cfg(target_arch = "x86_64")]
    return registers.rip;
    #[cfg(target_arch = "aarch64")]
    return registers.pc;
}

/// Tracer and tracee take turns: on one CPU that is several times faster.
struct Pinned {
    before: libc::cpu_set_t,
}

impl Pinned {
    fn new() -> Self {
        // SAFETY: all-zero is a valid cpu_set_t; the calls read and write ours. If they fail,
        // stepping is slow.
        unsafe {
            let mut before: libc::cpu_set_t = core::mem::zeroed();
            libc::sched_getaffinity(0, size_of_val(&before), &raw mut before);
            let mut here: libc::cpu_set_t = core::mem::zeroed();
            libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut here);
            libc::sched_setaffinity(0, size_of_val(&here), &raw const here);
            Self { before }
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: reads our variable.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.before), &raw const self.before) };
    }
}
