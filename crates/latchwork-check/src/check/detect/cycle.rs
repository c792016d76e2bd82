//! Detects whether the calling task, by waiting, completes a wait-for cycle.
//!
//! | waiter | waits for |
//! | --- | --- |
//! | a task that wants a lock exclusively | all its holders |
//! | a task that wants it as a reader | its exclusive holder; where writers come first, also each waiting writer |
//! | a task that waits for a condition | the holder of the mutex, without which the wait does not end |
//!
//! A task can proceed only when *all* of those no longer block it, so one path back to it is enough.
//!
//! *No cycle is missed.* Only a wait can complete a cycle, since a task that gets a lock runs. Each task first
//! publishes what it holds, then that it waits, then searches ([`Wanted::begin`](crate::hook::Wanted)). If several
//! tasks complete a cycle at the same time, the last one to publish finds that all others wait, and what they hold.
//!
//! *No false positives.* The waits of a cycle are read twice, and the holders in between: a task that has not moved on
//! still holds what it held. So there was a moment at which all of them waited for each other, and such a state lasts,
//! unless a wait ends by a deadline, which the report says. (The deadline of a wait for a condition does not break a
//! cycle: the task needs the mutex after it, too.)
//!
//! *Writers that block a reader* count from when they publish that they wait, which is a little before they are counted
//! in the lock. That misses no cycle. It causes a false positive only if the writer that the reader has met gives up at
//! its deadline, and the reader enters, while another writer is between the two steps. Where readers come first, a
//! writer blocks a reader only after some time: see `wait.rs`.
//!
//! *Bounds:* the search visits at most [`MAX_LINKS`] waiting tasks, the nearest ones to the calling task.
//!
//! *Cost:* it runs only before a sleep. *Checked by:* `tests/loom_check.rs` (two and three tasks that complete a cycle
//! at the same time; a negative twin), and by the table of planted faults.

use crate::atomic::{Ordering, fence};
use crate::hook::record::{TIMED, unpack};
use crate::hook::{Kind, Lock, Mode, TaskRecord};

/// The most waiting tasks that are visited, the calling one included: a few KiB of its stack.
const MAX_LINKS: usize = 128;
/// How often to repeat a search whose cycle was gone when it was confirmed: another cycle may lie behind it.
const ROUNDS: usize = 3;

/// The tasks that exist, and what each holds.
pub(crate) trait WaitGraph {
    /// A task.
    type Task: Copy + PartialEq;

    /// Its record.
    fn record(&self, task: Self::Task) -> &TaskRecord;

    /// Whether `waiter` cannot get the lock while `other` holds on.
    fn blocks(&self, other: Self::Task, waiter: Self::Task, lock: Lock, mode: Mode) -> bool;

    /// The tasks that may block `waiter`, in a wait for the lock.
    fn candidates(&self, waiter: Self::Task, lock: Lock) -> impl Iterator<Item = Self::Task>;

    /// Calls `visit` with each task that blocks `waiter`, until it returns true. Returns whether it did.
    fn any_that_blocks(
        &self,
        waiter: Self::Task,
        lock: Lock,
        mode: Mode,
        visit: impl FnMut(Self::Task) -> bool,
    ) -> bool {
        self.candidates(waiter, lock)
            .filter(|other| self.blocks(*other, waiter, lock, mode))
            .any(visit)
    }
}

/// Whether the task of a record keeps another task from getting the lock. (A private lock's address is meaningful only
/// in its process: the field must take care of that.)
pub(crate) fn record_blocks(record: &TaskRecord, lock: Lock, mode: Mode) -> bool {
    let holds = record.holds(lock.address() as u64).is_some_and(|place| {
        // Relaxed, here and below: the epochs confirm the values.
        let what = record.held[place].what.load(Ordering::Relaxed);
        mode == Mode::Exclusive || unpack(0, what).1 == Mode::Exclusive
    });
    let waits_ahead = mode == Mode::Shared
        && lock.traits.contains(crate::hook::Traits::WRITERS_FIRST)
        && wait_of(record).is_some_and(|wait| {
            wait.lock.address() == lock.address() && wait.mode == Mode::Exclusive
        });
    holds || waits_ahead
}

#[derive(Clone, Copy)]
struct PublishedWait {
    epoch: u32,
    lock: Lock,
    mode: Mode,
    timed: bool,
}

fn wait_of(record: &TaskRecord) -> Option<PublishedWait> {
    let wanted = &record.wanted;
    let epoch = wanted.waits()?;
    let what = wanted.what.load(Ordering::Relaxed);
    let (mut lock, mode) = unpack(wanted.lock.load(Ordering::Relaxed), what);
    let also = wanted.also.load(Ordering::Relaxed);
    let is_condition = also != 0;
    if is_condition {
        // Whether notified, not notified, or past its deadline, the task will need the mutex.
        lock = Lock::new(also as usize, Kind::Mutex);
    }
    Some(PublishedWait {
        epoch,
        lock,
        mode,
        timed: what & TIMED != 0 && !is_condition,
    })
}

/// A waiting task, and the path on which the search reached it.
#[derive(Clone, Copy)]
pub(crate) struct Link<T> {
    pub(crate) task: T,
    /// The epoch that identifies this wait of the task.
    pub(crate) epoch: u32,
    timed: bool,
    /// The task that waits for this one, and the task that this one waits for, where known: indices of links.
    before: u8,
    next: u8,
}

/// A cycle of tasks, each of which waits for the next one.
pub(crate) struct WaitCycle<T> {
    links: [Option<Link<T>>; MAX_LINKS],
    count: usize,
    last: usize,
}

impl<T: Copy> WaitCycle<T> {
    fn new() -> Self {
        Self {
            links: [const { None }; MAX_LINKS],
            count: 0,
            last: 0,
        }
    }

    /// The links, beginning with the calling task's.
    pub(crate) fn links(&self) -> impl Iterator<Item = Link<T>> {
        let mut at = Some(0);
        core::iter::from_fn(move || {
            let place = at?;
            let link = self.links[place]?;
            at = (place != self.last).then_some(usize::from(link.next));
            Some(link)
        })
    }

    /// Whether one of the waits ends at a deadline, and the cycle with it.
    pub(crate) fn ends(&self) -> bool {
        self.links().any(|link| link.timed)
    }
}

/// The result of a search.
pub(crate) struct SearchResult<T> {
    /// The cycle that the calling task has completed by publishing its wait.
    pub(crate) cycle: Option<WaitCycle<T>>,
    /// One of the tasks that it waits for.
    pub(crate) blocker: Option<T>,
}

/// Searches for a cycle. The calling task must have published its wait.
pub(crate) fn find_cycle<F: WaitGraph>(field: &F, me: F::Task) -> SearchResult<F::Task> {
    let mut blocker = None;
    // Usually none of the tasks that block a task waits itself: the holder runs, and there is no cycle.
    let may_be_one = wait_of(field.record(me)).is_some_and(|wait| {
        field.any_that_blocks(me, wait.lock, wait.mode, |other| {
            blocker.get_or_insert(other);
            field.record(other).wanted.waits().is_some()
        })
    });
    let cycle = if may_be_one {
        find_confirmed(field, me, &mut blocker)
    } else {
        None
    };
    SearchResult { cycle, blocker }
}

/// Not inlined, since the room for the links costs more than all else that most waits need here.
#[inline(never)]
fn find_confirmed<F: WaitGraph>(
    field: &F,
    me: F::Task,
    blocker: &mut Option<F::Task>,
) -> Option<WaitCycle<F::Task>> {
    let mut cycle = WaitCycle::new();
    for _ in 0..ROUNDS {
        if !cycle.search(field, me, blocker) {
            return None;
        }
        if cycle.is_confirmed(field) {
            return Some(cycle);
        }
    }
    None
}

impl<T: Copy + PartialEq> WaitCycle<T> {
    /// Breadth-first search from `me` along the waits, until a task waits for `me`.
    fn search<F: WaitGraph<Task = T>>(
        &mut self,
        field: &F,
        me: T,
        blocker: &mut Option<T>,
    ) -> bool {
        self.count = 0;
        self.add(field, me, 0);
        let mut place = 0;
        while let Some(link) = self.links[..self.count].get(place).copied().flatten() {
            let wait = wait_of(field.record(link.task)).filter(|wait| wait.epoch == link.epoch);
            let closes = wait.is_some_and(|wait| {
                field.any_that_blocks(link.task, wait.lock, wait.mode, |other| {
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

    /// Adds a task if it waits; a task that does not wait leads nowhere.
    fn add<F: WaitGraph<Task = T>>(&mut self, field: &F, task: T, before: usize) {
        let is_seen = |link: &Option<Link<T>>| link.is_some_and(|link| link.task == task);
        if self.count < MAX_LINKS
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

    /// The task at `last` waits for the first one: completes the cycle.
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

    /// Whether all of the waits go on.
    pub(crate) fn all_wait<F: WaitGraph<Task = T>>(&self, field: &F) -> bool {
        self.links()
            .all(|link| field.record(link.task).wanted.waits() == Some(link.epoch))
    }

    /// Reads again which task blocks which, and then whether all of them have waited throughout.
    fn is_confirmed<F: WaitGraph<Task = T>>(&self, field: &F) -> bool {
        let next = self.links().skip(1).chain(self.links().take(1));
        let block = self.links().zip(next).all(|(link, next)| {
            wait_of(field.record(link.task)).is_some_and(|wait| {
                wait.epoch == link.epoch && field.blocks(next.task, link.task, wait.lock, wait.mode)
            })
        });
        // Acquire: the reads above come before the reads of the epochs, which must be last.
        fence(Ordering::Acquire);
        block && self.all_wait(field)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::hook::record::pack;
    use core::cell::Cell;

    /// Tasks by number, one of which moves on while a cycle is confirmed.
    struct Overtaken {
        records: [TaskRecord; 4],
        moves_on: Cell<Option<usize>>,
    }

    impl Overtaken {
        fn holds(&self, task: usize, place: usize, lock: Lock, mode: Mode) {
            self.records[task].push(place, place + 1, |entry| {
                entry.write(lock.address() as u64, 0, 0, pack(lock, mode), 0);
            });
        }

        fn wants(&self, task: usize, lock: Lock) {
            let what = pack(lock, Mode::Exclusive);
            let wanted = &self.records[task].wanted;
            wanted.begin(lock.address() as u64, 0, 0, what, 0);
        }
    }

    impl WaitGraph for Overtaken {
        type Task = usize;

        fn record(&self, task: usize) -> &TaskRecord {
            &self.records[task]
        }

        fn blocks(&self, other: usize, waiter: usize, lock: Lock, mode: Mode) -> bool {
            if let Some(task) = self.moves_on.take() {
                self.records[task].wanted.end();
            }
            other != waiter && record_blocks(&self.records[other], lock, mode)
        }

        fn candidates(&self, _: usize, _: Lock) -> impl Iterator<Item = usize> {
            0..self.records.len()
        }

        // Unlike `blocks`, it lets no task move on.
        fn any_that_blocks(
            &self,
            waiter: usize,
            lock: Lock,
            mode: Mode,
            visit: impl FnMut(usize) -> bool,
        ) -> bool {
            self.candidates(waiter, lock)
                .filter(|other| {
                    *other != waiter && record_blocks(&self.records[*other], lock, mode)
                })
                .any(visit)
        }
    }

    /// Task 0 waits for the readers 1 and 2, both for task 3, and that for task 0.
    #[test]
    fn cycle_behind_one_that_just_ended_is_found() {
        for goes in [1, 2] {
            let field = Overtaken {
                records: core::array::from_fn(|_| TaskRecord::default()),
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
            let cycle = find_cycle(&field, 0).cycle.expect("the other cycle");
            let tasks: Vec<_> = cycle.links().map(|link| link.task).collect();
            assert_eq!(tasks, [0, 3 - goes, 3], "task {goes} moves on");
        }
    }
}
