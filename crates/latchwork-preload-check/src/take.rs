//! Acquiring a program's lock, and reporting that.
//!
//! First a try-lock is made, so that a wait is known before it begins: the checker must search for a wait-for cycle
//! before the last task of it sleeps.
#![allow(unsafe_code)]

use crate::checked;
use core::ffi::c_int;
use latchwork::check::hook::{self, How, Kind, Lock, Mode, Site, Verdict};
use latchwork::check::refuses;
use latchwork_interpose::errno::keeping_errno;
use latchwork_sync::backoff::{Burst, REPORTED_REST, rest_if_contended};
use libc::{clockid_t, timespec};

/// Whether a call has acquired the lock.
const fn is_taken(result: c_int) -> bool {
    matches!(result, 0 | libc::EOWNERDEAD)
}

/// Passes on the result of a call of this name. A failure because of how the call was made is reported.
#[inline]
pub(crate) fn judged<T>(
    result: c_int,
    object: *const T,
    kind: Kind,
    call: &'static str,
    at: usize,
) -> c_int {
    if matches!(result, libc::EINVAL | libc::EPERM | libc::EDEADLK) {
        judge(result, Lock::new(object.addr(), kind), call, at);
    }
    result
}

#[cold]
#[inline(never)]
fn judge(error: c_int, object: Lock, call: &'static str, at: usize) {
    if checked::this_thread() {
        keeping_errno(|| hook::failed(object, call, error, site(at)));
    }
}

/// The same for a call that returns -1 and sets `errno`.
#[inline]
pub(crate) fn judged_by_errno<T>(
    result: c_int,
    object: *const T,
    kind: Kind,
    call: &'static str,
    at: usize,
) -> c_int {
    if result != 0 {
        // SAFETY: glibc returns a valid pointer to the calling thread's `errno`.
        let error = unsafe { *libc::__errno_location() };
        judged(error, object, kind, call, at);
    }
    result
}

pub(crate) fn site(address: usize) -> Site {
    Site::from_return_address(address)
}

/// Reports that a lock was acquired. (The fast path does not change `errno`.)
#[inline]
pub(crate) fn taken(lock: Lock, mode: Mode, how: How, site: Site) {
    if !hook::taken_as_usual(lock, mode, how, site) {
        taken_slowly(lock, mode, how, site);
    }
}

#[cold]
#[inline(never)]
fn taken_slowly(lock: Lock, mode: Mode, how: How, site: Site) {
    keeping_errno(|| hook::taken(lock, mode, how, site));
}

/// Acquires a lock. `wait` is the program's own call; `attempt` is the same call without waiting.
#[inline]
pub(crate) fn take(
    lock: Lock,
    mode: Mode,
    timed: bool,
    at: usize,
    attempt: impl FnOnce() -> c_int,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    let tried = attempt();
    if is_taken(tried) {
        taken(lock, mode, How::Locked, site(at));
        return tried;
    }
    // glibc takes note of a mutex's ceiling before it raises the priority: once the system has refused that, a second call
    // would return 0, without the priority.
    if tried == libc::EPERM {
        return tried;
    }
    if tried != libc::EBUSY {
        // The program's own call returns the error, if there is one; or it acquires the lock, as with the process's
        // first mutex that has a ceiling.
        let result = wait();
        if is_taken(result) {
            taken(lock, mode, How::Locked, site(at));
        }
        return result;
    }
    take_waiting(lock, mode, timed, at, wait)
}

/// Acquires, by `attempt`, a lock that was not free just now, if `looks_free` soon returns true. Most waits are that
/// short.
#[cold]
#[inline(never)]
pub(crate) fn poll(looks_free: impl Fn() -> bool, attempt: impl Fn() -> c_int) -> c_int {
    let _collision = rest_if_contended(REPORTED_REST);
    let polled = Burst::REPORTED.poll(|| {
        let tried = if looks_free() { attempt() } else { libc::EBUSY };
        (tried != libc::EBUSY).then_some(tried)
    });
    polled.unwrap_or(libc::EBUSY)
}

#[cold]
#[inline(never)]
fn take_waiting(
    lock: Lock,
    mode: Mode,
    timed: bool,
    at: usize,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    let verdict = keeping_errno(|| hook::wants(lock, mode, timed, site(at)));
    if verdict == Verdict::Deadlock && refuses() {
        hook::gave_up(lock);
        return libc::EDEADLK;
    }
    let result = wait();
    keeping_errno(|| {
        if is_taken(result) {
            hook::taken(lock, mode, How::Locked, site(at));
        } else {
            hook::gave_up(lock);
        }
    });
    result
}

/// Whether a call rejects a time before it accesses its lock. (Calls for mutexes access the lock first, and check only
/// the clock.)
///
/// # Safety
/// `until` points to a time.
pub(crate) unsafe fn is_refused(clock: clockid_t, until: *const timespec) -> bool {
    // SAFETY: by the contract `until` points to a time.
    let nanoseconds = unsafe { (*until).tv_nsec };
    !knows_clock(clock) || !(0..1_000_000_000).contains(&nanoseconds)
}

/// Whether pthread's waits accept this clock.
pub(crate) const fn knows_clock(clock: clockid_t) -> bool {
    matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC)
}

/// Acquires a lock if that needs no waiting.
#[inline]
pub(crate) fn attempt(
    lock: Option<Lock>,
    mode: Mode,
    at: usize,
    attempt: impl FnOnce() -> c_int,
) -> c_int {
    let tried = attempt();
    if let Some(lock) = lock
        && is_taken(tried)
    {
        taken(lock, mode, How::Tried, site(at));
    }
    tried
}

/// Releases a lock. If `is_free` says that no thread holds it, its acquisition was perhaps never reported.
#[inline]
pub(crate) fn release(
    lock: Option<Lock>,
    at: usize,
    is_free: impl FnOnce() -> bool,
    release: impl FnOnce() -> c_int,
) -> c_int {
    let Some(lock) = lock else {
        return release();
    };
    if let Some(since) = hook::releasing_as_usual(lock, site(at)) {
        let result = release();
        since.is_over();
        return result;
    }
    // The fault was reported; the program's call is made nevertheless.
    keeping_errno(|| {
        if is_free() {
            hook::seen(lock, site(at));
        }
        let _ = hook::releasing(lock, site(at));
    });
    release()
}

/// Initialises a lock. `lock` describes it after the initialisation.
pub(crate) fn make(
    lock: impl FnOnce() -> Option<Lock>,
    at: usize,
    make: impl FnOnce() -> c_int,
) -> c_int {
    let result = make();
    if result == 0
        && let Some(lock) = lock()
    {
        keeping_errno(|| hook::initialised(lock, None, site(at)));
    }
    result
}

/// Destroys a lock.
pub(crate) fn destroy(lock: Option<Lock>, at: usize, destroy: impl FnOnce() -> c_int) -> c_int {
    if let Some(lock) = lock {
        keeping_errno(|| hook::destroyed(lock, site(at)));
    }
    destroy()
}

/// Waits without a time limit, by calls with a deadline on CLOCK_MONOTONIC, and lets the checker examine the wait when
/// it is due. `None` if the call supports no such deadline, or if the thread is not checked. (The check must not set up
/// the thread's state, since that allocates, and the caller may be the allocator.)
pub(crate) fn wait_checking(wait: impl Fn(&timespec) -> c_int) -> Option<c_int> {
    if !checked::this_thread() {
        return None;
    }
    loop {
        let look = hook::next_report_time()?;
        let until = timespec {
            tv_sec: (look / 1_000_000_000) as _,
            tv_nsec: (look % 1_000_000_000) as _,
        };
        match wait(&until) {
            libc::ETIMEDOUT => keeping_errno(hook::still_waits),
            libc::EINVAL | libc::ENOSYS => return None,
            result => return Some(result),
        }
    }
}
