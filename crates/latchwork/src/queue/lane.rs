//! A lane: cells that pass from those who hold one lock to those who hold another, while neither side
//! takes the other's.
//!
//! Each entry is one word: the position that it was put at, and the cell. The giving side puts the
//! next one at its own position and moves on; the taking side looks at *its* position, and an entry
//! that was put there says so itself. Neither reads the other's position: the entries are all that
//! moves between the two caches, eight in a line, and who has fallen behind finds several at once.
//!
//! Invariants
//! 1. A side's position, and who puts or takes, is protected by that side's lock.
//! 2. There are at least as many entries as cells, and a cell is in one place only. So a place is
//!    written again only after its last entry was taken.
//! 3. What stands in a place is its last entry: that of the position looked at, or an older one by a
//!    multiple of the number of places, or nothing. So none is taken twice.
//!
//! *Orderings:* SYNC lane: an entry is put with Release and looked at with Acquire. What the giver did
//! to the cell, and its bytes, comes with it; and by 2 what the taker did comes back with the lane
//! that returns the cell.
//!
//! *A kill* between any two lines leaves an entry put or not, and a position that may be one behind. That
//! is no matter: lanes and positions are derived from the cells' states (`cells.rs`), and made anew by
//! whoever finds the lock's owner dead, under both locks.
//!
//! *Progress:* wait-free. *Cost:* one store, one load.
//!
//! *Checked by:* `tests/loom_queue.rs`, with a negative twin: an entry that is put without Release.

use crate::atomic::{AtomicU64, Ordering, unless_fault};

/// Names a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Index(pub(crate) u32);

impl Index {
    /// As a cell, an inbox or a lane names it: never 0.
    pub(crate) fn name(self) -> u32 {
        self.0 + 1
    }

    /// What [`Self::name`] gave, if anything.
    pub(crate) fn named(name: u32) -> Option<Self> {
        name.checked_sub(1).map(Self)
    }
}

/// The entries of a lane.
#[derive(Clone, Copy)]
pub(crate) struct Lane<'a>(&'a [AtomicU64]);

/// A cell on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) index: Index,
    /// It does not simply belong behind all that were put before.
    pub(crate) ranked: bool,
}

/// Beside the cell's name, which is 2³⁰ + 1 at most.
const RANKED: u32 = 1 << 31;

impl<'a> Lane<'a> {
    /// The number of places is a power of two.
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

    /// What was put at the taker's position, if anything.
    #[inline]
    pub(crate) fn look(self, position: u32) -> Option<Entry> {
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

    /// Empties the lane; both positions are to be 0. Under both locks.
    pub(crate) fn clear(self) {
        for place in self.0 {
            // Relaxed: ordered by the locks.
            place.store(0, Ordering::Relaxed);
        }
    }
}
