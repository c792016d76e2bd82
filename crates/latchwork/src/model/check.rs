//! The checker's search for circles of waits, for models.

#[path = "../check/circle.rs"]
pub(crate) mod circle;

use crate::hook::record::pack;
use crate::hook::{Kind, Lock, Mode, TaskRecord};
use circle::Field;

/// Tasks that hold and want locks, each by its number.
#[derive(Debug)]
pub struct Tasks {
    records: Vec<TaskRecord>,
}

const fn lock(number: usize) -> Lock {
    Lock::new(number + 1, Kind::Mutex)
}

impl Tasks {
    /// So many, which hold nothing.
    pub fn new(count: usize) -> Self {
        Self {
            records: (0..count).map(|_| TaskRecord::new()).collect(),
        }
    }

    /// A task has taken a lock.
    pub fn takes(&self, task: usize, number: usize) {
        let what = pack(lock(number), Mode::Exclusive);
        self.records[task].push(0, 1, |entry| {
            entry.write(lock(number).address as u64, 0, 0, what, 0);
        });
    }

    /// It is about to release it.
    pub fn releases(&self, task: usize) {
        self.records[task].pop(0, 0);
    }

    /// It is about to wait for a lock; whether that closes a circle.
    pub fn closes_by_waiting_for(&self, task: usize, number: usize) -> bool {
        let wanted = lock(number);
        let what = pack(wanted, Mode::Exclusive);
        self.records[task]
            .wanted
            .begin(wanted.address as u64, 0, 0, what, 0);
        circle::look(&self, task).circle.is_some()
    }

    /// It does not wait any more.
    pub fn gives_up(&self, task: usize) {
        self.records[task].wanted.end();
    }
}

impl Field for &Tasks {
    type Task = usize;

    fn record(&self, task: usize) -> &TaskRecord {
        &self.records[task]
    }

    fn blocks(&self, other: usize, waiter: usize, lock: Lock, mode: Mode) -> bool {
        other != waiter && circle::keeps(&self.records[other], lock, mode)
    }

    fn any_that_blocks(
        &self,
        waiter: usize,
        lock: Lock,
        mode: Mode,
        visit: &mut dyn FnMut(usize) -> bool,
    ) -> bool {
        (0..self.records.len())
            .filter(|other| self.blocks(*other, waiter, lock, mode))
            .any(visit)
    }
}
