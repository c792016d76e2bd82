//! Growing storage without the program's allocator: rows, and an index of them. Nothing moves while it is read.
//!
//! Rows lie in pieces, each twice as large as the one before, so a row's piece follows from its number. A full index is
//! copied into one of twice the size; the old one stays mapped for tasks that still read it, and gets no new entries.
//! (So all old ones together are no larger than the latest.)
#![allow(unsafe_code)]

use crate::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use crate::check::record::layout::Plain;
use crate::sys::board as memory;
use core::ptr::NonNull;

/// The rows of the first piece.
const FIRST: usize = 1024;
/// Enough for two million rows.
const PIECES: usize = 11;

/// Rows by number.
pub(crate) struct Rows<T> {
    pieces: [AtomicPtr<T>; PIECES],
}

impl<T: Plain> Rows<T> {
    /// The piece of a row, and its index in it.
    const fn place(row: u32) -> (usize, usize) {
        let row = row as usize;
        let piece = (row / FIRST + 1).ilog2() as usize;
        (piece, row - FIRST * ((1 << piece) - 1))
    }

    /// Whether a row is the first of a piece.
    pub(crate) const fn begins_piece(row: u32) -> bool {
        Self::place(row).1 == 0
    }

    pub(crate) fn get(&self, row: u32) -> Option<&'static T> {
        let (piece, at) = Self::place(row);
        // Acquire: pairs with the Release in `make`.
        let piece = NonNull::new(self.pieces.get(piece)?.load(Ordering::Acquire))?;
        // SAFETY: the row lies within the piece, which stays mapped; zero is a value of it.
        Some(unsafe { piece.add(at).as_ref() })
    }

    /// Ensures that a row exists. Under the lock.
    pub(crate) fn make(&self, row: u32) -> bool {
        let (piece, _) = Self::place(row);
        let Some(place) = self.pieces.get(piece) else {
            return false;
        };
        if place.load(Ordering::Relaxed).is_null() {
            let Ok(fresh) = memory::arena((FIRST << piece) * size_of::<T>()) else {
                return false;
            };
            place.store(fresh.as_ptr().cast(), Ordering::Release);
        }
        true
    }
}

/// Row numbers by the hash of the rows' keys; 0 is none. Searched without a lock, changed under it.
pub(crate) struct Index(AtomicPtr<AtomicU32>);

/// The memory of an index: the logarithm of the number of slots, how many are in use, and the slots.
#[derive(Clone, Copy)]
struct Table(&'static [AtomicU32]);

const SLOTS_AT: usize = 2;
const FEWEST_SLOTS: u32 = 11;

impl Table {
    /// # Safety
    /// At `base` there is a table, which stays mapped.
    unsafe fn at(base: NonNull<AtomicU32>) -> Self {
        // SAFETY: by the contract there is a table, whose first word says how long it is.
        unsafe {
            let logarithm = base.as_ref().load(Ordering::Relaxed);
            let length = SLOTS_AT + (1 << logarithm);
            Self(NonNull::slice_from_raw_parts(base, length).as_ref())
        }
    }

    fn logarithm(self) -> u32 {
        self.0[0].load(Ordering::Relaxed)
    }

    fn used(self) -> &'static AtomicU32 {
        &self.0[1]
    }

    /// The slots in the order of probing.
    fn probe(self, hash: u64) -> impl Iterator<Item = &'static AtomicU32> {
        let slots = &self.0[SLOTS_AT..];
        let first = (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.logarithm())) as usize;
        slots[first..].iter().chain(&slots[..first])
    }

    fn enter(self, hash: u64, number: u32) {
        let mut slots = self.probe(hash);
        if let Some(free) = slots.find(|slot| slot.load(Ordering::Relaxed) == 0) {
            // Release: a reader that finds the number finds the row that it stands for.
            free.store(number, Ordering::Release);
            self.used().fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Index {
    fn table(&self) -> Option<Table> {
        // Acquire: pairs with the Release in `make_room`.
        let base = NonNull::new(self.0.load(Ordering::Acquire))?;
        // SAFETY: `make_room` stored the address of a table, which stays mapped.
        Some(unsafe { Table::at(base) })
    }

    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let slots = self.table()?.probe(hash);
        // Acquire: pairs with the Release in `enter`.
        let numbers = slots.map(|slot| slot.load(Ordering::Acquire));
        numbers
            .take_while(|number| *number != 0)
            .find(|number| is_it(*number))
    }

    /// Ensures that one more number can be entered. Under the lock.
    pub(crate) fn make_room(&self, hash_of: impl Fn(u32) -> u64) -> bool {
        let old = self.table();
        let is_full =
            |table: Table| table.used().load(Ordering::Relaxed) >> (table.logarithm() - 1) != 0;
        if !old.is_none_or(is_full) {
            return true;
        }
        let logarithm = old.map_or(FEWEST_SLOTS, |old| old.logarithm() + 1);
        let bytes = (SLOTS_AT + (1 << logarithm)) * size_of::<AtomicU32>();
        let Ok(base) = memory::arena(bytes) else {
            return false;
        };
        let base = base.cast::<AtomicU32>();
        // SAFETY: fresh memory of that size, which stays mapped.
        let new = unsafe {
            base.as_ref().store(logarithm, Ordering::Relaxed);
            Table::at(base)
        };
        for slot in old.map_or(&[][..], |old| &old.0[SLOTS_AT..]) {
            let number = slot.load(Ordering::Relaxed);
            if number != 0 {
                new.enter(hash_of(number), number);
            }
        }
        self.0.store(base.as_ptr(), Ordering::Release);
        true
    }

    /// Enters a number for which there is room. Under the lock.
    pub(crate) fn enter(&self, hash: u64, number: u32) {
        if let Some(table) = self.table() {
            table.enter(hash, number);
        }
    }

    /// Removes all numbers: a search meanwhile finds none. Under the lock.
    pub(crate) fn clear(&self) {
        if let Some(table) = self.table() {
            for slot in &table.0[SLOTS_AT..] {
                slot.store(0, Ordering::Relaxed);
            }
            table.used().store(0, Ordering::Relaxed);
        }
    }
}

/// Three lists of numbers, for the task that has the lock.
pub(crate) struct Scratch {
    memory: AtomicPtr<u64>,
    room: AtomicUsize,
}

impl Scratch {
    /// Ensures that each list has room for `count` numbers. Under the lock, while no list is in use.
    pub(crate) fn make_room(&self, count: usize) -> bool {
        let old = self.room.load(Ordering::Relaxed);
        if count <= old {
            return true;
        }
        let room = count.next_power_of_two().max(FIRST);
        let bytes = |room: usize| 3 * room * size_of::<u64>();
        let Ok(fresh) = memory::arena(bytes(room)) else {
            return false;
        };
        let before = self.memory.swap(fresh.as_ptr().cast(), Ordering::Relaxed);
        self.room.store(room, Ordering::Relaxed);
        if let Some(before) = NonNull::new(before) {
            // SAFETY: this function mapped it, with that many bytes; by the contract nothing uses it.
            unsafe { memory::leave_arena(before.cast(), bytes(old)) };
        }
        true
    }

    /// The lists.
    ///
    /// # Safety
    /// The caller has the lock, and until it has finished with the lists nothing calls this again, or
    /// [`Self::make_room`].
    pub(crate) unsafe fn lists(&self) -> [&'static mut [u64]; 3] {
        let room = self.room.load(Ordering::Relaxed);
        let base = NonNull::new(self.memory.load(Ordering::Relaxed)).unwrap_or(NonNull::dangling());
        // SAFETY: the memory has three times `room` numbers, or none; by the contract nothing else uses them.
        [0, 1, 2].map(|list| unsafe {
            NonNull::slice_from_raw_parts(base.add(list * room), room).as_mut()
        })
    }
}
