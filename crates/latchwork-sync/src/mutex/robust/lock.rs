//! The robust lock: its fields, and how a task takes and releases it: with whole data, with data in an unknown state,
//! or as not recoverable; for a guard, for its owner, or for C. The argument is in [the parent](super).
#![allow(unsafe_code)]

use super::ops::{
    Acquired, CONSISTENT, INCONSISTENT, NOT_RECOVERABLE, RawError, RobustProtocol, Take, Taken,
};
use crate::atomic::{Ordering, const_unless_loom, unless_fault};
use crate::mutex::throughput::{Counting, Event, Tally};
use crate::mutex::{DataState, OWNER_DIED, TID_MASK, WaitMode, WaitWake};
use crate::sharing::Shared;
use crate::sys::robust_list::{AtEnd, Head, Node};
use crate::sys::slow_paths;
use crate::task::Me;
use crate::time::Deadline;
use core::fmt;
use core::marker::{PhantomData, PhantomPinned};

/// The robust form of a protocol, as the parameter of a [`Mutex`](crate::mutex::Mutex).
///
/// 40 bytes: it is a node of libc's own robust list, so that a task can hold pthread robust mutexes and these side by
/// side, and release them in any order. It must not move while it is in use, hence the pinned methods: put it in a
/// `static` ([`Pin::static_ref`](core::pin::Pin::static_ref)), in a region (whose objects come pinned), in a field of a
/// pinned struct (`PinnedFields`), or behind [`std::pin::pin!`].
///
/// | `P` | made by | for |
/// | --- | --- | --- |
/// | [`WaitWake`] | [`Mutex::robust`](crate::mutex::Mutex::robust) | most uses |
/// | [`Inherit`](crate::mutex::Inherit) | [`Mutex::robust_inherit`](crate::mutex::Mutex::robust_inherit) | real-time tasks: the owner runs at the priority of its waiters |
/// | [`Protect`](crate::mutex::Protect) | [`Mutex::robust_protect`](crate::mutex::Mutex::robust_protect) | real-time tasks: the owner runs at a ceiling |
/// | [`Throughput`](crate::mutex::Throughput) | [`Mutex::robust_throughput`](crate::mutex::Mutex::robust_throughput) | many tasks, critical sections of a microsecond or more |
///
/// A robust throughput lock has what the plain one has: [`lock_traced`](crate::mutex::Mutex#method.lock_traced), a
/// threshold ([`hand_off_after`](Self::hand_off_after)), and counters ([`counted`](Self::counted), of 104 bytes).
///
/// A failure of the protocol is reported as [`LockError::Refused`](crate::mutex::LockError::Refused).
///
/// Dropping the mutex drops its data, and [`get_mut`](crate::mutex::Mutex::get_mut) lends it, only if it is whole; torn
/// data is leaked. Where an owner may have been killed, [reset](crate::mutex::Mutex::reset) the mutex first.
///
/// ```
/// use core::pin::Pin;
/// use latchwork::mutex::{LockError, Mutex, Robust};
///
/// static BALANCE: Mutex<i64, Robust> = Mutex::robust(100);
/// match Pin::static_ref(&BALANCE).lock() {
///     Ok(mut balance) => *balance -= 1,
///     // The owner died; what it was doing to the data is ours to find out.
///     Err(LockError::OwnerDied(died)) => *died.make_consistent() -= 1,
///     Err(error) => panic!("{error}"),
/// }
/// ```
#[repr(C)]
pub struct Robust<P: RobustProtocol = WaitWake<Shared>> {
    pub(super) node: Node,
    pub(super) counts: P::Counts,
    protocol: PhantomData<P>,
    pinned: PhantomPinned,
}

// SAFETY: only the task that holds the lock uses the node's links, and no lock is held while it is moved.
unsafe impl<P: RobustProtocol> Send for Robust<P> {}
// SAFETY: only the task that holds the lock uses the node's links; all other fields are atomic.
unsafe impl<P: RobustProtocol> Sync for Robust<P> {}

/// For protocols whose constructor needs no argument.
impl<P: RobustProtocol + Default> Robust<P> {
    const_unless_loom! {
        /// An unlocked lock.
        #[must_use]
        pub fn new() -> Self {
            Self::with_extra(0)
        }
    }
}

impl<P: RobustProtocol> Robust<P> {
    const_unless_loom! {
        /// An unlocked lock; `extra` is what its protocol keeps in the node.
        pub(super) fn with_extra(extra: u32) -> Self {
            let at_end = if P::HIDES_STATE { AtEnd::Lose } else { AtEnd::Keep };
            let node = Node::new(extra, at_end);
            Self { node, counts: P::Counts::NEW, protocol: PhantomData, pinned: PhantomPinned }
        }
    }

    /// The task that holds the lock at this moment, by its thread ID.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        // Relaxed: the answer may be stale before it arrives.
        let tid = self.node.word.load(Ordering::Relaxed) & TID_MASK;
        (tid != 0).then_some(tid)
    }

    /// The node, for the inspector.
    #[doc(hidden)]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Acquires a lock of this crate's own, regardless of the budget. There are few of them; and a sweep, for one, must
    /// not depend on how many locks the user holds.
    ///
    /// # Safety
    /// The lock stays where it is until it is unlocked or this task has ended.
    #[inline]
    #[doc(hidden)]
    pub unsafe fn lock_raw(&self, deadline: Option<Deadline>) -> Taken<P::Fault> {
        // SAFETY: the lock stays where it is, by this function's contract.
        unsafe { self.acquire(WaitMode::until(deadline)) }
    }

    /// Acquires a lock that is free and whose data is whole, and returns the caller's stamp. [`Self::acquire_slowly`]
    /// handles every other case.
    ///
    /// # Safety
    /// As for [`Self::lock_raw`].
    #[inline(always)]
    pub(crate) unsafe fn acquire_free(&self) -> Option<u32> {
        let me = Me::current_or_none().task_with_budget()?;
        if P::enter(&self.node, WaitMode::TRY).is_err() {
            return None;
        }
        // SAFETY: the list is used in this call alone; the lock stays where it is, by the contract.
        let (tid, head) = (me.tid(), unsafe { me.head() });
        let before = head.announce(&self.node, P::MARK);
        // Acquire: pairs with the Release in `release_word`. By invariant 5 the data is whole.
        if self
            .node
            .word
            .compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            head.settle(before);
            P::leave(P::ceiling(&self.node));
            return None;
        }
        // SAFETY: acquired just now, and announced; the lock stays where it is, by the contract.
        unsafe { self.link(me, head, before) };
        // Relaxed: only an owner writes it.
        if unless_fault!(RobustTrustsWord, P::HIDES_STATE, false)
            && self.node.state.load(Ordering::Relaxed) != CONSISTENT
        {
            // SAFETY: this task holds the lock.
            unsafe { self.release_unclean() };
            return None;
        }
        Some(me.stamp())
    }

    /// Puts the lock on the list, and ends the announcement. Only a lock that was taken while another was held counts
    /// in the budget: the usual case costs nothing.
    ///
    /// # Safety
    /// The lock is taken by `me`, announced, and stays where it is until it is released.
    #[inline(always)]
    unsafe fn link(&self, me: Me, head: &Head, before: usize) {
        // SAFETY: the contract; the anchor is a place on this thread's list.
        if unsafe { head.link(&self.node, P::MARK, me.anchor(), me.end()) } {
            me.spend();
        }
        head.settle(before);
    }

    /// Acquires the lock regardless of the budget, as [`Self::lock_raw`].
    ///
    /// # Safety
    /// As for [`Self::lock_raw`].
    #[inline]
    pub(crate) unsafe fn acquire(&self, wait_mode: WaitMode) -> Taken<P::Fault> {
        // SAFETY: the lock stays where it is, by this function's contract.
        match unsafe { self.acquire_free() } {
            Some(_) => Ok(Acquired::Clean),
            // SAFETY: the same contract.
            None => unsafe { self.acquire_slowly(wait_mode, P::take) },
        }
    }

    /// As [`Self::acquire_in_budget_by`], by `P::take`.
    ///
    /// # Safety
    /// As for [`Self::lock_raw`].
    #[cfg(any(loom, feature = "foreign"))]
    pub(crate) unsafe fn acquire_in_budget(&self, wait_mode: WaitMode) -> Taken<P::Fault> {
        // SAFETY: the same contract.
        unsafe { self.acquire_in_budget_by(wait_mode, P::take) }
    }

    /// [`Self::acquire_slowly`], unless the calling task holds as many locks as it may; `take` is `P::take`, or does what
    /// that does and more.
    ///
    /// # Safety
    /// As for [`Self::lock_raw`].
    #[inline]
    pub(super) unsafe fn acquire_in_budget_by(
        &self,
        wait_mode: WaitMode,
        take: impl Take<P>,
    ) -> Taken<P::Fault> {
        let is_known = Me::current_or_none().tid() != 0;
        let me = Me::get().map_err(RawError::Unavailable)?;
        // A thread's first lock call comes here although the lock may be free.
        // SAFETY: the lock stays where it is, by this function's contract.
        if !is_known && unsafe { self.acquire_free() }.is_some() {
            return Ok(Acquired::Clean);
        }
        if me.budget() <= 0 && me.recount() <= 0 {
            return Err(RawError::TooManyHeld);
        }
        // SAFETY: the lock stays where it is, by this function's contract.
        unsafe { self.acquire_slowly(wait_mode, take) }
    }

    /// # Safety
    /// As for [`Self::lock_raw`].
    #[cold]
    unsafe fn acquire_slowly(&self, wait_mode: WaitMode, take: impl Take<P>) -> Taken<P::Fault> {
        if !wait_mode.is_try() {
            slow_paths::acquisition();
        }
        let me = Me::get().map_err(RawError::Unavailable)?;
        P::enter(&self.node, wait_mode)?;
        // SAFETY: the list is used in this call alone; the lock stays where it is, by the contract.
        let head = unsafe { me.head() };
        let before = head.announce(&self.node, P::MARK);
        if let Err(error) = take(&self.node, &self.counts, me, wait_mode) {
            head.settle(before);
            return Err(error);
        }
        // SAFETY: acquired just now, and announced; the lock stays where it is, by the contract.
        unsafe { self.link(me, head, before) };
        // Relaxed: only an owner writes it.
        match self.node.state.load(Ordering::Relaxed) {
            CONSISTENT => Ok(Acquired::Clean),
            INCONSISTENT => Ok(Acquired::OwnerDied),
            _ => {
                // SAFETY: this task holds the lock.
                unsafe { self.release_unclean() };
                Err(RawError::NotRecoverable)
            }
        }
    }

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
    pub(super) unsafe fn unlink(&self, me: Me) -> (&'static Head, usize) {
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
        if !self.give(tid) {
            self.counts.count(Event::UnlockSlowPath);
            P::free(&self.node, head, before);
        } else {
            head.settle(before);
        }
        P::leave(ceiling);
    }

    /// Frees a word that is exactly the ID of the calling task; returns whether it was.
    #[inline(always)]
    pub(super) fn give(&self, tid: u32) -> bool {
        // Release: pairs with the Acquire of the next taker.
        let release = unless_fault!(RobustUnlockRelaxed, Ordering::Release, Ordering::Relaxed);
        self.node
            .word
            .compare_exchange(tid, 0, release, Ordering::Relaxed)
            .is_ok()
    }

    /// Releases the lock of a guard that was made for the task with the stamp `owner`. The usual case is: this process
    /// acquired the lock, the thread does not panic, and has no other lock on its list. All other cases are outlined: a
    /// guard's drop is inlined only if it is small.
    ///
    /// # Safety
    /// The guard holds the lock, if it is used in the process that it was made in.
    #[inline(always)]
    pub(crate) unsafe fn release_guarded(&self, owner: u32) {
        let me = Me::current_or_none();
        let end = me.end();
        if me.stamp() != owner || self.node.is_followed_on(end) || std::thread::panicking() {
            // SAFETY: the guard holds the lock: the contract is the same.
            return unsafe { self.release_guarded_slowly(owner) };
        }
        // SAFETY: this task took the lock, as its ID shows, so it has a record. The list is used in this call alone;
        // the lock, which is held, stays where it is.
        let head = unsafe { me.task_unchecked().head() };
        let before = head.announce(&self.node, P::MARK);
        // SAFETY: this task holds the lock, so it is on its list; it is announced, and no other lock follows it.
        unsafe { head.unlink_last(&self.node, end) };
        self.release_word(me.tid(), head, before);
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

    /// Declares the data whole again. Only the owner may call it.
    #[doc(hidden)]
    pub fn mark_consistent(&self) {
        self.node.state.store(CONSISTENT, Ordering::Relaxed);
    }

    /// Whether an owner's death was reported to the calling owner, which has not declared the data whole.
    #[cfg(all(feature = "foreign", not(loom)))]
    pub(crate) fn is_inconsistent(&self) -> bool {
        // Relaxed: only the owner changes it.
        self.node.state.load(Ordering::Relaxed) == INCONSISTENT
    }

    /// Whether the last owner died, or the state is final.
    pub(crate) fn is_unclean(&mut self) -> bool {
        // Relaxed: the exclusive reference proves that no other task has access, here and below.
        self.has_dead_owner() || self.node.state.load(Ordering::Relaxed) != CONSISTENT
    }

    /// Whether no task has acquired the lock since its owner died. (`OWNER_DIED` beside a TID names a living owner. The
    /// lock is still on that task's list, for instance because it forgot a guard.)
    fn has_dead_owner(&self) -> bool {
        let word = self.node.word.load(Ordering::Relaxed);
        word & OWNER_DIED != 0 && word & TID_MASK == 0
    }

    /// Makes a lock with data that is not whole usable again. The data has been replaced.
    pub(crate) fn make_clean(&mut self) {
        if self.has_dead_owner() {
            self.node.word.store(0, Ordering::Relaxed);
        }
        self.mark_consistent();
    }
}

impl<P: RobustProtocol + Default> Default for Robust<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: RobustProtocol> fmt::Debug for Robust<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Robust")
            .field("owner", &self.owner())
            .finish()
    }
}

impl<P: RobustProtocol> DataState for Robust<P> {
    fn is_whole(&mut self) -> bool {
        !self.is_unclean()
    }
}

impl<P: RobustProtocol> Drop for Robust<P> {
    fn drop(&mut self) {
        // A guard was forgotten: its owner's list would lead into freed memory.
        if let Some(owner) = self.owner() {
            crate::fatal(format_args!(
                "robust mutex destroyed while task {owner} holds it"
            ));
        }
    }
}

/// The calling task, if its stamp is that of the `owner` of a guard; aborts in the child of a fork, where the guard
/// belongs to the parent. (A thread that ends may drop guards after its record is gone: it then gets a new record.)
#[doc(hidden)]
pub fn owner_of_guard(owner: u32) -> Me {
    match Me::get() {
        Ok(me) if me.stamp() == owner => me,
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
