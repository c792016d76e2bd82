//! Slow paths of mutexes and barriers. (Those of reader/writer locks are in `rwlock.rs`.)
#![allow(unsafe_code)]

use crate::{deadline_of, how_of};
use core::ffi::{c_int, c_void};
use core::mem::{align_of, size_of};
use latchwork::barrier::Barrier;
use latchwork::completion::Completion;
use latchwork::condvar::Condvar;
use latchwork::foreign::{self, ForeignLock, TracedLock};
use latchwork::mutex::throughput::{Acquisition, Entry, Released};
use latchwork::mutex::{
    InRegion, Inherit, InheritPlain, Mutex, Protect, RecursiveMutex, Robust, Throughput, WaitWake,
};
use latchwork::once::{Once, RegionOnce};
use latchwork::rwlock::{RegionRwLock, RobustRwLock, RwLock};
use latchwork::sharing::{Private, Shared, Sharing};
use latchwork::spin::Spin;
use libc::{EINVAL, EPERM, ETIMEDOUT};

/// Asserts a frozen layout, as the header does.
macro_rules! frozen {
    ($($type:ty: $size:literal, $align:literal;)*) => {
        $(const _: () = assert!(size_of::<$type>() == $size && align_of::<$type>() == $align);)*
    };
}
frozen! {
    WaitWake: 4, 4; WaitWake<Shared>: 4, 4; Mutex<()>: 4, 4;
    Throughput: 16, 4; Throughput<Shared>: 16, 4; Mutex<(), Throughput>: 16, 4;
    Inherit: 8, 4; Inherit<Shared>: 8, 4; Mutex<(), Inherit>: 8, 4;
    InheritPlain: 4, 4; InheritPlain<Shared>: 4, 4;
    Protect: 8, 4; Protect<Shared>: 8, 4;
    RecursiveMutex<()>: 12, 4;
    Spin: 4, 4;
    InRegion: 8, 8; Mutex<(), InRegion>: 8, 8;
    InRegion<Throughput<Shared>>: 16, 8; Mutex<(), InRegion<Throughput<Shared>>>: 16, 8;
    Robust: 40, 8; Mutex<(), Robust>: 40, 8;
    Robust<Throughput<Shared>>: 40, 8; Robust<Inherit<Shared>>: 40, 8; Robust<Protect<Shared>>: 40, 8;
    RwLock<()>: 8, 8; RwLock<(), Shared>: 8, 8;
    RobustRwLock<()>: 1088, 64; RegionRwLock<()>: 1088, 64;
    Condvar: 24, 8; Condvar<Shared>: 24, 8;
    Completion: 8, 8; Completion<Shared>: 8, 8;
    Barrier: 8, 4; Barrier<Shared>: 8, 4;
    Once: 48, 8; RegionOnce: 16, 8;
}

const SHARED: u32 = 8;

/// The object at an address; `None` if the address is null or misaligned.
///
/// # Safety
/// If the address is neither null nor misaligned, there is such an object, and it exists as long as the result is used.
pub(crate) unsafe fn at<'a, T>(address: *const c_void) -> Option<&'a T> {
    let address: *const T = address.cast();
    if address.is_aligned() {
        // SAFETY: by the caller's contract; the pointer is aligned.
        unsafe { address.as_ref() }
    } else {
        None
    }
}

/// The lock of this kind at an address.
///
/// # Safety
/// As for [`at`].
pub(crate) unsafe fn lock_at<'a>(address: *const c_void, kind: u32) -> Option<&'a dyn ForeignLock> {
    macro_rules! lock {
        ($type:ty) => {
            // SAFETY: by the caller's contract.
            unsafe { at::<$type>(address) }.map(|lock| lock as &dyn ForeignLock)
        };
    }
    match kind {
        0 => lock!(WaitWake),
        1 => lock!(Throughput),
        2 => lock!(Inherit),
        3 => lock!(InheritPlain),
        4 => lock!(Protect),
        5 => lock!(RecursiveMutex<()>),
        6 => lock!(Spin),
        7 => lock!(InRegion),
        8 => lock!(WaitWake<Shared>),
        9 => lock!(Throughput<Shared>),
        10 => lock!(Inherit<Shared>),
        11 => lock!(InheritPlain<Shared>),
        12 => lock!(Protect<Shared>),
        16 => lock!(Robust),
        17 => lock!(Robust<Throughput<Shared>>),
        18 => lock!(Robust<Inherit<Shared>>),
        20 => lock!(Robust<Protect<Shared>>),
        23 => lock!(InRegion<Throughput<Shared>>),
        _ => None,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_lock(
    mutex: *mut c_void,
    kind: u32,
    how: u32,
    deadline: u64,
) -> c_int {
    // SAFETY: the caller passes the address of a lock of this kind.
    match unsafe { lock_at(mutex, kind) } {
        Some(lock) => lock.lock(how_of(how, deadline)),
        None => EINVAL,
    }
}

/// The slow path of an unlock. For a lock that has only a bit to clear, the inlined path has cleared it already.
#[unsafe(no_mangle)]
unsafe extern "C" fn lw__unlock(mutex: *mut c_void, kind: u32) -> c_int {
    // SAFETY: the caller passes the address of a lock of this kind, and holds it where the lock cannot check that.
    unsafe {
        match lock_at(mutex, kind) {
            None => EINVAL,
            Some(_) if matches!(kind & !SHARED, 0 | 6) => EPERM,
            Some(lock) => lock.unlock(),
        }
    }
}

/// The throughput lock of this kind at an address.
///
/// # Safety
/// As for [`at`].
unsafe fn traced_at<'a>(address: *const c_void, kind: u32) -> Option<&'a dyn TracedLock> {
    macro_rules! lock {
        ($type:ty) => {
            // SAFETY: by the caller's contract.
            unsafe { at::<$type>(address) }.map(|lock| lock as &dyn TracedLock)
        };
    }
    match kind {
        1 => lock!(Throughput),
        9 => lock!(Throughput<Shared>),
        17 => lock!(Robust<Throughput<Shared>>),
        _ => None,
    }
}

/// `struct lw_tp_acquisition`.
#[repr(C)]
struct TpAcquisition {
    entry: u32,
    sleeps: u32,
}

/// Writes to `how` if the caller has the lock after the call.
#[unsafe(no_mangle)]
unsafe extern "C" fn lw__lock_traced(
    mutex: *mut c_void,
    kind: u32,
    how: *mut TpAcquisition,
) -> c_int {
    // SAFETY: the caller passes the address of a lock of this kind.
    let Some(lock) = (unsafe { traced_at(mutex, kind) }) else {
        return EINVAL;
    };
    // SAFETY: null, or a pointer to the caller's variable.
    let Some(how) = (unsafe { how.as_mut() }) else {
        return EINVAL;
    };
    match lock.lock_traced() {
        Ok(taken) => {
            let Acquisition { entry, sleeps } = taken.acquisition;
            let entry = match entry {
                Entry::Free => 0,
                Entry::Stolen => 1,
                Entry::TopWaiter => 2,
                Entry::HandedOff => 3,
            };
            *how = TpAcquisition { entry, sleeps };
            taken.status
        }
        Err(error) => error,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw__unlock_traced(
    mutex: *mut c_void,
    kind: u32,
    released: *mut c_int,
) -> c_int {
    // SAFETY: the caller passes the address of a lock of this kind.
    let Some(lock) = (unsafe { traced_at(mutex, kind) }) else {
        return EINVAL;
    };
    // SAFETY: null, or a pointer to the caller's variable.
    let Some(released) = (unsafe { released.as_mut() }) else {
        return EINVAL;
    };
    // SAFETY: the lock checks that the caller holds it.
    match unsafe { lock.unlock_traced() } {
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

/// The inlined path has announced and unlinked a robust lock, and found its word changed.
#[unsafe(no_mangle)]
unsafe extern "C" fn lw__free_unlinked(mutex: *mut c_void, kind: u32, before: usize) {
    // SAFETY: the caller passes the address of a lock of this kind, which it has announced and unlinked.
    unsafe {
        if let Some(lock) = lock_at(mutex, kind) {
            lock.free_unlinked(before);
        }
    }
}

/// The inlined path has acquired a robust lock whose data is inconsistent.
#[unsafe(no_mangle)]
unsafe extern "C" fn lw__give_back(mutex: *mut c_void, kind: u32) {
    // SAFETY: the caller passes the address of a lock of this kind, which it holds.
    unsafe {
        if let Some(lock) = lock_at(mutex, kind) {
            lock.give_back_unclean();
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw__consistent(mutex: *mut c_void, kind: u32) -> c_int {
    // SAFETY: the caller passes the address of a lock of this kind.
    unsafe { lock_at(mutex, kind) }.map_or(EINVAL, ForeignLock::consistent)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw__unlock_inconsistent(mutex: *mut c_void, kind: u32) -> c_int {
    // SAFETY: the caller passes the address of a lock of this kind.
    unsafe { lock_at(mutex, kind) }.map_or(EINVAL, ForeignLock::unlock_inconsistent)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw__is_locked(mutex: *const c_void, kind: u32) -> c_int {
    // SAFETY: the caller passes the address of a lock of this kind.
    unsafe { lock_at(mutex, kind) }
        .is_some_and(ForeignLock::is_locked)
        .into()
}

/// Whether an address lies in a region for any PID namespace.
#[unsafe(no_mangle)]
extern "C" fn lw__spans_pid_namespaces(address: *const c_void) -> c_int {
    latchwork::region::spans_pid_namespaces(address.addr()).into()
}

#[unsafe(no_mangle)]
extern "C" fn lw_task_id() -> u32 {
    foreign::task_id()
}

unsafe fn set_ceiling<S: Sharing>(mutex: *mut c_void, ceiling: c_int, old: *mut c_int) -> c_int {
    // SAFETY: the caller has such a lock there; a mutex around `()` has the same layout.
    let Some(mutex) = (unsafe { at::<Mutex<(), Protect<S>>>(mutex) }) else {
        return EINVAL;
    };
    let Some(ceiling) = u8::try_from(ceiling)
        .ok()
        .filter(|ceiling| (1..=99).contains(ceiling))
    else {
        return EINVAL;
    };
    let before = mutex.set_ceiling(ceiling);
    // SAFETY: null, or a pointer to the caller's variable.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = before.into();
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_pp_mutex_setprioceiling(
    mutex: *mut c_void,
    ceiling: c_int,
    old: *mut c_int,
) -> c_int {
    // SAFETY: the caller has such a lock there.
    unsafe { set_ceiling::<Private>(mutex, ceiling, old) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_shared_pp_mutex_setprioceiling(
    mutex: *mut c_void,
    ceiling: c_int,
    old: *mut c_int,
) -> c_int {
    // SAFETY: the caller has such a lock there.
    unsafe { set_ceiling::<Shared>(mutex, ceiling, old) }
}

/// Returns the result of a barrier's wait: `LW_BARRIER_SERIAL_TASK` for one task.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_barrier_wait(
    barrier: *mut c_void,
    shared: u32,
    deadline: u64,
) -> c_int {
    fn wait<S: Sharing>(barrier: Option<&Barrier<S>>, deadline: u64) -> c_int {
        let Some(barrier) = barrier else {
            return EINVAL;
        };
        let serial = match deadline_of(deadline) {
            None => Some(barrier.wait()),
            Some(deadline) => barrier.wait_until(deadline),
        };
        match serial {
            Some(true) => -1,
            Some(false) => 0,
            None => ETIMEDOUT,
        }
    }
    // SAFETY: the caller has a barrier there.
    unsafe {
        if shared == 0 {
            wait(at::<Barrier>(barrier), deadline)
        } else {
            wait(at::<Barrier<Shared>>(barrier), deadline)
        }
    }
}
