//! What follows from who waits for whom: gates, circles, priorities upside down.

use super::gather::Gathering;
use super::picture::{Kind, Picture, Role};
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
                let is_somebodys = !lock.owners.is_empty() || lock.unseen_owner.is_some();
                is_somebodys || !lock.waiters.is_empty() || lock.flags.any() || is_listed(lock.kind)
            })
            .collect();
        picture.retain_locks(&keep);
        self.picture
    }

    /// Who waits at the gate of a lock waits for the lock: a gate is a word beside another one that the gate's
    /// owner sleeps on.
    fn merge_gates(&mut self) {
        /// Where gates stand in this library's mutexes.
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
            let beside = DISTANCES
                .iter()
                .any(|distance| entry.address == target.address.wrapping_add(*distance));
            if lock == gate
                || entry.pid != target.pid
                || !beside
                || (call == Some(Call::LockPi)) != by_kernel
            {
                continue;
            }
            let waiters = std::mem::take(&mut self.picture.locks[gate].waiters);
            self.picture.locks[gate].owners.clear();
            for waiter in waiters {
                self.picture.tasks[waiter.task]
                    .waits_for
                    .retain(|waited| *waited != gate);
                self.add_waiter(lock, waiter);
            }
        }
    }

    /// Finds the circles of waits. Of tasks that were looked at one after the other, each asleep, the waits may
    /// never have been at once; so all of a circle are looked at again: if none has run since, there was a
    /// moment in between at which the circle stood.
    fn find_cycles(&mut self) {
        let picture = &self.picture;
        // The lock that a task waits for, and who has it.
        let next = |task: usize| {
            let [lock] = picture.tasks[task].waits_for[..] else {
                return None;
            };
            let [owner] = picture.locks[lock].owners[..] else {
                return None;
            };
            picture.locks[lock].kind.is_lock().then_some((lock, owner))
        };
        let mut round = vec![0; picture.tasks.len()];
        let mut cycles = Vec::new();
        for start in 0..picture.tasks.len() {
            let mut task = start;
            // Each task is gone through once.
            while round[task] == 0 {
                round[task] = start + 1;
                match next(task) {
                    Some((_, owner)) => task = owner,
                    None => break,
                }
            }
            if round[task] != start + 1 || next(task).is_none() {
                continue;
            }
            let mut cycle = Vec::new();
            let mut member = task;
            while let Some((lock, owner)) = next(member) {
                cycle.push((member, lock));
                member = owner;
                if member == task {
                    break;
                }
            }
            cycles.push(cycle);
        }
        cycles.retain(|cycle| cycle.iter().all(|(task, _)| self.still_waits(*task)));
        for (_, lock) in cycles.iter().flatten() {
            self.picture.locks[*lock].flags.cycle = true;
        }
        self.picture.cycles = cycles;
    }

    /// Whether a task has not run since it was looked at. One whose thread is not to be seen is believed.
    fn still_waits(&self, task: usize) -> bool {
        let pid = self.picture.tasks[task].pid;
        self.asleep
            .get(&task)
            .is_none_or(|asleep| asleep.thread.is_still_asleep(pid, asleep.turns))
    }
}

/// Whether it is shown when nobody has it or waits for it, too.
fn is_listed(kind: Kind) -> bool {
    matches!(kind, Kind::Semaphore(_) | Kind::Queue)
}

impl Picture {
    /// Marks the locks whose owner stands below a waiter, and is not lent its priority.
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
            let recorded = |task: &super::picture::Task, region: usize| {
                task.memberships
                    .iter()
                    .find(|membership| membership.region == region)
                    .map(|membership| membership.priority)
            };
            let by_record = match lock.place {
                super::picture::Place::Region { region, .. } => recorded(owner, region)
                    .is_some_and(|own| {
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
