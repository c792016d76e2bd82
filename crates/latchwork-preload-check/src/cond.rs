//! Waits for conditions, and all other calls in which a thread can be cancelled.
//!
//! Such a call is reported when it begins and when it ends, by return or by cancellation. The unwinding passes through
//! functions that have nothing to drop.
#![allow(unsafe_code)]

use crate::condition;
use crate::entry::entry;
use crate::layout::{Mutex, Opaque};
use crate::object;
use crate::real;
use crate::take::{destroy, judged, make, site};
use core::ffi::{c_int, c_void};
use latchwork::check::hook::{self, Kind, Lock};
use latchwork_interpose::cleanup::or_if_cancelled;
use latchwork_interpose::errno::keeping_errno;
use latchwork_interpose::mutexes::to_c11;
use libc::{clockid_t, timespec};

entry! {
    pthread_cond_init 2 init;
    pthread_cond_destroy 1 end;
    pthread_cond_wait 2 wait;
    pthread_cond_timedwait 3 timed_wait;
    pthread_cond_clockwait 4 clock_wait;
    cnd_wait 2 c11_wait;
    cnd_timedwait 3 c11_timed_wait;
    pthread_cond_signal 1 signal;
    pthread_cond_broadcast 1 broadcast;
    cnd_signal 1 c11_signal;
    cnd_broadcast 1 c11_broadcast;
}

/// What to report when a call ends, which may not return.
struct Wait {
    object: Lock,
    /// The mutex, in a wait for a condition.
    mutex: Option<Lock>,
    has_mutex: bool,
    at: usize,
}

unsafe extern "C" fn ends(wait: *mut c_void) {
    // SAFETY: `during` registered this function, with a pointer to a wait.
    let wait = unsafe { &*wait.cast::<Wait>() };
    keeping_errno(|| match wait.mutex {
        Some(mutex) => hook::condvar_ends(wait.object, mutex, wait.has_mutex, site(wait.at)),
        None => hook::has_waited(wait.object),
    });
}

/// Makes a call whose beginning was reported, and reports its end. Nothing here has a destructor.
///
/// # Safety
/// `call` may end the thread by unwinding, and has nothing to drop.
#[inline(always)]
unsafe fn during(mut wait: Wait, call: impl FnOnce() -> c_int + Copy) -> c_int {
    // SAFETY: the wait lives until the end of this function.
    unsafe {
        let wait = &raw mut wait;
        let result = or_if_cancelled(ends, wait.cast(), call);
        (*wait).has_mutex =
            (*wait).mutex.is_some() && !matches!(result, libc::EPERM | libc::ENOTRECOVERABLE);
        ends(wait.cast());
        result
    }
}

/// Waits for an object without an owner, by a call that may end the thread.
///
/// # Safety
/// As for the call.
#[inline(always)]
pub(crate) unsafe fn waiting(
    object: Lock,
    timed: bool,
    at: usize,
    call: impl FnOnce() -> c_int + Copy,
) -> c_int {
    keeping_errno(|| hook::waits(object, timed, site(at)));
    let wait = Wait {
        object,
        mutex: None,
        has_mutex: false,
        at,
    };
    // SAFETY: by the caller's contract.
    unsafe { during(wait, call) }
}

/// # Safety
/// As for `pthread_cond_wait`.
#[inline(always)]
unsafe fn wait_by(
    cond: *mut Opaque,
    mutex: *mut Mutex,
    timed: bool,
    at: usize,
    call: impl FnOnce() -> c_int + Copy,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        let condvar = object::at(cond, Kind::Condvar);
        condition::check_use(cond, at);
        let (Some(object), Some(lock)) = (condvar, object::mutex(mutex)) else {
            return call();
        };
        keeping_errno(|| {
            if (*mutex).looks_free() {
                hook::seen(lock, site(at));
            }
            let _ = hook::condvar_begins(object, lock, timed, site(at));
        });
        let wait = Wait {
            object,
            mutex: Some(lock),
            // A cancelled thread holds the mutex.
            has_mutex: true,
            at,
        };
        during(wait, call)
    }
}

unsafe extern "C-unwind" fn wait(cond: *mut Opaque, mutex: *mut Mutex, at: usize) -> c_int {
    // SAFETY: the program's own call, here and below.
    unsafe {
        let result = wait_by(cond, mutex, false, at, || {
            real::pthread_cond_wait(cond, mutex)
        });
        judged(result, cond, Kind::Condvar, "pthread_cond_wait", at)
    }
}

unsafe extern "C-unwind" fn timed_wait(
    cond: *mut Opaque,
    mutex: *mut Mutex,
    until: *const timespec,
    at: usize,
) -> c_int {
    // SAFETY: the program's own call; glibc's function gets the same arguments.
    unsafe {
        let result = wait_by(cond, mutex, true, at, || {
            real::pthread_cond_timedwait(cond, mutex, until)
        });
        judged(result, cond, Kind::Condvar, "pthread_cond_timedwait", at)
    }
}

unsafe extern "C-unwind" fn clock_wait(
    cond: *mut Opaque,
    mutex: *mut Mutex,
    clock: clockid_t,
    until: *const timespec,
    at: usize,
) -> c_int {
    // SAFETY: the program's own call; glibc's function gets the same arguments.
    unsafe {
        let result = wait_by(cond, mutex, true, at, || {
            real::pthread_cond_clockwait(cond, mutex, clock, until)
        });
        judged(result, cond, Kind::Condvar, "pthread_cond_clockwait", at)
    }
}

unsafe extern "C-unwind" fn c11_wait(cond: *mut Opaque, mutex: *mut Mutex, at: usize) -> c_int {
    // SAFETY: the program's own call; glibc's function gets the same arguments.
    to_c11(unsafe { wait(cond, mutex, at) })
}

unsafe extern "C-unwind" fn c11_timed_wait(
    cond: *mut Opaque,
    mutex: *mut Mutex,
    until: *const timespec,
    at: usize,
) -> c_int {
    // SAFETY: the program's own call; glibc's function gets the same arguments.
    to_c11(unsafe { timed_wait(cond, mutex, until, at) })
}

/// Reports a notification before it is sent, since a waiter that it releases may return at once.
fn notifies(cond: *mut Opaque, all: bool, at: usize) {
    condition::check_destroyed(cond, at);
    if let Some(condvar) = object::at(cond, Kind::Condvar) {
        keeping_errno(|| {
            hook::condvar_notifies(condvar, all);
            hook::notifies_without_mutex(condvar, site(at));
        });
    }
}

unsafe extern "C" fn signal(cond: *mut Opaque, at: usize) -> c_int {
    notifies(cond, false, at);
    // SAFETY: the program's own call; glibc's function gets the same arguments.
    unsafe { real::pthread_cond_signal(cond) }
}

unsafe extern "C" fn broadcast(cond: *mut Opaque, at: usize) -> c_int {
    notifies(cond, true, at);
    // SAFETY: the program's own call; glibc's function gets the same arguments.
    unsafe { real::pthread_cond_broadcast(cond) }
}

unsafe extern "C" fn c11_signal(cond: *mut Opaque, at: usize) -> c_int {
    // SAFETY: the program's own call; glibc's function gets the same arguments.
    to_c11(unsafe { signal(cond, at) })
}

unsafe extern "C" fn c11_broadcast(cond: *mut Opaque, at: usize) -> c_int {
    // SAFETY: the program's own call; glibc's function gets the same arguments.
    to_c11(unsafe { broadcast(cond, at) })
}

unsafe extern "C" fn init(cond: *mut Opaque, attributes: *const c_void, at: usize) -> c_int {
    // SAFETY: the program's own call; glibc's function gets the same arguments.
    unsafe {
        condition::check_init(cond, at);
        let result = make(
            || object::at(cond, Kind::Condvar),
            at,
            || real::pthread_cond_init(cond, attributes),
        );
        judged(result, cond, Kind::Condvar, "pthread_cond_init", at)
    }
}

unsafe extern "C" fn end(cond: *mut Opaque, at: usize) -> c_int {
    // SAFETY: the program's own call; glibc's function gets the same arguments.
    unsafe {
        condition::check_use(cond, at);
        let condvar = object::at(cond, Kind::Condvar);
        if let Some(condvar) = condvar {
            let bytes = condition::BYTES;
            keeping_errno(|| hook::ends_for_sleepers(condvar, bytes, usize::MAX, site(at)));
        }
        let result = destroy(condvar, at, || real::pthread_cond_destroy(cond));
        judged(result, cond, Kind::Condvar, "pthread_cond_destroy", at)
    }
}
