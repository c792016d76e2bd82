//! Conclusions from the wait-for graph: gates (the queueing mutexes in front of locks), cycles, priority inversions.

mod cycle;
#[cfg(test)]
mod tests;

use super::gather::Gathering;
use super::picture::{Kind, Location, Picture, Role, Task};
use super::sleep::Call;

impl Gathering {
    /// Draws the conclusions.
    pub(super) fn conclude(mut self) -> Picture {
        self.merge_gates();
        self.find_cycles();
        let picture = &mut self.picture;
        picture.find_inversions();
        let keep: Vec<bool> = picture
            .locks
            .iter()
            .map(|lock| {
                let has_owner = !lock.owners.is_empty() || lock.unseen_owner.is_some();
                has_owner || !lock.waiters.is_empty() || lock.flags.any() || is_listed(lock.kind)
            })
            .collect();
        picture.retain_locks(&keep);
        self.picture
    }

    /// A task that waits at the gate of a lock waits for the lock: a gate is a word beside the word that the gate's
    /// owner sleeps on.
    fn merge_gates(&mut self) {
        /// The distances of gates from the lock words in this library's mutexes.
        const DISTANCES: [u64; 2] = [4, 8];
        for gate in 0..self.picture.locks.len() {
            let entry = &self.picture.locks[gate];
            let by_kernel = entry.kind == Kind::PiWord;
            if !(by_kernel || entry.kind == Kind::OwnedWord) {
                continue;
            }
            let Some(&owner) = entry.owners.first() else {
                continue;
            };
            let Some(&lock) = self.picture.tasks[owner].waits_for.first() else {
                continue;
            };
            let target = &self.picture.locks[lock];
            let call = self.asleep.get(&owner).and_then(|asleep| asleep.call());
            let behind = entry.address.wrapping_sub(target.address);
            if lock == gate
                || entry.pid != target.pid
                || !DISTANCES.contains(&behind)
                || (call == Some(Call::LockPi)) != by_kernel
            {
                continue;
            }
            let waiters = std::mem::take(&mut self.picture.locks[gate].waiters);
            self.picture.locks[gate].owners.clear();
            for waiter in waiters {
                if let Some(asleep) = self.asleep.get_mut(&waiter.task) {
                    asleep.behind = asleep.behind.map(|_| behind);
                }
                self.picture.tasks[waiter.task]
                    .waits_for
                    .retain(|waited| *waited != gate);
                self.add_waiter(lock, waiter);
            }
        }
    }
}

/// Whether a lock of this kind is listed even without owner and waiters.
fn is_listed(kind: Kind) -> bool {
    matches!(kind, Kind::Semaphore(_) | Kind::PriorityMutex | Kind::Queue)
}

impl Picture {
    /// Marks the locks whose owner has a lower priority than a waiter, and is not lent the waiter's.
    fn find_inversions(&mut self) {
        let tasks = &self.tasks;
        for lock in &mut self.locks {
            let Some(owner) = lock.owners.first().map(|owner| &tasks[*owner]) else {
                continue;
            };
            if !lock.kind.is_lock() || lock.kind == Kind::ThreadEnd {
                continue;
            }
            let waiters = || {
                lock.waiters
                    .iter()
                    .filter(|waiter| matches!(waiter.role, Role::Exclusive | Role::Shared))
                    .map(|waiter| &tasks[waiter.task])
            };
            let real_time = |rank: Option<i32>| rank.unwrap_or(0);
            let by_kernel = waiters()
                .map(|task| real_time(task.schedule.map(|schedule| schedule.rank)))
                .max()
                > Some(real_time(owner.schedule.map(|schedule| schedule.rank)));
            // In a region the recorded priorities count, too: 1 is the highest.
            let recorded = |task: &Task, region: usize| {
                task.memberships
                    .iter()
                    .find(|membership| membership.region == region)
                    .map(|membership| membership.priority)
            };
            let by_record = match lock.place {
                Location::Region { region, .. } => recorded(owner, region).is_some_and(|own| {
                    waiters()
                        .filter_map(|task| recorded(task, region))
                        .any(|waiter| waiter < own)
                }),
                _ => false,
            };
            lock.flags.inversion = by_kernel || by_record;
        }
    }
}
