//! The tasks that the checker can see: the threads of this process, and the tasks of the regions that the caller is a
//! task of.
//!
//! A region also records which private locks of their own processes its tasks hold. So a chain of waits can lead from
//! one process's private lock to a shared one, and on to another process's private lock. A thread of another process
//! that is not a task of a common region is not seen.

use super::beside::Holder;
use super::board::{self, Board};
use super::circle::{Field, keeps};
use super::layout::{MORE, PLACES, Place};
use super::own::Own;
use crate::atomic::Ordering;
use crate::hook::record::unpack;
use crate::hook::{HeldLock, Kind, Lock, Mode, TaskRecord};
use crate::region;
use crate::sys::thread;
use crate::task::Me;

/// A task, and the location of its record.
#[derive(Clone, Copy)]
pub(super) struct Who<'f> {
    pub(super) record: &'f TaskRecord,
    /// Only for tasks of this process.
    place: Option<&'static Place>,
    pub(super) process: u32,
    pub(super) thread: u32,
}

impl PartialEq for Who<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.process, self.thread) == (other.process, other.thread)
    }
}

impl<'f> Who<'f> {
    pub(super) fn new(record: &'f TaskRecord, place: Option<&'static Place>) -> Option<Self> {
        // Acquire: pairs with `TaskRecord::begin`.
        let thread = record.thread.load(Ordering::Acquire);
        (thread != 0).then(|| Self {
            record,
            place,
            process: record.process.load(Ordering::Relaxed),
            thread,
        })
    }

    /// How it holds a lock.
    pub(super) fn held(&self, address: u64) -> Option<crate::hook::Held> {
        let place = self.record.holds(address);
        let more = || {
            let mut more = self.more().iter();
            more.find(|entry| entry.lock.load(Ordering::Acquire) == address)
        };
        let entry = place.map_or_else(more, |place| Some(&self.record.held[place]))?;
        entry
            .view()
            .filter(|held| held.lock.address() as u64 == address)
    }

    /// The locks that it holds beyond its record. (Entries behind the count belong to earlier threads of the place.)
    fn more(&self) -> &'static [HeldLock] {
        self.place.map_or(&[], |place| {
            // Acquire: pairs with the Release of the thread that stored the entry.
            let count = place.more_count.load(Ordering::Acquire) as usize;
            &place.more[..count.min(MORE)]
        })
    }
}

/// See the head of this file.
pub(super) struct Here {
    board: Board,
    process: u32,
    /// The lock of the call that the calling task is in: its memory can be read.
    wanted: Option<Lock>,
}

impl Here {
    pub(super) fn new(own: &Own) -> Option<Self> {
        Some(Self {
            board: board::board()?,
            process: own.identity().0,
            wanted: None,
        })
    }

    /// For a thread that is not, or no longer, a task.
    pub(super) fn without_me() -> Option<Self> {
        Some(Self {
            board: board::board()?,
            process: thread::process_id(),
            wanted: None,
        })
    }

    /// The same, for a search within a call for this lock.
    pub(super) fn wanting(self, lock: Lock) -> Self {
        Self {
            wanted: Some(lock),
            ..self
        }
    }

    /// The calling task.
    pub(super) fn me(&self, own: &Own) -> Option<Who<'_>> {
        Who::new(own.record(), Some(own.place()))
    }

    /// The task that holds a lock, other than the calling task.
    pub(super) fn holder(&self, own: &Own, lock: Lock) -> Option<Who<'_>> {
        let me = self.me(own)?;
        self.candidates(me, lock)
            .find(|other| self.as_field().blocks(*other, me, lock, Mode::Exclusive))
    }

    fn as_field(&self) -> &Self {
        self
    }

    /// The threads of this process.
    pub(super) fn locals(&self) -> impl Iterator<Item = Who<'_>> {
        self.board
            .places()
            .filter_map(|place| Who::new(&place.record, Some(place)))
    }

    /// The tasks of other processes, in the regions of the calling thread that `wanted` selects.
    fn others(
        &self,
        wanted: impl Fn(core::ops::Range<usize>) -> bool,
    ) -> impl Iterator<Item = Who<'_>> {
        Me::current_or_none()
            .attachments()
            .filter(move |attachment| wanted(attachment.base..attachment.end))
            .flat_map(|attachment| region::check_records(&attachment))
            .filter_map(|record| Who::new(record, None))
            .filter(|who| who.process != self.process)
    }

    /// The tasks that can hold a lock that a task wants: those of the region that it lies in, or of the process.
    fn candidates(&self, waiter: Who<'_>, lock: Lock) -> impl Iterator<Item = Who<'_>> {
        let is_common = region_of(lock.address());
        let is_local = waiter.process == self.process;
        let locals = self.locals().filter(move |_| is_local || is_common);
        let others = self.others(move |range| {
            if is_common {
                range.contains(&lock.address())
            } else {
                !is_local
            }
        });
        let others = others.filter(move |who| is_common || who.process == waiter.process);
        locals.chain(others)
    }
}

/// Whether an address lies in a region that the calling thread is a task of.
fn region_of(address: usize) -> bool {
    Me::current_or_none()
        .attachments()
        .any(|attachment| (attachment.base..attachment.end).contains(&address))
}

impl<'h> Field for &'h Here {
    type Task = Who<'h>;

    fn record(&self, task: Who<'h>) -> &TaskRecord {
        task.record
    }

    fn blocks(&self, other: Who<'h>, waiter: Who<'h>, lock: Lock, mode: Mode) -> bool {
        let more = || {
            let mut more = other.more().iter();
            let entry =
                more.find(|entry| entry.lock.load(Ordering::Acquire) == lock.address() as u64)?;
            let held = unpack(0, entry.what.load(Ordering::Relaxed)).1;
            Some(mode == Mode::Exclusive || held == Mode::Exclusive)
        };
        other != waiter && (keeps(other.record, lock, mode) || more() == Some(true))
    }

    fn any_that_blocks(
        &self,
        waiter: Who<'h>,
        lock: Lock,
        mode: Mode,
        visit: &mut dyn FnMut(Who<'h>) -> bool,
    ) -> bool {
        if !lock.kind.has_owner() {
            return false;
        }
        // The holder's entry on the board names it from before it waits for anything until it is about to release. So
        // if a lock can have only one holder, and no entry names one, the holder runs.
        if waiter.process == self.process
            && lock.kind != Kind::RwLock
            && !region_of(lock.address())
            && let Some(entry) = self.board.lock(lock.address())
        {
            let itself = self
                .wanted
                .filter(|wanted| wanted.address() == lock.address());
            // A lock that stores its holder also knows a holder that runs.
            let holders = [Some(lock.without_word()), itself]
                .map(|lock| lock.and_then(|lock| Holder::of(lock, entry).place()));
            let once = holders[1].filter(|place| holders[0] != Some(*place));
            let places = holders[0].into_iter().chain(once);
            return places
                .map(|place| self.board.place(place % PLACES))
                .filter_map(|place| Who::new(&place.record, Some(place)))
                .filter(|other| self.blocks(*other, waiter, lock, mode))
                .any(visit);
        }
        self.candidates(waiter, lock)
            .filter(|other| self.blocks(*other, waiter, lock, mode))
            .any(visit)
    }
}
