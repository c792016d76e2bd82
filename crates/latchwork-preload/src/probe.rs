//! What this glibc does, determined once at the start with objects of this library's own.
#![allow(unsafe_code)]

use crate::memory::{Cond, Mutex};
use crate::real;

/// Finds the flags of condition variables by letting glibc initialise one. Returns whether they lie outside the
/// replacement's words.
pub(crate) fn finds_flags() -> bool {
    let mut cond = Cond::zeroed();
    // SAFETY: attributes and a condition variable that are local to this function.
    unsafe {
        let mut attributes = core::mem::MaybeUninit::<libc::pthread_condattr_t>::zeroed();
        let attributes = attributes.as_mut_ptr();
        libc::pthread_condattr_init(attributes);
        libc::pthread_condattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED);
        libc::pthread_condattr_setclock(attributes, libc::CLOCK_MONOTONIC);
        real::pthread_cond_init(&raw mut cond, attributes.cast());
        libc::pthread_condattr_destroy(attributes);
    }
    cond.find_flags()
}

/// Whether priority inheritance is available here, determined as glibc does it. Otherwise a contended lock could not be
/// acquired, and the program would not notice that it does not hold it.
pub(crate) fn can_inherit() -> bool {
    let mut mutex = core::mem::MaybeUninit::<Mutex>::zeroed();
    let mut attributes = core::mem::MaybeUninit::<libc::pthread_mutexattr_t>::zeroed();
    // SAFETY: attributes and a mutex that are local to this function.
    unsafe {
        let attributes = attributes.as_mut_ptr();
        libc::pthread_mutexattr_init(attributes);
        libc::pthread_mutexattr_setprotocol(attributes, libc::PTHREAD_PRIO_INHERIT);
        let made = real::pthread_mutex_init(mutex.as_mut_ptr(), attributes.cast());
        libc::pthread_mutexattr_destroy(attributes);
        made == 0
    }
}
