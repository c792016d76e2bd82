//! A doubly linked list in a region, with real pointers.
//!
//! The list is one word, the address of its *root*: a block with the ends and a few more words.
//!
//! | word | where | meaning |
//! | --- | --- | --- |
//! | `root` | list | address of the root, 0 for none |
//! | `head`, `next` | root, nodes | the elements in order: the authoritative state |
//! | `pending` | root | the node that an operation is building or dismantling, or 0 |
//! | `prev`, `tail`, `len` | nodes, root | derived from `head` and `next` |
//! | `stage` | node | whether the node has its value |
//!
//! Invariants
//! 1. Every node is reachable from `head`, or is `pending`, or both.
//! 2. While `pending` is 0, every node has its value, and the derived words are right.
//!
//! *Commit points, and a kill between any two stores.*
//! - *Insert:* the node becomes `pending` in the step that shares it; value, `prev` and `next`; then one store to its
//!   predecessor's `next` (or `head`) inserts it; then the derived words, and `pending` to 0.
//! - *Remove:* the node becomes `pending`; one store to its predecessor removes it; the derived words; the value is
//!   dropped or taken, then the heap sets `pending` to 0 and frees the node in one step.
//!
//! A task that finds `pending` set walks the list once, recomputes all derived words, and dismantles the node unless
//! the walk found it. Every method that changes the list does this first.
#![allow(unsafe_code)]

mod iter;
mod validate;

pub use iter::ListMut;

use super::container::{self, Anchor, commit, read};
use super::{PushError, Region, Relocatable, Shareable, StorageError, TornSafe, fingerprint_of};
use crate::atomic::AtomicUsize;
use core::marker::{PhantomData, PhantomPinned};
use core::mem::{MaybeUninit, offset_of};
use core::ptr::NonNull;

/// A doubly linked list whose elements live in a region. An element never moves.
///
/// ```
/// use latchwork::mutex::{Mutex, Robust};
/// use latchwork::region::{List, RegionOptions};
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let jobs = region.object("jobs", || Mutex::robust(List::<u32>::new_in(&region)))?;
/// let mut jobs = jobs.lock().unwrap();
/// let mut jobs = jobs.edit();
/// jobs.push_back(2)?;
/// jobs.push_front(1)?;
/// jobs.retain(|job| *job != 2);
/// assert_eq!(jobs.pop_front(), Some(1));
/// # drop(jobs);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *Cost.* Two words; for each element a block of 24 bytes plus the element.
///
/// *Owner death.* Each method takes effect as a whole or not at all (`retain` and `clear`: for each element). A value
/// on the dead task's stack, on its way in or out, is lost together with the blocks that it owns: they are leaked.
/// In shared memory the list is changed in its place, through [`ListMut`].
///
/// *Fork.* One on the stack still belongs to the parent: the child must forget its copy, and not change it.
#[repr(C)]
pub struct List<T> {
    root: Anchor,
    elements: PhantomData<T>,
    pinned: PhantomPinned,
}

#[repr(C)]
#[derive(Default)]
struct Root {
    head: AtomicUsize,
    tail: AtomicUsize,
    len: AtomicUsize,
    pending: AtomicUsize,
}

#[repr(C)]
struct Node<T> {
    next: AtomicUsize,
    prev: AtomicUsize,
    stage: AtomicUsize,
    value: MaybeUninit<T>,
}

/// The stage of a node that has its value.
const VALUE: usize = 1;

type NodePtr<T> = NonNull<Node<T>>;
type Link<T> = Option<NodePtr<T>>;

// SAFETY: addresses in the region are the same everywhere, and the elements are Shareable.
unsafe impl<T: Shareable> Shareable for List<T> {
    const FINGERPRINT: u64 = fingerprint_of::<Self>(
        "latchwork::List",
        &[
            T::FINGERPRINT,
            size_of::<Root>() as u64,
            offset_of!(Root, head) as u64,
            offset_of!(Root, tail) as u64,
            offset_of!(Root, len) as u64,
            offset_of!(Root, pending) as u64,
            size_of::<Node<T>>() as u64,
            offset_of!(Node<T>, next) as u64,
            offset_of!(Node<T>, prev) as u64,
            offset_of!(Node<T>, stage) as u64,
            offset_of!(Node<T>, value) as u64,
        ],
    );
    const NAMES_THREADS: bool = T::NAMES_THREADS;
}
// SAFETY: every change is one store (see the module's documentation), and the elements are TornSafe.
unsafe impl<T: TornSafe> TornSafe for List<T> {}
// SAFETY: nothing contains its address.
unsafe impl<T> Relocatable for List<T> {}

impl<T> List<T> {
    /// The caller keeps the region mapped, by a guard or for a borrow.
    fn root(&self) -> Option<&Root> {
        // SAFETY: the root exists until the list is dropped.
        self.root.block().map(|root| unsafe { &*root.as_ptr() })
    }

    /// # Safety
    /// The node is one of this list's.
    unsafe fn node(&self, node: NodePtr<T>) -> &Node<T> {
        // SAFETY: the caller guarantees that the node is one of this list's; only methods with `&mut self` free nodes.
        unsafe { node.as_ref() }
    }

    fn first(&self) -> Link<T> {
        container::pointer(read(&self.root()?.head))
    }

    fn last(&self) -> Link<T> {
        container::pointer(read(&self.root()?.tail))
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        let _guard = self.root.guard();
        self.count()
    }

    fn count(&self) -> usize {
        self.root().map_or(0, |root| read(&root.len))
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let _guard = self.root.guard();
        self.first().is_none()
    }

    /// The first element.
    #[must_use]
    pub fn front(&self) -> Option<&T> {
        self.root.keep_mapped();
        // SAFETY: a node of this list, which has its value.
        self.first()
            .map(|node| unsafe { node.as_ref().value.assume_init_ref() })
    }

    /// The last element.
    #[must_use]
    pub fn back(&self) -> Option<&T> {
        self.iter().next_back()
    }

    /// Finishes or undoes the operation that a dead owner left unfinished, and recomputes backward links, end and
    /// length, in O(n). Every method that changes the list does this by itself; before it, iteration may miss an
    /// element, and the length may be off by one.
    #[inline]
    pub fn repair(&mut self) {
        let _guard = self.root.guard();
        self.finish_pending();
    }

    // Private methods with `&self` change words, too: only methods with `&mut self` call them.

    #[inline]
    fn finish_pending(&self) {
        if let Some(root) = self.root()
            && let Some(node) = container::pointer(read(&root.pending))
        {
            crate::atomic::unless_disabled!(
                ListFinishesOperation,
                self.finish_pending_node(root, node),
                ()
            );
        }
    }

    #[cold]
    fn finish_pending_node(&self, root: &Root, pending: NodePtr<T>) {
        let (mut len, mut last, mut is_linked) = (0, 0, false);
        let mut next = self.first();
        while let Some(node) = next {
            // SAFETY: a node of this list.
            let place = unsafe { self.node(node) };
            commit(&place.prev, last);
            len += 1;
            last = container::address(node);
            is_linked |= node == pending;
            next = container::pointer(read(&place.next));
        }
        commit(&root.tail, last);
        commit(&root.len, len);
        if is_linked {
            commit(&root.pending, 0);
        } else {
            self.dismantle(root, pending);
        }
    }

    /// Drops the value, if there is one, of a pending node that no link leads to, and frees the node.
    fn dismantle(&self, root: &Root, node: NodePtr<T>) {
        let pointer = node.as_ptr();
        // SAFETY: `stage` says whether there is a value; no other task can reach the node.
        unsafe { container::drop_part(&(*pointer).stage, VALUE, &raw mut (*pointer).value) };
        // On failure the node stays pending, until a thread that can become a task calls a method.
        // SAFETY: `pending`, which leads to the node, belongs to the caller, a method with `&mut self`.
        let _ = unsafe { container::unlink_and_free(self.root.region, &root.pending, node.cast()) };
    }

    /// The word that links forward to the node after `prev`.
    fn forward_link<'a>(&'a self, root: &'a Root, prev: Link<T>) -> &'a AtomicUsize {
        // SAFETY: a node of this list.
        prev.map_or(&root.head, |prev| unsafe { &self.node(prev).next })
    }

    /// The word that links back to the node before `next`.
    fn backward_link<'a>(&'a self, root: &'a Root, next: Link<T>) -> &'a AtomicUsize {
        // SAFETY: a node of this list.
        next.map_or(&root.tail, |next| unsafe { &self.node(next).prev })
    }

    /// Removes a node from the list, and passes it to `take` before it is freed.
    fn unlink<R>(&self, root: &Root, node: NodePtr<T>, take: impl FnOnce(NodePtr<T>) -> R) -> R {
        // SAFETY: a node of this list.
        let place = unsafe { self.node(node) };
        let (prev, next) = (read(&place.prev), read(&place.next));
        commit(&root.pending, container::address(node));
        commit(self.forward_link(root, container::pointer(prev)), next);
        commit(self.backward_link(root, container::pointer(next)), prev);
        commit(&root.len, read(&root.len).saturating_sub(1));
        let taken = take(node);
        self.dismantle(root, node);
        taken
    }

    /// Drops all elements.
    pub fn clear(&mut self) {
        let _guard = self.root.guard();
        self.finish_pending();
        while let (Some(root), Some(node)) = (self.root(), self.first()) {
            self.unlink(root, node, |_| ());
        }
    }
}

impl<T: Shareable> List<T> {
    /// An empty list for this region. It takes no memory before the first push.
    #[must_use]
    pub fn new_in(region: &Region) -> Self {
        Self {
            root: Anchor::new(region.inner().id),
            elements: PhantomData,
            pinned: PhantomPinned,
        }
    }

    /// Inserts an element behind `prev`, or at the front.
    fn insert_after(
        &self,
        prev: impl FnOnce(&Self) -> Link<T>,
        value: T,
    ) -> Result<(), PushError<T>> {
        let _guard = self.root.guard();
        self.finish_pending();
        let (root, mut node) = match self.pending_node() {
            Ok(pending) => pending,
            Err(error) => return Err(PushError { value, error }),
        };
        let prev = prev(self);
        let forward = self.forward_link(root, prev);
        let next = container::pointer(read(forward));
        let address = container::address(node);
        // SAFETY: the pending node belongs to the caller.
        let place = unsafe { node.as_mut() };
        place.value.write(value);
        commit(&place.stage, VALUE);
        commit(&place.next, read(forward));
        commit(&place.prev, prev.map_or(0, container::address));
        commit(forward, address);
        commit(self.backward_link(root, next), address);
        commit(&root.len, read(&root.len) + 1);
        commit(&root.pending, 0);
        Ok(())
    }

    /// An empty node, which is pending, in the root, which is made if there is none.
    fn pending_node(&self) -> Result<(&Root, NodePtr<T>), StorageError> {
        let region = self.root.region;
        if self.root().is_none() {
            container::with_heap(region, |heap| heap.accept::<T>())?;
            // SAFETY: `root` belongs to the caller, a method with `&mut self`.
            unsafe { container::add(region, &self.root.word, Root::default)? };
        }
        let root = self.root().ok_or(StorageError::NotMapped)?;
        let empty = || Node {
            next: AtomicUsize::new(0),
            prev: AtomicUsize::new(0),
            stage: AtomicUsize::new(0),
            value: MaybeUninit::uninit(),
        };
        // SAFETY: `pending` belongs to the caller, a method with `&mut self`.
        let node = unsafe { container::add(region, &root.pending, empty)? };
        Ok((root, node))
    }

    /// Inserts an element at the front.
    ///
    /// # Errors
    /// If the region has no room or the thread cannot become a task of it; the error contains the element.
    pub fn push_front(&mut self, value: T) -> Result<(), PushError<T>> {
        self.insert_after(|_| None, value)
    }

    /// Appends an element.
    ///
    /// # Errors
    /// As for [`Self::push_front`].
    pub fn push_back(&mut self, value: T) -> Result<(), PushError<T>> {
        self.insert_after(Self::last, value)
    }

    fn pop(&self, end: impl FnOnce(&Self) -> Link<T>) -> Option<T>
    where
        T: Relocatable,
    {
        let _guard = self.root.guard();
        self.finish_pending();
        let (root, node) = (self.root()?, end(self)?);
        Some(self.unlink(root, node, |mut node| {
            // SAFETY: the node belongs to the caller, and has its value; `stage` says that it has none before any
            // other task can see the node.
            unsafe {
                let node = node.as_mut();
                T::settle(node.value.as_mut_ptr());
                let value = node.value.assume_init_read();
                commit(&node.stage, 0);
                value
            }
        }))
    }

    /// Removes and returns the first element.
    pub fn pop_front(&mut self) -> Option<T>
    where
        T: Relocatable,
    {
        self.pop(Self::first)
    }

    /// Removes and returns the last element.
    pub fn pop_back(&mut self) -> Option<T>
    where
        T: Relocatable,
    {
        self.pop(Self::last)
    }

    /// The first element, mutable.
    #[must_use]
    pub fn front_mut(&mut self) -> Option<&mut T>
    where
        T: Relocatable,
    {
        self.iter_mut().next()
    }

    /// The last element, mutable.
    #[must_use]
    pub fn back_mut(&mut self) -> Option<&mut T>
    where
        T: Relocatable,
    {
        self.last_mut()
    }

    /// The caller does not lend a `&mut T` that must not move.
    fn last_mut(&mut self) -> Option<&mut T> {
        self.root.keep_mapped();
        self.finish_pending();
        // SAFETY: a node of this list, which has its value, and the list is borrowed exclusively.
        self.last()
            .map(|node| unsafe { (*node.as_ptr()).value.assume_init_mut() })
    }

    /// Drops the elements for which `keep` returns false, in order.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let _guard = self.root.guard();
        self.finish_pending();
        let mut next = self.first();
        while let (Some(root), Some(node)) = (self.root(), next) {
            // SAFETY: a node of this list, which has its value.
            let place = unsafe { self.node(node) };
            next = container::pointer(read(&place.next));
            // SAFETY: the node has its value.
            if !keep(unsafe { place.value.assume_init_ref() }) {
                self.unlink(root, node, |_| ());
            }
        }
    }
}

impl<T> Drop for List<T> {
    /// Drops the elements and frees the root. A thread that cannot become a task of the region leaks them; so does a
    /// process that has not attached it.
    fn drop(&mut self) {
        let Some(_guard) = self.root.try_guard() else {
            return;
        };
        self.clear();
        // SAFETY: no node is left.
        let _ = unsafe { self.root.free_block() };
    }
}
