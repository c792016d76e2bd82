//! Texts of another process's board, for a finding that reaches over to it.
//!
//! Unlike the rest of the checker this allocates: a circle that goes through another process does not go
//! through an allocator's own lock.
#![allow(unsafe_code)]

use super::few::Text;
use super::layout::{
    BOARD, Entry, Header, LOCKS, LOCKS_AT, MAGIC, PROBES, TEXTS, TEXTS_AT, Text as Entered,
    VERSION, lock_slot, text_slot,
};
use crate::atomic::Ordering;
use crate::hook::RecordedSite;
use crate::sys::inspect::{self, Place};
use crate::sys::memory;
use core::mem::MaybeUninit;
use rustix::fd::OwnedFd;

/// A text, by its key.
pub(super) fn text(process: u32, key: u64) -> Option<Text<128>> {
    Some(find_text(&open(process)?, key)?.copy())
}

/// The text of a key on a board.
pub(super) fn find_text(board: &OwnedFd, key: u64) -> Option<Entered> {
    run::<Entered>(board, TEXTS_AT, TEXTS, text_slot(key))
        .take_while(|text| text.key.load(Ordering::Relaxed) != 0)
        .find(|text| text.key.load(Ordering::Relaxed) == key)
}

/// What is known of an address on a board.
pub(super) fn find_lock(board: &OwnedFd, address: u64) -> Option<Entry> {
    run::<Entry>(board, LOCKS_AT, LOCKS, lock_slot(address))
        .take_while(|entry| entry.address.load(Ordering::Relaxed) != 0)
        .find(|entry| entry.address.load(Ordering::Relaxed) == address)
}

/// The key of a lock's name, and where it was made.
pub(super) fn lock(process: u32, address: u64) -> Option<(u64, RecordedSite)> {
    let entry = find_lock(&open(process)?, address)?;
    let site = RecordedSite::new(entry.site.load(Ordering::Relaxed));
    Some((entry.name.load(Ordering::Relaxed), site))
}

/// The board of a process.
pub(super) fn open(process: u32) -> Option<OwnedFd> {
    let named = format!("/memfd:{BOARD}");
    let descriptors = inspect::descriptors(process).ok()?;
    let mut boards = descriptors
        .into_iter()
        .filter(|(_, path)| path.to_string_lossy().starts_with(&named))
        .filter_map(|(descriptor, _)| Place::of_descriptor(process, descriptor).ok()?.open().ok());
    boards.find(|board| {
        read::<Header>(board, 0).is_some_and(|header| {
            let load = |field: &crate::atomic::AtomicU32| field.load(Ordering::Relaxed);
            header.magic.load(Ordering::Relaxed) == MAGIC
                && load(&header.version) == VERSION
                && load(&header.process) == process
        })
    })
}

/// A type that consists of atomics, and so has every string of bytes as a value.
///
/// # Safety
/// It does.
pub(super) unsafe trait Plain {}
// SAFETY: see there, here and below.
unsafe impl Plain for Header {}
// SAFETY: as above.
unsafe impl Plain for Entered {}
// SAFETY: as above.
unsafe impl Plain for Entry {}
// SAFETY: as above.
unsafe impl Plain for super::layout::Place {}
// SAFETY: as above.
unsafe impl Plain for super::layout::Report {}
// SAFETY: as above.
unsafe impl Plain for crate::atomic::AtomicU32 {}

pub(super) fn read<T: Plain>(file: &OwnedFd, offset: usize) -> Option<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: the value's own bytes, which are zero.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    let count = memory::read_at(file, bytes, offset as u64).ok()?;
    // SAFETY: `Plain`.
    (count == size_of::<T>()).then(|| unsafe { value.assume_init() })
}

/// The places of a table in which a search may end that begins at `first`: by one read, or two, however many others
/// stand there.
fn run<T: Plain>(
    file: &OwnedFd,
    table: usize,
    places: usize,
    first: usize,
) -> impl Iterator<Item = T> {
    let first = first % places;
    let to_the_end = PROBES.min(places - first);
    let part = move |first: usize, count: usize| {
        let mut values = Vec::<T>::with_capacity(count);
        let room = values.spare_capacity_mut();
        room.fill_with(MaybeUninit::zeroed);
        let offset = table + first * size_of::<T>();
        // SAFETY: the values' own bytes, which are zero.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<u8>(), count * size_of::<T>())
        };
        let read = memory::read_at(file, bytes, offset as u64).unwrap_or(0);
        // SAFETY: `Plain`, and so many were read.
        unsafe { values.set_len(read / size_of::<T>()) };
        values
    };
    let rest = PROBES - to_the_end;
    part(first, to_the_end)
        .into_iter()
        .chain((rest > 0).then(|| part(0, rest)).into_iter().flatten())
}
