//! `pthread_rwlock_…`.
#![allow(unsafe_code)]

use crate::entry::entry;
use crate::layout::RwLock;
use crate::object;
use crate::real;
use crate::take::{attempt, destroy, is_refused, judged, make, release, take, wait_checking};
use core::ffi::{c_int, c_void};
use latchwork::check::hook::{Kind, Mode};
use libc::{clockid_t, timespec};

entry! {
    pthread_rwlock_init 2 init;
    __pthread_rwlock_init 2 init;
    pthread_rwlock_destroy 1 end;
    __pthread_rwlock_destroy 1 end;
    pthread_rwlock_rdlock 1 read;
    __pthread_rwlock_rdlock 1 read;
    pthread_rwlock_wrlock 1 write;
    __pthread_rwlock_wrlock 1 write;
    pthread_rwlock_tryrdlock 1 try_read;
    __pthread_rwlock_tryrdlock 1 try_read;
    pthread_rwlock_trywrlock 1 try_write;
    __pthread_rwlock_trywrlock 1 try_write;
    pthread_rwlock_timedrdlock 2 timed_read;
    pthread_rwlock_timedwrlock 2 timed_write;
    pthread_rwlock_clockrdlock 3 clock_read;
    pthread_rwlock_clockwrlock 3 clock_write;
    pthread_rwlock_unlock 1 unlock;
    __pthread_rwlock_unlock 1 unlock;
}

/// Acquires by `wait`, the program's own call.
///
/// # Safety
/// `rwlock` points to a lock.
unsafe fn take_by(
    rwlock: *mut RwLock,
    mode: Mode,
    timed: bool,
    at: usize,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        let Some(lock) = object::rwlock_to_take(rwlock, at) else {
            return wait();
        };
        let try_it = || match mode {
            Mode::Exclusive => real::pthread_rwlock_trywrlock(rwlock),
            Mode::Shared => real::pthread_rwlock_tryrdlock(rwlock),
        };
        take(lock, mode, timed, at, try_it, wait)
    }
}

/// Acquires by the call of this name, which has no deadline; `wait_until` is the same call with one on CLOCK_MONOTONIC.
///
/// # Safety
/// `rwlock` points to a lock.
unsafe fn take_untimed(
    rwlock: *mut RwLock,
    mode: Mode,
    call: &'static str,
    at: usize,
    wait: impl FnOnce() -> c_int,
    wait_until: impl Fn(&timespec) -> c_int,
) -> c_int {
    // SAFETY: by the contract.
    let result = unsafe {
        take_by(rwlock, mode, false, at, || {
            wait_checking(wait_until).unwrap_or_else(wait)
        })
    };
    judged(result, rwlock, Kind::RwLock, call, at)
}

/// Acquires by the call of this name, which has a deadline.
///
/// # Safety
/// `rwlock` points to a lock, `until` to a time.
unsafe fn take_timed(
    rwlock: *mut RwLock,
    mode: Mode,
    (clock, until): (clockid_t, *const timespec),
    call: &'static str,
    at: usize,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: by the contract.
    let result = unsafe {
        if is_refused(clock, until) {
            wait()
        } else {
            take_by(rwlock, mode, true, at, wait)
        }
    };
    judged(result, rwlock, Kind::RwLock, call, at)
}

/// Acquires by the call of this name, which does not wait.
///
/// # Safety
/// `rwlock` points to a lock.
unsafe fn try_by(
    rwlock: *mut RwLock,
    mode: Mode,
    call: &'static str,
    at: usize,
    try_it: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: by the contract.
    let lock = unsafe { object::rwlock_to_take(rwlock, at) };
    judged(
        attempt(lock, mode, at, try_it),
        rwlock,
        Kind::RwLock,
        call,
        at,
    )
}

unsafe extern "C" fn read(rwlock: *mut RwLock, at: usize) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        take_untimed(
            rwlock,
            Mode::Shared,
            "pthread_rwlock_rdlock",
            at,
            || real::pthread_rwlock_rdlock(rwlock),
            |until| real::pthread_rwlock_clockrdlock(rwlock, libc::CLOCK_MONOTONIC, until),
        )
    }
}

unsafe extern "C" fn write(rwlock: *mut RwLock, at: usize) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        take_untimed(
            rwlock,
            Mode::Exclusive,
            "pthread_rwlock_wrlock",
            at,
            || real::pthread_rwlock_wrlock(rwlock),
            |until| real::pthread_rwlock_clockwrlock(rwlock, libc::CLOCK_MONOTONIC, until),
        )
    }
}

unsafe extern "C" fn timed_read(rwlock: *mut RwLock, until: *const timespec, at: usize) -> c_int {
    let deadline = (libc::CLOCK_REALTIME, until);
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        take_timed(
            rwlock,
            Mode::Shared,
            deadline,
            "pthread_rwlock_timedrdlock",
            at,
            || real::pthread_rwlock_timedrdlock(rwlock, until),
        )
    }
}

unsafe extern "C" fn timed_write(rwlock: *mut RwLock, until: *const timespec, at: usize) -> c_int {
    let deadline = (libc::CLOCK_REALTIME, until);
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        take_timed(
            rwlock,
            Mode::Exclusive,
            deadline,
            "pthread_rwlock_timedwrlock",
            at,
            || real::pthread_rwlock_timedwrlock(rwlock, until),
        )
    }
}

unsafe extern "C" fn clock_read(
    rwlock: *mut RwLock,
    clock: clockid_t,
    until: *const timespec,
    at: usize,
) -> c_int {
    let deadline = (clock, until);
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        take_timed(
            rwlock,
            Mode::Shared,
            deadline,
            "pthread_rwlock_clockrdlock",
            at,
            || real::pthread_rwlock_clockrdlock(rwlock, clock, until),
        )
    }
}

unsafe extern "C" fn clock_write(
    rwlock: *mut RwLock,
    clock: clockid_t,
    until: *const timespec,
    at: usize,
) -> c_int {
    let deadline = (clock, until);
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        take_timed(
            rwlock,
            Mode::Exclusive,
            deadline,
            "pthread_rwlock_clockwrlock",
            at,
            || real::pthread_rwlock_clockwrlock(rwlock, clock, until),
        )
    }
}

unsafe extern "C" fn try_read(rwlock: *mut RwLock, at: usize) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        try_by(rwlock, Mode::Shared, "pthread_rwlock_tryrdlock", at, || {
            real::pthread_rwlock_tryrdlock(rwlock)
        })
    }
}

unsafe extern "C" fn try_write(rwlock: *mut RwLock, at: usize) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        try_by(
            rwlock,
            Mode::Exclusive,
            "pthread_rwlock_trywrlock",
            at,
            || real::pthread_rwlock_trywrlock(rwlock),
        )
    }
}

unsafe extern "C" fn unlock(rwlock: *mut RwLock, at: usize) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        (*rwlock).check_destroyed(at);
        let is_free = || (*rwlock).looks_free();
        let result = release(object::rwlock(rwlock), at, is_free, || {
            real::pthread_rwlock_unlock(rwlock)
        });
        judged(result, rwlock, Kind::RwLock, "pthread_rwlock_unlock", at)
    }
}

unsafe extern "C" fn init(rwlock: *mut RwLock, attributes: *const c_void, at: usize) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        if (*rwlock).is_marked() {
            object::initialised_again(rwlock, Kind::RwLock, at);
        }
        let result = make(
            || object::rwlock_to_take(rwlock, at),
            at,
            || real::pthread_rwlock_init(rwlock, attributes),
        );
        judged(result, rwlock, Kind::RwLock, "pthread_rwlock_init", at)
    }
}

unsafe extern "C" fn end(rwlock: *mut RwLock, at: usize) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        (*rwlock).check_destroyed(at);
        let lock = object::rwlock(rwlock);
        let result = destroy(lock, at, || real::pthread_rwlock_destroy(rwlock));
        if result == 0 && lock.is_none() {
            (*rwlock).mark.forget(rwlock.addr());
        } else if result == 0 {
            (*rwlock).mark_destroyed();
        }
        judged(result, rwlock, Kind::RwLock, "pthread_rwlock_destroy", at)
    }
}
