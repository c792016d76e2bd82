//! Iteration over a map's slots.
#![allow(unsafe_code)]

use super::super::container::{self, read};
use super::HashMap;
use super::table::{Node, TOMBSTONE};
use crate::atomic::AtomicUsize;
use core::fmt;
use core::marker::PhantomData;
use core::slice;

/// The entries of a [`HashMap`].
pub struct Iter<'a, K, V> {
    pub(super) slots: slice::Iter<'a, AtomicUsize>,
    pub(super) entries: PhantomData<&'a (K, V)>,
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
