//! The locks of this crate in memory that another library has laid out: for an interposer, which keeps
//! their words in that library's mutex. Not for programs.
//!
//! What differs from the locks themselves: the caller says who it is, since its thread may have no record
//! and must get none (an allocator may be what calls); a mutex may be locked again by its holder, which then
//! waits, and released by another task; nothing aborts. The argument of each stands with the lock.
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

/// A throughput lock: held if `word` has a task's ID.
#[derive(Clone, Copy)]
pub struct Throughput<'a> {
    pub word: &'a AtomicU32,
    pub gate: &'a AtomicU32,
    pub request: &'a AtomicU32,
    /// How much good polls do; zero at first.
    pub mood: &'a AtomicU32,
}

impl Throughput<'_> {
    /// Takes the lock for the task `me`, however it is held; false once the deadline has passed.
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

    /// Takes the lock if nobody has it or is to get it.
    #[must_use]
    pub fn try_lock(self, me: u32) -> bool {
        // Relaxed: the compare-and-swap looks again.
        let word = self.word.load(Ordering::Relaxed);
        let top_waiter = || self.gate.load(Ordering::Relaxed) & TID_MASK;
        // Reserved for nobody of this process, in the child of a fork.
        let is_for_all = || word != WAITERS || top_waiter() == 0 || is_outside(top_waiter());
        word & TID_MASK == 0 && is_for_all() && take(self.word, me, word)
    }

    /// Releases the lock if somebody waits or another task has taken it.
    #[cold]
    #[inline(never)]
    pub fn unlock_contended(self) {
        let address = core::ptr::from_ref(self.word);
        // Release: pairs with the Acquire in `take`. Relaxed: as in the lock's own unlock.
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
    // SAFETY: the same, under another name.
    unsafe { &*core::ptr::from_ref(word).cast() }
}

/// An inheriting lock: held if `word` has a task's ID.
#[derive(Clone, Copy)]
pub struct Inherit<'a> {
    pub word: &'a AtomicU32,
    pub gate: &'a AtomicU32,
}

/// Whether this process has a thread of this ID that does not end.
fn is_here(thread: u32) -> bool {
    let is_ending = || proc_file::is_ending(crate::sys::thread::process_id(), thread);
    // The file in `/proc` may have gone between the first question and the second.
    !is_outside(thread) && !is_ending() && !is_outside(thread)
}

impl Inherit<'_> {
    fn word(&self) -> &Word {
        // SAFETY: the same, under another name.
        unsafe { &*core::ptr::from_ref(self.word).cast() }
    }

    /// Takes the lock for the task `me`, however it is held; false once the deadline has passed.
    ///
    /// # Errors
    /// See [`InheritFault`].
    #[cold]
    #[inline(never)]
    pub fn lock_contended(self, me: u32, deadline: Option<Deadline>) -> Result<bool, InheritFault> {
        Way::<Private, false>::new(self.word(), InheritGate::of(self.gate)).go(me, deadline)
    }

    /// The task that has the lock, if that is another thread of this process than `me`, and does not end. (A thread that was
    /// joined ends in the kernel a little later.)
    #[cold]
    #[must_use]
    pub fn other_owner(self, me: u32) -> Option<u32> {
        // Relaxed: whoever it is does not release it meanwhile, says the caller.
        let owner = self.word.load(Ordering::Relaxed) & TID_MASK;
        (owner != me && owner != 0 && owner != TID_MASK && is_here(owner)).then_some(owner)
    }

    /// Releases the lock if it was not found to be the task's and without waiters; false if it is not
    /// the calling task's, and somebody waits for it: only its owner can pass it on. (In the child of a
    /// fork, who waits for what a thread of the parent had finds out when its nap ends.)
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn unlock_contended(self, me: u32) -> bool {
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & TID_MASK == me && word & WAITERS != 0 {
                // SAFETY: a word of the caller's, until this is done.
                match unsafe {
                    futex_pi::unlock_pi(core::ptr::from_ref(self.word), Sharing::Private)
                } {
                    Pi::Done => return true,
                    Pi::Again | Pi::Inconsistent => futex_pi::stand_back(),
                    _ => return false,
                }
            } else if word & WAITERS != 0 && is_here(word & TID_MASK) {
                return false;
            } else if self
                .word
                // Release: pairs with the Acquire of who takes it.
                .compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed)
                .is_ok()
            {
                return true;
            }
        }
    }
}

/// Writes where an instruction is that a call of this process returns to, for a message: the file and the offset in it, and
/// the function.
#[cold]
pub fn write_place(return_address: usize, to: &mut impl core::fmt::Write) -> core::fmt::Result {
    crate::sys::look::write_place(crate::sys::thread::process_id(), return_address as u64, to)
}

/// The locks in here need no record of their thread: none of the keys that a program can have (`pthread_key_create`) is
/// taken for it.
///
/// # Safety
/// No thread has joined a region with this copy of the library, or taken a robust lock of it, nor does one before the
/// call returns: what the key that is deleted was to do at the end of that thread is not done, and what the thread leaves
/// is taken for a dead owner's.
pub unsafe fn take_no_key() {
    crate::sys::thread_end::make_no_key_yet();
}
