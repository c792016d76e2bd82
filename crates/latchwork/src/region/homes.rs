//! How containers name their regions, and what keeps a region mapped for a container that lies elsewhere.
//!
//! A *home* is a region's base address with the region's own number in the bits that the address leaves
//! free: a region that comes to lie where another one was has another home.
//!
//! A container that lies in its own region is reached through a handle, which keeps the region mapped. A
//! container elsewhere (on a stack, in another region) borrows from nobody. Its methods look its region up
//! and hold it while they run; what they lend (a slice, an element) must stay for as long as the container
//! can be borrowed from. So the block that a container lends from is noted as *lent*, and each note keeps
//! the region mapped until that block goes: when the container is dropped, or has grown.
//!
//! Invariants
//! 1. A home stands in [`MAPPED`] only while its region is mapped. (Some that are mapped have no room there.)
//! 2. Each entry of [`LENT`] owns one strong count of the region that its block lies in.
//! 3. An entry of [`LENT`] goes only when its block is freed by this process: nobody borrows from it then.
//!
//! *Orderings.* `MAPPED`: a reader takes the size of a region between two looks at its home. `enter` stores
//! the size before the home, `leave` clears the home before anything else can come to this place; so a
//! reader that finds the same home twice has its size. That the region stays mapped while it looks follows
//! from where the container lies, not from the table. `LENT`: whoever finds a block there has it lent, or
//! borrows from a container that was lent before.
#![allow(unsafe_code)]

use super::{Inner, registry};
use crate::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Bits of a home that are the address: it is a multiple of 64 KiB below 2⁴⁷.
const ADDRESS: usize = 0x7fff_ffff_0000;

/// The home of the region at `base` whose number is this one.
pub(super) fn home_of(base: usize, number: u64) -> usize {
    let number = number as usize;
    base & ADDRESS | number & !ADDRESS
}

/// Where the region lies, if it is mapped.
#[inline]
pub(super) fn base_of(home: usize) -> usize {
    home & ADDRESS
}

/// A table with a few places for each key, all of which are looked at: an entry can go without a trace.
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

/// The homes of regions that are mapped.
static MAPPED: [Mapped; 2 * registry::MAX_REGIONS] = [const {
    Mapped {
        home: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
    }
}; 2 * registry::MAX_REGIONS];

impl Mapped {
    #[inline]
    fn has(&self, home: usize, address: usize) -> bool {
        // Acquire, both, and the Release in `leave`: see the module comment.
        self.home.load(Ordering::Acquire) == home && {
            let bytes = self.bytes.load(Ordering::Acquire);
            address.wrapping_sub(base_of(home)) < bytes && self.home.load(Ordering::Relaxed) == home
        }
    }
}

/// Notes that a region is mapped. Under the gate.
pub(super) fn enter(home: usize, bytes: usize) {
    let free = |place: &&Mapped| place.home.load(Ordering::Relaxed) == 0;
    if let Some(place) = places(&MAPPED, home).iter().find(free) {
        // Release, both: see the module comment.
        place.bytes.store(bytes, Ordering::Release);
        place.home.store(home, Ordering::Release);
    }
}

/// Notes that a region is mapped no longer. Under the gate, before it is unmapped.
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

/// Blocks that containers outside of their regions lend from, by [`key_of`].
static LENT: [AtomicUsize; 1024] = [const { AtomicUsize::new(0) }; 1024];
/// How many there are, at least.
static LENDING: AtomicUsize = AtomicUsize::new(0);

/// A block of one region, and of none that was at this address before.
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

/// Keeps a region mapped until a block of it goes.
pub(super) fn lend(region: Arc<Inner>, block: usize) {
    let key = key_of(region.home, block);
    for place in places(&LENT, key) {
        // The entry's count, before there is an entry.
        let count = Arc::clone(&region);
        // AcqRel: the Release pairs with the Acquire in `is_lent`, the Acquire with that in `give_back`.
        let taken = place.compare_exchange(0, key, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            LENDING.fetch_add(1, Ordering::Relaxed);
            core::mem::forget(count);
            return;
        }
    }
    region.make_lasting();
}

/// A block was freed, of a region that the caller keeps mapped.
#[inline]
pub(super) fn freed(home: usize, block: usize) {
    // Relaxed: whoever frees a block has its container to itself, and sees what was noted for it.
    if LENDING.load(Ordering::Relaxed) != 0 {
        give_back(home, block);
    }
}

#[cold]
#[inline(never)]
fn give_back(home: usize, block: usize) {
    let key = key_of(home, block);
    // Two threads that borrowed the container at the same time may have noted it twice.
    for place in places(&LENT, key) {
        let gone = place.compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed);
        if gone.is_ok() {
            LENDING.fetch_sub(1, Ordering::Relaxed);
            if let Some(region) = Inner::containing(block) {
                // SAFETY: the entry's count (invariant 2), of the region that the block lies in.
                unsafe { Arc::decrement_strong_count(Arc::as_ptr(&region)) };
            }
        }
    }
}
