//! What every mutex must do: bodies over any that is a [`Contestant`], for the tests of this crate, and for those of
//! the interface to C and C++.
#![allow(unsafe_code)]

use super::lock_support::Mapped;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Page, Trial};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

pub const ROUNDS: u64 = if cfg!(miri) { 20 } else { 10_000 };

/// Two halves that are equal whenever nobody is inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Halves {
    pub left: u64,
    pub right: u64,
}

impl Halves {
    pub fn add_one(&mut self) {
        assert_eq!(self.left, self.right, "two tasks were inside at once");
        // Not one store: the compiler may not join the two.
        // SAFETY: a valid place.
        unsafe { core::ptr::write_volatile(&raw mut self.left, self.left + 1) };
        self.right += 1;
    }
}

/// A mutex, as the bodies see it. It does not move once it is used.
pub trait Contestant: Sync {
    /// Whether processes can share it, and whether it has timed operations.
    const SHARED: bool;
    const TIMED: bool;
    /// Whether the system lets this process use it; if not, says which test is skipped.
    fn is_permitted(_test: &str) -> bool {
        true
    }
    fn make() -> Self;
    /// For what must be made where it stays.
    fn settle(&self) {}
    fn lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> R;
    fn try_lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> Option<R>;
    fn lock_until<R>(&self, deadline: Deadline, body: impl FnOnce(&mut Halves) -> R) -> Option<R>;
}

pub fn settled<M: Contestant>() -> Box<M> {
    let mutex = Box::new(M::make());
    mutex.settle();
    mutex
}

pub fn tasks_exclude_each_other<M: Contestant>() {
    let mutex = settled::<M>();
    for tasks in [2, 5] {
        let before = mutex.lock(|data| data.left);
        thread::scope(|scope| {
            for _ in 0..tasks {
                scope.spawn(|| (0..ROUNDS).for_each(|_| mutex.lock(Halves::add_one)));
            }
        });
        mutex.lock(|data| {
            assert_eq!(
                (data.left, data.right),
                (before + tasks * ROUNDS, before + tasks * ROUNDS)
            )
        });
    }
}

/// All ways in at once: some fail, none lets two in, none loses a sleeper.
pub fn all_ways_in_exclude_each_other<M: Contestant>() {
    let mutex = settled::<M>();
    let tries = AtomicU32::new(0);
    thread::scope(|scope| {
        for task in 0..4 {
            let (mutex, tries) = (&mutex, &tries);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let taken = match (task + round) % 3 {
                        0 => mutex.try_lock(Halves::add_one),
                        1 if M::TIMED => mutex.lock_until(
                            Deadline::after(Duration::from_micros(round % 50)),
                            Halves::add_one,
                        ),
                        _ => {
                            mutex.lock(Halves::add_one);
                            Some(())
                        }
                    };
                    tries.fetch_add(u32::from(taken.is_some()), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(mutex.lock(|data| data.left), u64::from(tries.into_inner()));
}

pub fn try_fails_while_held_and_only_then<M: Contestant>() {
    let mutex = settled::<M>();
    assert_eq!(mutex.try_lock(|_| ()), Some(()));
    mutex.lock(|_| {
        thread::scope(|scope| {
            assert_eq!(scope.spawn(|| mutex.try_lock(|_| ())).join().unwrap(), None)
        })
    });
    assert_eq!(mutex.try_lock(|_| ()), Some(()));
}

pub fn a_timed_lock_gives_up_at_its_deadline_and_not_before<M: Contestant>() {
    if !M::TIMED {
        return;
    }
    let mutex = settled::<M>();
    let past = Deadline::from_nanoseconds(1);
    assert_eq!(
        mutex.lock_until(past, |_| ()),
        Some(()),
        "free: taken, whatever the deadline"
    );
    mutex.lock(|_| {
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(mutex.lock_until(past, |_| ()), None);
                let soon = Deadline::after(Duration::from_millis(3));
                assert_eq!(mutex.lock_until(soon, |_| ()), None);
                assert!(soon.has_passed());
            });
        });
    });
    // Released in time.
    let far = || Deadline::after(Duration::from_secs(3600));
    let arrived = AtomicU32::new(0);
    thread::scope(|scope| {
        mutex.lock(|_| {
            for _ in 0..3 {
                scope.spawn(|| {
                    arrived.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(mutex.lock_until(far(), |_| ()), Some(()));
                });
            }
            while arrived.load(Ordering::Relaxed) < 3 {
                thread::yield_now();
            }
        });
    });
}

/// Waiters that give up must not take the wake-up of one that does not.
pub fn waiters_that_give_up_leave_the_others_their_turn<M: Contestant>() {
    if !M::TIMED {
        return;
    }
    let mutex = settled::<M>();
    for round in 0..200 {
        thread::scope(|scope| {
            mutex.lock(|_| {
                scope.spawn(|| mutex.lock(Halves::add_one));
                for _ in 0..2 {
                    scope.spawn(|| {
                        mutex.lock_until(
                            Deadline::after(Duration::from_micros(20 * (round % 10))),
                            |_| (),
                        )
                    });
                }
                thread::yield_now();
            });
        });
    }
    assert_eq!(mutex.lock(|data| data.right), 200);
}

pub fn a_panic_inside_releases<M: Contestant>() {
    let mutex = settled::<M>();
    let panics = AssertUnwindSafe(|| mutex.lock(|_| resume_unwind(Box::new("inside"))));
    assert!(catch_unwind(panics).is_err());
    thread::scope(|scope| {
        scope.spawn(|| mutex.lock(Halves::add_one));
    });
    assert_eq!(mutex.try_lock(|data| data.left), Some(1));
}

pub fn processes_exclude_each_other<M: Contestant>() {
    if !M::SHARED {
        return;
    }
    let _trial = Trial::begin("processes_exclude_each_other");
    let mutex = Mapped::new(M::make());
    mutex.settle();
    let started = Page::<AtomicU32>::new();
    let children: Vec<_> = (0..3)
        .map(|_| {
            Child::fork(|| {
                started.fetch_add(1, Ordering::Relaxed);
                while started.load(Ordering::Relaxed) < 3 {
                    thread::yield_now();
                }
                (0..ROUNDS).for_each(|_| mutex.lock(Halves::add_one));
            })
        })
        .collect();
    children.into_iter().for_each(Child::succeed);
    assert_eq!(mutex.lock(|data| data.right), 3 * ROUNDS);
}

macro_rules! conformance {
    ($($module:ident: $mutex:ty;)*) => {$(
        mod $module {
            use super::*;
            conformance!(@ $mutex; tasks_exclude_each_other all_ways_in_exclude_each_other
                try_fails_while_held_and_only_then a_timed_lock_gives_up_at_its_deadline_and_not_before
                waiters_that_give_up_leave_the_others_their_turn a_panic_inside_releases
                processes_exclude_each_other);
        }
    )*};
    (@ $mutex:ty; $($body:ident)*) => {$(
        #[test]
        fn $body() {
            let _watchdog = latchwork_testkit::Watchdog::start(format!("{} of {}", stringify!($body), stringify!($mutex)));
            if <$mutex>::is_permitted(stringify!($body)) {
                super::$body::<$mutex>();
            }
        }
    )*};
}
