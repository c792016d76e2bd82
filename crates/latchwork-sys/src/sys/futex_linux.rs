//! The futex system calls.
//!
//! Every wait with a deadline uses `FUTEX_WAIT_BITSET`, since it alone takes an absolute deadline on
//! `CLOCK_MONOTONIC`. The functions that wake take a raw pointer: the word may be freed already (after the
//! releasing store the lock's memory belongs to the task that acquired the lock). The kernel responds to a
//! stale address with an error or a spurious wake-up, both harmless.
#![allow(unsafe_code)]
#![allow(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "the kernel alone uses the address of a word to be woken, and checks it"
)]

use super::errno::{keeping, last_error};
use super::futex::{Sharing, Wait};
use super::slow_paths;
use super::thread::timespec;
use crate::atomic::{AtomicU32, AtomicU64};
use crate::time::Deadline;
use core::ptr;
use core::time::Duration;
use rustix::io::Errno;
use rustix::thread::futex as sys;

/// The largest number of words for one [`wait_many`].
pub const WAIT_MANY_MAX: usize = 128;

pub(super) fn flags(sharing: Sharing) -> sys::Flags {
    match sharing {
        Sharing::Private => sys::Flags::PRIVATE,
        Sharing::Shared => sys::Flags::empty(),
    }
}

fn outcome<T>(result: Result<T, Errno>) -> Wait {
    match result {
        Ok(_) | Err(Errno::AGAIN) => Wait::Again,
        Err(Errno::TIMEDOUT) => Wait::TimedOut,
        Err(Errno::INTR) => Wait::Interrupted,
        // Retrying after a permanent error would spin for ever. Such errors are a kernel or sandbox without
        // futexes, or a word that was unmapped under its waiter.
        Err(error) => crate::fatal(format_args!("futex wait failed: {error}")),
    }
}

/// Sleeps while `word` holds `expected`.
pub fn wait(word: &AtomicU32, expected: u32, sharing: Sharing, deadline: Option<Deadline>) -> Wait {
    wait_woken(word, expected, sharing, deadline).0
}

/// As [`wait`]. Also returns whether there was a wake-up.
pub fn wait_woken(
    word: &AtomicU32,
    expected: u32,
    sharing: Sharing,
    deadline: Option<Deadline>,
) -> (Wait, bool) {
    slow_paths::sleep();
    let timeout = deadline.map(timespec);
    let mask = core::num::NonZeroU32::MAX;
    let ended = sys::wait_bitset(word, flags(sharing), expected, timeout.as_ref(), mask);
    (outcome(ended), ended.is_ok())
}

/// Sleeps while `word` holds `expected`, at most for `time`. Reads no clock. A signal handler ends it.
pub fn wait_for(word: &AtomicU32, expected: u32, sharing: Sharing, time: Duration) -> Wait {
    slow_paths::sleep();
    let time = sys::Timespec {
        tv_sec: time.as_secs() as _,
        tv_nsec: time.subsec_nanos() as _,
    };
    outcome(sys::wait(word, flags(sharing), expected, Some(&time)))
}

/// A system call without rustix's types, for addresses that may be stale. It preserves `errno`, since a signal
/// handler may make it.
///
/// # Safety
/// As the operation requires.
pub(super) unsafe fn call(
    word: *const AtomicU32,
    operation: libc::c_int,
    sharing: Sharing,
    count: u32,
    others: u32,
    target: *const AtomicU32,
    last: u32,
) -> Result<usize, Errno> {
    let operation = operation | flags(sharing).bits() as libc::c_int;
    // The kernel reads the counts as signed numbers.
    let [count, others] = [count, others].map(|count| count.min(i32::MAX as u32));
    let (futex, others) = (libc::SYS_futex, others as usize);
    keeping(|| {
        // SAFETY: by the caller's contract.
        let result = unsafe { libc::syscall(futex, word, operation, count, others, target, last) };
        usize::try_from(result).map_err(|_| last_error())
    })
}

/// Wakes at most `count` tasks that sleep on `word`; returns their number.
///
/// Safe for any address: the kernel uses it as a key, and neither reads nor writes the word.
pub fn wake(word: *const AtomicU32, count: u32, sharing: Sharing) -> usize {
    slow_paths::wake();
    // SAFETY: FUTEX_WAKE does not access the memory at `word`.
    let woken = unsafe { call(word, libc::FUTEX_WAKE, sharing, count, 0, ptr::null(), 0) };
    woken.unwrap_or(0)
}

/// The half of a 64-bit word that [`wait_high`] compares.
fn high_half(word: *const AtomicU64) -> *const AtomicU32 {
    let halves: *const AtomicU32 = word.cast();
    halves.wrapping_add(usize::from(cfg!(target_endian = "little")))
}

/// The high half of a 64-bit word, to sleep on: the kernel compares it.
///
/// # Safety
/// The reference is passed to a wait and used for nothing else: an access by it would race with accesses to the whole
/// word.
pub unsafe fn high_word(word: &AtomicU64) -> &AtomicU32 {
    // SAFETY: half of an atomic, aligned; by the caller's contract no access is made through the reference.
    unsafe { &*high_half(word) }
}

/// Sleeps while the high half of `word` is that of `expected`, until a wake-up for one of the bits in `mask`,
/// which is not 0. Also returns whether there was one.
pub fn wait_high(
    word: &AtomicU64,
    expected: u64,
    mask: u32,
    sharing: Sharing,
    deadline: Option<Deadline>,
) -> (Wait, bool) {
    slow_paths::sleep();
    let operation = libc::FUTEX_WAIT_BITSET | flags(sharing).bits() as libc::c_int;
    let timeout = deadline.map(timespec);
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let (futex, half, expected) = (libc::SYS_futex, high_half(word), (expected >> 32) as u32);
    let none = ptr::null::<u8>();
    keeping(|| {
        // SAFETY: the kernel reads half of an atomic, and the time-out.
        let result =
            unsafe { libc::syscall(futex, half, operation, expected, timeout, none, mask) };
        if result == 0 {
            (Wait::Again, true)
        } else {
            (outcome(Err::<(), _>(last_error())), false)
        }
    })
}

/// Wakes at most `count` tasks that sleep in [`wait_high`] for one of the bits in `mask`; returns their number.
/// Safe for any address, as [`wake`].
pub fn wake_high(word: *const AtomicU64, count: u32, mask: u32, sharing: Sharing) -> usize {
    slow_paths::wake();
    let (half, operation) = (high_half(word), libc::FUTEX_WAKE_BITSET);
    // SAFETY: FUTEX_WAKE_BITSET does not access the memory at the address.
    let woken = unsafe { call(half, operation, sharing, count, 0, ptr::null(), mask) };
    woken.unwrap_or(0)
}

/// If `word` holds `expected`, wakes at most `count` tasks that sleep on it, and requeues the others to
/// `target`, as if they had gone to sleep there. Returns the number of tasks woken or requeued, or `None` if
/// the word holds another value.
///
/// Safe for any target: the kernel only uses it as a key.
pub fn wake_and_requeue(
    word: &AtomicU32,
    expected: u32,
    count: u32,
    target: *const AtomicU32,
    sharing: Sharing,
) -> Option<usize> {
    slow_paths::wake();
    let operation = libc::FUTEX_CMP_REQUEUE;
    // SAFETY: FUTEX_CMP_REQUEUE reads the word, which is an atomic, and does not access the target.
    let moved = unsafe { call(word, operation, sharing, count, u32::MAX, target, expected) };
    match moved {
        Ok(moved) => Some(moved),
        Err(Errno::AGAIN) => None,
        Err(error) => crate::fatal(format_args!("futex requeue failed: {error}")),
    }
}

/// Sets `word` to 0 and wakes all its sleepers in one system call. No kill comes between the two, and a task
/// cannot go to sleep on the old value in between. The store is at least a Release: the kernel's exchange is a
/// full barrier. After the call the word is not accessed any more.
pub fn clear_and_wake_all(word: &AtomicU32, sharing: Sharing) {
    slow_paths::wake();
    // FUTEX_OP_SET 0, and FUTEX_OP_CMP_EQ 0 for a second wake-up, which is not needed.
    let nothing_more = 0;
    let operation = libc::FUTEX_WAKE_OP;
    // SAFETY: the kernel stores to the word, which is an atomic.
    let woken = unsafe { call(word, operation, sharing, u32::MAX, 0, word, nothing_more) };
    if let Err(error) = woken {
        crate::fatal(format_args!("futex wake failed: {error}"));
    }
}

/// One word of a [`wait_many`].
pub type WaitWord = sys::Wait;

/// Waits while a shared `word` holds `expected`. The word must stay mapped during the wait; if it is unmapped,
/// the kernel returns an error.
pub fn shared_word(word: &AtomicU32, expected: u32) -> WaitWord {
    let mut wait = sys::Wait::new();
    wait.val = u64::from(expected);
    wait.uaddr = sys::WaitPtr::new(ptr::from_ref(word).cast_mut().cast());
    wait.flags = sys::WaitFlags::SIZE_U32;
    wait
}

/// The longest sleep on several words where `futex_waitv` is missing. (`CONTRACT.md` states it.)
pub const NAP_ON_ONE: Duration = Duration::from_millis(50);

/// Sleeps while every word holds its expected value. At least one and at most [`WAIT_MANY_MAX`] words. Also returns the
/// index of a word on which there was a wake-up; of several, the highest.
///
/// Linux before 5.16 has no call for this, and a sandbox may refuse it (as the default one of Podman 4.3 does, whatever the
/// kernel). The thread then sleeps on the word `main` alone, and for [`NAP_ON_ONE`] at most, after which the result is
/// `Wait::Again`: the caller checks all of its words then, as after each wake-up. So what happens at another word is noticed
/// that much later.
pub fn wait_many(
    words: &[WaitWord],
    main: usize,
    deadline: Option<Deadline>,
) -> (Wait, Option<usize>) {
    slow_paths::sleep();
    let timeout = deadline.map(timespec);
    let (flags, clock) = (sys::WaitvFlags::empty(), sys::ClockId::Monotonic);
    let ended = sys::waitv(words, flags, timeout.as_ref(), clock);
    match ended {
        Ok(_) | Err(Errno::AGAIN | Errno::TIMEDOUT | Errno::INTR) => (outcome(ended), ended.ok()),
        // A sandbox chooses its error. (If the kernel could not read a word, the nap will tell.)
        Err(_) => {
            let (ended, woken) = nap_on(&words[main], deadline);
            (ended, woken.then_some(main))
        }
    }
}

/// The sleep on one word in place of several.
fn nap_on(word: &WaitWord, deadline: Option<Deadline>) -> (Wait, bool) {
    let end = Deadline::after(NAP_ON_ONE);
    let until = deadline.map_or(end, |deadline| deadline.min(end));
    let operation = libc::FUTEX_WAIT_BITSET;
    let (futex, none, all) = (libc::SYS_futex, ptr::null::<u8>(), u32::MAX);
    let (at, value, timeout) = (word.uaddr.ptr, word.val as u32, timespec(until));
    let result = keeping(|| {
        // SAFETY: the kernel reads the word, if it is mapped, and the time-out.
        let result =
            unsafe { libc::syscall(futex, at, operation, value, &raw const timeout, none, all) };
        if result == 0 {
            Ok(())
        } else {
            Err(last_error())
        }
    });
    match outcome(result) {
        Wait::TimedOut if deadline.is_none_or(|deadline| end < deadline) => (Wait::Again, false),
        ended => (ended, result.is_ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_returns_at_once_when_the_word_differs() {
        let word = AtomicU32::new(1);
        assert_eq!(wait(&word, 0, Sharing::Private, None), Wait::Again);
        assert_eq!(wait_many(&[shared_word(&word, 0)], 0, None).0, Wait::Again);
    }

    #[test]
    fn waits_end_at_their_deadline() {
        let word = AtomicU32::new(0);
        let deadline = Deadline::after(Duration::from_millis(2));
        assert_eq!(
            wait(&word, 0, Sharing::Shared, Some(deadline)),
            Wait::TimedOut
        );
        assert!(deadline.has_passed());
        let deadline = Deadline::after(Duration::from_millis(2));
        assert_eq!(
            wait_many(&[shared_word(&word, 0)], 0, Some(deadline)).0,
            Wait::TimedOut
        );
        assert!(deadline.has_passed());
    }

    #[test]
    fn a_word_is_cleared_as_its_sleepers_are_woken() {
        let word = AtomicU32::new(u32::MAX);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while wait(&word, u32::MAX, Sharing::Shared, None) == Wait::Interrupted {}
                });
            }
            clear_and_wake_all(&word, Sharing::Shared);
        });
        assert_eq!(word.into_inner(), 0);
    }

    #[test]
    fn sleepers_are_sent_on_and_woken_where_they_are_then() {
        let (word, target) = (AtomicU32::new(1), AtomicU32::new(0));
        let send = |expected| wake_and_requeue(&word, expected, 1, &raw const target, FLAG);
        const FLAG: Sharing = Sharing::Private;
        assert_eq!(send(0), None);
        assert_eq!(send(1), Some(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| while wait(&word, 1, FLAG, None) == Wait::Interrupted {});
            }
            let mut moved = 0;
            while moved < 3 {
                moved += send(1).unwrap_or(0);
                std::thread::yield_now();
            }
            // Each call of `send` woke the first sleeper.
            word.store(2, crate::atomic::Ordering::Relaxed);
            wake(&raw const target, u32::MAX, FLAG);
        });
    }

    /// A signal handler may notify.
    #[test]
    fn a_call_that_is_refused_leaves_errno_alone() {
        let word = AtomicU32::new(0);
        // SAFETY: the address is that of this thread's `errno`.
        unsafe { *libc::__errno_location() = 42 };
        assert_eq!(
            wake_and_requeue(&word, 1, 1, &raw const word, Sharing::Private),
            None
        );
        assert_eq!(wake(ptr::without_provenance(1), 1, Sharing::Private), 0);
        assert_eq!(last_error().raw_os_error(), 42);
    }

    #[test]
    fn waking_a_stale_address_is_harmless() {
        let stale = ptr::without_provenance(0x1000);
        assert_eq!(wake(stale, 1, Sharing::Shared), 0);
        let word = AtomicU32::new(0);
        assert_eq!(
            wake_and_requeue(&word, 0, 1, stale, Sharing::Private),
            Some(0)
        );
    }
}
