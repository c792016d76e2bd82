//! The robust list as models see it: the nodes on it, and the announced node.
//!
//! The modelled kernel of `model/mortal.rs` reads it when its task has died. Each change is one step, as each
//! is one store that the kernel can observe. The links themselves are not modelled.
#![allow(unsafe_code)]

use crate::atomic::{AtomicU32, unless_fault};
use crate::model::step;
use core::ptr;
use std::cell::{Cell, RefCell};

/// A lock as an element of the list.
pub struct Node {
    pub word: AtomicU32,
    pub state: AtomicU32,
    pub queue: AtomicU32,
    pub extra: AtomicU32,
    pub setting: u32,
}

pub const KERNEL_LIMIT: usize = 2048;
/// Bit 0 of an address: the lock inherits priority.
pub const PI: usize = 1;

/// What becomes of a node at the end of its thread; models do not use it.
#[derive(Clone, Copy)]
pub enum AtEnd {
    Keep,
    Lose,
}

impl Node {
    pub fn new(extra: u32, _: AtEnd) -> Self {
        Self {
            word: AtomicU32::new(0),
            state: AtomicU32::new(0),
            queue: AtomicU32::new(0),
            extra: AtomicU32::new(extra),
            setting: 0,
        }
    }

    pub fn is_followed_on(&self, _end: usize) -> bool {
        false
    }
}

/// The word of the node at an address.
///
/// # Safety
/// The address is that of a living node.
pub unsafe fn word_of<'a>(node: usize) -> &'a AtomicU32 {
    // SAFETY: by the caller's contract.
    unsafe { &(*ptr::with_exposed_provenance::<Node>(node)).word }
}

/// One task's list.
#[derive(Default)]
pub struct Head {
    nodes: RefCell<Vec<usize>>,
    pending: Cell<usize>,
}

impl Head {
    pub fn announce(&self, node: &Node, mark: usize) -> usize {
        step();
        self.pending.replace(unless_fault!(
            RobustNotAnnounced,
            ptr::from_ref(node).expose_provenance() | mark,
            0
        ))
    }

    pub fn settle(&self, before: usize) {
        step();
        self.pending.set(before);
    }

    /// # Safety
    /// As for `sys/robust_list.rs`.
    pub unsafe fn is_last(&self, _behind: usize) -> bool {
        self.nodes.borrow().is_empty()
    }

    /// # Safety
    /// As for `sys/robust_list.rs`.
    pub unsafe fn link(&self, node: &Node, mark: usize, behind: usize, _end: usize) -> bool {
        step();
        // SAFETY: by the caller's contract.
        let is_followed = !unsafe { self.is_last(behind) };
        self.nodes
            .borrow_mut()
            .push(ptr::from_ref(node).expose_provenance() | mark);
        is_followed
    }

    /// # Safety
    /// As for `sys/robust_list.rs`.
    pub unsafe fn unlink(&self, node: &Node, _end: usize) -> bool {
        step();
        let mut nodes = self.nodes.borrow_mut();
        nodes.retain(|address| *address & !PI != ptr::from_ref(node).addr());
        !nodes.is_empty()
    }

    /// # Safety
    /// As for `sys/robust_list.rs`.
    pub unsafe fn unlink_last(&self, node: &Node, end: usize) {
        // SAFETY: by the caller's contract.
        let was_followed = unsafe { self.unlink(node, end) };
        debug_assert!(!was_followed);
    }

    pub fn nodes(&self) -> Vec<usize> {
        self.nodes.borrow().clone()
    }

    pub fn pending(&self) -> usize {
        self.pending.get()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.borrow().is_empty() && self.pending.get() == 0
    }

    pub fn clear(&self) {
        self.nodes.borrow_mut().clear();
        self.pending.set(0);
    }
}
