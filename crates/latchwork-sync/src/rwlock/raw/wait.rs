//! The slow path of a call that acquires a reader/writer lock: polls, sleeps, and giving up. The argument is in
//! [the parent](super).

use super::state::{STARVING, State, Waiter};
use super::{Counting, RawRwLock};
use crate::atomic::{Ordering, unless_fault};
use crate::backoff::{HAND_OVER, pause};
use crate::mutex::{Unfinished, WaitMode};
use crate::rwlock::Preference;
use crate::rwlock::trace::{Acquisition, Entry, Event};
use crate::sharing::Sharing;
use crate::sys::futex::{self, Wait};
use crate::sys::slow_paths;
use crate::time::Deadline;

impl<S: Sharing, P: Preference, C: Counting<Event>> RawRwLock<S, P, C> {
    /// Acquires the lock as a task that the free path did not admit.
    #[cold]
    pub(super) fn contend<const WRITES: bool>(
        &self,
        wait_mode: WaitMode,
    ) -> Result<Acquisition, Unfinished> {
        slow_paths::acquisition();
        let mut sleeps = 0;
        let entered = self.wait_to_enter::<WRITES>(wait_mode, &mut sleeps);
        let entered = entered.map(|entry| Acquisition { entry, sleeps });
        if let Some(ended) = Event::ended(&entered) {
            self.counts.count(Event::slow_path(WRITES));
            self.counts.count(ended);
        }
        entered
    }

    fn wait_to_enter<const WRITES: bool>(
        &self,
        wait_mode: WaitMode,
        sleeps: &mut u32,
    ) -> Result<Entry, Unfinished> {
        let mut me = Waiter::NEWCOMER;
        let mut starves_at = None;
        let mut starves = false;
        match self.poll::<WRITES>(me) {
            Some(0) => return Ok(Entry::Free),
            Some(_) => return Ok(Entry::Polled),
            None => {}
        }
        loop {
            let Some(state) = self.register_to_sleep::<WRITES>(&mut me, starves) else {
                return Ok(entry_of(me, *sleeps));
            };
            let end = wait_mode.deadline();
            let until = if me.starves() {
                end
            } else {
                let at = *starves_at.get_or_insert_with(starves_after::<P>);
                at.into_iter().chain(end).min()
            };
            let mask = me.group::<WRITES>();
            *sleeps = sleeps.saturating_add(1);
            self.counts.count(Event::Sleep);
            let (ended, woken) = futex::wait_high(&self.state, state.0, mask, S::FLAG, until);
            if woken {
                me.called = true;
                if self.poll::<WRITES>(me).is_some() {
                    return Ok(entry_of(me, *sleeps));
                }
            } else if ended == Wait::TimedOut && until != end {
                starves = true;
                starves_at = None;
            } else if let Err(unfinished) = wait_mode.check(ended) {
                return self
                    .give_up::<WRITES>(me)
                    .then_some(entry_of(me, *sleeps))
                    .ok_or(unfinished);
            }
        }
    }

    /// Polls for a short time. If the task has entered, returns the number of attempts before that.
    fn poll<const WRITES: bool>(&self, waiter: Waiter) -> Option<u32> {
        let mut polls = 0;
        loop {
            let Err(state) = self.attempt::<WRITES>(waiter) else {
                return Some(polls);
            };
            // While others starve it is their turn, and they may need this CPU.
            if polls == HAND_OVER || state.has(STARVING) && !waiter.starves() {
                return None;
            }
            pause(polls);
            polls += 1;
        }
    }

    /// Counts the waiter and asks for a wake-up; returns `None` if it has entered instead.
    fn register_to_sleep<const WRITES: bool>(
        &self,
        me: &mut Waiter,
        starves: bool,
    ) -> Option<State> {
        loop {
            let Err(state) = self.attempt::<WRITES>(*me) else {
                return None;
            };
            let (asked, counted) = state.asked::<WRITES>(*me, starves);
            // The last check has to change nothing (invariant 1).
            if asked == state {
                return Some(asked);
            }
            // Relaxed: this step neither enters nor leaves.
            if self.change(state, asked, Ordering::Relaxed).is_ok() {
                me.counted = counted;
                if unless_fault!(RwLockChecksOnce, false, true) {
                    return Some(asked);
                }
            }
        }
    }

    /// Subtracts the waiter; returns true if it has entered instead, since the lock is free.
    fn give_up<const WRITES: bool>(&self, me: Waiter) -> bool {
        let calls = unless_fault!(RwLockQuitterForgetsReaders, true, false);
        // Relaxed: the step below reads the value again.
        let mut state = State(self.state.load(Ordering::Relaxed));
        loop {
            let to = state.left::<WRITES>(me);
            // Acquire: it may enter. (If it was the last writer that waited, the high half changes even without
            // a call for readers.)
            match self.change_and_call(state, to, Ordering::Acquire, calls) {
                Err(now) => state = now,
                Ok(()) => return state.is_free(),
            }
        }
    }
}

/// How a waiter that has done more than poll once has entered.
fn entry_of(me: Waiter, sleeps: u32) -> Entry {
    if me.starves() {
        Entry::HandedOff
    } else if sleeps > 0 {
        Entry::Woken
    } else {
        Entry::Polled
    }
}

#[cfg(not(loom))]
fn starves_after<P: Preference>() -> Option<Deadline> {
    Some(Deadline::after(P::STARVES_AFTER))
}
#[cfg(loom)]
fn starves_after<P: Preference>() -> Option<Deadline> {
    crate::model::scene().starving.then_some(crate::model::SOON)
}
