//! This process's board: created at its first use, and created again in the child of a fork.
//!
//! Its address lies in a page that the kernel wipes on fork. So does the lock that guards what several tasks change. A
//! child therefore finds no board and a free lock. It creates its own board, and copies what its parent's board, which
//! it still has mapped, says of locks and source locations. (What a task holds is restored by the task itself: see
//! `own.rs`.)
//!
//! Texts and locks are looked up without the lock, and entered under it. An entry is published by storing its key or
//! address last. Entries are never removed, but the entry of a lock that is gone is reused for another lock.
#![allow(unsafe_code)]

use crate::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence_after_update};
use crate::check::record::bounded;
use crate::check::record::layout::{
    BOARD, BYTES, COMMON, Entry, GONE, Header, LOCKS, LOCKS_AT, MAGIC, NO_TASK, NOTES, NOTES_AT,
    Note, PLACES, PLACES_AT, PROBES, Place, REPORTS, REPORTS_AT, Report, TEXT_BYTES, TEXTS,
    TEXTS_AT, Text, USED_AT, USED_TEXTS_AT, VERSION, lock_slot, note_slot, text_slot,
};
use crate::mutex::{RawLock, WaitWake};
use crate::sys::cancellation::Undisturbed;
use crate::sys::wiped::Wiped;
use crate::sys::{board as sys, clock, thread};
use crate::text::whole_characters;
use core::ptr::{self, NonNull};

/// A mapped board. It stays mapped until the process ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Board(NonNull<u8>);

// SAFETY: the board consists of atomics, at an address that stays mapped.
unsafe impl Send for Board {}
// SAFETY: the board consists of atomics, at an address that stays mapped.
unsafe impl Sync for Board {}

/// State that the child of a fork does not inherit. All zeros is a valid value.
#[repr(C)]
pub(crate) struct Fresh {
    board: AtomicPtr<u8>,
    /// Guards what several tasks change: the board's tables, and the lock-order graph.
    pub(crate) lock: WaitWake,
    /// The number of the last finding that was reported.
    pub(crate) findings: AtomicU32,
}

// SAFETY: zeros are a value; its fields need no drop.
static FRESH: Wiped<Fresh> = unsafe { Wiped::new() };
/// The board of this process, or of the process that it was forked from.
static INHERITED: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// The descriptor of that board, and its inode.
static DESCRIPTOR: AtomicU32 = AtomicU32::new(u32::MAX);
/// See [`DESCRIPTOR`].
static INODE: AtomicU64 = AtomicU64::new(0);

/// The board; creates it if there is none. `None` if that fails.
#[inline]
pub(crate) fn board() -> Option<Board> {
    made().map_or_else(make, Some)
}

/// The board, if there is one.
#[inline]
pub(crate) fn made() -> Option<Board> {
    let fresh = FRESH.made()?;
    // Acquire: pairs with the Release in `make`.
    NonNull::new(fresh.board.load(Ordering::Acquire)).map(Board)
}

/// Runs `change` under the lock that guards what several tasks change; returns the default if there is no memory.
pub(crate) fn alone<R: Default>(change: impl FnOnce(&Fresh) -> R) -> R {
    let Ok(fresh) = FRESH.get() else {
        return R::default();
    };
    fresh.lock.lock();
    let result = change(fresh);
    // SAFETY: this function took the lock above.
    unsafe { fresh.lock.unlock() };
    result
}

#[cold]
fn make() -> Option<Board> {
    let _undisturbed = Undisturbed::begin();
    alone(|fresh| {
        // Acquire, Release: see `board`.
        if let Some(board) = NonNull::new(fresh.board.load(Ordering::Acquire)) {
            return Some(Board(board));
        }
        let (base, file) = sys::make(BOARD, BYTES).ok()?;
        let board = Board(base);
        let parents = INHERITED.swap(base.as_ptr(), Ordering::Relaxed);
        let old = sys::Open {
            descriptor: DESCRIPTOR.swap(file.descriptor, Ordering::Relaxed),
            inode: INODE.swap(file.inode, Ordering::Relaxed),
        };
        if let Some(parents) = NonNull::new(parents) {
            board.bring_over(Board(parents));
            // SAFETY: this is the process's mapping of its parent's board, which nothing uses: the pointer to it was
            // wiped, and the only threads are this one and those that were created after the fork.
            unsafe { sys::leave(parents, BYTES, old) };
        }
        let header = board.header();
        // Relaxed: published by the magic number.
        header.version.store(VERSION, Ordering::Relaxed);
        let process = thread::process_id();
        header.process.store(process, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        fresh.board.store(base.as_ptr(), Ordering::Release);
        Some(board)
    })
}

impl Board {
    #[inline(always)]
    fn at<T>(self, offset: usize) -> &'static T {
        // SAFETY: `offset` is one of the layout's, within the mapping, which stays; all types there consist of atomics,
        // for which every string of bytes is a value.
        unsafe { self.0.add(offset).cast().as_ref() }
    }

    pub(crate) fn header(self) -> &'static Header {
        self.at(0)
    }

    #[inline]
    pub(crate) fn place(self, index: usize) -> &'static Place {
        debug_assert!(index < PLACES);
        self.at(PLACES_AT + index * size_of::<Place>())
    }

    /// The slot in which the thread of a place notes its release of a lock.
    #[inline(always)]
    pub(crate) fn note(self, index: usize, address: usize) -> &'static Note {
        debug_assert!(index < PLACES);
        let number = index * NOTES + note_slot(address as u64);
        self.at(NOTES_AT + number * size_of::<Note>())
    }

    #[inline]
    fn text(self, index: usize) -> &'static Text {
        self.at(TEXTS_AT + index * size_of::<Text>())
    }

    #[inline(always)]
    fn entry(self, index: usize) -> &'static Entry {
        self.at(LOCKS_AT + index * size_of::<Entry>())
    }

    /// The places that were used at least once.
    pub(crate) fn places(self) -> impl Iterator<Item = &'static Place> {
        // Acquire: pairs with `claim`.
        let used = self.header().places.load(Ordering::Acquire) as usize;
        (0..used.min(PLACES)).map(move |index| self.place(index))
    }

    /// Claims a place for the calling thread; returns its number, too.
    pub(crate) fn claim(self) -> Option<(usize, &'static Place)> {
        let index = (0..PLACES).find(|index| {
            let taken = &self.place(*index).taken;
            taken.load(Ordering::Relaxed) == 0
                // Acquire: pairs with the Release of the thread that left the place.
                && taken
                    .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })?;
        // Release: pairs with `places`.
        let used = &self.header().places;
        used.fetch_max(index as u32 + 1, Ordering::Release);
        Some((index, self.place(index)))
    }

    /// The entry at which the search for a lock begins. It may be empty, or another lock's.
    #[inline(always)]
    pub(crate) fn first_place(self, address: usize) -> &'static Entry {
        self.entry(lock_slot(address as u64))
    }

    /// The entry of the lock at an address.
    #[inline]
    pub(crate) fn lock(self, address: usize) -> Option<&'static Entry> {
        let first = lock_slot(address as u64);
        for step in 0..PROBES {
            let entry = self.entry((first + step) % LOCKS);
            // Acquire: pairs with the Release in `enter_lock`.
            match entry.address.load(Ordering::Acquire) {
                0 => return None,
                found if found == address as u64 => return Some(entry),
                _ => {}
            }
        }
        None
    }

    /// The index at which a new lock could be entered.
    fn free_place(self, address: usize) -> Option<usize> {
        let first = lock_slot(address as u64);
        let mut places = (0..PROBES).map(|step| (first + step) % LOCKS);
        places.find(|index| {
            let entry = self.entry(*index);
            entry.address.load(Ordering::Relaxed) == 0
                || entry.what.load(Ordering::Relaxed) & GONE != 0
        })
    }

    /// Whether a lock has an entry, or could get one; counts the use if not.
    pub(crate) fn has_room(self, address: usize) -> bool {
        let has_room = self.lock(address).is_some() || self.free_place(address).is_some();
        if !has_room {
            self.header().unchecked.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    /// Enters a new lock, which `fill` describes. Under the lock.
    pub(crate) fn enter_lock(
        self,
        address: usize,
        fill: impl FnOnce(&Entry),
    ) -> Option<&'static Entry> {
        if let Some(known) = self.lock(address) {
            return Some(known);
        }
        let header = self.header();
        let index = self.free_place(address)?;
        let entry = self.entry(index);
        fill(entry);
        if entry.address.load(Ordering::Relaxed) == 0 {
            self.use_more(&header.locks, USED_AT, index);
        }
        // Release: pairs with `lock`.
        entry.address.store(address as u64, Ordering::Release);
        Some(entry)
    }

    /// One more entry of a table is in use. (These lists exist since a scan of a whole table would allocate all its
    /// pages.)
    fn use_more(self, count: &AtomicU32, used_at: usize, index: usize) {
        let number = count.load(Ordering::Relaxed);
        let place: &AtomicU32 = self.at(used_at + number as usize * size_of::<AtomicU32>());
        place.store(index as u32, Ordering::Relaxed);
        // Release: pairs with `used`.
        count.store(number + 1, Ordering::Release);
    }

    fn used(self, count: &AtomicU32, used_at: usize) -> impl Iterator<Item = usize> + use<> {
        let used = count.load(Ordering::Acquire) as usize;
        (0..used).map(move |number| {
            let place: &AtomicU32 = self.at(used_at + number * size_of::<AtomicU32>());
            place.load(Ordering::Relaxed) as usize
        })
    }

    /// All locks that were ever entered.
    pub(crate) fn locks(self) -> impl Iterator<Item = &'static Entry> {
        self.used(&self.header().locks, USED_AT)
            .map(move |index| self.entry(index % LOCKS))
            .filter(|entry| entry.address.load(Ordering::Acquire) != 0)
    }

    /// All texts.
    fn texts(self) -> impl Iterator<Item = &'static Text> {
        self.used(&self.header().texts, USED_TEXTS_AT)
            .map(move |index| self.text(index % TEXTS))
    }

    /// The text under a key; if there is none, the index at which it could be entered.
    fn find_text(self, key: u64) -> Result<&'static Text, Option<usize>> {
        let first = text_slot(key);
        for index in (0..PROBES).map(|step| (first + step) % TEXTS) {
            let text = self.text(index);
            // Acquire: pairs with the Release in `enter_text`.
            match text.key.load(Ordering::Acquire) {
                0 => return Err(Some(index)),
                found if found == key => return Ok(text),
                _ => {}
            }
        }
        Err(None)
    }

    /// The text under a key, if there is one.
    #[inline]
    pub(crate) fn text_of(self, key: u64) -> Option<&'static Text> {
        self.find_text(key).ok()
    }

    /// Enters a text under a key, if there is room. Under the lock.
    pub(crate) fn enter_text(self, key: u64, text: core::fmt::Arguments<'_>) {
        if let Err(Some(index)) = self.find_text(key) {
            let place = self.text(index);
            // Relaxed: the Release store of the key publishes it.
            put(&place.bytes, &bounded::Text::<TEXT_BYTES>::new(text));
            // Release: pairs with `find_text`.
            place.key.store(key, Ordering::Release);
            self.use_more(&self.header().texts, USED_TEXTS_AT, index);
        }
    }

    /// Stores a finding and its text in the slot of the oldest one.
    /// `rule` is the rule's number, with a flag for the confidence.
    pub(crate) fn keep(self, rule: u32, id: u64, summary: &str, text: &str) {
        // Relaxed, here and below, where nothing else is said: other processes read copies of the memory.
        let number = self.header().reports.fetch_add(1, Ordering::Relaxed);
        let report: &Report = self.at(REPORTS_AT + number as usize % REPORTS * size_of::<Report>());
        // A thread that is still writing in this slot is a whole ring of findings behind; parts of both texts are then
        // shown.
        report.number.swap(0, Ordering::Relaxed);
        // A reader that sees a part of the following stores sees the 0, too.
        fence_after_update();
        report.rule.store(rule, Ordering::Relaxed);
        report.id.store(id, Ordering::Relaxed);
        report.told_at.store(clock::monotonic(), Ordering::Relaxed);
        put(&report.summary, summary);
        put(&report.text, text);
        // Release: a reader that sees the number sees the rest.
        let number = number.wrapping_add(1).max(1);
        report.number.store(number, Ordering::Release);
    }

    /// Copies the texts and locks of a parent's board.
    fn bring_over(self, parents: Self) {
        for text in parents.texts() {
            let key = text.key.load(Ordering::Acquire);
            self.enter_text(key, format_args!("{}", text.copy()));
        }
        for entry in parents.locks() {
            let address = entry.address.load(Ordering::Relaxed) as usize;
            self.enter_lock(address, |own| {
                let wide = [
                    (&own.site, &entry.site),
                    (&own.name, &entry.name),
                    (&own.pair, &entry.pair),
                ];
                for (own, its) in wide {
                    own.store(its.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                let narrow = [
                    (&own.what, &entry.what),
                    (&own.node, &entry.node),
                    (&own.generation, &entry.generation),
                ];
                for (own, its) in narrow {
                    own.store(its.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                // Only one of the parent's tasks goes on in the child, and which one is not known here.
                let task = entry.task.load(Ordering::Relaxed);
                let task = if task == COMMON { COMMON } else { NO_TASK };
                own.task.store(task, Ordering::Relaxed);
            });
        }
    }
}

/// Writes a text into a slot, over an earlier one.
fn put(place: &[AtomicU8], text: &str) {
    let text = whole_characters(text, place.len()).bytes();
    for (place, byte) in place.iter().zip(text.chain(core::iter::once(0))) {
        place.store(byte, Ordering::Relaxed);
    }
}
