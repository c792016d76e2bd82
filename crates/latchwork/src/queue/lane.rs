//! A lane: a ring buffer through which cells pass from the holders of one lock to the holders of another, without
//! either side taking the other's lock.
//!
//! Each entry is one word: the position at which it was put, and the cell. The giving side puts the next entry at its
//! own position and advances; the taking side reads the entry at *its* position, and the entry itself says whether it
//! was put there. Neither side reads the other's position: only entries move between the two caches, eight in a line,
//! and a side that has fallen behind finds several at once.
//!
//! Invariants
//! 1. A side's position is protected by that side's lock; only a holder of the lock puts, or takes.
//! 2. There are at least as many entries as cells, and a cell is in one place only. So a place is written again only
//!    after its last entry was taken.
//! 3. A place holds its last entry, or nothing: that entry is of the position being read, or of an older one that
//!    differs by a multiple of the number of places. So no entry is taken twice.
//!
//! *Orderings:* SYNC lane: an entry is put with Release and read with Acquire. The giver's writes to the cell and its
//! bytes come with it; and by 2 the taker's writes come back with the lane that returns the cell.
//!
//! *A kill* between any two lines leaves an entry put or not put, and possibly a position one behind. That does no
//! harm: lanes and positions are derived from the cells' states (`cells.rs`), and the next task that finds the lock's
//! owner dead rebuilds them, under both locks.
//!
//! *Progress:* wait-free. *Cost:* one store, one load.
//!
//! *Checked by:* `tests/loom_queue.rs`, with a negative twin: an entry that is put without Release.

use crate::atomic::{AtomicU64, Ordering, unless_fault};

/// The index of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Index(pub(crate) u32);

impl Index {
    /// The cell's name in a cell, an inbox or a lane: never 0.
    pub(crate) fn name(self) -> u32 {
        self.0 + 1
    }

    /// The index that [`Self::name`] was made of; `None` for 0.
    pub(crate) fn named(name: u32) -> Option<Self> {
        name.checked_sub(1).map(Self)
    }
}

/// The entries of a lane.
#[derive(Clone, Copy)]
pub(crate) struct Lane<'a>(&'a [AtomicU64]);

/// A cell in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) index: Index,
    /// The message does not simply belong behind all that were put before.
    pub(crate) ranked: bool,
}

/// A flag in the same word as the cell's name, which is at most 2³⁰ + 1.
const RANKED: u32 = 1 << 31;

impl<'a> Lane<'a> {
    /// The number of places must be a power of two.
    pub(crate) fn new(places: &'a [AtomicU64]) -> Self {
        debug_assert!(places.len().is_power_of_two());
        Self(places)
    }

    fn place(self, position: u32) -> &'a AtomicU64 {
        &self.0[position as usize & (self.0.len() - 1)]
    }

    /// Puts a cell at the giver's position.
    #[inline]
    pub(crate) fn put(self, position: u32, entry: Entry) {
        let name = entry.index.name() | if entry.ranked { RANKED } else { 0 };
        // Release: SYNC lane.
        self.place(position).store(
            u64::from(position) << 32 | u64::from(name),
            unless_fault!(LaneRelaxed, Ordering::Release, Ordering::Relaxed),
        );
    }

    /// The entry that was put at the taker's position, if any.
    #[inline]
    pub(crate) fn get(self, position: u32) -> Option<Entry> {
        // Acquire: SYNC lane.
        let entry = self.place(position).load(Ordering::Acquire);
        if (entry >> 32) as u32 != position {
            return None;
        }
        let name = entry as u32;
        Some(Entry {
            index: Index::named(name & !RANKED)?,
            ranked: name & RANKED != 0,
        })
    }

    /// Empties the lane; the caller sets both positions to 0. Under both locks.
    pub(crate) fn clear(self) {
        for place in self.0 {
            // Relaxed: ordered by the locks.
            place.store(0, Ordering::Relaxed);
        }
    }
}
