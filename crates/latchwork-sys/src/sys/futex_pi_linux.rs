//! The futex system calls with priority inheritance.
//!
//! The kernel manages such a word: it holds its owner's ID, [`WAITERS`](crate::mutex::WAITERS) while a task may
//! sleep for it, and [`OWNER_DIED`](crate::mutex::OWNER_DIED). A sleeper lends the owner its priority, along a
//! chain of such sleeps of any length.
#![allow(unsafe_code)]

use super::clock;
use super::futex::{Sharing, call, flags};
use super::futex_pi::Pi;
use super::slow_paths;
use super::thread::timespec;
use crate::atomic::{AtomicU32, Ordering};
use crate::time::Deadline;
use core::ptr;
use core::time::Duration;
use rustix::io::Errno;
use rustix::thread::futex as sys;

fn outcome<T>(result: Result<T, Errno>) -> Pi {
    match result {
        Ok(_) => Pi::Done,
        Err(Errno::AGAIN | Errno::INTR) => Pi::Again,
        Err(Errno::TIMEDOUT) => Pi::TimedOut,
        Err(Errno::DEADLK) => Pi::Deadlock,
        Err(Errno::SRCH) => Pi::OwnerGone,
        Err(Errno::PERM) => Pi::NotOwner,
        Err(Errno::INVAL) => Pi::Inconsistent,
        Err(Errno::NOMEM) => Pi::NoMemory,
        Err(Errno::NOSYS) => Pi::Unsupported,
        // A word that was unmapped under its waiter, or an error that no version of the kernel returns.
        Err(error) => crate::fatal(format_args!("futex with inheritance failed: {error}")),
    }
}

/// Set once the kernel has reported that it lacks FUTEX_LOCK_PI2.
static LACKS_LOCK_PI2: AtomicU32 = AtomicU32::new(0);

/// Makes the calling task the owner of `word`; sleeps until it is.
///
/// [`Pi::Done`]: it is; the kernel has stored its ID in the word. If `OWNER_DIED` is set as well, the last
/// owner died while tasks slept. A signal handler does not end the sleep. The call is a full barrier if the
/// kernel changed the word.
pub fn lock_pi(word: &AtomicU32, sharing: Sharing, deadline: Option<Deadline>) -> Pi {
    slow_paths::inheriting();
    let flags = flags(sharing);
    let Some(deadline) = deadline else {
        return outcome(sys::lock_pi(word, flags, None));
    };
    // Relaxed: the answer is the same for all threads, and a thread that does not see it finds it again.
    if LACKS_LOCK_PI2.load(Ordering::Relaxed) == 0 {
        match outcome(sys::lock_pi2(word, flags, Some(&timespec(deadline)))) {
            // If the kernel lacks all of these calls, the other one reports it.
            Pi::Unsupported => LACKS_LOCK_PI2.store(1, Ordering::Relaxed),
            ended => return ended,
        }
    }
    lock_pi_by_the_wall_clock(word, flags, deadline)
}

/// FUTEX_LOCK_PI uses the wall clock only. Setting that clock moves the end of the sleep: set forward, the loop
/// corrects it; set back, the sleep lasts longer, undetected.
fn lock_pi_by_the_wall_clock(word: &AtomicU32, flags: sys::Flags, deadline: Deadline) -> Pi {
    loop {
        let end = Deadline::from_nanoseconds(clock::wall()).saturating_add(deadline.remaining());
        let ended = outcome(sys::lock_pi(word, flags, Some(&timespec(end))));
        if ended != Pi::TimedOut || deadline.has_passed() {
            return ended;
        }
    }
}

/// As [`lock_pi`], but without sleeping: [`Pi::Again`] if another task owns the word.
pub fn trylock_pi(word: &AtomicU32, sharing: Sharing) -> Pi {
    slow_paths::inheriting();
    match sys::trylock_pi(word, flags(sharing)) {
        Ok(false) => Pi::Again,
        result => outcome(result),
    }
}

/// Passes `word` to the sleeper of the highest priority, in order of arrival among equals, or sets it to 0. A
/// full barrier.
///
/// [`Pi::NotOwner`]: the calling task does not own it, and nothing was changed. After [`Pi::Done`] the word is
/// not accessed any more.
///
/// # Safety
/// `word` is the address of an atomic that the calling task owns until the kernel has passed it on.
pub unsafe fn unlock_pi(word: *const AtomicU32, sharing: Sharing) -> Pi {
    slow_paths::inheriting();
    let operation = libc::FUTEX_UNLOCK_PI;
    // A pointer and not a reference, since the next owner may free the word before this returns.
    // SAFETY: by the caller's contract.
    outcome(unsafe { call(word, operation, sharing, 0, 0, ptr::null(), 0) })
}

/// Whether [`wait_requeue_pi`] and [`cmp_requeue_pi`] are used: not known yet, no, yes.
static REQUEUES: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const NEVER: u32 = 1;
const ALWAYS: u32 = 2;

/// Whether tasks can be requeued to a lock here, by a kernel that is known to do so without bugs.
pub fn can_requeue() -> bool {
    // Relaxed: the answer is the same for all threads, and a thread that does not see it finds it again.
    match REQUEUES.load(Ordering::Relaxed) {
        UNKNOWN => {
            let can = is_good(rustix::system::uname().release().to_bytes())
                && [libc::FUTEX_WAIT_REQUEUE_PI, libc::FUTEX_CMP_REQUEUE_PI]
                    .iter()
                    .all(|operation| {
                        super::errno::keeping(|| super::probe::futex_operation(*operation)).is_ok()
                    });
            REQUEUES.store(if can { ALWAYS } else { NEVER }, Ordering::Relaxed);
            can
        }
        known => known == ALWAYS,
    }
}

/// Whether a release of Linux has none of the known bugs of these calls. Only the version can show that, since a test
/// for a bug would trigger it. The bugs: memory used after it was freed, when a requeue is refused for a deadlock
/// (2.6.39 to 7.0; the first fixes crashed) or races with a time-out (5.15 to 6.16); a notifier that retries for ever
/// in the kernel (5.15 to 7.0). Distributions number their fixes differently, so their kernels go without these calls.
fn is_good(release: &[u8]) -> bool {
    let mut numbers = release.split(|byte| !byte.is_ascii_digit()).map(|digits| {
        let digits = core::str::from_utf8(digits).unwrap_or_default();
        digits.parse::<u32>().unwrap_or(0)
    });
    let mut next = || numbers.next().unwrap_or(0);
    let version = (next(), next(), next());
    version >= (7, 1, 1) || ((6, 18, 36)..(6, 19, 0)).contains(&version)
}

/// The result of one of the calls. If the system forbids them, they are not used from now on.
fn requeued<T>(result: Result<T, Errno>) -> Pi {
    if let Err(Errno::NOSYS | Errno::PERM) = result {
        REQUEUES.store(NEVER, Ordering::Relaxed);
    }
    outcome(result)
}

/// Sleeps while `word`, which is an ordinary futex, holds `expected`, until [`cmp_requeue_pi`] requeues this
/// task to `target`, and then until it owns that.
///
/// [`Pi::Done`]: it owns `target`; after any other result it does not. [`Pi::TimedOut`] does not say on which
/// word it slept.
pub fn wait_requeue_pi(
    word: &AtomicU32,
    expected: u32,
    target: &AtomicU32,
    sharing: Sharing,
    deadline: Option<Deadline>,
) -> Pi {
    slow_paths::inheriting();
    let deadline = deadline.map(timespec);
    let flags = flags(sharing);
    requeued(sys::wait_requeue_pi(
        word,
        flags,
        expected,
        deadline.as_ref(),
        target,
    ))
}

/// Requeues one task that sleeps in [`wait_requeue_pi`] on `word`, and at most `others` more, to `target`. If
/// that is free, the first task owns it at once. Returns the number of tasks.
///
/// [`Pi::Again`]: the word does not hold `expected`.
///
/// # Safety
/// While a task sleeps in [`wait_requeue_pi`] on `word`, `target` is the word that it named. (The kernel writes
/// there only if a task sleeps.)
pub unsafe fn cmp_requeue_pi(
    word: &AtomicU32,
    expected: u32,
    target: *const AtomicU32,
    others: u32,
    sharing: Sharing,
) -> Result<usize, Pi> {
    slow_paths::inheriting();
    let operation = libc::FUTEX_CMP_REQUEUE_PI;
    // SAFETY: by the caller's contract.
    match unsafe { call(word, operation, sharing, 1, others, target, expected) } {
        Ok(sent) => Ok(sent),
        // The word was compared before, so no task sleeps for an address that is no memory (any more).
        Err(Errno::FAULT) => Ok(0),
        refused => Err(requeued(refused)),
    }
}

/// Whether the calling task has a real-time policy of its own. (A task that was lent a priority has not.)
pub fn is_real_time() -> bool {
    [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].contains(&policy())
}

/// Whether the calling thread has `SCHED_DEADLINE`.
pub fn is_deadline_task() -> bool {
    policy() == libc::SCHED_DEADLINE
}

fn policy() -> libc::c_int {
    // SAFETY: no preconditions; 0 is the calling thread.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) } as libc::c_int;
    policy & !libc::SCHED_RESET_ON_FORK
}

/// Lets other tasks of any priority run before the next system call. (Not by a function of libc's that is a
/// cancellation point.)
pub fn let_others_run() {
    super::thread::sleep_until(Deadline::after(Duration::from_micros(100)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomic::AtomicBool;
    use crate::sys::futex_bits::{TID_MASK, WAITERS};
    use crate::sys::thread;

    const FLAG: Sharing = Sharing::Private;

    fn unlock(word: &AtomicU32) -> Pi {
        // SAFETY: the address is that of a reference.
        unsafe { unlock_pi(ptr::from_ref(word), FLAG) }
    }

    /// Runs `body` while another thread owns the word.
    fn while_owned(word: &AtomicU32, body: impl FnOnce()) {
        let (is_owned, done) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(lock_pi(word, FLAG, None), Pi::Done);
                is_owned.store(true, Ordering::Release);
                while !done.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                assert_eq!(unlock(word), Pi::Done);
            });
            while !is_owned.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            body();
            done.store(true, Ordering::Release);
        });
    }

    #[test]
    fn the_kernel_names_the_owner_and_clears_the_word() {
        let word = AtomicU32::new(0);
        assert_eq!(lock_pi(&word, FLAG, None), Pi::Done);
        assert_eq!(word.load(Ordering::Relaxed), thread::thread_id());
        assert_eq!(lock_pi(&word, FLAG, None), Pi::Deadlock);
        assert_eq!(unlock(&word), Pi::Done);
        assert_eq!(trylock_pi(&word, FLAG), Pi::Done);
        assert_eq!(unlock(&word), Pi::Done);
        assert_eq!(unlock(&word), Pi::NotOwner);
        assert_eq!(word.into_inner(), 0);
    }

    #[test]
    fn a_wait_ends_at_its_deadline_by_either_clock() {
        let word = AtomicU32::new(0);
        while_owned(&word, || {
            assert_eq!(trylock_pi(&word, FLAG), Pi::Again);
            let soon = Deadline::after(Duration::from_millis(2));
            assert_eq!(lock_pi(&word, FLAG, Some(soon)), Pi::TimedOut);
            assert!(soon.has_passed());
            let soon = Deadline::after(Duration::from_millis(2));
            assert_eq!(
                lock_pi_by_the_wall_clock(&word, flags(FLAG), soon),
                Pi::TimedOut
            );
            assert!(soon.has_passed());
            assert_eq!(unlock(&word), Pi::NotOwner);
            assert_ne!(word.load(Ordering::Relaxed) & WAITERS, 0);
        });
        assert_eq!(word.into_inner(), 0);
    }

    #[test]
    fn a_dead_owner_is_found() {
        static WORD: AtomicU32 = AtomicU32::new(0);
        let owner = std::thread::spawn(|| assert_eq!(lock_pi(&WORD, FLAG, None), Pi::Done));
        owner.join().unwrap();
        assert_eq!(lock_pi(&WORD, FLAG, None), Pi::OwnerGone);
        assert_ne!(WORD.load(Ordering::Relaxed) & WAITERS, 0);
    }

    #[test]
    fn only_versions_without_the_known_faults_are_good() {
        let good = ["6.18.36", "6.18.44-some-v657", "7.1.1", "7.2.0-rc1", "10.0"];
        let bad = [
            "4.4.0",
            "6.12.0-211.el10",
            "6.18.35",
            "6.19.9",
            "7.1.0-rc3",
            "7.0.20",
            "x",
        ];
        assert!(good.iter().all(|release| is_good(release.as_bytes())));
        assert!(!bad.iter().any(|release| is_good(release.as_bytes())));
    }

    #[test]
    fn a_sleeper_is_sent_on_to_the_lock() {
        if !can_requeue() {
            return;
        }
        let (ticket, word) = (AtomicU32::new(1), AtomicU32::new(0));
        let owned = AtomicU32::new(0);
        assert_eq!(
            wait_requeue_pi(&ticket, 0, &word, FLAG, None),
            Pi::Again,
            "not what was expected"
        );
        let soon = Deadline::after(Duration::from_millis(2));
        assert_eq!(
            wait_requeue_pi(&ticket, 1, &word, FLAG, Some(soon)),
            Pi::TimedOut
        );
        let send = |expected, target: *const AtomicU32| {
            // SAFETY: all tasks that sleep on the ticket name this word.
            unsafe { cmp_requeue_pi(&ticket, expected, target, u32::MAX, FLAG) }
        };
        assert_eq!(send(0, &raw const word), Err(Pi::Again));
        assert_eq!(send(1, ptr::without_provenance(0x1000)), Ok(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while wait_requeue_pi(&ticket, 1, &word, FLAG, None) != Pi::Done {}
                    assert_eq!(word.load(Ordering::Relaxed) & TID_MASK, thread::thread_id());
                    owned.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(unlock(&word), Pi::Done);
                });
            }
            let mut sent = 0;
            while sent < 3 {
                assert_eq!(lock_pi(&word, FLAG, None), Pi::Done);
                sent += send(1, &raw const word).unwrap();
                let before = owned.load(Ordering::Relaxed);
                std::thread::yield_now();
                assert_eq!(owned.load(Ordering::Relaxed), before, "the lock is held");
                assert_eq!(unlock(&word), Pi::Done);
            }
        });
        assert_eq!(owned.into_inner(), 3);
        assert_eq!(word.into_inner(), 0);
    }
}
