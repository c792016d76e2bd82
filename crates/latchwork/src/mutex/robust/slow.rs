//! What a protocol brings to its robust form. Sealed: only this crate's have one.

#[cfg(feature = "check")]
use crate::check::told;

/// Nobody listens.
#[cfg(not(feature = "check"))]
mod told {
    #![allow(
        clippy::extra_unused_type_parameters,
        reason = "the names of those that are used otherwise"
    )]
    use super::Site;

    pub(super) fn wants<P: ?Sized>(_: usize, _: bool, _: Site) -> bool {
        false
    }
    pub(super) fn taken<P: ?Sized>(_: usize, _: bool, _: Site) {}
    pub(super) fn gave_up<P: ?Sized>(_: usize) {}
    pub(super) fn releasing<P: ?Sized>(_: usize) {}
}

use super::RawError;
use crate::hook::Site;
use crate::mutex::{Patience, Protocol};
use crate::sys::robust_list::{Head, Node};
use crate::task::Me;

/// What a protocol decides of its robust form. All but the ceilings' part is called with the node
/// announced.
pub trait Slow: Protocol {
    /// How links to its nodes are marked.
    const MARK: usize = 0;
    /// Whether a lock can be free, by its word, while its data is not whole.
    const HIDES_STATE: bool = false;

    /// Takes the word. If it was a dead owner's, [`Node::owner_died`] has been called. If it is not
    /// taken, what was [entered](Slow::enter) has been left.
    fn take(node: &Node, me: Me, patience: Patience) -> Result<(), RawError<Self::Fault>>;

    /// Releases a word that is not just `me`'s ID, and settles.
    fn free(node: &Node, head: &Head, before: usize);

    /// Releases the word of data that is not whole, whether or not anybody waits, so that the
    /// next taker looks at the state.
    fn pass_on(node: &Node);

    /// In front of everything else: enters the ceiling. Who does not wait may be told at once that
    /// the lock is held.
    #[inline(always)]
    fn enter(_node: &Node, _patience: Patience) -> Result<(), RawError<Self::Fault>> {
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

    /// Whether the checker is told of what follows.
    const CHECKED: bool = cfg!(feature = "check");

    /// The calling task is about to wait for the lock at this address, for at most some time if `timed`; whether
    /// it must not, since it would wait for ever.
    fn tell_wants(lock: usize, timed: bool, site: Site) -> bool {
        told::wants::<Self>(lock, timed, site)
    }

    /// It has taken it; by a call that never waits, if `tried`.
    fn tell_taken(lock: usize, tried: bool, site: Site) {
        told::taken::<Self>(lock, tried, site);
    }

    /// It does not wait any more.
    fn tell_gave_up(lock: usize) {
        told::gave_up::<Self>(lock);
    }

    /// It is about to release it.
    fn tell_releasing(lock: usize) {
        told::releasing::<Self>(lock);
    }
}
