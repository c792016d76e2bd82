//! What this glibc does, determined once at the start with objects of this library's own.
#![allow(unsafe_code)]

use crate::memory::{Cond, Mutex, Semaphore};
use crate::{real, thread};
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::Ordering;
use latchwork_interpose::mutexes::kind;

/// Finds the flags of condition variables by letting glibc initialise one. Returns whether they lie outside the
/// replacement's words.
pub(crate) fn finds_flags() -> bool {
    let mut cond = Cond::zeroed();
    // SAFETY: attributes and a condition variable that are local to this function.
    unsafe {
        let mut attributes = MaybeUninit::<libc::pthread_condattr_t>::zeroed();
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
    let mut mutex = MaybeUninit::<Mutex>::zeroed();
    let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::zeroed();
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

/// What of glibc's process-shared objects is as `heal` needs it.
pub(crate) enum Layout {
    AsExpected,
    NoClockLock,
    OtherMutex,
    OtherSemaphore,
}

/// Lets glibc make and lock process-shared objects, and compares them with what `heal` relies on.
pub(crate) fn layout() -> Layout {
    let has_clock_lock = thread::keeping_errno(|| {
        let mut semaphore = Semaphore::zeroed();
        let past = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: objects that are local to this function. `ENOSYS` is the result of a missing function.
        unsafe {
            real::sem_init(&raw mut semaphore, 1, 1);
            let waited =
                real::sem_clockwait(&raw mut semaphore, libc::CLOCK_MONOTONIC, &raw const past);
            real::sem_destroy(&raw mut semaphore);
            waited == 0 && held(0, |_| true)
        }
    });
    if !has_clock_lock {
        return Layout::NoClockLock;
    }
    let me = thread::ask();
    let is_as_expected = |robust: c_int, mutex: &Mutex| {
        let locked = if robust == 0 { 1 } else { me };
        let bits = if robust == 0 { 0 } else { kind::ROBUST };
        mutex.word.load(Ordering::Relaxed) == locked
            && mutex.count.load(Ordering::Relaxed) == 1
            && mutex.owner.load(Ordering::Relaxed) == me
            && mutex.kind() == bits | kind::SHARED | kind::RECURSIVE
            && (robust == 0 || is_announced(mutex))
    };
    if !held(0, |mutex| is_as_expected(0, mutex)) || !held(1, |mutex| is_as_expected(1, mutex)) {
        return Layout::OtherMutex;
    }
    let is_shared = [0, 1].map(|shared| {
        let mut semaphore = Semaphore::zeroed();
        // SAFETY: a semaphore that is local to this function.
        unsafe {
            real::sem_init(&raw mut semaphore, shared, 3);
            let found = (semaphore.is_shared(), semaphore.value());
            real::sem_destroy(&raw mut semaphore);
            found
        }
    });
    if is_shared == [(false, 3), (true, 3)] {
        Layout::AsExpected
    } else {
        Layout::OtherSemaphore
    }
}

/// Locks a recursive, process-shared mutex of glibc's, and returns what `look` finds meanwhile. The waiters bit is set in
/// a robust one. `false` if a call fails, or if the mutex is not free in the end.
fn held(robust: c_int, look: impl Fn(&Mutex) -> bool) -> bool {
    let mut mutex = MaybeUninit::<Mutex>::zeroed();
    let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::zeroed();
    // SAFETY: attributes and a mutex that are local to this function.
    unsafe {
        let attributes = attributes.as_mut_ptr();
        libc::pthread_mutexattr_init(attributes);
        libc::pthread_mutexattr_settype(attributes, libc::PTHREAD_MUTEX_RECURSIVE);
        libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED);
        libc::pthread_mutexattr_setrobust(attributes, robust);
        let mutex = mutex.as_mut_ptr();
        let mut is_fine = real::pthread_mutex_init(mutex, attributes.cast()) == 0;
        libc::pthread_mutexattr_destroy(attributes);
        let never = libc::timespec {
            tv_sec: libc::time_t::MAX,
            tv_nsec: 0,
        };
        is_fine = is_fine
            && real::pthread_mutex_clocklock(mutex, libc::CLOCK_MONOTONIC, &raw const never) == 0;
        if !is_fine {
            return false;
        }
        is_fine = look(&*mutex);
        if is_fine && robust != 0 {
            (*mutex)
                .word
                .fetch_or(libc::FUTEX_WAITERS, Ordering::Relaxed);
        }
        is_fine &= real::pthread_mutex_unlock(mutex) == 0
            && (*mutex).word.load(Ordering::Relaxed) == 0
            && (*mutex).owner.load(Ordering::Relaxed) == 0;
        real::pthread_mutex_destroy(mutex);
        is_fine
    }
}

/// Whether the calling thread's list of robust mutexes begins with this one, and names its word to the kernel.
fn is_announced(mutex: &Mutex) -> bool {
    /// `struct robust_list_head`
    #[repr(C)]
    struct Head {
        first: usize,
        offset: isize,
        pending: usize,
    }
    let mut head = ptr::null::<Head>();
    let mut size = 0_usize;
    // SAFETY: the kernel writes the address that glibc has told it, which stays valid while the thread runs.
    unsafe {
        let result = libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut size);
        if result != 0 || head.is_null() || size != size_of::<Head>() {
            return false;
        }
        let word = (*head).first.wrapping_add_signed((*head).offset);
        (*head).pending == 0 && word == mutex.word.as_ptr().addr()
    }
}
