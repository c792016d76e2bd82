//! What every mutex must do: bodies over any that is a [`Contestant`], for the tests of the library, and for those of its
//! interface to C and C++. `mutex_conformance!` makes a test of each.
#![allow(unsafe_code)]

use crate::{Child, Mapped, Page, Trial};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use latchwork_sys::time::Deadline;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

/// How often each task enters.
pub const ROUNDS: u64 = if cfg!(miri) { 20 } else { 10_000 };

/// Two numbers that are equal whenever no task is inside.
pub type Halves = [u64; 2];

/// Adds one to both halves, the one after the other.
///
/// # Panics
/// If they differ: another task is inside.
pub fn add_one(halves: &mut Halves) {
    assert_eq!(halves[0], halves[1], "two tasks were inside at once");
    // Not one store: the compiler may not join the two.
    // SAFETY: a reference to a number is valid for a write.
    unsafe { core::ptr::write_volatile(&raw mut halves[0], halves[0] + 1) };
    halves[1] += 1;
}

/// A mutex, as the bodies see it. It does not move after its first use.
pub trait Contestant: Sync {
    /// Whether processes can share it.
    const SHARED: bool;
    /// Whether it has timed operations.
    const TIMED: bool;
    /// Whether the system lets this process use it; if not, prints which test is skipped.
    fn is_permitted(_test: &str) -> bool {
        true
    }
    /// A free one.
    fn make() -> Self;
    /// Called where it will stay, before its first use.
    fn settle(&self) {}
    /// Runs `body` under the lock.
    fn lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> R;
    /// Runs `body` under the lock if it is free.
    fn try_lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> Option<R>;
    /// Runs `body` under the lock if it is free before the deadline.
    fn lock_until<R>(&self, deadline: Deadline, body: impl FnOnce(&mut Halves) -> R) -> Option<R>;
}

/// A mutex at its final place.
pub fn settled<M: Contestant>() -> Box<M> {
    let mutex = Box::new(M::make());
    mutex.settle();
    mutex
}

/// Few tasks, and more than processors.
pub fn tasks_exclude_each_other<M: Contestant>() {
    let mutex = settled::<M>();
    for tasks in [2, 5] {
        let before = mutex.lock(|data| data[0]);
        thread::scope(|scope| {
            for _ in 0..tasks {
                scope.spawn(|| (0..ROUNDS).for_each(|_| mutex.lock(add_one)));
            }
        });
        mutex.lock(|data| {
            assert_eq!(
                (data[0], data[1]),
                (before + tasks * ROUNDS, before + tasks * ROUNDS)
            )
        });
    }
}

/// Lock, try and timed lock at once: some fail, none admits two tasks, none loses a waiter.
pub fn all_ways_in_exclude_each_other<M: Contestant>() {
    let mutex = settled::<M>();
    let tries = AtomicU32::new(0);
    thread::scope(|scope| {
        for task in 0..4 {
            let (mutex, tries) = (&mutex, &tries);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let taken = match (task + round) % 3 {
                        0 => mutex.try_lock(add_one),
                        1 if M::TIMED => mutex.lock_until(
                            Deadline::after(Duration::from_micros(round % 50)),
                            add_one,
                        ),
                        _ => {
                            mutex.lock(add_one);
                            Some(())
                        }
                    };
                    tries.fetch_add(u32::from(taken.is_some()), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(mutex.lock(|data| data[0]), u64::from(tries.into_inner()));
}

/// `try_lock` fails while another task holds the mutex, and only then.
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

/// A timed lock returns no earlier than its deadline, and takes a free mutex whatever the deadline.
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

/// A waiter that gives up does not consume the wake-up of another.
pub fn waiters_that_give_up_leave_the_others_their_turn<M: Contestant>() {
    if !M::TIMED {
        return;
    }
    let mutex = settled::<M>();
    for round in 0..200 {
        thread::scope(|scope| {
            mutex.lock(|_| {
                scope.spawn(|| mutex.lock(add_one));
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
    assert_eq!(mutex.lock(|data| data[1]), 200);
}

/// A panic inside the section releases the mutex.
pub fn a_panic_inside_releases<M: Contestant>() {
    let mutex = settled::<M>();
    let panics = AssertUnwindSafe(|| mutex.lock(|_| resume_unwind(Box::new("inside"))));
    assert!(catch_unwind(panics).is_err());
    thread::scope(|scope| {
        scope.spawn(|| mutex.lock(add_one));
    });
    assert_eq!(mutex.try_lock(|data| data[0]), Some(1));
}

/// Forked processes exclude each other.
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
                (0..ROUNDS).for_each(|_| mutex.lock(add_one));
            })
        })
        .collect();
    children.into_iter().for_each(Child::succeed);
    assert_eq!(mutex.lock(|data| data[1]), 3 * ROUNDS);
}

/// Makes a module for each mutex, with a test for each body.
#[macro_export]
macro_rules! mutex_conformance {
    ($($module:ident: $mutex:ty;)*) => {$(
        mod $module {
            use super::*;
            $crate::mutex_conformance!(@ $mutex; tasks_exclude_each_other all_ways_in_exclude_each_other
                try_fails_while_held_and_only_then a_timed_lock_gives_up_at_its_deadline_and_not_before
                waiters_that_give_up_leave_the_others_their_turn a_panic_inside_releases
                processes_exclude_each_other);
        }
    )*};
    (@ $mutex:ty; $($body:ident)*) => {$(
        #[test]
        fn $body() {
            let _watchdog = $crate::Watchdog::start(format!("{} of {}", stringify!($body), stringify!($mutex)));
            if <$mutex as $crate::bodies::mutex::Contestant>::is_permitted(stringify!($body)) {
                $crate::bodies::mutex::$body::<$mutex>();
            }
        }
    )*};
}
