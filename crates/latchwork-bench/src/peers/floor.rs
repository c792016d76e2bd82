//! Physical floors: the least that a lock can cost.
#![allow(unsafe_code)]

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, sched_param};

use super::{BELOW_CEILING, CEILING, RawLock, cvt};

/// Two inlined atomic read-modify-writes, without a way to wait. It is not a usable lock: a second task would spin for
/// ever if it preempted the first one.
#[derive(Default)]
pub(crate) struct TwoRmw(AtomicU32);

// SAFETY: one task at a time gets past the exchange.
unsafe impl RawLock for TwoRmw {
    #[inline]
    unsafe fn lock(&self) {
        // Acquire pairs with the Release of the swap below, as in a lock.
        while self
            .0
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            std::hint::spin_loop();
        }
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Release pairs with the Acquire above.
        self.0.swap(0, Ordering::Release);
    }
}

/// A dozen instructions that depend on nothing, and that nothing depends on.
#[inline(always)]
pub(crate) fn dozen_instructions() {
    // SAFETY: they do nothing.
    unsafe {
        std::arch::asm!(
            ".rept 12",
            "nop",
            ".endr",
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// A spinlock: the cost of a hand-over between running tasks. With more tasks than CPUs, it shows how a lock that never
/// sleeps behaves.
#[derive(Default)]
pub(crate) struct Spinning(AtomicU32);

// SAFETY: one task at a time gets past the exchange.
unsafe impl RawLock for Spinning {
    #[inline]
    unsafe fn lock(&self) {
        // Acquire pairs with the Release of the store below.
        while self.0.swap(1, Ordering::Acquire) != 0 {
            // Relaxed: only the swap takes the lock.
            while self.0.load(Ordering::Relaxed) != 0 {
                std::hint::spin_loop();
            }
        }
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Release pairs with the Acquire above.
        self.0.store(0, Ordering::Release);
    }
}

/// The smallest lock that sleeps: a word of three states, and a system call for each wait and each wake-up (U. Drepper,
/// *Futexes are tricky*, mutex 2). For the threads of one process, or for processes.
#[derive(Default)]
pub(crate) struct Futex<const SHARED: bool>(AtomicU32);

impl<const SHARED: bool> Futex<SHARED> {
    const FLAG: c_int = if SHARED { 0 } else { libc::FUTEX_PRIVATE_FLAG };

    fn call(&self, operation: c_int, value: u32) {
        // SAFETY: the word outlives the call; there is no timeout. Whatever ends a wait, the caller reads the word
        // again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                operation | Self::FLAG,
                value,
                ptr::null::<libc::timespec>(),
            )
        };
    }
}

// SAFETY: one task at a time changes the word from 0, and only its holder changes it back.
unsafe impl<const SHARED: bool> RawLock for Futex<SHARED> {
    #[inline]
    unsafe fn lock(&self) {
        // Acquire, here and below, pairs with the Release of the swap in `unlock`.
        if self
            .0
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            while self.0.swap(2, Ordering::Acquire) != 0 {
                self.call(libc::FUTEX_WAIT, 2);
            }
        }
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Release pairs with the Acquires above.
        if self.0.swap(0, Ordering::Release) == 2 {
            self.call(libc::FUTEX_WAKE, 1);
        }
    }
}

/// The smallest lock with direct hand-off, in order of arrival: tickets, and a word with the ticket that is served.
/// Waiters sleep on the word, and each is woken individually. For the threads of one process.
#[derive(Default)]
pub(crate) struct HandOff {
    tickets: AtomicU32,
    serving: AtomicU32,
}

impl HandOff {
    fn call(&self, operation: c_int, value: u32, ticket: u32) {
        // SAFETY: the word outlives the call; there is no timeout. Whatever ends a wait, the caller reads the word
        // again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.serving.as_ptr(),
                operation | libc::FUTEX_PRIVATE_FLAG,
                value,
                ptr::null::<libc::timespec>(),
                ptr::null::<u32>(),
                1_u32 << (ticket % 32),
            )
        };
    }
}

// SAFETY: tickets are distinct, and one is served at a time.
unsafe impl RawLock for HandOff {
    #[inline]
    unsafe fn lock(&self) {
        // SeqCst, throughout: either the holder sees the ticket that was taken, and wakes its task, or this task sees
        // that it is served.
        let ticket = self.tickets.fetch_add(1, Ordering::SeqCst);
        loop {
            let serving = self.serving.load(Ordering::SeqCst);
            if serving == ticket {
                return;
            }
            self.call(libc::FUTEX_WAIT_BITSET, serving, ticket);
        }
    }

    #[inline]
    unsafe fn unlock(&self) {
        let next = self.serving.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        if self.tickets.load(Ordering::SeqCst) != next {
            // All waiters with this bit: if more than 32 wait, there are several.
            self.call(libc::FUTEX_WAKE_BITSET, c_int::MAX as u32, next);
        }
    }
}

/// The cost of raising and restoring the priority, by direct system calls. It locks nothing, and is for one task.
pub(crate) struct PriorityCalls;

impl PriorityCalls {
    #[inline]
    fn change(priority: c_int) -> c_int {
        // SAFETY: a structure of integers. (musl's has further ones, which mean nothing.)
        let mut param: sched_param = unsafe { std::mem::zeroed() };
        param.sched_priority = priority;
        // SAFETY: 0 is the calling thread; `param` lives through the call.
        unsafe {
            libc::syscall(
                libc::SYS_sched_setscheduler,
                0,
                libc::SCHED_FIFO,
                &raw const param,
            ) as c_int
        }
    }
}

// SAFETY: only one task uses it.
unsafe impl RawLock for PriorityCalls {
    #[inline]
    unsafe fn lock(&self) {
        Self::change(CEILING);
    }

    #[inline]
    unsafe fn unlock(&self) {
        Self::change(BELOW_CEILING);
    }

    unsafe fn check(&self) -> io::Result<()> {
        cvt(Self::change(CEILING))?;
        cvt(Self::change(BELOW_CEILING)).map(drop)
    }
}
