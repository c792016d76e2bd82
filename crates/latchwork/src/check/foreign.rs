//! Texts of another process's board, for a finding that reaches over to it.
//!
//! Unlike the rest of the checker this allocates: a circle that goes through another process does not go
//! through an allocator's own lock.
#![allow(unsafe_code)]

use super::few::Text;
use super::layout::{
    BOARD, Entry, Header, LOCKS, LOCKS_AT, MAGIC, TEXTS, TEXTS_AT, Text as Entered, VERSION,
    lock_slot, text_slot,
};
use crate::atomic::Ordering;
use crate::hook::Site;
use crate::sys::inspect::{self, Place};
use crate::sys::memory;
use core::mem::MaybeUninit;
use rustix::fd::OwnedFd;

/// How far a search goes.
const PROBES: usize = 64;

/// A text, by its key.
pub(super) fn text(process: u32, key: u64) -> Option<Text<128>> {
    let board = open(process)?;
    (0..PROBES)
        .map(|step| (text_slot(key) + step) % TEXTS)
        .filter_map(|index| read::<Entered>(&board, TEXTS_AT + index * size_of::<Entered>()))
        .take_while(|text| text.key.load(Ordering::Relaxed) != 0)
        .find(|text| text.key.load(Ordering::Relaxed) == key)
        .map(|text| text.copy())
}

/// The key of a lock's name, and where it was made.
pub(super) fn lock(process: u32, address: u64) -> Option<(u64, Site)> {
    let board = open(process)?;
    (0..PROBES)
        .map(|step| (lock_slot(address) + step) % LOCKS)
        .filter_map(|index| read::<Entry>(&board, LOCKS_AT + index * size_of::<Entry>()))
        .take_while(|entry| entry.address.load(Ordering::Relaxed) != 0)
        .find(|entry| entry.address.load(Ordering::Relaxed) == address)
        .map(|entry| {
            let site = Site(entry.site.load(Ordering::Relaxed));
            (entry.name.load(Ordering::Relaxed), site)
        })
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

pub(super) fn read<T: Plain>(file: &OwnedFd, offset: usize) -> Option<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: the value's own bytes, which are zero.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    let count = memory::read_at(file, bytes, offset as u64).ok()?;
    // SAFETY: `Plain`.
    (count == size_of::<T>()).then(|| unsafe { value.assume_init() })
}
