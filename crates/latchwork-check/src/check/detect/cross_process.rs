//! Wait-for cycles through other processes, by way of locks that lie in no region.
//!
//! A region knows its tasks, so their locks are found before a sleep ([`field`](crate::check::detect::visible_tasks)). Other memory that
//! processes share has no such list: the users of a lock there are found by searching `/proc` for the boards of all
//! accessible processes, which is too expensive before each sleep. So this search is made when a wait for such a lock
//! has lasted for [`AFTER`]; a cycle lasts. Two processes refer to the same lock if it lies at the same offset of the
//! same file, or of the same anonymous memory, wherever they have it mapped.
//!
//! *No cycle is missed:* the task that waits last searches last, and all others wait by that time. *No false
//! positives:* the boards are copied three times. A task whose wait is the same in the first and the third copy has
//! held throughout what it holds in the second.
//!
//! Unlike the rest of the checker this allocates: a process's allocator does not wait for other processes.

use super::visible_tasks::Member;
use crate::atomic::Ordering;
use crate::check::detect::cycle::{self, Circle, Field};
use crate::check::detect::visible_tasks::Who;
use crate::check::record::layout::{Header, PLACES, PLACES_AT, Place};
use crate::check::record::own::Own;
use crate::check::record::remote_board;
use crate::hook::{Held, Lock, Mode, TaskRecord, Traits};
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
enum Same {
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

    fn same(&self, address: usize) -> Same {
        let address = address as u64;
        let there = self
            .memory
            .iter()
            .find(|memory| memory.addresses.contains(&address));
        match there {
            Some(memory) => Same::Shared {
                file: memory.file,
                offset: memory.offset + (address - memory.addresses.start),
            },
            None => Same::Private {
                process: self.id,
                address,
            },
        }
    }

    /// The tasks of the process that wait.
    fn waiting(&self) -> impl Iterator<Item = Seen<'_>> {
        let header = remote_board::read::<Header>(&self.board, 0);
        // Relaxed, here and below: these are copies in this process's memory.
        let places = header.map_or(0, |header| header.places.load(Ordering::Relaxed) as usize);
        let place = |index| {
            remote_board::read::<Place>(&self.board, PLACES_AT + index * size_of::<Place>())
        };
        (0..places.min(PLACES))
            .map_while(place)
            .filter(|place| {
                place.taken.load(Ordering::Relaxed) != 0 && place.record.wanted.waits().is_some()
            })
            .map(|place| Seen {
                process: self,
                place,
            })
    }
}

/// A waiting task, as it was at some time.
struct Seen<'p> {
    process: &'p Process,
    place: Place,
}

impl<'p> Seen<'p> {
    fn who(&self) -> Option<Who<'_>> {
        Who::new(&self.place.record, None)
    }

    /// How it holds a lock.
    fn held(&self, lock: Same) -> Option<Held> {
        let count = self.place.record.count.load(Ordering::Relaxed) as usize;
        let all = self.place.record.held.iter().take(count);
        let mut all = all.chain(&self.place.more).filter_map(|entry| entry.view());
        all.find(|held| self.process.same(held.lock.address()) == lock)
    }

    /// The lock that it needs to go on.
    fn needs(&self) -> Option<(Same, Mode)> {
        let view = self.place.record.view();
        let address = view.needs()? as usize;
        Some((self.process.same(address), view.wants?.mode))
    }
}

/// Waits, as process, thread and epoch.
type Waits = Vec<(u32, u32, u32)>;

/// A copy of the state of all waiting tasks.
struct Picture<'p>(Vec<Seen<'p>>);

impl<'p> Picture<'p> {
    fn of(processes: &'p [Process]) -> Self {
        Self(processes.iter().flat_map(Process::waiting).collect())
    }

    /// The cycle that the calling task is in, and the waits of that cycle.
    fn circle(&self, own: &Own) -> Option<(Circle<usize>, Waits)> {
        let me = self.0.iter().position(|seen| {
            seen.who()
                .is_some_and(|who| (who.process, who.thread) == own.identity())
        })?;
        let circle = cycle::look(&self, me).circle?;
        let name = |link: cycle::Link<usize>| {
            let who = self.0[link.task].who()?;
            Some((who.process, who.thread, link.epoch))
        };
        let names = circle.links().map(name).collect::<Option<_>>()?;
        Some((circle, names))
    }
}

impl Field for &Picture<'_> {
    type Task = usize;

    fn record(&self, task: usize) -> &TaskRecord {
        &self.0[task].place.record
    }

    fn blocks(&self, other: usize, waiter: usize, lock: Lock, mode: Mode) -> bool {
        let wanted = self.0[waiter].process.same(lock.address());
        let excludes = |held: Mode| mode == Mode::Exclusive || held == Mode::Exclusive;
        let stands_before = || {
            mode == Mode::Shared
                && lock.traits.contains(Traits::WRITERS_FIRST)
                && self.0[other].needs() == Some((wanted, Mode::Exclusive))
        };
        other != waiter
            && (self.0[other]
                .held(wanted)
                .is_some_and(|held| excludes(held.mode))
                || stands_before())
    }

    fn any_that_blocks(
        &self,
        waiter: usize,
        lock: Lock,
        mode: Mode,
        visit: &mut dyn FnMut(usize) -> bool,
    ) -> bool {
        lock.kind.has_owner()
            && (0..self.0.len())
                .filter(|other| self.blocks(*other, waiter, lock, mode))
                .any(visit)
    }
}

/// Searches other processes, for a task whose wait has lasted. Calls `found` with the cycle that the task is in, and
/// whether one of its waits ends at a deadline.
pub(crate) fn look(own: &Own, found: impl FnOnce(&[Member<'_>], bool)) {
    let processes = Process::all();
    let Some((_, first)) = Picture::of(&processes).circle(own) else {
        return;
    };
    let holds =
        |picture: &Picture<'_>| picture.circle(own).is_some_and(|(_, names)| names == first);
    if !holds(&Picture::of(&processes)) {
        return;
    }
    let last = Picture::of(&processes);
    let Some((circle, _)) = last.circle(own).filter(|(_, names)| *names == first) else {
        return;
    };
    let mut previous = circle.links().last().map(|link| link.task);
    let tasks = circle.links().filter_map(|link| {
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
    found(&tasks, circle.ends());
}
