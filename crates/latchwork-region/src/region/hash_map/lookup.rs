//! Finding an entry of a map by its key, and iteration over the entries.
#![allow(unsafe_code)]

use super::super::container::{self, read};
use super::super::{Relocatable, Shareable};
use super::HashMap;
use super::table::{Node, TOMBSTONE, View, hash_of, node_in};
use crate::atomic::AtomicUsize;
use core::borrow::Borrow;
use core::fmt;
use core::hash::Hash;
use core::marker::PhantomData;
use core::pin::Pin;
use core::ptr::NonNull;
use core::slice;

impl<K: Shareable + Hash + Eq, V: Shareable> HashMap<K, V> {
    /// Finds a key: its hash, its slot and its node.
    pub(super) fn find<Q>(
        &self,
        view: View<'_>,
        hash: u64,
        key: &Q,
    ) -> Option<(usize, NonNull<Node<K, V>>)>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let mask = view.slots.len() - 1;
        for distance in 0..view.slots.len() {
            let index = (hash as usize).wrapping_add(distance) & mask;
            match read(&view.slots[index]) {
                0 => return None,
                TOMBSTONE => {}
                address => {
                    let node = container::pointer::<Node<K, V>>(address)?;
                    // SAFETY: a node in a slot has its key: an interrupted replacement has only copied the key's bits
                    // to a node that was never published.
                    let found = unsafe { node.as_ref() };
                    // SAFETY: a node in a slot has its key.
                    if found.hash == hash && unsafe { found.key.assume_init_ref() }.borrow() == key
                    {
                        return Some((index, node));
                    }
                }
            }
        }
        None
    }

    pub(super) fn look_up<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<NonNull<Node<K, V>>>
    where
        K: Borrow<Q>,
    {
        let view = self.view()?;
        Some(self.find(view, hash_of(view, key), key)?.1)
    }

    /// The value of a key.
    #[must_use]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.table.keep_mapped();
        // SAFETY: a node in a slot is complete, and stays while the map is borrowed.
        self.look_up(key)
            .map(|node| unsafe { node.as_ref().value.assume_init_ref() })
    }

    /// The value of a key, pinned: it does not move before it is dropped, since a value that must not move never leaves
    /// the map. Its robust locks can be used.
    #[must_use]
    pub fn get_pin<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Pin<&V>>
    where
        K: Borrow<Q>,
    {
        // SAFETY: a node stays at its address until it is dismantled, and the methods that give a `&mut V`, or a
        // value, require `V: Relocatable`.
        self.get(key)
            .map(|value| unsafe { Pin::new_unchecked(value) })
    }

    /// The value of a key, mutable.
    #[must_use]
    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        V: Relocatable,
    {
        self.find_mut(key)
    }

    /// The caller does not lend a `&mut V` that must not move.
    pub(super) fn find_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.table.keep_mapped();
        self.finish_pending();
        // SAFETY: a node in a slot is complete, and the map is borrowed exclusively.
        self.look_up(key)
            .map(|mut node| unsafe { node.as_mut().value.assume_init_mut() })
    }

    /// Whether the map has an entry with this key.
    #[must_use]
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let _guard = self.table.guard();
        self.look_up(key).is_some()
    }
}

impl<K, V> HashMap<K, V> {
    /// The entries, in no particular order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.table.keep_mapped();
        Iter {
            slots: self.view().map_or(&[][..], |view| view.slots).iter(),
            entries: PhantomData,
        }
    }

    /// The keys, in no particular order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// The values, in no particular order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The values, mutable, in no particular order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V>
    where
        V: Relocatable,
    {
        self.each_value_mut()
    }

    /// The caller does not lend a `&mut V` that must not move.
    pub(super) fn each_value_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.table.keep_mapped();
        self.finish_pending();
        let slots = self.view().map_or(&[][..], |view| view.slots);
        slots.iter().filter_map(|slot| {
            // SAFETY: a complete node, returned once, of a map that is borrowed exclusively.
            node_in::<K, V>(slot).map(|node| unsafe { (*node.as_ptr()).value.assume_init_mut() })
        })
    }
}

/// The entries of a [`HashMap`].
pub struct Iter<'a, K, V> {
    slots: slice::Iter<'a, AtomicUsize>,
    entries: PhantomData<&'a (K, V)>,
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        let node = self.slots.find_map(node_in::<K, V>)?;
        // SAFETY: a node in a slot is complete, and stays while the map is borrowed.
        unsafe {
            let node = node.as_ref();
            Some((node.key.assume_init_ref(), node.value.assume_init_ref()))
        }
    }
}

impl<'a, K, V> IntoIterator for &'a HashMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for HashMap<K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self).finish()
    }
}
