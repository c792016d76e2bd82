//! What follows from who waits for whom: gates, circles, priorities upside down.

use super::gather::Gathering;
use super::picture::{Kind, Picture, Role, State, Waiter};
use super::sleep::Call;
use std::collections::BTreeSet;

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

    /// Finds circles of waits: of tasks that wait for each other, one at least. Of tasks that were looked at one after
    /// the other, each asleep, the waits may never have been at once; so all of a circle are looked at again: if none
    /// has run since, there was a moment in between at which the circle stood. Else it is looked for without who has.
    fn find_cycles(&mut self) {
        let mut has_run = vec![false; self.picture.tasks.len()];
        let cycles = loop {
            let cycles = self.picture.cycles_without(&has_run);
            let concerned: BTreeSet<_> = cycles.iter().flatten().map(|(task, _)| *task).collect();
            let mut is_still = true;
            for task in concerned {
                if !self.still_waits(task) {
                    has_run[task] = true;
                    is_still = false;
                }
            }
            if is_still {
                break cycles;
            }
        };
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
    /// The lock that a task waits for, and who all must have gone before it has it: one who is in a circle with it is
    /// enough. Of several words any one ends the wait.
    fn blockers(&self, task: usize) -> Option<(usize, &[usize])> {
        let [index] = self.tasks[task].waits_for[..] else {
            return None;
        };
        let lock = &self.locks[index];
        let reads = |waiter: &Waiter| waiter.task == task && waiter.role == Role::Shared;
        // Readers are not in each other's way.
        let is_free = matches!(lock.state, State::Read(_)) && lock.waiters.iter().any(reads);
        (lock.kind.is_lock() && !is_free).then_some((index, &lock.owners))
    }

    /// Circles of tasks of which none is one of these, each with the lock that it waits for.
    fn cycles_without(&self, excluded: &[bool]) -> Vec<Vec<(usize, usize)>> {
        /// Tasks of all circles together, so that a picture in which all wait for all can be shown.
        const MOST: usize = 100_000;
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            /// At this place of the path.
            OnPath(usize),
            Done,
        }
        let mut states = vec![State::New; self.tasks.len()];
        let mut cycles: Vec<Vec<(usize, usize)>> = Vec::new();
        let mut left = MOST;
        for start in 0..self.tasks.len() {
            // Each task, and whom it was followed to so far.
            let mut path: Vec<(usize, usize)> = Vec::new();
            let mut next = Some(start);
            loop {
                match next.take().map(|task| (task, states[task])) {
                    Some((task, State::New)) if !excluded[task] => {
                        states[task] = State::OnPath(path.len());
                        path.push((task, 0));
                    }
                    Some((_, State::OnPath(place))) => {
                        let cycle = &path[place..];
                        if cycle.len() <= left {
                            left -= cycle.len();
                            let link =
                                |(task, _): &(usize, usize)| Some((*task, self.blockers(*task)?.0));
                            cycles.push(cycle.iter().filter_map(link).collect());
                        }
                    }
                    _ => {}
                }
                let Some((task, followed)) = path.last_mut() else {
                    break;
                };
                let owners = self.blockers(*task).map_or(&[][..], |(_, owners)| owners);
                next = owners.get(*followed).copied();
                *followed += 1;
                if next.is_none() {
                    states[*task] = State::Done;
                    path.pop();
                }
            }
        }
        cycles
    }

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
