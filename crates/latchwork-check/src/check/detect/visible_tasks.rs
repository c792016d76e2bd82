//! The tasks that the checker can see: the threads of this process, and the tasks of the regions that the caller is a
//! task of.
//!
//! A region also records which private locks of their own processes its tasks hold. So a chain of waits can lead from
//! one process's private lock to a shared one, and on to another process's private lock. A thread of another process
//! that is not a task of a common region is not seen.

use crate::atomic::Ordering;
use crate::check::detect::cycle::{WaitGraph, record_blocks};
use crate::check::record::board::{self, Board};
use crate::check::record::holder::Holder;
use crate::check::record::layout::{MORE, PLACES, Place};
use crate::check::record::own::Own;
use crate::hook::record::unpack;
use crate::hook::{Held, HeldLock, Kind, Lock, Mode, TaskRecord};
use crate::region;
use crate::sys::thread;
use crate::task::Me;

/// A task, and the location of its record.
#[derive(Clone, Copy)]
pub(crate) struct TaskRef<'f> {
    pub(crate) record: &'f TaskRecord,
    /// Only for tasks of this process.
    place: Option<&'static Place>,
    pub(crate) process: u32,
    pub(crate) thread: u32,
}

impl PartialEq for TaskRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.process, self.thread) == (other.process, other.thread)
    }
}

impl<'f> TaskRef<'f> {
    pub(crate) fn new(record: &'f TaskRecord, place: Option<&'static Place>) -> Option<Self> {
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
    pub(crate) fn held(&self, address: u64) -> Option<Held> {
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

/// A task of a cycle: what it wants, and the lock that it holds and the task before it wants.
#[derive(Clone, Copy)]
pub(crate) struct Member<'f> {
    pub(crate) who: TaskRef<'f>,
    pub(crate) wants: Option<Held>,
    pub(crate) holds: Option<Held>,
}

/// See the head of this file.
pub(crate) struct VisibleTasks {
    board: Board,
    process: u32,
    /// The lock of the call that the calling task is in: its memory can be read.
    wanted: Option<Lock>,
}

impl VisibleTasks {
    pub(crate) fn new(own: &Own) -> Option<Self> {
        Some(Self {
            board: board::board()?,
            process: own.identity().0,
            wanted: None,
        })
    }

    /// For a thread that is not, or no longer, a task.
    pub(crate) fn of_process() -> Option<Self> {
        Some(Self {
            board: board::board()?,
            process: thread::process_id(),
            wanted: None,
        })
    }

    /// The same, for a search within a call for this lock.
    pub(crate) fn with_wanted(self, lock: Lock) -> Self {
        Self {
            wanted: Some(lock),
            ..self
        }
    }

    /// The calling task.
    pub(crate) fn me(&self, own: &Own) -> Option<TaskRef<'_>> {
        TaskRef::new(own.record(), Some(own.place()))
    }

    /// The task that holds a lock, other than the calling task.
    pub(crate) fn holder(&self, own: &Own, lock: Lock) -> Option<TaskRef<'_>> {
        let me = self.me(own)?;
        self.candidates(me, lock).find(|other| {
            self.as_wait_graph()
                .blocks(*other, me, lock, Mode::Exclusive)
        })
    }

    fn as_wait_graph(&self) -> &Self {
        self
    }

    /// The threads of this process.
    pub(crate) fn threads(&self) -> impl Iterator<Item = TaskRef<'_>> {
        self.board
            .places()
            .filter_map(|place| TaskRef::new(&place.record, Some(place)))
    }

    /// The tasks of other processes, in the regions of the calling thread that `wanted` selects.
    fn tasks_of_other_processes(
        &self,
        wanted: impl Fn(core::ops::Range<usize>) -> bool,
    ) -> impl Iterator<Item = TaskRef<'_>> {
        Me::current_or_none()
            .attachments()
            .filter(move |attachment| wanted(attachment.base..attachment.end))
            .flat_map(|attachment| region::check_records(&attachment))
            .filter_map(|record| TaskRef::new(record, None))
            .filter(|who| who.process != self.process)
    }

    /// The tasks that can hold a lock that a task wants: those of the region that it lies in, or of the process.
    fn candidates(&self, waiter: TaskRef<'_>, lock: Lock) -> impl Iterator<Item = TaskRef<'_>> {
        let is_common = region_of(lock.address());
        let is_local = waiter.process == self.process;
        let threads = self.threads().filter(move |_| is_local || is_common);
        let tasks_of_other_processes = self.tasks_of_other_processes(move |range| {
            if is_common {
                range.contains(&lock.address())
            } else {
                !is_local
            }
        });
        let tasks_of_other_processes =
            tasks_of_other_processes.filter(move |who| is_common || who.process == waiter.process);
        threads.chain(tasks_of_other_processes)
    }
}

/// Whether an address lies in a region that the calling thread is a task of.
fn region_of(address: usize) -> bool {
    Me::current_or_none()
        .attachments()
        .any(|attachment| (attachment.base..attachment.end).contains(&address))
}

impl<'h> WaitGraph for &'h VisibleTasks {
    type Task = TaskRef<'h>;

    fn record(&self, task: TaskRef<'h>) -> &TaskRecord {
        task.record
    }

    fn blocks(&self, other: TaskRef<'h>, waiter: TaskRef<'h>, lock: Lock, mode: Mode) -> bool {
        let more = || {
            let mut more = other.more().iter();
            let entry =
                more.find(|entry| entry.lock.load(Ordering::Acquire) == lock.address() as u64)?;
            let held = unpack(0, entry.what.load(Ordering::Relaxed)).1;
            Some(mode == Mode::Exclusive || held == Mode::Exclusive)
        };
        other != waiter && (record_blocks(other.record, lock, mode) || more() == Some(true))
    }

    fn any_that_blocks(
        &self,
        waiter: TaskRef<'h>,
        lock: Lock,
        mode: Mode,
        visit: &mut dyn FnMut(TaskRef<'h>) -> bool,
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
                .filter_map(|place| TaskRef::new(&place.record, Some(place)))
                .filter(|other| self.blocks(*other, waiter, lock, mode))
                .any(visit);
        }
        self.candidates(waiter, lock)
            .filter(|other| self.blocks(*other, waiter, lock, mode))
            .any(visit)
    }
}
