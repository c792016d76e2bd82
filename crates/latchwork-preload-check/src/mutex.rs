//! `pthread_mutex_…`, and the C11 functions for the same objects.
#![allow(unsafe_code)]

use crate::entry::entry;
use crate::layout::Mutex;
use crate::object;
use crate::real;
use crate::take::{
    attempt, destroy, judged, knows_clock, make, poll, release, site, take, taken, wait_checking,
};
use core::ffi::{c_int, c_void};
use latchwork::check::hook::{self, How, Kind, Lock, Mode, Traits};
use latchwork_interpose::mutexes::to_c11;
use libc::{clockid_t, timespec};

entry! {
    pthread_mutex_init 2 init;
    __pthread_mutex_init 2 init;
    pthread_mutex_destroy 1 end;
    __pthread_mutex_destroy 1 end;
    pthread_mutex_lock 1 lock;
    __pthread_mutex_lock 1 lock;
    pthread_mutex_trylock 1 try_lock;
    __pthread_mutex_trylock 1 try_lock;
    pthread_mutex_timedlock 2 timed_lock;
    pthread_mutex_clocklock 3 clock_lock;
    pthread_mutex_unlock 1 unlock;
    __pthread_mutex_unlock 1 unlock;
    pthread_mutex_consistent 1 consistent;
    pthread_mutex_getprioceiling 2 ceiling;
    pthread_mutex_setprioceiling 3 set_ceiling;
    mtx_init 2 c11_init;
    mtx_destroy 1 c11_end;
    mtx_lock 1 c11_lock;
    mtx_trylock 1 c11_try_lock;
    mtx_timedlock 2 c11_timed_lock;
    mtx_unlock 1 c11_unlock;
}

/// Acquires a mutex by `wait`.
unsafe fn take_by(
    mutex: *mut Mutex,
    timed: bool,
    at: usize,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    unsafe {
        let Some(lock) = object::mutex_to_take(mutex, at) else {
            return wait();
        };
        // An error-checking mutex returns an error to its owner; then there is nothing to report.
        if (*mutex).checks_errors() && (*mutex).is_mine() {
            return wait();
        }
        let is_robust = lock.traits.contains(Traits::ROBUST);
        let attempt = || match is_robust {
            true => try_robust(mutex),
            false => real::pthread_mutex_trylock(mutex),
        };
        let lends = lock.traits.contains(Traits::LENDS);
        // A waiter must lend its priority to the holder at once, so this does not poll a mutex that lends priority.
        let try_it = || match attempt() {
            libc::EBUSY if !lends => poll(|| (*mutex).looks_free(), attempt),
            tried => tried,
        };
        take(lock, Mode::Exclusive, timed, at, try_it, wait)
    }
}

/// Acquires a robust mutex if that needs no waiting. glibc's function that tries (seen with 2.36) leaves a mutex locked
/// for which it returns `ENOTRECOVERABLE`; a wait whose time is over does not. (By this clock, since the kernel knows it
/// for all mutexes.)
unsafe fn try_robust(mutex: *mut Mutex) -> c_int {
    let past = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the program vouches for the mutex, by its own call.
    match unsafe { real::pthread_mutex_clocklock(mutex, libc::CLOCK_REALTIME, &raw const past) } {
        libc::ETIMEDOUT => libc::EBUSY,
        result => result,
    }
}

/// The fast path of nearly every call, in few cache lines, since the program's own code was in the cache before.
unsafe extern "C" fn lock(mutex: *mut Mutex, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    unsafe {
        if let Some(lock) = object::usual_to_take(mutex) {
            match real::pthread_mutex_trylock(mutex) {
                0 => {
                    taken(lock, Mode::Exclusive, How::Locked, site(at));
                    return 0;
                }
                libc::EBUSY => return lock_contended(mutex, lock, at),
                _ => {}
            }
        }
        lock_slowly(mutex, at)
    }
}

/// The slow path, for a mutex that is not free.
#[inline(never)]
unsafe fn lock_contended(mutex: *mut Mutex, lock: Lock, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    unsafe {
        let attempt = || real::pthread_mutex_trylock(mutex);
        let poll = || poll(|| (*mutex).looks_free(), attempt);
        take(lock, Mode::Exclusive, false, at, poll, || wait(mutex))
    }
}

#[inline(never)]
unsafe extern "C" fn lock_slowly(mutex: *mut Mutex, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    unsafe {
        let result = take_by(mutex, false, at, || wait(mutex));
        judged(result, mutex, Kind::Mutex, "pthread_mutex_lock", at)
    }
}

unsafe fn wait(mutex: *mut Mutex) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    unsafe {
        let waited = wait_checking(|until| {
            real::pthread_mutex_clocklock(mutex, libc::CLOCK_MONOTONIC, until)
        });
        waited.unwrap_or_else(|| real::pthread_mutex_lock(mutex))
    }
}

unsafe extern "C" fn try_lock(mutex: *mut Mutex, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    unsafe {
        let result = attempt(
            object::mutex_to_take(mutex, at),
            Mode::Exclusive,
            at,
            || real::pthread_mutex_trylock(mutex),
        );
        judged(result, mutex, Kind::Mutex, "pthread_mutex_trylock", at)
    }
}

unsafe extern "C" fn timed_lock(mutex: *mut Mutex, until: *const timespec, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    unsafe {
        let result = take_by(mutex, true, at, || {
            real::pthread_mutex_timedlock(mutex, until)
        });
        judged(result, mutex, Kind::Mutex, "pthread_mutex_timedlock", at)
    }
}

unsafe extern "C" fn clock_lock(
    mutex: *mut Mutex,
    clock: clockid_t,
    until: *const timespec,
    at: usize,
) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    unsafe {
        let wait = || real::pthread_mutex_clocklock(mutex, clock, until);
        let result = if knows_clock(clock) {
            take_by(mutex, true, at, wait)
        } else {
            wait()
        };
        judged(result, mutex, Kind::Mutex, "pthread_mutex_clocklock", at)
    }
}

/// As for [`lock`].
unsafe extern "C" fn unlock(mutex: *mut Mutex, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    unsafe {
        if let Some(lock) = object::usual(mutex)
            && let Some(since) = hook::releasing_as_usual(lock, site(at))
        {
            let result = real::pthread_mutex_unlock(mutex);
            since.is_over();
            return result;
        }
        unlock_slowly(mutex, at)
    }
}

#[inline(never)]
unsafe extern "C" fn unlock_slowly(mutex: *mut Mutex, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    unsafe {
        object::check_destroyed(mutex, at);
        let is_free = || (*mutex).looks_free();
        let result = release(object::mutex(mutex), at, is_free, || {
            real::pthread_mutex_unlock(mutex)
        });
        judged(result, mutex, Kind::Mutex, "pthread_mutex_unlock", at)
    }
}

unsafe extern "C" fn init(mutex: *mut Mutex, attributes: *const c_void, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    unsafe {
        if (*mutex).is_marked() {
            object::initialised_again(mutex, Kind::Mutex, at);
        }
        let result = make(
            || object::made_mutex(mutex, attributes, at),
            at,
            || real::pthread_mutex_init(mutex, attributes),
        );
        judged(result, mutex, Kind::Mutex, "pthread_mutex_init", at)
    }
}

unsafe extern "C" fn end(mutex: *mut Mutex, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    unsafe {
        object::check_destroyed(mutex, at);
        let lock = object::mutex(mutex);
        let result = destroy(lock, at, || real::pthread_mutex_destroy(mutex));
        if result == 0 && lock.is_none() {
            (*mutex).mark.forget(mutex.addr());
        }
        // It was not destroyed, and its holder still holds it.
        if let Some(lock) = lock
            && result == libc::EBUSY
            && (*mutex).is_mine()
        {
            taken(lock, Mode::Exclusive, How::Tried, site(at));
        }
        judged(result, mutex, Kind::Mutex, "pthread_mutex_destroy", at)
    }
}

unsafe extern "C" fn consistent(mutex: *mut Mutex, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    let result = unsafe { real::pthread_mutex_consistent(mutex) };
    judged(result, mutex, Kind::Mutex, "pthread_mutex_consistent", at)
}

unsafe extern "C" fn ceiling(mutex: *const Mutex, ceiling: *mut c_int, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    let result = unsafe { real::pthread_mutex_getprioceiling(mutex, ceiling) };
    let call = "pthread_mutex_getprioceiling";
    judged(result, mutex, Kind::Mutex, call, at)
}

/// (glibc takes the mutex for this, and releases it, without its public functions.)
unsafe extern "C" fn set_ceiling(
    mutex: *mut Mutex,
    ceiling: c_int,
    old: *mut c_int,
    at: usize,
) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    let result = unsafe { real::pthread_mutex_setprioceiling(mutex, ceiling, old) };
    let call = "pthread_mutex_setprioceiling";
    judged(result, mutex, Kind::Mutex, call, at)
}

unsafe extern "C" fn c11_init(mutex: *mut Mutex, kind: c_int, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    unsafe {
        if (*mutex).is_marked() {
            object::initialised_again(mutex, Kind::Mutex, at);
        }
        make(
            || object::mutex_to_take(mutex, at),
            at,
            || real::mtx_init(mutex, kind),
        )
    }
}

unsafe extern "C" fn c11_end(mutex: *mut Mutex, at: usize) {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    unsafe { end(mutex, at) };
}

unsafe extern "C" fn c11_lock(mutex: *mut Mutex, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    to_c11(unsafe { lock(mutex, at) })
}

unsafe extern "C" fn c11_try_lock(mutex: *mut Mutex, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    to_c11(unsafe { try_lock(mutex, at) })
}

unsafe extern "C" fn c11_timed_lock(mutex: *mut Mutex, until: *const timespec, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    to_c11(unsafe { timed_lock(mutex, until, at) })
}

unsafe extern "C" fn c11_unlock(mutex: *mut Mutex, at: usize) -> c_int {
    // SAFETY: the program vouches for the mutex, by its own call; the real one gets the same arguments.
    to_c11(unsafe { unlock(mutex, at) })
}
