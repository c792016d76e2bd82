//! `sem_wait`, `sem_timedwait` and `sem_clockwait` for process-shared semaphores.
//!
//! A semaphore has no owner: any task that maps it can post it, also the waiter's own signal handlers. So only a process
//! of one thread without a signal handler is of interest; all other waits are glibc's. (With a handler, a limited sleep
//! is also not the same as an unlimited one: the latter may continue after the handler.) In such a process a wait
//! consists of naps, and so survives a wake-up that went to a task that was killed.
//!
//! After some of the naps the waiter asks [whether any task could post](super::gone::has_no_poster). If none could, a
//! line says so, once for each wait. With `--heal=end`, the call then returns -1, and `errno` is `EOWNERDEAD`. The
//! semaphore does not change.
//!
//! All of these calls stay cancellation points, and nothing here has a destructor.

use super::naps::{self, Looks, NAP};
use super::setting::{ends_waits, is_on};
use super::{gone, report};
use crate::clock::{Until, is_valid};
use crate::memory::Semaphore;
use crate::mutex::export;
use crate::{mode, real, thread};
use core::ffi::c_int;
use core::ptr;
use libc::{clockid_t, timespec};

/// The last signal.
const SIGNALS: c_int = 64;

/// Whether a signal of this process has a handler. (glibc does not tell of its own ones, for `pthread_cancel` and
/// `setuid`, which post nothing.)
fn has_handler() -> bool {
    (1..=SIGNALS).any(|signal| {
        // SAFETY: the call writes the present action, or fails and leaves zeros: the default action.
        let action = unsafe {
            let mut action = core::mem::zeroed::<libc::sigaction>();
            libc::sigaction(signal, ptr::null(), &raw mut action);
            action.sa_sigaction
        };
        !matches!(action, libc::SIG_DFL | libc::SIG_IGN)
    })
}

/// Sets `errno`, and returns what it was.
fn replace_errno(new: c_int) -> c_int {
    // SAFETY: glibc returns a valid pointer to the calling thread's `errno`.
    unsafe { libc::__errno_location().replace(new) }
}

/// As `pass`, one of glibc's functions with all that the program has passed.
///
/// # Safety
/// As for `pass`; `until` is the time that the program has passed.
#[inline(always)]
unsafe fn wait(
    semaphore: *mut Semaphore,
    until: impl Fn() -> Option<Until>,
    pass: impl Fn() -> c_int,
) -> c_int {
    // SAFETY: the program's semaphore, of which only atomics are accessed.
    let here = unsafe { &*semaphore };
    mode::get();
    if !is_on() || !here.is_shared() || here.value() != 0 || !thread::is_alone() {
        return pass();
    }
    // SAFETY: by the caller's contract.
    unsafe { wait_in_naps(semaphore, until(), pass) }
}

/// # Safety
/// As for `wait`.
#[inline(never)]
unsafe fn wait_in_naps(
    semaphore: *mut Semaphore,
    until: Option<Until>,
    pass: impl Fn() -> c_int,
) -> c_int {
    if thread::keeping_errno(has_handler) {
        return pass();
    }
    // SAFETY: glibc returns a valid pointer to the calling thread's `errno`.
    let before = unsafe { *libc::__errno_location() };
    let mut looks = Looks::new();
    loop {
        let Some(nap) = naps::next(until) else {
            return pass();
        };
        let end = naps::end(nap);
        // SAFETY: by the caller's contract.
        let result =
            unsafe { real::sem_clockwait(semaphore, libc::CLOCK_MONOTONIC, &raw const end) };
        let ended = replace_errno(before);
        if result == 0 {
            return 0;
        }
        if ended != libc::ETIMEDOUT {
            replace_errno(ended);
            return result;
        }
        if nap != NAP || !looks.is_due() {
            continue;
        }
        if thread::keeping_errno(|| gone::has_no_poster(semaphore.addr())).is_some() {
            looks.stop();
            report::wait(format_args!(
                "process-shared semaphore at {:#x}, which no task can post: no other process maps its memory, and this one has one thread and no signal handler",
                semaphore.addr()
            ));
            if ends_waits() {
                replace_errno(libc::EOWNERDEAD);
                return -1;
            }
        }
    }
}

export! {
    "C-unwind" fn sem_wait(semaphore: *mut Semaphore) -> c_int {
        wait(semaphore, || None, || { real::sem_wait(semaphore) })
    }

    "C-unwind" fn sem_timedwait(semaphore: *mut Semaphore, until: *const timespec) -> c_int {
        wait(semaphore, || Some(Until::new(libc::CLOCK_REALTIME, *until)), || {
            real::sem_timedwait(semaphore, until)
        })
    }

    "C-unwind" fn sem_clockwait(semaphore: *mut Semaphore, clock: clockid_t, until: *const timespec) -> c_int {
        let pass = || { real::sem_clockwait(semaphore, clock, until) };
        if !is_valid(clock) {
            return pass();
        }
        wait(semaphore, || Some(Until::new(clock, *until)), pass)
    }
}
