//! What a protocol brings to its robust form. Hidden: only the protocols of this crate and the checker's wrapper have one.
#![allow(unsafe_code)]

use super::raw_result::RawError;
use crate::hook::Observer;
use crate::mutex::{Protocol, WaitMode};
use crate::sys::robust_list::{Head, Node};
use crate::task::Me;

/// What a protocol decides of its robust form. All but the ceilings' part is called with the node
/// announced.
///
/// # Safety
/// When `take` succeeds, no other task has the lock until `free`, `pass_on` or the fast path of the release.
pub unsafe trait Slow: Protocol {
    /// How links to its nodes are marked.
    const MARK: usize = 0;
    /// Whether a lock can be free, by its word, while its data is not whole.
    const HIDES_STATE: bool = false;

    /// Takes the word. If it was a dead owner's, `owner_died` has been called. If it is not
    /// taken, what was [entered](Slow::enter) has been left.
    fn take(node: &Node, me: Me, wait_mode: WaitMode) -> Result<(), RawError<Self::Fault>>;

    /// Releases a word that is not just `me`'s ID, and settles.
    fn free(node: &Node, head: &Head, before: usize);

    /// Releases the word of data that is not whole, whether or not anybody waits, so that the
    /// next taker looks at the state.
    fn pass_on(node: &Node);

    /// In front of everything else: enters the ceiling. Who does not wait may be told at once that
    /// the lock is held.
    #[inline(always)]
    fn enter(_node: &Node, _wait_mode: WaitMode) -> Result<(), RawError<Self::Fault>> {
        Ok(())
    }

    /// What was entered for a lock, which may be gone when it is left.
    #[inline(always)]
    fn ceiling(_node: &Node) -> u8 {
        0
    }

    /// After everything else: leaves the ceiling.
    #[inline(always)]
    fn leave(_ceiling: u8) {}

    /// What its robust form reports to.
    type Observer: Observer;
}

/// The protocols that have a robust form.
pub trait RobustProtocol: Slow {}
impl<P: Slow> RobustProtocol for P {}
