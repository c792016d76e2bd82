//! Robust locks: the death of an owner is reported to the next owner, which can repair the data.
//!
//! Source: `Documentation/locking/robust-futex-ABI.rst` of Linux; POSIX `PTHREAD_MUTEX_ROBUST` for the semantics. Not
//! recursive, but locking again reports [`LockError::Deadlock`].
//!
//! This text holds for the robust form of each protocol, and word for word for the wait-wake one. The heads of the
//! other protocols' files say where they differ:
//!
//! | protocol | differences |
//! | --- | --- |
//! | [`WaitWake`] | none |
//! | [`Protect`](super::Protect) | a ceiling, entered before and left after all steps below |
//! | [`Throughput`](super::Throughput) | a gate (a queueing mutex in front of the lock); a word that may be reserved |
//! | [`Inherit`](super::Inherit) | a gate; the kernel passes the word on, and then drops `OWNER_DIED`: each lock call reads the state |
//!
//! The word:
//!
//! | word | meaning | entered by |
//! | --- | --- | --- |
//! | 0 | free | unlock: CAS TID→0, Release; or swap 0, Release, and the unlock wakes one sleeper |
//! | TID | held; no task sleeps, or a sleeper was woken that will set `WAITERS` | lock: CAS 0→TID, Acquire |
//! | TID + `WAITERS` | held, a task may sleep | a waiter sets the bit before it sleeps, and takes the lock with it after a sleep |
//! | `OWNER_DIED` (+ `WAITERS`) | free, the data is not whole | the kernel, as the owner dies; unlock of such data |
//!
//! The state:
//!
//! | state | name | meaning |
//! | --- | --- | --- |
//! | 0 | `CONSISTENT` | the data is whole |
//! | 1 | `INCONSISTENT` | an owner died, or panicked, and no later owner has repaired the data yet |
//! | 2 | `NOT_RECOVERABLE` | an owner released the lock without repairing the data. This state is final |
//!
//! Invariants
//! 1. The word holds only the bits that the kernel knows; all else is in the state, which only the owner changes.
//! 2. While a task waits for, takes or releases the lock, the lock is *announced* in the task's robust list head; while
//!    a task holds it, it is on the task's list. A lock call does: announce, take, link, settle (end the announcement).
//!    An unlock does: announce, unlink, release, wake, settle.
//! 3. A task sleeps only while the word has `WAITERS`, or while a wake-up is under way: an unlock that has removed the
//!    bit is about to wake one sleeper, or has woken one. A task that has slept takes the lock with `WAITERS`, since
//!    others may still sleep. No sleep lasts longer than a second. (The first sentence does not hold after one of the
//!    two deaths described under *No wake-up is lost*.)
//! 4. The state is `INCONSISTENT` before the task that took a word with `OWNER_DIED` returns from its lock call.
//! 5. While the lock is free without `OWNER_DIED`, the state is `CONSISTENT`: the fast path need not read it.
//!
//! *A kill between any two lines.*
//! - Before the CAS: the announced word is not this task's. If it is free (no TID) the kernel wakes one sleeper, so
//!   that a wake-up that this task has consumed is passed on. (Kernels before Linux 6.2 and its stable releases do so
//!   only for a word of exactly 0: not if the owner died.)
//! - After the CAS and before the link: the kernel finds the TID through the announcement.
//! - Linked: through the list.
//! - Between unlink and release: through the announcement again.
//! - After the release and before the wake: the word is free and announced: the kernel wakes one sleeper.
//! - Between taking a dead owner's word and storing the state (invariant 4): the death of this task sets `OWNER_DIED`
//!   again.
//!
//! *No wake-up is lost:* as for the wait-wake mutex, with `WAITERS` in place of its 2. A dead owner's word keeps
//! `WAITERS`, so that each of several sleepers is freed in turn. The kernel's wake at a death is never private, so no
//! wait here is private. Two deaths need more: an unlocker that is killed between its swap and its wake, and a sleeper
//! that is killed after it was woken. If the lock is free then, the kernel passes the wake-up on. If a newcomer has
//! taken it in between, the word has no `WAITERS`, the kernel does nothing, and the newcomer's unlock wakes no sleeper.
//! So every sleep is a nap: after a second the waiter checks the word and sets `WAITERS` if it is missing. Such a death
//! costs the waiters a second at most.
//!
//! *Rejected:* to keep `WAITERS` in the word while any task sleeps, which needs no naps. Each unlock then makes a
//! system call, also while the waiter that the last unlock woke has not run yet: with 16 tasks whose critical sections
//! take 10 µs, each operation took more than one context switch and twice the processor time.
//!
//! *Orderings:* unlock's Release pairs with lock's Acquire. The death of an owner is ordered by the kernel, which
//! changes the word after the task's last instruction.
//!
//! *After the word is free in `unlock`* only its address is used, in the announcement. The memory may be unmapped, or
//! hold other data, with one exception that every robust futex has. If this task is killed before it settles, the
//! kernel reads the word. If the word holds this task's TID in its low 30 bits (another robust word that this task took
//! there, or plain data that happens to be that number), the kernel sets `OWNER_DIED`, bit 30, in it. If those bits are
//! 0, the kernel at most causes a spurious wake-up.
//!
//! *Progress:* newcomers may barge in, so the wait of an unlucky waiter has no bound. A waiter polls at most 200 times
//! before each sleep, and only while the word has no `WAITERS`. Sleepers wake in the kernel's order; the end of a nap
//! costs a sleeper its place among those of its priority.
//!
//! *Hostile events:* after EINTR the wait goes on. exec counts as the death of all threads of the process, except for a
//! thread that calls exec and is not the first: the kernel gives it the first thread's ID before it walks the list, and
//! then its locks name another task (Linux 6.18). They stay locked: such a thread must not call exec with a lock held.
//! In the child of a fork no lock is held: an inherited guard belongs to the parent, and dropping it in the child
//! aborts. A signal handler that takes another robust lock saves and restores the announcement (but its lock may not be
//! the first robust lock of its thread, since the first one allocates). There is only one announcement: if the task is
//! killed while the handler takes or releases its lock, and the interrupted code was between taking and linking (or
//! unlinking and releasing) another lock, that other lock stays locked. TIDs are compared in the dying task's PID
//! namespace: never share a robust lock across namespaces (a region refuses that at attach).
//!
//! *Frozen:* the node's layout is libc's; zero is not valid for the whole node, but is for the word.
//!
//! *Cost, free:* two compare-and-swaps, some 20 plain instructions. *Checked by:* `tests/loom_robust.rs` and
//! `tests/loom_robust_protocols.rs` (a victim that dies at each of its steps, one and two survivors, negative twins),
//! `tests/robust.rs` (threads, fork, raw clone, pthread neighbours), `tests/robust_protocols.rs` and
//! `tests/robust_special.rs` (all protocols, side by side), `tests/robust_signals.rs` (a handler that locks at each
//! instruction) and the kill tests.
#![allow(unsafe_code)]

mod failure;
mod guard;
mod inherit;
#[cfg(not(loom))]
mod protect;
mod release;
mod slow;
mod throughput;
mod told;
mod unpinned;
mod wait_wake;

pub use failure::LockFailure;
pub use guard::{LockError, OwnerDied, RobustGuard};
#[doc(hidden)]
pub use release::owner_of_guard;
pub(crate) use unpinned::methods_of_unpinned;
pub use unpinned::{Pinned, Unpinned};

use super::{Custody, Patience, Unfinished, WaitWake};
use crate::atomic::{Ordering, const_unless_loom, unless_fault};
use crate::sharing::Shared;
use crate::sys::robust_list::{Head, Node};
use crate::task::{Me, TaskError};
use crate::time::Deadline;
use core::convert::Infallible;
use core::fmt;
use core::marker::{PhantomData, PhantomPinned};

#[doc(hidden)]
pub use crate::sys::futex_bits::{OWNER_DIED, TID_MASK, WAITERS};

const CONSISTENT: u32 = 0;
const INCONSISTENT: u32 = 1;
const NOT_RECOVERABLE: u32 = 2;

#[doc(hidden)]
pub use slow::Slow;

/// The protocols that have a robust form.
pub trait RobustProtocol: Slow {}
impl<P: Slow> RobustProtocol for P {}

/// The robust form of a protocol, as the parameter of a [`Mutex`](crate::mutex::Mutex).
///
/// 40 bytes: it is a node of libc's own robust list, so that a task can hold pthread robust mutexes and these side by
/// side, and release them in any order. It must not move while it is in use, hence the pinned methods: put it in a
/// `static` ([`Pin::static_ref`](core::pin::Pin::static_ref)), in a region (whose objects come pinned), in a field of a
/// pinned struct (`PinnedFields`), or behind [`std::pin::pin!`].
///
/// | `P` | made by | for |
/// | --- | --- | --- |
/// | [`WaitWake`] | [`Mutex::robust`](super::Mutex::robust) | most uses |
/// | [`Inherit`](super::Inherit) | [`Mutex::robust_inherit`](super::Mutex::robust_inherit) | real-time tasks: the owner runs at the priority of its waiters |
/// | [`Protect`](super::Protect) | [`Mutex::robust_protect`](super::Mutex::robust_protect) | real-time tasks: the owner runs at a ceiling |
/// | [`Throughput`](super::Throughput) | [`Mutex::robust_throughput`](super::Mutex::robust_throughput) | many tasks, short critical sections |
///
/// A failure of the protocol is reported as [`LockError::Refused`].
///
/// Dropping the mutex drops its data, and [`get_mut`](crate::mutex::Mutex::get_mut) lends it, only if it is whole; torn
/// data is leaked. Where an owner may have been killed, [reset](super::Mutex::reset) the mutex first.
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
    node: Node,
    protocol: PhantomData<P>,
    pinned: PhantomPinned,
}

// SAFETY: only the task that holds the lock uses the node's links, and no lock is held while it is moved.
unsafe impl<P: RobustProtocol> Send for Robust<P> {}
// SAFETY: only the task that holds the lock uses the node's links; all other fields are atomic.
unsafe impl<P: RobustProtocol> Sync for Robust<P> {}

/// How a robust lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Acquired {
    Clean,
    OwnerDied,
}

/// Why a robust lock was not taken.
#[doc(hidden)]
#[allow(missing_docs, reason = "hidden; see `LockError`")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawError<F = Infallible> {
    /// See [`LockError`], here and below.
    WouldBlock,
    TimedOut,
    Interrupted,
    NotRecoverable,
    Deadlock,
    TooManyHeld,
    Unavailable(TaskError),
    Refused(F),
}

impl<F> From<Unfinished> for RawError<F> {
    fn from(unfinished: Unfinished) -> Self {
        match unfinished {
            Unfinished::TimedOut => Self::TimedOut,
            Unfinished::Interrupted => Self::Interrupted,
        }
    }
}

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
        fn with_extra(extra: u32) -> Self {
            Self { node: Node::new(extra), protocol: PhantomData, pinned: PhantomPinned }
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

    /// Aborts if the calling task does not hold the lock: in the child of a fork it belongs to the parent.
    #[doc(hidden)]
    pub fn assert_held(&self) {
        if self.owner() != Some(Me::current_or_none().tid()) {
            release::not_the_owner()
        }
    }

    /// Takes a lock of this crate's own, regardless of the budget. There are few of them; and a sweep, for one, must
    /// not depend on how many locks the user holds.
    ///
    /// # Safety
    /// The lock stays where it is until it is unlocked or this task has ended.
    #[inline]
    #[doc(hidden)]
    pub unsafe fn lock_raw(
        &self,
        deadline: Option<Deadline>,
    ) -> Result<Acquired, RawError<P::Fault>> {
        // SAFETY: the lock stays where it is, by this function's contract.
        unsafe { self.acquire(Patience::until(deadline)) }
    }

    /// Takes a lock that is free and whose data is whole, and returns the caller's ID. [`Self::acquire_slowly`] handles
    /// every other case.
    ///
    /// # Safety
    /// As for [`Self::lock_raw`].
    #[inline(always)]
    pub(crate) unsafe fn acquire_free(&self) -> Option<u32> {
        let me = Me::current_or_none().task_with_budget()?;
        if P::enter(&self.node, Patience::NONE).is_err() {
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
        // SAFETY: this task took the lock just now and has announced it; the lock stays where it is, by the contract.
        unsafe { self.link(me, head) };
        head.settle(before);
        // Relaxed: only an owner writes it.
        if unless_fault!(RobustTrustsWord, P::HIDES_STATE, false)
            && self.node.state.load(Ordering::Relaxed) != CONSISTENT
        {
            // SAFETY: this task holds the lock.
            unsafe { self.release_unclean() };
            return None;
        }
        Some(tid)
    }

    /// Puts the lock on the list. Only a lock that was taken while another was held counts in the budget: the usual
    /// case costs nothing.
    ///
    /// # Safety
    /// The lock is taken by `me`, announced, and stays where it is until it is released.
    #[inline(always)]
    unsafe fn link(&self, me: Me, head: &Head) {
        // SAFETY: the lock is taken, announced and stays where it is (the contract); the anchor is a place on this
        // thread's list.
        if unsafe { head.link(&self.node, P::MARK, me.anchor(), me.end()) } {
            me.spend();
        }
    }

    /// Takes the lock regardless of the budget, as [`Self::lock_raw`].
    ///
    /// # Safety
    /// As for [`Self::lock_raw`].
    #[inline]
    pub(crate) unsafe fn acquire(
        &self,
        patience: Patience,
    ) -> Result<Acquired, RawError<P::Fault>> {
        // SAFETY: the lock stays where it is, by this function's contract.
        match unsafe { self.acquire_free() } {
            Some(_) => Ok(Acquired::Clean),
            // SAFETY: the same contract.
            None => unsafe { self.acquire_slowly(patience) },
        }
    }

    /// [`Self::acquire_slowly`], unless the calling task holds as many locks as it may.
    ///
    /// # Safety
    /// As for [`Self::lock_raw`].
    pub(crate) unsafe fn acquire_in_budget(
        &self,
        patience: Patience,
    ) -> Result<Acquired, RawError<P::Fault>> {
        let me = Me::get().map_err(RawError::Unavailable)?;
        if me.budget() <= 0 && me.recount() <= 0 {
            return Err(RawError::TooManyHeld);
        }
        // SAFETY: the lock stays where it is, by this function's contract.
        unsafe { self.acquire_slowly(patience) }
    }

    /// # Safety
    /// As for [`Self::lock_raw`].
    #[cold]
    unsafe fn acquire_slowly(&self, patience: Patience) -> Result<Acquired, RawError<P::Fault>> {
        let me = Me::get().map_err(RawError::Unavailable)?;
        P::enter(&self.node, patience)?;
        // SAFETY: the list is used in this call alone; the lock stays where it is, by the contract.
        let head = unsafe { me.head() };
        let before = head.announce(&self.node, P::MARK);
        if let Err(error) = P::take(&self.node, me, patience) {
            head.settle(before);
            return Err(error);
        }
        // SAFETY: this task took the lock just now and has announced it; the lock stays where it is, by the contract.
        unsafe { self.link(me, head) };
        head.settle(before);
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

    /// Declares the data whole again. Only the owner may call it.
    #[doc(hidden)]
    pub fn mark_consistent(&self) {
        self.node.state.store(CONSISTENT, Ordering::Relaxed);
    }

    /// Whether an owner's death was reported to the calling owner, which has not declared the data whole.
    #[cfg(all(feature = "foreign", not(loom)))]
    pub(crate) fn is_told_of_a_death(&self) -> bool {
        // Relaxed: only the owner changes it.
        self.node.state.load(Ordering::Relaxed) == INCONSISTENT
    }

    /// Whether the last owner died, or the state is final.
    pub(crate) fn is_unclean(&mut self) -> bool {
        // Relaxed: the exclusive reference proves that no other task has access, here and below.
        self.is_dead_owners() || self.node.state.load(Ordering::Relaxed) != CONSISTENT
    }

    /// Whether no task has taken the lock since its owner died. (`OWNER_DIED` beside a TID names a living owner. The
    /// lock is still on that task's list, for instance because it forgot a guard.)
    fn is_dead_owners(&self) -> bool {
        let word = self.node.word.load(Ordering::Relaxed);
        word & OWNER_DIED != 0 && word & TID_MASK == 0
    }

    /// Makes a lock with data that is not whole usable again. The data has been replaced.
    pub(crate) fn make_clean(&mut self) {
        if self.is_dead_owners() {
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

/// To be called by the new owner, which took a dead owner's word, or to which the kernel passed it.
fn owner_died(node: &Node) {
    // The state `NOT_RECOVERABLE` stays, even if the task that set it died before it released the lock.
    if node.state.load(Ordering::Relaxed) == CONSISTENT {
        let told = unless_fault!(RobustHidesDeath, INCONSISTENT, CONSISTENT);
        node.state.store(told, Ordering::Relaxed);
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

impl<P: RobustProtocol> Custody for Robust<P> {
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
