//! The traced child: single steps, breakpoints, and what it has executed.
#![allow(unsafe_code)]

use super::sequence::exits;
use super::{Point, Span};
use crate::child::state_of;
use crate::{Child, Exit};
use core::ptr;
use std::collections::HashMap;
use std::io::Error;

/// How many executions of an instruction are points.
const VISITS: u8 = 3;
/// More instructions than any operation has: a loop does not end when it is stepped.
const ENDLESS: u64 = 5_000_000;
/// Exit code of a child that may not be traced.
const FORBIDDEN: i32 = 77;

/// One execution of an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Execution {
    /// How many instructions were executed before.
    at: u64,
    address: u64,
    /// How many times this instruction was executed before.
    visit: u8,
    /// How many times it has repeated itself in this execution.
    round: u8,
}

#[derive(Default)]
pub(super) struct Recording {
    pub(super) instructions: u64,
    visits: HashMap<u64, u8>,
    pub(super) points: Vec<Execution>,
    last: Option<Execution>,
}

impl Recording {
    pub(super) fn add(&mut self, address: u64) {
        let at = self.instructions;
        self.instructions += 1;
        let place = match self.last {
            // A string instruction repeats itself; a breakpoint stops it only once.
            Some(last) if last.address == address => Execution {
                at,
                round: last.round.saturating_add(1),
                ..last
            },
            _ => {
                let visits = self.visits.entry(address).or_default();
                *visits = visits.saturating_add(1);
                Execution {
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
pub(super) struct Tracee {
    pub(super) child: Child,
}

impl Tracee {
    /// A child at the beginning of its operation; `None` if tracing is forbidden.
    pub(super) fn start(body: impl FnOnce(Span)) -> Option<Self> {
        let child = Child::fork(|| {
            // SAFETY: requests tracing by the parent; the other arguments are ignored.
            if unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } != 0 {
                // SAFETY: `_exit` has no preconditions.
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

    /// Steps through the operation; `watch` is called with the address of each instruction.
    pub(super) fn step(
        &mut self,
        unblock: &mut dyn FnMut() -> bool,
        watch: &mut dyn FnMut(u64),
    ) -> Point {
        let pid = self.child.pid();
        for steps in 0..ENDLESS {
            watch(registers(pid).0);
            if let Some(end) = self.advance(steps, unblock) {
                return end;
            }
        }
        panic!("no end after {ENDLESS} instructions")
    }

    /// Executes one instruction, or one sequence that cannot be stepped; `Some` if the operation ends in it.
    fn advance(&mut self, at: u64, unblock: &mut dyn FnMut() -> bool) -> Option<Point> {
        let pid = self.child.pid();
        let exits = if cfg!(target_arch = "aarch64") {
            exits(registers(pid).0, |address| peek(pid, address) as u32)
        } else {
            Vec::new()
        };
        // Exits may be neighbours, whose words overlap: removed in reverse order, each leaves what it found.
        let mut originals = Vec::new();
        for exit in exits {
            let original = peek(pid, exit);
            originals.push((exit, original));
            poke(pid, exit, break_into(original));
        }
        request(
            if originals.is_empty() {
                libc::PTRACE_SINGLESTEP
            } else {
                libc::PTRACE_CONT
            },
            pid,
        );
        let end = self.next(at, unblock);
        for (exit, original) in originals.into_iter().rev() {
            poke(pid, exit, original);
        }
        end
    }

    /// Runs to a place by a breakpoint.
    pub(super) fn run_to(&mut self, place: Execution, unblock: &mut dyn FnMut() -> bool) -> Point {
        let Execution {
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
                if let Some(end) = self.advance(at, unblock) {
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
                if let Some(end) = self.advance(at, unblock) {
                    return end;
                }
            }
        }
        for _ in 0..round {
            if let Some(end) = self.advance(at, unblock) {
                return end;
            }
        }
        Point::Instruction(at)
    }

    /// Waits for the next trap; `Some` if the operation ends before.
    pub(super) fn next(&mut self, at: u64, unblock: &mut dyn FnMut() -> bool) -> Option<Point> {
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

    /// Waits for the next stop; `None` if the child sleeps in a futex call.
    pub(super) fn wait_or_asleep(&self) -> Option<Seen> {
        let pid = self.child.pid();
        for round in 0_u64.. {
            match wait(pid, libc::WNOHANG) {
                Seen::Nothing => {}
                seen => return Some(seen),
            }
            if round % 64 == 63 {
                if self.child.is_in_futex() && state_of(pid) == Some('S') {
                    return None;
                }
                // The child may be bound to this task's processor, at a lower real-time priority: a yield would not let
                // it run.
                std::thread::sleep(core::time::Duration::from_micros(50));
            }
            std::thread::yield_now();
        }
        None
    }

    pub(super) fn finish(mut self) {
        request(libc::PTRACE_DETACH, self.child.pid());
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

#[derive(Debug)]
pub(super) enum Seen {
    Nothing,
    Stopped(i32),
    Gone,
}

pub(super) fn wait(pid: i32, flags: i32) -> Seen {
    let mut status = 0;
    // waitpid does not accept WNOWAIT, which leaves an exit for `Child` to reap, so this uses waitid.
    // SAFETY: zero is a valid siginfo_t, and waitid fills it in.
    let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
    let look = libc::WEXITED | libc::WNOWAIT | (libc::WNOHANG & flags);
    // SAFETY: waits for a child of this process, and writes a local variable.
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
    // SAFETY: consumes the stop that was seen above.
    unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    if libc::WIFSTOPPED(status) {
        Seen::Stopped(libc::WSTOPSIG(status))
    } else {
        Seen::Gone
    }
}

pub(super) fn request(request: libc::c_uint, pid: i32) {
    // SAFETY: acts on a stopped tracee of this process; the last two arguments are 0: no address, no signal.
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
    // SAFETY: reads or writes the registers of a stopped tracee, from or to the place described.
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
    // SAFETY: reads memory of a stopped tracee.
    unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, pid, address, 0) }
}

fn poke(pid: i32, address: u64, code: i64) {
    // SAFETY: writes to the tracee's own copy of its code.
    let result = unsafe { libc::ptrace(libc::PTRACE_POKETEXT, pid, address, code) };
    assert_eq!(result, 0, "ptrace: {}", Error::last_os_error());
}

/// Binds tracer and tracee to one CPU: since they run in turns, this is several times faster.
pub(super) struct Pinned {
    before: libc::cpu_set_t,
}

impl Pinned {
    pub(super) fn new() -> Self {
        // SAFETY: all-zero is a valid cpu_set_t; the calls read and write local variables. If they fail, stepping is
        // slow.
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
        // SAFETY: reads a field of this value.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.before), &raw const self.before) };
    }
}
