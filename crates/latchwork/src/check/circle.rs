//! Whether the calling task, by waiting, closes a circle of tasks that wait for each other.
//!
//! | who | waits for |
//! | --- | --- |
//! | a task that wants a lock alone | all who hold it |
//! | one that wants it as a reader | who holds it alone; where writers are first, each writer that waits |
//! | one that waits for a condition | who holds the mutex, without which the wait does not end |
//!
//! A task goes on when *all* of those have gone, so one path back to it is enough.
//!
//! *None is missed.* A circle is closed by a wait: a task that gets a lock runs. Each task first publishes
//! what it holds, then that it waits, then looks ([`Wanted::begin`](crate::hook::Wanted)). Of several that
//! close one at the same time, the last to publish finds all others waiting, and what they hold.
//!
//! *None is made up.* The waits of a circle are looked at twice, and who holds what in between: a task
//! that has not moved on holds what it held. So there was a moment at which all of them waited for each other, and
//! such a moment lasts, unless a wait ends by a deadline, which is said.
//!
//! *Cost:* it runs only before a sleep. *Checked by:* `tests/loom_check.rs` (two and three tasks that close a
//! circle at the same time; a negative twin), and by the table of planted faults.

use crate::atomic::Ordering;
use crate::hook::record::{TIMED, unpack};
use crate::hook::{Kind, Lock, Mode, TaskRecord};

/// The longest chain that is followed.
pub(crate) const LONGEST: usize = 32;
/// How many tasks are looked at.
const MOST: usize = 256;

/// Who there is, and who holds what.
pub(crate) trait Field {
    /// A task.
    type Task: Copy + PartialEq;

    /// Its record.
    fn record(&self, task: Self::Task) -> &TaskRecord;

    /// Whether `waiter` cannot have the lock before `other` has gone.
    fn blocks(&self, other: Self::Task, waiter: Self::Task, lock: Lock, mode: Mode) -> bool;

    /// Calls `visit` with each task that blocks `waiter`, until it returns true; whether it did.
    fn any_that_blocks(
        &self,
        waiter: Self::Task,
        lock: Lock,
        mode: Mode,
        visit: &mut dyn FnMut(Self::Task) -> bool,
    ) -> bool;
}

/// Whether what a record says keeps another task from having the lock. (A private lock's address means
/// something in its process only: that is for the field to know.)
pub(crate) fn keeps(record: &TaskRecord, lock: Lock, mode: Mode) -> bool {
    let holds = record.holds(lock.address as u64).is_some_and(|place| {
        // Relaxed, here and below: confirmed by the epochs.
        let what = record.held[place].what.load(Ordering::Relaxed);
        mode == Mode::Exclusive || unpack(0, what).1 == Mode::Exclusive
    });
    let stands_before = mode == Mode::Shared
        && lock.traits.contains(crate::hook::Traits::WRITERS_FIRST)
        && wait_of(record)
            .is_some_and(|wait| wait.lock.address == lock.address && wait.mode == Mode::Exclusive);
    holds || stands_before
}

/// A task in a circle.
#[derive(Clone, Copy)]
pub(crate) struct Link<T> {
    pub(crate) task: T,
    wait: Wait,
}

#[derive(Clone, Copy)]
struct Wait {
    epoch: u32,
    lock: Lock,
    mode: Mode,
    timed: bool,
}

fn wait_of(record: &TaskRecord) -> Option<Wait> {
    let wanted = &record.wanted;
    let epoch = wanted.waits()?;
    let what = wanted.what.load(Ordering::Relaxed);
    let (mut lock, mode) = unpack(wanted.lock.load(Ordering::Relaxed), what);
    let also = wanted.also.load(Ordering::Relaxed);
    if also != 0 {
        // Notified or not, it will need the mutex.
        lock = Lock::new(also as usize, Kind::Mutex);
    }
    let timed = what & TIMED != 0;
    Some(Wait {
        epoch,
        lock,
        mode,
        timed,
    })
}

/// Tasks of which each waits for the next one, and the last for the first.
pub(crate) struct Circle<T> {
    links: [Option<Link<T>>; LONGEST],
    length: usize,
}

impl<T: Copy> Circle<T> {
    pub(crate) fn links(&self) -> impl Iterator<Item = Link<T>> {
        self.links[..self.length].iter().copied().flatten()
    }

    /// Whether one of the waits ends at a deadline, and the circle with it.
    pub(crate) fn ends(&self) -> bool {
        self.links().any(|link| link.wait.timed)
    }
}

/// What a look round found.
pub(crate) struct Look<T> {
    /// The circle that the calling task has closed by publishing its wait.
    pub(crate) circle: Option<Circle<T>>,
    /// One of those whom it waits for.
    pub(crate) blocker: Option<T>,
}

/// Looks round, for a task that has published its wait.
pub(crate) fn look<F: Field>(field: &F, me: F::Task) -> Look<F::Task> {
    let mut search = Search {
        field,
        me,
        path: Circle {
            links: [const { None }; LONGEST],
            length: 0,
        },
        seen: [None; MOST],
        count: 0,
        blocker: None,
    };
    let found = search.follow(me) && search.is_confirmed();
    Look {
        blocker: search.blocker,
        circle: found.then_some(search.path),
    }
}

struct Search<'f, F: Field> {
    field: &'f F,
    me: F::Task,
    path: Circle<F::Task>,
    seen: [Option<F::Task>; MOST],
    count: usize,
    blocker: Option<F::Task>,
}

impl<F: Field> Search<'_, F> {
    /// Whether a task's wait leads to the one that asks.
    fn follow(&mut self, task: F::Task) -> bool {
        if self.path.length > 0 && task == self.me {
            return true;
        }
        if self.path.length == LONGEST
            || self.count == MOST
            || self.seen[..self.count].contains(&Some(task))
        {
            return false;
        }
        self.seen[self.count] = Some(task);
        self.count += 1;
        let Some(wait) = wait_of(self.field.record(task)) else {
            return false;
        };
        self.path.links[self.path.length] = Some(Link { task, wait });
        self.path.length += 1;
        let field = self.field;
        let found = field.any_that_blocks(task, wait.lock, wait.mode, &mut |other| {
            self.blocker.get_or_insert(other);
            self.follow(other)
        });
        if !found {
            self.path.length -= 1;
        }
        found
    }

    /// Looks again at who blocks whom, and then at whether all have waited all the while.
    fn is_confirmed(&self) -> bool {
        let links = || self.path.links();
        let next = links().skip(1).chain(links().take(1));
        let block = links().zip(next).all(|(link, next)| {
            let Wait { lock, mode, .. } = link.wait;
            self.field.blocks(next.task, link.task, lock, mode)
        });
        let waits = |link: Link<F::Task>| {
            self.field.record(link.task).wanted.waits() == Some(link.wait.epoch)
        };
        block && links().all(waits)
    }
}
