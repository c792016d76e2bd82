//! What the kernel does for a task.

use super::{At, Fault, Inherit, Record, State, Steps, Word};

fn bit(who: usize) -> u8 {
    1 << who
}

fn is_in(set: u8, who: usize) -> bool {
    set & bit(who) != 0
}

impl State {
    /// Wakes a waiter for the `rt_mutex`, which is about to take it.
    fn wake(&mut self, heir: usize) {
        if self.tasks[heir].at == At::Asleep {
            self.tasks[heir].at = At::Woken;
        }
    }

    /// The task leaves the futex's queue, and the record ends with the last one.
    fn unqueue(&mut self, who: usize) {
        self.record.queued &= !bit(who);
        self.record.waiting &= !bit(who);
        if self.record.queued == 0 {
            self.record = Record::default();
        }
    }

    fn waiting(&self) -> impl Iterator<Item = usize> + use<> {
        let waiting = self.record.waiting;
        (0..super::MOST).filter(move |who| is_in(waiting, *who))
    }

    /// The task returns from a call by which it has the word, or has not.
    fn leave_call(&mut self, who: usize, has_it: bool, otherwise: At) {
        self.tasks[who].at = if has_it { At::ReadsWord } else { otherwise };
        if self.tasks[who].doomed {
            self.die(who);
        }
    }
}

impl Inherit {
    /// Adds the steps of a task in the kernel.
    pub(super) fn ask_kernel(&self, state: &State, who: usize, steps: &mut Steps<State>) {
        let mine = who as u8 + 1;
        let is_free = state.bucket == 0;
        match state.tasks[who].at {
            At::KernelReads if is_free => steps.change(who, "reads the word", state, |next| {
                next.tasks[who].read = state.word;
                next.bucket = mine;
                next.tasks[who].at = At::KernelAttaches;
            }),
            At::KernelAttaches => self.attach(state, who, steps),
            // The dying task is gone.
            At::AwaitsExit
                if self.has_left(state, usize::from(state.tasks[who].read.owner) - 1) =>
            {
                steps.change(who, "looks again", state, |next| {
                    next.tasks[who].at = At::KernelReads;
                });
            }
            At::Woken if state.record.taken_by == 0 => {
                steps.change(who, "takes the lock", state, |next| {
                    next.record.taken_by = mine;
                    next.record.waiting &= !bit(who);
                    next.tasks[who].at = At::Fixes(true);
                });
            }
            At::Woken => steps.change(who, "was too late", state, |next| {
                next.tasks[who].at = At::Asleep;
            }),
            At::Cleans => steps.change(who, "ends its sleep", state, |next| {
                let takes = state.record.taken_by == 0 && self.fault != Fault::KilledHeirLeaves;
                if takes {
                    next.record.taken_by = mine;
                }
                next.record.waiting &= !bit(who);
                next.tasks[who].at = At::Fixes(takes);
            }),
            At::Fixes(has_it) if is_free => steps.change(who, "leaves the queue", state, |next| {
                self.fix(next, who, has_it);
                let doomed = next.tasks[who].doomed;
                next.unqueue(who);
                next.leave_call(who, has_it, At::Idle);
                if !has_it && !doomed {
                    next.tasks[who] = Self::rested(next.tasks[who]);
                }
            }),
            At::KernelReadsToUnlock => steps.change(who, "reads its word", state, |next| {
                next.tasks[who].read = state.word;
                next.tasks[who].at = At::KernelUnlocks;
                next.wrong = next
                    .wrong
                    .or((!state.is_owned_by(who)).then_some(NOT_OWNER));
            }),
            At::KernelUnlocks if is_free => self.unlock(state, who, steps),
            At::WalksList => steps.change(who, "is walked by the kernel", state, |next| {
                let task = state.tasks[who];
                let is_mine = state.is_owned_by(who) || self.fault == Fault::WalkComparesNothing;
                if is_mine && (task.listed || task.announced) {
                    next.word = state.word.of_dead_owner();
                }
                next.tasks[who].listed = false;
                next.tasks[who].announced = false;
                next.tasks[who].at = At::LeavesRecord;
            }),
            At::LeavesRecord if is_free => self.leave_record(state, who, steps),
            _ => {}
        }
    }

    fn has_left(&self, state: &State, who: usize) -> bool {
        !matches!(state.tasks[who].at, At::WalksList | At::LeavesRecord)
    }

    /// `futex_lock_pi_atomic`, and what follows it.
    fn attach(&self, state: &State, who: usize, steps: &mut Steps<State>) {
        let mine = who as u8 + 1;
        let read = state.tasks[who].read;
        let mut next = *state;
        next.bucket = 0;
        let again = |next: State, steps: &mut Steps<State>| {
            steps.change(who, "has to look again", &next, |next| {
                next.tasks[who].at = At::KernelReads;
            });
        };
        if read.owner == mine {
            next.wrong = Some(DEADLOCK);
            return steps.add(who, "is refused", next);
        }
        if state.record.queued != 0 {
            // `attach_to_pi_state`.
            let owner = state.record.owner;
            let fits = if read.died && (owner == 0 || read.owner == 0) {
                owner != 0 || read.owner == 0
            } else {
                owner != 0 && owner == read.owner
            };
            if state.word != read || !fits {
                return again(next, steps);
            }
        } else if read.owner == 0 {
            if state.word != read {
                return again(next, steps);
            }
            next.word = Word {
                owner: mine,
                waiters: false,
                died: read.died,
            };
            next.leave_call(who, true, At::Idle);
            return steps.add(who, "takes the word", next);
        } else {
            if state.word != read {
                return again(next, steps);
            }
            next.word.waiters = true;
            let owner = usize::from(read.owner) - 1;
            let at_end = match state.tasks[owner].at {
                At::Gone => Some(At::MarksDied),
                At::WalksList | At::LeavesRecord => Some(At::AwaitsExit),
                _ => None,
            };
            if let Some(then) = at_end.filter(|_| self.fault != Fault::AttachesToDead) {
                // The word, as the second look sees it, is what was written above.
                steps.change(who, "finds the owner at its end", &next, |next| {
                    next.tasks[who].at = then;
                });
                // Before the walk the owner may be killed and run on in the kernel.
                if state.tasks[owner].at != At::WalksList {
                    return;
                }
            }
            next.record = Record {
                owner: read.owner,
                taken_by: read.owner,
                ..Record::default()
            };
        }
        next.record.queued |= bit(who);
        if next.record.taken_by == 0 {
            // It may have a better priority than all who wait.
            steps.change(
                who,
                "takes the lock from under a woken task",
                &next,
                |next| {
                    next.record.taken_by = mine;
                    next.tasks[who].at = At::Fixes(true);
                },
            );
        }
        next.record.waiting |= bit(who);
        next.tasks[who].at = At::Asleep;
        // Nobody was woken for a lock that nobody waited for.
        if next.record.taken_by == 0 && state.record.waiting == 0 {
            next.tasks[who].at = At::Woken;
        }
        steps.add(who, "falls asleep", next);
    }

    /// `fixup_pi_owner`: the word names the owner of the `rt_mutex`.
    fn fix(&self, next: &mut State, who: usize, has_it: bool) {
        let mine = who as u8 + 1;
        let record = next.record;
        let owner = match (has_it, record.owner == mine) {
            (true, true) | (false, false) => return,
            (true, false) if self.fault == Fault::ThiefKeepsWord => return,
            (true, false) => mine,
            (false, true) if self.fault == Fault::LoserKeepsWord => return,
            // Another one has taken it from under this task.
            (false, true) => record.taken_by,
        };
        next.word = Word {
            owner,
            waiters: true,
            died: next.word.died || record.owner == 0,
        };
        next.record.owner = owner;
    }

    fn unlock(&self, state: &State, who: usize, steps: &mut Steps<State>) {
        let read = state.tasks[who].read;
        let is_same = state.word == read;
        let mut again = *state;
        again.tasks[who].at = At::KernelReadsToUnlock;
        if state.record.queued == 0 {
            if !is_same {
                return steps.add(who, "has to look again", again);
            }
            let mut next = *state;
            next.word = Word::default();
            next.tasks[who] = Self::rested(state.tasks[who]);
            return steps.add(who, "frees the word", next);
        }
        if usize::from(state.record.owner) != who + 1 || !is_same {
            return steps.add(who, "has to look again", again);
        }
        if state.record.waiting == 0 {
            // Those in the queue are about to leave it.
            return steps.change(who, "empties the queue", state, |next| {
                next.record = Record::default();
            });
        }
        for heir in state.waiting() {
            steps.change(who, "hands over", state, |next| {
                next.word = Word {
                    owner: heir as u8 + 1,
                    waiters: true,
                    died: read.died && self.fault == Fault::KeepsOwnerDied,
                };
                next.record.owner = heir as u8 + 1;
                next.record.taken_by = 0;
                next.wake(heir);
                next.tasks[who] = Self::rested(state.tasks[who]);
            });
        }
    }

    /// `exit_pi_state_list`.
    fn leave_record(&self, state: &State, who: usize, steps: &mut Steps<State>) {
        let mut next = *state;
        next.tasks[who].at = At::Gone;
        let is_mine = state.record.queued != 0 && usize::from(state.record.owner) == who + 1;
        if !is_mine || self.fault == Fault::RecordIsForgotten {
            return steps.add(who, "is gone", next);
        }
        next.record.owner = 0;
        next.record.taken_by = 0;
        if state.record.waiting == 0 {
            return steps.add(who, "leaves a record without waiters", next);
        }
        for heir in state.waiting() {
            steps.change(who, "leaves its record to one", &next, |next| {
                next.wake(heir)
            });
        }
    }
}

pub(super) const DEADLOCK: &str = "a task without the lock is refused as its owner";
const NOT_OWNER: &str = "the kernel refuses an unlock";
