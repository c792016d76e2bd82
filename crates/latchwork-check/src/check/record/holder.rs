//! The task that holds a lock exclusively, or held it last: in a word of the lock's own memory, if there is one for it,
//! otherwise on the board.
//!
//! The cache line of the lock moves from holder to holder anyway. If each holder also wrote the lock's entry on the
//! board, that line would have to move, too, while the next tasks already use the lock. So for a lock with a word the
//! board names a holder only when that holder is about to wait for something else ([`Own::begin_wait`]), which is when
//! searches follow what it holds. A release is not written to the board's entry at all; its place is among the thread's
//! own notes ([`Note`](crate::check::record::layout::Note)).
//!
//! | value | meaning |
//! | --- | --- |
//! | 0 | no task has held it |
//! | place + 1 | the thread of that place holds it |
//! | place + 1, [`RELEASED`] | that thread held it last, and has released it |
//! | [`OVERWRITTEN`] | a task held it when the word was overwritten |
//!
//! *The word is a hint*, as is the board's: only the holder writes it, and the lock orders the writes. Before a task is
//! reported as the holder, the records of the threads are read. So the word may be wrong (after a fork, or in a copy),
//! which costs a search of the records.
//!
//! *Lifetime:* the lock's memory may be freed once the lock is free, so the word is read and written only in a call for
//! that lock.

use crate::atomic::{AtomicU32, Ordering};
use crate::check::record::layout::Entry;
use crate::check::record::own::Own;
use crate::hook::{Lock, Site};

/// In the word: the task that it names has released the lock.
pub(crate) const RELEASED: u32 = 1 << 31;
/// Names no place, so no task is allowed to take the lock without a closer check.
pub(crate) const OVERWRITTEN: u32 = !RELEASED;

/// See the head of this file. All accesses are Relaxed: the lock orders them.
#[derive(Clone, Copy)]
pub(crate) struct Holder(&'static AtomicU32);

impl Holder {
    #[inline(always)]
    pub(crate) fn of(lock: Lock, entry: &'static Entry) -> Self {
        // SAFETY: a `Holder` is used within the call that reported its lock.
        let word = unsafe { lock.word() };
        Self(word.unwrap_or(&entry.holder))
    }

    /// Whether no other task holds it.
    #[inline(always)]
    pub(crate) fn allows(self, own: &Own) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        last == 0 || last & RELEASED != 0 || last == own.number()
    }

    #[inline(always)]
    pub(crate) fn is(self, own: &Own) -> bool {
        self.0.load(Ordering::Relaxed) == own.number()
    }

    /// The thread holds it now.
    #[inline(always)]
    pub(crate) fn set(self, own: &Own) {
        self.0.store(own.number(), Ordering::Relaxed);
    }

    /// Another task has released it. The record of the one that held it says so still, until that takes the lock again.
    pub(crate) fn released_by_another(self) {
        self.0.fetch_or(RELEASED, Ordering::Relaxed);
    }

    /// The place of the task that holds it, or held it last.
    pub(crate) fn place(self) -> Option<usize> {
        let last = self.0.load(Ordering::Relaxed) & !RELEASED;
        (last as usize).checked_sub(1)
    }
}

impl Own {
    /// Its number as a holder: its place + 1.
    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.index.get() + 1
    }

    /// The thread is about to release, at `site`, a lock that it holds exclusively and has acquired at `taken`.
    #[inline(always)]
    pub(crate) fn note_release(&self, lock: Lock, entry: &'static Entry, taken: Site, site: Site) {
        if let Some(board) = self.board.get() {
            let note = board.note(self.index.get() as usize, lock.address());
            note.taken.store(taken.raw(), Ordering::Relaxed);
            note.released.store(site.raw(), Ordering::Relaxed);
            note.thread.store(self.thread.get(), Ordering::Relaxed);
            let generation = entry.generation.load(Ordering::Relaxed);
            note.generation.store(generation, Ordering::Relaxed);
            note.lock.store(lock.address() as u64, Ordering::Relaxed);
        }
        let Holder(word) = Holder::of(lock, entry);
        word.store(self.number() | RELEASED, Ordering::Relaxed);
    }
}
