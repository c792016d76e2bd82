//! How containers name their regions: by a *region ID*, the region's base address combined with the region's own
//! number in the bits that the address leaves free. A region that is mapped where another one was has a different ID.
//!
//! The table [`MAPPED`] answers, without a lock, whether a container lies in its own region. Its invariant: an ID is
//! in the table only while its region is mapped. (Some mapped regions may not fit in the table.)
//!
//! *Orderings.* A reader reads the size of a region between two reads of its ID. `insert` stores the size before the
//! ID, and `remove` clears the ID before the entry can be reused; so a reader that reads the same ID twice has the
//! matching size. The region stays mapped meanwhile because of where the container lies, not because of the table.

use crate::atomic::{AtomicUsize, Ordering};

/// The maximum number of regions that one process can have mapped at a time.
pub(super) const MAX_REGIONS: usize = 4096;

/// The bits of a region ID that are the address: a multiple of 64 KiB below 2⁴⁷.
const ADDRESS: usize = 0x7fff_ffff_0000;

/// The number by which containers name their region: see the module's documentation.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct RegionId(usize);

impl RegionId {
    /// The ID of no region: of a container that was dropped, or of a place that was zeroed.
    pub(super) const NONE: Self = Self(0);

    /// The ID of the region at `base` with this number.
    pub(super) fn new(base: usize, number: u64) -> Self {
        let number = number as usize;
        Self(base & ADDRESS | number & !ADDRESS)
    }

    /// The region's base address, if it is mapped.
    #[inline]
    pub(super) fn base(self) -> usize {
        self.0 & ADDRESS
    }

    /// The bits that tell regions at one address apart.
    #[inline]
    pub(super) fn number(self) -> usize {
        self.0 & !ADDRESS
    }

    /// The ID as one number, which is 0 for no region.
    #[inline]
    pub(super) fn raw(self) -> usize {
        self.0
    }
}

/// The number of entries for each key. Lookups check all of them, so an entry can be removed without a tombstone.
const WAYS: usize = 4;

/// The entries of a table that a key can be in.
#[inline]
pub(super) fn ways<T>(table: &[T], key: usize) -> &[T] {
    let sets = table.len() / WAYS;
    let set = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - sets.ilog2());
    &table[set * WAYS..][..WAYS]
}

struct Mapped {
    id: AtomicUsize,
    bytes: AtomicUsize,
}

/// The mapped regions, by ID.
static MAPPED: [Mapped; 2 * MAX_REGIONS] = [const {
    Mapped {
        id: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
    }
}; 2 * MAX_REGIONS];

impl Mapped {
    #[inline]
    fn has(&self, id: RegionId, address: usize) -> bool {
        // Acquire, both, and the Release in `remove`: see the module's documentation.
        self.id.load(Ordering::Acquire) == id.raw() && {
            let bytes = self.bytes.load(Ordering::Acquire);
            address.wrapping_sub(id.base()) < bytes && self.id.load(Ordering::Relaxed) == id.raw()
        }
    }
}

/// Records that a region is mapped. The caller holds the registry's lock.
pub(super) fn insert(id: RegionId, bytes: usize) {
    let free = |entry: &&Mapped| entry.id.load(Ordering::Relaxed) == 0;
    if let Some(entry) = ways(&MAPPED, id.raw()).iter().find(free) {
        // Release, both: see the module's documentation.
        entry.bytes.store(bytes, Ordering::Release);
        entry.id.store(id.raw(), Ordering::Release);
    }
}

/// Records that a region is no longer mapped, before it is unmapped. `id` is the region's ID as a number. The caller
/// holds the registry's lock.
pub(super) fn remove(id: usize) {
    for entry in ways(&MAPPED, id) {
        if entry.id.load(Ordering::Relaxed) == id {
            entry.id.store(0, Ordering::Release);
            // No container is inside of [`RegionId::NONE`].
            entry.bytes.store(0, Ordering::Release);
        }
    }
}

/// Whether an address, of a container that the caller borrows, lies in the region of this ID.
#[inline]
pub(super) fn is_inside(id: RegionId, address: usize) -> bool {
    let entries = ways(&MAPPED, id.raw());
    entries[0].has(id, address) || entries[1..].iter().any(|entry| entry.has(id, address))
}
