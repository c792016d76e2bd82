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
//! such a moment lasts, unless a wait ends by a deadline, which is said. (That of a condition does not: the mutex is
//! needed after it, too.)
//!
//! *Writers in a reader's way* count from when they say that they wait, which is a little before they are counted in
//! the lock. That misses none. It makes one up only if the writer that the reader has met gives up at its deadline, and
//! the reader enters, while another one is between the two steps. Where readers are first, a writer is in their way
//! after some time only: see `waits.rs`.
//!
//! *Bounds:* of the tasks that wait, those nearest to the calling one are looked at, [`MOST`] of them.
//!
//! *Cost:* it runs only before a sleep. *Checked by:* `tests/loom_check.rs` (two and three tasks that close a
//! circle at the same time; a negative twin), and by the table of planted faults.

use crate::atomic::{Ordering, fence};
use crate::hook::record::{TIMED, unpack};
use crate::hook::{Kind, Lock, Mode, TaskRecord};

/// How many tasks that wait are looked at, the calling one included: a few KiB of its stack.
const MOST: usize = 128;
/// How often a look is repeated whose circle was gone as it was confirmed: another one may stand behind it.
const ROUNDS: usize = 3;

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
    let is_condition = also != 0;
    if is_condition {
        // Notified or not, or past its deadline, it will need the mutex.
        lock = Lock::new(also as usize, Kind::Mutex);
    }
    Some(Wait {
        epoch,
        lock,
        mode,
        timed: what & TIMED != 0 && !is_condition,
    })
}

/// A task that waits, and how a look came to it.
#[derive(Clone, Copy)]
pub(crate) struct Link<T> {
    pub(crate) task: T,
    /// Which of the task's waits it is.
    pub(crate) epoch: u32,
    timed: bool,
    /// The one that waits for it, and the one that it waits for, where that is known: places among the links.
    before: u8,
    next: u8,
}

/// Tasks of which each waits for the next one, and the last for the first.
pub(crate) struct Circle<T> {
    links: [Option<Link<T>>; MOST],
    count: usize,
    last: usize,
}

impl<T: Copy> Circle<T> {
    fn new() -> Self {
        Self {
            links: [const { None }; MOST],
            count: 0,
            last: 0,
        }
    }

    /// From the calling task on.
    pub(crate) fn links(&self) -> impl Iterator<Item = Link<T>> {
        let mut at = Some(0);
        core::iter::from_fn(move || {
            let place = at?;
            let link = self.links[place]?;
            at = (place != self.last).then_some(usize::from(link.next));
            Some(link)
        })
    }

    /// Whether one of the waits ends at a deadline, and the circle with it.
    pub(crate) fn ends(&self) -> bool {
        self.links().any(|link| link.timed)
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
    let mut blocker = None;
    let circle = if leads_on(field, me, &mut blocker) {
        look_on(field, me, &mut blocker)
    } else {
        None
    };
    Look { circle, blocker }
}

/// Whether one of those that a task waits for waits itself: mostly the holder is at work, and all is said.
fn leads_on<F: Field>(field: &F, me: F::Task, blocker: &mut Option<F::Task>) -> bool {
    wait_of(field.record(me)).is_some_and(|wait| {
        field.any_that_blocks(me, wait.lock, wait.mode, &mut |other| {
            blocker.get_or_insert(other);
            field.record(other).wanted.waits().is_some()
        })
    })
}

/// Not for each wait: room for the links is made first, and that is more than all else that a wait comes to here.
#[inline(never)]
fn look_on<F: Field>(
    field: &F,
    me: F::Task,
    blocker: &mut Option<F::Task>,
) -> Option<Circle<F::Task>> {
    let mut circle = Circle::new();
    for _ in 0..ROUNDS {
        if !circle.search(field, me, blocker) {
            return None;
        }
        if circle.is_confirmed(field) {
            return Some(circle);
        }
    }
    None
}

impl<T: Copy + PartialEq> Circle<T> {
    /// Goes from whom a task waits for to whom those wait for, until one waits for it; the nearest first.
    fn search<F: Field<Task = T>>(&mut self, field: &F, me: T, blocker: &mut Option<T>) -> bool {
        self.count = 0;
        self.add(field, me, 0);
        let mut place = 0;
        while let Some(link) = self.links[..self.count].get(place).copied().flatten() {
            let wait = wait_of(field.record(link.task)).filter(|wait| wait.epoch == link.epoch);
            let closes = wait.is_some_and(|wait| {
                field.any_that_blocks(link.task, wait.lock, wait.mode, &mut |other| {
                    blocker.get_or_insert(other);
                    self.add(field, other, place);
                    other == me
                })
            });
            if closes {
                self.close(place);
                return true;
            }
            place += 1;
        }
        false
    }

    /// One that does not wait leads nowhere.
    fn add<F: Field<Task = T>>(&mut self, field: &F, task: T, before: usize) {
        let is_seen = |link: &Option<Link<T>>| link.is_some_and(|link| link.task == task);
        if self.count < MOST
            && let Some(wait) = wait_of(field.record(task))
            && !self.links[..self.count].iter().any(is_seen)
        {
            self.links[self.count] = Some(Link {
                task,
                epoch: wait.epoch,
                timed: wait.timed,
                before: before as u8,
                next: 0,
            });
            self.count += 1;
        }
    }

    /// The one at a place waits for the first one.
    fn close(&mut self, last: usize) {
        self.last = last;
        let mut place = last;
        while place != 0 {
            let before = self.links[place].map_or(0, |link| usize::from(link.before));
            if let Some(link) = &mut self.links[before] {
                link.next = place as u8;
            }
            place = before;
        }
    }

    /// Whether none of the waits is over yet.
    pub(crate) fn all_wait<F: Field<Task = T>>(&self, field: &F) -> bool {
        self.links()
            .all(|link| field.record(link.task).wanted.waits() == Some(link.epoch))
    }

    /// Looks again at who blocks whom, and then at whether all have waited all the while.
    fn is_confirmed<F: Field<Task = T>>(&self, field: &F) -> bool {
        let next = self.links().skip(1).chain(self.links().take(1));
        let block = self.links().zip(next).all(|(link, next)| {
            wait_of(field.record(link.task)).is_some_and(|wait| {
                wait.epoch == link.epoch && field.blocks(next.task, link.task, wait.lock, wait.mode)
            })
        });
        // Before the looks at the epochs: those are the last.
        fence(Ordering::Acquire);
        block && self.all_wait(field)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::hook::record::pack;
    use core::cell::Cell;

    /// Tasks by number, of which one moves on as a circle is confirmed.
    struct Overtaken {
        records: [TaskRecord; 4],
        moves_on: Cell<Option<usize>>,
    }

    impl Overtaken {
        fn holds(&self, task: usize, place: usize, lock: Lock, mode: Mode) {
            self.records[task].push(place, place + 1, |entry| {
                entry.write(lock.address as u64, 0, 0, pack(lock, mode), 0);
            });
        }

        fn wants(&self, task: usize, lock: Lock) {
            let what = pack(lock, Mode::Exclusive);
            let wanted = &self.records[task].wanted;
            wanted.begin(lock.address as u64, 0, 0, what, 0);
        }
    }

    impl Field for &Overtaken {
        type Task = usize;

        fn record(&self, task: usize) -> &TaskRecord {
            &self.records[task]
        }

        fn blocks(&self, other: usize, waiter: usize, lock: Lock, mode: Mode) -> bool {
            if let Some(task) = self.moves_on.take() {
                self.records[task].wanted.end();
            }
            other != waiter && keeps(&self.records[other], lock, mode)
        }

        fn any_that_blocks(
            &self,
            waiter: usize,
            lock: Lock,
            mode: Mode,
            visit: &mut dyn FnMut(usize) -> bool,
        ) -> bool {
            (0..self.records.len())
                .filter(|other| *other != waiter && keeps(&self.records[*other], lock, mode))
                .any(visit)
        }
    }

    /// Task 0 waits for the readers 1 and 2, both for task 3, and that for task 0.
    #[test]
    fn a_circle_behind_one_that_has_just_gone_is_found() {
        for goes in [1, 2] {
            let field = Overtaken {
                records: core::array::from_fn(|_| TaskRecord::new()),
                moves_on: Cell::new(Some(goes)),
            };
            let [read, mine, theirs] = [1, 2, 3].map(|number| Lock::new(number, Kind::RwLock));
            field.holds(0, 0, mine, Mode::Exclusive);
            field.holds(1, 0, read, Mode::Shared);
            field.holds(2, 0, read, Mode::Shared);
            field.holds(3, 0, theirs, Mode::Exclusive);
            for (task, lock) in [(1, theirs), (2, theirs), (3, mine), (0, read)] {
                field.wants(task, lock);
            }
            let circle = look(&&field, 0).circle.expect("the other circle");
            let tasks: Vec<_> = circle.links().map(|link| link.task).collect();
            assert_eq!(tasks, [0, 3 - goes, 3], "{goes} has gone");
        }
    }
}
