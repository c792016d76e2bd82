//! The steps of a task: what it does next, and the one state that follows.

use crate::section::Section;

use super::{At, BYSTANDER, Fault, Life, RegionLock, SLOTS, State, Task, Word, life_queue};

const REPAIRS: At = At::Inside(Section::Repairs);

impl RegionLock {
    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Begins a sweep, if there is a dead task.
    fn sweep(state: &State, own: &mut Task, then: At) -> At {
        own.then = then;
        if state.dead().is_some() {
            At::LocksSweep
        } else {
            then
        }
    }

    fn decide(&self, state: &State, who: usize, next: &mut State) {
        let me = state.tasks[who];
        let own = &mut next.tasks[who];
        if me.read.slot != 0 {
            own.watch = state.deaths;
            own.at = At::AsksOwner;
        } else if state.word != me.read {
            own.read = state.word;
        } else {
            let kept = !self.has(Fault::TakerForgetsSleepers);
            own.at = At::Inside(next.data.enter(me.read.inconsistent));
            next.word = Word {
                waiters: kept && (me.read.waiters || me.others),
                inconsistent: me.read.inconsistent,
                ..state.identity(who)
            };
        }
    }

    fn replace(&self, state: &State, who: usize, next: &mut State) {
        let me = state.tasks[who];
        let own = &mut next.tasks[who];
        if state.word != me.read {
            own.read = state.word;
            own.at = At::Decides;
            return;
        }
        let hides = self.has(Fault::HidesDeath);
        own.at = match self.fault {
            Fault::HidesDeath => At::Inside(next.data.enter(false)),
            Fault::RepairsUnswept => REPAIRS,
            _ => Self::sweep(state, own, REPAIRS),
        };
        next.word = Word {
            waiters: true,
            inconsistent: !hides,
            ..state.identity(who)
        };
    }

    fn is_gone(&self, state: &State, owner: Word) -> bool {
        let slot = usize::from(owner.slot) - 1;
        let is_current = state.generations[slot] == owner.generation;
        state.lives[slot] != Life::Alive || !is_current && !self.has(Fault::IgnoresGenerations)
    }

    /// The one state that follows when the task goes on.
    pub(super) fn go(&self, state: &State, who: usize) -> Option<State> {
        let me = state.tasks[who];
        let mut next = *state;
        let own = &mut next.tasks[who];
        own.at = match me.at {
            At::Idle => {
                own.rounds = me.rounds.checked_sub(1)?;
                own.others = false;
                own.has_napped = !self.naps;
                At::Loads
            }
            At::Loads => {
                own.read = state.word;
                At::Decides
            }
            At::Decides => {
                self.decide(state, who, &mut next);
                return Some(next);
            }
            At::AsksOwner if !self.is_gone(state, me.read) => At::SetsWaiters,
            At::AsksOwner => At::Replaces,
            At::Replaces => {
                self.replace(state, who, &mut next);
                return Some(next);
            }
            At::SetsWaiters if !me.read.waiters && state.word != me.read => {
                own.read = state.word;
                At::Decides
            }
            At::SetsWaiters => {
                if !me.read.waiters {
                    own.read.waiters = true;
                    next.word.waiters = true;
                }
                if self.has(Fault::WatchBeginsLate) {
                    own.watch = state.deaths;
                }
                match me.has_napped {
                    true => At::ReadsLives,
                    false if state.word.high() == own.read.high() || !me.read.waiters => {
                        own.queues = 1;
                        At::Naps
                    }
                    false => At::LooksAgain,
                }
            }
            At::ReadsLives => {
                own.lives = state.lives;
                match state.dead() {
                    Some(_) if !self.has(Fault::SleeperMissesDeaths) => {
                        Self::sweep(state, own, At::LooksAgain)
                    }
                    _ => At::CountsDeaths,
                }
            }
            At::CountsDeaths if state.deaths != me.watch => At::LooksAgain,
            At::CountsDeaths => At::Enqueues,
            At::Enqueues if state.word.high() != me.read.high() => At::LooksAgain,
            At::Enqueues => {
                own.queues = 1;
                At::HalfAsleep
            }
            At::HalfAsleep if self.has(Fault::SleeperMissesDeaths) => At::Asleep,
            At::HalfAsleep if state.lives != me.lives => At::Awake,
            At::HalfAsleep if state.deaths != me.watch && !self.has(Fault::TrustsLives) => {
                At::Awake
            }
            At::HalfAsleep => {
                own.queues = 0xf & !life_queue(who);
                At::Asleep
            }
            At::Awake => {
                own.queues = 0;
                if me.has_napped && !self.has(Fault::WokenLooksAtNothing) {
                    At::ChecksLives
                } else {
                    At::LooksAgain
                }
            }
            At::ChecksLives => Self::sweep(state, own, At::LooksAgain),
            At::LooksAgain if self.bystander && who == BYSTANDER => At::Idle,
            At::LooksAgain => {
                own.others = true;
                At::Loads
            }
            At::LocksSweep => {
                let holder = usize::from(state.sweeper);
                let is_free = holder == 0
                    || state.lives[holder - 1] == Life::Dead && !self.has(Fault::SweepLockStays);
                if !is_free {
                    return None;
                }
                next.sweeper = who as u8 + 1;
                At::FindsDead
            }
            At::FindsDead => match state.dead() {
                Some(dead) => {
                    own.sweeps = dead as u8;
                    At::CountsDeath
                }
                None => At::UnlocksSweep,
            },
            At::CountsDeath => {
                next.deaths += u8::from(!self.has(Fault::SweepCountsNothing));
                At::WakesWatchers
            }
            At::WaitsForTail if state.tails[usize::from(me.sweeps)] => At::Advances,
            At::Advances => {
                let dead = usize::from(me.sweeps);
                next.generations[dead] += u8::from(!self.has(Fault::KeepsGeneration));
                At::Frees
            }
            At::Frees => {
                next.lives[usize::from(me.sweeps)] = Life::Free;
                At::FindsDead
            }
            At::UnlocksSweep => {
                next.sweeper = 0;
                me.then
            }
            At::Inside(section) => {
                let slot = usize::from(me.read.slot);
                let is_unswept = slot > 0 && state.generations[slot - 1] == me.read.generation;
                let hurries =
                    section == Section::Repairs && is_unswept && !self.has(Fault::KeepsGeneration);
                next.hurried |= hurries;
                next.word.inconsistent &= section != Section::MarksConsistent;
                next.data.go(section).map_or(At::Gives, At::Inside)
            }
            At::Gives if state.word != state.identity(who) => At::GivesWithWaiters,
            At::Gives => {
                next.word = Word::default();
                At::Idle
            }
            At::GivesWithWaiters => {
                next.word = Word::default();
                match self.has(Fault::UnlockForgetsSleepers) {
                    true => At::Idle,
                    false => At::Wakes,
                }
            }
            At::Dies => {
                next.lives[who] = Life::Dead;
                match self.has(Fault::KernelWakesNobody) {
                    true => At::MarksTail,
                    false => At::KernelWakes,
                }
            }
            At::MarksTail => {
                next.tails[who] = true;
                At::Gone
            }
            At::Gone if me.successors > 0 && state.lives[who] == Life::Free => {
                own.successors -= 1;
                own.rounds = 1;
                next.lives[who] = Life::Alive;
                next.tails[who] = false;
                At::Idle
            }
            _ => return None,
        };
        // What a task no longer needs would only multiply the states.
        if matches!(own.at, At::Idle | At::Inside(Section::Writes) | At::Loads)
            && me.at != At::LocksSweep
        {
            own.read = Word::default();
            own.watch = 0;
            own.lives = [Life::Free; SLOTS];
            own.sweeps = 0;
            own.then = At::Idle;
        }
        Some(next)
    }
}
