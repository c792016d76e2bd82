//! The operations of a protocol's robust form, and their results. The states are in the [parent](super).
#![allow(unsafe_code)]

use super::{OWNER_DIED, WAITERS};
use crate::atomic::{Ordering, unless_fault};
use crate::hook::Observer;
use crate::mutex::throughput::Tally;
use crate::mutex::{Protocol, Unfinished, WaitMode};
use crate::sys::futex::{self, Sharing};
use crate::sys::robust_list::{Head, Node};
pub(super) use crate::sys::robust_state::{CONSISTENT, INCONSISTENT, NOT_RECOVERABLE};
use crate::task::{Me, TaskError};
use core::convert::Infallible;

/// The operations of a protocol's robust form. The node is announced during all of them but those of the ceiling
/// ([`enter`](RobustOps::enter), [`ceiling`](RobustOps::ceiling), [`leave`](RobustOps::leave)). Only the protocols of
/// this crate and the checker's wrapper implement them.
///
/// # Safety
/// When `take` succeeds, no other task has the lock until `free`, `pass_on` or the fast path of the release.
#[doc(hidden)]
pub unsafe trait RobustOps: Protocol {
    /// The mark of links to nodes of this protocol on the robust list.
    const MARK: usize = 0;
    /// Whether the word of a lock can say that the lock is free while its data is not whole.
    const HIDES_STATE: bool = false;
    /// Whether a word without an owner, with `WAITERS`, is reserved for one of the waiters.
    const RESERVES: bool = false;

    /// Takes the word, and calls `owner_died` if the word was a dead owner's. If the call fails, it has left what was
    /// [entered](RobustOps::enter).
    fn take(
        node: &Node,
        counts: &Self::Counts,
        me: Me,
        wait_mode: WaitMode,
    ) -> Result<(), RawError<Self::Fault>>;

    /// Releases a word that is not exactly the ID of the calling task, and settles (ends the announcement). By default
    /// for a word with `WAITERS` that only the owner changes.
    #[cold]
    #[inline(never)]
    fn free(node: &Node, head: &Head, before: usize) {
        let address = &raw const node.word;
        // Release: pairs with the Acquire of the next taker. (A store would be enough; but each release is a
        // read-modify-write, so that code after it can rely on the barrier.)
        node.word.swap(0, Ordering::Release);
        let count = unless_fault!(RobustUnlockForgetsSleepers, 1, 0);
        futex::wake(address, count, Sharing::Shared);
        head.settle(before);
    }

    /// Releases the word of data that is not whole, with or without waiters, so that the next owner reads the state. By
    /// default with the bits that the kernel sets after a death, and wakes one sleeper.
    fn pass_on(node: &Node) {
        let address = &raw const node.word;
        // Release: pairs with the Acquire of the next taker. (A store would be enough; but loom would let a waiter go
        // on reading its own bit for ever.)
        node.word.swap(OWNER_DIED | WAITERS, Ordering::Release);
        futex::wake(address, 1, Sharing::Shared);
    }

    /// Enters the ceiling, before all other steps. A call that does not wait may fail here if the lock is held.
    #[inline(always)]
    fn enter(_node: &Node, _wait_mode: WaitMode) -> Result<(), RawError<Self::Fault>> {
        Ok(())
    }

    /// The ceiling that was entered for a lock. (It is read before the release: the lock may be gone when the ceiling
    /// is left.)
    #[inline(always)]
    fn ceiling(_node: &Node) -> u8 {
        0
    }

    /// Leaves the ceiling, after all other steps.
    #[inline(always)]
    fn leave(_ceiling: u8) {}

    /// The observer to which the robust form reports.
    type Observer: Observer;

    /// The counters behind the node.
    type Counts: Tally;
}

/// The protocols that have a robust form.
pub trait RobustProtocol: RobustOps {}
impl<P: RobustOps> RobustProtocol for P {}

/// How a call takes the word of a lock: [`RobustOps::take`], or that and more.
pub(super) trait Take<P: RobustProtocol>:
    FnOnce(&Node, &P::Counts, Me, WaitMode) -> Result<(), RawError<P::Fault>>
{
}

impl<P: RobustProtocol, F> Take<P> for F where
    F: FnOnce(&Node, &P::Counts, Me, WaitMode) -> Result<(), RawError<P::Fault>>
{
}

/// How a robust lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Acquired {
    Clean,
    OwnerDied,
}

/// Why a robust lock was not taken: see [`LockError`](super::LockError).
#[doc(hidden)]
#[allow(missing_docs, reason = "hidden")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawError<F = Infallible> {
    WouldBlock,
    TimedOut,
    Interrupted,
    NotRecoverable,
    Deadlock,
    TooManyHeld,
    Unavailable(TaskError),
    Refused(F),
}

/// The result of a lock call.
pub(super) type Taken<F> = Result<Acquired, RawError<F>>;

impl<F> From<Unfinished> for RawError<F> {
    fn from(unfinished: Unfinished) -> Self {
        match unfinished {
            Unfinished::TimedOut => Self::TimedOut,
            Unfinished::Interrupted => Self::Interrupted,
        }
    }
}

/// To be called by the new owner, which took a dead owner's word, or to which the kernel passed it.
pub(super) fn owner_died(node: &Node) {
    // The state `NOT_RECOVERABLE` stays, even if the task that set it died before it released the lock.
    if node.state.load(Ordering::Relaxed) == CONSISTENT {
        let reported = unless_fault!(RobustHidesDeath, INCONSISTENT, CONSISTENT);
        let state = crate::atomic::unless_disabled!(RobustReportsDeath, reported, CONSISTENT);
        node.state.store(state, Ordering::Relaxed);
    }
}
