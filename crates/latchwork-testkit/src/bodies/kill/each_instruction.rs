//! The operations of a robust lock, killed at each of their instructions.

use super::{Arena, Mortal};
use crate::step::{self, Point, reported};
use crate::{Child, Mapped, Trial};
use core::cell::RefCell;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;

/// Waits of this length are in vain.
const SHORT: Duration = Duration::from_millis(3);

impl<L: Mortal> Arena<L> {
    /// Kills tasks that acquire and release the free lock. `is_free` panics if it is not free afterwards.
    ///
    /// # Panics
    /// If a death is reported that did not happen, or one twice.
    pub fn kill_in_free_pair(&self, trial: &Trial, is_free: impl Fn()) {
        let covered = step::each_instruction_and_recovery(
            trial,
            "free lock",
            || (),
            |(), span| {
                drop(self.enter());
                span.run(|| self.change());
            },
            |()| false,
            |(), span| span.run(|| self.change()),
            |(), point| {
                let before = self.deaths();
                self.change();
                let dead = self.deaths() - before;
                assert!(dead <= 1 && (point != Point::Finished || dead == 0));
                is_free();
                reported(dead)
            },
        );
        println!("{covered:?}");
    }

    /// Kills tasks that wait alone, and so poll first. `join` prepares the tasks.
    ///
    /// # Panics
    /// If a death is reported that did not happen.
    pub fn kill_in_lone_wait(&self, trial: &Trial, name: &str, join: impl Fn()) {
        let covered = step::each_instruction_and_recovery(
            trial,
            name,
            || RefCell::new(Some(self.enter())),
            |_, span| {
                join();
                span.run(|| self.change());
            },
            |held| held.borrow_mut().take().is_some(),
            |_, span| span.run(|| self.change()),
            |held, _| {
                drop(held);
                self.change();
                self.outcome()
            },
        );
        println!("{covered:?}");
    }

    /// Kills tasks that wait beside a sleeper. The sleeper must get the lock. `join` prepares the tasks.
    ///
    /// # Panics
    /// If the sleeper does not get the lock.
    pub fn kill_in_wait(&self, trial: &Trial, name: &str, join: impl Fn()) {
        let before = || {
            let held = self.enter();
            let waiter = Child::fork(|| self.change());
            trial.wait_until(|| waiter.is_in_futex());
            RefCell::new((Some(held), Some(waiter)))
        };
        let covered = step::each_instruction_and_recovery(
            trial,
            name,
            before,
            |_, span| {
                join();
                span.run(|| self.change());
            },
            |world| world.borrow_mut().0.take().is_some(),
            |_, span| span.run(|| self.change()),
            |world, _| {
                let (held, waiter) = world.into_inner();
                drop(held);
                waiter.expect("there was a waiter").succeed();
                self.change();
                self.outcome()
            },
        );
        println!("{covered:?}");
    }

    /// Kills tasks that wait for a limited time, in vain, beside a sleeper. The sleeper must get the lock.
    ///
    /// # Panics
    /// As for [`Self::kill_in_wait`]; or if a death is reported: no owner dies.
    pub fn kill_in_timed_wait(&self, trial: &Trial, name: &str, join: impl Fn()) {
        let covered = step::each_instruction_and_recovery(
            trial,
            name,
            || {
                let held = self.enter();
                let waiter = Child::fork(|| self.change());
                trial.wait_until(|| waiter.is_in_futex());
                (held, waiter)
            },
            |_, span| {
                join();
                let taken = span.run(|| self.lock.acquire(Some(SHORT), |_| ()));
                assert!(taken.is_none());
            },
            // The limit ends each of its sleeps.
            |_| true,
            |_, span| {
                span.run(|| self.lock.acquire(Some(SHORT), |_| ()));
            },
            |(held, waiter), _| {
                let before = self.deaths();
                drop(held);
                waiter.succeed();
                self.change();
                assert_eq!(self.deaths(), before, "no owner died");
                self.outcome()
            },
        );
        println!("{covered:?}");
    }

    /// Kills tasks that release the lock, and have a sleeper to wake.
    ///
    /// # Panics
    /// If the sleeper does not get in.
    pub fn kill_in_unlock_with_sleeper(&self, trial: &Trial) {
        let go = &Mapped::new(AtomicU32::new(0));
        step::each_instruction_and_recovery(
            trial,
            "unlock",
            || {
                go.store(0, SeqCst);
                // It waits for the victim to hold the lock.
                Some(Child::fork(|| {
                    while go.load(SeqCst) == 0 {
                        std::thread::yield_now();
                    }
                    self.change();
                }))
            },
            |waiter, span| {
                let held = self.enter();
                go.store(1, SeqCst);
                let waiter = waiter.as_ref().expect("there is a waiter");
                while !waiter.is_in_futex() {
                    std::thread::yield_now();
                }
                span.run(|| drop(held));
            },
            |_| false,
            |_, span| span.run(|| self.change()),
            |waiter, _| {
                go.store(1, SeqCst);
                waiter.expect("there was a waiter").succeed();
                self.change();
                self.outcome()
            },
        );
    }
}
