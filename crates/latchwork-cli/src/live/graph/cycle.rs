//! Cycles in the wait-for graph, each of which existed at some moment.
//!
//! *A cycle is reported only if there was a moment at which it existed.* Tasks are read one after the other; each of
//! them may have been asleep when it was read, though they never all were at once (two tasks that pass locks to and fro
//! sometimes look like that). So a cycle is only a suspicion at first. For each of its tasks the first reading records
//! how many times the task was given a processor (its *turns*), then the word that the task sleeps on, then the owner
//! of the lock. Later the turns and the call of all tasks of the cycle are read once more:
//!
//! 1. Each of the records was made before any of the second readings.
//! 2. A task with the same turns has not run between the two. So it slept, on that word, for all of the time between.
//! 3. A task that has not run has released nothing. The owner of each lock was read after the owner's turns; so it was
//!    the owner up to the second reading.
//!
//! By 1 these time spans have a part in common. In it all of the tasks slept, each for a lock that the next one owned.
//!
//! *Naps.* A waiter of a robust lock, or a throughput lock, sleeps with a time limit, checks the word and sleeps again.
//! The end of such a nap is a turn, which invalidates the proof but not the cycle. It is not enough that such a task
//! sleeps on the same word again, and that the word names the same owner: in between it may have acquired the lock,
//! released it, and come back. So three steps follow. The records of that task are taken again (the task must sleep in
//! the same way on the same word, or on the lock's own if it slept at the lock's gate, which it leaves when its nap
//! ends). Then the owners of its own lock and of the lock that it waits for are read again (these must be the same).
//! Then the second reading of *all* tasks of the cycle is repeated. This is the proof above, from later records: 1
//! holds since the readings that count are those of the last round, 2 and 3 as before. A round reads two small files of
//! each task, while naps last at least 50 ms; so one of a few rounds contains no end of a nap, unless the cycle has
//! very many tasks: such a cycle is not reported. A wait that cannot be recorded again (for several words, or one that
//! is known from a board or a region's table) must not have run since the first reading.
//!
//! A waiter whose nap ends at the very moment of the first reading runs, and is not seen to wait: the next view shows
//! it.

use crate::live::gather::{Gathering, Reread};
use crate::live::picture::{Picture, Role, State, Waiter};
use crate::live::thread::Thread;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

impl Gathering {
    /// Finds cycles of waits, of at least one task, each of which existed at some moment (see the head of this file).
    /// After a rejected cycle, the search is repeated without the tasks that have run.
    pub(super) fn find_cycles(&mut self) {
        let mut pauses = PauseLimit::default();
        let mut has_run = vec![false; self.picture.tasks.len()];
        let mut confirmed = BTreeSet::new();
        loop {
            let mut is_settled = true;
            for mut cycle in self.picture.cycles_without(&has_run) {
                // Where it begins is arbitrary.
                let first = (0..cycle.len()).min_by_key(|place| cycle[*place]);
                cycle.rotate_left(first.unwrap_or(0));
                if confirmed.contains(&cycle) {
                    continue;
                }
                match self.confirm(&cycle, &mut pauses) {
                    Ok(()) => _ = confirmed.insert(cycle),
                    Err(have_run) => {
                        have_run.into_iter().for_each(|task| has_run[task] = true);
                        is_settled = false;
                    }
                }
            }
            if is_settled {
                break;
            }
        }
        for (_, lock) in confirmed.iter().flatten() {
            self.picture.locks[*lock].flags.cycle = true;
        }
        self.picture.cycles = confirmed.into_iter().collect();
    }

    /// Whether there was a moment at which a cycle existed; otherwise returns its tasks that have gone on, or may have.
    /// A task whose thread cannot be read is assumed to wait.
    fn confirm(&self, cycle: &[(usize, usize)], pauses: &mut PauseLimit) -> Result<(), Vec<usize>> {
        let task = |place: usize| cycle[place % cycle.len()].0;
        let mut notes: Vec<_> = cycle
            .iter()
            .map(|(task, _)| {
                let seen = self.asleep.get(task)?;
                Some((seen.thread.clone(), seen.turns))
            })
            .collect();
        let mut rounds = 0..ROUNDS;
        loop {
            let has_run = |(place, note): (usize, &Option<(Thread, Option<u64>)>)| {
                let pid = self.picture.tasks[task(place)].pid;
                note.as_ref()
                    .is_some_and(|(thread, turns)| !thread.is_still_asleep(pid, *turns))
            };
            let has_run: Vec<bool> = notes.iter().enumerate().map(has_run).collect();
            let have_run = (0..cycle.len()).filter(|place| has_run[*place]);
            let have_run: Vec<usize> = have_run.collect();
            if have_run.is_empty() {
                return Ok(());
            }
            if rounds.next().is_none() {
                return Err(have_run.into_iter().map(task).collect());
            }
            let mut does_one_run = false;
            for &place in &have_run {
                match self.reread(task(place)) {
                    Reread::Asleep(thread, turns) => notes[place] = Some((thread, turns)),
                    Reread::Runs => does_one_run = true,
                    Reread::Elsewhere => return Err(vec![task(place)]),
                }
            }
            // After the turns of both: the waiter's and, at the next index, the owner's.
            for place in 0..cycle.len() {
                let next = (place + 1) % cycle.len();
                if (has_run[place] || has_run[next])
                    && !self.is_still_owner(task(place), task(next))
                {
                    return Err(vec![task(place)]);
                }
            }
            if does_one_run && !pauses.pause() {
                return Err(have_run.into_iter().map(task).collect());
            }
        }
    }
}

/// How many times the tasks of a cycle are recorded again.
const ROUNDS: usize = 16;

/// A limit on the pauses for tasks that run while their cycle is confirmed, for all cycles of a view together.
struct PauseLimit(std::ops::Range<usize>);

impl Default for PauseLimit {
    fn default() -> Self {
        Self(0..50)
    }
}

impl PauseLimit {
    /// Waits for a moment, if the limit allows it.
    fn pause(&mut self) -> bool {
        let is_left = self.0.next().is_some();
        if is_left {
            thread::sleep(Duration::from_millis(1));
        }
        is_left
    }
}

impl Picture {
    /// The lock that a task waits for, and the tasks that must all release it first: one of them that is in a cycle
    /// with the task is enough. If a task waits for several words, any one ends the wait, so there is no such lock.
    fn blockers(&self, task: usize) -> Option<(usize, &[usize])> {
        let [index] = self.tasks[task].waits_for[..] else {
            return None;
        };
        let lock = &self.locks[index];
        let reads = |waiter: &Waiter| waiter.task == task && waiter.role == Role::Shared;
        // Readers do not block each other.
        let is_free = matches!(lock.state, State::Read(_)) && lock.waiters.iter().any(reads);
        (lock.kind.is_lock() && !is_free).then_some((index, &lock.owners))
    }

    /// Cycles of tasks without the excluded ones, each task with the lock that it waits for.
    pub(super) fn cycles_without(&self, excluded: &[bool]) -> Vec<Vec<(usize, usize)>> {
        /// The most tasks in all cycles together, so that a picture in which all wait for all can be shown.
        const MOST: usize = 100_000;
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            /// At this index of the path.
            OnPath(usize),
            Done,
        }
        let mut states = vec![State::New; self.tasks.len()];
        let mut cycles: Vec<Vec<(usize, usize)>> = Vec::new();
        let mut left = MOST;
        for start in 0..self.tasks.len() {
            // Each task, and how many of its blockers were followed.
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
}
