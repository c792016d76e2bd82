//! The word of a priority-inheritance lock, a futex of the kernel's: how a task takes it, waits for it and releases it,
//! and what happens when its owner dies. The argument is in [the parent](super).
#![allow(unsafe_code)]

use crate::atomic::{AtomicU32, Ordering, unless_fault};
use crate::backoff::pause;
use crate::mutex::wait_mode::{end_of_nap, is_over};
use crate::mutex::{OWNER_DIED, TID_MASK, WAITERS};
use crate::sharing::Sharing;
use crate::sys::futex_pi::{self, Pi};
use crate::task::Me;
use crate::time::Deadline;
use core::ops::Range;
use core::time::Duration;

/// Why a priority-inheritance lock was not taken. A longer wait would not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InheritFault {
    /// The calling task holds the lock already, or the wait would complete a wait-for cycle through locks of this kind
    /// or pthread's. At least one task of a cycle gets this error. If several complete the cycle at the same moment,
    /// each of them may get it, as may a task that just begins to wait for one of them.
    #[error("waiting for the lock would be a deadlock")]
    Deadlock,
    /// An owner died while it held the lock. The data may be torn; no task gets it any more. (`try_lock` returns this
    /// only after a call that waits has detected the death; until then the lock counts as held. A wait for a condition
    /// variable returns this when it is notified.)
    #[error("an owner of the lock died while it held it")]
    OwnerGone,
    /// The kernel had no memory for the wait. The lock is unchanged; a later call may succeed.
    #[error("the kernel has no memory for the wait")]
    NoMemory,
    /// The kernel, or a sandbox, refuses the system call. A free lock can still be taken.
    #[error("this system has no priority-inheritance futexes")]
    Unsupported,
    /// The lock's memory has a value that no state of the lock has: it was overwritten, or waited for by other means.
    #[error("the lock's memory was overwritten")]
    Corrupt,
}

/// Whether a call took the lock.
pub(in crate::mutex) type Taken = Result<bool, InheritFault>;

/// The word of a lock whose owner died: an ID that no task has (IDs end at 2^22). The kernel lets no task own it or
/// wait for it.
const GONE: u32 = OWNER_DIED | TID_MASK;

/// How long a task sleeps before it reads the word itself: see the parent, *Death of an owner*.
pub(super) const NAP: Duration = Duration::from_secs(1);

/// How many times the kernel is asked again before its report that the memory is inconsistent is taken as true. Where
/// the caller yields in between, this takes some seconds.
const MAX_RETRIES: u32 = 30_000;

/// The calling task's ID. 0 if the thread can have no record; then only the kernel takes and releases the word for it.
pub(super) fn task_id() -> u32 {
    Me::get().map_or(0, Me::tid)
}

/// `ROBUST`: the word is on its owner's robust list, and does not become `GONE` when the owner dies.
#[derive(Clone, Copy)]
pub(in crate::mutex) struct Word<'a, const ROBUST: bool>(pub(in crate::mutex) &'a AtomicU32);

impl Word<'_, true> {
    /// Takes the word if no task has it.
    pub(in crate::mutex) fn take_at_once<S: Sharing>(&self, me: u32) -> Taken {
        // Relaxed: the kernel checks the value again.
        match self.0.load(Ordering::Relaxed) & TID_MASK {
            0 => self.ask(|| futex_pi::trylock_pi(self.0, S::FLAG)).1,
            owner if owner == me => Err(InheritFault::Deadlock),
            _ => Ok(false),
        }
    }
}

impl<const ROBUST: bool> Word<'_, ROBUST> {
    pub(super) fn owner(&self) -> Option<u32> {
        // Relaxed: the answer may be stale before it arrives.
        let tid = self.0.load(Ordering::Relaxed) & TID_MASK;
        (tid != 0 && tid != TID_MASK).then_some(tid)
    }

    /// Takes a free word; returns whether it did.
    #[inline(always)]
    pub(super) fn take_free(&self) -> bool {
        let tid = Me::current_or_none().tid();
        // A thread without a record has the ID 0; its CAS 0→0 would succeed and take nothing.
        tid != 0 && self.take_as(tid)
    }

    #[inline(always)]
    fn take_as(&self, tid: u32) -> bool {
        // Acquire: pairs with the Release in `release`, or the kernel's barrier there.
        let acquire = unless_fault!(InheritLockRelaxed, Ordering::Acquire, Ordering::Relaxed);
        self.0
            .compare_exchange(0, tid, acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Releases the word; aborts if another task owns it. A thread without a record, such as the child of a fork, has
    /// the ID 0: the compare-and-swap then changes nothing, and the kernel reports whether the word is the caller's.
    ///
    /// # Safety
    /// The calling task holds it.
    #[inline(always)]
    pub(super) unsafe fn release<S: Sharing>(&self) {
        let tid = Me::current_or_none().tid();
        // Release: pairs with the Acquire of the next taker.
        let release = unless_fault!(InheritUnlockRelaxed, Ordering::Release, Ordering::Relaxed);
        let freed = unless_fault!(
            InheritUnlockIgnoresSleepers,
            self.0.compare_exchange(tid, 0, release, Ordering::Relaxed),
            Ok(self.0.swap(0, release))
        );
        if freed.is_err() {
            // SAFETY: the caller holds the lock, whose memory is alive until it is released.
            unsafe { release_by_kernel::<S>(core::ptr::from_ref(self.0)) };
        }
    }

    /// Polls the word, with pauses as after `polls.start` pauses, until it has made `polls.end` pauses in all, or the
    /// word has one of the bits `until`.
    pub(super) fn poll(&self, me: u32, polls: Range<u32>, until: u32) -> Taken {
        let mut passed = polls.start;
        while passed < polls.end {
            // Relaxed: only a compare-and-swap takes the word.
            let word = self.0.load(Ordering::Relaxed);
            match word & TID_MASK {
                // Only the kernel can take the word for a task without an ID, or from a dead owner.
                0 if me == 0 || word != 0 => break,
                0 if self.take_as(me) => return Ok(true),
                TID_MASK => return Err(InheritFault::OwnerGone),
                owner if owner == me => return Err(InheritFault::Deadlock),
                _ if word & until != 0 => break,
                _ => passed += pause(passed),
            }
        }
        Ok(false)
    }

    /// Sleeps until this task owns the word, or the deadline has passed.
    pub(super) fn sleep<S: Sharing>(&self, deadline: Option<Deadline>) -> Taken {
        let mut retries = 0;
        loop {
            // Only a word that may become `GONE` must be read again after a nap.
            let end = if ROBUST {
                deadline
            } else {
                end_of_nap(NAP, deadline)
            };
            let (ended, taken) = self.ask(|| futex_pi::lock_pi(self.0, S::FLAG, end));
            if taken? {
                return Ok(true);
            }
            match ended {
                Pi::TimedOut if is_over(deadline) => return Ok(false),
                // The owner is dead, and its heir has not read the word yet.
                Pi::Inconsistent if is_over(deadline) => return Ok(false),
                Pi::Inconsistent if retries == MAX_RETRIES => return Err(InheritFault::Corrupt),
                Pi::Inconsistent => {
                    retries += 1;
                    futex_pi::let_others_run();
                }
                _ => {}
            }
        }
    }

    /// Takes the word if it is free, for a task whose compare-and-swap failed or that has no ID.
    #[cold]
    pub(super) fn try_contended<S: Sharing>(&self) -> Taken {
        let tried = match task_id() {
            0 => self.ask(|| futex_pi::trylock_pi(self.0, S::FLAG)).1,
            me => self.poll(me, 0..1, 0),
        };
        match tried {
            Err(InheritFault::Deadlock) => Ok(false),
            tried => tried,
        }
    }

    /// Asks the kernel for the word. Returns the kernel's answer, and what it means.
    fn ask(&self, call: impl FnOnce() -> Pi) -> (Pi, Taken) {
        // Relaxed: a guess of the owner that the kernel will find.
        let before = self.0.load(Ordering::Relaxed);
        let ended = call();
        if ROBUST && ended == Pi::OwnerGone {
            self.mark_owner_died(before);
        }
        (ended, self.interpret(ended))
    }

    /// The kernel has not found the lock on its dead owner's list: this sets the bits that the kernel would have set.
    /// The word is changed only if it still names that owner: another waiter may have done the same already, and may
    /// have the lock by now.
    #[cold]
    fn mark_owner_died(&self, before: u32) {
        if before & TID_MASK == 0 {
            return;
        }
        // The kernel sets `WAITERS` before it searches for the owner.
        for seen in [before | WAITERS, before] {
            // Relaxed: the bits carry no data.
            let _ = self.0.compare_exchange(
                seen,
                seen & WAITERS | OWNER_DIED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// Interprets an answer of the kernel: the word is taken, not taken yet, or cannot be taken any more.
    pub(super) fn interpret(&self, ended: Pi) -> Taken {
        // Acquire: pairs with the Release, or the kernel's barrier, of the last owner.
        let word = self.0.load(Ordering::Acquire);
        let died = unless_fault!(InheritHidesDeath, OWNER_DIED, 0);
        match ended {
            Pi::Done if ROBUST || word & died == 0 => Ok(true),
            // The last owner died, and this task is its heir.
            Pi::Done => Err(self.mark_gone(word)),
            // Another task may have made it `GONE` meanwhile.
            _ if word & TID_MASK == TID_MASK => Err(InheritFault::OwnerGone),
            // The word is free: the owner was alive, in another PID namespace.
            Pi::OwnerGone if word & TID_MASK == 0 => Ok(false),
            Pi::OwnerGone if ROBUST => Ok(false),
            Pi::OwnerGone => Err(self.mark_gone(word)),
            Pi::Deadlock => Err(InheritFault::Deadlock),
            Pi::NoMemory => Err(InheritFault::NoMemory),
            Pi::Unsupported | Pi::NotOwner => Err(InheritFault::Unsupported),
            Pi::Again | Pi::TimedOut | Pi::Inconsistent => Ok(false),
        }
    }

    /// Makes the lock `GONE`: `word` is that of a dead owner, or of its heir, which is this task.
    #[cold]
    fn mark_gone(&self, mut word: u32) -> InheritFault {
        // Relaxed: the word carries no data any more. Only tasks that begin to wait change it meanwhile.
        while word & TID_MASK != TID_MASK
            && let Err(now) =
                self.0
                    .compare_exchange_weak(word, GONE, Ordering::Relaxed, Ordering::Relaxed)
        {
            word = now;
        }
        #[cfg(loom)]
        futex_pi::end_naps(self.0);
        InheritFault::OwnerGone
    }
}

/// Has the kernel pass a word on; aborts if the calling task does not own it.
///
/// # Safety
/// `word` is the address of a word that the calling task holds.
#[cold]
#[inline(never)]
pub(in crate::mutex) unsafe fn release_by_kernel<S: Sharing>(word: *const AtomicU32) {
    let mut retries = 0;
    loop {
        // SAFETY: the caller holds the word, by this function's contract.
        match unsafe { futex_pi::unlock_pi(word, S::FLAG) } {
            Pi::Done => return,
            Pi::Again => {}
            // The kernel also answers this if a task began to wait while the kernel was about to release a word with
            // `OWNER_DIED`. For a word without `OWNER_DIED` it then answers `Again`.
            Pi::Inconsistent if retries < MAX_RETRIES => retries += 1,
            Pi::NotOwner => crate::fatal(format_args!(
                "unlock of a priority-inheritance mutex by a task that does not hold it (a guard inherited across fork is the parent's)"
            )),
            error => crate::fatal(format_args!(
                "unlock of a priority-inheritance mutex: {error:?}"
            )),
        }
    }
}
