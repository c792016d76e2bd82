//! Iteration over a map's entries.
#![allow(unsafe_code)]

use super::super::Relocatable;
use super::super::container::{self, read};
use super::HashMap;
use super::table::{Node, TOMBSTONE};
use crate::atomic::AtomicUsize;
use core::fmt;
use core::marker::PhantomData;
use core::slice;

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
            let node =
                container::pointer::<Node<K, V>>(read(slot)).filter(|_| read(slot) > TOMBSTONE)?;
            // SAFETY: a complete node, returned once, of a map that is borrowed exclusively.
            Some(unsafe { (*node.as_ptr()).value.assume_init_mut() })
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
        let address = self
            .slots
            .by_ref()
            .map(read)
            .find(|slot| *slot > TOMBSTONE)?;
        // SAFETY: a node in a slot is complete, and stays while the map is borrowed.
        unsafe {
            let node = container::pointer::<Node<K, V>>(address)?.as_ref();
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
