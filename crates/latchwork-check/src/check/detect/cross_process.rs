//! Wait-for cycles through other processes, by way of locks that lie in no region.
//!
//! A region knows its tasks, so their locks are found before a sleep ([visible
//! tasks](crate::check::detect::visible_tasks)). Other memory that processes share has no such list: the users of a
//! lock there are found by searching `/proc` for the boards of all accessible processes, which is too expensive before
//! each sleep. So this search is made when a wait for such a lock has lasted for [`AFTER`]; a cycle lasts. Two
//! processes refer to the same lock if it lies at the same offset of the same file, or of the same anonymous memory,
//! wherever they have it mapped.
//!
//! *No cycle is missed:* the task that waits last searches last, and all others wait by that time. *No false
//! positives:* the boards are copied three times. A task whose wait is the same in the first and the third copy has
//! held throughout what it holds in the second.
//!
//! Unlike the rest of the checker this allocates: a process's allocator does not wait for other processes.

use super::visible_tasks::Member;
use crate::atomic::Ordering;
use crate::check::detect::cycle::{self, WaitCycle, WaitGraph};
use crate::check::detect::visible_tasks::TaskRef;
use crate::check::record::layout::Place;
use crate::check::record::own::Own;
use crate::check::record::remote_board;
use crate::hook::{Held, Lock, Mode, TaskRecord, Traits};
use crate::sys::cancellation::Undisturbed;
use crate::sys::inspect::{self, Memory};
use rustix::fd::OwnedFd;

/// A wait that has lasted for so many nanoseconds searches other processes.
pub(crate) const AFTER: u64 = 100_000_000;

/// A process with a board.
struct Process {
    id: u32,
    board: OwnedFd,
    /// The memory that it shares, or could share, with other processes.
    memory: Vec<Memory>,
}

/// The identity of a lock across processes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LockIdentity {
    Private { process: u32, address: u64 },
    Shared { file: (u64, u64), offset: u64 },
}

impl Process {
    fn all() -> Vec<Self> {
        let all = inspect::processes().unwrap_or_default().into_iter();
        all.filter_map(|id| {
            Some(Self {
                id,
                board: remote_board::open(id)?,
                memory: inspect::shared_memory(id).ok()?,
            })
        })
        .collect()
    }

    fn identity(&self, address: usize) -> LockIdentity {
        let address = address as u64;
        let mut all = self.memory.iter();
        match all.find(|memory| memory.addresses.contains(&address)) {
            Some(memory) => LockIdentity::Shared {
                file: memory.file,
                offset: memory.offset + (address - memory.addresses.start),
            },
            None => LockIdentity::Private {
                process: self.id,
                address,
            },
        }
    }

    /// The tasks of the process that wait.
    fn waiting(&self) -> impl Iterator<Item = WaitingTask<'_>> {
        let waits = |place: &Place| place.record.wanted.waits().is_some();
        let waiting = remote_board::places(&self.board).filter(waits);
        waiting.map(|place| WaitingTask {
            process: self,
            place,
        })
    }
}

/// A waiting task, as it was at some time.
struct WaitingTask<'p> {
    process: &'p Process,
    place: Place,
}

impl<'p> WaitingTask<'p> {
    fn who(&self) -> Option<TaskRef<'_>> {
        TaskRef::new(&self.place.record, None)
    }

    /// How it holds a lock.
    fn held(&self, lock: LockIdentity) -> Option<Held> {
        // Relaxed: a copy in this process's memory.
        let count = self.place.record.count.load(Ordering::Relaxed) as usize;
        let all = self.place.record.held.iter().take(count);
        let mut all = all.chain(&self.place.more).filter_map(|entry| entry.view());
        all.find(|held| self.process.identity(held.lock.address()) == lock)
    }

    /// The lock that it needs to go on.
    fn needs(&self) -> Option<(LockIdentity, Mode)> {
        let view = self.place.record.view();
        let address = view.needs()? as usize;
        Some((self.process.identity(address), view.wants?.mode))
    }
}

/// Waits, as process, thread and epoch.
type Waits = Vec<(u32, u32, u32)>;

/// A copy of the state of all waiting tasks.
struct Snapshot<'p>(Vec<WaitingTask<'p>>);

impl<'p> Snapshot<'p> {
    fn of(processes: &'p [Process]) -> Self {
        Self(processes.iter().flat_map(Process::waiting).collect())
    }

    /// The cycle that the calling task is in, and the waits of that cycle.
    fn cycle(&self, own: &Own) -> Option<(WaitCycle<usize>, Waits)> {
        let me = self.0.iter().position(|seen| {
            seen.who()
                .is_some_and(|who| (who.process.id(), who.thread) == own.identity())
        })?;
        let cycle = cycle::find_cycle(self, me).cycle?;
        let name = |link: cycle::Link<usize>| {
            let who = self.0[link.task].who()?;
            Some((who.process.id(), who.thread, link.epoch))
        };
        let names = cycle.links().map(name).collect::<Option<_>>()?;
        Some((cycle, names))
    }
}

impl WaitGraph for Snapshot<'_> {
    type Task = usize;

    fn record(&self, task: usize) -> &TaskRecord {
        &self.0[task].place.record
    }

    fn blocks(&self, other: usize, waiter: usize, lock: Lock, mode: Mode) -> bool {
        let wanted = self.0[waiter].process.identity(lock.address());
        let excludes = |held: Mode| mode == Mode::Exclusive || held == Mode::Exclusive;
        let waits_ahead = || {
            mode == Mode::Shared
                && lock.traits.contains(Traits::WRITERS_FIRST)
                && self.0[other].needs() == Some((wanted, Mode::Exclusive))
        };
        other != waiter
            && (self.0[other]
                .held(wanted)
                .is_some_and(|held| excludes(held.mode))
                || waits_ahead())
    }

    fn candidates(&self, _: usize, lock: Lock) -> impl Iterator<Item = usize> {
        let count = if lock.kind.has_owner() {
            self.0.len()
        } else {
            0
        };
        0..count
    }
}

/// Searches other processes, for a task whose wait has lasted. Calls `found` with the cycle that the task is in, and
/// whether one of its waits ends at a deadline.
pub(crate) fn search(own: &Own, found: impl FnOnce(&[Member<'_>], bool)) {
    let _undisturbed = Undisturbed::begin();
    let processes = Process::all();
    let Some((_, first)) = Snapshot::of(&processes).cycle(own) else {
        return;
    };
    let holds =
        |snapshot: &Snapshot<'_>| snapshot.cycle(own).is_some_and(|(_, names)| names == first);
    if !holds(&Snapshot::of(&processes)) {
        return;
    }
    let last = Snapshot::of(&processes);
    let Some((cycle, _)) = last.cycle(own).filter(|(_, names)| *names == first) else {
        return;
    };
    let mut previous = cycle.links().last().map(|link| link.task);
    let tasks = cycle.links().filter_map(|link| {
        let needed = previous
            .replace(link.task)
            .and_then(|task| last.0[task].needs());
        let who = last.0[link.task].who()?;
        Some(Member {
            who,
            wants: who.record.view().wants,
            holds: needed.and_then(|(lock, _)| last.0[link.task].held(lock)),
        })
    });
    let tasks: Vec<_> = tasks.collect();
    found(&tasks, cycle.ends());
}
