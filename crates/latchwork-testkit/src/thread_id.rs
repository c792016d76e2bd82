//! Threads that a test observes from outside.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicI32, Ordering};
use core::time::Duration;

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

    /// The system call in which the thread sleeps, with its arguments, as the kernel prints it; `running` if it is in
    /// none.
    pub fn call(&self) -> String {
        std::fs::read_to_string(format!("/proc/self/task/{}/syscall", self.number()))
            .unwrap_or_default()
    }

    /// Whether the thread sleeps in a futex call at this moment.
    pub fn is_in_futex(&self) -> bool {
        let call = self.call();
        let number = call.split(' ').next().and_then(|call| call.parse().ok());
        self.is_set()
            && [libc::SYS_futex, libc::SYS_futex_waitv]
                .map(Some)
                .contains(&number)
    }

    /// Waits until the thread sleeps in a futex call. The caller sleeps between its checks: it may own the lock for which the
    /// thread waits, and a waiter for a priority-inheritance futex does not sleep while the owner runs. It spins in the
    /// kernel then, as long as its processor has nothing else to do.
    pub fn wait_until_in_futex(&self) {
        while !self.is_in_futex() {
            std::thread::sleep(Duration::from_millis(1));
        }
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
