//! `pthread_mutex_…`, and the C11 functions for the same objects.
//!
//! | kind of mutex | here |
//! | --- | --- |
//! | normal, adaptive, `mtx_plain`, `mtx_timed` | replaced |
//! | recursive, error-checking | replaced; owner and count are where glibc has them |
//! | process-shared, robust, inheriting, with a ceiling, unknown, destroyed | glibc's, and counted; waits may be [healed](crate::heal) |
//!
//! Guarantees of glibc's mutexes that POSIX does not give hold here, too: another thread may unlock a normal mutex,
//! locking one again waits, a mutex may be freed once it was unlocked, `errno` does not change, no call is a
//! cancellation point, and the child of a fork continues with the state that it finds. (By the kernel's rules, only its
//! owner can release an inheriting lock. A normal mutex that another thread releases inherits nothing from then on,
//! which is reported: see `memory.rs`.)
#![allow(unsafe_code)]

use crate::clock::{Until, is_valid};
use crate::memory::{Mutex, Use};
use crate::mode::{self, Mode};
use crate::replacement::{Inherit, Replacement, Throughput, WaitWake, release_free, take_free};
use crate::{counts, heal, real, thread};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use latchwork_interpose::entry;
use latchwork_interpose::mutexes::to_c11;
use libc::{clockid_t, timespec};

impl Mutex {
    /// Stores its owner. Relaxed, here and below: only the owner relies on it; other threads only compare it with their
    /// own ID.
    #[inline(always)]
    fn note_owner(&self, me: u32) {
        self.owner.store(me, Ordering::Relaxed);
        if self.is_new() {
            counts::replaced();
        }
    }

    fn is_mine(&self, me: u32) -> bool {
        self.owner.load(Ordering::Relaxed) == me
    }

    /// The result of a lock call for a mutex that the caller holds already, if it has one; a recursive mutex is then
    /// held once more.
    fn again(&self, me: u32, otherwise: c_int) -> Option<c_int> {
        match self.purpose() {
            Use::Recursive if self.is_mine(me) => {
                let count = self.count.load(Ordering::Relaxed);
                let Some(more) = count.checked_add(1) else {
                    return Some(libc::EAGAIN);
                };
                self.count.store(more, Ordering::Relaxed);
                Some(0)
            }
            Use::ErrorCheck if self.is_mine(me) => Some(otherwise),
            _ => None,
        }
    }

    fn taken(&self, me: u32) -> c_int {
        self.note_owner(me);
        if self.purpose() == Use::Recursive {
            self.count.store(1, Ordering::Relaxed);
        }
        0
    }
}

fn wait_replaced<L: Replacement>(mutex: &Mutex, me: u32) -> c_int {
    match thread::keeping_errno(|| L::wait(mutex, me, None)) {
        0 => mutex.taken(me),
        error => error,
    }
}

fn try_replaced<L: Replacement>(mutex: &Mutex, me: u32) -> c_int {
    if let Some(result) = mutex.again(me, libc::EBUSY) {
        return result;
    }
    if mode::caller().is_some_and(|me| take_free(mutex, me.mark))
        || thread::keeping_errno(|| L::try_lock(mutex, me))
    {
        mutex.taken(me)
    } else {
        libc::EBUSY
    }
}

fn lock_replaced_until<L: Replacement>(mutex: &Mutex, me: u32, until: Until) -> c_int {
    if let Some(result) = mutex.again(me, libc::EDEADLK) {
        return result;
    }
    if !mode::caller().is_some_and(|me| take_free(mutex, me.mark)) {
        if !until.is_valid() {
            return libc::EINVAL;
        }
        let result = thread::keeping_errno(|| {
            loop {
                match L::wait(mutex, me, Some(until.next_poll())) {
                    libc::ETIMEDOUT if !until.has_passed() => {}
                    result => return result,
                }
            }
        });
        if result != 0 {
            return result;
        }
    }
    mutex.taken(me)
}

fn unlock_replaced<L: Replacement>(mutex: &Mutex, me: u32, at: usize) -> c_int {
    match mutex.purpose() {
        Use::Normal | Use::Other => {}
        _ if !mutex.is_mine(me) => return libc::EPERM,
        Use::Recursive => {
            let count = mutex.count.load(Ordering::Relaxed) - 1;
            mutex.count.store(count, Ordering::Relaxed);
            if count != 0 {
                return 0;
            }
        }
        Use::ErrorCheck => {}
    }
    // The owner is cleared before the release, since the mutex may be freed after it.
    let owner = mutex.owner.load(Ordering::Relaxed);
    mutex.owner.store(0, Ordering::Relaxed);
    if mutex.second_word().is_none()
        && mode::caller().is_some_and(|me| release_free(mutex, me.mark))
    {
        return 0;
    }
    let result = thread::keeping_errno(|| L::release(mutex, me, at));
    if result != 0 {
        mutex.owner.store(owner, Ordering::Relaxed);
    }
    result
}

/// Calls a function of the lock inside the program's mutexes; without one, glibc's function.
macro_rules! replacement {
    ($function:ident($mutex:expr $(, $arg:expr)*), $real:expr) => {
        match mode::get() {
            Mode::Throughput => $function::<Throughput>($mutex, thread::id() $(, $arg)*),
            Mode::WaitWake => $function::<WaitWake>($mutex, thread::id() $(, $arg)*),
            Mode::Inherit => $function::<Inherit>($mutex, thread::id() $(, $arg)*),
            Mode::Glibc => $real,
        }
    };
}

/// Locks a program's mutex.
///
/// # Safety
/// As for `pthread_mutex_lock`.
#[inline(always)]
pub(crate) unsafe fn lock(mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's mutex, of which only atomics are accessed.
    let here = unsafe { &*mutex };
    if here.is_known()
        && let Some(me) = mode::caller()
        && take_free(here, me.mark)
    {
        here.owner.store(me.id, Ordering::Relaxed);
        return 0;
    }
    // SAFETY: by the caller's contract.
    unsafe { lock_otherwise(mutex) }
}

/// # Safety
/// As for `pthread_mutex_lock`.
#[inline(never)]
unsafe extern "C" fn lock_otherwise(mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's mutex, of which only atomics are accessed.
    let here = unsafe { &*mutex };
    let pass = || {
        counts::passed(here);
        // SAFETY: by the caller's contract.
        unsafe { real::pthread_mutex_lock(mutex) }
    };
    if here.purpose() == Use::Other {
        mode::get();
        // SAFETY: by the caller's contract.
        return unsafe { heal::lock(mutex, || None, pass) };
    }
    if let Some(me) = mode::caller() {
        if let Some(result) = here.again(me.id, libc::EDEADLK) {
            return result;
        }
        if take_free(here, me.mark) {
            return here.taken(me.id);
        }
    }
    replacement!(wait_replaced(here), pass())
}

/// Unlocks a program's mutex; the program's call returns to `at`, or `at` is 0 if another interposed call releases the
/// mutex.
///
/// # Safety
/// As for `pthread_mutex_unlock`.
#[inline(always)]
pub(crate) unsafe extern "C" fn unlock(mutex: *mut Mutex, at: usize) -> c_int {
    // SAFETY: the caller's mutex, of which only atomics are accessed.
    let here = unsafe { &*mutex };
    if here.is_known()
        && let Some(me) = mode::caller()
    {
        // The owner is cleared before the release, since the mutex may be freed after it.
        here.owner.store(0, Ordering::Relaxed);
        if release_free(here, me.mark) {
            return 0;
        }
    }
    // SAFETY: by the caller's contract.
    unsafe { unlock_otherwise(mutex, at) }
}

/// As for [`unlock`].
unsafe extern "C" fn c11_unlock(mutex: *mut Mutex, at: usize) -> c_int {
    // SAFETY: by the caller's contract.
    to_c11(unsafe { unlock(mutex, at) })
}

/// # Safety
/// As for `pthread_mutex_unlock`.
#[inline(never)]
unsafe extern "C" fn unlock_otherwise(mutex: *mut Mutex, at: usize) -> c_int {
    // SAFETY: the caller's mutex, of which only atomics are accessed.
    let here = unsafe { &*mutex };
    if here.purpose() == Use::Other {
        // SAFETY: by the caller's contract.
        return unsafe { real::pthread_mutex_unlock(mutex) };
    }
    // SAFETY: by the caller's contract.
    replacement!(unlock_replaced(here, at), unsafe {
        real::pthread_mutex_unlock(mutex)
    })
}

/// # Safety
/// As for `pthread_mutex_trylock`.
unsafe fn try_lock(mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's mutex, of which only atomics are accessed.
    let here = unsafe { &*mutex };
    let pass = || {
        counts::passed(here);
        // SAFETY: by the caller's contract.
        unsafe { real::pthread_mutex_trylock(mutex) }
    };
    if here.purpose() == Use::Other {
        mode::get();
        // SAFETY: by the caller's contract.
        return unsafe { heal::try_lock(mutex, pass) };
    }
    replacement!(try_replaced(here), pass())
}

/// # Safety
/// As for `pthread_mutex_clocklock`; `until` is null, or points to a time.
unsafe fn lock_until(
    mutex: *mut Mutex,
    clock: clockid_t,
    until: *const timespec,
    pass: impl Fn() -> c_int,
) -> c_int {
    // SAFETY: the caller's mutex, of which only atomics are accessed.
    let here = unsafe { &*mutex };
    // A call that need not wait does not need a time.
    if until.is_null() {
        // SAFETY: by the caller's contract.
        return match unsafe { try_lock(mutex) } {
            libc::EBUSY => libc::EINVAL,
            result => result,
        };
    }
    // SAFETY: by the contract `until` points to a time.
    let until = || Until::new(clock, unsafe { *until });
    if here.purpose() == Use::Other {
        counts::passed(here);
        mode::get();
        // SAFETY: by the caller's contract.
        return unsafe { heal::lock(mutex, || Some(until()), pass) };
    }
    replacement!(lock_replaced_until(here, until()), pass())
}

/// # Safety
/// As for `pthread_mutex_destroy`.
unsafe fn destroy(mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's mutex, of which only atomics are accessed.
    let here = unsafe { &*mutex };
    if mode::get() == Mode::Glibc || here.purpose() == Use::Other {
        // SAFETY: by the caller's contract.
        return unsafe { real::pthread_mutex_destroy(mutex) };
    }
    if here.is_held() || here.is_awaited() {
        return libc::EBUSY;
    }
    here.mark_destroyed();
    0
}

/// Defines functions that a program calls by these names. They have the contract of glibc's functions.
macro_rules! export {
    ($($abi:literal fn $($name:ident)|+ ($($arg:ident: $ty:ty),*) -> $ret:ty $body:block)*) => {
        $($crate::mutex::export!(@each $abi [$($name)|+] ($($arg: $ty),*) -> $ret $body);)*
    };
    (@each $abi:literal [$name:ident | $alias:ident] $args:tt -> $ret:ty $body:block) => {
        $crate::mutex::export!(@each $abi [$name] $args -> $ret $body);
        $crate::mutex::export!(@each $abi [$alias] $args -> $ret $body);
    };
    (@each $abi:literal [$name:ident] ($($arg:ident: $ty:ty),*) -> $ret:ty $body:block) => {
        /// Stands in for glibc's function of this name.
        ///
        /// # Safety
        /// As for glibc's function.
        // SAFETY: it does what the function of this name does.
        #[unsafe(no_mangle)]
        pub unsafe extern $abi fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: by the caller's contract, which is that of glibc's function.
            unsafe { $body }
        }
    };
}
pub(crate) use export;

entry! {
    pthread_mutex_unlock 1 unlock;
    __pthread_mutex_unlock 1 unlock;
    mtx_unlock 1 c11_unlock;
}

export! {
    "C" fn pthread_mutex_lock | __pthread_mutex_lock(mutex: *mut Mutex) -> c_int {
        lock(mutex)
    }

    "C" fn pthread_mutex_trylock | __pthread_mutex_trylock(mutex: *mut Mutex) -> c_int {
        try_lock(mutex)
    }

    "C" fn pthread_mutex_timedlock(mutex: *mut Mutex, until: *const timespec) -> c_int {
        lock_until(mutex, libc::CLOCK_REALTIME, until, || {
            real::pthread_mutex_timedlock(mutex, until)
        })
    }

    "C" fn pthread_mutex_clocklock(mutex: *mut Mutex, clock: clockid_t, until: *const timespec) -> c_int {
        if !is_valid(clock) {
            return libc::EINVAL;
        }
        lock_until(mutex, clock, until, || {
            real::pthread_mutex_clocklock(mutex, clock, until)
        })
    }

    "C" fn pthread_mutex_init | __pthread_mutex_init(mutex: *mut Mutex, attributes: *const c_void) -> c_int {
        mode::get();
        real::pthread_mutex_init(mutex, attributes)
    }

    "C" fn pthread_mutex_destroy | __pthread_mutex_destroy(mutex: *mut Mutex) -> c_int {
        destroy(mutex)
    }

    "C" fn mtx_init(mutex: *mut Mutex, kind: c_int) -> c_int {
        mode::get();
        real::mtx_init(mutex, kind)
    }

    "C" fn mtx_lock(mutex: *mut Mutex) -> c_int {
        to_c11(lock(mutex))
    }

    "C" fn mtx_trylock(mutex: *mut Mutex) -> c_int {
        to_c11(try_lock(mutex))
    }

    "C" fn mtx_timedlock(mutex: *mut Mutex, until: *const timespec) -> c_int {
        to_c11(lock_until(mutex, libc::CLOCK_REALTIME, until, || {
            real::pthread_mutex_timedlock(mutex, until)
        }))
    }
}

/// C11's function has no result.
///
/// # Safety
/// As for glibc's function.
// SAFETY: it does what the function of this name does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_destroy(mutex: *mut Mutex) {
    // SAFETY: by the caller's contract.
    unsafe { destroy(mutex) };
}
