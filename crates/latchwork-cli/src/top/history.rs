//! Values that need more than one view.

use super::watch::View;
use crate::live::Key;
use std::collections::HashMap;
use std::time::Instant;

/// The weight of a new view in a moving average.
const WEIGHT: f64 = 0.2;

/// Values that need more than one view.
#[derive(Default)]
pub(super) struct History {
    taken_at: Option<Instant>,
    /// For each thread: its ticks at the last view, and its percentage of a processor.
    tasks: HashMap<(u32, u32), (u64, f64)>,
    /// The average number of waiters of a lock, over the last views.
    contention: HashMap<Key, f64>,
}

impl History {
    pub(super) fn learn(&mut self, view: &View) {
        let elapsed = self
            .taken_at
            .replace(view.taken_at)
            .map(|last| view.taken_at.saturating_duration_since(last).as_secs_f64());
        let ticks_a_second = rustix::param::clock_ticks_per_second() as f64;
        let before = std::mem::take(&mut self.tasks);
        for task in view.picture.tasks.iter().filter(|task| !task.is_elsewhere) {
            let key = (task.pid, task.tid);
            let used = before.get(&key).zip(elapsed).map(|((ticks, _), elapsed)| {
                let ticks = task.ticks.saturating_sub(*ticks) as f64;
                100.0 * ticks / ticks_a_second / elapsed.max(1e-3)
            });
            self.tasks.insert(key, (task.ticks, used.unwrap_or(0.0)));
        }
        let before = std::mem::take(&mut self.contention);
        for lock in &view.picture.locks {
            let now = lock.waiters.len() as f64;
            let average = before
                .get(&lock.key)
                .map_or(now, |average| average + WEIGHT * (now - average));
            self.contention.insert(lock.key, average);
        }
    }

    /// The percentage of a processor that a thread has used since the last view.
    pub(super) fn percent(&self, pid: u32, tid: u32) -> f64 {
        self.tasks.get(&(pid, tid)).map_or(0.0, |(_, used)| *used)
    }

    pub(super) fn contention(&self, lock: &Key) -> f64 {
        self.contention.get(lock).copied().unwrap_or(0.0)
    }
}
