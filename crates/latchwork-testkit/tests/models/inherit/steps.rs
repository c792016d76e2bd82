//! What a task does outside of the kernel, and how it is killed.

use super::{At, Fault, Inherit, LOST, State, Steps, TWICE, Task, Word};

impl Inherit {
    /// The one state that follows when the task goes on, outside of the kernel.
    pub(super) fn go(&self, state: &State, who: usize) -> Option<State> {
        let me = state.tasks[who];
        let mut next = *state;
        let own = &mut next.tasks[who];
        own.at = match me.at {
            At::Idle => {
                own.rounds = me.rounds.checked_sub(1)?;
                own.announced = !self.unlisted;
                At::TakesFree
            }
            At::TakesFree if state.word == Word::default() => {
                next.word.owner = who as u8 + 1;
                At::Links
            }
            At::TakesFree => At::Guesses,
            At::Guesses => {
                own.read = state.word;
                At::KernelReads
            }
            At::MarksDied => {
                // `WAITERS` was set by the kernel.
                let guess = me.read.owner != 0 && state.word.owner == me.read.owner;
                if guess || self.fault == Fault::MarksAnyWord {
                    next.word = state.word.of_dead_owner();
                }
                own.read = Word::default();
                At::Guesses
            }
            At::ReadsWord if state.word.died && self.fault != Fault::HidesDeath => At::StoresState,
            At::ReadsWord => At::Links,
            At::StoresState => {
                next.inconsistent = true;
                At::Links
            }
            At::Links => {
                own.listed = !self.unlisted;
                own.announced = false;
                At::ReadsState
            }
            At::ReadsState => {
                if state.inconsistent != state.unreported {
                    let wrong = if state.inconsistent { TWICE } else { LOST };
                    next.wrong = Some(wrong);
                }
                next.unreported = false;
                At::Inside(next.data.enter(state.inconsistent))
            }
            At::Inside(section) => {
                next.inconsistent &= section != super::Section::MarksConsistent;
                next.data.go(section).map_or(At::Unlinks, At::Inside)
            }
            At::Unlinks => {
                own.announced = !self.unlisted;
                own.listed = false;
                At::Gives
            }
            At::Gives
                if state.word
                    == Word {
                        owner: who as u8 + 1,
                        ..Word::default()
                    } =>
            {
                next.word = Word::default();
                *own = Self::rested(me);
                At::Idle
            }
            At::Gives if self.fault == Fault::UnlockIgnoresSleepers => {
                next.word = Word::default();
                *own = Self::rested(me);
                At::Idle
            }
            At::Gives => At::KernelReadsToUnlock,
            _ => return None,
        };
        Some(next)
    }

    /// A task that has released the lock, or has given up.
    pub(super) fn rested(me: Task) -> Task {
        Task {
            at: At::Idle,
            read: Word::default(),
            announced: false,
            listed: false,
            passes_on: false,
            ..me
        }
    }

    /// A kill takes effect at once, or when the task leaves its sleep in the kernel. (In the midst of the kernel's other steps it
    /// takes effect at their end, as a kill there does.)
    pub(super) fn kill(&self, state: &State, who: usize, steps: &mut Steps<State>) {
        match state.tasks[who].at {
            At::Asleep | At::Woken => steps.change(who, "is killed asleep", state, |next| {
                next.kills -= 1;
                next.tasks[who].doomed = true;
                next.tasks[who].at = At::Cleans;
            }),
            At::TakesFree
            | At::Guesses
            | At::MarksDied
            | At::ReadsWord
            | At::StoresState
            | At::Links
            | At::ReadsState
            | At::Inside(_)
            | At::Unlinks
            | At::Gives
            | At::KernelReadsToUnlock => steps.change(who, "is killed", state, |next| {
                next.kills -= 1;
                next.die(who);
            }),
            _ => {}
        }
    }
}

impl State {
    /// The task's exit begins.
    pub(super) fn die(&mut self, who: usize) {
        self.unreported |= self.is_owned_by(who);
        self.tasks[who] = Task {
            at: At::WalksList,
            read: Word::default(),
            doomed: false,
            passes_on: false,
            rounds: 0,
            ..self.tasks[who]
        };
    }
}
