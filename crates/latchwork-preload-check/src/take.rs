//! Taking a lock of the program's, and telling of it.
//!
//! A lock that can be had at once is tried for, so that a wait is known before it begins: the checker must look
//! for a circle of waits before the last one of it sleeps.
#![allow(unsafe_code)]

use crate::start;
use core::ffi::c_int;
use latchwork::check::hook::{self, How, Kind, Lock, Mode, Site, Verdict};
use latchwork::check::refuses;
use latchwork_interpose::errno::keeping_errno;
use libc::{clockid_t, timespec};

/// Whether a call has given the lock.
const fn is_taken(result: c_int) -> bool {
    matches!(result, 0 | libc::EOWNERDEAD)
}

/// What a call of this name gives. One that fails for how it was made is told of.
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
    if start::watches() {
        keeping_errno(|| hook::failed(object, call, error, site(at)));
    }
}

/// The same of a call that gives -1 and `errno`.
#[inline]
pub(crate) fn judged_by_errno<T>(
    result: c_int,
    object: *const T,
    kind: Kind,
    call: &'static str,
    at: usize,
) -> c_int {
    if result != 0 {
        // SAFETY: the calling thread's own.
        let error = unsafe { *libc::__errno_location() };
        judged(error, object, kind, call, at);
    }
    result
}

pub(crate) fn site(address: usize) -> Site {
    Site::from_return_address(address)
}

/// Tells that a lock was taken. (The usual leaves `errno` as it is.)
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

/// Takes a lock. `wait` is the program's own call; so is `attempt`, but for that it does not wait.
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
    if tried != libc::EBUSY {
        // Whatever is wrong, the program's own call says it; or takes the lock, as that of one with a ceiling that is the
        // process's first.
        let result = wait();
        if is_taken(result) {
            taken(lock, mode, How::Locked, site(at));
        }
        return result;
    }
    take_waiting(lock, mode, timed, at, wait)
}

/// Looks before a wait is told of, which takes as long as a short section: about 2 µs.
const POLLS: u32 = 100;

/// Microseconds of rest before the first look: what is told of a short section takes several times as long as the section. (sysbench's
/// few contended mutexes, times as long as with glibc's: 1.19 with four, 1.26 with one.)
const REST: u32 = 4;

/// Takes a lock that was not free just now, and for which a wait would most probably be short, if `looks_free` says so
/// soon, by `attempt`.
#[cold]
#[inline(never)]
pub(crate) fn poll(looks_free: impl Fn() -> bool, attempt: impl Fn() -> c_int) -> c_int {
    hook::rest_if_crowded(REST, &looks_free);
    for _ in 0..POLLS {
        if looks_free() {
            match attempt() {
                libc::EBUSY => {}
                result => return result,
            }
        }
        core::hint::spin_loop();
    }
    libc::EBUSY
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

/// Whether a call refuses a time before it looks at its lock. (Calls for mutexes look first, and mind the clock
/// only.)
///
/// # Safety
/// There is a time.
pub(crate) unsafe fn is_refused(clock: clockid_t, until: *const timespec) -> bool {
    // SAFETY: by the contract.
    let nanoseconds = unsafe { (*until).tv_nsec };
    !knows_clock(clock) || !(0..1_000_000_000).contains(&nanoseconds)
}

/// Whether pthread's waits know this clock.
pub(crate) const fn knows_clock(clock: clockid_t) -> bool {
    matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC)
}

/// Takes a lock if that needs no waiting.
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

/// Releases a lock. What nobody has taken, as `is_free` says, was perhaps never told of.
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
    // What is wrong was reported; the program's call does what it does.
    keeping_errno(|| {
        if is_free() {
            hook::seen(lock, site(at));
        }
        let _ = hook::releasing(lock, site(at));
    });
    release()
}

/// Makes a lock. `lock` says what it is once it was made.
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

/// Waits as long as it takes by a call with a deadline on CLOCK_MONOTONIC, and has the checker look at the wait
/// when that deserves it. `None`: the call knows no such deadline, or the thread is not watched. (To ask would have
/// it set up, and that allocates: the caller may be the allocator.)
pub(crate) fn wait_patiently(wait: impl Fn(&timespec) -> c_int) -> Option<c_int> {
    if !start::watches() {
        return None;
    }
    loop {
        let look = hook::patience()?;
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
