//! Robust locks that are checked: `Robust<Checked<P>>`.
//!
//! The robust lock keeps libc's 40 bytes, so it carries no tag: what its memory was before, the checker knows only
//! by its address. A call that would close a circle of waits fails with
//! [`LockError::Deadlock`](crate::mutex::LockError::Deadlock), as a robust lock's own check for recursion does.
#![allow(unsafe_code)]

use super::checked::{Checked, Reports};
use super::kinds::Checkable;
use super::observer::Checker;
use crate::mutex::{RawError, RobustOps, WaitMode};
use crate::sys::robust_list::{Head, Node};
use crate::task::Me;

// SAFETY: the wrapped protocol takes and releases the word.
unsafe impl<P: RobustOps + Checkable> RobustOps for Checked<P, Reports> {
    type Observer = Checker;
    const MARK: usize = P::MARK;
    const HIDES_STATE: bool = P::HIDES_STATE;

    fn take(node: &Node, me: Me, patience: WaitMode) -> Result<(), RawError<P::Fault>> {
        P::take(node, me, patience)
    }

    fn free(node: &Node, head: &Head, before: usize) {
        P::free(node, head, before);
    }

    fn pass_on(node: &Node) {
        P::pass_on(node);
    }

    fn enter(node: &Node, patience: WaitMode) -> Result<(), RawError<P::Fault>> {
        P::enter(node, patience)
    }

    fn ceiling(node: &Node) -> u8 {
        P::ceiling(node)
    }

    fn leave(ceiling: u8) {
        P::leave(ceiling);
    }
}
