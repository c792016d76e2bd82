//! Robust: the death of an owner is reported to the next one, and can be recovered from.
//!
//! Source: `Documentation/locking/robust-futex-ABI.rst` of Linux; POSIX `PTHREAD_MUTEX_ROBUST` for
//! the semantics. Not recursive, but locking again reports [`LockError::Deadlock`].
//!
//! What stands here is true of each protocol's robust form, and of the wait-wake one to the letter. What is
//! different in the others stands at the head of their files:
//!
//! | protocol | what it has of its own |
//! | --- | --- |
//! | [`WaitWake`] | nothing |
//! | [`Protect`](super::Protect) | a ceiling, entered before and left after all that stands here |
//! | [`Throughput`](super::Throughput) | a gate; a word that may be reserved |
//! | [`Inherit`](super::Inherit) | a gate; the kernel passes the word on, and drops what it says of a death: the state is looked at always |
//!
//! | word | meaning | entered by |
//! | --- | --- | --- |
//! | 0 | free | unlock: CAS TID→0, Release; or swap 0, Release, and one sleeper is woken |
//! | TID | held; nobody sleeps, or a sleeper was woken that will set `WAITERS` | lock: CAS 0→TID, Acquire |
//! | TID + `WAITERS` | held, somebody may sleep | a waiter sets the bit before it sleeps, and takes the lock with it after a sleep |
//! | `OWNER_DIED` (+ `WAITERS`) | free, the data is not whole | the kernel, as the owner dies; unlock of such data |
//!
//! | state | name | meaning |
//! | --- | --- | --- |
//! | 0 | `CONSISTENT` | the data is whole |
//! | 1 | `INCONSISTENT` | an owner died, or panicked, and nobody has repaired the data yet |
//! | 2 | `NOT_RECOVERABLE` | released unrepaired, for good |
//!
//! Invariants
//! 1. The word holds kernel-owned bits only; all else lives in the state, changed by the holder.
//! 2. While a task waits for, takes or releases the lock, it is *announced* in its robust list
//!    head; while a task holds it, it is on the task's list. Announce, take, link, settle; and
//!    announce, unlink, release, wake, settle.
//! 3. But for two deaths (see below) a task sleeps only while the word has `WAITERS`, or while a wake-up is under way: an unlock that has removed
//!    the bit is about to wake one sleeper, or has woken one. A task that has slept takes the lock with `WAITERS`,
//!    since others may still sleep. No sleep lasts longer than a second.
//! 4. The state is `INCONSISTENT` before the taker of a word with `OWNER_DIED` returns.
//! 5. While the lock is free without `OWNER_DIED`, the state is `CONSISTENT`: the fast path need not
//!    look at it.
//!
//! *A kill between any two lines.* Before the CAS: the announced word is not ours; if it is free
//! (no TID) the kernel wakes one sleeper, so that a wake-up that we have consumed is passed on
//! (older kernels than Linux 6.2 and its stable releases do so for a word of exactly 0 only: not if the owner died). After the CAS and before the link: the kernel finds our TID through the announcement.
//! Linked: through the list; between unlink and release: through the announcement again. After
//! the release and before the wake: the word is free and announced: the kernel wakes one. Between
//! taking a dead owner's word and storing the state (4): our own death sets `OWNER_DIED` anew.
//!
//! *No wake-up is lost:* as for the wait-wake mutex, with `WAITERS` for 2; and a dead owner's word
//! keeps `WAITERS`, so that each of several sleepers is freed in turn. The kernel's wake is never private, so no wait
//! here is. Two deaths need more: an unlocker that is killed between its swap and its wake, and a sleeper that is
//! killed after it was woken. If the lock is free then, the kernel passes the wake-up on. If a newcomer has taken it in
//! between, the word has no `WAITERS`, the kernel does nothing, and the newcomer's unlock wakes nobody. So every
//! sleep is a nap: after a second the waiter checks the word and sets `WAITERS` if it is missing. Such a death costs the
//! waiters a second at most.
//!
//! *Rejected:* to keep `WAITERS` in the word while anybody sleeps, which needs no naps. Each unlock then makes a system
//! call, also while the waiter that the last one woke has not run yet: with 16 tasks whose sections take 10 µs, each
//! operation took more than one context switch and twice the processor time.
//!
//! *Orderings:* unlock's Release pairs with lock's Acquire. The death of an owner is ordered by
//! the kernel, which changes the word after the task's last instruction.
//!
//! *After the word is free in `unlock`* only its address is used, in the announcement. The memory may
//! be unmapped, or hold something else, with one exception that every robust futex has: should this
//! task be killed before it settles, the kernel reads the word, and one that by then holds our TID in
//! its low 30 bits (another robust word that this task took there, or plain data that happens to be
//! that number) gets `OWNER_DIED`, bit 30, set. One with 0 there at most wakes somebody for nothing.
//!
//! *Progress:* barging, so an unlucky waiter has no bound. A waiter polls at most 200 times before each
//! sleep, and only while the word has no `WAITERS`. Sleepers wake in the kernel's order; the end of a nap costs a sleeper
//! its place among those of its priority.
//!
//! *Hostile events:* EINTR re-waits. exec counts as death of all threads of the process, but for one
//! that calls exec and is not the first: the kernel gives it the first one's ID before it looks at
//! the list, and finds that its locks name somebody else (Linux 6.18). They stay locked: do not call
//! exec there with a lock held. In the child of a fork nothing is held: a guard that was inherited
//! belongs to the parent, and dropping it there aborts. A signal handler that takes another robust
//! lock saves and restores the announcement (but may not be the first in its thread to take a robust
//! lock, for that allocates). There is one announcement only: a kill while the handler
//! takes or releases its lock, and the interrupted code was between taking and linking (or unlinking
//! and releasing) another, leaves that other one locked. TIDs are compared in the dying task's PID
//! namespace: never share a robust lock across namespaces (a region refuses that at attach).
//!
//! *Frozen:* the node's layout is libc's; zero is not valid for the whole node, but is for the word.
//!
//! *Cost, free:* two compare-and-swaps, some 20 plain instructions. *Checked by:* `tests/loom_robust.rs` and
//! `tests/loom_robust_protocols.rs` (a victim that dies at each of its steps, one and two survivors, negative
//! twins), `tests/robust.rs` (threads, fork, raw clone, pthread neighbours), `tests/robust_protocols.rs` and
//! `tests/robust_special.rs` (all protocols, side by side), `tests/robust_signals.rs` (a handler that locks at each instruction) and the
//! kill tests.
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
pub(crate) use release::owner_of_guard;
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

pub(crate) const TID_MASK: u32 = 0x3fff_ffff;
pub(crate) const OWNER_DIED: u32 = 0x4000_0000;
pub(crate) const WAITERS: u32 = 0x8000_0000;

const CONSISTENT: u32 = 0;
const INCONSISTENT: u32 = 1;
const NOT_RECOVERABLE: u32 = 2;

pub(crate) use slow::Slow;

/// The protocols that have a robust form.
pub trait RobustProtocol: Slow {}
impl<P: Slow> RobustProtocol for P {}

/// The robust form of a protocol, as the parameter of a [`Mutex`](crate::mutex::Mutex).
///
/// 40 bytes: libc's own robust list runs through it, so that pthread robust mutexes and these are
/// held side by side, in any order of release. It must not move while it is in use, hence the
/// pinned methods: put it in a `static` ([`Pin::static_ref`](core::pin::Pin::static_ref)), in a region
/// (whose objects come pinned), in a field of what is pinned
/// ([`PinnedFields`](crate::region::PinnedFields)), or behind [`std::pin::pin!`].
///
/// | `P` | made by | for |
/// | --- | --- | --- |
/// | [`WaitWake`] | [`Mutex::robust`](super::Mutex::robust) | most |
/// | [`Inherit`](super::Inherit) | [`Mutex::robust_inherit`](super::Mutex::robust_inherit) | real-time tasks: the holder runs at the priority of who waits |
/// | [`Protect`](super::Protect) | [`Mutex::robust_protect`](super::Mutex::robust_protect) | real-time tasks: the holder runs at a ceiling |
/// | [`Throughput`](super::Throughput) | [`Mutex::robust_throughput`](super::Mutex::robust_throughput) | many tasks, short sections |
///
/// Where the protocol can fail, it does so with [`LockError::Refused`].
///
/// Dropping the mutex drops its data as it is, and [`get_mut`](crate::mutex::Mutex::get_mut) lends it so:
/// where an owner may have been killed, [reset](super::Mutex::reset) it first.
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

// SAFETY: the node's links are touched by the task that holds the lock only.
unsafe impl<P: RobustProtocol> Send for Robust<P> {}
// SAFETY: as above; all else is atomic.
unsafe impl<P: RobustProtocol> Sync for Robust<P> {}

/// How a robust lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    Clean,
    OwnerDied,
}

/// Why a robust lock was not taken.
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

/// For protocols that need not be told anything.
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
        /// An unlocked lock, with what its protocol keeps in the node.
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

    /// The word as it is, for the inspector.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// Aborts if the calling task does not hold the lock: in the child of a fork it is the parent's.
    pub(crate) fn assert_held(&self) {
        if self.owner() != Some(Me::whoever().tid()) {
            release::not_the_owner()
        }
    }

    /// For the locks of this crate itself, which are few: beyond the budget, since a sweep, for one,
    /// must not depend on how many locks the user holds.
    ///
    /// # Safety
    /// The lock stays where it is until it is unlocked or this task has ended.
    #[inline]
    pub(crate) unsafe fn lock_raw(
        &self,
        deadline: Option<Deadline>,
    ) -> Result<Acquired, RawError<P::Fault>> {
        // SAFETY: by the caller's contract.
        unsafe { self.acquire(Patience::until(deadline)) }
    }

    /// Takes a lock that is free and clean, and returns the caller's ID; anything else is for
    /// [`Self::acquire_slowly`].
    ///
    /// # Safety
    /// As for [`Self::lock_raw`].
    #[inline(always)]
    pub(crate) unsafe fn acquire_free(&self) -> Option<u32> {
        let me = Me::whoever();
        // None is left for a thread that is not known, too.
        if me.budget() <= 0 || P::enter(&self.node, Patience::NONE).is_err() {
            return None;
        }
        let (tid, head) = (me.tid(), me.head());
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
        // SAFETY: the lock was taken just now, is announced, and stays put by the contract.
        unsafe { self.link(me, head) };
        head.settle(before);
        // Relaxed: written by holders only.
        if unless_fault!(RobustTrustsWord, P::HIDES_STATE, false)
            && self.node.state.load(Ordering::Relaxed) != CONSISTENT
        {
            // SAFETY: this task holds the lock.
            unsafe { self.release_unclean() };
            return None;
        }
        Some(tid)
    }

    /// Puts the lock on the list. A lock is on the budget only if it was taken while another was
    /// held: the usual case costs nothing.
    ///
    /// # Safety
    /// The lock is taken by `me`, announced, and stays put until it is released.
    #[inline(always)]
    unsafe fn link(&self, me: Me, head: &Head) {
        // SAFETY: by the contract, and the anchor is a place on this thread's list.
        if unsafe { head.link(&self.node, P::MARK, me.anchor(), me.end()) } {
            me.spend();
        }
    }

    /// Beyond the budget, as [`Self::lock_raw`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(crate) unsafe fn acquire(
        &self,
        patience: Patience,
    ) -> Result<Acquired, RawError<P::Fault>> {
        // SAFETY: by the caller's contract.
        match unsafe { self.acquire_free() } {
            Some(_) => Ok(Acquired::Clean),
            // SAFETY: as above.
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
        // SAFETY: by the caller's contract.
        unsafe { self.acquire_slowly(patience) }
    }

    /// # Safety
    /// As for [`Self::lock_raw`].
    #[cold]
    unsafe fn acquire_slowly(&self, patience: Patience) -> Result<Acquired, RawError<P::Fault>> {
        let me = Me::get().map_err(RawError::Unavailable)?;
        P::enter(&self.node, patience)?;
        let head = me.head();
        let before = head.announce(&self.node, P::MARK);
        if let Err(error) = P::take(&self.node, me, patience) {
            head.settle(before);
            return Err(error);
        }
        // SAFETY: as in `acquire_free`.
        unsafe { self.link(me, head) };
        head.settle(before);
        // Relaxed: written by holders only.
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

    /// Declares the data whole again. For the holder.
    pub(crate) fn mark_consistent(&self) {
        self.node.state.store(CONSISTENT, Ordering::Relaxed);
    }

    /// Whether the holder was told of an owner's death, and has not declared the data whole.
    #[cfg(all(feature = "foreign", not(loom)))]
    pub(crate) fn is_told_of_a_death(&self) -> bool {
        // Relaxed: changed by the holder only.
        self.node.state.load(Ordering::Relaxed) == INCONSISTENT
    }

    /// Whether the last owner died, or the lock was given up.
    pub(crate) fn is_unclean(&mut self) -> bool {
        // Relaxed: nobody else has access, here and below.
        self.is_dead_owners() || self.node.state.load(Ordering::Relaxed) != CONSISTENT
    }

    /// Whether nobody has taken the lock since its owner died. (`OWNER_DIED` beside a TID is a living
    /// owner's, on whose list the lock still is, if only by a guard that was forgotten.)
    fn is_dead_owners(&self) -> bool {
        let word = self.node.word.load(Ordering::Relaxed);
        word & OWNER_DIED != 0 && word & TID_MASK == 0
    }

    /// Makes such a lock usable again.
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

impl Node {
    /// The word of a dead owner was taken, or the kernel handed it over. For the holder.
    pub(crate) fn owner_died(&self) {
        // A lock that was given up stays so, even if whoever gave it up died before releasing it.
        if self.state.load(Ordering::Relaxed) == CONSISTENT {
            let told = unless_fault!(RobustHidesDeath, INCONSISTENT, CONSISTENT);
            self.state.store(told, Ordering::Relaxed);
        }
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
        // A forgotten guard: its owner's list would lead into freed memory.
        if let Some(owner) = self.owner() {
            crate::fatal(format_args!(
                "robust mutex destroyed while task {owner} holds it"
            ));
        }
    }
}
