//! The board: what one process says of its locks, in a memory file that anybody may read who may look
//! at the process's descriptors (`/proc/PID/fd`, by the name `memfd:latchwork-board`). Nobody needs to ask
//! the process, which may hang, or be stopped.
//!
//! | part | at | what |
//! | --- | --- | --- |
//! | [`Header`] | 0 | what it is, whose, how much is used |
//! | [`Place`] × [`PLACES`] | [`PLACES_AT`] | a record for each thread, and what does not fit into it |
//! | [`Text`] × [`TEXTS`] | [`TEXTS_AT`] | places in sources, and names, by key: a hash set, probed linearly |
//! | [`Entry`] × [`LOCKS`] | [`LOCKS_AT`] | the locks, by address: a hash table, probed linearly |
//! | `u32` × [`LOCKS`] | [`USED_AT`] | which of these are in use, in the order of their coming: the first [`Header::locks`] |
//! | `u32` × [`TEXTS`] | [`USED_TEXTS_AT`] | the same for texts: the first [`Header::texts`] |
//! | [`Report`] × [`REPORTS`] | [`REPORTS_AT`] | the last findings: a ring, of which [`Header::reports`] counts all |
//! | [`Note`] × [`NOTES`] × [`PLACES`] | [`NOTES_AT`] | where each thread has released what it had alone |
//!
//! The file is sparse: a page takes memory when something is written to it. A reader trusts nothing: all
//! positions follow from the constants, and any string of bytes is a value of each type.
//!
//! *Frozen within a [`VERSION`].*

use crate::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::hook::{HeldLock, TaskRecord};

/// The name of the memory file.
pub const BOARD: &str = "latchwork-board";

/// What a board begins with.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lwboard\0");
/// Changes with every change of what the bytes mean.
pub const VERSION: u32 = 5;

/// Threads that a board has room for.
pub const PLACES: usize = 4096;
/// Locks of a thread beyond those in its [`TaskRecord`].
pub const MORE: usize = 48;
/// Texts that it has room for.
pub const TEXTS: usize = 8192;
/// Bytes of a text, whole characters.
pub const TEXT_BYTES: usize = 120;
/// Locks that it has room for: fewer in fact, as each must find a place within [`PROBES`] of its first one.
pub const LOCKS: usize = 1 << 18;
/// Findings that it has room for: later ones take the places of the first.
pub const REPORTS: usize = 64;
/// Bytes of a finding in a line.
pub const SUMMARY_BYTES: usize = 384;
/// Bytes of a finding's text: most are shorter; others are cut off.
pub const REPORT_BYTES: usize = 7784;
/// Locks of a thread of which it is known where it has released them.
pub const NOTES: usize = 32;
/// So far a search in one of the hash tables goes.
pub const PROBES: usize = 256;

/// Where the parts lie.
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
/// Bytes of the whole file.
pub const BYTES: usize = NOTES_AT + PLACES * NOTES * size_of::<Note>();

/// The beginning of a board.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`], once all else is there.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The process. In the child of a fork an inherited descriptor leads to its parent's.
    pub process: AtomicU32,
    /// Places from here on were never used.
    pub places: AtomicU32,
    /// Places of the table of locks in use.
    pub locks: AtomicU32,
    /// Places of the table of texts in use.
    pub texts: AtomicU32,
    /// How often a lock was used that found no room, and is not checked.
    pub unchecked: AtomicU32,
    /// Findings that were reported so far, by how bad they are: deadlocks, potential ones, long waits,
    /// inversions, misuse.
    pub findings: [AtomicU32; 5],
    /// How many of them were given a place among the [`Report`]s so far.
    pub reports: AtomicU32,
}

/// A thread's place.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Place {
    /// What regions have a copy of.
    pub record: TaskRecord,
    /// What the thread holds beyond that: [`TaskRecord`]'s count goes on counting here.
    pub more: [HeldLock; MORE],
    /// How many of those are in use, empty ones among them included.
    pub more_count: AtomicU32,
    /// 0 free, 1 taken.
    pub taken: AtomicU32,
}

/// A text under its key.
#[repr(C)]
#[derive(Debug)]
pub struct Text {
    /// 0: free. A [`Site`](crate::hook::Site) that is a place in a source; or, even, a name's.
    pub key: AtomicU64,
    /// UTF-8, up to the first 0.
    pub bytes: [AtomicU8; TEXT_BYTES],
}

/// What is known of a lock.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Entry {
    /// Its address; 0: free.
    pub address: AtomicU64,
    /// Where it was initialised, or first taken: a [`Site`](crate::hook::Site).
    pub site: AtomicU64,
    /// The key of its name in [`Text`]s; 0: none.
    pub name: AtomicU64,
    /// Kind and traits, as in [`HeldLock`]; [`GONE`] and others below.
    pub what: AtomicU32,
    /// The only task that has taken it so far, by its number in this process; 0: none, `u32::MAX`: at least two.
    pub task: AtomicU32,
    /// Which node of the order graph it is, its class's or its own; with the highest bit if at least two tasks have
    /// taken it.
    pub node: AtomicU32,
    /// Moves on when it is initialised anew.
    pub generation: AtomicU32,
    /// Place + 1 of who is believed to hold it. A hint, to be checked with that place's record; of a lock that
    /// says so itself, it names those who have begun to wait since.
    pub holder: AtomicU32,
    /// How many wait for it with the same mutex, if it is a condition variable.
    pub waiters: AtomicU32,
    /// That mutex.
    pub mutex: AtomicU64,
    /// Two numbers, the first in the upper half. Of what has an owner: the edges of the order graph for which it was
    /// last wanted, and last held. Of a condition variable: how often all its waiters were notified, or it was made;
    /// and how many were notified since then, one by one, and have not come back.
    pub pair: AtomicU64,
}

/// Where a thread of a place has released a lock that it had alone, the last time. It stays when the thread ends, until
/// another lock, or thread, needs the room.
#[repr(C)]
#[derive(Debug)]
pub struct Note {
    /// The lock's address; 0: none.
    pub lock: AtomicU64,
    /// Where it was taken: a [`Site`](crate::hook::Site).
    pub taken: AtomicU64,
    /// Where it was released: a [`Site`](crate::hook::Site), unknown if that was the end of a guard.
    pub released: AtomicU64,
    /// By whom.
    pub thread: AtomicU32,
    /// [`Entry::generation`]: of one that was there before it says nothing.
    pub generation: AtomicU32,
}

/// A finding that was reported.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Report {
    /// Which one it is, from 1 on; 0 if there is none, or while it is being written. Read twice around the rest it
    /// says that this belongs together.
    pub number: AtomicU32,
    /// The rule's number, and [`FOLLOWS`], [`SUSPECTED`] or [`ASSUMED`].
    pub rule: AtomicU32,
    /// The finding's own.
    pub id: AtomicU64,
    /// When, in nanoseconds on CLOCK_MONOTONIC.
    pub told_at: AtomicU64,
    /// UTF-8, up to the first 0: the finding in a line.
    pub summary: [AtomicU8; SUMMARY_BYTES],
    /// UTF-8, up to the first 0: what the report said.
    pub text: [AtomicU8; REPORT_BYTES],
}

/// In [`Report::rule`]: the finding follows from what was seen, in another order of events.
pub const FOLLOWS: u32 = 1 << 8;
/// In [`Report::rule`]: it would follow if another task did the same.
pub const SUSPECTED: u32 = 1 << 9;
/// In [`Report::rule`]: it lasts unless a task releases what another one holds.
pub const ASSUMED: u32 = 1 << 10;

/// In [`Entry::what`]: it was destroyed, or its memory given back.
pub const GONE: u32 = 1 << 24;
/// It was made by the interface: its initialisation was seen.
pub const MADE: u32 = 1 << 25;
/// It was made where another one was, and nobody told: in the order of locks it stands for itself.
pub const REMADE: u32 = 1 << 26;
/// With [`GONE`]: it was ended by its interface, and its memory was not given back since.
pub const ENDED: u32 = 1 << 27;

const _: () = assert!(size_of::<Entry>() == 64 && size_of::<Text>() == 128);
const _: () = assert!(size_of::<Report>() == 8192 && REPORTS_AT.is_multiple_of(64));

impl Text {
    /// The text, as far as it is one.
    #[must_use]
    pub fn text(&self) -> String {
        self.copy().to_string()
    }

    pub(super) fn copy(&self) -> super::few::Text<128> {
        // Relaxed: a text that is read while it is written is cut short.
        let bytes: [u8; TEXT_BYTES] =
            core::array::from_fn(|index| self.bytes[index].load(Ordering::Relaxed));
        let length = bytes.iter().position(|byte| *byte == 0);
        let mut text = super::few::Text::EMPTY;
        for chunk in bytes[..length.unwrap_or(TEXT_BYTES)].utf8_chunks() {
            let _ = core::fmt::Write::write_str(&mut text, chunk.valid());
        }
        text
    }
}

/// What stands there of a text, up to the first 0.
pub(super) fn text_in(bytes: &[AtomicU8]) -> String {
    // Relaxed: a copy in memory of the reader's own.
    let bytes = bytes.iter().map(|byte| byte.load(Ordering::Relaxed));
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    let chunks = bytes.utf8_chunks();
    chunks.map(|chunk| chunk.valid()).collect()
}

impl Entry {
    /// Whether it is of the lock at an address.
    #[inline(always)]
    pub(super) fn is_at(&self, address: usize) -> bool {
        // Acquire: pairs with the Release in `enter_lock`.
        self.address.load(Ordering::Acquire) == address as u64
    }
}

/// Where the search for a lock begins in the table of locks.
#[inline]
#[must_use]
pub const fn lock_slot(address: u64) -> usize {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LOCKS.ilog2())) as usize
}

/// Where in a thread's notes one of a lock stands.
#[inline]
#[must_use]
pub const fn note_slot(address: u64) -> usize {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - NOTES.ilog2())) as usize
}

/// Where the search for a text begins in the table of texts.
#[inline]
#[must_use]
pub const fn text_slot(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - TEXTS.ilog2())) as usize
}
