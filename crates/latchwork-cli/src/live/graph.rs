//! Conclusions from the wait-for graph: gates (the queueing mutexes in front of locks), cycles, priority inversions.
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

use super::gather::{Again, Gathering};
use super::picture::{Kind, Picture, Role, State, Waiter};
use super::sleep::Call;
use super::thread::Thread;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

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

    /// Finds cycles of waits, of at least one task, each of which existed at some moment (see the head of this file).
    /// After a rejected cycle, the search is repeated without the tasks that have run.
    fn find_cycles(&mut self) {
        let mut patience = Patience::default();
        let mut has_run = vec![false; self.picture.tasks.len()];
        let mut found = BTreeSet::new();
        loop {
            let mut is_settled = true;
            for mut cycle in self.picture.cycles_without(&has_run) {
                // Where it begins is arbitrary.
                let first = (0..cycle.len()).min_by_key(|place| cycle[*place]);
                cycle.rotate_left(first.unwrap_or(0));
                if found.contains(&cycle) {
                    continue;
                }
                match self.confirm(&cycle, &mut patience) {
                    Ok(()) => _ = found.insert(cycle),
                    Err(gone) => {
                        gone.into_iter().for_each(|task| has_run[task] = true);
                        is_settled = false;
                    }
                }
            }
            if is_settled {
                break;
            }
        }
        for (_, lock) in found.iter().flatten() {
            self.picture.locks[*lock].flags.cycle = true;
        }
        self.picture.cycles = found.into_iter().collect();
    }

    /// Whether there was a moment at which a cycle existed; otherwise returns its tasks that have gone on, or may have.
    /// A task whose thread cannot be read is assumed to wait.
    fn confirm(&self, cycle: &[(usize, usize)], patience: &mut Patience) -> Result<(), Vec<usize>> {
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
                match self.look_again(task(place)) {
                    Again::Asleep(thread, turns) => notes[place] = Some((thread, turns)),
                    Again::Runs => does_one_run = true,
                    Again::Elsewhere => return Err(vec![task(place)]),
                }
            }
            // After the turns of both: the waiter's and, at the next index, the owner's.
            for place in 0..cycle.len() {
                let next = (place + 1) % cycle.len();
                if (has_run[place] || has_run[next])
                    && !self.is_owner_again(task(place), task(next))
                {
                    return Err(vec![task(place)]);
                }
            }
            if does_one_run && !patience.pause() {
                return Err(have_run.into_iter().map(task).collect());
            }
        }
    }
}

/// How many times the tasks of a cycle are recorded again.
const ROUNDS: usize = 16;

/// A limit on the pauses for tasks that run while their cycle is confirmed, for all cycles of a view together.
struct Patience(std::ops::Range<usize>);

impl Default for Patience {
    fn default() -> Self {
        Self(0..50)
    }
}

impl Patience {
    /// Waits for a moment, if the limit allows it.
    fn pause(&mut self) -> bool {
        let is_left = self.0.next().is_some();
        if is_left {
            thread::sleep(Duration::from_millis(1));
        }
        is_left
    }
}

/// Whether a lock of this kind is listed even without owner and waiters.
fn is_listed(kind: Kind) -> bool {
    matches!(kind, Kind::Semaphore(_) | Kind::Queue)
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
    fn cycles_without(&self, excluded: &[bool]) -> Vec<Vec<(usize, usize)>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork::mutex::{Mutex, Robust, Throughput};
    use latchwork::sharing::Shared;
    use latchwork_testkit::Watchdog;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::pin::Pin;
    use std::process::{Child, ChildStdout, Command, Stdio};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};

    const ROLE: &str = "LATCHWORK_TEST_CYCLE";

    /// A program that waits, until it is dropped.
    struct Actor {
        child: Child,
        stdout: BufReader<ChildStdout>,
    }

    impl Actor {
        fn start(role: &str) -> Self {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "live::graph::tests::plays_a_part", "--nocapture"]);
            command.env(ROLE, role);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let stdout = BufReader::new(child.stdout.take().unwrap());
            let mut actor = Self { child, stdout };
            actor.until_it_says("ready");
            actor
        }

        fn until_it_says(&mut self, word: &str) {
            let mut lines = self.stdout.by_ref().lines().map_while(Result::ok);
            assert!(lines.any(|line| line.ends_with(word)), "the actor failed");
        }

        fn move_on(&mut self) {
            let stdin = self.child.stdin.as_mut().unwrap();
            stdin.write_all(b"go\n").unwrap();
            self.until_it_says("moved");
        }

        /// A view in which its tasks are suspected of a deadlock, with those tasks.
        fn suspected(&self) -> (Gathering, Vec<usize>) {
            let watchdog = Watchdog::start("the suspicion never comes up".into());
            loop {
                let mut gathering = Gathering::all();
                gathering.merge_gates();
                let picture = &gathering.picture;
                let none = vec![false; picture.tasks.len()];
                let cycles = picture.cycles_without(&none);
                // (A task that acquires a gate between the reading of its call and that of the word seems to wait for
                // itself.)
                let own =
                    |cycle: &Vec<(usize, usize)>| cycle.len() == 2 && self.is_own(picture, cycle);
                if let Some(cycle) = cycles.into_iter().find(own) {
                    drop(watchdog);
                    return (gathering, cycle.into_iter().map(|(task, _)| task).collect());
                }
                thread::yield_now();
            }
        }

        fn is_own(&self, picture: &Picture, cycle: &[(usize, usize)]) -> bool {
            let pid = |(task, _): &(usize, usize)| picture.tasks[*task].pid;
            cycle.iter().all(|step| pid(step) == self.child.id())
        }
    }

    impl Drop for Actor {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// Not a test: the program that an [`Actor`] runs.
    #[test]
    fn plays_a_part() {
        match std::env::var(ROLE).as_deref() {
            Ok("naps") => naps(),
            Ok("gate") => gate(),
            Ok("leaves") => leaves(false),
            Ok("leaves and comes back") => leaves(true),
            _ => return,
        }
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    }

    fn naps() {
        static LOCKS: [Mutex<(), Robust>; 2] = [const { Mutex::robust(()) }; 2];
        static ALL_HOLD: Barrier = Barrier::new(3);
        for own in 0..2 {
            thread::spawn(move || {
                let _own = Pin::static_ref(&LOCKS[own]).lock();
                ALL_HOLD.wait();
                drop(Pin::static_ref(&LOCKS[1 - own]).lock());
            });
        }
        ALL_HOLD.wait();
        println!("ready");
    }

    /// As above, but one of the two usually waits at a gate, behind a third task.
    fn gate() {
        type Lock = Mutex<(), Robust<Throughput<Shared>>>;
        static LOCKS: [Lock; 2] = [const { Mutex::robust_throughput(()) }; 2];
        static ALL_HOLD: Barrier = Barrier::new(3);
        static IS_TAKEN: AtomicBool = AtomicBool::new(false);
        thread::spawn(|| {
            ALL_HOLD.wait();
            IS_TAKEN.store(true, Ordering::Release);
            drop(Pin::static_ref(&LOCKS[1]).lock());
        });
        for own in 0..2 {
            thread::spawn(move || {
                let _own = Pin::static_ref(&LOCKS[own]).lock();
                ALL_HOLD.wait();
                while !IS_TAKEN.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                // The delay usually lets the third task come first.
                thread::sleep(Duration::from_millis(200));
                drop(Pin::static_ref(&LOCKS[1 - own]).lock());
            });
        }
        println!("ready");
    }

    /// Two tasks seem to be in a deadlock, and are not: their waits end. They then wait for the same locks again, one
    /// of which a third task has acquired meanwhile, or one of them waits for nothing more.
    fn leaves(and_comes_back: bool) {
        static LOCKS: [Mutex<(), Robust>; 2] = [const { Mutex::robust(()) }; 2];
        static ALL_HOLD: Barrier = Barrier::new(3);
        static HAVE_LEFT: Barrier = Barrier::new(3);
        static IS_PASSED_ON: Barrier = Barrier::new(3);
        static LEAVE: AtomicBool = AtomicBool::new(false);
        let wait = |lock: usize| {
            let lock = Pin::static_ref(&LOCKS[lock]);
            while !LEAVE.load(Ordering::Acquire) {
                assert!(lock.lock_for(Duration::from_millis(50)).is_err());
            }
        };
        thread::spawn(move || {
            let own = Pin::static_ref(&LOCKS[0]).lock();
            ALL_HOLD.wait();
            wait(1);
            HAVE_LEFT.wait();
            drop(own);
            IS_PASSED_ON.wait();
            drop(Pin::static_ref(&LOCKS[1]).lock());
        });
        thread::spawn(move || {
            let _own = Pin::static_ref(&LOCKS[1]).lock();
            ALL_HOLD.wait();
            wait(0);
            HAVE_LEFT.wait();
            IS_PASSED_ON.wait();
            if and_comes_back {
                drop(Pin::static_ref(&LOCKS[0]).lock());
            }
            loop {
                thread::park();
            }
        });
        ALL_HOLD.wait();
        println!("ready");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        LEAVE.store(true, Ordering::Release);
        HAVE_LEFT.wait();
        let _passed_on = Pin::static_ref(&LOCKS[0]).lock();
        IS_PASSED_ON.wait();
        println!("moved");
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    }

    #[test]
    fn a_deadlock_is_found_though_all_of_its_naps_have_ended_since() {
        for role in ["naps", "gate"] {
            let actor = Actor::start(role);
            let (gathering, tasks) = actor.suspected();
            let watchdog = Watchdog::start("no nap ever ends".into());
            for task in tasks {
                let seen = &gathering.asleep[&task];
                while seen.thread.is_still_asleep(actor.child.id(), seen.turns) {
                    thread::yield_now();
                }
            }
            drop(watchdog);
            let picture = gathering.conclude();
            let own = |cycle: &Vec<_>| actor.is_own(&picture, cycle);
            assert!(picture.cycles.iter().any(own), "{role}");
        }
    }

    #[test]
    fn a_deadlock_that_never_was_is_not_found() {
        for (role, count) in [("leaves", 1), ("leaves and comes back", 2)] {
            let mut actor = Actor::start(role);
            let (gathering, tasks) = actor.suspected();
            actor.move_on();
            // Waits until each task waits as before, as far as that can be seen of it alone.
            let watchdog = Watchdog::start("they never come back".into());
            let is_back = |task: &usize| matches!(gathering.look_again(*task), Again::Asleep(..));
            while tasks.iter().filter(|task| is_back(task)).count() != count {
                thread::yield_now();
            }
            drop(watchdog);
            let picture = gathering.conclude();
            let own = |cycle: &Vec<_>| actor.is_own(&picture, cycle);
            assert!(!picture.cycles.iter().any(own), "{role}");
        }
    }
}
