//! Robust locks that are checked: `Robust<Checked<P>>`.
//!
//! A robust lock has the size of libc's mutex, 40 bytes, so it carries no tag: the checker knows the lock only by its
//! address, and cannot detect that it was copied or overwritten. A call that would complete a wait-for cycle fails with
//! [`LockError::Deadlock`](crate::mutex::LockError::Deadlock), as does a recursive call by the lock's own check.
#![allow(unsafe_code)]

use crate::check::checked::{Checked, Reports};
use crate::check::kinds::Checkable;
use crate::check::observer::Checker;
use crate::mutex::{RawError, RobustOps, WaitMode};
use crate::sys::robust_list::{Head, Node};
use crate::task::Me;

// SAFETY: the wrapped protocol acquires and releases the word.
unsafe impl<P: RobustOps + Checkable> RobustOps for Checked<P, Reports> {
    type Observer = Checker;
    const MARK: usize = P::MARK;
    const HIDES_STATE: bool = P::HIDES_STATE;

    fn take(node: &Node, me: Me, wait_mode: WaitMode) -> Result<(), RawError<P::Fault>> {
        P::take(node, me, wait_mode)
    }

    fn free(node: &Node, head: &Head, before: usize) {
        P::free(node, head, before);
    }

    fn pass_on(node: &Node) {
        P::pass_on(node);
    }

    fn enter(node: &Node, wait_mode: WaitMode) -> Result<(), RawError<P::Fault>> {
        P::enter(node, wait_mode)
    }

    fn ceiling(node: &Node) -> u8 {
        P::ceiling(node)
    }

    fn leave(ceiling: u8) {
        P::leave(ceiling);
    }
}
