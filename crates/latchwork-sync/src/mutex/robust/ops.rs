//! The operations of a protocol's robust form. Hidden: only the protocols of this crate and the checker's wrapper
//! implement them.
#![allow(unsafe_code)]

use super::raw_result::RawError;
use crate::hook::Observer;
use crate::mutex::{Protocol, WaitMode};
use crate::sys::robust_list::{Head, Node};
use crate::task::Me;

/// The operations of a protocol's robust form. The node is announced during all of them but those of the ceiling
/// ([`enter`](RobustOps::enter), [`ceiling`](RobustOps::ceiling), [`leave`](RobustOps::leave)).
///
/// # Safety
/// When `take` succeeds, no other task has the lock until `free`, `pass_on` or the fast path of the release.
#[doc(hidden)]
pub unsafe trait RobustOps: Protocol {
    /// The mark of links to nodes of this protocol on the robust list.
    const MARK: usize = 0;
    /// Whether the word of a lock can say that the lock is free while its data is not whole.
    const HIDES_STATE: bool = false;

    /// Takes the word, and calls `owner_died` if the word was a dead owner's. If the call fails, it has left what was
    /// [entered](RobustOps::enter).
    fn take(node: &Node, me: Me, wait_mode: WaitMode) -> Result<(), RawError<Self::Fault>>;

    /// Releases a word that is not exactly the ID of the calling task, and settles (ends the announcement).
    fn free(node: &Node, head: &Head, before: usize);

    /// Releases the word of data that is not whole, with or without waiters, so that the next owner reads the state.
    fn pass_on(node: &Node);

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
}

/// The protocols that have a robust form.
pub trait RobustProtocol: RobustOps {}
impl<P: RobustOps> RobustProtocol for P {}
