//! Texts of another process's board, for a finding that involves that process.
//!
//! Unlike the rest of the checker this allocates: a cycle through another process does not pass through the lock of
//! this process's allocator.
#![allow(unsafe_code)]

use crate::atomic::Ordering;
use crate::check::record::bounded::Text;
use crate::check::record::layout::{
    BOARD, Entry, Header, LOCKS, LOCKS_AT, MAGIC, PLACES, PLACES_AT, PROBES, Place, Plain, TEXTS,
    TEXTS_AT, Text as Entered, VERSION, lock_slot, text_slot,
};
use crate::hook::RecordedSite;
use crate::sys::{inspect, introspect, memory};
use core::mem::MaybeUninit;
use rustix::fd::OwnedFd;

/// A text of a process's board, by its key.
pub(crate) fn text(process: u32, key: u64) -> Option<Text<128>> {
    Some(find_text(&open(process)?, key)?.copy())
}

/// The text under a key on a board.
pub(crate) fn find_text(board: &OwnedFd, key: u64) -> Option<Entered> {
    run::<Entered>(board, TEXTS_AT, TEXTS, text_slot(key))
        .take_while(|text| text.key.load(Ordering::Relaxed) != 0)
        .find(|text| text.key.load(Ordering::Relaxed) == key)
}

/// The entry of an address on a board.
pub(crate) fn find_lock(board: &OwnedFd, address: u64) -> Option<Entry> {
    run::<Entry>(board, LOCKS_AT, LOCKS, lock_slot(address))
        .take_while(|entry| entry.address.load(Ordering::Relaxed) != 0)
        .find(|entry| entry.address.load(Ordering::Relaxed) == address)
}

/// The key of a lock's name, and where it was made.
pub(crate) fn lock(process: u32, address: u64) -> Option<(u64, RecordedSite)> {
    Some(find_lock(&open(process)?, address)?.name_and_site())
}

/// The board of a process.
pub(crate) fn open(process: u32) -> Option<OwnedFd> {
    if !introspect::shows_own_ids() {
        return None;
    }
    let named = format!("/memfd:{BOARD}");
    let descriptors = inspect::descriptors(process).ok()?;
    let mut boards = descriptors
        .into_iter()
        .filter(|(_, path)| path.to_string_lossy().starts_with(&named))
        .filter_map(|(descriptor, _)| {
            let place = inspect::Place::of_descriptor(process, descriptor).ok()?;
            place.open().ok()
        });
    boards.find(|board| {
        read::<Header>(board, 0).is_some_and(|header| {
            let load = |field: &crate::atomic::AtomicU32| field.load(Ordering::Relaxed);
            header.magic.load(Ordering::Relaxed) == MAGIC
                && load(&header.version) == VERSION
                && load(&header.process) == process
        })
    })
}

/// The value at an offset.
pub(crate) fn read<T: Plain>(file: &OwnedFd, offset: usize) -> Option<T> {
    read_some(file, offset, 1).pop()
}

/// The places that were used at least once; their threads may have ended.
pub(crate) fn places(board: &OwnedFd) -> impl Iterator<Item = Place> {
    let header = read::<Header>(board, 0);
    // Relaxed, here and below: these are copies in this process's memory.
    let places = header.map_or(0, |header| header.places.load(Ordering::Relaxed) as usize);
    (0..places.min(PLACES))
        .map_while(|index| read::<Place>(board, PLACES_AT + index * size_of::<Place>()))
        .filter(|place| place.taken.load(Ordering::Relaxed) != 0)
}

/// So many values from an offset on, or those that could be read.
fn read_some<T: Plain>(file: &OwnedFd, offset: usize, count: usize) -> Vec<T> {
    let mut values = Vec::<T>::with_capacity(count);
    let room = values.spare_capacity_mut();
    room.fill_with(MaybeUninit::zeroed);
    let bytes = count * size_of::<T>();
    // SAFETY: these are the values' own bytes, initialised to zero.
    let bytes = unsafe { core::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<u8>(), bytes) };
    let read = memory::read_at(file, bytes, offset as u64).unwrap_or(0);
    // SAFETY: any bytes are a value of a `Plain` type, and that many bytes were read.
    unsafe { values.set_len(read / size_of::<T>()) };
    values
}

/// The slots of a table in which a search that begins at `first` may end, by one or two reads, however many entries
/// there are.
fn run<T: Plain>(
    file: &OwnedFd,
    table: usize,
    places: usize,
    first: usize,
) -> impl Iterator<Item = T> {
    let first = first % places;
    let to_the_end = PROBES.min(places - first);
    let rest = PROBES - to_the_end;
    let part = |first: usize, count| read_some(file, table + first * size_of::<T>(), count);
    let at_the_beginning = (rest > 0).then(|| part(0, rest));
    let at_first = part(first, to_the_end);
    at_first
        .into_iter()
        .chain(at_the_beginning.into_iter().flatten())
}
