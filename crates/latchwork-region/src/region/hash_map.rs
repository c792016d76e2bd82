//! A hash table in a region, with real pointers.
//!
//! The map is one word, the address of its *table*: a block with a few words and an array of slots, probed linearly.
//! A slot is 0 (never used), 1 (a *tombstone*: its node was removed) or the address of a node, which holds the hash,
//! the key and the value.
//!
//! | word | where | meaning |
//! | --- | --- | --- |
//! | `table` | map | address of the table, 0 for none |
//! | slot | table | see above: the authoritative state |
//! | `pending` | table | the node that an operation is building, replacing or dismantling, or 0 |
//! | `len`, `used` | table | the number of nodes, and of slots that are not 0: derived from the slots |
//! | `stage` | node | whether the node has its key and its value |
//!
//! Invariants
//! 1. Every node is in one slot, or is `pending`, or both. (A node that is still private to its task is neither: it
//!    is freed if the task dies.)
//! 2. No slot between the first slot for a node's hash and the node's own slot is 0.
//! 3. While `pending` is 0, every node has its key and its value, and `len` and `used` are right.
//!
//! *Commit points, and a kill between any two stores.*
//! - *Insert:* the node becomes `pending` in the step that shares it; key and value; then one store to its slot
//!   inserts it; then `len`, and `pending` to 0.
//! - *Replace a value:* the old node becomes `pending` and gives its key to a new node, which is private until the
//!   heap publishes it in the slot: that replaces the value.
//! - *Remove:* the node becomes `pending`; making its slot a tombstone removes it. Value and key are dropped or
//!   taken, then the heap sets `pending` to 0 and frees the node in one step.
//! - *Grow, shrink:* a complete table is built, private to the task; the heap replaces the old one by it in one step.
//!
//! A task that finds `pending` set searches the slots for that node. If the node is in a slot, it is complete. If
//! not, the task dismantles the parts of it that exist. In both cases nothing leaks. Then it recounts `len` and `used`.
//! Every method that changes the map does this first; so does `repair`.
#![allow(unsafe_code)]

mod insert;
mod lookup;
mod table;
mod validate;

pub use insert::HashMapMut;

use super::container::{self, Anchor, commit, read};
use super::{PushError, Region, Relocatable, Shareable, StorageError, TornSafe, fingerprint_of};
use crate::atomic::AtomicUsize;
use core::borrow::Borrow;
use core::hash::Hash;
use core::marker::{PhantomData, PhantomPinned};
use core::pin::Pin;
use core::ptr::NonNull;
use core::slice;
use table::{
    COMPLETE, KEY, Node, TOMBSTONE, Table, VALUE, View, hash_of, node_in, table_for, take_value,
};

/// A hash map whose entries live in a region.
///
/// ```
/// use latchwork::mutex::{Mutex, Robust};
/// use latchwork::region::{HashMap, RegionOptions, String};
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let ages = region.object("ages", || Mutex::robust(HashMap::<String, u32>::new_in(&region)))?;
/// let mut ages = ages.lock().unwrap();
/// let mut all = ages.edit();
/// all.insert_str("Ada", 36)?;
/// all.insert_str("Alan", 41)?;
/// assert_eq!(all.get("Ada"), Some(&36));
/// assert_eq!(all.remove("Alan"), Some(41));
/// # drop(ages);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The hash is the same in every process, and keyed with a number that the map draws when it first allocates memory. It
/// distributes keys well, but is no defence against an attacker who chooses keys and knows that number. Two programs
/// that share a map must be built with compilers that hash the key type alike: a mismatch only makes look-ups fail.
///
/// *Cost.* Two words; a slot of 8 bytes and a block for each entry. A look-up takes one probe on average, and follows
/// one pointer.
///
/// *Owner death.* Each method takes effect as a whole or not at all. A key or value on the dead task's stack, on its
/// way in or out, is lost together with the blocks that it owns: they are leaked. ([`Self::insert_str`] builds its
/// key in place.) In shared memory the map is changed in its place, through [`HashMapMut`].
///
/// *Fork.* One on the stack still belongs to the parent: the child must forget its copy, and not change it.
#[repr(C)]
pub struct HashMap<K, V> {
    table: Anchor,
    entries: PhantomData<(K, V)>,
    pinned: PhantomPinned,
}

// SAFETY: addresses in the region are the same everywhere, and keys and values are Shareable.
unsafe impl<K: Shareable, V: Shareable> Shareable for HashMap<K, V> {
    const FINGERPRINT: u64 = fingerprint_of::<Self>(
        "latchwork::HashMap",
        &[
            K::FINGERPRINT,
            V::FINGERPRINT,
            table::layout_of::<K, V>(),
            table::HASHER,
        ],
    );
    const NAMES_THREADS: bool = K::NAMES_THREADS || V::NAMES_THREADS;
}
// SAFETY: every change is one store (see the module's documentation), and keys and values are TornSafe.
unsafe impl<K: TornSafe, V: TornSafe> TornSafe for HashMap<K, V> {}
// SAFETY: nothing contains its address.
unsafe impl<K, V> Relocatable for HashMap<K, V> {}

impl<K, V> HashMap<K, V> {
    /// The caller keeps the region mapped, by a guard or for a borrow.
    #[inline]
    fn view(&self) -> Option<View<'_>> {
        let table = self.table.block::<Table>()?;
        // SAFETY: the table begins with its head, which contains the number of slots that follow, and exists until
        // `table` changes, which takes `&mut self`.
        unsafe {
            let head = &*table.as_ptr();
            let slots = table.add(1).cast().as_ptr();
            Some(View {
                head,
                slots: slice::from_raw_parts(slots, head.capacity),
            })
        }
    }

    /// The number of entries.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        let _guard = self.table.guard();
        self.count()
    }

    #[inline]
    fn count(&self) -> usize {
        self.view().map_or(0, |view| read(&view.head.len))
    }

    /// Whether there are no entries.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Finishes or undoes the operation that a dead owner left unfinished, and recounts the entries. Every method
    /// that changes the map does this by itself; before it, [`Self::len`] may be off by one.
    #[inline]
    pub fn repair(&mut self) {
        let _guard = self.table.guard();
        self.finish_pending();
    }

    // Private methods with `&self` change words, too: only methods with `&mut self` call them.

    #[inline]
    fn finish_pending(&self) {
        if let Some(view) = self.view()
            && let Some(node) = container::pointer(read(&view.head.pending))
        {
            crate::atomic::unless_disabled!(
                MapFinishesOperation,
                self.finish_pending_node(view, node),
                ()
            );
        }
    }

    #[cold]
    fn finish_pending_node(&self, view: View<'_>, node: NonNull<Node<K, V>>) {
        // SAFETY: a pending node is allocated until the step that clears `pending`.
        let (hash, stage) = unsafe { (node.as_ref().hash, &node.as_ref().stage) };
        // While the node is pending: a kill before the last step repeats all.
        view.recount();
        if view.has(hash, container::address(node)) {
            commit(stage, COMPLETE);
            commit(&view.head.pending, 0);
        } else {
            self.dismantle(view, node);
        }
    }

    /// Drops the existing parts of a pending node that is in no slot, and frees it.
    fn dismantle(&self, view: View<'_>, node: NonNull<Node<K, V>>) {
        let node_pointer = node.as_ptr();
        // SAFETY: `stage` says which parts exist; no slot leads to the node, so no other task uses it.
        unsafe {
            let stage = &(*node_pointer).stage;
            container::drop_part(stage, VALUE, &raw mut (*node_pointer).value);
            container::drop_part(stage, KEY, &raw mut (*node_pointer).key);
        }
        // On failure the node stays pending, until a thread that can become a task calls a method.
        // SAFETY: `pending`, which leads to the node, belongs to the caller, a method with `&mut self`.
        let _ = unsafe {
            container::unlink_and_free(self.table.region, &view.head.pending, node.cast())
        };
    }

    /// Removes a node from its slot, and passes it to `take` before it is freed.
    fn unlink<R>(
        &self,
        view: View<'_>,
        slot: &AtomicUsize,
        node: NonNull<Node<K, V>>,
        take: impl FnOnce(NonNull<Node<K, V>>) -> R,
    ) -> R {
        commit(&view.head.pending, container::address(node));
        commit(slot, TOMBSTONE);
        commit(&view.head.len, read(&view.head.len).saturating_sub(1));
        let taken = take(node);
        self.dismantle(view, node);
        taken
    }

    /// Drops all entries. The table stays, as with all methods that remove entries: see [`Self::shrink_to_fit`].
    pub fn clear(&mut self) {
        let _guard = self.table.guard();
        self.finish_pending();
        let Some(view) = self.view() else { return };
        for slot in view.slots {
            if let Some(node) = node_in(slot) {
                self.unlink(view, slot, node, |_| ());
            }
        }
        // No node is left, so the order of the slots does not matter. The count of used ones may be too large meanwhile.
        for slot in view.slots {
            commit(slot, 0);
        }
        commit(&view.head.used, 0);
    }
}

impl<K: Shareable + Hash + Eq, V: Shareable> HashMap<K, V> {
    /// An empty map for this region. It takes no memory before the first insert.
    #[must_use]
    pub fn new_in(region: &Region) -> Self {
        Self {
            table: Anchor::new(region.inner().id),
            entries: PhantomData,
            pinned: PhantomPinned,
        }
    }

    /// Sets the value of a key, and returns the previous value. If the map has the key already, it keeps it and drops
    /// the new one.
    ///
    /// # Errors
    /// If the region has no room or the thread cannot become a task of it; the error contains key and value.
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, PushError<(K, V)>>
    where
        V: Relocatable,
    {
        self.set(key, value)
    }

    /// The value of a key, made by `make` if there is none yet.
    ///
    /// # Errors
    /// As for [`Self::insert`]; the error contains the key, and the new value, if it was made, is dropped.
    pub fn get_or_insert_with(
        &mut self,
        key: K,
        make: impl FnOnce() -> V,
    ) -> Result<&mut V, PushError<K>>
    where
        V: Relocatable,
    {
        self.find_or_insert_mut(key, make)
    }

    /// Like [`Self::get_or_insert_with`], for values that must not move, with robust locks in them: see
    /// [`Self::get_pin`].
    ///
    /// # Errors
    /// As for [`Self::get_or_insert_with`].
    pub fn get_pin_or_insert_with(
        &mut self,
        key: K,
        make: impl FnOnce() -> V,
    ) -> Result<Pin<&V>, PushError<K>> {
        let node = self.find_or_insert(key, make)?;
        // SAFETY: a node in a slot is complete, and its value does not move: see `get_pin`.
        Ok(unsafe { Pin::new_unchecked(node.as_ref().value.assume_init_ref()) })
    }

    /// Removes a key, and returns its value.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Relocatable,
    {
        self.remove_with(key, take_value)
    }

    /// Removes a key, and drops its value in place. Returns whether the map had the key.
    pub fn discard<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.remove_with(key, |_| ()).is_some()
    }

    fn remove_with<Q: Hash + Eq + ?Sized, R>(
        &self,
        key: &Q,
        take: impl FnOnce(NonNull<Node<K, V>>) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let _guard = self.table.guard();
        self.finish_pending();
        let view = self.view()?;
        let (index, node) = self.find(view, hash_of(view, key), key)?;
        Some(self.unlink(view, &view.slots[index], node, take))
    }

    /// Makes room for `additional` more entries.
    ///
    /// # Errors
    /// If the region has no room, or the thread cannot become a task of it. Then nothing has changed.
    pub fn reserve(&mut self, additional: usize) -> Result<(), StorageError> {
        let _guard = self.table.guard();
        if additional == 0 {
            return Ok(());
        }
        self.make_room(additional).map(|_| ())
    }

    /// Returns the memory that the table does not need for its entries to the heap, in one step: all of it if there
    /// are no entries. (An entry's own block is freed with the entry in any case. [`Region::trim`] returns the heap's
    /// free memory to the system.)
    ///
    /// # Errors
    /// If the region has no room for the smaller table beside the old one. Then nothing has changed.
    pub fn shrink_to_fit(&mut self) -> Result<(), StorageError> {
        let _guard = self.table.guard();
        self.finish_pending();
        let Some(view) = self.view() else {
            return Ok(());
        };
        match self.count() {
            // SAFETY: no node is left.
            0 => unsafe { self.table.free_block() },
            len if table_for(len).is_some_and(|capacity| capacity < view.head.capacity) => {
                self.rebuild(len)
            }
            _ => Ok(()),
        }
    }
}

impl<K, V> Drop for HashMap<K, V> {
    /// Drops the entries and frees the table. A thread that cannot become a task of the region leaks them; so does a
    /// process that has not attached it.
    fn drop(&mut self) {
        let Some(_guard) = self.table.try_guard() else {
            return;
        };
        self.clear();
        // SAFETY: no node is left.
        let _ = unsafe { self.table.free_block() };
    }
}
