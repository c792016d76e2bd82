//! Spinlocks; and waits for objects without an owner: semaphores, barriers, the end of a thread.
#![allow(unsafe_code)]

use crate::cond::waiting;
use crate::condition;
use crate::entry::entry;
use crate::layout::Opaque;
use crate::object;
use crate::take::{
    attempt, destroy, is_refused, judged, judged_by_errno, make, release, site, take,
};
use crate::{checked, real};
use core::ffi::{c_int, c_uint, c_void};
use latchwork::check::hook::{self, Kind, Lock, Mode, Traits};
use latchwork_interpose::errno::keeping_errno;
use libc::{clockid_t, pthread_t, timespec};

entry! {
    pthread_spin_init 2 spin_init;
    pthread_spin_destroy 1 spin_end;
    pthread_spin_lock 1 spin_lock;
    pthread_spin_trylock 1 spin_try_lock;
    pthread_spin_unlock 1 spin_unlock;
    pthread_barrier_init 3 barrier_init;
    pthread_barrier_destroy 1 barrier_end;
    pthread_barrier_wait 1 barrier_wait;
    sem_init 3 sem_init_checked;
    sem_destroy 1 sem_end;
    sem_wait 1 sem_wait_checked;
    sem_timedwait 2 sem_timed_wait;
    sem_clockwait 3 sem_clock_wait;
    sem_trywait 1 sem_try_wait;
    sem_post 1 sem_post_checked;
    pthread_join 2 join;
    pthread_tryjoin_np 2 try_join;
    pthread_timedjoin_np 3 timed_join;
    pthread_clockjoin_np 4 clock_join;
    thrd_join 2 c11_join;
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

fn spin(spin: *const Opaque) -> Option<Lock> {
    object::at(spin, Kind::Spin).map(|lock| lock.with(Traits::ANYONE))
}

unsafe extern "C" fn spin_init(lock: *mut Opaque, shared: c_int, at: usize) -> c_int {
    // With this trait, the child of a fork does not take over its parent's hold of a process-shared spinlock.
    let kind = if shared == 0 {
        Traits::ANYONE
    } else {
        Traits::ANYONE | Traits::SHARED
    };
    // SAFETY: the program vouches for the object, by its own call; the real one gets the same arguments.
    unsafe {
        let result = make(
            || Some(spin(lock)?.with(kind)),
            at,
            || real::pthread_spin_init(lock, shared),
        );
        judged(result, lock, Kind::Spin, "pthread_spin_init", at)
    }
}

unsafe extern "C" fn spin_end(lock: *mut Opaque, at: usize) -> c_int {
    // SAFETY: the program vouches for the object, by its own call; the real one gets the same arguments.
    unsafe { destroy(spin(lock), at, || real::pthread_spin_destroy(lock)) }
}

unsafe extern "C" fn spin_lock(lock: *mut Opaque, at: usize) -> c_int {
    // SAFETY: the program vouches for the object, by its own call; the real one gets the same arguments.
    unsafe {
        let wait = || real::pthread_spin_lock(lock);
        let Some(known) = spin(lock) else {
            return wait();
        };
        let try_it = || real::pthread_spin_trylock(lock);
        take(known, Mode::Exclusive, false, at, try_it, wait)
    }
}

unsafe extern "C" fn spin_try_lock(lock: *mut Opaque, at: usize) -> c_int {
    // SAFETY: the program vouches for the object, by its own call; the real one gets the same arguments.
    unsafe {
        attempt(spin(lock), Mode::Exclusive, at, || {
            real::pthread_spin_trylock(lock)
        })
    }
}

unsafe extern "C" fn spin_unlock(lock: *mut Opaque, at: usize) -> c_int {
    // SAFETY: the program vouches for the object, by its own call; the real one gets the same arguments.
    unsafe { release(spin(lock), at, || false, || real::pthread_spin_unlock(lock)) }
}

unsafe extern "C" fn barrier_init(
    barrier: *mut Opaque,
    attributes: *const c_void,
    count: c_uint,
    at: usize,
) -> c_int {
    // SAFETY: the program vouches for the object, by its own call; the real one gets the same arguments.
    unsafe {
        object::initialised_again(barrier, Kind::Barrier, at);
        let result = make(
            || object::at(barrier, Kind::Barrier),
            at,
            || real::pthread_barrier_init(barrier, attributes, count),
        );
        judged(result, barrier, Kind::Barrier, "pthread_barrier_init", at)
    }
}

/// Destroys an object of a kind that only a call can initialise again. At most so many threads are blocked on it.
fn end_object(
    object: *mut Opaque,
    kind: Kind,
    most_blocked: usize,
    at: usize,
    end: impl FnOnce() -> c_int,
) -> c_int {
    let known = object::at(object, kind);
    if let Some(known) = known {
        let bytes = condition::OTHER_BYTES;
        if most_blocked > 0 {
            keeping_errno(|| hook::ends_for_sleepers(known, bytes, most_blocked, site(at)));
        }
        condition::note_destroyed();
    }
    destroy(known, at, end)
}

unsafe extern "C" fn barrier_end(barrier: *mut Opaque, at: usize) -> c_int {
    // SAFETY: the program vouches for the object, by its own call; the real one gets the same arguments.
    unsafe {
        condition::check_barrier(barrier, at);
        let blocked = condition::blocked_on(barrier);
        let result = end_object(barrier, Kind::Barrier, blocked, at, || {
            real::pthread_barrier_destroy(barrier)
        });
        judged(
            result,
            barrier,
            Kind::Barrier,
            "pthread_barrier_destroy",
            at,
        )
    }
}

unsafe extern "C" fn barrier_wait(barrier: *mut Opaque, at: usize) -> c_int {
    // SAFETY: the program vouches for the object, by its own call; the real one gets the same arguments.
    unsafe {
        condition::check_barrier(barrier, at);
        match object::at(barrier, Kind::Barrier) {
            Some(object) => waiting(object, false, at, || real::pthread_barrier_wait(barrier)),
            None => real::pthread_barrier_wait(barrier),
        }
    }
}

unsafe extern "C" fn sem_init_checked(
    semaphore: *mut Opaque,
    shared: c_int,
    value: c_uint,
    at: usize,
) -> c_int {
    // SAFETY: the program vouches for the object, by its own call; the real one gets the same arguments.
    unsafe {
        if shared == 0 {
            object::initialised_again(semaphore, Kind::Semaphore, at);
        }
        let result = make(
            || object::at(semaphore, Kind::Semaphore),
            at,
            || real::sem_init(semaphore, shared, value),
        );
        judged_by_errno(result, semaphore, Kind::Semaphore, "sem_init", at)
    }
}

unsafe extern "C" fn sem_end(semaphore: *mut Opaque, at: usize) -> c_int {
    // SAFETY: the program vouches for the object, by its own call; the real one gets the same arguments.
    unsafe {
        condition::check_semaphore(semaphore, at);
        let result = end_object(semaphore, Kind::Semaphore, usize::MAX, at, || {
            real::sem_destroy(semaphore)
        });
        judged_by_errno(result, semaphore, Kind::Semaphore, "sem_destroy", at)
    }
}

/// # Safety
/// As for `sem_wait`.
#[inline(always)]
unsafe fn sem_wait_by(
    semaphore: *mut Opaque,
    timed: bool,
    at: usize,
    wait: impl FnOnce() -> c_int + Copy,
) -> c_int {
    // SAFETY: the program vouches for the object, by its own call; the real one gets the same arguments.
    unsafe {
        let Some(object) = object::at(semaphore, Kind::Semaphore) else {
            return wait();
        };
        condition::check_semaphore(semaphore, at);
        // It is a cancellation point also if it does not wait.
        pthread_testcancel();
        if keeping_errno(|| real::sem_trywait(semaphore)) == 0 {
            return 0;
        }
        waiting(object, timed, at, wait)
    }
}

unsafe extern "C-unwind" fn sem_wait_checked(semaphore: *mut Opaque, at: usize) -> c_int {
    // SAFETY: the program vouches for the object, by its own call; the real one gets the same arguments.
    unsafe {
        let result = sem_wait_by(semaphore, false, at, || real::sem_wait(semaphore));
        judged_by_errno(result, semaphore, Kind::Semaphore, "sem_wait", at)
    }
}

unsafe extern "C-unwind" fn sem_timed_wait(
    semaphore: *mut Opaque,
    until: *const timespec,
    at: usize,
) -> c_int {
    // SAFETY: the program vouches for the object, by its own call; the real one gets the same arguments.
    unsafe {
        let wait = || real::sem_timedwait(semaphore, until);
        let result = if is_refused(libc::CLOCK_REALTIME, until) {
            wait()
        } else {
            sem_wait_by(semaphore, true, at, wait)
        };
        judged_by_errno(result, semaphore, Kind::Semaphore, "sem_timedwait", at)
    }
}

unsafe extern "C-unwind" fn sem_clock_wait(
    semaphore: *mut Opaque,
    clock: clockid_t,
    until: *const timespec,
    at: usize,
) -> c_int {
    // SAFETY: the program vouches for the object, by its own call; the real one gets the same arguments.
    unsafe {
        let wait = || real::sem_clockwait(semaphore, clock, until);
        let result = if is_refused(clock, until) {
            wait()
        } else {
            sem_wait_by(semaphore, true, at, wait)
        };
        judged_by_errno(result, semaphore, Kind::Semaphore, "sem_clockwait", at)
    }
}

unsafe extern "C" fn sem_try_wait(semaphore: *mut Opaque, at: usize) -> c_int {
    if checked::this_thread() {
        condition::check_semaphore(semaphore, at);
    }
    // SAFETY: the program's own call.
    unsafe { real::sem_trywait(semaphore) }
}

/// Signal handlers may call this.
unsafe extern "C" fn sem_post_checked(semaphore: *mut Opaque, at: usize) -> c_int {
    if checked::this_thread() {
        condition::check_semaphore(semaphore, at);
    }
    // SAFETY: the program's own call.
    unsafe { real::sem_post(semaphore) }
}

/// Waits for the end of a thread by `wait`.
///
/// # Safety
/// As for `pthread_join`.
#[inline(always)]
unsafe fn join_by(
    thread: pthread_t,
    timed: bool,
    at: usize,
    wait: impl FnOnce() -> c_int + Copy,
) -> c_int {
    // SAFETY: the program vouches for the thread, by its own call; the real one gets the same arguments.
    unsafe {
        let result = match object::at(thread as *const u8, Kind::Join) {
            Some(object) => waiting(object, timed, at, wait),
            None => wait(),
        };
        judged(result, thread as *const u8, Kind::Join, "a join", at);
        if result == 0 {
            keeping_errno(|| hook::joined(thread as usize));
        }
        result
    }
}

unsafe extern "C-unwind" fn join(thread: pthread_t, result: *mut *mut c_void, at: usize) -> c_int {
    // SAFETY: the program's own call.
    unsafe { join_by(thread, false, at, || real::pthread_join(thread, result)) }
}

unsafe extern "C" fn try_join(thread: pthread_t, result: *mut *mut c_void, _: usize) -> c_int {
    // SAFETY: the program's own call.
    let joined = unsafe { real::pthread_tryjoin_np(thread, result) };
    if joined == 0 {
        keeping_errno(|| hook::joined(thread as usize));
    }
    joined
}

unsafe extern "C-unwind" fn timed_join(
    thread: pthread_t,
    result: *mut *mut c_void,
    until: *const timespec,
    at: usize,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        join_by(thread, true, at, || {
            real::pthread_timedjoin_np(thread, result, until)
        })
    }
}

unsafe extern "C-unwind" fn clock_join(
    thread: pthread_t,
    result: *mut *mut c_void,
    clock: clockid_t,
    until: *const timespec,
    at: usize,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        join_by(thread, true, at, || {
            real::pthread_clockjoin_np(thread, result, clock, until)
        })
    }
}

unsafe extern "C-unwind" fn c11_join(thread: pthread_t, result: *mut c_int, at: usize) -> c_int {
    // SAFETY: the program's own call.
    unsafe { join_by(thread, false, at, || real::thrd_join(thread, result)) }
}
