//! The slow path of a call that acquires a reader/writer lock: polls, sleeps, and giving up. The argument is in
//! [the parent](super), *Polls*.

use super::state::{STARVING, State, Waiter};
use super::{Counting, RawRwLock};
use crate::atomic::{Ordering, unless_fault};
use crate::backoff::{ALL, Budget, HAND_OVER, SLEEP, pause};
use crate::mutex::{OwnerMonitor, Unfinished, WaitMode, is_over};
use crate::rwlock::Preference;
use crate::rwlock::trace::{Acquisition, Entry, Event};
use crate::sharing::Sharing;
use crate::sys::futex::{self, Sharing as Flag, Wait};
use crate::sys::futex_pi::is_real_time;
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
        let mut me = Waiter {
            id: own_id::<S, WRITES>(),
            ..Waiter::NEWCOMER
        };
        let mut starves_at = None;
        let mut starves = false;
        match self.poll::<WRITES>(me, wait_mode, &mut starves_at) {
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
                if self
                    .poll::<WRITES>(me, wait_mode, &mut starves_at)
                    .is_some()
                {
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

    /// Polls for a short time, and longer for a writer that runs. If the task has entered, returns for how many
    /// pauses it has polled.
    fn poll<const WRITES: bool>(
        &self,
        waiter: Waiter,
        wait_mode: WaitMode,
        starves_at: &mut StarvesAt,
    ) -> Option<u32> {
        let mut polls = 0;
        let mut left = HAND_OVER;
        let mut watch: Option<WriterWatch> = None;
        let entered = loop {
            let Err(state) = self.attempt::<WRITES>(waiter) else {
                break true;
            };
            // While others starve it is their turn, and they may need this CPU.
            if state.has(STARVING) && !waiter.starves() {
                break false;
            }
            if left == 0 {
                if !self.polls_on(state, waiter, wait_mode, starves_at, &mut watch) {
                    break false;
                }
                left = HAND_OVER;
            }
            let passed = pause(polls);
            if passed < ALL {
                polls = polls.saturating_add(passed);
            }
            left = left.saturating_sub(passed);
        };
        if let Some(watch) = watch
            && !entered
        {
            watch.budget.sleeps();
        }
        entered.then_some(polls)
    }

    /// Whether a waiter whose polls were in vain so far goes on polling: for a writer that runs, if the waiter would be the
    /// first one to sleep.
    #[cold]
    #[inline(never)]
    fn polls_on(
        &self,
        state: State,
        waiter: Waiter,
        wait_mode: WaitMode,
        starves_at: &mut StarvesAt,
        watch: &mut Option<WriterWatch>,
    ) -> bool {
        let Some(writer) = state.writer() else {
            return false;
        };
        // A waiter that starves has a task to wake it as soon as the writer leaves.
        if !state.counts_only(waiter) || waiter.starves() || is_over(wait_mode.deadline()) {
            return false;
        }
        let ends = *starves_at.get_or_insert_with(starves_after::<P>);
        if is_over(ends) {
            return false;
        }
        let watch = watch.get_or_insert_with(|| WriterWatch {
            monitor: OwnerMonitor::default(),
            budget: Budget::at(core::ptr::from_ref(&self.state).addr(), SLEEP),
            may_poll: !is_real_time(),
        });
        watch.may_poll && !watch.budget.is_spent() && watch.monitor.has_run(writer) == Some(true)
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

/// When a waiter starves: not known yet, or at a time, or never.
type StarvesAt = Option<Option<Deadline>>;

/// What a waiter that polls for a writer that runs knows of it, and of such polls.
struct WriterWatch {
    monitor: OwnerMonitor,
    budget: Budget,
    /// It is no real-time task. (Those sleep in the order of their priorities.)
    may_poll: bool,
}

/// What the calling task leaves in the word as it enters: its ID, if it writes and processes do not share the lock. In
/// another process, or after a fork, the ID could be that of another thread. (In the child of a fork it may be that of
/// the parent's thread, of which no waiter of the child can read the clock.)
fn own_id<S: Sharing, const WRITES: bool>() -> u32 {
    if !WRITES || S::FLAG == Flag::Shared {
        return 0;
    }
    #[cfg(loom)]
    return crate::task::Me::current_or_none().tid();
    #[cfg(not(loom))]
    crate::sys::thread::remembered_id()
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::rwlock::WritersFirst;
    use crate::sharing::Private;
    use crate::sys::thread::thread_id;
    use std::thread;

    type Lock = RawRwLock<Private, WritersFirst>;

    fn state(lock: &Lock) -> State {
        State(lock.state.load(Ordering::Relaxed))
    }

    #[test]
    fn a_writer_that_had_to_wait_leaves_its_id_and_takes_it_away() {
        let lock = Lock::new();
        assert!(lock.enter::<true>(WaitMode::FOREVER).is_ok());
        assert_eq!(state(&lock).writer(), None);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                assert!(lock.enter::<true>(WaitMode::FOREVER).is_ok());
                assert_eq!(state(&lock).writer(), Some(thread_id()));
                assert!(!lock.try_enter::<false>() && !lock.try_enter::<true>());
                // SAFETY: entered above.
                #[allow(unsafe_code)]
                unsafe {
                    lock.downgrade();
                }
                assert!(state(&lock).writer().is_none() && lock.try_enter::<false>());
                // SAFETY: entered twice above.
                #[allow(unsafe_code)]
                unsafe {
                    lock.unlock_read();
                    lock.unlock_read();
                }
            });
            while state(&lock).counts_only(Waiter::NEWCOMER) {
                thread::yield_now();
            }
            // SAFETY: entered above.
            #[allow(unsafe_code)]
            unsafe {
                lock.unlock_write();
            }
            writer.join().unwrap();
        });
        assert_eq!(state(&lock), State(0));
        assert!(lock.enter::<true>(WaitMode::FOREVER).is_ok());
        assert_eq!(state(&lock).writer(), None);
    }
}
