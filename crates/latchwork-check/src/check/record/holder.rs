//! Who holds a lock alone, or held it last: in a word of the lock's own memory, if there is one for it, and else on the
//! board.
//!
//! The lock's memory goes from holder to holder anyway; a line of the board beside it would have to go along, at each
//! hand-over, to whoever is at work in the lock by then. So the board hears of a holder only when that is about to wait
//! for something else ([`Own::begin_wait`]), which is when others follow what it holds; and of a release not at all.
//! Where that was stands among the thread's own notes ([`Note`](crate::check::record::layout::Note)).
//!
//! | value | says |
//! | --- | --- |
//! | 0 | nobody has held it |
//! | place + 1 | the thread of that place holds it |
//! | place + 1, [`RELEASED`] | it held it, and has released it |
//! | [`OVERWRITTEN`] | somebody held it when the word was overwritten |
//!
//! *It is a hint*, as is the board's: the holder alone writes it, the lock orders it, and before anybody is blamed the
//! records of the threads are asked. So it may be wrong (after a fork; in a copy), and then costs a look.
//!
//! *Its memory may go* once the lock is free: it is read and written only in a call for that lock.

use crate::atomic::{AtomicU32, Ordering};
use crate::check::record::layout::Entry;
use crate::check::record::own::Own;
use crate::hook::{Lock, Site};

/// In the word: whom it names has released the lock.
pub(crate) const RELEASED: u32 = 1 << 31;
/// Names nobody who could take it.
pub(crate) const OVERWRITTEN: u32 = !RELEASED;

/// See the head of this file. Relaxed, in all of it: the lock orders it.
#[derive(Clone, Copy)]
pub(crate) struct Holder(&'static AtomicU32);

impl Holder {
    #[inline(always)]
    pub(crate) fn of(lock: Lock, entry: &'static Entry) -> Self {
        // SAFETY: a `Holder` is used within the call that reported its lock.
        let word = unsafe { lock.word() };
        Self(word.unwrap_or(&entry.holder))
    }

    /// Whether nobody else has it.
    #[inline(always)]
    pub(crate) fn allows(self, own: &Own) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        last == 0 || last & RELEASED != 0 || last == own.number()
    }

    #[inline(always)]
    pub(crate) fn is(self, own: &Own) -> bool {
        self.0.load(Ordering::Relaxed) == own.number()
    }

    /// The thread has it now.
    #[inline(always)]
    pub(crate) fn set(self, own: &Own) {
        self.0.store(own.number(), Ordering::Relaxed);
    }

    /// The place of who has it or had it last.
    pub(crate) fn place(self) -> Option<usize> {
        let last = self.0.load(Ordering::Relaxed) & !RELEASED;
        (last as usize).checked_sub(1)
    }
}

impl Own {
    /// What it is called as a holder: its place + 1.
    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.index.get() + 1
    }

    /// The thread is about to release a lock that it holds alone, at `site`; it has taken it at `taken`.
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
