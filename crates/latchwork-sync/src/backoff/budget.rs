//! Budgets: how long one wait polls.

use super::learned::{Learned, MOST, State, Sums};
use super::speed::ticks_in;
use crate::sys::clock::ticks;
use crate::sys::own_record::{Account, PLACES, with_habits};
use core::cell::Cell;

/// Waits are added to what the process has learned so many at a time, but in trials: that moves a cache line.
const AT_A_TIME: u32 = 16;

/// One wait, from the end of its [`FIRST_POLLS`](super::FIRST_POLLS) on, until it is dropped: as it has got the lock, or
/// given up. It says whether to poll or to sleep at once, by what the process [has learned](super::learned) about the
/// lock, and adds to that.
pub struct Budget {
    learned: &'static Learned,
    state: State,
    place: usize,
    /// Microseconds that a sleep costs.
    sleep: u32,
    sleeps: Cell<u32>,
    /// Ticks of polls before the latest sleep.
    polled: Cell<u64>,
    /// The tick at which the polls began that go on.
    polls_since: Cell<Option<u64>>,
}

impl Budget {
    /// For the lock at this address, whose waiters lose `sleep` microseconds by a sleep.
    #[inline]
    pub fn at(address: usize, sleep: u32) -> Self {
        let learned = Learned::about(address);
        let state = learned.state();
        let place = (address >> 2 ^ address >> 6 ^ address >> 12) % PLACES;
        let now = ticks();
        with_habits(|mine| {
            let account = &mine.accounts[place];
            let group = learned.group();
            let is_same_group = account.group.replace(group) == group;
            if account.state.replace(state.0) != state.0 || !is_same_group {
                let _ = take_sums(account);
            }
            // Of another group nothing is known of the time since its wait.
            if is_same_group {
                add(&account.worked, now.saturating_sub(account.ended.get()));
            }
        });
        Self {
            learned,
            state,
            place,
            sleep,
            sleeps: Cell::new(0),
            polled: Cell::new(0),
            polls_since: Cell::new(Some(now)),
        }
    }

    /// How many polls this wait may make, `most` at most.
    #[inline]
    pub fn most(&self, most: u32) -> u32 {
        if self.is_spent() { 0 } else { most }
    }

    /// Whether polls do not pay.
    #[inline]
    pub fn is_spent(&self) -> bool {
        !self.state.mode().polls()
    }

    /// To be called before a sleep.
    #[inline]
    pub fn sleeps(&self) {
        self.end_polls(ticks());
        self.sleeps.set(self.sleeps.get().saturating_add(1));
    }

    /// To be called before polls that follow a sleep.
    #[inline]
    pub fn polls_again(&self) {
        if self.polls_since.get().is_none() {
            self.polls_since.set(Some(ticks()));
        }
    }

    fn end_polls(&self, now: u64) {
        if let Some(since) = self.polls_since.take() {
            self.polled
                .set(self.polled.get() + now.saturating_sub(since));
        }
    }
}

impl Drop for Budget {
    #[inline]
    fn drop(&mut self) {
        let now = ticks();
        self.end_polls(now);
        let sleeps = self.sleeps.get();
        with_habits(|mine| {
            let account = &mine.accounts[self.place];
            account.waits.set(account.waits.get() + 1);
            let without_sleep = account.without_sleep.get() + u32::from(sleeps == 0);
            account.without_sleep.set(without_sleep);
            add(&account.lost, self.polled.get());
            if sleeps > 0 {
                add(&account.lost, u64::from(sleeps) * ticks_in(self.sleep));
            }
            account.ended.set(now);
            if account.waits.get() >= AT_A_TIME || self.state.mode().is_trial() {
                self.learned.add(self.state, take_sums(account), now);
            }
        });
    }
}

/// Adds some ticks, of those that count.
fn add(sum: &Cell<u32>, ticks: u64) {
    let counted = ticks.min(ticks_in(MOST)) as u32;
    sum.set(sum.get().saturating_add(counted));
}

fn take_sums(account: &Account) -> Sums {
    Sums {
        waits: account.waits.take(),
        without_sleep: account.without_sleep.take(),
        worked: account.worked.take(),
        lost: account.lost.take(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::SLEEP;

    /// A lock that no other test uses.
    const LOCK: usize = 0x7000;

    /// The thread loses all its time to polls, and then to sleeps.
    #[test]
    fn waits_are_added_to_what_the_process_has_learned() {
        std::thread::spawn(|| {
            let mode = || Learned::about(LOCK).state().mode();
            assert!(mode().polls());
            for _ in 0..1000 {
                if !mode().polls() {
                    break;
                }
                let budget = Budget::at(LOCK, SLEEP);
                assert_eq!((budget.most(7), budget.is_spent()), (7, false));
                (0..200).for_each(|_| core::hint::spin_loop());
            }
            assert!(!mode().polls(), "no sleeps were tried");
            let budget = Budget::at(LOCK, SLEEP);
            assert_eq!((budget.most(7), budget.is_spent()), (0, true));
            budget.sleeps();
            assert_eq!(budget.polls_since.get(), None);
            budget.polls_again();
            assert!(budget.polls_since.get().is_some());
        })
        .join()
        .unwrap();
    }

    /// Two locks that share an account of the thread, and of which the process learns apart.
    #[test]
    fn waits_for_one_lock_are_not_added_to_those_for_another() {
        std::thread::spawn(|| {
            let place = |address: usize| (address >> 2 ^ address >> 6 ^ address >> 12) % PLACES;
            let group = |address: usize| Learned::about(address).group();
            let other = (0x7100..0x9000)
                .step_by(4)
                .find(|&other| place(other) == place(LOCK) && group(other) != group(LOCK))
                .unwrap();
            let waits = || with_habits(|mine| mine.accounts[place(LOCK)].waits.get());
            (0..3).for_each(|_| drop(Budget::at(other, SLEEP)));
            assert_eq!(waits(), 3);
            let budget = Budget::at(LOCK, SLEEP);
            assert_eq!(waits(), 0);
            drop(budget);
        })
        .join()
        .unwrap();
    }
}
