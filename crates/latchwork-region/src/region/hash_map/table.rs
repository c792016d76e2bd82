//! The memory layout of a map.
#![allow(unsafe_code)]

use super::super::container::{commit, read};
use super::super::fingerprint;
use super::hasher::Hasher;
use crate::atomic::AtomicUsize;
use core::alloc::Layout;
use core::hash::{Hash, Hasher as _};
use core::mem::{MaybeUninit, offset_of};
use core::ptr::NonNull;

#[repr(C)]
#[derive(Default)]
pub(super) struct Table {
    /// A power of two.
    pub(super) capacity: usize,
    pub(super) seed: u64,
    pub(super) len: AtomicUsize,
    pub(super) used: AtomicUsize,
    pub(super) pending: AtomicUsize,
}

#[repr(C)]
pub(super) struct Node<K, V> {
    pub(super) hash: u64,
    pub(super) stage: AtomicUsize,
    pub(super) key: MaybeUninit<K>,
    pub(super) value: MaybeUninit<V>,
}

/// A fingerprint of the layout of a map's blocks.
pub(super) const fn layout_of<K, V>() -> u64 {
    fingerprint(
        "table and node",
        size_of::<Table>(),
        size_of::<Node<K, V>>(),
        &[
            offset_of!(Table, capacity) as u64,
            offset_of!(Table, seed) as u64,
            offset_of!(Table, len) as u64,
            offset_of!(Table, used) as u64,
            offset_of!(Table, pending) as u64,
            offset_of!(Node<K, V>, hash) as u64,
            offset_of!(Node<K, V>, stage) as u64,
            offset_of!(Node<K, V>, key) as u64,
            offset_of!(Node<K, V>, value) as u64,
        ],
    )
}

pub(super) const TOMBSTONE: usize = 1;

/// Bits of a node's stage.
pub(super) const KEY: usize = 1;
pub(super) const VALUE: usize = 2;
pub(super) const COMPLETE: usize = KEY | VALUE;

const MIN_CAPACITY: usize = 8;

/// The number of slots of a table for `len` entries: at most half of them are used, so that the next rebuild comes no
/// sooner than after as many inserts again.
pub(super) fn table_for(len: usize) -> Option<usize> {
    let capacity = len.checked_mul(2)?.checked_next_power_of_two()?;
    Some(capacity.max(MIN_CAPACITY))
}

/// A map's table, as seen by one method.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) head: &'a Table,
    pub(super) slots: &'a [AtomicUsize],
}

impl View<'_> {
    pub(super) fn layout(capacity: usize) -> Option<Layout> {
        let slots = Layout::array::<AtomicUsize>(capacity).ok()?;
        Some(Layout::new::<Table>().extend(slots).ok()?.0)
    }

    /// The slots in which a node of this hash may be, in order.
    #[inline]
    pub(super) fn probe(&self, hash: u64) -> impl Iterator<Item = &AtomicUsize> {
        let (before, from) = self.slots.split_at(hash as usize & (self.slots.len() - 1));
        from.iter().chain(before)
    }

    /// The slot for a new node of this hash. `make_room` guarantees that there is one.
    pub(super) fn vacancy(&self, hash: u64) -> Option<&AtomicUsize> {
        self.probe(hash).find(|slot| read(slot) <= TOMBSTONE)
    }

    /// Whether a given node is in a slot.
    pub(super) fn has(&self, hash: u64, node: usize) -> bool {
        self.probe(hash)
            .map(read)
            .take_while(|slot| *slot != 0)
            .any(|slot| slot == node)
    }

    /// Puts a node in a vacant slot and updates the counts; `pending` covers a kill in between.
    pub(super) fn place(&self, hash: u64, node: usize) {
        let Some(slot) = self.vacancy(hash) else {
            return;
        };
        if read(slot) == 0 {
            commit(&self.head.used, read(&self.head.used) + 1);
        }
        commit(slot, node);
        commit(&self.head.len, read(&self.head.len) + 1);
    }

    pub(super) fn recount(&self) {
        let slots = || self.slots.iter().map(read);
        commit(
            &self.head.len,
            slots().filter(|slot| *slot > TOMBSTONE).count(),
        );
        commit(&self.head.used, slots().filter(|slot| *slot != 0).count());
    }
}

pub(super) fn hash_of<Q: Hash + ?Sized>(view: View<'_>, key: &Q) -> u64 {
    let mut hasher = Hasher::new(view.head.seed);
    key.hash(&mut hasher);
    hasher.finish()
}

/// Takes the value of a pending node that no slot leads to.
pub(super) fn take_value<K, V>(mut node: NonNull<Node<K, V>>) -> V {
    // SAFETY: the node belongs to the caller, and has its value; `stage` says that it has none before any other task
    // can see the node.
    unsafe {
        let node = node.as_mut();
        let value = node.value.assume_init_read();
        commit(&node.stage, read(&node.stage) & !VALUE);
        value
    }
}
