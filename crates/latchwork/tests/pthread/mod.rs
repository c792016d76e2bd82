//! pthread's mutex and condition variable, process-shared, behind the least that the bodies need.
#![allow(unsafe_code)]
#![allow(dead_code, reason = "each program uses its part")]

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use latchwork::time::Deadline;

#[cfg(not(target_env = "musl"))]
unsafe extern "C" {
    fn pthread_mutex_clocklock(
        mutex: *mut libc::pthread_mutex_t,
        clock: libc::clockid_t,
        deadline: *const libc::timespec,
    ) -> libc::c_int;
}

fn timespec(deadline: Deadline) -> libc::timespec {
    let nanoseconds = deadline.as_nanoseconds();
    libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as _,
        tv_nsec: (nanoseconds % 1_000_000_000) as _,
    }
}

#[cfg(not(target_env = "musl"))]
unsafe fn lock_until(mutex: *mut libc::pthread_mutex_t, deadline: Deadline) -> libc::c_int {
    let deadline = timespec(deadline);
    // SAFETY: initialised; the deadline is read.
    unsafe { pthread_mutex_clocklock(mutex, libc::CLOCK_MONOTONIC, &raw const deadline) }
}

/// musl's mutexes know the other clock only.
#[cfg(target_env = "musl")]
unsafe fn lock_until(mutex: *mut libc::pthread_mutex_t, deadline: Deadline) -> libc::c_int {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let deadline = now + deadline.remaining();
    let deadline = libc::timespec {
        tv_sec: deadline.as_secs() as _,
        tv_nsec: deadline.subsec_nanos() as _,
    };
    // SAFETY: initialised; the deadline is read.
    unsafe { libc::pthread_mutex_timedlock(mutex, &raw const deadline) }
}

/// To be [initialised](Self::initialise) where it will stay.
pub struct Mutex<T> {
    raw: UnsafeCell<libc::pthread_mutex_t>,
    data: UnsafeCell<T>,
}

// SAFETY: a lock.
unsafe impl<T: Send> Sync for Mutex<T> {}

pub struct Guard<'a, T>(&'a Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(data: T) -> Self {
        Self {
            raw: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            data: UnsafeCell::new(data),
        }
    }

    pub fn initialise(&self) {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: attributes and mutex are ours, and initialised in this order.
        unsafe {
            assert_eq!(libc::pthread_mutexattr_init(attributes.as_mut_ptr()), 0);
            assert_eq!(
                libc::pthread_mutexattr_setpshared(
                    attributes.as_mut_ptr(),
                    libc::PTHREAD_PROCESS_SHARED
                ),
                0
            );
            assert_eq!(
                libc::pthread_mutex_init(self.raw.get(), attributes.as_ptr()),
                0
            );
        }
    }

    fn guard(&self, result: libc::c_int) -> Option<Guard<'_, T>> {
        match result {
            0 => Some(Guard(self)),
            libc::EBUSY | libc::ETIMEDOUT => None,
            error => panic!("pthread mutex: {error}"),
        }
    }

    pub fn lock(&self) -> Guard<'_, T> {
        // SAFETY: initialised.
        self.guard(unsafe { libc::pthread_mutex_lock(self.raw.get()) })
            .expect("a lock without a deadline")
    }

    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // SAFETY: initialised.
        self.guard(unsafe { libc::pthread_mutex_trylock(self.raw.get()) })
    }

    pub fn lock_until(&self, deadline: Deadline) -> Option<Guard<'_, T>> {
        // SAFETY: initialised; the deadline is read.
        self.guard(unsafe { lock_until(self.raw.get(), deadline) })
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: locked.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: locked.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: locked by this thread.
        unsafe { libc::pthread_mutex_unlock(self.0.raw.get()) };
    }
}

/// To be [initialised](Self::initialise) where it will stay.
pub struct Condvar(UnsafeCell<libc::pthread_cond_t>);

// SAFETY: made for several threads.
unsafe impl Sync for Condvar {}

impl Condvar {
    pub fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER))
    }

    pub fn initialise(&self) {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: as for the mutex.
        unsafe {
            assert_eq!(libc::pthread_condattr_init(attributes.as_mut_ptr()), 0);
            assert_eq!(
                libc::pthread_condattr_setpshared(
                    attributes.as_mut_ptr(),
                    libc::PTHREAD_PROCESS_SHARED
                ),
                0
            );
            assert_eq!(
                libc::pthread_condattr_setclock(attributes.as_mut_ptr(), libc::CLOCK_MONOTONIC),
                0
            );
            assert_eq!(
                libc::pthread_cond_init(self.0.get(), attributes.as_ptr()),
                0
            );
        }
    }

    /// Whether it was notified, or woken for no reason, before the deadline.
    pub fn wait<T>(&self, guard: &mut Guard<'_, T>, deadline: Option<Deadline>) -> bool {
        let mutex = guard.0.raw.get();
        let deadline = deadline.map(timespec);
        // SAFETY: both are initialised, and the guard holds the mutex.
        let result = unsafe {
            match deadline {
                None => libc::pthread_cond_wait(self.0.get(), mutex),
                Some(deadline) => {
                    libc::pthread_cond_timedwait(self.0.get(), mutex, &raw const deadline)
                }
            }
        };
        assert!(
            result == 0 || result == libc::ETIMEDOUT,
            "pthread_cond_wait: {result}"
        );
        result == 0
    }

    pub fn notify_one(&self) {
        // SAFETY: initialised.
        unsafe { libc::pthread_cond_signal(self.0.get()) };
    }

    pub fn notify_all(&self) {
        // SAFETY: initialised.
        unsafe { libc::pthread_cond_broadcast(self.0.get()) };
    }
}
