//! The C library's mutexes, in every type and protocol, and its reader/writer lock.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;

use latchwork::time::Deadline;
use libc::{
    c_int, clockid_t, pthread_mutex_t, pthread_mutexattr_t, pthread_rwlock_t, pthread_rwlockattr_t,
    timespec,
};

use super::sched::timespec_of;
use super::{Lock, RawLock, RwLock, errno};

// The libc crate declares these for other systems only.
unsafe extern "C" {
    fn pthread_mutexattr_setprotocol(attr: *mut pthread_mutexattr_t, protocol: c_int) -> c_int;
    fn pthread_mutexattr_setprioceiling(attr: *mut pthread_mutexattr_t, ceiling: c_int) -> c_int;
    fn pthread_mutexattr_setrobust(attr: *mut pthread_mutexattr_t, robust: c_int) -> c_int;
    fn pthread_mutex_clocklock(
        mutex: *mut pthread_mutex_t,
        clock: clockid_t,
        deadline: *const timespec,
    ) -> c_int;
    fn pthread_rwlockattr_setkind_np(attr: *mut pthread_rwlockattr_t, kind: c_int) -> c_int;
}

/// glibc's PTHREAD_MUTEX_ADAPTIVE_NP.
const ADAPTIVE: c_int = 3;
/// glibc's PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP.
const PREFER_WRITERS: c_int = 2;

/// The attributes of a mutex.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes {
    pub(crate) adaptive: bool,
    pub(crate) robust: bool,
    pub(crate) inherit: bool,
    /// Priority protection with this ceiling.
    pub(crate) ceiling: Option<c_int>,
    /// Whether it is process-shared.
    pub(crate) shared: bool,
}

impl Attributes {
    /// The default attributes.
    pub(crate) const NORMAL: Self = Self {
        adaptive: false,
        robust: false,
        inherit: false,
        ceiling: None,
        shared: false,
    };

    fn apply(self, attr: *mut pthread_mutexattr_t) -> io::Result<()> {
        // SAFETY: `attr` is initialised.
        unsafe {
            if self.adaptive {
                errno(libc::pthread_mutexattr_settype(attr, ADAPTIVE))?;
            }
            if self.robust {
                let robust = libc::PTHREAD_MUTEX_ROBUST;
                errno(pthread_mutexattr_setrobust(attr, robust))?;
            }
            if self.inherit {
                let inherit = libc::PTHREAD_PRIO_INHERIT;
                errno(pthread_mutexattr_setprotocol(attr, inherit))?;
            }
            if let Some(ceiling) = self.ceiling {
                let protect = libc::PTHREAD_PRIO_PROTECT;
                errno(pthread_mutexattr_setprotocol(attr, protect))?;
                errno(pthread_mutexattr_setprioceiling(attr, ceiling))?;
            }
            if self.shared {
                let shared = libc::PTHREAD_PROCESS_SHARED;
                errno(libc::pthread_mutexattr_setpshared(attr, shared))?;
            }
        }
        Ok(())
    }
}

/// A `pthread_mutex_t`.
#[repr(C)]
pub(crate) struct Mutex {
    mutex: UnsafeCell<pthread_mutex_t>,
    attributes: Attributes,
}

// SAFETY: a pthread mutex is made for use by many threads.
unsafe impl Sync for Mutex {}
// SAFETY: it is moved between threads only before it is used.
unsafe impl Send for Mutex {}

impl Mutex {
    pub(crate) fn new(attributes: Attributes) -> Self {
        Self {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            attributes,
        }
    }
}

// SAFETY: a mutex provides mutual exclusion between `lock` and `unlock`.
unsafe impl RawLock for Mutex {
    const BYTES: usize = size_of::<pthread_mutex_t>();

    unsafe fn settle(&self) -> io::Result<()> {
        let mut attr = MaybeUninit::uninit();
        // SAFETY: `attr` is initialised first and destroyed last; the mutex is in its final place.
        unsafe {
            errno(libc::pthread_mutexattr_init(attr.as_mut_ptr()))?;
            let attr = attr.as_mut_ptr();
            let made = (self.attributes.apply(attr))
                .and_then(|()| errno(libc::pthread_mutex_init(self.mutex.get(), attr)));
            libc::pthread_mutexattr_destroy(attr);
            made
        }
    }

    #[inline]
    unsafe fn lock(&self) {
        // SAFETY: `settle` initialised it.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: `settle` initialised it, and the caller holds it.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }

    unsafe fn check(&self) -> io::Result<()> {
        // SAFETY: `settle` initialised it; it is unlocked only if it was locked.
        unsafe {
            errno(libc::pthread_mutex_lock(self.mutex.get()))?;
            errno(libc::pthread_mutex_unlock(self.mutex.get()))
        }
    }

    unsafe fn lock_until(&self, deadline: Deadline) -> io::Result<bool> {
        let deadline = timespec_of(deadline);
        let clock = libc::CLOCK_MONOTONIC;
        // SAFETY: `settle` initialised it; `deadline` outlives the call.
        match unsafe { pthread_mutex_clocklock(self.mutex.get(), clock, &raw const deadline) } {
            libc::ETIMEDOUT => Ok(false),
            code => errno(code).map(|()| true),
        }
    }
}

impl Drop for Mutex {
    fn drop(&mut self) {
        // SAFETY: it is not held, since every guard borrows it.
        unsafe { libc::pthread_mutex_destroy(self.mutex.get()) };
    }
}

/// A `pthread_rwlock_t` with a datum; readers come first, or writers.
#[repr(C)]
pub(crate) struct ReadWrite<const WRITERS_FIRST: bool> {
    lock: UnsafeCell<pthread_rwlock_t>,
    datum: UnsafeCell<u64>,
}

// SAFETY: a pthread lock is made for use by many threads, and `datum` is accessed only under it.
unsafe impl<const WRITERS_FIRST: bool> Sync for ReadWrite<WRITERS_FIRST> {}
// SAFETY: it is moved between threads only before it is used.
unsafe impl<const WRITERS_FIRST: bool> Send for ReadWrite<WRITERS_FIRST> {}

impl<const WRITERS_FIRST: bool> ReadWrite<WRITERS_FIRST> {
    pub(crate) fn new() -> Self {
        Self {
            lock: UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER),
            datum: UnsafeCell::new(0),
        }
    }
}

impl<const WRITERS_FIRST: bool> RwLock for ReadWrite<WRITERS_FIRST> {
    type Reading<'a> = Reading<'a>;
    type Writing<'a> = Writing<'a>;

    fn settle(self: Pin<&Self>) -> io::Result<()> {
        let mut attr = MaybeUninit::uninit();
        // SAFETY: `attr` is initialised first and destroyed last; the lock is in its final place.
        unsafe {
            errno(libc::pthread_rwlockattr_init(attr.as_mut_ptr()))?;
            let attr = attr.as_mut_ptr();
            let kind = if WRITERS_FIRST { PREFER_WRITERS } else { 0 };
            let made = errno(pthread_rwlockattr_setkind_np(attr, kind))
                .and_then(|()| errno(libc::pthread_rwlock_init(self.lock.get(), attr)));
            libc::pthread_rwlockattr_destroy(attr);
            made
        }
    }

    #[inline]
    fn read<'a>(self: Pin<&'a Self>) -> Reading<'a> {
        let lock = &self.get_ref().lock;
        // SAFETY: it is initialised statically, or by `settle`. (The number of readers is far below its maximum.)
        unsafe { libc::pthread_rwlock_rdlock(lock.get()) };
        // SAFETY: read-locked, so the datum does not change until the guard unlocks.
        Reading(lock, unsafe { &*self.get_ref().datum.get() })
    }

    #[inline]
    fn write<'a>(self: Pin<&'a Self>) -> Writing<'a> {
        let lock = &self.get_ref().lock;
        // SAFETY: it is initialised statically, or by `settle`.
        unsafe { libc::pthread_rwlock_wrlock(lock.get()) };
        // SAFETY: write-locked, so no other task accesses the datum until the guard unlocks.
        Writing(lock, unsafe { &mut *self.get_ref().datum.get() })
    }
}

/// Locks always for writing.
impl<const WRITERS_FIRST: bool> Lock for ReadWrite<WRITERS_FIRST> {
    type Held<'a> = Writing<'a>;

    const BYTES: usize = size_of::<pthread_rwlock_t>();

    fn settle(self: Pin<&Self>) -> io::Result<()> {
        RwLock::settle(self)
    }

    #[inline]
    fn lock<'a>(self: Pin<&'a Self>) -> Writing<'a> {
        self.write()
    }
}

impl<const WRITERS_FIRST: bool> Drop for ReadWrite<WRITERS_FIRST> {
    fn drop(&mut self) {
        // SAFETY: it is not held, since every guard borrows it.
        unsafe { libc::pthread_rwlock_destroy(self.lock.get()) };
    }
}

pub(crate) struct Reading<'a>(&'a UnsafeCell<pthread_rwlock_t>, &'a u64);

impl Deref for Reading<'_> {
    type Target = u64;

    #[inline]
    fn deref(&self) -> &u64 {
        self.1
    }
}

impl Drop for Reading<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: read-locked until here.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }
}

pub(crate) struct Writing<'a>(&'a UnsafeCell<pthread_rwlock_t>, &'a mut u64);

impl Deref for Writing<'_> {
    type Target = u64;

    #[inline]
    fn deref(&self) -> &u64 {
        self.1
    }
}

impl DerefMut for Writing<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut u64 {
        self.1
    }
}

impl Drop for Writing<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: write-locked until here.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }
}
