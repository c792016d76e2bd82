//! One operation, killed at every instruction.
//!
//! A child is traced, and single-stepped through the operation once. Each instruction that it
//! executed is a *point*, once for each of its first three executions (loops have many). Then,
//! for each point, a new child runs into a breakpoint there, and is killed; and the test checks what
//! it left. Where an operation has more points than the budget allows, every *s*-th is taken, from a
//! random first one on: another run covers others.
//!
//! A kill inside a system call is a kill before or after it; one that sleeps is a point of its own
//! ("asleep").
#![allow(unsafe_code)]

use crate::child::state_of;
use crate::{Child, Exit, Trial};
use core::{fmt, ptr};
use std::collections::HashMap;
use std::io::Error;

/// Points of an operation that are taken, unless `LATCHWORK_KILLS` says otherwise; about half a second.
const BUDGET: u64 = 800;
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
    let mut round = |run: &mut dyn FnMut(&mut Tracee, &mut dyn FnMut() -> bool) -> Point| {
        let world = before();
        let Some(mut tracee) = Tracee::start(|span| child(&world, span)) else {
            println!("SKIPPED: {name}: ptrace is forbidden here");
            return None;
        };
        let point = run(&mut tracee, &mut || unblock(&world));
        trial.progress();
        if point == Point::Finished {
            tracee.finish();
        } else {
            tracee.kill();
        }
        check(world, point);
        Some(point)
    };
    let mut recording = Recording::default();
    let end =
        round(&mut |tracee, unblock| tracee.step(unblock, &mut |address| recording.add(address)))?;
    let Recording {
        instructions,
        points,
        ..
    } = recording;
    covered.instructions = instructions;
    covered.points = points.len() as u64;
    covered.asleep += u64::from(matches!(end, Point::Asleep(_)));
    let stride = covered.points.div_ceil(trial.times(BUDGET)).max(1) as usize;
    let first = trial.seed().rng(covered.instructions).usize(..stride);
    for place in points.into_iter().skip(first).step_by(stride) {
        match round(&mut |tracee, unblock| tracee.run_to(place, unblock))? {
            Point::Instruction(_) => covered.killed_at += 1,
            Point::Asleep(_) => covered.asleep += 1,
            // Another course of events did not come by.
            Point::Finished => {}
        }
    }
    let Covered {
        instructions,
        points,
        killed_at,
        asleep,
    } = covered;
    let asleep = if asleep > 0 {
        format!(", and {asleep} times asleep")
    } else {
        String::new()
    };
    println!(
        "{}: {name}: killed at {killed_at} of {points} points ({instructions} instructions){asleep}",
        trial.name()
    );
    Some(covered)
}

/// Stops an operation at its instructions, one in each round, and lets it go on.
///
/// As [`each_instruction`], but nobody is killed: `meanwhile` is called, here, while the child stands still, and what
/// the operation then makes of a changed world is for `check`, before the child ends: a death has others set things
/// right. The operation must not sleep for ever.
///
/// # Panics
/// As there.
pub fn each_standstill<W>(
    trial: &Trial,
    name: &str,
    mut before: impl FnMut() -> W,
    child: impl Fn(&W, Span),
    mut meanwhile: impl FnMut(&mut W),
    mut check: impl FnMut(W, Point),
) {
    let _pinned = Pinned::new();
    let mut round = |run: &mut dyn FnMut(&mut Tracee) -> Point| {
        let mut world = before();
        let Some(mut tracee) = Tracee::start(|span| child(&world, span)) else {
            println!("SKIPPED: {name}: ptrace is forbidden here");
            return false;
        };
        let point = run(&mut tracee);
        trial.progress();
        if point != Point::Finished {
            meanwhile(&mut world);
            request(libc::PTRACE_CONT, tracee.child.pid());
            let end = tracee.next(0, &mut || true);
            assert_eq!(end, Some(Point::Finished), "stopped at {point:?}");
        }
        check(world, point);
        tracee.finish();
        true
    };
    let mut recording = Recording::default();
    if !round(&mut |tracee| tracee.step(&mut || true, &mut |address| recording.add(address))) {
        return;
    }
    let points = recording.points;
    // A round takes several tasks.
    let stride = points
        .len()
        .div_ceil(trial.times(BUDGET / 4) as usize)
        .max(1);
    let first = trial.seed().rng(recording.instructions).usize(..stride);
    let mut stopped = 0_u64;
    for place in points.iter().skip(first).step_by(stride) {
        round(&mut |tracee| {
            let point = tracee.run_to(*place, &mut || true);
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

/// The places in an operation, for victims that are killed somewhere in it.
#[derive(Debug)]
pub struct Places {
    points: Vec<Place>,
}

impl Places {
    /// Runs the operation once, to its end; `None` where tracing is forbidden.
    ///
    /// # Panics
    /// If the operation sleeps.
    #[must_use]
    pub fn record(child: impl FnOnce(Span)) -> Option<Self> {
        let mut tracee = Tracee::start(child)?;
        let mut recording = Recording::default();
        let end = tracee.step(&mut || false, &mut |address| recording.add(address));
        assert_eq!(end, Point::Finished);
        tracee.finish();
        Some(Self {
            points: recording.points,
        })
    }

    /// Runs the operation in a child, and kills it at a random place (or, where it does not come by,
    /// at its end).
    ///
    /// # Panics
    /// If the operation sleeps, or tracing is forbidden by now.
    pub fn kill(&self, rng: &mut fastrand::Rng, child: impl FnOnce(Span)) {
        let place = self.points[rng.usize(..self.points.len())];
        let mut tracee = Tracee::start(child).expect("a child that may be traced");
        tracee.run_to(place, &mut || false);
        tracee.kill();
    }
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
        let Some(tracee) = Tracee::start(|span| span.run(body)) else {
            println!("SKIPPED: {}: ptrace is forbidden here", trial.name());
            return None;
        };
        // Each PTRACE_SYSCALL stops at the next entry into or exit from a system call.
        loop {
            request(libc::PTRACE_SYSCALL, tracee.child.pid());
            match tracee.wait_or_asleep() {
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

    /// Waits until the sleep has ended.
    pub fn wait_until_woken(&mut self, trial: &Trial) {
        trial.wait_until(|| self.is_woken());
    }

    /// Whether the sleep has ended by now.
    pub fn is_woken(&mut self) -> bool {
        self.woken |= matches!(
            wait(self.child.pid(), libc::WNOHANG),
            Seen::Stopped(libc::SIGTRAP)
        );
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

/// An instruction's execution.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// How many instructions were executed before.
    at: u64,
    address: u64,
    /// How often this one was, before.
    visit: u8,
    /// How often it has repeated itself in this execution.
    round: u8,
}

#[derive(Default)]
struct Recording {
    instructions: u64,
    visits: HashMap<u64, u8>,
    points: Vec<Place>,
    last: Option<Place>,
}

impl Recording {
    fn add(&mut self, address: u64) {
        let at = self.instructions;
        self.instructions += 1;
        let place = match self.last {
            // A string instruction repeats itself; a breakpoint stops it once.
            Some(last) if last.address == address => Place {
                at,
                round: last.round.saturating_add(1),
                ..last
            },
            _ => {
                let visits = self.visits.entry(address).or_default();
                *visits = visits.saturating_add(1);
                Place {
                    at,
                    address,
                    visit: *visits - 1,
                    round: 0,
                }
            }
        };
        self.last = Some(place);
        if place.visit < VISITS && place.round < VISITS {
            self.points.push(place);
        }
    }
}

/// A traced child.
struct Tracee {
    child: Child,
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
            other => panic!("the child stopped before its operation: {other:?}"),
        }
    }

    /// Goes through the operation; `watch` is told the address of each instruction on the way.
    fn step(&mut self, unblock: &mut dyn FnMut() -> bool, watch: &mut dyn FnMut(u64)) -> Point {
        let pid = self.child.pid();
        for steps in 0..ENDLESS {
            watch(registers(pid).0);
            request(libc::PTRACE_SINGLESTEP, pid);
            match self.next(steps, unblock) {
                None => {}
                Some(end) => return end,
            }
        }
        panic!("no end after {ENDLESS} instructions")
    }

    /// Goes to a place by a breakpoint.
    fn run_to(&mut self, place: Place, unblock: &mut dyn FnMut() -> bool) -> Point {
        let Place {
            at,
            address,
            visit,
            round,
        } = place;
        let pid = self.child.pid();
        let original = peek(pid, address);
        let mut visits = u8::from(registers(pid).0 == address);
        if visits <= visit {
            if visits == 1 {
                request(libc::PTRACE_SINGLESTEP, pid);
                if let Some(end) = self.next(at, unblock) {
                    return end;
                }
            }
            loop {
                poke(pid, address, break_into(original));
                request(libc::PTRACE_CONT, pid);
                let end = self.next(at, unblock);
                if !matches!(end, Some(Point::Asleep(_))) {
                    poke(pid, address, original);
                }
                if let Some(end) = end {
                    return end;
                }
                set_program_counter(pid, address);
                visits += 1;
                if visits > visit {
                    break;
                }
                request(libc::PTRACE_SINGLESTEP, pid);
                if let Some(end) = self.next(at, unblock) {
                    return end;
                }
            }
        }
        for _ in 0..round {
            request(libc::PTRACE_SINGLESTEP, pid);
            if let Some(end) = self.next(at, unblock) {
                return end;
            }
        }
        Point::Instruction(at)
    }

    /// Waits for the next trap; `Some` if there is none before the end.
    fn next(&mut self, at: u64, unblock: &mut dyn FnMut() -> bool) -> Option<Point> {
        loop {
            match self.wait_or_asleep() {
                Some(Seen::Stopped(libc::SIGTRAP)) => return None,
                Some(Seen::Stopped(libc::SIGSTOP)) => return Some(Point::Finished),
                None if unblock() => {}
                None => return Some(Point::Asleep(at)),
                Some(other) => panic!("at instruction {at}: {other:?}"),
            }
        }
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
        assert!(
            matches!(exit, Exit::Code(0) | Exit::Signal(libc::SIGKILL)),
            "the child after its operation: {exit:?}"
        );
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
    let gone = unsafe {
        libc::waitid(
            libc::P_PID,
            pid as u32,
            &raw mut info,
            look | libc::WSTOPPED | libc::__WALL,
        )
    };
    assert_eq!(gone, 0, "waitid: {}", Error::last_os_error());
    // SAFETY: filled in by waitid, or all zero.
    if unsafe { info.si_pid() } == 0 {
        return Seen::Nothing;
    }
    if matches!(
        info.si_code,
        libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED
    ) {
        return Seen::Gone;
    }
    // SAFETY: takes the stop that was seen above.
    unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    if libc::WIFSTOPPED(status) {
        Seen::Stopped(libc::WSTOPSIG(status))
    } else {
        Seen::Gone
    }
}

fn request(request: libc::c_uint, pid: i32) {
    // SAFETY: acts on our stopped tracee; the last two arguments are 0: no address, no signal.
    let result = unsafe { libc::ptrace(request, pid, 0, 0) };
    assert_eq!(result, 0, "ptrace({request}): {}", Error::last_os_error());
}

/// The address of a stopped tracee's next instruction, and all of its registers.
fn registers(pid: i32) -> (u64, libc::user_regs_struct) {
    // SAFETY: all-zero is a valid set of registers.
    let mut registers: libc::user_regs_struct = unsafe { core::mem::zeroed() };
    exchange_registers(libc::PTRACE_GETREGSET, pid, &mut registers);
    (*program_counter(&mut registers), registers)
}

fn set_program_counter(pid: i32, address: u64) {
    let mut registers = registers(pid).1;
    *program_counter(&mut registers) = address;
    exchange_registers(libc::PTRACE_SETREGSET, pid, &mut registers);
}

fn exchange_registers(request: libc::c_uint, pid: i32, registers: &mut libc::user_regs_struct) {
    let mut place = libc::iovec {
        iov_base: ptr::from_mut(registers).cast(),
        iov_len: size_of_val(registers),
    };
    // SAFETY: reads or writes our stopped tracee's registers, from or to the place described.
    let result = unsafe { libc::ptrace(request, pid, libc::NT_PRSTATUS, &raw mut place) };
    assert_eq!(result, 0, "ptrace: {}", Error::last_os_error());
}

#[cfg(target_arch = "x86_64")]
fn program_counter(registers: &mut libc::user_regs_struct) -> &mut u64 {
    &mut registers.rip
}

#[cfg(target_arch = "aarch64")]
fn program_counter(registers: &mut libc::user_regs_struct) -> &mut u64 {
    &mut registers.pc
}

/// Eight bytes of code that begin with a breakpoint instruction.
fn break_into(code: i64) -> i64 {
    if cfg!(target_arch = "x86_64") {
        code & !0xff | 0xcc
    } else {
        code & !0xffff_ffff | 0xd420_0000
    }
}

fn peek(pid: i32, address: u64) -> i64 {
    // SAFETY: reads memory of our stopped tracee.
    unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, pid, address, 0) }
}

fn poke(pid: i32, address: u64, code: i64) {
    // SAFETY: writes to the tracee's own copy of its code.
    let result = unsafe { libc::ptrace(libc::PTRACE_POKETEXT, pid, address, code) };
    assert_eq!(result, 0, "ptrace: {}", Error::last_os_error());
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
