//! How containers name their regions, and what keeps a region mapped for a container outside it.
//!
//! A *home* is a region's base address combined with the region's own number in the bits that the address leaves
//! free: a region that is mapped where another one was has a different home.
//!
//! A container inside its own region is reached through a handle, which keeps the region mapped. A container
//! elsewhere (on a stack, in another region) borrows from no handle. Its methods look up its region and hold it while
//! they run; what they lend (a slice, an element) must stay valid for as long as the container can be borrowed. So
//! the block from which a container lends is recorded as *lent*, and each record keeps the region mapped until that
//! block is freed: when the container is dropped, or has grown.
//!
//! Invariants
//! 1. A home is in [`MAPPED`] only while its region is mapped. (Some mapped regions may not fit in the table.)
//! 2. Each entry of [`LENT`] owns one strong count of the region that contains its block.
//! 3. An entry of [`LENT`] is removed only when this process frees its block: nothing borrows from the block then.
//!
//! *Orderings.* `MAPPED`: a reader reads the size of a region between two reads of its home. `enter` stores the size
//! before the home, and `leave` clears the home before the entry can be reused; so a reader that reads the same home
//! twice has the matching size. The region stays mapped meanwhile because of where the container lies, not because of
//! the table. `LENT`: a thread that finds a block there has it lent already, or borrows from a container that was
//! lent before.
#![allow(unsafe_code)]

use super::{Inner, registry};
use crate::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// The bits of a home that are the address: a multiple of 64 KiB below 2⁴⁷.
const ADDRESS: usize = 0x7fff_ffff_0000;

/// The home of the region at `base` with this number.
pub(super) fn home_of(base: usize, number: u64) -> usize {
    let number = number as usize;
    base & ADDRESS | number & !ADDRESS
}

/// The region's base address, if it is mapped.
#[inline]
pub(super) fn base_of(home: usize) -> usize {
    home & ADDRESS
}

/// The number of places for each key. Lookups check all of them, so an entry can be removed without a tombstone.
const WAYS: usize = 4;

#[inline]
fn places<T>(table: &[T], key: usize) -> &[T] {
    let sets = table.len() / WAYS;
    let set = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - sets.ilog2());
    &table[set * WAYS..][..WAYS]
}

struct Mapped {
    home: AtomicUsize,
    bytes: AtomicUsize,
}

/// The homes of mapped regions.
static MAPPED: [Mapped; 2 * registry::MAX_REGIONS] = [const {
    Mapped {
        home: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
    }
}; 2 * registry::MAX_REGIONS];

impl Mapped {
    #[inline]
    fn has(&self, home: usize, address: usize) -> bool {
        // Acquire, both, and the Release in `leave`: see the module's documentation.
        self.home.load(Ordering::Acquire) == home && {
            let bytes = self.bytes.load(Ordering::Acquire);
            address.wrapping_sub(base_of(home)) < bytes && self.home.load(Ordering::Relaxed) == home
        }
    }
}

/// Records that a region is mapped. The caller holds the gate, the registry's mutex.
pub(super) fn enter(home: usize, bytes: usize) {
    let free = |place: &&Mapped| place.home.load(Ordering::Relaxed) == 0;
    if let Some(place) = places(&MAPPED, home).iter().find(free) {
        // Release, both: see the module's documentation.
        place.bytes.store(bytes, Ordering::Release);
        place.home.store(home, Ordering::Release);
    }
}

/// Records that a region is no longer mapped, before it is unmapped. The caller holds the gate.
pub(super) fn leave(home: usize) {
    for place in places(&MAPPED, home) {
        if place.home.load(Ordering::Relaxed) == home {
            place.home.store(0, Ordering::Release);
        }
    }
}

/// Whether an address, of a container that the caller borrows, lies in the region of this home.
#[inline]
pub(super) fn is_inside(home: usize, address: usize) -> bool {
    let places = places(&MAPPED, home);
    places[0].has(home, address) || places[1..].iter().any(|place| place.has(home, address))
}

/// The region of this home, if this process has it mapped.
#[cold]
#[inline(never)]
pub(super) fn find(home: usize) -> Option<Arc<Inner>> {
    Inner::containing(base_of(home)).filter(|region| region.home == home)
}

/// Blocks from which containers outside their regions lend, by [`key_of`].
static LENT: [AtomicUsize; 1024] = [const { AtomicUsize::new(0) }; 1024];
/// An upper bound of their number.
static LENDING: AtomicUsize = AtomicUsize::new(0);

/// The key of a block of one region, distinct from blocks of regions that were at this address before.
#[inline]
fn key_of(home: usize, block: usize) -> usize {
    block ^ home & !ADDRESS
}

/// Whether a block is lent. The caller borrows from its container.
#[inline]
pub(super) fn is_lent(home: usize, block: usize) -> bool {
    let key = key_of(home, block);
    let here = |place: &AtomicUsize| place.load(Ordering::Acquire) == key;
    places(&LENT, key).iter().any(here)
}

/// Keeps a region mapped until one of its blocks is freed.
pub(super) fn lend(region: Arc<Inner>, block: usize) {
    let key = key_of(region.home, block);
    for place in places(&LENT, key) {
        // The entry's strong count, taken before the entry exists.
        let count = Arc::clone(&region);
        // AcqRel: the Release pairs with the Acquire in `is_lent`, the Acquire with the Release in `give_back`.
        let taken = place.compare_exchange(0, key, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            LENDING.fetch_add(1, Ordering::Relaxed);
            core::mem::forget(count);
            return;
        }
    }
    region.make_lasting();
}

/// Called after a block was freed, in a region that the caller keeps mapped.
#[inline]
pub(super) fn freed(home: usize, block: usize) {
    // Relaxed: a thread that frees a block has exclusive access to its container, and sees what was recorded for it.
    if LENDING.load(Ordering::Relaxed) != 0 {
        give_back(home, block);
    }
}

#[cold]
#[inline(never)]
fn give_back(home: usize, block: usize) {
    let key = key_of(home, block);
    // Two threads that borrowed the container at the same time may have recorded it twice.
    for place in places(&LENT, key) {
        let gone = place.compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed);
        if gone.is_ok() {
            LENDING.fetch_sub(1, Ordering::Relaxed);
            if let Some(region) = Inner::containing(block) {
                // SAFETY: releases the entry's count (invariant 2), of the region that contains the block.
                unsafe { Arc::decrement_strong_count(Arc::as_ptr(&region)) };
            }
        }
    }
}
