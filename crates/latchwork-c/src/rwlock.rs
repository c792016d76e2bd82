//! Slow paths of reader/writer locks.
#![allow(unsafe_code)]

use crate::how_of;
use crate::lock::at;
use core::ffi::{c_int, c_void};
use core::mem::forget;
use core::pin::Pin;
use latchwork::foreign::{self, Blocking};
use latchwork::mutex::{InRegion, Robust, Unfinished};
use latchwork::rwlock::{
    Acquisition, Entry, Preference, RawRwLock, ReadersFirst, Released, RobustRwLock, RwLock,
    SeatLock, Uncounted, WritersFirst,
};
use latchwork::sharing::{Private, Shared, Sharing};
use libc::{EBUSY, EINTR, EINVAL, EPERM, ETIMEDOUT};
use lock_api::RawRwLock as _;

unsafe fn enter<S: Sharing, P: Preference>(
    lock: *mut c_void,
    writes: bool,
    how: Blocking,
) -> c_int {
    // SAFETY: the caller has such a lock there; an `RwLock` around `()` has the same layout.
    let Some(lock) = (unsafe { at::<RwLock<(), S, P>>(lock) }) else {
        return EINVAL;
    };
    macro_rules! enter {
        ($enter:ident, $try_enter:ident, $until:ident, $interruptible:ident) => {
            match how {
                Blocking::Forever => Ok(forget(lock.$enter())),
                Blocking::Try => lock.$try_enter().map(forget).ok_or(EBUSY),
                Blocking::Until(deadline) => lock.$until(deadline).map(forget).ok_or(ETIMEDOUT),
                Blocking::Interruptible(deadline) => match lock.$interruptible(deadline) {
                    Ok(guard) => Ok(forget(guard)),
                    Err(Unfinished::TimedOut) => Err(ETIMEDOUT),
                    Err(Unfinished::Interrupted) => Err(EINTR),
                },
            }
        };
    }
    let entered = if writes {
        enter!(write, try_write, write_until, write_interruptible)
    } else {
        enter!(read, try_read, read_until, read_interruptible)
    };
    entered.err().unwrap_or(0)
}

/// As [`enter`], without a time limit; returns how the caller entered, or an error number.
unsafe fn enter_traced<S: Sharing, P: Preference>(
    lock: *mut c_void,
    writes: bool,
) -> Result<Acquisition, c_int> {
    // SAFETY: the caller has such a lock there; an `RwLock` around `()` has the same layout.
    let lock = unsafe { at::<RwLock<(), S, P>>(lock) }.ok_or(EINVAL)?;
    Ok(if writes {
        let (guard, how) = lock.write_traced();
        forget(guard);
        how
    } else {
        let (guard, how) = lock.read_traced();
        forget(guard);
        how
    })
}

unsafe fn leave<S: Sharing, P: Preference>(lock: *mut c_void) -> Result<Released, c_int> {
    // SAFETY: the caller has such a lock there.
    let lock = unsafe { at::<RawRwLock<S, P>>(lock) }.ok_or(EINVAL)?;
    // SAFETY: while a writer is inside, no other task is; so the lock's state shows how the caller holds it.
    unsafe {
        if lock.is_locked_exclusive() {
            Ok(lock.unlock_write_traced())
        } else if lock.is_locked() {
            Ok(lock.unlock_read_traced())
        } else {
            Err(EPERM)
        }
    }
}

type OfKind<K> = RobustRwLock<(), 16, Uncounted, K>;

unsafe fn robust<'a, K: SeatLock>(lock: *mut c_void) -> Option<Pin<&'a OfKind<K>>> {
    // SAFETY: the caller has such a lock there, which does not move while it is held.
    unsafe { at::<OfKind<K>>(lock).map(|lock| Pin::new_unchecked(lock)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_rwlock(
    lock: *mut c_void,
    kind: u32,
    writes: u32,
    how: u32,
    deadline: u64,
) -> c_int {
    let (writes, how) = (writes != 0, how_of(how, deadline));
    // SAFETY: the caller has a lock of this kind there.
    unsafe {
        match kind {
            0 => enter::<Private, WritersFirst>(lock, writes, how),
            1 => enter::<Shared, WritersFirst>(lock, writes, how),
            2 => enter::<Private, ReadersFirst>(lock, writes, how),
            3 => enter::<Shared, ReadersFirst>(lock, writes, how),
            4 => robust::<Robust>(lock).map_or(EINVAL, |lock| {
                foreign::robust_rwlock_enter(lock, writes, how)
            }),
            5 => robust::<InRegion>(lock).map_or(EINVAL, |lock| {
                foreign::robust_rwlock_enter(lock, writes, how)
            }),
            _ => EINVAL,
        }
    }
}

/// `struct lw_rwlock_acquisition`.
#[repr(C)]
struct RwLockAcquisition {
    entry: u32,
    sleeps: u32,
}

/// Writes to `how` if the caller has the lock after the call.
#[unsafe(no_mangle)]
unsafe extern "C" fn lw__rwlock_traced(
    lock: *mut c_void,
    kind: u32,
    writes: u32,
    how: *mut RwLockAcquisition,
) -> c_int {
    let writes = writes != 0;
    // SAFETY: null, or a pointer to the caller's variable.
    let Some(how) = (unsafe { how.as_mut() }) else {
        return EINVAL;
    };
    // SAFETY: the caller has a lock of this kind there.
    let entered = unsafe {
        match kind {
            0 => enter_traced::<Private, WritersFirst>(lock, writes).map(with_success),
            1 => enter_traced::<Shared, WritersFirst>(lock, writes).map(with_success),
            2 => enter_traced::<Private, ReadersFirst>(lock, writes).map(with_success),
            3 => enter_traced::<Shared, ReadersFirst>(lock, writes).map(with_success),
            4 => robust::<Robust>(lock)
                .ok_or(EINVAL)
                .and_then(|lock| foreign::robust_rwlock_enter_traced(lock, writes)),
            5 => robust::<InRegion>(lock)
                .ok_or(EINVAL)
                .and_then(|lock| foreign::robust_rwlock_enter_traced(lock, writes)),
            _ => Err(EINVAL),
        }
    };
    match entered {
        Ok((Acquisition { entry, sleeps }, status)) => {
            let entry = match entry {
                Entry::Free => 0,
                Entry::Polled => 1,
                Entry::Woken => 2,
                Entry::HandedOff => 3,
            };
            *how = RwLockAcquisition { entry, sleeps };
            status
        }
        Err(error) => error,
    }
}

fn with_success(how: Acquisition) -> (Acquisition, c_int) {
    (how, 0)
}

/// Releases what the caller holds of a lock of this kind.
///
/// # Safety
/// The caller has a lock of this kind there, and holds it where the lock cannot check that.
unsafe fn leave_kind(lock: *mut c_void, kind: u32) -> Result<Released, c_int> {
    // SAFETY: the same contract.
    unsafe {
        match kind {
            0 => leave::<Private, WritersFirst>(lock),
            1 => leave::<Shared, WritersFirst>(lock),
            2 => leave::<Private, ReadersFirst>(lock),
            3 => leave::<Shared, ReadersFirst>(lock),
            4 => robust::<Robust>(lock)
                .ok_or(EINVAL)
                .and_then(foreign::robust_rwlock_leave_traced),
            5 => robust::<InRegion>(lock)
                .ok_or(EINVAL)
                .and_then(foreign::robust_rwlock_leave_traced),
            _ => Err(EINVAL),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw__rwlock_is_used(lock: *const c_void, kind: u32) -> c_int {
    let lock = lock.cast_mut();
    // SAFETY: the caller has a lock of this kind there.
    unsafe {
        match kind {
            4 => robust::<Robust>(lock).is_some_and(foreign::robust_rwlock_is_used),
            _ => robust::<InRegion>(lock).is_some_and(foreign::robust_rwlock_is_used),
        }
    }
    .into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw__rwlock_unlock(lock: *mut c_void, kind: u32) -> c_int {
    // SAFETY: the caller has a lock of this kind there, and holds it.
    unsafe {
        match kind {
            4 => robust::<Robust>(lock).map_or(EINVAL, foreign::robust_rwlock_leave),
            5 => robust::<InRegion>(lock).map_or(EINVAL, foreign::robust_rwlock_leave),
            kind => leave_kind(lock, kind).err().unwrap_or(0),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw__rwlock_unlock_traced(
    lock: *mut c_void,
    kind: u32,
    released: *mut c_int,
) -> c_int {
    // SAFETY: null, or a pointer to the caller's variable.
    let Some(released) = (unsafe { released.as_mut() }) else {
        return EINVAL;
    };
    // SAFETY: the caller has a lock of this kind there, and holds it.
    match unsafe { leave_kind(lock, kind) } {
        Ok(what) => {
            *released = match what {
                Released::NoSleeper => 0,
                Released::Woke => 1,
                Released::HandedOff => 2,
            };
            0
        }
        Err(error) => error,
    }
}

/// What the owner of a robust lock does about a death.
macro_rules! recovers {
    ($($kind:ty: $consistent:ident, $unlock_inconsistent:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $consistent(lock: *mut c_void) -> c_int {
            // SAFETY: the caller has such a lock there.
            unsafe { robust::<$kind>(lock) }.map_or(EINVAL, foreign::robust_rwlock_consistent)
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $unlock_inconsistent(lock: *mut c_void) -> c_int {
            // SAFETY: the caller has such a lock there.
            unsafe { robust::<$kind>(lock) }
                .map_or(EINVAL, foreign::robust_rwlock_leave_inconsistent)
        }
    )*};
}
recovers! {
    Robust: lw__rwlock_consistent, lw__rwlock_unlock_inconsistent;
    InRegion: lw__region_rwlock_consistent, lw__region_rwlock_unlock_inconsistent;
}
