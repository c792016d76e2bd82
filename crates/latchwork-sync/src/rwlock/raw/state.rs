//! The word of the reader/writer lock, and all its transitions; see the [parent](super).

use crate::atomic::unless_fault;
use crate::rwlock::Preference;

#[cfg(test)]
mod tests;

pub(super) const ONE_READER: u64 = 1;
pub(super) const READERS: u64 = 0xff_ffff;
/// The same bits while a writer is inside: its ID, or 0.
const ID: u64 = READERS;
pub(super) const ONE_STARVING: u64 = 1 << 24;
pub(super) const STARVING: u64 = 0x3f << 24;
pub(super) const OPEN: u64 = 1 << 30;
pub(super) const WRITER: u64 = 1 << 31;
pub(super) const ONE_WAITING: u64 = 1 << 32;
pub(super) const WAITING: u64 = 0x0fff_ffff << 32;
pub(super) const VACANT_TO_ANY: u64 = 1 << 60;
pub(super) const VACANT_TO_STARVING: u64 = 1 << 61;
pub(super) const CALL_WRITER: u64 = 1 << 62;
pub(super) const CALL_READERS: u64 = 1 << 63;

/// The groups of sleepers, as futex bit masks.
pub(super) const SLEEPING_READERS: u32 = 1;
pub(super) const SLEEPING_WRITERS: u32 = 2;
pub(super) const STARVING_READERS: u32 = 4;
pub(super) const STARVING_WRITERS: u32 = 8;
pub(super) const NO_GROUP: u32 = 0;

/// A value of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State(pub(super) u64);

/// A task that did not enter at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    /// What it has added to the word: `ONE_WAITING`, `ONE_STARVING`.
    pub(super) counted: u64,
    /// It has been woken. A woken group of readers enters even if writers wait.
    pub(super) called: bool,
    /// Its thread ID, if it is a writer; 0: it leaves none in the word.
    pub(super) id: u32,
}

impl Waiter {
    pub(super) const NEWCOMER: Self = Self {
        counted: 0,
        called: false,
        id: 0,
    };

    pub(super) fn starves(self) -> bool {
        self.counted & STARVING != 0
    }

    /// The group in which it sleeps.
    pub(super) fn group<const WRITES: bool>(self) -> u32 {
        match (WRITES, self.starves()) {
            (false, false) => SLEEPING_READERS,
            (true, false) => SLEEPING_WRITERS,
            (false, true) => STARVING_READERS,
            (true, true) => STARVING_WRITERS,
        }
    }
}

impl State {
    pub(super) fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }

    pub(super) fn is_free(self) -> bool {
        self.0 == 0 || self.has(OPEN)
    }

    /// Whether readers are inside.
    fn has_readers(self) -> bool {
        self.has(READERS) && unless_fault!(RwLockTakesIdForReaders, !self.has(WRITER), true)
    }

    /// The writer inside, by its thread ID, if it has left that.
    pub(super) fn writer(self) -> Option<u32> {
        (self.has(WRITER) && self.has(ID)).then_some((self.0 & ID) as u32)
    }

    /// Whether the word counts no other task than this waiter, and nobody has asked for a wake-up.
    pub(super) fn counts_only(self, waiter: Waiter) -> bool {
        self.0 & !(WRITER | READERS) == waiter.counted
    }

    /// Whether a waiter may enter now.
    pub(super) fn admits<P: Preference, const WRITES: bool>(self, waiter: Waiter) -> bool {
        let free = self.is_free();
        if WRITES {
            free && (!self.has(STARVING) || waiter.starves())
        } else {
            let gives_way = if P::READERS_FIRST {
                STARVING
            } else {
                STARVING | WAITING
            };
            (free || self.has_readers())
                && (waiter.called
                    || !self.has(gives_way)
                    || waiter.starves() && (free || !self.has(WAITING)))
        }
    }

    /// The state after a waiter has entered.
    pub(super) fn entered<const WRITES: bool>(self, waiter: Waiter) -> Self {
        let state = State((self.0 & !(OPEN | VACANT_TO_ANY | VACANT_TO_STARVING)) - waiter.counted);
        if WRITES {
            let state = if waiter.counted != 0 {
                state.with_other_writers_called()
            } else {
                state
            };
            Self(state.0 | WRITER | u64::from(waiter.id) & ID)
        } else {
            if state.0 & READERS == READERS {
                too_many();
            }
            Self(state.0 + ONE_READER)
        }
    }

    /// The state after a waiter has been counted and has asked for a wake-up, and what the waiter has added so far.
    pub(super) fn asked<const WRITES: bool>(self, waiter: Waiter, starves: bool) -> (Self, u64) {
        let mut counted = waiter.counted;
        if WRITES {
            counted |= ONE_WAITING;
        }
        // If the count is full, the task goes on waiting without starving.
        if starves && self.0 & STARVING != STARVING {
            counted |= ONE_STARVING;
        }
        let call = if WRITES { CALL_WRITER } else { CALL_READERS };
        (Self((self.0 + (counted - waiter.counted)) | call), counted)
    }

    /// The state after a writer, possibly a woken one, no longer waits: the writers left ask for a wake-up.
    pub(super) fn with_other_writers_called(self) -> Self {
        Self(if self.has(WAITING) {
            self.0 | unless_fault!(RwLockWriterForgetsOthers, CALL_WRITER, 0)
        } else {
            self.0 & !CALL_WRITER
        })
    }

    /// The state after a waiter has given up; or, since the lock is free, entered.
    pub(super) fn left<const WRITES: bool>(self, waiter: Waiter) -> Self {
        if self.is_free() {
            return self.entered::<WRITES>(waiter);
        }
        let state = State(self.0 - waiter.counted);
        let state = if WRITES {
            state.with_other_writers_called()
        } else {
            state
        };
        // 0 would mean free, but the lock is not: the last reader is about to release it.
        if state.0 == 0 {
            Self(CALL_READERS)
        } else {
            state
        }
    }

    /// The state after the writer inside has become a reader.
    pub(super) fn downgraded(self) -> Self {
        Self((self.0 & !(WRITER | ID)) + ONE_READER)
    }

    /// The state after a call for the readers that may join those inside, if there are any. The call wakes all
    /// readers, since one bit stands for all; a reader that may not enter sleeps again.
    pub(super) fn with_readers_called<P: Preference>(self) -> Option<Self> {
        let counted = if self.has(STARVING) { ONE_STARVING } else { 0 };
        let joins = self.admits::<P, false>(Waiter {
            counted,
            ..Waiter::NEWCOMER
        });
        (joins && self.has(CALL_READERS)).then_some(Self(self.0 & !CALL_READERS))
    }

    /// The state after a release, and the groups that it wakes: one writer, or all readers, of the first group;
    /// if that has no sleeper, of the second one.
    pub(super) fn released<P: Preference>(self, wrote: bool) -> (Self, [u32; 2]) {
        // No reader is inside: the bits are those of the writer.
        let rest = self.0 & !(WRITER | ID);
        if rest == 0 {
            return (Self(0), [NO_GROUP; 2]);
        }
        // `VACANT_…` is set where the wake-up may go to either kind: it keeps a task of the other kind from
        // going to sleep.
        if self.has(STARVING) {
            let groups = if wrote {
                [STARVING_READERS, STARVING_WRITERS]
            } else {
                [STARVING_WRITERS, STARVING_READERS]
            };
            let vacant = unless_fault!(RwLockHidesVacancy, VACANT_TO_STARVING, 0);
            return (Self(rest | OPEN | vacant), groups);
        }
        if self.has(CALL_READERS) && self.has(WAITING) && P::READERS_FIRST {
            let vacant = unless_fault!(RwLockHidesVacancy, VACANT_TO_ANY, 0);
            return (
                Self(rest & !CALL_READERS | OPEN | vacant),
                [SLEEPING_READERS, SLEEPING_WRITERS],
            );
        }
        let (rest, group) = if self.has(CALL_READERS) && !self.has(WAITING) {
            (rest & !CALL_READERS, SLEEPING_READERS)
        } else if self.has(CALL_WRITER) {
            (rest & !CALL_WRITER, SLEEPING_WRITERS)
        } else {
            (rest, NO_GROUP)
        };
        let rest = if rest == 0 { 0 } else { rest | OPEN };
        (Self(rest), [group, NO_GROUP])
    }
}

#[cold]
fn too_many() -> ! {
    crate::fatal(format_args!(
        "more than {READERS} readers in a reader/writer lock, or guards forgotten"
    ))
}
