//! The checker's search for wait-for cycles, for models.

#[path = "check/detect/cycle.rs"]
pub(crate) mod cycle;

use crate::atomic::{AtomicU32, Ordering, unless_fault};
use crate::hook::record::pack;
use crate::hook::{Kind, Lock, Mode, TaskRecord};
use cycle::WaitGraph;

/// Tasks that hold locks and wait for them, each identified by its number.
#[derive(Debug)]
pub struct Tasks {
    records: Vec<TaskRecord>,
    /// For each lock the number + 1 of the task that last stated, before a wait, that it holds the lock; empty
    /// if the search finds owners without that.
    stated: Vec<AtomicU32>,
}

const fn lock(number: usize) -> Lock {
    Lock::new(number + 1, Kind::Mutex)
}

impl Tasks {
    /// Creates `count` tasks that hold nothing.
    pub fn new(count: usize) -> Self {
        Self {
            records: (0..count).map(|_| TaskRecord::default()).collect(),
            stated: Vec::new(),
        }
    }

    /// The same, with locks whose owners state before a wait that they hold them; the search finds owners by
    /// these statements.
    pub fn with_stated_holders(count: usize) -> Self {
        Self {
            stated: (0..count).map(|_| AtomicU32::new(0)).collect(),
            ..Self::new(count)
        }
    }

    /// Called when a task that may hold a lock begins to wait for another one, or is about to: it states what it holds.
    fn states_holder(&self, task: usize) {
        // Relaxed: the record is the task's own.
        let held = self.records[task].held[0].lock.load(Ordering::Relaxed) as usize;
        let stated = held.checked_sub(1).and_then(|lock| self.stated.get(lock));
        if let Some(stated) = stated {
            // Relaxed: it precedes the wait, which is published with Release.
            stated.store(task as u32 + 1, Ordering::Relaxed);
        }
    }

    /// A task has acquired a lock.
    pub fn takes(&self, task: usize, number: usize) {
        let what = pack(lock(number), Mode::Exclusive);
        self.records[task].push(0, 1, |entry| {
            entry.write(lock(number).address() as u64, 0, 0, what, 0);
        });
    }

    /// A task is about to release a lock.
    pub fn releases(&self, task: usize) {
        self.records[task].pop(0, 0);
    }

    /// A task is about to wait for a lock; returns whether that completes a wait-for cycle.
    pub fn completes_cycle_by_waiting_for(&self, task: usize, number: usize) -> bool {
        let wanted = lock(number);
        let what = pack(wanted, Mode::Exclusive);
        let is_late = unless_fault!(CheckHolderSaidLate, false, true);
        if !is_late {
            self.states_holder(task);
        }
        self.records[task]
            .wanted
            .begin(wanted.address() as u64, 0, 0, what, 0);
        let closes = cycle::find_cycle(self, task).cycle.is_some();
        if is_late {
            self.states_holder(task);
        }
        closes
    }

    /// A task no longer waits.
    pub fn gives_up(&self, task: usize) {
        self.records[task].wanted.end();
    }
}

impl WaitGraph for Tasks {
    type Task = usize;

    fn record(&self, task: usize) -> &TaskRecord {
        &self.records[task]
    }

    fn blocks(&self, other: usize, waiter: usize, lock: Lock, mode: Mode) -> bool {
        other != waiter && cycle::record_blocks(&self.records[other], lock, mode)
    }

    fn candidates(&self, _: usize, lock: Lock) -> impl Iterator<Item = usize> {
        // Relaxed: a statement that precedes a published wait is visible. The value is a hint that is compared with the
        // record.
        let stated = self.stated.get(lock.address() - 1);
        let stated = stated.map(|task| (task.load(Ordering::Relaxed) as usize).checked_sub(1));
        let is_stated = move |task: &usize| stated.is_none_or(|stated| stated == Some(*task));
        (0..self.records.len()).filter(is_stated)
    }
}
