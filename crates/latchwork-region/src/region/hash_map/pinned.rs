//! Changing a map in its place.
#![allow(unsafe_code)]
#![allow(
    clippy::missing_errors_doc,
    reason = "each method names the one that it calls"
)]

use super::super::container::{editor, forward};
use super::super::{PushError, Relocatable, Shareable, StorageError, String};
use super::HashMap;
use core::borrow::Borrow;
use core::hash::Hash;
use core::pin::Pin;

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
