//! A model of one slot of a region's task table, with the kernel's walk of a dying thread's robust list, which loom's models do
//! not have: every state that some threads of two PID namespaces with equal IDs can reach, each killed at each of its steps.
//!
//! In a second model, of two threads, a task may also vanish, without a mark of the kernel's (by a call of `exec`).
//!
//! The steps are those of `Slot::claim_for`, `free_abandoned`, `occupy`, `vacate`, `mark_if_vanished` and `free_swept`
//! (`region/task_table.rs`). One step reads or writes one word, in a total order; how a weaker order is excluded, that file says at each access. Slots that pass to a
//! process's keeper, and the reserve, are not part of it.
#![cfg(not(loom))]

use std::collections::HashSet;

/// Namespace and ID of each thread: the first two have the same ID.
const THREADS: [(u8, u8); 3] = [(1, 7), (2, 7), (1, 9)];

/// A word of the slot that the kernel knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Word {
    Zero,
    Id(u8),
    Died,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Claim {
    /// The thread.
    of: Option<u8>,
    swept: bool,
    changes: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    /// It runs, before the step of this number.
    Runs(u8),
    /// It is killed; the kernel is about to look at: 0 its life-word, 1 its tail, 2 what it has announced.
    Dies(u8),
    /// Its ID does not exist.
    Gone,
}

/// How often each thread joins, so that the states come to an end.
const JOINS: u8 = 1;
/// The step before which a thread has claimed the slot. One that only frees a slot that was abandoned leaves at once.
const CLAIMED: u8 = 2;
/// The step at which a thread is a task.
const LIVES: u8 = 6;
/// The step that ends the claim.
const LEAVES: u8 = 10;

/// Steps of the task that sweeps, which marks a task that has vanished.
const MARKS: u8 = 5;
const ASKS_WHERE: u8 = 6;
const ASKS_WHO: u8 = 7;
const CLAIMS: u8 = 8;
const MARKS_TAIL: u8 = 9;
const MARKS_LIFE: u8 = 10;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Thread {
    stage: Stage,
    /// What it has read of the claim.
    read: Claim,
    /// What is on its list, and what it has announced.
    has_life: bool,
    has_tail: bool,
    announces: bool,
    /// How often it, or another thread with its ID after its death, may still join.
    joins: u8,
}

/// The namespace of the task that sweeps.
const SWEEPER: u8 = 1;

/// The task that sweeps: it has another slot. If it is killed, the next one repeats all steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Sweeper {
    step: u8,
    read: Claim,
    /// What it has read of the tail and the life-word, before it asks whether the thread exists.
    words: [Word; 2],
    /// How often it may still be killed.
    kills: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct State {
    claim: Claim,
    life: Word,
    tail: Word,
    threads: [Thread; THREADS.len()],
    sweeper: Sweeper,
    /// The task that had the slot last died as a task: its slot must not be lost.
    died_as_task: bool,
    /// Tasks may vanish.
    vanishes: bool,
}

const WALK: &str = "a list that the kernel has not walked leads into another thread's slot";

/// What is wrong with a protocol that must be found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// There is no claim: threads announce the life-word, and compete for it.
    Announces,
    /// The sweep does not mark the claim.
    SweepsUnmarked,
    /// A thread takes an abandoned slot over without a look at whether the ID exists.
    TrustsSilence,
    /// The same, and others free such a slot.
    FreesSilently,
    /// The tail has no ID when the task begins.
    TailComesLate,
    /// A task counts as vanished, although it may have left the slot to another since it was asked about.
    MarksAnyTask,
}

impl State {
    fn new(vanishes: bool) -> Self {
        let claim = Claim {
            of: None,
            swept: false,
            changes: 0,
        };
        Self {
            claim,
            life: Word::Zero,
            tail: Word::Zero,
            threads: [Thread {
                stage: Stage::Runs(0),
                read: claim,
                has_life: false,
                has_tail: false,
                announces: false,
                joins: JOINS,
            }; THREADS.len()],
            sweeper: Sweeper {
                step: 0,
                read: claim,
                words: [Word::Zero; 2],
                kills: 1,
            },
            died_as_task: false,
            vanishes,
        }
    }

    /// A compare-and-swap of the claim.
    fn replace(&mut self, from: Claim, of: Option<u8>, swept: bool) -> bool {
        let same = self.claim == from;
        if same {
            self.claim = Claim {
                of,
                swept,
                changes: from.changes + 1,
            };
        }
        same
    }

    fn exists(&self, thread: u8) -> bool {
        self.threads[usize::from(thread)].stage != Stage::Gone
    }

    /// Whether the thread may claim the slot, as it reads it now.
    fn may_claim(&self, who: usize, fault: Fault) -> bool {
        let is_free = self.claim.of.is_none() || self.claim.swept && self.life == Word::Zero;
        let is_abandoned = self.claim.of.is_some_and(|of| {
            usize::from(of) != who
                && THREADS[usize::from(of)].0 == THREADS[who].0
                && self.life == Word::Zero
                && (matches!(fault, Fault::TrustsSilence | Fault::FreesSilently)
                    || !self.exists(of))
        });
        is_free || is_abandoned
    }

    /// The states after the next step of a thread that runs.
    fn step(mut self, who: usize, at: u8, fault: Fault) -> Option<Self> {
        let id = THREADS[who].1;
        let next = match (at, fault) {
            (0, _) if self.threads[who].joins == 0 => return None,
            (0, Fault::Announces) => {
                self.threads[who].joins -= 1;
                self.threads[who].announces = true;
                1
            }
            (1, Fault::Announces) => {
                if self.life == Word::Zero {
                    self.life = Word::Id(id);
                    2
                } else {
                    self.threads[who].announces = false;
                    0
                }
            }
            (10, Fault::Announces) => {
                self.threads[who].announces = false;
                0
            }
            (0, _) => {
                self.threads[who].read = self.claim;
                if !self.may_claim(who, fault) {
                    return None;
                }
                self.threads[who].joins -= 1;
                1
            }
            (1, _) => {
                let read = self.threads[who].read;
                let claimed = self.replace(read, Some(who as u8), false);
                if claimed {
                    self.died_as_task = false;
                }
                if claimed { 2 } else { 0 }
            }
            (2, _) => {
                self.threads[who].has_life = true;
                3
            }
            (3, _) => {
                self.threads[who].has_tail = true;
                4
            }
            (4, Fault::TailComesLate) => 5,
            (4, _) => {
                self.tail = Word::Id(id);
                5
            }
            (5, _) => {
                if fault == Fault::Announces {
                    self.threads[who].announces = false;
                } else {
                    self.life = Word::Id(id);
                }
                LIVES
            }
            // It leaves.
            (LIVES, _) => {
                self.life = Word::Zero;
                7
            }
            (7, _) => {
                self.tail = Word::Zero;
                8
            }
            (8, _) => {
                self.threads[who].has_tail = false;
                9
            }
            (9, _) => {
                self.threads[who].has_life = false;
                10
            }
            _ => {
                let claim = self.claim;
                self.replace(claim, None, false);
                0
            }
        };
        self.threads[who].stage = Stage::Runs(next);
        Some(self)
    }

    /// The kernel's next step with a thread that was killed.
    fn walk(mut self, who: usize, at: u8) -> Self {
        let thread = self.threads[who];
        let id = Word::Id(THREADS[who].1);
        match at {
            0 if thread.has_life && self.life == id => {
                self.life = Word::Died;
                self.died_as_task = true;
            }
            1 if thread.has_tail && self.tail == id => self.tail = Word::Died,
            2 if thread.announces && self.life == id => self.life = Word::Died,
            _ => {}
        }
        self.threads[who] = Thread {
            stage: if at == 2 {
                Stage::Gone
            } else {
                Stage::Dies(at + 1)
            },
            ..thread
        };
        self
    }

    fn sweep(mut self, fault: Fault) -> Option<Self> {
        let next = match self.sweeper.step {
            // It waits until the kernel has walked the list.
            0 if self.life == Word::Died && !matches!(self.tail, Word::Id(_)) => 1,
            0 if self.vanishes && matches!(self.life, Word::Id(_)) => {
                self.sweeper.read = self.claim;
                MARKS
            }
            0 => return None,
            MARKS => {
                self.sweeper.words = [self.tail, self.life];
                ASKS_WHERE
            }
            ASKS_WHERE => match self.claim.of {
                Some(of) if THREADS[usize::from(of)].0 == SWEEPER => ASKS_WHO,
                _ => 0,
            },
            // Whether the ID that is there now exists.
            ASKS_WHO => {
                let is = |who: &usize| self.life == Word::Id(THREADS[*who].1);
                let here = (0..THREADS.len()).filter(|who| THREADS[*who].0 == SWEEPER);
                match here.filter(is).collect::<Vec<_>>()[..] {
                    [who] if !self.exists(who as u8) => CLAIMS,
                    _ => 0,
                }
            }
            CLAIMS => {
                let read = self.sweeper.read;
                let same = fault == Fault::MarksAnyTask || self.replace(read, read.of, false);
                if same { MARKS_TAIL } else { 0 }
            }
            MARKS_TAIL | MARKS_LIFE => {
                let is_life = self.sweeper.step == MARKS_LIFE;
                let read = self.sweeper.words[usize::from(is_life)];
                let word = if is_life {
                    &mut self.life
                } else {
                    &mut self.tail
                };
                let is_same = *word == read || fault == Fault::MarksAnyTask;
                if is_same && matches!(*word, Word::Id(_)) {
                    *word = Word::Died;
                    self.died_as_task |= is_life;
                }
                if is_life { 0 } else { MARKS_LIFE }
            }
            1 => {
                self.sweeper.read = self.claim;
                if fault == Fault::SweepsUnmarked {
                    2
                } else {
                    let claim = self.claim;
                    self.replace(claim, claim.of, true);
                    self.sweeper.read = self.claim;
                    2
                }
            }
            2 => {
                self.tail = Word::Zero;
                3
            }
            3 => {
                self.life = Word::Zero;
                4
            }
            _ => {
                let read = self.sweeper.read;
                self.replace(read, None, false);
                0
            }
        };
        self.sweeper.step = next;
        Some(self)
    }

    fn followers(&self, fault: Fault) -> Vec<Self> {
        let mut all = Vec::new();
        for (who, thread) in self.threads.iter().enumerate() {
            match thread.stage {
                Stage::Runs(at) => {
                    all.extend(self.step(who, at, fault));
                    if at == LIVES && self.vanishes {
                        let mut vanished = *self;
                        vanished.threads[who].stage = Stage::Gone;
                        all.push(vanished);
                    }
                    if at == CLAIMED && !matches!(fault, Fault::Announces | Fault::TrustsSilence) {
                        let mut leaves = *self;
                        leaves.threads[who].stage = Stage::Runs(LEAVES);
                        all.push(leaves);
                    }
                    let mut killed = *self;
                    killed.threads[who].stage = Stage::Dies(0);
                    all.push(killed);
                }
                Stage::Dies(at) => all.push(self.walk(who, at)),
                Stage::Gone if thread.joins > 0 => {
                    let mut reborn = *self;
                    reborn.threads[who] = Thread {
                        joins: thread.joins,
                        ..Self::new(self.vanishes).threads[who]
                    };
                    all.push(reborn);
                }
                Stage::Gone => {}
            }
        }
        all.extend(self.sweep(fault));
        if self.sweeper.step != 0 && self.sweeper.kills > 0 {
            let mut killed = *self;
            killed.sweeper.step = 0;
            killed.sweeper.kills -= 1;
            all.push(killed);
        }
        all
    }

    /// What must not be.
    fn trouble(&self) -> Option<&'static str> {
        let at = |thread: &Thread| match thread.stage {
            Stage::Runs(at) => at,
            _ => 0,
        };
        let is_false = |(who, thread): (usize, &Thread)| {
            at(thread) == LIVES && self.life != Word::Id(THREADS[who].1)
        };
        if self.threads.iter().enumerate().any(is_false) {
            return Some("a living task counts as dead");
        }
        if self.threads.iter().filter(|thread| at(thread) >= 2).count() > 1 {
            return Some("two threads have the slot");
        }
        let is_dying = |thread: &Thread| matches!(thread.stage, Stage::Dies(_));
        let is_reused = self.threads.iter().any(|thread| at(thread) >= 2);
        let is_unwalked = |thread: &Thread| {
            is_dying(thread)
                && (thread.has_life && at_walk(thread) == 0
                    || thread.has_tail && at_walk(thread) <= 1)
        };
        if is_reused && self.threads.iter().any(is_unwalked) {
            return Some(WALK);
        }
        let rests = self.sweeper.step == 0
            && !self
                .threads
                .iter()
                .any(|thread| is_dying(thread) || at(thread) >= 1);
        let is_lost = self.claim.of.is_some() && !self.claim.swept && self.life == Word::Zero;
        if rests && is_lost && self.died_as_task {
            return Some("the slot of a dead task is lost");
        }
        None
    }
}

fn at_walk(thread: &Thread) -> u8 {
    match thread.stage {
        Stage::Dies(at) => at,
        _ => 3,
    }
}

/// Looks at all states, or until there is trouble.
fn explore(fault: Fault, vanishes: bool) -> (usize, Option<&'static str>) {
    let mut first = State::new(vanishes);
    if vanishes {
        // The third thread would multiply the states by a hundred.
        first.threads[2].stage = Stage::Gone;
        first.threads[2].joins = 0;
    }
    let mut seen = HashSet::from([first]);
    let mut left = vec![first];
    while let Some(state) = left.pop() {
        if let Some(trouble) = state.trouble() {
            eprintln!("{fault:?}: {state:?}");
            return (seen.len(), Some(trouble));
        }
        left.extend(
            state
                .followers(fault)
                .into_iter()
                .filter(|next| seen.insert(*next)),
        );
    }
    (seen.len(), None)
}

#[test]
fn no_interleaving_confuses_tasks_or_loses_a_slot() {
    for vanishes in [false, true] {
        let (states, trouble) = explore(Fault::None, vanishes);
        println!("{states} states {trouble:?}");
        assert_eq!(trouble, None);
        assert!(states > 10_000);
    }
}

#[test]
fn each_fault_is_found_out() {
    for (fault, expected) in [
        (Fault::Announces, "a living task counts as dead"),
        (Fault::SweepsUnmarked, "the slot of a dead task is lost"),
        (Fault::TrustsSilence, WALK),
        (Fault::FreesSilently, "two threads have the slot"),
        (Fault::TailComesLate, WALK),
        (Fault::MarksAnyTask, "a living task counts as dead"),
    ] {
        let vanishes = fault == Fault::MarksAnyTask;
        assert_eq!(explore(fault, vanishes).1, Some(expected), "{fault:?}");
    }
}
