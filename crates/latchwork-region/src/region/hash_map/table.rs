//! The memory layout of a map, and its hash function, which is the same in every process.
#![allow(unsafe_code)]

use super::super::container::{commit, pointer, read};
use super::super::region_id::RegionId;
use super::super::{Relocatable, fingerprint};
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
        self.probes_for(hash, node, usize::MAX).is_some()
    }

    /// How many slots a search for a given node looks at, if it finds it in at most so many.
    pub(super) fn probes_for(&self, hash: u64, node: usize, most: usize) -> Option<usize> {
        self.probe(hash)
            .map(read)
            .take(most)
            .take_while(|slot| *slot != 0)
            .position(|slot| slot == node)
            .map(|before| before + 1)
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
        let len = slots().filter(|slot| *slot > TOMBSTONE).count();
        commit(&self.head.len, len);
        commit(&self.head.used, slots().filter(|slot| *slot != 0).count());
    }
}

pub(super) fn hash_of<Q: Hash + ?Sized>(view: View<'_>, key: &Q) -> u64 {
    let state = view.head.seed;
    let mut hasher = Hasher { state };
    key.hash(&mut hasher);
    hasher.finish()
}

/// The node of a slot, if it has one.
pub(super) fn node_in<K, V>(slot: &AtomicUsize) -> Option<NonNull<Node<K, V>>> {
    pointer(read(slot)).filter(|_| read(slot) > TOMBSTONE)
}

/// Takes the value of a pending node that no slot leads to.
pub(super) fn take_value<K, V: Relocatable>(mut node: NonNull<Node<K, V>>) -> V {
    // SAFETY: the node belongs to the caller, and has its value; `stage` says that it has none before any other task
    // can see the node.
    unsafe {
        let node = node.as_mut();
        V::settle(node.value.as_mut_ptr());
        let value = node.value.assume_init_read();
        commit(&node.stage, read(&node.stage) & !VALUE);
        value
    }
}

/// Odd numbers without a pattern: the fractional parts of √2 and √3.
const STEP: u64 = 0x6a09_e667_f3bc_c909;
const LAST: u64 = 0xbb67_ae85_84ca_a73b;
/// The fingerprint of the hash function, to be changed with it.
pub(super) const HASHER: u64 = fingerprint("hasher 1", 0, 0, &[STEP, LAST]);

/// Multiplies to 128 bits and folds the halves: every bit of the operands affects every bit of the result.
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product >> 64) as u64 ^ product as u64
}

/// A number that differs from map to map and from run to run.
pub(super) fn seed_for(region: RegionId) -> u64 {
    fold(
        crate::sys::clock::since_boot() ^ STEP,
        region.raw() as u64 ^ LAST,
    )
}

struct Hasher {
    state: u64,
}

impl Hasher {
    fn word(&mut self, word: u64) {
        self.state = fold(self.state ^ word, STEP).wrapping_add(LAST);
    }
}

macro_rules! write_number {
    ($($write:ident: $number:ty),*) => {$(
        fn $write(&mut self, number: $number) {
            self.word(number as u64);
        }
    )*};
}

impl core::hash::Hasher for Hasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        // The length distinguishes a short rest from one with zeros.
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    write_number!(write_u8: u8, write_u16: u16, write_u32: u32, write_u64: u64, write_usize: usize);

    fn finish(&self) -> u64 {
        fold(self.state, LAST)
    }
}
