//! The C library's mutexes, in every type and protocol, and its reader/writer lock.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;

use libc::{c_int, pthread_mutex_t, pthread_mutexattr_t, pthread_rwlock_t};

use super::{FreeLock, Line, errno};

// The libc crate names these for other systems only.
unsafe extern "C" {
    fn pthread_mutexattr_setprotocol(attr: *mut pthread_mutexattr_t, protocol: c_int) -> c_int;
    fn pthread_mutexattr_setprioceiling(attr: *mut pthread_mutexattr_t, ceiling: c_int) -> c_int;
    fn pthread_mutexattr_setrobust(attr: *mut pthread_mutexattr_t, robust: c_int) -> c_int;
}

/// glibc's PTHREAD_MUTEX_ADAPTIVE_NP.
const ADAPTIVE: c_int = 3;

/// What a mutex is to be.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attributes {
    pub(crate) adaptive: bool,
    pub(crate) robust: bool,
    pub(crate) inherit: bool,
    /// Priority protection with this ceiling.
    pub(crate) ceiling: Option<c_int>,
}

#[repr(C)]
struct MutexAndDatum {
    mutex: UnsafeCell<pthread_mutex_t>,
    datum: UnsafeCell<u64>,
}

/// A `pthread_mutex_t` and what it protects, in a place of their own: a used mutex must not move.
pub(crate) struct Mutex(Box<Line<MutexAndDatum>>);

// SAFETY: a pthread mutex is made for many threads, and `datum` is touched under it only.
unsafe impl Sync for Mutex {}
// SAFETY: the box, and so the mutex, stays where it is when its owner moves between threads.
unsafe impl Send for Mutex {}

impl Mutex {
    pub(crate) fn new(attributes: Attributes) -> io::Result<Self> {
        let mutex = Self(Box::new(Line(MutexAndDatum {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            datum: UnsafeCell::new(0),
        })));
        let mut attr = MaybeUninit::uninit();
        // SAFETY: `attr` is initialised first and destroyed last; the mutex is in its final place.
        unsafe {
            errno(libc::pthread_mutexattr_init(attr.as_mut_ptr()))?;
            let attr = attr.as_mut_ptr();
            let made = (|| {
                if attributes.adaptive {
                    errno(libc::pthread_mutexattr_settype(attr, ADAPTIVE))?;
                }
                if attributes.robust {
                    errno(pthread_mutexattr_setrobust(
                        attr,
                        libc::PTHREAD_MUTEX_ROBUST,
                    ))?;
                }
                if attributes.inherit {
                    errno(pthread_mutexattr_setprotocol(
                        attr,
                        libc::PTHREAD_PRIO_INHERIT,
                    ))?;
                }
                if let Some(ceiling) = attributes.ceiling {
                    errno(pthread_mutexattr_setprotocol(
                        attr,
                        libc::PTHREAD_PRIO_PROTECT,
                    ))?;
                    errno(pthread_mutexattr_setprioceiling(attr, ceiling))?;
                }
                errno(libc::pthread_mutex_init(mutex.0.0.mutex.get(), attr))
            })();
            libc::pthread_mutexattr_destroy(attr);
            made?;
        }
        Ok(mutex)
    }
}

impl FreeLock for Mutex {
    #[inline]
    fn increment(&self) {
        // SAFETY: the mutex was initialised by `new`, the datum is touched under it only.
        unsafe {
            libc::pthread_mutex_lock(self.0.0.mutex.get());
            *self.0.0.datum.get() += 1;
            libc::pthread_mutex_unlock(self.0.0.mutex.get());
        }
    }

    fn check(&self) -> io::Result<()> {
        // SAFETY: the mutex was initialised by `new`, and is unlocked only if it was locked.
        unsafe {
            errno(libc::pthread_mutex_lock(self.0.0.mutex.get()))?;
            errno(libc::pthread_mutex_unlock(self.0.0.mutex.get()))
        }
    }
}

impl Drop for Mutex {
    fn drop(&mut self) {
        // SAFETY: nobody can hold it any more, since every increment borrows it.
        unsafe { libc::pthread_mutex_destroy(self.0.0.mutex.get()) };
    }
}

#[repr(C)]
struct RwLockAndDatum {
    lock: UnsafeCell<pthread_rwlock_t>,
    datum: UnsafeCell<u64>,
}

/// A `pthread_rwlock_t`, locked for writing.
pub(crate) struct RwLock(Box<Line<RwLockAndDatum>>);

// SAFETY: a pthread lock is made for many threads, and `datum` is touched under it only.
unsafe impl Sync for RwLock {}
// SAFETY: the box, and so the lock, stays where it is when its owner moves between threads.
unsafe impl Send for RwLock {}

impl RwLock {
    pub(crate) fn new() -> Self {
        Self(Box::new(Line(RwLockAndDatum {
            lock: UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER),
            datum: UnsafeCell::new(0),
        })))
    }
}

impl FreeLock for RwLock {
    #[inline]
    fn increment(&self) {
        // SAFETY: the lock is statically initialised, the datum is touched under it only.
        unsafe {
            libc::pthread_rwlock_wrlock(self.0.0.lock.get());
            *self.0.0.datum.get() += 1;
            libc::pthread_rwlock_unlock(self.0.0.lock.get());
        }
    }
}

impl Drop for RwLock {
    fn drop(&mut self) {
        // SAFETY: nobody can hold it any more, since every increment borrows it.
        unsafe { libc::pthread_rwlock_destroy(self.0.0.lock.get()) };
    }
}
