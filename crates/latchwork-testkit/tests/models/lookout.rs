//! The lookout of a large region: one sleeper looks after all tasks, and each death is noticed within a bounded time.
//!
//! *Mirrors* `region/lookout.rs` and `park_once` of `region/park.rs` (crate `latchwork-region`), in the form in which the time
//! of the last check of all tasks is in the region's header: a lookout checks all tasks if that is at least [`RECHECK`] ago,
//! when it takes the post and when it wakes; and of Linux the wake-up of one sleeper on a dead task's life-word.
//!
//! *Abstraction.* Three tasks (four with large bounds), each of which watches one neighbour and the lookout. Time passes in ticks, and only when no task
//! that runs is in the middle of a sleep's begin or end: these take far less than a tick, unless the task is stopped. A task
//! that is awake may sleep at any time, and its sleep may end at any time. The begin of a sleep up to the system call is one step, as is
//! its end; a sweep is two, and needs no lock here. A
//! sleep that has ended stays enqueued on the word of the post until its task runs.
//!
//! *Shown:* while some task sleeps, a death is noticed within `RECHECK`, also if all sleeps are short; within [`LIMIT`] and
//! `RECHECK` if a task was killed after it was woken and before it did what it was woken for. The same holds if a
//! lookout is killed that some sleeper does not watch: one that slept when the post passed on goes on watching the lookout
//! before; and if a lookout is stopped, however short the other sleeps are. And each sleeper learns of a death that another one
//! has noticed, also if it watches neither the dead task nor who has noticed it.

mod faults;

use crate::explore::{self, Model, Steps};

const TASKS: usize = 4;
/// In ticks: the time between two checks, and the longest sleep of a task that is no lookout.
const RECHECK: u8 = 2;
const LIMIT: u8 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Life {
    Alive,
    Dead,
    Free,
}

/// Why a sleep has ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Why {
    Post,
    Time,
    /// What it waited for, or a death.
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    Awake,
    ChecksAll,
    Enqueues,
    Asleep,
    Woken(Why),
    Wakes,
    SweepWakes,
    SweepFrees,
    Dies,
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Task {
    at: At,
    /// What it has read in the post: who has it, from 1.
    read: u8,
    /// The count of deaths that its wait has begun with.
    deaths: u8,
    timer: u8,
    /// It is enqueued on the word of the post.
    queued: bool,
    stopped: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct State {
    /// How many tasks there are.
    count: u8,
    tasks: [Task; TASKS],
    lives: [Life; TASKS],
    post: u8,
    /// The time since the last check of all, up to what matters.
    since_check: u8,
    /// The time that a death has been unseen while a task slept.
    unseen: u8,
    /// The count of deaths, which each sleeper compares as it is enqueued.
    deaths: u8,
    /// Time has passed while a task slept that had begun to before a death was counted.
    untold: bool,
    /// A task was stopped, or killed after it was woken, or as a lookout that some sleeper does not watch.
    unlucky: bool,
    kills: u8,
    stops: u8,
    successors: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// A lookout that ends its sleep wakes no successor.
    QuitsInSilence,
    /// A task whose sleep has ended does not look whether the post is free.
    IgnoresFreePost,
    /// Each lookout waits for the whole time before its first check.
    ChecksLate,
    /// A sleeper does not watch the lookout's life.
    IgnoresLookout,
    /// A sweep leaves the post to the dead task.
    SweepKeepsPost,
    /// A sleeper that is no lookout sleeps without an end.
    SleepsForEver,
    /// Such a sleeper counts the time from the begin of its own sleep.
    ForgetsAge,
    /// A sweep wakes only those who watch the dead task.
    TellsWatchersOnly,
}

#[derive(Clone, Copy, Debug)]
struct Lookout {
    tasks: usize,
    kills: u8,
    stops: u8,
    successors: u8,
    fault: Fault,
}

impl State {
    fn has_dead(&self) -> bool {
        self.lives.contains(&Life::Dead)
    }

    /// What a task watches beside the post: its neighbour, and the lookout that it knows.
    fn watches(&self, who: usize, fault: Fault) -> impl Iterator<Item = usize> + use<> {
        let read = self.tasks[who].read;
        let holder = usize::from(read).checked_sub(1);
        let holder = holder.filter(|holder| *holder != who && fault != Fault::IgnoresLookout);
        [Some((who + 1) % usize::from(self.count)), holder]
            .into_iter()
            .flatten()
    }

    fn sees_dead(&self, who: usize, fault: Fault) -> bool {
        self.watches(who, fault)
            .any(|other| self.lives[other] == Life::Dead)
    }

    /// Whether a task is the lookout, and some sleeper knows another one.
    fn is_unwatched_lookout(&self, who: usize) -> bool {
        let mine = who as u8 + 1;
        let knows_other = |(other, task): (usize, &Task)| {
            other != who && task.at == At::Asleep && task.read != mine
        };
        self.post == mine && self.tasks.iter().enumerate().any(knows_other)
    }

    fn end_sleep(&mut self, who: usize, why: Why) {
        if self.tasks[who].at == At::Asleep {
            self.tasks[who].at = At::Woken(why);
        }
    }

    /// Wakes one sleeper on the word of the post.
    fn wake_one(&self, who: usize, after: &State, steps: &mut Steps<State>) {
        let queued = |other: &usize| *other != who && self.tasks[*other].queued;
        if !(0..TASKS).any(|other| queued(&other)) {
            return steps.add(who, "wakes nobody", *after);
        }
        for sleeper in (0..TASKS).filter(queued) {
            steps.change(who, "offers the post", after, |next| {
                next.tasks[sleeper].queued = false;
                next.end_sleep(sleeper, Why::Post);
            });
        }
    }
}

impl Lookout {
    /// A task is about to sleep: it takes the post, if nobody has it.
    fn assume(&self, next: &mut State, who: usize) -> At {
        let mine = who as u8 + 1;
        let holder = usize::from(next.post).checked_sub(1);
        if holder.is_none_or(|holder| next.lives[holder] == Life::Free) {
            next.post = mine;
        }
        next.tasks[who].read = next.post;
        let checks = next.post == mine && next.since_check >= RECHECK;
        if checks && self.fault != Fault::ChecksLate {
            At::ChecksAll
        } else {
            At::Enqueues
        }
    }

    /// What a task does whose sleep has ended.
    fn wake_up(&self, next: &mut State, who: usize, why: Why) -> At {
        let (mine, read) = (who as u8 + 1, next.tasks[who].read);
        next.tasks[who].queued = false;
        next.tasks[who].timer = 0;
        if next.sees_dead(who, self.fault) {
            return At::SweepWakes;
        }
        match why {
            Why::Time if read == mine && self.fault == Fault::ChecksLate => At::ChecksAll,
            Why::Time if read == mine || next.since_check < LIMIT => self.assume(next, who),
            Why::Time => {
                if next.post == read {
                    next.post = mine;
                    next.tasks[who].read = mine;
                }
                At::ChecksAll
            }
            Why::Post => self.assume(next, who),
            Why::Other if read == mine && next.post == mine => {
                next.post = 0;
                if self.fault == Fault::QuitsInSilence {
                    At::Awake
                } else {
                    At::Wakes
                }
            }
            Why::Other if next.post == 0 && self.fault != Fault::IgnoresFreePost => At::Wakes,
            Why::Other => At::Awake,
        }
    }

    /// The one state that follows when the task goes on.
    fn go(&self, state: &State, who: usize) -> Option<State> {
        let me = state.tasks[who];
        let mine = who as u8 + 1;
        let mut next = *state;
        let at = match me.at {
            At::Awake => {
                next.tasks[who].deaths = state.deaths;
                self.assume(&mut next, who)
            }
            At::ChecksAll if state.has_dead() => At::SweepWakes,
            At::ChecksAll => {
                next.since_check = 0;
                At::Enqueues
            }
            At::Enqueues if state.sees_dead(who, self.fault) => At::SweepWakes,
            At::Enqueues if state.deaths != me.deaths => At::Woken(Why::Other),
            At::Enqueues if me.read != mine && state.post != me.read => self.assume(&mut next, who),
            At::Enqueues => {
                next.tasks[who].queued = me.read != mine;
                next.tasks[who].timer = match (me.read == mine, self.fault) {
                    (false, Fault::ForgetsAge) => LIMIT,
                    (false, _) => LIMIT - state.since_check,
                    (true, Fault::ChecksLate) => RECHECK,
                    (true, _) => RECHECK - state.since_check.min(RECHECK - 1),
                };
                At::Asleep
            }
            At::Asleep if me.timer == 0 => At::Woken(Why::Time),
            At::Woken(why) => self.wake_up(&mut next, who, why),
            At::SweepWakes => {
                for dead in (0..TASKS).filter(|dead| state.lives[*dead] == Life::Dead) {
                    next.deaths += 1;
                    for other in 0..TASKS {
                        let watches = || state.watches(other, self.fault).any(|seen| seen == dead);
                        if self.fault != Fault::TellsWatchersOnly || watches() {
                            next.end_sleep(other, Why::Other);
                        }
                    }
                }
                At::SweepFrees
            }
            _ => return None,
        };
        next.tasks[who].at = at;
        if at == At::Awake {
            next.tasks[who].read = 0;
            next.tasks[who].deaths = 0;
        }
        Some(next)
    }

    /// Frees the dead tasks' slots. Ends the sleep of the sweeper, too: it returns to its caller.
    fn free(&self, state: &State, who: usize, steps: &mut Steps<State>) {
        let mut next = *state;
        next.tasks[who].at = At::Woken(Why::Other);
        let mut was_lookouts = false;
        for dead in 0..TASKS {
            if state.lives[dead] == Life::Dead {
                next.lives[dead] = Life::Free;
                was_lookouts |= usize::from(state.post) == dead + 1;
            }
        }
        next.unseen = 0;
        if was_lookouts && self.fault != Fault::SweepKeepsPost {
            next.post = 0;
            state.wake_one(who, &next, steps);
        } else {
            steps.add(who, "frees", next);
        }
    }

    fn tick(state: &State) -> State {
        let mut next = *state;
        let mut sleeps = false;
        for task in &mut next.tasks {
            if task.at == At::Asleep {
                task.timer = task.timer.saturating_sub(1);
                sleeps |= !task.stopped;
            }
        }
        next.since_check = (state.since_check + 1).min(LIMIT);
        next.unseen = match state.has_dead() {
            true => (state.unseen + u8::from(sleeps)).min(LIMIT + RECHECK + 1),
            false => 0,
        };
        let sleeps_on =
            |task: &Task| task.at == At::Asleep && !task.stopped && task.deaths != state.deaths;
        next.untold |= state.tasks.iter().any(sleeps_on);
        next
    }
}

impl Model for Lookout {
    type State = State;

    fn initial(&self) -> State {
        let task = Task {
            at: At::Awake,
            read: 0,
            deaths: 0,
            timer: 0,
            queued: false,
            stopped: false,
        };
        let is_there = |who: usize| who < self.tasks;
        let task = |who| Task {
            at: if is_there(who) { At::Awake } else { At::Gone },
            ..task
        };
        let life = |who| {
            if is_there(who) {
                Life::Alive
            } else {
                Life::Free
            }
        };
        State {
            count: self.tasks as u8,
            tasks: std::array::from_fn(task),
            lives: std::array::from_fn(life),
            post: 0,
            since_check: 0,
            unseen: 0,
            deaths: 0,
            untold: false,
            unlucky: false,
            kills: self.kills,
            stops: self.stops,
            successors: self.successors,
        }
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        let mut is_quiet = true;
        for (who, me) in state.tasks.iter().enumerate().take(self.tasks) {
            let rests = match me.at {
                At::Awake | At::Gone => true,
                At::Asleep if me.timer == 0 && !me.stopped => {
                    self.fault == Fault::SleepsForEver && me.queued
                }
                At::Asleep => true,
                _ => me.stopped,
            };
            is_quiet &= rests;
            if me.at == At::Dies {
                let mut next = *state;
                next.tasks[who].at = At::Gone;
                next.lives[who] = Life::Dead;
                let watches = |other: &usize| {
                    state.tasks[*other].at == At::Asleep
                        && state.watches(*other, self.fault).any(|seen| seen == who)
                };
                if !(0..TASKS).any(|other| watches(&other)) {
                    steps.add(who, "wakes nobody", next);
                }
                for sleeper in (0..TASKS).filter(watches) {
                    steps.change(who, "the kernel wakes one", &next, |next| {
                        next.end_sleep(sleeper, Why::Other);
                    });
                }
                continue;
            }
            if me.at == At::Gone {
                if state.lives[who] == Life::Free && state.successors > 0 {
                    steps.change(who, "a successor joins", state, |next| {
                        next.tasks[who] = self.initial().tasks[who];
                        next.lives[who] = Life::Alive;
                        next.successors -= 1;
                    });
                }
                continue;
            }
            if me.stopped {
                continue;
            }
            match me.at {
                At::Wakes => {
                    let mut next = *state;
                    next.tasks[who] = self.initial().tasks[who];
                    state.wake_one(who, &next, steps);
                }
                At::SweepFrees => self.free(state, who, steps),
                At::Asleep if me.timer > 0 || rests => {
                    steps.change(who, "need not wait any more", state, |next| {
                        next.end_sleep(who, Why::Other);
                    });
                }
                _ => {
                    if let Some(next) = self.go(state, who) {
                        steps.add(who, "goes on", next);
                    }
                }
            }
            let is_awake = me.at == At::Awake;
            if state.kills > 0 && !is_awake {
                steps.change(who, "is killed", state, |next| {
                    next.kills -= 1;
                    // It had work to do for others.
                    next.unlucky |= me.at != At::Asleep || state.is_unwatched_lookout(who);
                    next.tasks[who] = Task {
                        at: At::Dies,
                        ..self.initial().tasks[who]
                    };
                });
            }
            if state.stops > 0 && !is_awake {
                steps.change(who, "is stopped", state, |next| {
                    next.stops -= 1;
                    next.unlucky = true;
                    next.tasks[who].stopped = true;
                });
            }
        }
        if is_quiet {
            steps.add(TASKS, "time passes", Self::tick(state));
        }
    }

    fn trouble(&self, state: &State) -> Option<&'static str> {
        let bound = if state.unlucky {
            LIMIT + RECHECK
        } else {
            RECHECK
        };
        match state.untold {
            true => Some(UNTOLD),
            false => (state.unseen > bound).then_some(UNSEEN),
        }
    }

    /// Time always passes.
    fn is_end(&self, state: &State) -> bool {
        !state.has_dead()
    }
}

const UNSEEN: &str = "a death is not noticed in time";
const UNTOLD: &str = "a sleeper does not learn of a death that is noticed";

const SMALL: Lookout = Lookout {
    tasks: 3,
    kills: 1,
    stops: 0,
    successors: 0,
    fault: Fault::None,
};

#[test]
fn each_death_is_noticed_in_time() {
    let large = Lookout { tasks: 4, ..SMALL };
    explore::prove("lookout", &SMALL, &[large]);
}

#[test]
fn each_death_is_noticed_in_time_beside_a_stopped_task() {
    let small = Lookout { stops: 1, ..SMALL };
    let large = Lookout { tasks: 4, ..small };
    explore::prove("lookout, a stopped task", &small, &[large]);
}

#[test]
fn two_deaths_are_noticed_in_time_beside_a_successor() {
    let small = Lookout {
        kills: 2,
        successors: 1,
        ..SMALL
    };
    let large = Lookout {
        tasks: 4,
        stops: 1,
        ..small
    };
    explore::prove("lookout, two deaths and a successor", &small, &[large]);
}
