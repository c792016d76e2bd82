//! The wait-wake robust mutex, with the kernel's part in each death as steps of its own.
//!
//! *Mirrors* `acquire_free`, `acquire_slowly`, `link`, `release_as` and `release_word` of `mutex/robust/lock.rs`, `take_by` of
//! `mutex/robust/wait_wake.rs`, `free`, `pass_on` and `owner_died` of `mutex/robust/ops.rs` (crate `latchwork-sync`); and of
//! Linux 6.2 and later `exit_robust_list` and `handle_futex_death` of `kernel/futex/core.c`.
//!
//! *Abstraction.* One lock. One step reads or writes one word, in a total order; at each access the source says how a weaker
//! one is excluded, and loom's models try it. A wake-up wakes any sleeper (the kernel's order is one of these). Polls before
//! a sleep are left out: a poll is a later first look. The links of the list are one bit: `link` and `unlink` are covered by
//! the announcement, and `loom_robust.rs` runs the real ones. A nap may end at any time. The last task gives up at any time
//! in its sleep.
//!
//! *Shown:* mutual exclusion; torn data is reported; each wait ends. Without naps, too, unless a task died between the
//! release and the wake-up of an unlock, or after it was woken, while a newcomer had taken the lock: the two deaths of
//! which the source says that they need the naps.

mod tests;

use crate::explore::{Model, Steps};
use crate::futex_word::Word;
use crate::section::{Data, Section, exclusion};

const MOST: usize = 4;

/// What a task is about to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    Idle,
    TakesFree,
    SettlesUntaken,
    AnnouncesAgain,
    Loads,
    Decides,
    Sleeps,
    Asleep,
    StoresState,
    Links,
    Settles,
    ReadsState,
    Inside(Section),
    Announces,
    Unlinks,
    Gives,
    Swaps,
    Wakes,
    SettlesAfterUnlock,
    /// Killed; the kernel is about to look at the lock.
    Dies,
    /// The kernel is about to wake a sleeper.
    KernelWakes,
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Task {
    at: At,
    read: Word,
    /// It has slept.
    others: bool,
    /// It was woken, and has not looked at the word since.
    woken: bool,
    listed: bool,
    announced: bool,
    passes_on: bool,
    rounds: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    word: Word,
    inconsistent: bool,
    tasks: [Task; MOST],
    data: Data,
    /// One of the two deaths that need naps has happened.
    lost: bool,
    kills: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// A lock call announces nothing.
    LockUnannounced,
    /// An unlock announces nothing.
    UnlockUnannounced,
    /// An unlock settles before it wakes.
    SettlesBeforeWake,
    TakerForgetsSleepers,
    UnlockForgetsSleepers,
    HidesDeath,
    /// The kernel does not pass on the wake-up of a dead task.
    KernelSwallowsWake,
    /// The kernel wakes nobody for a lock that its owner held.
    KernelForgetsSleepers,
    /// The two deaths are no excuse.
    NoExcuse,
}

#[derive(Clone, Copy, Debug)]
struct Robust {
    tasks: usize,
    rounds: u8,
    kills: u8,
    naps: bool,
    /// A kernel before 6.2 passes a wake-up on only if the word is exactly 0.
    is_old: bool,
    fault: Fault,
}

impl State {
    fn sleepers(&self) -> impl Iterator<Item = usize> + use<> {
        let tasks = self.tasks;
        (0..MOST).filter(move |who| tasks[*who].at == At::Asleep)
    }

    /// A task wakes a sleeper, and goes on at `next`.
    fn wake(&self, who: usize, next: At, steps: &mut Steps<Self>) {
        let mut after = *self;
        after.tasks[who].at = next;
        if self.sleepers().next().is_none() {
            return steps.add(who, "wakes nobody", after);
        }
        for sleeper in self.sleepers() {
            steps.change(who, "wakes one", &after, |state| {
                state.tasks[sleeper].at = At::Loads;
                state.tasks[sleeper].others = true;
                state.tasks[sleeper].woken = true;
            });
        }
    }
}

impl Robust {
    /// The kernel's `handle_futex_death` for a task that was killed.
    fn bury(&self, state: &State, who: usize, steps: &mut Steps<State>) {
        let me = state.tasks[who];
        let mut next = *state;
        let is_mine = usize::from(state.word.owner) == who + 1;
        let word = state.word;
        next.tasks[who].at = if is_mine && (me.listed || me.announced) {
            next.word = word.of_dead_owner();
            if word.waiters && self.fault != Fault::KernelForgetsSleepers {
                At::KernelWakes
            } else {
                At::Gone
            }
        } else if word.owner == 0 && me.announced {
            let passes = !self.is_old || word == Word::default();
            if passes && self.fault != Fault::KernelSwallowsWake {
                At::KernelWakes
            } else {
                At::Gone
            }
        } else {
            // The wake-up that it was about to make, or had consumed, is lost.
            next.lost |= me.announced && (me.woken || me.at == At::Dies && me.passes_on);
            At::Gone
        };
        steps.add(who, "is walked by the kernel", next);
    }

    fn decide(&self, state: &State, who: usize, next: &mut State) {
        let me = state.tasks[who];
        let read = me.read;
        let own = &mut next.tasks[who];
        if state.word != read && (read.owner == 0 || !read.waiters) {
            // The compare-and-swap fails.
            own.read = state.word;
        } else if read.owner == 0 {
            let kept = self.fault != Fault::TakerForgetsSleepers;
            next.word = Word {
                owner: who as u8 + 1,
                waiters: kept && (read.waiters || me.others),
                died: false,
            };
            own.at = if read.died {
                At::StoresState
            } else {
                At::Links
            };
        } else {
            if !read.waiters {
                next.word.waiters = true;
                own.read.waiters = true;
            }
            own.at = At::Sleeps;
        }
    }

    /// The one state that follows when the task goes on.
    fn go(&self, state: &State, who: usize) -> Option<State> {
        let me = state.tasks[who];
        let mut next = *state;
        let own = &mut next.tasks[who];
        let locks = self.fault != Fault::LockUnannounced;
        let unlocks = self.fault != Fault::UnlockUnannounced;
        own.at = match me.at {
            At::Idle => {
                own.rounds = me.rounds.checked_sub(1)?;
                own.announced = locks;
                At::TakesFree
            }
            At::TakesFree if state.word == Word::default() => {
                next.word.owner = who as u8 + 1;
                At::Links
            }
            At::TakesFree => At::SettlesUntaken,
            At::SettlesUntaken => {
                own.announced = false;
                At::AnnouncesAgain
            }
            At::AnnouncesAgain => {
                own.announced = locks;
                own.others = false;
                At::Loads
            }
            At::Loads => {
                own.read = state.word;
                At::Decides
            }
            At::Decides => {
                self.decide(state, who, &mut next);
                if next.tasks[who].at != At::Decides {
                    next.tasks[who].woken = false;
                }
                return Some(next);
            }
            At::Sleeps if state.word == me.read => At::Asleep,
            At::Sleeps => {
                own.others = true;
                At::Loads
            }
            At::StoresState => {
                next.inconsistent = self.fault != Fault::HidesDeath;
                At::Links
            }
            At::Links => {
                own.listed = true;
                At::Settles
            }
            At::Settles => {
                own.announced = false;
                At::ReadsState
            }
            At::ReadsState => At::Inside(next.data.enter(state.inconsistent)),
            At::Inside(section) => {
                next.inconsistent &= section != Section::MarksConsistent;
                next.data.go(section).map_or(At::Announces, At::Inside)
            }
            At::Announces => {
                own.announced = unlocks;
                At::Unlinks
            }
            At::Unlinks => {
                own.listed = false;
                if me.passes_on { At::Swaps } else { At::Gives }
            }
            At::Gives if state.word.waiters || state.word.died => At::Swaps,
            At::Gives => {
                next.word = Word::default();
                At::SettlesAfterUnlock
            }
            At::Swaps => {
                let passed = Word {
                    owner: 0,
                    waiters: true,
                    died: true,
                };
                next.word = if me.passes_on {
                    passed
                } else {
                    Word::default()
                };
                own.passes_on = false;
                if self.fault == Fault::SettlesBeforeWake {
                    own.announced = false;
                }
                At::Wakes
            }
            At::SettlesAfterUnlock => {
                own.announced = false;
                At::Idle
            }
            At::Asleep | At::Wakes | At::Dies | At::KernelWakes | At::Gone => return None,
        };
        Some(next)
    }
}

impl Model for Robust {
    type State = State;

    fn initial(&self) -> State {
        let task = |who| Task {
            at: if who < self.tasks { At::Idle } else { At::Gone },
            read: Word::default(),
            others: false,
            woken: false,
            listed: false,
            announced: false,
            passes_on: false,
            rounds: self.rounds,
        };
        State {
            word: Word::default(),
            inconsistent: false,
            tasks: std::array::from_fn(task),
            data: Data::default(),
            lost: false,
            kills: self.kills,
        }
    }

    fn kills(state: &mut State) -> Option<&mut u8> {
        Some(&mut state.kills)
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        for who in 0..self.tasks {
            let me = state.tasks[who];
            steps.go_on(who, self.go(state, who));
            match me.at {
                At::Wakes if self.fault == Fault::UnlockForgetsSleepers => {
                    steps.change(who, "wakes nobody", state, |next| {
                        next.tasks[who].at = At::SettlesAfterUnlock;
                    });
                }
                At::Wakes => state.wake(who, At::SettlesAfterUnlock, steps),
                At::KernelWakes => state.wake(who, At::Gone, steps),
                At::Dies => self.bury(state, who, steps),
                At::Asleep => {
                    if self.naps {
                        steps.change(who, "naps no more", state, |next| {
                            next.tasks[who].others = true;
                            next.tasks[who].at = At::Loads;
                        });
                    }
                    if who + 1 == self.tasks {
                        steps.change(who, "gives up", state, |next| {
                            next.tasks[who].at = At::SettlesAfterUnlock;
                        });
                    }
                }
                // The owner of torn data may leave its repair to the next one.
                At::Inside(Section::Repairs) => {
                    steps.change(who, "passes the data on", state, |next| {
                        next.tasks[who].passes_on = true;
                        next.tasks[who].at = At::Announces;
                    })
                }
                _ => {}
            }
            let lives = !matches!(me.at, At::Idle | At::Dies | At::KernelWakes | At::Gone);
            if lives && state.kills > 0 {
                steps.change(who, "is killed", state, |next| {
                    // What the kernel's walk must know: whether a wake-up was due.
                    next.tasks[who] = Task {
                        at: At::Dies,
                        read: Word::default(),
                        others: false,
                        woken: me.woken,
                        passes_on: me.at == At::Wakes,
                        rounds: 0,
                        ..me
                    };
                    next.kills -= 1;
                });
            }
        }
    }

    fn trouble(&self, state: &State) -> Option<&'static str> {
        let has = |task: &&Task| {
            matches!(
                task.at,
                At::StoresState
                    | At::Links
                    | At::Settles
                    | At::ReadsState
                    | At::Inside(_)
                    | At::Announces
                    | At::Unlinks
                    | At::Gives
                    | At::Swaps
            )
        };
        exclusion(state.tasks.iter().filter(has).count()).or(state.data.trouble())
    }

    fn is_end(&self, state: &State) -> bool {
        let rests = |task: &Task| match task.at {
            At::Gone => true,
            At::Idle => task.rounds == 0,
            At::Asleep => state.lost && !self.naps && self.fault != Fault::NoExcuse,
            _ => false,
        };
        state.tasks.iter().all(rests)
    }
}
