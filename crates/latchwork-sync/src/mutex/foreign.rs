//! The locks of this crate in memory that another library has laid out, for an interposer: it keeps the words of the
//! locks in that library's mutex. Not for programs.
//!
//! The differences to the locks themselves: the caller passes its thread ID, since its thread may have no record and
//! must get none (the caller may be an allocator). The owner may lock a mutex again, and then waits. Another task may
//! release a mutex. No call aborts. The argument of each lock is in the lock's own module.
#![allow(unsafe_code)]
#![allow(missing_docs, reason = "hidden")]

use super::inherit::{PiGate, Word, lock_slowly};
use super::throughput::{DEFAULT, Foreign, Gate, Words, is_not_in_process, release_contended};
use super::{InheritFault, TID_MASK, WAITERS, WaitMode, WaitWake};
use crate::atomic::{AtomicU32, Ordering};
use crate::sharing::Private;
use crate::sys::futex::Sharing;
use crate::sys::futex_pi::{self, Pi};
use crate::sys::proc_file;
use crate::time::Deadline;
use core::marker::PhantomData;

/// The words of a throughput lock. It is held if `word` has a task's ID.
#[derive(Clone, Copy)]
pub struct ThroughputWords<'a> {
    pub word: &'a AtomicU32,
    pub gate: &'a AtomicU32,
    pub request: &'a AtomicU32,
    /// What the lock has learned of whether polls pay; zero at first.
    pub polls_learned: &'a AtomicU32,
}

impl ThroughputWords<'_> {
    fn words(&self) -> Words<'_, Private, Foreign, false> {
        Words {
            word: self.word,
            gate: Gate(self.gate),
            request: self.request,
            threshold: &DEFAULT,
            counts: Foreign::from_word(self.polls_learned),
            sharing: PhantomData,
        }
    }

    /// Acquires the lock for the task `me`, free or held; returns false once the deadline has passed.
    #[cold]
    #[inline(never)]
    pub fn lock_contended(self, me: u32, deadline: Option<Deadline>) -> bool {
        self.words().lock(me, WaitMode::until(deadline)).is_ok()
    }

    /// Acquires the lock if no task has it, and it is not reserved for a top waiter.
    #[must_use]
    pub fn try_lock(self, me: u32) -> bool {
        self.words().try_lock(me)
    }

    /// Releases a lock that may have waiters, or that another task has taken.
    #[cold]
    #[inline(never)]
    pub fn unlock_contended(self) {
        release_contended::<Private, false>(self.word, self.request);
    }
}

/// The wait-wake lock that consists of this word.
#[must_use]
pub fn wait_wake(word: &AtomicU32) -> &WaitWake {
    // SAFETY: `WaitWake` is `repr(transparent)` over an `AtomicU32`, and the lifetime stays the same.
    unsafe { &*core::ptr::from_ref(word).cast() }
}

/// The words of a priority-inheritance lock. It is held if `word` has a task's ID.
#[derive(Clone, Copy)]
pub struct InheritWords<'a> {
    pub word: &'a AtomicU32,
    pub gate: &'a AtomicU32,
}

/// The thread that owns a priority-inheritance lock, if it is another thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerThread {
    /// The thread has not begun to exit.
    Running(u32),
    /// The thread is exiting: another thread may have joined it, but the kernel still knows its ID.
    Exiting(u32),
}

impl InheritWords<'_> {
    /// Acquires the lock for the task `me`, free or held; returns false once the deadline has passed.
    ///
    /// # Errors
    /// See [`InheritFault`].
    #[cold]
    #[inline(never)]
    pub fn lock_contended(self, me: u32, deadline: Option<Deadline>) -> Result<bool, InheritFault> {
        lock_slowly::<Private, false>(Word(self.word), PiGate(self.gate), me, deadline)
    }

    /// The owner, if it is another thread of this process than `me`.
    #[cold]
    #[must_use]
    pub fn owner_thread(self, me: u32) -> Option<OwnerThread> {
        // Relaxed: the caller knows that the owner does not release the lock meanwhile.
        let owner = self.word.load(Ordering::Relaxed) & TID_MASK;
        if owner == me || owner == 0 || owner == TID_MASK || is_not_in_process(owner) {
            return None;
        }
        if proc_file::is_ending(owner) {
            return Some(OwnerThread::Exiting(owner));
        }
        // The thread may have ended between the first check and this one.
        (!is_not_in_process(owner)).then_some(OwnerThread::Running(owner))
    }

    /// Releases the lock of a thread that is exiting. Returns false, and changes nothing, if a task waits, or another
    /// task has the lock by now. (With waiters the kernel may be about to pass the lock on, as it does when the owner
    /// ends.)
    #[must_use]
    pub fn unlock_of_exiting(self, owner: u32) -> bool {
        self.word
            // Release: pairs with the Acquire of the task that takes it.
            .compare_exchange(owner, 0, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Releases the lock after the fast path has failed: the word was not exactly `me`. Returns false if the lock
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
            } else if word & WAITERS != 0 && !is_not_in_process(word & TID_MASK) {
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

/// Writes the location in the code to which a call of this process returns, for a message: the file, the offset in it,
/// and the function.
#[cold]
pub fn write_code_location(
    return_address: usize,
    to: &mut impl core::fmt::Write,
) -> core::fmt::Result {
    crate::sys::introspect::write_place(crate::sys::thread::process_id(), return_address as u64, to)
}

/// Deletes the thread-specific key (`pthread_key_create`) that this library creates when it is loaded: the locks in
/// this module need no record of their thread, so the program can have all keys. (The key is created again when a
/// thread needs a record.)
///
/// # Safety
/// No thread has joined a region through this copy of the library, or taken one of its robust locks, and none does so
/// before the call returns. This call deletes the key: its destructor does not run at the end of such a thread, and
/// what the thread leaves is treated as a dead owner's.
pub unsafe fn delete_thread_key() {
    // SAFETY: by the caller's contract no thread uses the key.
    unsafe { crate::sys::thread_end::create_key_later() };
}

/// The word in which the C library keeps the calling thread's ID, or null if it was not found: see
/// [`id_place`](crate::sys::id_place). It takes the loader's lock.
#[must_use]
pub fn place_of_thread_id() -> *const u32 {
    crate::sys::id_place::place_of_id()
}
