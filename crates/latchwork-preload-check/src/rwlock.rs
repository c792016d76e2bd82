//! `pthread_rwlock_…`.
#![allow(unsafe_code)]

use crate::entry::entry;
use crate::object::{self, RwLock};
use crate::real;
use crate::take::{attempt, destroy, is_refused, judged, make, release, take, wait_patiently};
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

unsafe extern "C" fn read(rwlock: *mut RwLock, at: usize) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        let result = take_by(rwlock, Mode::Shared, false, at, || {
            let patiently = wait_patiently(|until| {
                real::pthread_rwlock_clockrdlock(rwlock, libc::CLOCK_MONOTONIC, until)
            });
            patiently.unwrap_or_else(|| real::pthread_rwlock_rdlock(rwlock))
        });
        judged(result, rwlock, Kind::RwLock, "pthread_rwlock_rdlock", at)
    }
}

unsafe extern "C" fn write(rwlock: *mut RwLock, at: usize) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        let result = take_by(rwlock, Mode::Exclusive, false, at, || {
            let patiently = wait_patiently(|until| {
                real::pthread_rwlock_clockwrlock(rwlock, libc::CLOCK_MONOTONIC, until)
            });
            patiently.unwrap_or_else(|| real::pthread_rwlock_wrlock(rwlock))
        });
        judged(result, rwlock, Kind::RwLock, "pthread_rwlock_wrlock", at)
    }
}

unsafe extern "C" fn timed_read(rwlock: *mut RwLock, until: *const timespec, at: usize) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        let wait = || real::pthread_rwlock_timedrdlock(rwlock, until);
        let result = if is_refused(libc::CLOCK_REALTIME, until) {
            wait()
        } else {
            take_by(rwlock, Mode::Shared, true, at, wait)
        };
        judged(
            result,
            rwlock,
            Kind::RwLock,
            "pthread_rwlock_timedrdlock",
            at,
        )
    }
}

unsafe extern "C" fn timed_write(rwlock: *mut RwLock, until: *const timespec, at: usize) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        let wait = || real::pthread_rwlock_timedwrlock(rwlock, until);
        let result = if is_refused(libc::CLOCK_REALTIME, until) {
            wait()
        } else {
            take_by(rwlock, Mode::Exclusive, true, at, wait)
        };
        judged(
            result,
            rwlock,
            Kind::RwLock,
            "pthread_rwlock_timedwrlock",
            at,
        )
    }
}

unsafe extern "C" fn clock_read(
    rwlock: *mut RwLock,
    clock: clockid_t,
    until: *const timespec,
    at: usize,
) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        let wait = || real::pthread_rwlock_clockrdlock(rwlock, clock, until);
        let result = if is_refused(clock, until) {
            wait()
        } else {
            take_by(rwlock, Mode::Shared, true, at, wait)
        };
        judged(
            result,
            rwlock,
            Kind::RwLock,
            "pthread_rwlock_clockrdlock",
            at,
        )
    }
}

unsafe extern "C" fn clock_write(
    rwlock: *mut RwLock,
    clock: clockid_t,
    until: *const timespec,
    at: usize,
) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        let wait = || real::pthread_rwlock_clockwrlock(rwlock, clock, until);
        let result = if is_refused(clock, until) {
            wait()
        } else {
            take_by(rwlock, Mode::Exclusive, true, at, wait)
        };
        judged(
            result,
            rwlock,
            Kind::RwLock,
            "pthread_rwlock_clockwrlock",
            at,
        )
    }
}

unsafe extern "C" fn try_read(rwlock: *mut RwLock, at: usize) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        let result = attempt(object::rwlock_to_take(rwlock, at), Mode::Shared, at, || {
            real::pthread_rwlock_tryrdlock(rwlock)
        });
        judged(result, rwlock, Kind::RwLock, "pthread_rwlock_tryrdlock", at)
    }
}

unsafe extern "C" fn try_write(rwlock: *mut RwLock, at: usize) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        let result = attempt(
            object::rwlock_to_take(rwlock, at),
            Mode::Exclusive,
            at,
            || real::pthread_rwlock_trywrlock(rwlock),
        );
        judged(result, rwlock, Kind::RwLock, "pthread_rwlock_trywrlock", at)
    }
}

unsafe extern "C" fn unlock(rwlock: *mut RwLock, at: usize) -> c_int {
    // SAFETY: the program vouches for the lock, by its own call; the real one gets the same arguments.
    unsafe {
        (*rwlock).look_for_end(at);
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
            object::made_again(rwlock, Kind::RwLock, at);
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
        (*rwlock).look_for_end(at);
        let lock = object::rwlock(rwlock);
        let result = destroy(lock, at, || real::pthread_rwlock_destroy(rwlock));
        if result == 0 && lock.is_some() {
            (*rwlock).end();
        }
        judged(result, rwlock, Kind::RwLock, "pthread_rwlock_destroy", at)
    }
}
