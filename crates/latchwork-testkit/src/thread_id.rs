//! Threads that a test observes from outside.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicI32, Ordering};

/// A thread of this process, as other threads see it: its number, and whether it sleeps.
#[derive(Debug, Default)]
pub struct ThreadId(AtomicI32);

impl ThreadId {
    /// Sets the calling thread.
    pub fn set(&self) {
        // SAFETY: no preconditions.
        self.0.store(unsafe { libc::gettid() }, Ordering::Release);
    }

    /// The kernel's number of the thread; 0 until it is set.
    pub fn number(&self) -> i32 {
        self.0.load(Ordering::Acquire)
    }

    /// Whether the thread is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Whether the thread sleeps in a futex call at this moment.
    pub fn is_in_futex(&self) -> bool {
        let id = self.0.load(Ordering::Acquire);
        let call =
            std::fs::read_to_string(format!("/proc/self/task/{id}/syscall")).unwrap_or_default();
        let number = call.split(' ').next().and_then(|call| call.parse().ok());
        id != 0
            && [libc::SYS_futex, libc::SYS_futex_waitv]
                .map(Some)
                .contains(&number)
    }

    /// Sends the thread a signal. The thread must not have ended.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: the thread is alive: its scope has not ended.
        unsafe {
            libc::syscall(
                libc::SYS_tgkill,
                libc::getpid(),
                self.0.load(Ordering::Acquire),
                signal,
            )
        };
    }
}
