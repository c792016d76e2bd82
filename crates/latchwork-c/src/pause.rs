//! Waits for condition variables, in steps between which `wait.c` makes the system call.
#![allow(unsafe_code)]

use crate::deadline_of;
use crate::lock::{at, lock_at};
use core::ffi::{c_int, c_void};
use core::mem::{align_of, size_of};
use core::ptr;
use latchwork::condvar::Condvar;
use latchwork::foreign::{self, ForeignLock, Pause};
use latchwork::sharing::{Private, Shared, Sharing};
use libc::{EINVAL, EPERM, ETIMEDOUT};

/// `LATCHWORK_AGAIN`, `LATCHWORK_NOT_IN_REGION`.
const AGAIN: c_int = -1;
const NOT_IN_REGION: c_int = -2;

enum Condition {
    Private(&'static Condvar<Private>),
    Shared(&'static Condvar<Shared>),
}

/// The contents of a `struct latchwork_pause`.
struct Begun {
    pause: Pause<'static>,
    condition: Condition,
    lock: &'static dyn ForeignLock,
}

/// `struct latchwork_pause`.
#[repr(C)]
struct Storage([u64; 24]);
const _: () = assert!(size_of::<Begun>() <= size_of::<Storage>() && align_of::<Begun>() <= 8);

/// `struct latchwork_call`.
#[repr(C)]
struct Call {
    word: *const u32,
    target: *const u32,
    deadline: u64,
    operation: c_int,
    expected: u32,
}

/// # Safety
/// [`latchwork_pause_begin`] has filled the storage, and [`latchwork_pause_end`] has not emptied it.
unsafe fn begun<'a>(storage: *mut Storage) -> &'a Begun {
    // SAFETY: by the caller's contract the storage contains an initialised value.
    unsafe { &*storage.cast::<Begun>() }
}

/// Counts the caller as a waiter and releases its mutex, if `inconsistent` is not 0 with its data in an unknown state. (In
/// C a release without a repair makes a lock permanently unusable, as in pthread; in C++ the next task repairs.)
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_pause_begin(
    storage: *mut Storage,
    cond: *mut c_void,
    shared: u32,
    mutex: *mut c_void,
    kind: u32,
    inconsistent: c_int,
    deadline: u64,
) -> c_int {
    // SAFETY: the caller has these objects there; both outlive its wait.
    let (condition, lock) = unsafe {
        let condition = if shared == 0 {
            at::<Condvar<Private>>(cond).map(Condition::Private)
        } else {
            at::<Condvar<Shared>>(cond).map(Condition::Shared)
        };
        match (condition, lock_at::<'static>(mutex, kind)) {
            (Some(condition), Some(lock)) => (condition, lock),
            _ => return EINVAL,
        }
    };
    if !lock.may_be_held_by_me() {
        return EPERM;
    }
    let deadline = deadline_of(deadline);
    fn begin<S: Sharing>(
        condvar: &'static Condvar<S>,
        lock: &'static dyn ForeignLock,
        deadline: Option<latchwork::time::Deadline>,
    ) -> Pause<'static> {
        Pause::begin(condvar, lock.address(), lock.sleep_place(), deadline)
    }
    let pause = match condition {
        Condition::Private(condvar) => begin(condvar, lock, deadline),
        Condition::Shared(condvar) => begin(condvar, lock, deadline),
    };
    // SAFETY: the storage is large and aligned enough, as asserted; the caller holds the lock.
    unsafe {
        storage.cast::<Begun>().write(Begun {
            pause,
            condition,
            lock,
        });
        if inconsistent == 0 {
            lock.unlock();
        } else {
            lock.unlock_inconsistent();
        }
    }
    0
}

/// Sleeps for a limited time if the wait is one in a region.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_pause_nap(storage: *mut Storage) -> c_int {
    // SAFETY: `wait.c` calls this between begin and end.
    match unsafe { begun(storage) }.pause.nap_in_region() {
        None => NOT_IN_REGION,
        Some(None) => AGAIN,
        Some(Some(error)) => error,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_pause_call(storage: *mut Storage, call: *mut Call) {
    // SAFETY: `wait.c` calls this between begin and end.
    let how = unsafe { begun(storage) }.pause.call();
    // SAFETY: `call` points to a variable of the caller's.
    unsafe {
        call.write(Call {
            word: how.word.cast(),
            target: how.target.cast(),
            deadline: how
                .deadline
                .map_or(u64::MAX, |deadline| deadline.as_nanoseconds()),
            operation: how.operation,
            expected: how.expected,
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_pause_goes_on(storage: *mut Storage, error: c_int) -> c_int {
    // SAFETY: `wait.c` calls this between begin and end.
    unsafe { begun(storage) }
        .pause
        .must_sleep_again(error)
        .into()
}

/// Acquires the mutex again, and returns the result of the whole wait. A wait that was cancelled passes on a
/// notification that it may have consumed.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_pause_end(
    storage: *mut Storage,
    error: c_int,
    cancelled: c_int,
) -> c_int {
    // SAFETY: begin has filled the storage, and it is not used after this.
    let Begun {
        pause,
        condition,
        lock,
    } = unsafe { ptr::read(storage.cast::<Begun>()) };
    let mut awake = pause.end_sleep(lock.is_owned_by_me());
    let taken = lock.lock_again(&awake);
    awake.taken();
    if cancelled != 0 {
        match condition {
            Condition::Private(condvar) => awake.pass_on(condvar),
            Condition::Shared(condvar) => awake.pass_on(condvar),
        }
    }
    if taken == 0 && error == ETIMEDOUT {
        ETIMEDOUT
    } else {
        taken
    }
}

/// Sleeps for a limited time on a process-shared word, if it lies in a region. If asked, a signal handler ends it: `EINTR`.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_nap(
    word: *const u32,
    expected: u32,
    deadline: u64,
    interruptible: c_int,
) -> c_int {
    let (deadline, interruptible) = (deadline_of(deadline), interruptible != 0);
    // SAFETY: the word is part of the object on which the caller waits.
    match unsafe { foreign::nap_in_region(word, expected, deadline, interruptible) } {
        None => NOT_IN_REGION,
        Some(None) => AGAIN,
        Some(Some(error)) => error,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw__cond_notify(cond: *mut c_void, shared: u32, all: u32) {
    fn notify<S: Sharing>(condvar: Option<&Condvar<S>>, all: bool) {
        match condvar {
            Some(condvar) if all => condvar.notify_all(),
            Some(condvar) => condvar.notify_one(),
            None => {}
        }
    }
    // SAFETY: the caller has a condition variable there.
    unsafe {
        if shared == 0 {
            notify(at::<Condvar<Private>>(cond), all != 0);
        } else {
            notify(at::<Condvar<Shared>>(cond), all != 0);
        }
    }
}
