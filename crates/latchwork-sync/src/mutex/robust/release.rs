//! How a robust lock is released: with whole data, with data in an unknown state, or as not recoverable; by a guard, by
//! its owner, or by C. The invariants are in [the parent](super).
#![allow(unsafe_code)]

use super::lock::Robust;
use super::ops::{CONSISTENT, INCONSISTENT, NOT_RECOVERABLE, RobustProtocol};
use crate::atomic::{Ordering, unless_fault};
use crate::sys::robust_list::Head;
use crate::task::Me;

impl<P: RobustProtocol> Robust<P> {
    /// Aborts if the calling task does not hold the lock: in the child of a fork it belongs to the parent.
    #[doc(hidden)]
    pub fn assert_held(&self) {
        if self.owner() != Some(Me::current_or_none().tid()) {
            not_the_owner()
        }
    }

    /// Announces the lock, and takes it off the list. Returns the list, and what was announced before.
    ///
    /// If another lock followed this one on the list when it was taken, and none does now, this lock stays counted in
    /// the budget: [`Me::recount`] corrects that when the budget is used up.
    ///
    /// # Safety
    /// `me` is the calling task, and holds the lock.
    #[inline(always)]
    unsafe fn unlink(&self, me: Me) -> (&'static Head, usize) {
        // SAFETY: each caller uses the list in its call alone; the lock, which is held, stays where it is.
        let head = unsafe { me.head() };
        let before = head.announce(&self.node, P::MARK);
        // SAFETY: `me` holds the lock, so it is on the list; it was announced just now. The list is used here alone.
        if unsafe { head.unlink(&self.node, me.end()) } {
            me.refund();
        }
        (head, before)
    }

    /// Releases a lock with whole data.
    ///
    /// # Safety
    /// `me` is the calling task, and holds the lock.
    #[inline(always)]
    unsafe fn release_as(&self, me: Me) {
        // SAFETY: the same contract.
        let (head, before) = unsafe { self.unlink(me) };
        self.release_word(me.tid(), head, before);
    }

    /// Frees the word of a lock that is announced, and ends the announcement.
    #[inline(always)]
    fn release_word(&self, tid: u32, head: &Head, before: usize) {
        let ceiling = P::ceiling(&self.node);
        // Release: pairs with the Acquire of the next taker.
        let release = unless_fault!(RobustUnlockRelaxed, Ordering::Release, Ordering::Relaxed);
        if self
            .node
            .word
            .compare_exchange(tid, 0, release, Ordering::Relaxed)
            .is_err()
        {
            P::free(&self.node, head, before);
        } else {
            head.settle(before);
        }
        P::leave(ceiling);
    }

    /// Releases the lock of a guard that was made for `owner`. The usual case is: this process acquired the lock, the
    /// thread does not panic, and has no other lock on its list. All other cases are outlined: a guard's drop is
    /// inlined only if it is small.
    ///
    /// # Safety
    /// The guard holds the lock, if it is used in the process that it was made in.
    #[inline(always)]
    pub(crate) unsafe fn release_guarded(&self, owner: u32) {
        let me = Me::current_or_none();
        let end = me.end();
        if me.tid() != owner || self.node.is_followed_on(end) || std::thread::panicking() {
            // SAFETY: the guard holds the lock: the contract is the same.
            return unsafe { self.release_guarded_slowly(owner) };
        }
        // SAFETY: this task took the lock, as its ID shows, so it has a record. The list is used in this call alone; the
        // lock, which is held, stays where it is.
        let head = unsafe { me.task_unchecked().head() };
        let before = head.announce(&self.node, P::MARK);
        // SAFETY: this task holds the lock, so it is on its list; it is announced, and no other lock follows it.
        unsafe { head.unlink_last(&self.node, end) };
        self.release_word(owner, head, before);
    }

    /// # Safety
    /// As for [`Self::release_guarded`].
    #[inline(never)]
    unsafe fn release_guarded_slowly(&self, owner: u32) {
        let me = owner_of_guard(owner);
        // SAFETY: `owner_of_guard` has checked that the calling task acquired the lock, and the guard still holds it.
        unsafe {
            if std::thread::panicking() {
                self.unlock_inconsistent();
            } else {
                self.release_as(me);
            }
        }
    }

    /// Releases a lock whose data is not whole (invariant 5 in the parent). The C header detects that only after it has
    /// acquired the lock.
    ///
    /// # Safety
    /// The calling task holds it.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn release_unclean(&self) {
        // SAFETY: the calling task holds the lock, so it has a record.
        let (head, before) = unsafe { self.unlink(Me::current_or_none().task_unchecked()) };
        let ceiling = P::ceiling(&self.node);
        P::pass_on(&self.node);
        head.settle(before);
        P::leave(ceiling);
    }

    /// Releases the lock; unrepaired data after an owner's death makes it not recoverable.
    ///
    /// # Safety
    /// The calling task holds it.
    #[inline]
    #[doc(hidden)]
    pub unsafe fn unlock_raw(&self) {
        if self.node.state.load(Ordering::Relaxed) == CONSISTENT {
            // SAFETY: the caller holds the lock; a task that holds a robust lock has a record.
            unsafe { self.release_as(Me::current_or_none().task_unchecked()) };
        } else {
            // SAFETY: the caller holds the lock.
            unsafe { self.release_not_recoverable() };
        }
    }

    /// Releases the lock as not recoverable: no task can acquire it any more.
    ///
    /// # Safety
    /// The calling task holds it.
    #[cold]
    pub(crate) unsafe fn release_not_recoverable(&self) {
        self.node.state.store(NOT_RECOVERABLE, Ordering::Relaxed);
        // SAFETY: the caller holds the lock.
        unsafe { self.release_unclean() };
    }

    /// Releases the lock with its data in an unknown state: the next owner gets `OwnerDied`.
    ///
    /// # Safety
    /// The calling task holds it.
    #[cold]
    #[doc(hidden)]
    pub unsafe fn unlock_inconsistent(&self) {
        self.node.state.store(INCONSISTENT, Ordering::Relaxed);
        // SAFETY: the caller holds the lock.
        unsafe { self.release_unclean() };
    }

    /// Frees the word of a lock that is announced and unlinked, and ends the announcement. For the C header, when its
    /// compare-and-swap failed.
    ///
    /// # Safety
    /// The calling task has announced the lock in this thread's list, where it stays until this call ends.
    #[cfg(all(feature = "foreign", not(loom)))]
    pub(crate) unsafe fn free_unlinked(&self, before: usize) {
        // SAFETY: by the caller's contract; the task that announced it has a record.
        let (me, head) = unsafe {
            let me = Me::current_or_none().task_unchecked();
            (me, me.head())
        };
        self.release_word(me.tid(), head, before);
    }
}

/// The calling task, if it is the `owner` for which a guard was made; aborts in the child of a fork, where the guard
/// belongs to the parent. (A thread that ends may drop guards after its record is gone: it then gets a new record.)
#[doc(hidden)]
pub fn owner_of_guard(owner: u32) -> Me {
    match Me::get() {
        Ok(me) if me.tid() == owner => me,
        _ => not_the_owner(),
    }
}

#[cold]
#[inline(never)]
pub(super) fn not_the_owner() -> ! {
    crate::fatal(format_args!(
        "unlock of a robust mutex by a task that does not hold it (a guard inherited across fork is the parent's)"
    ))
}
