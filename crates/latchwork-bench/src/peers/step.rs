//! The instructions that the processor executes, one by one.
#![allow(unsafe_code)]

use std::ffi::{c_long, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use libc::{c_int, user_regs_struct};

use super::cvt;
use super::process::Child;

/// The type of a request, which each C library chooses.
#[cfg(target_env = "musl")]
type Request = c_int;
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;

/// More instructions than any lock's fast path has.
const ENDLESS: u32 = 100_000;

/// Stops the calling process, which is a [`Tracee`], until its tracer continues it.
pub(crate) fn stop_here() {
    // SAFETY: a signal to the own thread, at which the tracer takes over.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// A child that is stopped at [`stop_here`], and executes one instruction at a time.
pub(crate) struct Tracee(Child);

impl Tracee {
    /// Forks a child that runs `body`, up to its first [`stop_here`].
    ///
    /// # Errors
    /// Also if tracing is forbidden: the child then ends before `body`.
    pub(crate) fn start(body: impl FnOnce() -> c_int) -> io::Result<Self> {
        let child = Child::fork(|| {
            let none = ptr::null_mut::<c_void>();
            // SAFETY: makes the parent the tracer; the other arguments are ignored.
            if unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, none, none) } == -1 {
                return 1;
            }
            body()
        })?;
        let mut tracee = Self(child);
        tracee.wait()?;
        Ok(tracee)
    }

    /// Counts the instructions that each of `functions` executes, from its first to the one that returns, when the
    /// child calls them in this order.
    pub(crate) fn count<const N: usize>(&mut self, functions: [usize; N]) -> io::Result<[u32; N]> {
        let mut counts = [0; N];
        for (function, count) in functions.into_iter().zip(&mut counts) {
            self.step_to(function)?;
            let back = self.return_address()?;
            *count = self.step_to(back)?;
        }
        Ok(counts)
    }

    /// Steps until the next instruction is at `address`; returns how many were executed before it.
    fn step_to(&mut self, address: usize) -> io::Result<u32> {
        for executed in 0..ENDLESS {
            if self.registers()?.0 == address {
                return Ok(executed);
            }
            // SAFETY: acts on a stopped, traced child; no memory is passed.
            cvt(unsafe { self.trace(libc::PTRACE_SINGLESTEP, 0, ptr::null_mut()) } as c_int)?;
            self.wait()?;
        }
        Err(io::Error::other("the fast path does not end"))
    }

    /// Waits until the child has stopped.
    fn wait(&mut self) -> io::Result<()> {
        if self.0.wait_for_stop()? {
            return Ok(());
        }
        let ended = "the traced child ended; ptrace may be forbidden";
        Err(io::Error::other(ended))
    }

    /// The program counter, and the register that leads to the return address.
    fn registers(&self) -> io::Result<(usize, usize)> {
        let mut registers = MaybeUninit::<user_regs_struct>::uninit();
        let mut part = libc::iovec {
            iov_base: registers.as_mut_ptr().cast(),
            iov_len: size_of::<user_regs_struct>(),
        };
        let data = (&raw mut part).cast();
        // SAFETY: `part` contains the size of the buffer; on success all of it is filled.
        let registers = unsafe {
            let set = libc::NT_PRSTATUS as usize;
            cvt(self.trace(libc::PTRACE_GETREGSET, set, data) as c_int)?;
            registers.assume_init()
        };
        #[cfg(target_arch = "x86_64")]
        let pair = (registers.rip, registers.rsp);
        #[cfg(target_arch = "aarch64")]
        let pair = (registers.pc, registers.regs[30]);
        Ok((pair.0 as usize, pair.1 as usize))
    }

    /// The return address of the function that has just been called.
    fn return_address(&self) -> io::Result<usize> {
        let (_, place) = self.registers()?;
        if cfg!(target_arch = "aarch64") {
            return Ok(place);
        }
        // SAFETY: reads the child's memory; the value is the result, and no valid address is -1.
        match unsafe { self.trace(libc::PTRACE_PEEKDATA, place, ptr::null_mut()) } {
            -1 => Err(io::Error::last_os_error()),
            word => Ok(word as usize),
        }
    }

    /// # Safety
    /// `data` is valid for the request.
    unsafe fn trace(&self, request: Request, address: usize, data: *mut c_void) -> c_long {
        let address = address as *mut c_void;
        // SAFETY: this process traces the child; the caller vouches for `data`.
        unsafe { libc::ptrace(request, self.0.id(), address, data) }
    }
}
