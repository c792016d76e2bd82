//! How a node is inserted in a map: making room, building, replacing; and the editor of a map.
//!
//! The private methods here change words through `&self`; only methods with `&mut self` call them.
#![allow(unsafe_code)]

use super::super::container::{self, commit, editor, forward, read};
use super::super::region_id::RegionId;
use super::super::{PushError, Relocatable, Shareable, StorageError, String};
use super::HashMap;
use super::table::{
    COMPLETE, KEY, Node, Table, VALUE, View, hash_of, node_in, seed_for, table_for, take_value,
};
use crate::atomic::AtomicUsize;
use core::borrow::Borrow;
use core::hash::Hash;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::slice;

/// A key to insert, which looks like a `Q`: a `K` that moves to its node, or the content of a string that is built there.
pub(super) trait NewKey<K, Q: ?Sized>: Borrow<Q> + Sized {
    /// Passes a key to `store`, which puts it in the node, and completes it there.
    fn put<'n>(
        self,
        region: RegionId,
        store: impl FnOnce(K) -> &'n mut K,
    ) -> Result<(), PushError<Self>>
    where
        K: 'n;
}

impl<K> NewKey<K, K> for K {
    fn put<'n>(self, _: RegionId, store: impl FnOnce(K) -> &'n mut K) -> Result<(), PushError<K>>
    where
        K: 'n,
    {
        store(self);
        Ok(())
    }
}

impl NewKey<String, str> for &str {
    fn put<'n>(
        self,
        region: RegionId,
        store: impl FnOnce(String) -> &'n mut String,
    ) -> Result<(), PushError<Self>> {
        let key = store(String::empty(region));
        key.push_str(self)
            .map_err(|error| PushError { value: self, error })
    }
}

impl<K: Shareable + Hash + Eq, V: Shareable> HashMap<K, V> {
    /// Sets the value of a key, and returns the previous value. If the map has the key already, it keeps it.
    pub(super) fn set<N, Q>(&self, key: N, value: V) -> Result<Option<V>, PushError<(N, V)>>
    where
        V: Relocatable,
        N: NewKey<K, Q>,
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let _guard = self.table.guard();
        let refused = |key, value, error| {
            let value = (key, value);
            Err(PushError { value, error })
        };
        let view = match self.make_room(1) {
            Ok(view) => view,
            Err(error) => return refused(key, value, error),
        };
        let hash = hash_of(view, key.borrow());
        if let Some((index, node)) = self.find(view, hash, key.borrow()) {
            return match self.exchange(view, index, node, value) {
                Ok(value) => Ok(Some(value)),
                Err(PushError { value, error }) => refused(key, value, error),
            };
        }
        match self.pending_node(view, hash, key) {
            Ok(node) => {
                self.complete(view, node, value);
                Ok(None)
            }
            Err(PushError { value: key, error }) => refused(key, value, error),
        }
    }

    /// The node of a key, with a value made by `make` if there is none yet. It stays mapped for as long as the map can
    /// be borrowed.
    pub(super) fn find_or_insert<N: NewKey<K, Q>, Q: Hash + Eq + ?Sized>(
        &self,
        key: N,
        make: impl FnOnce() -> V,
    ) -> Result<NonNull<Node<K, V>>, PushError<N>>
    where
        K: Borrow<Q>,
    {
        let _guard = self.table.guard();
        let view = match self.make_room(1) {
            Ok(view) => view,
            Err(error) => return Err(PushError { value: key, error }),
        };
        let hash = hash_of(view, key.borrow());
        let node = match self.find(view, hash, key.borrow()) {
            Some((_, node)) => node,
            None => {
                let value = make();
                let node = self.pending_node(view, hash, key)?;
                self.complete(view, node, value);
                node
            }
        };
        self.table.keep_mapped();
        Ok(node)
    }

    /// The caller does not lend a `&mut V` that must not move.
    pub(super) fn find_or_insert_mut<N: NewKey<K, Q>, Q: Hash + Eq + ?Sized>(
        &mut self,
        key: N,
        make: impl FnOnce() -> V,
    ) -> Result<&mut V, PushError<N>>
    where
        K: Borrow<Q>,
    {
        let mut node = self.find_or_insert(key, make)?;
        // SAFETY: a node in a slot is complete, and the map is borrowed exclusively.
        Ok(unsafe { node.as_mut().value.assume_init_mut() })
    }

    /// Finishes a pending operation, and ensures that an eighth of the slots stays empty.
    pub(super) fn make_room(&self, additional: usize) -> Result<View<'_>, StorageError> {
        self.finish_pending();
        let (used, capacity) = self
            .view()
            .map_or((0, 0), |view| (read(&view.head.used), view.head.capacity));
        if used.saturating_add(additional) > capacity / 8 * 7 {
            let len = self.count().checked_add(additional);
            self.rebuild(len.ok_or(StorageError::TooLong)?)?;
        }
        self.view().ok_or(StorageError::TooLong)
    }

    /// Builds a table for at least `len` entries, without tombstones, and replaces the old one by it.
    #[cold]
    #[inline(never)]
    pub(super) fn rebuild(&self, len: usize) -> Result<(), StorageError> {
        let old = self.view();
        let capacity = table_for(len).ok_or(StorageError::TooLong)?;
        let layout = View::layout(capacity).ok_or(StorageError::TooLong)?;
        let seed = old.map_or_else(|| seed_for(self.table.region), |old| old.head.seed);
        container::with_heap(self.table.region, |heap| {
            heap.accept::<(K, V)>()?;
            let block = heap.alloc(layout)?;
            let table = block.cast::<Table>();
            // SAFETY: a block of the layout that no other task knows; zero is an empty slot.
            let new = unsafe {
                table.write(Table {
                    capacity,
                    seed,
                    ..Table::default()
                });
                let slots = table.add(1).cast::<AtomicUsize>();
                slots.write_bytes(0, capacity);
                View {
                    head: table.as_ref(),
                    slots: slice::from_raw_parts(slots.as_ptr(), capacity),
                }
            };
            for node in old
                .iter()
                .flat_map(|old| old.slots)
                .filter_map(node_in::<K, V>)
            {
                // SAFETY: a node of this map.
                new.place(unsafe { node.as_ref().hash }, container::address(node));
            }
            let (word, old) = (&self.table.word, self.table.block());
            // SAFETY: `table` belongs to the caller, a method with `&mut self`.
            unsafe { heap.link(word, container::address(block), Some(block), old) };
            Ok(())
        })
    }

    /// A node with this key, which is pending.
    fn pending_node<N: NewKey<K, Q>, Q: ?Sized>(
        &self,
        view: View<'_>,
        hash: u64,
        key: N,
    ) -> Result<NonNull<Node<K, V>>, PushError<N>> {
        let region = self.table.region;
        let empty = || Node {
            hash,
            stage: AtomicUsize::new(0),
            key: MaybeUninit::uninit(),
            value: MaybeUninit::uninit(),
        };
        // SAFETY: `pending` belongs to the caller, a method with `&mut self`.
        let mut node = match unsafe { container::add(region, &view.head.pending, empty) } {
            Ok(node) => node,
            Err(error) => return Err(PushError { value: key, error }),
        };
        let stored = key.put(region, |key| {
            // SAFETY: the pending node belongs to the caller.
            let node = unsafe { node.as_mut() };
            node.key.write(key);
            commit(&node.stage, KEY);
            // SAFETY: it has just been written.
            unsafe { node.key.assume_init_mut() }
        });
        if stored.is_err() {
            self.dismantle(view, node);
        }
        stored.map(|()| node)
    }

    /// Gives a pending node, which has a key, its value, and puts it in a slot.
    fn complete(&self, view: View<'_>, mut node: NonNull<Node<K, V>>, value: V) {
        let address = container::address(node);
        // SAFETY: the pending node belongs to the caller.
        let node = unsafe { node.as_mut() };
        node.value.write(value);
        commit(&node.stage, COMPLETE);
        view.place(node.hash, address);
        commit(&view.head.pending, 0);
    }

    /// Puts a new node with the old one's key in the old one's slot, and returns the old value, which may move.
    fn exchange(
        &self,
        view: View<'_>,
        index: usize,
        mut old: NonNull<Node<K, V>>,
        value: V,
    ) -> Result<V, PushError<V>>
    where
        V: Relocatable,
    {
        let value = ManuallyDrop::new(value);
        let replace = || {
            // SAFETY: a node of this map, to which the caller has exclusive access.
            let before = unsafe { old.as_mut() };
            commit(&view.head.pending, container::address(old));
            commit(&before.stage, VALUE);
            // SAFETY: both move to the new node. The caller's value does unless this fails. The key does since
            // `stage` says that the old node has none; if the new node is never published, `finish_pending` finds the
            // old one in its slot and marks it complete again.
            let (key, value) = unsafe { (before.key.assume_init_read(), ptr::read(&*value)) };
            Node {
                hash: before.hash,
                stage: AtomicUsize::new(COMPLETE),
                key: MaybeUninit::new(key),
                value: MaybeUninit::new(value),
            }
        };
        // SAFETY: the slot belongs to the caller, a method with `&mut self`; `pending` leads to its former node.
        let exchanged = unsafe { container::add(self.table.region, &view.slots[index], replace) };
        if let Err(error) = exchanged {
            return Err(PushError {
                value: ManuallyDrop::into_inner(value),
                error,
            });
        }
        let value = take_value(old);
        self.dismantle(view, old);
        Ok(value)
    }
}

impl<V: Shareable> HashMap<String, V> {
    /// Sets the value of a key, and returns the previous value. The key is built in place: unlike with
    /// [`Self::insert`], a kill at any instruction leaks no part of it.
    ///
    /// # Errors
    /// If the region has no room or the thread cannot become a task of it; the error contains the value.
    pub fn insert_str(&mut self, key: &str, value: V) -> Result<Option<V>, PushError<V>>
    where
        V: Relocatable,
    {
        self.set(key, value).map_err(|PushError { value, error }| {
            let (_, value) = value;
            PushError { value, error }
        })
    }

    /// The value of a key, made by `make` if there is none yet. See [`Self::insert_str`].
    ///
    /// # Errors
    /// If the region has no room or the thread cannot become a task of it; the new value, if it was made, is dropped.
    pub fn get_or_insert_str_with(
        &mut self,
        key: &str,
        make: impl FnOnce() -> V,
    ) -> Result<&mut V, StorageError>
    where
        V: Relocatable,
    {
        Ok(self.find_or_insert_mut(key, make)?)
    }

    /// Like [`Self::get_or_insert_str_with`], for values that must not move, with robust locks in them: see
    /// [`Self::get_pin`].
    ///
    /// # Errors
    /// As for [`Self::get_or_insert_str_with`].
    pub fn get_pin_or_insert_str_with(
        &mut self,
        key: &str,
        make: impl FnOnce() -> V,
    ) -> Result<Pin<&V>, StorageError> {
        let node = self.find_or_insert(key, make)?;
        // SAFETY: a node in a slot is complete, and its value does not move: see `get_pin`.
        Ok(unsafe { Pin::new_unchecked(node.as_ref().value.assume_init_ref()) })
    }
}

/// Changes a [`HashMap`] in its place: the result of [`HashMap::edit`], and of `edit` of a robust lock's guard.
///
/// It has the methods that change a `HashMap`, and derefs to the map.
pub struct HashMapMut<'a, K, V>(&'a mut HashMap<K, V>);

editor!(HashMapMut, HashMap<K, V> => HashMap<K, V>);

/// Pins a value.
#[inline]
fn pin<V>(value: &mut V) -> Pin<&mut V> {
    // SAFETY: a value stays in its node. A `&mut V` is lent only if `V` is `Unpin`, and a value is taken out only if it
    // is `Relocatable`.
    unsafe { Pin::new_unchecked(value) }
}

impl<K, V> HashMapMut<'_, K, V> {
    forward! { HashMap:
        fn repair(&mut self);
        fn clear(&mut self);
    }

    /// [`HashMap::values_mut`], for values that are `Unpin`.
    #[inline]
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V>
    where
        V: Unpin,
    {
        self.0.each_value_mut()
    }

    /// The values, pinned, in no particular order: how to change containers that are values.
    #[inline]
    pub fn values_pin_mut(&mut self) -> impl Iterator<Item = Pin<&mut V>> {
        self.0.each_value_mut().map(pin)
    }
}

#[allow(
    clippy::missing_errors_doc,
    reason = "each method names the one that it calls"
)]
impl<K: Shareable + Hash + Eq, V: Shareable> HashMapMut<'_, K, V> {
    forward! { HashMap:
        fn insert(&mut self, key: K, value: V) -> Result<Option<V>, PushError<(K, V)>> where V: Relocatable;
        fn get_pin_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> Result<Pin<&V>, PushError<K>>;
        fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V> where K: Borrow<Q>, V: Relocatable;
        fn discard<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> bool where K: Borrow<Q>;
        fn reserve(&mut self, additional: usize) -> Result<(), StorageError>;
        fn shrink_to_fit(&mut self) -> Result<(), StorageError>;
    }

    /// [`HashMap::get_or_insert_with`], for values that are `Unpin`.
    #[inline]
    pub fn get_or_insert_with(
        &mut self,
        key: K,
        make: impl FnOnce() -> V,
    ) -> Result<&mut V, PushError<K>>
    where
        V: Unpin,
    {
        self.0.find_or_insert_mut(key, make)
    }

    /// Like [`Self::get_or_insert_with`], for values that are not `Unpin`, such as containers.
    #[inline]
    pub fn get_pin_mut_or_insert_with(
        &mut self,
        key: K,
        make: impl FnOnce() -> V,
    ) -> Result<Pin<&mut V>, PushError<K>> {
        self.0.find_or_insert_mut(key, make).map(pin)
    }

    /// [`HashMap::get_mut`], for values that are `Unpin`.
    #[inline]
    #[must_use]
    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        V: Unpin,
    {
        self.0.find_mut(key)
    }

    /// The value of a key, pinned: how to change a container that is a value.
    #[inline]
    #[must_use]
    pub fn get_pin_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<Pin<&mut V>>
    where
        K: Borrow<Q>,
    {
        self.0.find_mut(key).map(pin)
    }
}

#[allow(
    clippy::missing_errors_doc,
    reason = "each method names the one that it calls"
)]
impl<V: Shareable> HashMapMut<'_, String, V> {
    forward! { HashMap:
        fn insert_str(&mut self, key: &str, value: V) -> Result<Option<V>, PushError<V>> where V: Relocatable;
        fn get_pin_or_insert_str_with(&mut self, key: &str, make: impl FnOnce() -> V) -> Result<Pin<&V>, StorageError>;
    }

    /// [`HashMap::get_or_insert_str_with`], for values that are `Unpin`.
    #[inline]
    pub fn get_or_insert_str_with(
        &mut self,
        key: &str,
        make: impl FnOnce() -> V,
    ) -> Result<&mut V, StorageError>
    where
        V: Unpin,
    {
        Ok(self.0.find_or_insert_mut(key, make)?)
    }

    /// Like [`Self::get_or_insert_str_with`], for values that are not `Unpin`, such as containers.
    #[inline]
    pub fn get_pin_mut_or_insert_str_with(
        &mut self,
        key: &str,
        make: impl FnOnce() -> V,
    ) -> Result<Pin<&mut V>, StorageError> {
        Ok(pin(self.0.find_or_insert_mut(key, make)?))
    }
}
