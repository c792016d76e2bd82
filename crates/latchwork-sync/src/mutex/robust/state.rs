//! The state of the data, the second word of a robust lock's node. The table is in [the parent](super).

use crate::atomic::{Ordering, unless_fault};
use crate::sys::robust_list::Node;

pub(super) use crate::sys::robust_state::{CONSISTENT, INCONSISTENT, NOT_RECOVERABLE};

/// To be called by the new owner, which took a dead owner's word, or to which the kernel passed it.
pub(super) fn owner_died(node: &Node) {
    // The state `NOT_RECOVERABLE` stays, even if the task that set it died before it released the lock.
    if node.state.load(Ordering::Relaxed) == CONSISTENT {
        let state = unless_fault!(RobustHidesDeath, INCONSISTENT, CONSISTENT);
        node.state.store(state, Ordering::Relaxed);
    }
}
