//! Circles through other processes by way of locks that lie in no region.
//!
//! A region knows its tasks, so what they hold is found before a sleep ([`field`](super::field)). Memory that
//! processes share otherwise knows nobody: who uses a lock there is found by a look through `/proc`, for the boards of
//! all processes that may be looked at, and that is too dear before each sleep. So it is taken when a wait for such a
//! lock has lasted for [`AFTER`]; a circle lasts. A lock is the same to two processes if it lies in the same place of
//! the same file, or of the same memory without one, wherever they have it mapped.
//!
//! *None is missed:* who waits last, looks last, and all others wait by then. *None is made up:* three copies are made
//! of what the boards say. A task whose wait is the same in the first and the third has held all the while what it
//! holds in the second.
//!
//! Unlike the rest of the checker this allocates: a process's allocator does not wait for other processes.

use super::circle::{self, Circle, Field};
use super::field::Who;
use super::foreign;
use super::found::{self, Member};
use super::layout::{Header, PLACES, PLACES_AT, Place};
use super::own::Own;
use crate::atomic::Ordering;
use crate::hook::{Held, Lock, Mode, TaskRecord, Traits};
use crate::sys::inspect::{self, Memory};
use rustix::fd::OwnedFd;

/// Nanoseconds after which a wait looks as far.
pub(super) const AFTER: u64 = 100_000_000;

/// A process with a board.
struct Process {
    id: u32,
    board: OwnedFd,
    /// What it shares with others, or could.
    memory: Vec<Memory>,
}

/// What a lock is to all processes.
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
                board: foreign::open(id)?,
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

    /// Its tasks that wait.
    fn waiting(&self) -> impl Iterator<Item = Seen<'_>> {
        let header = foreign::read::<Header>(&self.board, 0);
        // Relaxed, here and below: copies in memory of our own.
        let places = header.map_or(0, |header| header.places.load(Ordering::Relaxed) as usize);
        let place =
            |index| foreign::read::<Place>(&self.board, PLACES_AT + index * size_of::<Place>());
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

/// A task that waits, as it was at some time.
struct Seen<'p> {
    process: &'p Process,
    place: Place,
}

impl<'p> Seen<'p> {
    fn who(&self) -> Option<Who<'_>> {
        Who::new(&self.place.record, None)
    }

    /// What it holds of a lock.
    fn held(&self, lock: Same) -> Option<Held> {
        let count = self.place.record.count.load(Ordering::Relaxed) as usize;
        let all = self.place.record.held.iter().take(count);
        let mut all = all.chain(&self.place.more).filter_map(|entry| entry.view());
        all.find(|held| self.process.same(held.lock.address) == lock)
    }

    /// What it needs to go on.
    fn needs(&self) -> Option<(Same, Mode)> {
        let view = self.place.record.view();
        let address = view.needs()? as usize;
        Some((self.process.same(address), view.wants?.mode))
    }
}

/// Waits, by process, thread and number.
type Waits = Vec<(u32, u32, u32)>;

/// All tasks that wait.
struct Picture<'p>(Vec<Seen<'p>>);

impl<'p> Picture<'p> {
    fn of(processes: &'p [Process]) -> Self {
        Self(processes.iter().flat_map(Process::waiting).collect())
    }

    /// The circle of the calling task, and its waits.
    fn circle(&self, own: &Own) -> Option<(Circle<usize>, Waits)> {
        let me = self.0.iter().position(|seen| {
            seen.who()
                .is_some_and(|who| (who.process, who.thread) == own.identity())
        })?;
        let circle = circle::look(&self, me).circle?;
        let name = |link: circle::Link<usize>| {
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
        let wanted = self.0[waiter].process.same(lock.address);
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

/// Looks round, for a task whose wait has lasted, and reports the circle that it is in.
pub(super) fn look(own: &Own) {
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
    found::far_circle(tasks.into_iter(), circle.ends());
}
