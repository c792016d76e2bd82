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
use crate::check::record::process::ProcessId;
use crate::hook::record::unpack;
use crate::hook::{Held, HeldLock, Kind, Lock, Mode, TaskRecord};
use crate::region;
use crate::task::Me;

/// A task, and the location of its record.
#[derive(Clone, Copy)]
pub(crate) struct TaskRef<'f> {
    pub(crate) record: &'f TaskRecord,
    /// Only for tasks of this process.
    place: Option<&'static Place>,
    pub(crate) process: ProcessId,
    /// Its ID in its own PID namespace.
    pub(crate) thread: u32,
}

impl PartialEq for TaskRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.process, self.thread) == (other.process, other.thread)
    }
}

impl<'f> TaskRef<'f> {
    /// A task of this PID namespace.
    pub(crate) fn new(record: &'f TaskRecord, place: Option<&'static Place>) -> Option<Self> {
        Self::of(record, place, None)
    }

    /// A task of the PID namespace `elsewhere`; of this one if that is `None`.
    fn of(
        record: &'f TaskRecord,
        place: Option<&'static Place>,
        elsewhere: Option<u32>,
    ) -> Option<Self> {
        // Acquire: pairs with `TaskRecord::begin`.
        let thread = record.thread.load(Ordering::Acquire);
        (thread != 0).then(|| Self {
            record,
            place,
            process: ProcessId::of(record.process.load(Ordering::Relaxed), elsewhere),
            thread,
        })
    }

    /// How it holds a lock.
    pub(crate) fn held(&self, address: u64) -> Option<Held> {
        let place = self.record.holds(address);
        let held = match place {
            Some(place) => &self.record.held[place],
            None => self.more(address)?,
        };
        held.view()
            .filter(|held| held.lock.address() as u64 == address)
    }

    /// The entry of a lock that it holds beyond its record. (Entries behind the count belong to earlier threads of the
    /// place.)
    fn more(&self, address: u64) -> Option<&'static HeldLock> {
        let place = self.place?;
        // Acquire: pairs with the Release of the thread that stored the entry.
        let count = place.more_count.load(Ordering::Acquire) as usize;
        let mut more = place.more[..count.min(MORE)].iter();
        more.find(|entry| entry.lock.load(Ordering::Acquire) == address)
    }
}

impl TaskRef<'static> {
    fn on(board: Board) -> impl Iterator<Item = Self> {
        let places = board.places();
        places.filter_map(|place| TaskRef::new(&place.record, Some(place)))
    }

    /// The threads of this process, for a caller that may be none of its tasks.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        board::board().into_iter().flat_map(Self::on)
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
    process: ProcessId,
    /// The lock of the call that the calling task is in: its memory can be read.
    wanted: Option<Lock>,
}

impl VisibleTasks {
    pub(crate) fn new(own: &Own) -> Option<Self> {
        Some(Self {
            board: board::board()?,
            process: ProcessId::here(own.identity().0),
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

    /// Whether a task belongs to this process.
    pub(crate) fn is_local(&self, who: TaskRef<'_>) -> bool {
        who.process == self.process
    }

    /// The calling task.
    pub(crate) fn me(&self, own: &Own) -> Option<TaskRef<'static>> {
        TaskRef::new(own.record(), Some(own.place()))
    }

    /// The task that holds a lock, other than the calling task.
    pub(crate) fn holder(own: &Own, lock: Lock) -> Option<TaskRef<'static>> {
        let visible = Self::new(own)?;
        let me = visible.me(own)?;
        let mut others = visible.possible_holders(me, lock);
        others.find(|other| visible.blocks(*other, me, lock, Mode::Exclusive))
    }

    /// The threads of this process.
    pub(crate) fn threads(&self) -> impl Iterator<Item = TaskRef<'static>> {
        TaskRef::on(self.board)
    }

    /// The tasks of other processes, in the regions of the calling thread that `wanted` selects.
    fn tasks_of_other_processes(
        &self,
        wanted: impl Fn(core::ops::Range<usize>) -> bool,
    ) -> impl Iterator<Item = TaskRef<'static>> {
        Me::current_or_none()
            .attachments()
            .filter(move |attachment| wanted(attachment.base..attachment.end))
            .flat_map(|attachment| region::check_records(&attachment))
            .filter_map(|(record, elsewhere)| TaskRef::of(record, None, elsewhere))
            .filter(|who| who.process != self.process)
    }

    /// The tasks that can hold a lock that a task wants: those of the region that it lies in, or of the process.
    fn possible_holders(
        &self,
        waiter: TaskRef<'static>,
        lock: Lock,
    ) -> impl Iterator<Item = TaskRef<'static>> {
        let is_local = waiter.process == self.process;
        let is_common = match is_local {
            true => region_of(lock.address()),
            false => has_in_common(waiter, lock.address()),
        };
        let threads = self.threads().filter(move |_| is_local || is_common);
        let others = self.tasks_of_other_processes(move |range| {
            if is_common {
                range.contains(&lock.address())
            } else {
                !is_local
            }
        });
        threads.chain(others.filter(move |who| is_common || who.process == waiter.process))
    }
}

/// Whether an address lies in a region that the calling thread is a task of.
fn region_of(address: usize) -> bool {
    Me::current_or_none()
        .attachments()
        .any(|attachment| (attachment.base..attachment.end).contains(&address))
}

/// Whether an address lies in a region that the calling thread and a task of another process are tasks of. (The address
/// may lie in another region of that process, which it alone has mapped there.)
fn has_in_common(other: TaskRef<'static>, address: usize) -> bool {
    let attachments = Me::current_or_none().attachments();
    let mut containing =
        attachments.filter(|attachment| (attachment.base..attachment.end).contains(&address));
    containing.any(|attachment| {
        let mut tasks = region::check_records(&attachment);
        tasks.any(|(record, elsewhere)| TaskRef::of(record, None, elsewhere) == Some(other))
    })
}

impl WaitGraph for VisibleTasks {
    type Task = TaskRef<'static>;

    fn record(&self, task: Self::Task) -> &TaskRecord {
        task.record
    }

    fn blocks(&self, other: Self::Task, waiter: Self::Task, lock: Lock, mode: Mode) -> bool {
        let more_blocks = |entry: &HeldLock| {
            let held = unpack(0, entry.what.load(Ordering::Relaxed)).1;
            mode == Mode::Exclusive || held == Mode::Exclusive
        };
        let more = || other.more(lock.address() as u64);
        other != waiter
            && (record_blocks(other.record, lock, mode) || more().is_some_and(more_blocks))
    }

    fn candidates(&self, waiter: Self::Task, lock: Lock) -> impl Iterator<Item = Self::Task> {
        let address = lock.address();
        let has_owner = lock.kind.has_owner();
        // The holder's entry on the board names it from before it waits for anything until it is about to release. So
        // if a lock can have only one holder, and no entry names one, the holder runs.
        let names_holder = has_owner
            && waiter.process == self.process
            && lock.kind != Kind::RwLock
            && !region_of(address);
        let entry = names_holder.then(|| self.board.lock(address)).flatten();
        let named = entry.into_iter().flat_map(move |entry| {
            let itself = self.wanted.filter(|wanted| wanted.address() == address);
            // A lock that stores its holder also knows a holder that runs.
            let [on_board, in_lock] = [Some(lock.without_word()), itself]
                .map(|lock| lock.and_then(|lock| Holder::of(lock, entry).place()));
            let places = [on_board, in_lock.filter(|_| in_lock != on_board)];
            places.into_iter().flatten().filter_map(|place| {
                let place = self.board.place(place % PLACES);
                TaskRef::new(&place.record, Some(place))
            })
        });
        let is_any = has_owner && entry.is_none();
        let any = is_any.then(|| self.possible_holders(waiter, lock));
        named.chain(any.into_iter().flatten())
    }
}
