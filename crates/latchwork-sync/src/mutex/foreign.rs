//! The locks of this crate in memory that another library has laid out: for an interposer, which keeps their words in
//! that library's mutex. Not for programs.
//!
//! The differences to the locks themselves: the caller passes its thread ID, since its thread may have no record and
//! must get none (the caller may be an allocator). The owner may lock a mutex again, and then waits. Another task may
//! release a mutex. No call aborts. The argument of each lock is in the lock's own module.
#![allow(unsafe_code)]
#![allow(missing_docs, reason = "hidden")]

use super::inherit::{Gate as InheritGate, Way, Word};
use super::throughput::{DEFAULT, Foreign, Gate, Words, is_outside, take};
use super::{InheritFault, Patience, TID_MASK, WAITERS, WaitWake};
use crate::atomic::{AtomicU32, Ordering};
use crate::sharing::Private;
use crate::sys::futex::{self, Sharing};
use crate::sys::futex_pi::{self, Pi};
use crate::sys::proc_file;
use crate::time::Deadline;
use core::marker::PhantomData;

/// A throughput lock: it is held if `word` has a task's ID.
#[derive(Clone, Copy)]
pub struct Throughput<'a> {
    pub word: &'a AtomicU32,
    pub gate: &'a AtomicU32,
    pub request: &'a AtomicU32,
    /// What the lock has learned of whether polls pay; zero at first.
    pub mood: &'a AtomicU32,
}

impl Throughput<'_> {
    /// Takes the lock for the task `me`, free or held; returns false once the deadline has passed.
    #[cold]
    #[inline(never)]
    pub fn lock_contended(self, me: u32, deadline: Option<Deadline>) -> bool {
        let words = Words::<Private, Foreign, false> {
            word: self.word,
            gate: Gate::of(self.gate),
            request: self.request,
            threshold: &DEFAULT,
            counts: Foreign::of(self.mood),
            sharing: PhantomData,
        };
        words.lock(me, Patience::until(deadline)).is_ok()
    }

    /// Takes the lock if no task has it, and it is not reserved for a top waiter.
    #[must_use]
    pub fn try_lock(self, me: u32) -> bool {
        // Relaxed: the compare-and-swap checks the value again.
        let word = self.word.load(Ordering::Relaxed);
        let top_waiter = || self.gate.load(Ordering::Relaxed) & TID_MASK;
        // In the child of a fork the word may be reserved for a task that only the parent has.
        let is_for_all = || word != WAITERS || top_waiter() == 0 || is_outside(top_waiter());
        word & TID_MASK == 0 && is_for_all() && take(self.word, me, word)
    }

    /// Releases the lock when it may have waiters, or another task has taken it.
    #[cold]
    #[inline(never)]
    pub fn unlock_contended(self) {
        let address = core::ptr::from_ref(self.word);
        // Release: pairs with the Acquire in `take`. Relaxed: an unlock that misses the request leaves it to the next
        // one.
        if self.request.load(Ordering::Relaxed) != 0 {
            self.request.store(0, Ordering::Relaxed);
            self.word.swap(WAITERS, Ordering::Release);
            futex::wake(address, 1, Sharing::Private);
        } else if self.word.swap(0, Ordering::Release) & WAITERS != 0 {
            futex::wake(address, u32::MAX, Sharing::Private);
        }
    }
}

/// A word as a wait-wake lock.
#[must_use]
pub fn wait_wake(word: &AtomicU32) -> &WaitWake {
    // SAFETY: `WaitWake` is `repr(transparent)` over an `AtomicU32`, and the lifetime stays the same.
    unsafe { &*core::ptr::from_ref(word).cast() }
}

/// A priority-inheritance lock: it is held if `word` has a task's ID.
#[derive(Clone, Copy)]
pub struct Inherit<'a> {
    pub word: &'a AtomicU32,
    pub gate: &'a AtomicU32,
}

/// The owner of an inheriting lock, another thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherOwner {
    /// It runs.
    Running(u32),
    /// It is ending: a thread may have joined it, but the kernel still knows it.
    Ending(u32),
}

impl Inherit<'_> {
    fn word(&self) -> &Word {
        // SAFETY: `Word` is `repr(transparent)` over an `AtomicU32`, and the lifetime stays the same.
        unsafe { &*core::ptr::from_ref(self.word).cast() }
    }

    /// Takes the lock for the task `me`, free or held; returns false once the deadline has passed.
    ///
    /// # Errors
    /// See [`InheritFault`].
    #[cold]
    #[inline(never)]
    pub fn lock_contended(self, me: u32, deadline: Option<Deadline>) -> Result<bool, InheritFault> {
        Way::<Private, false>::new(self.word(), InheritGate::of(self.gate)).go(me, deadline)
    }

    /// The owner, if it is another thread of this process than `me`.
    #[cold]
    #[must_use]
    pub fn other_owner(self, me: u32) -> Option<OtherOwner> {
        // Relaxed: the caller knows that the owner does not release the lock meanwhile.
        let owner = self.word.load(Ordering::Relaxed) & TID_MASK;
        if owner == me || owner == 0 || owner == TID_MASK || is_outside(owner) {
            return None;
        }
        if proc_file::is_ending(owner) {
            return Some(OtherOwner::Ending(owner));
        }
        // The thread may have ended between the two questions.
        (!is_outside(owner)).then_some(OtherOwner::Running(owner))
    }

    /// Releases the lock of a thread that is ending; returns false, and changes nothing, if a task waits, or the lock
    /// is another task's by now. (With waiters the kernel may be about to pass the lock on, as it does when the owner
    /// ends.)
    #[must_use]
    pub fn unlock_of_ending(self, owner: u32) -> bool {
        self.word
            // Release: pairs with the Acquire of the task that takes it.
            .compare_exchange(owner, 0, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Releases the lock where the fast path failed: the word was not `me` without waiters. Returns false if the lock
    /// belongs to another task and has waiters: only its owner can pass it on. (In the child of a fork, the lock of a
    /// thread that only the parent has may have waiters; they detect that when their nap ends.)
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn unlock_contended(self, me: u32) -> bool {
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & TID_MASK == me && word & WAITERS != 0 {
                // SAFETY: the word belongs to the caller's lock, which is alive until this call returns.
                match unsafe {
                    futex_pi::unlock_pi(core::ptr::from_ref(self.word), Sharing::Private)
                } {
                    Pi::Done => return true,
                    Pi::Again | Pi::Inconsistent => futex_pi::let_others_run(),
                    _ => return false,
                }
            } else if word & WAITERS != 0 && !is_outside(word & TID_MASK) {
                return false;
            } else if self
                .word
                // Release: pairs with the Acquire of the task that takes it.
                .compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed)
                .is_ok()
            {
                return true;
            }
        }
    }
}

/// Writes the place of an instruction to which a call of this process returns, for a message: the file, the offset in
/// it, and the function.
#[cold]
pub fn write_place(return_address: usize, to: &mut impl core::fmt::Write) -> core::fmt::Result {
    crate::sys::introspect::write_place(crate::sys::thread::process_id(), return_address as u64, to)
}

/// Gives back the thread-specific key (`pthread_key_create`) that this library creates when it is loaded: the locks in
/// this module need no record of their thread, so the program can have all keys. (The key is created when a thread
/// needs a record.)
///
/// # Safety
/// No thread has joined a region through this copy of the library, or taken one of its robust locks, and none does so
/// before the call returns. This call deletes the key: its destructor does not run at the end of such a thread, and
/// what the thread leaves is treated as a dead owner's.
pub unsafe fn take_no_key() {
    // SAFETY: by the caller's contract no thread uses the key.
    unsafe { crate::sys::thread_end::create_key_later() };
}
