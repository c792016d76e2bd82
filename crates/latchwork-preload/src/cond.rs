//! `pthread_cond_…`, and the C11 functions for the same objects.
//!
//! glibc's waits unlock and lock the mutex by glibc's own functions, which do not know a replaced mutex. So every
//! condition variable that is not process-shared is replaced, whatever mutex it is used with: by a ticket that waiters
//! compare, and their number. Source: U. Drepper, *Futexes are tricky*; it works as the crowd in `latchwork`'s
//! condition variable, whose argument against lost wake-ups holds here.
//!
//! *Cancellation.* A wait is a cancellation point, and the mutex is acquired again before the thread's cleanup handlers
//! run. While it sleeps, the thread can be cancelled asynchronously, as in glibc. The unwinding then passes through
//! `wait` and `pthread_cond_wait`, which have nothing to drop. A cancelled waiter may have consumed a notification: if
//! there was any, it passes one on.
//!
//! *The mutex* is in use while a wait will acquire it again: such waiters are counted where glibc stores its number of
//! users, and destroying the mutex meanwhile fails with `EBUSY`.
//!
//! *Destroying.* A woken waiter touches the condition variable once more, before it acquires the mutex.
//! `pthread_cond_destroy` waits for that, as glibc's does; waiters that are still asleep are woken.
//!
//! *Fork.* The child has none of its parent's waiters, and their number is meaningless there: it is stored beside a
//! number of the process that has counted them.
//!
//! *Process-shared* condition variables stay glibc's. If one is used with a replaced mutex, which belongs to the
//! threads of one process, a wait ends by itself after some milliseconds, as if notified: glibc's wait is made with a
//! mutex of its own.
#![allow(unsafe_code)]

use crate::clock::{Until, is_valid};
use crate::memory::{Cond, Mutex, Use};
use crate::mode::{self, Mode};
use crate::mutex::{export, lock, unlock};
use crate::{counts, nap, real, thread};
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::Ordering;
use core::time::Duration;
use latchwork::time::Deadline;
use latchwork_interpose::cleanup::or_if_cancelled;
use latchwork_interpose::mutexes::to_c11;
use libc::{clockid_t, timespec};

unsafe extern "C-unwind" {
    /// It may end the thread by unwinding, if the thread was cancelled.
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

const DEFERRED: c_int = 0;
const ASYNCHRONOUS: c_int = 1;

/// How long a wait of glibc's lasts that is made for a replaced mutex.
const SHARED_WAIT: Duration = Duration::from_millis(10);
/// How often to check whether the last waiter has left.
const LEAVING: Duration = Duration::from_micros(50);

impl Cond {
    /// How many threads of this process wait. Relaxed, here and below: ordered by the program's mutex.
    fn waiters(&self) -> u32 {
        match self.waiters.load(Ordering::Relaxed) {
            0 => 0,
            _ if self.process.load(Ordering::Relaxed) != thread::process() => 0,
            waiters => waiters,
        }
    }

    /// Counts a waiter, under its mutex. Returns the ticket that the waiter must compare.
    fn enter(&self) -> u32 {
        let process = thread::process();
        if self.process.load(Ordering::Relaxed) != process {
            self.waiters.store(0, Ordering::Relaxed);
            self.process.store(process, Ordering::Relaxed);
        }
        self.waiters.fetch_add(1, Ordering::Relaxed);
        self.ticket.load(Ordering::Relaxed)
    }

    /// The last access of a waiter. Release: pairs with the Acquire of the destroying thread.
    fn leave(&self) {
        self.waiters.fetch_sub(1, Ordering::Release);
    }

    fn notify(&self, count: u32) {
        if self.waiters() != 0 {
            // Relaxed: the kernel orders a waiter's comparison with the wake-up.
            self.ticket.fetch_add(1, Ordering::Relaxed);
            nap::wake(&raw const self.ticket, count);
        }
    }

    fn destroy(&self) {
        self.notify(u32::MAX);
        while self.waiters() != 0 {
            nap::until(Some(Deadline::after(LEAVING)));
        }
        // Acquire: pairs with the Release in `leave`.
        self.waiters.load(Ordering::Acquire);
    }
}

/// The state that the cleanup of a cancelled waiter needs.
struct Waiter {
    /// Null if the waiter is not counted.
    cond: *const Cond,
    ticket: u32,
    mutex: *mut Mutex,
}

/// # Safety
/// The argument points to the waiter of the cancelled thread.
unsafe extern "C" fn cancelled(waiter: *mut c_void) {
    // SAFETY: by the contract; the condition variable exists while the waiter is counted.
    unsafe {
        let waiter = &*waiter.cast::<Waiter>();
        if let Some(cond) = waiter.cond.as_ref() {
            // The waiter may have consumed a notification: it passes it on to another one.
            if cond.ticket.load(Ordering::Relaxed) != waiter.ticket {
                cond.notify(1);
            }
            cond.leave();
        }
        lock_again(waiter.mutex);
    }
}

/// Acquires the mutex for a waiter after its wait.
///
/// # Safety
/// As for `pthread_mutex_lock`.
#[inline(always)]
unsafe fn lock_again(mutex: *mut Mutex) -> c_int {
    // SAFETY: by the caller's contract.
    unsafe {
        let locked = lock(mutex);
        if matches!(locked, 0 | libc::EOWNERDEAD) {
            (*mutex).wait_ends();
        }
        locked
    }
}

/// Releases the mutex for a wait. Returns an error if that is not allowed.
///
/// # Safety
/// As for `pthread_cond_wait`.
#[inline(always)]
unsafe fn unlock_to_wait(mutex: *mut Mutex) -> c_int {
    // SAFETY: by the caller's contract.
    unsafe {
        (*mutex).wait_begins();
        let refused = unlock(mutex, 0);
        if refused != 0 {
            (*mutex).wait_ends();
        }
        refused
    }
}

/// Releases the mutex, sleeps, and acquires it again. Nothing here has a destructor, since the unwinding of a cancelled
/// thread passes through it.
///
/// # Safety
/// As for `pthread_cond_clockwait`; `until` may be null.
#[inline(never)]
unsafe fn wait(
    cond: *const Cond,
    mutex: *mut Mutex,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the program's condition variable, mutex and time, for which the caller vouches.
    unsafe {
        let here = &*cond;
        let ticket = here.enter();
        let refused = unlock_to_wait(mutex);
        if refused != 0 {
            here.leave();
            return refused;
        }
        let mut waiter = Waiter {
            cond,
            ticket,
            mutex,
        };
        let ended = or_if_cancelled(cancelled, (&raw mut waiter).cast(), || {
            let mut kind = DEFERRED;
            pthread_setcanceltype(ASYNCHRONOUS, &raw mut kind);
            let ended = loop {
                let ended = nap::sleep(&here.ticket, ticket, clock, until);
                if ended != libc::EINTR || here.ticket.load(Ordering::Relaxed) != ticket {
                    break ended;
                }
            };
            pthread_setcanceltype(kind, ptr::null_mut());
            ended
        });
        here.leave();
        let locked = lock_again(mutex);
        match ended {
            _ if locked != 0 => locked,
            libc::ETIMEDOUT => libc::ETIMEDOUT,
            _ => 0,
        }
    }
}

/// A wait of glibc's, for a limited time, for a condition variable used with a replaced mutex.
///
/// # Safety
/// As for `wait`.
unsafe fn wait_shared(
    cond: *mut Cond,
    mutex: *mut Mutex,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: as for `wait`; the other mutex is local to this function, and only glibc uses it.
    unsafe {
        let mut inner = MaybeUninit::<Mutex>::zeroed();
        let inner = inner.as_mut_ptr();
        real::pthread_mutex_lock(inner);
        let refused = unlock_to_wait(mutex);
        if refused != 0 {
            real::pthread_mutex_unlock(inner);
            return refused;
        }
        let mut waiter = Waiter {
            cond: ptr::null(),
            ticket: 0,
            mutex,
        };
        let end = Deadline::after(SHARED_WAIT).as_nanoseconds();
        let end = timespec {
            tv_sec: (end / 1_000_000_000) as _,
            tv_nsec: (end % 1_000_000_000) as _,
        };
        or_if_cancelled(cancelled, (&raw mut waiter).cast(), || {
            real::pthread_cond_clockwait(cond, inner, libc::CLOCK_MONOTONIC, &raw const end)
        });
        real::pthread_mutex_unlock(inner);
        let locked = lock_again(mutex);
        let is_over = !until.is_null() && Until::new(clock, *until).has_passed();
        match locked {
            0 if is_over => libc::ETIMEDOUT,
            locked => locked,
        }
    }
}

/// Any wait: `until` is null or a time of `clock`; `pass` calls glibc's function.
///
/// # Safety
/// As for `pthread_cond_clockwait`.
#[inline(always)]
unsafe fn wait_any(
    cond: *mut Cond,
    mutex: *mut Mutex,
    clock: impl FnOnce(&Cond) -> clockid_t,
    until: *const timespec,
    pass: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the program's condition variable, mutex and time, for which the caller vouches.
    unsafe {
        if mode::get() == Mode::Glibc {
            return pass();
        }
        let here = &*cond;
        if here.is_shared() && (*mutex).purpose() == Use::Other {
            return pass();
        }
        let clock = clock(here);
        if !until.is_null() && !Until::new(clock, *until).is_valid() {
            return libc::EINVAL;
        }
        if here.is_shared() {
            return wait_shared(cond, mutex, clock, until);
        }
        // A time before the clock's origin, which the kernel would reject.
        let origin = timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let is_early = !until.is_null() && (*until).tv_sec < 0;
        let until = if is_early { &raw const origin } else { until };
        wait(cond, mutex, clock, until)
    }
}

/// Notifies `count` waiters; `pass` calls glibc's function.
///
/// # Safety
/// As for `pthread_cond_broadcast`.
#[inline(always)]
unsafe fn notify(cond: *mut Cond, count: u32, pass: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the program's condition variable.
    let here = unsafe { &*cond };
    if mode::get() == Mode::Glibc || here.is_shared() {
        return pass();
    }
    thread::keeping_errno(|| here.notify(count));
    0
}

/// # Safety
/// As for `pthread_cond_destroy`.
unsafe fn destroy(cond: *mut Cond) -> c_int {
    // SAFETY: the program's condition variable.
    unsafe {
        let here = &*cond;
        if mode::get() == Mode::Glibc || here.is_shared() {
            return real::pthread_cond_destroy(cond);
        }
        thread::keeping_errno(|| here.destroy());
    }
    0
}

export! {
    "C-unwind" fn pthread_cond_wait(cond: *mut Cond, mutex: *mut Mutex) -> c_int {
        wait_any(cond, mutex, Cond::clock, ptr::null(), || {
            real::pthread_cond_wait(cond, mutex)
        })
    }

    "C-unwind" fn pthread_cond_timedwait(cond: *mut Cond, mutex: *mut Mutex, until: *const timespec) -> c_int {
        wait_any(cond, mutex, Cond::clock, until, || {
            real::pthread_cond_timedwait(cond, mutex, until)
        })
    }

    "C-unwind" fn pthread_cond_clockwait(cond: *mut Cond, mutex: *mut Mutex, clock: clockid_t, until: *const timespec) -> c_int {
        if !is_valid(clock) {
            return libc::EINVAL;
        }
        wait_any(cond, mutex, |_| clock, until, || {
            real::pthread_cond_clockwait(cond, mutex, clock, until)
        })
    }

    "C-unwind" fn cnd_wait(cond: *mut Cond, mutex: *mut Mutex) -> c_int {
        to_c11(wait_any(cond, mutex, Cond::clock, ptr::null(), || {
            real::pthread_cond_wait(cond, mutex)
        }))
    }

    "C-unwind" fn cnd_timedwait(cond: *mut Cond, mutex: *mut Mutex, until: *const timespec) -> c_int {
        to_c11(wait_any(cond, mutex, Cond::clock, until, || {
            real::pthread_cond_timedwait(cond, mutex, until)
        }))
    }

    "C" fn pthread_cond_signal(cond: *mut Cond) -> c_int {
        notify(cond, 1, || { real::pthread_cond_signal(cond) })
    }

    "C" fn pthread_cond_broadcast(cond: *mut Cond) -> c_int {
        notify(cond, u32::MAX, || { real::pthread_cond_broadcast(cond) })
    }

    "C" fn cnd_signal(cond: *mut Cond) -> c_int {
        to_c11(notify(cond, 1, || { real::pthread_cond_signal(cond) }))
    }

    "C" fn cnd_broadcast(cond: *mut Cond) -> c_int {
        to_c11(notify(cond, u32::MAX, || { real::pthread_cond_broadcast(cond) }))
    }

    "C" fn pthread_cond_init(cond: *mut Cond, attributes: *const c_void) -> c_int {
        mode::get();
        let result = real::pthread_cond_init(cond, attributes);
        if result == 0 && (*cond).is_shared() {
            counts::passed_cond();
        }
        result
    }

    "C" fn cnd_init(cond: *mut Cond) -> c_int {
        mode::get();
        real::cnd_init(cond)
    }

    "C" fn pthread_cond_destroy(cond: *mut Cond) -> c_int {
        destroy(cond)
    }
}

/// C11's function has no result.
///
/// # Safety
/// As for glibc's function.
// SAFETY: it does what the function of this name does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_destroy(cond: *mut Cond) {
    // SAFETY: by the caller's contract.
    unsafe { destroy(cond) };
}
