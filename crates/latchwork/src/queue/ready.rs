//! The ring of ready cells, in the order of their keys.
//!
//! A message that belongs behind all others, or before them, is inserted at once; one that belongs between them shifts
//! the shorter side, four bytes for each message.

use super::{cell::READY, lane::Index, layout::Cells, rank::Key, shape::READY_RING};
use crate::atomic::Ordering::Relaxed;

impl Cells<'_> {
    /// The ring's place of the message that has `position` others before it.
    fn place(self, position: u32) -> usize {
        self.wrapped(self.core.receiving.ready_first.load(Relaxed), position)
    }

    /// The ready message that has `position` others before it.
    fn nth(self, position: u32) -> Index {
        Index(self.ring(READY_RING)[self.place(position)].load(Relaxed))
    }

    fn put(self, position: u32, index: Index) {
        self.ring(READY_RING)[self.place(position)].store(index.0, Relaxed);
    }

    fn key_at(self, position: u32) -> Key {
        self.cell(self.nth(position)).key()
    }

    /// Inserts a ready cell at its position.
    pub(super) fn insert_ready(self, index: Index) {
        let key = self.cell(index).key();
        let count = self.core.receiving.ready_count.load(Relaxed);
        let position = if count == 0 || self.key_at(count - 1) < key {
            count
        } else {
            self.position_of(key, count)
        };
        if position <= count / 2 {
            // The ring now begins one place earlier: the place `ring_length - 1` behind the old first one.
            let first = self.place(self.ring_length() as u32 - 1) as u32;
            self.core.receiving.ready_first.store(first, Relaxed);
            for before in 0..position {
                self.put(before, self.nth(before + 1));
            }
        } else {
            for after in (position..count).rev() {
                self.put(after + 1, self.nth(after));
            }
        }
        self.put(position, index);
        self.core.receiving.ready_count.store(count + 1, Relaxed);
    }

    /// How many of `count` messages come before `key`.
    fn position_of(self, key: Key, count: u32) -> u32 {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key_at(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Appends a cell behind all others: it belongs there, or [`Self::sort_ready`] follows.
    pub(super) fn push_ready(self, index: Index) {
        let count = self.core.receiving.ready_count.load(Relaxed);
        self.put(count, index);
        self.core.receiving.ready_count.store(count + 1, Relaxed);
    }

    /// Takes the first of the ready cells, the one that [`Cells::peek`] returned.
    pub(super) fn pop_ready(self) -> Option<Index> {
        let side = &self.core.receiving;
        let count = side.ready_count.load(Relaxed).checked_sub(1)?;
        let index = self.nth(0);
        side.ready_first.store(self.place(1) as u32, Relaxed);
        side.ready_count.store(count, Relaxed);
        if let Some(next) = self.first_ready() {
            self.prefetch(next);
        }
        Some(index)
    }

    pub(super) fn first_ready(self) -> Option<Index> {
        let count = self.core.receiving.ready_count.load(Relaxed);
        (count > 0).then(|| self.nth(0))
    }

    /// Heap sort in place, since nothing may be allocated here. The ring begins at its first place.
    pub(super) fn sort_ready(self) {
        let ring = self.ring(READY_RING);
        let count = self.core.receiving.ready_count.load(Relaxed) as usize;
        let key = |place: usize| self.cell(Index(ring[place].load(Relaxed))).key();
        let swap = |one: usize, other: usize| {
            let saved = ring[one].load(Relaxed);
            ring[one].store(ring[other].load(Relaxed), Relaxed);
            ring[other].store(saved, Relaxed);
        };
        let sift = |mut root: usize, end: usize| {
            let greater_child = |root: usize| {
                let children = 2 * root + 1..end.min(2 * root + 3);
                let greatest = children.max_by_key(|child| key(*child))?;
                (key(root) < key(greatest)).then_some(greatest)
            };
            while let Some(child) = greater_child(root) {
                swap(root, child);
                root = child;
            }
        };
        for root in (0..count / 2).rev() {
            sift(root, count);
        }
        for end in (1..count).rev() {
            swap(0, end);
            sift(0, end);
        }
    }

    /// Whether the ring holds ready cells, in the order of their keys.
    pub(super) fn ready_is_sorted(self) -> bool {
        let count = self.core.receiving.ready_count.load(Relaxed);
        (1..count).all(|position| self.key_at(position - 1) < self.key_at(position))
            && (0..count).all(|position| self.cell(self.nth(position)).kind() == READY)
    }
}
