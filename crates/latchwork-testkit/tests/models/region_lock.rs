//! The region lock: slots that are used again, generations, sleeps that watch the other tasks' lives, and sweeps.
//!
//! *Mirrors* `take` and `free_from` of `mutex/in_region/wait.rs` and `lock.rs` (crate `latchwork-sync`); `is_gone` of
//! `region/task.rs`, `park_once` of `region/park.rs` in a region whose tasks one sleep can watch, `sweep`,
//! `wait_for_dead_tasks` and `recover_slot` of `region/sweep.rs` (crate `latchwork-region`); and of Linux the walk of a robust
//! list with a life-word and a tail, and `futex_waitv`, which enqueues on one word after the other.
//!
//! *Abstraction.* One lock, a task for each slot, and successors that join in slots that were swept. One step reads or writes
//! one word, in a total order (loom's models try weaker ones). A sleep that ends because of one word stays enqueued on the
//! others until its task runs, and consumes their wake-ups. A life-word says the same for a task and its successors: tasks of
//! two PID namespaces can have one thread ID. A wake-up wakes any sleeper. The sweep lock is a word that is
//! taken over from a dead holder; a waiter for it does nothing else. Polls are left out: a poll is a later first look. The
//! heap is one step of the sweep. `slot_model.rs` among the tests of `latchwork` has the
//! joining and leaving of threads.
//!
//! *Shown:* mutual exclusion, torn data is reported, the data of a dead owner is accessed only after its sweep, and each wait ends,
//! although no sleep but the first is a nap, and without that one, too.

mod steps;

use crate::explore::{self, Model, Steps};
use crate::section::{Data, Section, TORN, TWO, exclusion};

const SLOTS: usize = 3;
const BYSTANDER: usize = 2;

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
struct Word {
    /// From 1; 0: free.
    slot: u8,
    generation: u8,
    waiters: bool,
    inconsistent: bool,
}

impl Word {
    /// What the kernel compares: the high half.
    fn high(self) -> (u8, bool, bool) {
        (self.slot, self.waiters, self.inconsistent)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Life {
    Free,
    Alive,
    Dead,
}

/// What a task is about to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    Idle,
    Loads,
    Decides,
    AsksOwner,
    Replaces,
    SetsWaiters,
    Naps,
    ReadsLives,
    CountsDeaths,
    Enqueues,
    /// Enqueued on the lock alone.
    HalfAsleep,
    Asleep,
    /// Its sleep has ended; it has not run since.
    Awake,
    ChecksLives,
    LooksAgain,
    // A sweep.
    LocksSweep,
    FindsDead,
    CountsDeath,
    WakesWatchers,
    WaitsForTail,
    Advances,
    Frees,
    UnlocksSweep,
    // The lock is this task's.
    Inside(Section),
    Gives,
    GivesWithWaiters,
    Wakes,
    // It was killed; the kernel's walk.
    Dies,
    KernelWakes,
    MarksTail,
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Task {
    at: At,
    read: Word,
    /// The count of deaths at the begin of the watch.
    watch: u8,
    lives: [Life; SLOTS],
    /// What it sleeps on: 1 the lock, 2, 4, 8 the lives.
    queues: u8,
    others: bool,
    has_napped: bool,
    /// The slot that it sweeps, and what it does after the sweep.
    sweeps: u8,
    then: At,
    rounds: u8,
    successors: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct State {
    word: Word,
    tasks: [Task; SLOTS],
    lives: [Life; SLOTS],
    tails: [bool; SLOTS],
    generations: [u8; SLOTS],
    deaths: u8,
    /// The task that holds the sweep lock, from 1.
    sweeper: u8,
    data: Data,
    hurried: bool,
    kills: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    IgnoresGenerations,
    KeepsGeneration,
    TakerForgetsSleepers,
    UnlockForgetsSleepers,
    SleeperMissesDeaths,
    WatchBeginsLate,
    HidesDeath,
    SweepCountsNothing,
    SweepWakesNobody,
    KernelWakesNobody,
    RepairsUnswept,
    /// A task that is woken does not look for the dead.
    WokenLooksAtNothing,
    /// The kernel does not compare the count of deaths, and a successor has the thread ID of the task that died.
    TrustsLives,
    /// A dead sweeper's lock is not taken over.
    SweepLockStays,
}

#[derive(Clone, Copy, Debug)]
struct RegionLock {
    rounds: u8,
    kills: u8,
    successors: u8,
    /// The first sleep of a wait is a nap.
    naps: bool,
    /// The last task does not want the lock: it sleeps for something else.
    bystander: bool,
    /// A task that does not want the lock may sweep for another reason. (It need not: a wait that only this would end is
    /// found without it.)
    outsiders: bool,
    fault: Fault,
}

impl State {
    /// Wakes one sleeper on a word, or all of them; the task goes on at `next`.
    fn wake(&self, who: usize, next: At, queue: u8, all: bool, steps: &mut Steps<Self>) {
        let mut after = *self;
        after.tasks[who].at = next;
        let mut sleepers = (0..SLOTS).filter(|other| self.tasks[*other].queues & queue != 0);
        let ends = |task: &mut Task| {
            task.queues &= !queue;
            task.at = At::Awake;
        };
        if all {
            sleepers.for_each(|sleeper| ends(&mut after.tasks[sleeper]));
            return steps.add(who, "wakes all", after);
        }
        let Some(first) = sleepers.next() else {
            return steps.add(who, "wakes nobody", after);
        };
        for sleeper in core::iter::once(first).chain(sleepers) {
            steps.change(who, "wakes one", &after, |state| {
                ends(&mut state.tasks[sleeper]);
            });
        }
    }

    fn identity(&self, who: usize) -> Word {
        Word {
            slot: who as u8 + 1,
            generation: self.generations[who],
            waiters: false,
            inconsistent: false,
        }
    }

    fn dead(&self) -> Option<usize> {
        (0..SLOTS).find(|slot| self.lives[*slot] == Life::Dead)
    }
}

fn life_queue(slot: usize) -> u8 {
    2 << slot
}

impl Model for RegionLock {
    type State = State;

    fn initial(&self) -> State {
        let task = Task {
            at: At::Idle,
            read: Word::default(),
            watch: 0,
            lives: [Life::Free; SLOTS],
            queues: 0,
            others: false,
            has_napped: false,
            sweeps: 0,
            then: At::Idle,
            rounds: self.rounds,
            successors: self.successors,
        };
        let mut tasks = [task; SLOTS];
        if self.bystander {
            tasks[BYSTANDER] = Task {
                at: At::Asleep,
                queues: 0xe & !life_queue(BYSTANDER),
                has_napped: true,
                rounds: 0,
                successors: 0,
                ..task
            };
        }
        State {
            word: Word::default(),
            tasks,
            lives: [Life::Alive; SLOTS],
            tails: [false; SLOTS],
            generations: [1; SLOTS],
            deaths: 0,
            sweeper: 0,
            data: Data::default(),
            hurried: false,
            kills: self.kills,
        }
    }

    fn kills(state: &mut State) -> Option<&mut u8> {
        Some(&mut state.kills)
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        for (who, me) in state.tasks.iter().enumerate() {
            steps.go_on(who, self.go(state, who));
            match me.at {
                At::Idle if self.outsiders && state.dead().is_some() => {
                    steps.change(who, "begins a sweep", state, |next| {
                        next.tasks[who].then = At::Idle;
                        next.tasks[who].at = At::LocksSweep;
                    });
                }
                At::Naps => steps.change(who, "naps no more", state, |next| {
                    next.tasks[who].has_napped = true;
                    next.tasks[who].at = At::Awake;
                }),
                At::Wakes => state.wake(who, At::Idle, 1, false, steps),
                At::WakesWatchers if self.has(Fault::SweepWakesNobody) => {
                    steps.change(who, "wakes nobody", state, |next| {
                        next.tasks[who].at = At::WaitsForTail;
                    });
                }
                At::WakesWatchers => {
                    let queue = life_queue(usize::from(me.sweeps));
                    state.wake(who, At::WaitsForTail, queue, true, steps);
                }
                At::KernelWakes => {
                    state.wake(who, At::MarksTail, life_queue(who), false, steps);
                }
                _ => {}
            }
            let runs = !matches!(
                me.at,
                At::Idle | At::Dies | At::KernelWakes | At::MarksTail | At::Gone
            );
            if runs && state.kills > 0 {
                steps.change(who, "is killed", state, |next| {
                    next.tasks[who] = Task {
                        at: At::Dies,
                        queues: 0,
                        successors: me.successors,
                        ..self.initial().tasks[who]
                    };
                    next.kills -= 1;
                });
            }
        }
    }

    fn trouble(&self, state: &State) -> Option<&'static str> {
        let has = |task: &&Task| {
            // A sweep after a takeover.
            let sweeps = task.then == At::Inside(Section::Repairs);
            sweeps || matches!(task.at, At::Inside(_) | At::Gives | At::GivesWithWaiters)
        };
        let two = exclusion(state.tasks.iter().filter(has).count());
        let hurried = state.hurried.then_some(HURRIED);
        two.or(hurried).or(state.data.trouble())
    }

    fn is_end(&self, state: &State) -> bool {
        let rests = |(who, task): (usize, &Task)| match task.at {
            At::Gone => true,
            At::Idle => task.rounds == 0,
            At::Asleep => self.bystander && who == BYSTANDER,
            _ => false,
        };
        state.tasks.iter().enumerate().all(rests)
    }
}

const HURRIED: &str = "data is accessed before its dead owner was swept";

const SMALL: RegionLock = RegionLock {
    rounds: 1,
    kills: 1,
    successors: 1,
    naps: false,
    bystander: false,
    outsiders: false,
    fault: Fault::None,
};

#[test]
fn each_wait_for_a_region_lock_ends() {
    let large = RegionLock {
        rounds: 2,
        kills: 3,
        successors: 2,
        ..SMALL
    };
    explore::prove("region lock", &SMALL, &[large]);
}

#[test]
fn each_wait_ends_beside_a_task_that_sleeps_for_something_else() {
    let small = RegionLock {
        bystander: true,
        kills: 2,
        ..SMALL
    };
    let large = RegionLock {
        rounds: 2,
        kills: 3,
        successors: 2,
        ..small
    };
    explore::prove("region lock, bystander", &small, &[large]);
}

#[test]
fn each_wait_that_begins_with_a_nap_ends() {
    let small = RegionLock {
        naps: true,
        outsiders: true,
        successors: 0,
        ..SMALL
    };
    let large = RegionLock {
        rounds: 2,
        kills: 2,
        successors: 1,
        ..small
    };
    explore::prove("region lock, naps first", &small, &[large]);
}

#[test]
fn each_fault_of_a_region_lock_is_found() {
    for (fault, kills, successors, trouble) in [
        (Fault::WatchBeginsLate, 1, 0, explore::STUCK),
        (Fault::IgnoresGenerations, 1, 1, explore::STUCK),
        (Fault::KeepsGeneration, 1, 1, TWO),
        (Fault::TakerForgetsSleepers, 0, 0, explore::STUCK),
        (Fault::UnlockForgetsSleepers, 0, 0, explore::STUCK),
        (Fault::SleeperMissesDeaths, 1, 0, explore::STUCK),
        (Fault::HidesDeath, 1, 0, TORN),
        (Fault::SweepCountsNothing, 1, 0, explore::STUCK),
        (Fault::SweepWakesNobody, 1, 0, explore::STUCK),
        (Fault::KernelWakesNobody, 1, 0, explore::STUCK),
        (Fault::RepairsUnswept, 1, 0, HURRIED),
        (Fault::WokenLooksAtNothing, 1, 0, explore::STUCK),
        (Fault::TrustsLives, 1, 1, explore::STUCK),
        (Fault::SweepLockStays, 2, 0, explore::STUCK),
    ] {
        let twin = RegionLock {
            fault,
            kills,
            outsiders: matches!(
                fault,
                Fault::WatchBeginsLate | Fault::SweepCountsNothing | Fault::TrustsLives
            ),
            bystander: matches!(fault, Fault::SweepWakesNobody | Fault::WokenLooksAtNothing),
            successors,
            ..SMALL
        };
        explore::expect(&format!("region lock, {fault:?}"), &twin, trouble);
    }
}
