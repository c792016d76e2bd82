//! The layout of the board: a memory file in which one process publishes the state of its locks. Any process that may
//! read `/proc/PID/fd` can open it there, by the name `memfd:latchwork-board`. The process itself need not answer, so
//! it may hang or be stopped.
//!
//! | part | offset | contents |
//! | --- | --- | --- |
//! | [`Header`] | 0 | magic number, version, process, how much of each table is used |
//! | [`Place`] × [`PLACES`] | [`PLACES_AT`] | a record for each thread, and the held locks that do not fit into it |
//! | [`Text`] × [`TEXTS`] | [`TEXTS_AT`] | source locations and names, by key: a hash set with linear probing |
//! | [`Entry`] × [`LOCKS`] | [`LOCKS_AT`] | the locks, by address: a hash table with linear probing |
//! | `u32` × [`LOCKS`] | [`USED_AT`] | the used indices of that table, in the order of entry: the first [`Header::locks`] |
//! | `u32` × [`TEXTS`] | [`USED_TEXTS_AT`] | the same for texts: the first [`Header::texts`] |
//! | [`Report`] × [`REPORTS`] | [`REPORTS_AT`] | the latest findings: a ring, of which [`Header::reports`] counts all |
//! | [`Note`] × [`NOTES`] × [`PLACES`] | [`NOTES_AT`] | where each thread last released the locks that it held exclusively |
//!
//! The file is sparse: a page takes memory when something is written to it. A reader need not trust the contents: all
//! positions follow from the constants, and any string of bytes is a valid value of each type.
//!
//! *Frozen within a [`VERSION`].*
#![allow(unsafe_code)]

use crate::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::check::record::bounded;
use crate::hook::{HeldLock, RecordedSite, TaskRecord};
use core::fmt::Write;

/// The name of the memory file.
pub const BOARD: &str = "latchwork-board";

/// The first eight bytes of a board.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lwboard\0");
/// Changes whenever the meaning of the bytes changes.
pub const VERSION: u32 = 5;

/// How many threads a board has room for.
pub const PLACES: usize = 4096;
/// How many held locks of a thread it has room for, beyond those in its [`TaskRecord`].
pub const MORE: usize = 48;
/// How many texts it has room for.
pub const TEXTS: usize = 8192;
/// The most bytes of a text, in whole characters.
pub const TEXT_BYTES: usize = 120;
/// How many locks it has room for. In practice fewer fit, since each must find a slot within [`PROBES`] of its first
/// one.
pub const LOCKS: usize = 1 << 18;
/// How many findings it has room for: later ones overwrite the oldest.
pub const REPORTS: usize = 64;
/// The most bytes of a finding's summary.
pub const SUMMARY_BYTES: usize = 384;
/// The most bytes of a finding's text: most texts are shorter; longer ones are cut off.
pub const REPORT_BYTES: usize = 7784;
/// How many release locations of a thread it has room for.
pub const NOTES: usize = 32;
/// How many slots a search in one of the hash tables probes.
pub const PROBES: usize = 256;

/// The offsets of the parts.
pub const PLACES_AT: usize = 4096;
/// See [`PLACES_AT`].
pub const TEXTS_AT: usize = PLACES_AT + PLACES * size_of::<Place>();
/// See [`PLACES_AT`].
pub const LOCKS_AT: usize = TEXTS_AT + TEXTS * size_of::<Text>();
/// See [`PLACES_AT`].
pub const USED_AT: usize = LOCKS_AT + LOCKS * size_of::<Entry>();
/// See [`PLACES_AT`].
pub const USED_TEXTS_AT: usize = USED_AT + LOCKS * size_of::<AtomicU32>();
/// See [`PLACES_AT`].
pub const REPORTS_AT: usize = USED_TEXTS_AT + TEXTS * size_of::<AtomicU32>();
/// See [`PLACES_AT`].
pub const NOTES_AT: usize = REPORTS_AT + REPORTS * size_of::<Report>();
/// The size of the whole file in bytes.
pub const BYTES: usize = NOTES_AT + PLACES * NOTES * size_of::<Note>();

/// The header of a board.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`], stored after all other fields.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The process ID. In the child of a fork, an inherited descriptor leads to the parent's board.
    pub process: AtomicU32,
    /// How many places were ever used: those from here on were not.
    pub places: AtomicU32,
    /// How many entries of the table of locks are in use.
    pub locks: AtomicU32,
    /// How many entries of the table of texts are in use.
    pub texts: AtomicU32,
    /// How many uses were of locks that found no room, and are not checked.
    pub unchecked: AtomicU32,
    /// How many findings were reported, by severity: deadlocks, potential deadlocks, long waits, inversions, misuse.
    pub findings: [AtomicU32; 5],
    /// How many of them were stored as [`Report`]s.
    pub reports: AtomicU32,
}

/// The board's part for one thread.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Place {
    /// The record of which each region has a copy.
    pub record: TaskRecord,
    /// The held locks beyond those in `record`. The count in [`TaskRecord`] includes them.
    pub more: [HeldLock; MORE],
    /// How many entries of `more` are in use, including empty ones among them.
    pub more_count: AtomicU32,
    /// 0 if free, 1 if taken.
    pub taken: AtomicU32,
}

/// A text and its key.
#[repr(C)]
#[derive(Debug)]
pub struct Text {
    /// 0 if free. Otherwise a [`Site`](crate::hook::Site) that is a source location, or an even key, of a name.
    pub key: AtomicU64,
    /// UTF-8, up to the first 0.
    pub bytes: [AtomicU8; TEXT_BYTES],
}

/// The checker's record of a lock.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Entry {
    /// Its address; 0 if the entry is free.
    pub address: AtomicU64,
    /// Where it was initialised, or first taken: a [`Site`](crate::hook::Site).
    pub site: AtomicU64,
    /// The key of its name in [`Text`]s; 0 for none.
    pub name: AtomicU64,
    /// Kind and traits, as in [`HeldLock`]; [`GONE`] and the other flags below.
    pub what: AtomicU32,
    /// The only task that has taken it so far, by its number in this process; 0 for none, `u32::MAX` for at least two.
    pub task: AtomicU32,
    /// Its node in the order graph (its class's or its own); with the highest bit set if at least two tasks have taken
    /// it.
    pub node: AtomicU32,
    /// Incremented when it is reinitialised.
    pub generation: AtomicU32,
    /// The place of its probable holder, plus 1. This is a hint, to be checked against that place's record. For a lock
    /// that stores its holder itself, the field names holders that have begun to wait since they took it.
    pub holder: AtomicU32,
    /// How many tasks wait for it with the same mutex, if it is a condition variable.
    pub waiters: AtomicU32,
    /// The mutex of those waiters.
    pub mutex: AtomicU64,
    /// Two numbers, the first in the upper half. For a lock with an owner: the edges of the order graph for which it
    /// was last wanted, and last held. For a condition variable: how many times it was initialised or all its waiters
    /// were notified; and how many waiters were notified one by one since then and have not returned.
    pub pair: AtomicU64,
}

/// Where a thread of a place last released a lock that it had held exclusively. The note stays when the thread ends,
/// until another lock, or thread, needs the slot.
#[repr(C)]
#[derive(Debug)]
pub struct Note {
    /// The lock's address; 0 for none.
    pub lock: AtomicU64,
    /// Where it was taken: a [`Site`](crate::hook::Site).
    pub taken: AtomicU64,
    /// Where it was released: a [`Site`](crate::hook::Site), unknown if a guard's drop released it.
    pub released: AtomicU64,
    /// The thread that released it.
    pub thread: AtomicU32,
    /// [`Entry::generation`] at the release: a note of an earlier generation is about another lock.
    pub generation: AtomicU32,
}

/// A finding that was reported.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Report {
    /// Its number, from 1 on; 0 if there is none, or while it is being written. A reader that reads the same number
    /// before and after the other fields has read a consistent report.
    pub number: AtomicU32,
    /// The rule's number, and [`FOLLOWS`], [`SUSPECTED`] or [`ASSUMED`].
    pub rule: AtomicU32,
    /// The finding's ID.
    pub id: AtomicU64,
    /// The time of the report, in nanoseconds on CLOCK_MONOTONIC.
    pub told_at: AtomicU64,
    /// UTF-8, up to the first 0: the finding's summary, in one line.
    pub summary: [AtomicU8; SUMMARY_BYTES],
    /// UTF-8, up to the first 0: the text of the report.
    pub text: [AtomicU8; REPORT_BYTES],
}

/// In [`Report::rule`]: the finding follows from observed events, in another order.
pub const FOLLOWS: u32 = 1 << 8;
/// In [`Report::rule`]: the finding would follow if another task did the same.
pub const SUSPECTED: u32 = 1 << 9;
/// In [`Report::rule`]: the deadlock lasts unless a task releases a lock that another one holds.
pub const ASSUMED: u32 = 1 << 10;

/// In [`Entry::what`]: it was destroyed, or its memory was freed.
pub const GONE: u32 = 1 << 24;
/// It was made by the interface: the checker saw its initialisation.
pub const MADE: u32 = 1 << 25;
/// It was reinitialised in place without a call: in the lock order it has a node of its own.
pub const REMADE: u32 = 1 << 26;
/// With [`GONE`]: it was destroyed by its interface, and its memory was not freed since.
pub const ENDED: u32 = 1 << 27;

/// In [`Entry::task`]: no task has taken the lock; or it is gone, has no owner, or counts as common since processes
/// share it.
pub(crate) const NO_TASK: u32 = 0;
/// In [`Entry::task`]: at least two tasks have taken the lock.
pub(crate) const COMMON: u32 = u32::MAX;

const _: () = assert!(size_of::<Entry>() == 64 && size_of::<Text>() == 128);
const _: () = assert!(size_of::<Report>() == 8192 && REPORTS_AT.is_multiple_of(64));

/// A type of which any string of bytes is a value, zeros among them.
///
/// # Safety
/// The type consists only of atomics.
pub(crate) unsafe trait Plain: Sized + Sync + 'static {}

/// Declares types that consist only of atomics.
macro_rules! plain {
    ($($Type:ty),*) => {$(
        // SAFETY: the type consists only of atomics.
        unsafe impl $crate::check::record::layout::Plain for $Type {}
    )*};
}
pub(crate) use plain;
plain!(Header, Place, Text, Entry, Report, AtomicU32);

/// A value of zeros.
pub(crate) const fn zero<T: Plain>() -> T {
    // SAFETY: zeros are a value of a `Plain` type.
    unsafe { core::mem::zeroed() }
}

impl Text {
    /// The text, up to the first invalid byte.
    #[must_use]
    pub fn text(&self) -> String {
        self.copy().to_string()
    }

    pub(crate) fn copy(&self) -> bounded::Text<128> {
        // Relaxed: a text that is read while it is written is cut short.
        let load = |byte: &AtomicU8| byte.load(Ordering::Relaxed);
        let bytes = self.bytes.each_ref().map(load);
        let length = bytes.iter().position(|byte| *byte == 0);
        let mut text = bounded::Text::EMPTY;
        for chunk in bytes[..length.unwrap_or(TEXT_BYTES)].utf8_chunks() {
            let _ = text.write_str(chunk.valid());
        }
        text
    }
}

/// Reads a text, up to the first 0.
pub(crate) fn text_in(bytes: &[AtomicU8]) -> String {
    // Relaxed: the bytes are a copy in the reader's own memory.
    let bytes = bytes.iter().map(|byte| byte.load(Ordering::Relaxed));
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    let chunks = bytes.utf8_chunks();
    chunks.map(|chunk| chunk.valid()).collect()
}

impl Entry {
    /// Whether it is the entry of the lock at an address.
    #[inline(always)]
    pub(crate) fn is_at(&self, address: usize) -> bool {
        // Acquire: pairs with the Release in `enter_lock`.
        self.address.load(Ordering::Acquire) == address as u64
    }

    /// The key of its name, or 0, and the place where it was made.
    pub(crate) fn name_and_site(&self) -> (u64, RecordedSite) {
        let site = RecordedSite::new(self.site.load(Ordering::Relaxed));
        (self.name.load(Ordering::Relaxed), site)
    }
}

/// The slot at which the search for a lock begins.
#[inline]
#[must_use]
pub const fn lock_slot(address: u64) -> usize {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LOCKS.ilog2())) as usize
}

/// The slot of a lock among a thread's notes.
#[inline]
#[must_use]
pub const fn note_slot(address: u64) -> usize {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - NOTES.ilog2())) as usize
}

/// The slot at which the search for a text begins.
#[inline]
#[must_use]
pub const fn text_slot(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - TEXTS.ilog2())) as usize
}
