//! Waiting for a mutex with a ceiling: at whose priority, in which order, and what ends it.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::time::Duration;
use latchwork::condvar::Condvar;
use latchwork::mutex::{Protect, ProtectFault, Unfinished};
use latchwork::time::Deadline;
use latchwork_testkit::Child;
use std::sync::Mutex as StdMutex;
use std::thread;

mod protect_support;
use latchwork_testkit::ThreadId;
use latchwork_testkit::priority::{Now, OTHER, fifo, in_thread, now, round_robin, with_priorities};
use protect_support::{inside, lock};

#[test]
fn a_waiter_that_gives_up_has_its_priority_restored() {
    with_priorities(|trial| {
        let mutex = lock(50);
        let guard = mutex.lock().unwrap();
        in_thread(|| {
            fifo(10).give(0);
            assert!(mutex.try_lock().unwrap().is_none());
            assert_eq!(now(), fifo(10));
            let soon = || Deadline::after(Duration::from_millis(2));
            assert!(mutex.lock_until(soon()).unwrap().is_none());
            assert_eq!(now(), fifo(10));
            let ended = mutex.lock_interruptible(Some(soon())).unwrap();
            assert_eq!((ended.err(), now()), (Some(Unfinished::TimedOut), fifo(10)));
            let other = lock(40);
            let held = other.lock().unwrap();
            assert!(mutex.lock_until(soon()).unwrap().is_none());
            assert_eq!(now(), fifo(40));
            drop(held);
        });
        // A handler that does nothing ends a wait.
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: such a handler is safe anywhere.
        unsafe { libc::signal(libc::SIGUSR1, nothing as *const () as usize) };
        let waiter = ThreadId::default();
        thread::scope(|scope| {
            let ended = scope.spawn(|| {
                fifo(10).give(0);
                waiter.set();
                let ended = mutex.lock_interruptible(None).unwrap().err();
                (ended, now())
            });
            trial.wait_until(|| {
                if waiter.is_in_futex() {
                    waiter.signal(libc::SIGUSR1);
                }
                ended.is_finished()
            });
            assert_eq!(
                ended.join().unwrap(),
                (Some(Unfinished::Interrupted), fifo(10))
            );
        });
        drop(guard);
    })
}

#[test]
fn waiters_sleep_at_their_own_priority_and_wake_in_its_order() {
    with_priorities(|trial| {
        let mutex = lock(50);
        let order = StdMutex::new(Vec::new());
        thread::scope(|scope| {
            let guard = mutex.lock().unwrap();
            for own in [fifo(10), OTHER, fifo(30), round_robin(20), fifo(40)] {
                let id: &ThreadId = Box::leak(Box::default());
                let (mutex, order) = (&mutex, &order);
                scope.spawn(move || {
                    own.give(0);
                    id.set();
                    let _guard = mutex.lock().unwrap();
                    assert_eq!(now().priority, 50);
                    order.lock().unwrap().push(own.priority);
                });
                trial.wait_until(|| id.is_in_futex() && Now::of(id.number()) == own);
            }
            drop(guard);
        });
        assert_eq!(order.into_inner().unwrap(), [40, 30, 20, 10, 0]);
    })
}

#[test]
fn the_ceiling_can_be_changed_while_tasks_wait() {
    with_priorities(|trial| {
        let mutex = lock(50);
        assert_eq!(
            (mutex.ceiling(), mutex.set_ceiling(60), mutex.ceiling()),
            (50, 50, 60)
        );
        assert_eq!((inside(&mutex).priority, now()), (60, OTHER));
        // A task above it may raise it.
        fifo(80).give(0);
        assert!(mutex.lock().is_err());
        assert_eq!(
            (mutex.set_ceiling(90), inside(&mutex), now()),
            (60, fifo(90), fifo(80))
        );
        OTHER.give(0);
        let (setter, waiter) = (ThreadId::default(), ThreadId::default());
        thread::scope(|scope| {
            let guard = mutex.lock().unwrap();
            scope.spawn(|| {
                // A thread begins as the one that started it: here, at the ceiling.
                OTHER.give(0);
                // It will wake first, since it sleeps at the ceiling.
                setter.set();
                assert_eq!(mutex.set_ceiling(30), 90);
            });
            trial.wait_until(|| setter.is_in_futex());
            scope.spawn(|| {
                OTHER.give(0);
                waiter.set();
                assert_eq!(inside(&mutex), fifo(30));
                assert_eq!(now(), OTHER);
            });
            trial.wait_until(|| waiter.is_in_futex());
            drop(guard);
            assert_eq!(now(), OTHER);
        });
        assert_eq!(mutex.ceiling(), 30);
    })
}

/// A waiter whose own priority is above a ceiling that was lowered meanwhile is refused, and passes its wake-up on.
#[test]
fn each_critical_section_runs_at_the_current_ceiling() {
    with_priorities(|_| {
        let mutex = lock(30);
        let enter = || {
            for _ in 0..2_000 {
                let _guard = mutex.lock().unwrap();
                assert_eq!(now().priority, i32::from(mutex.ceiling()));
            }
            assert_eq!(now(), OTHER);
        };
        thread::scope(|scope| {
            let tasks = [scope.spawn(enter), scope.spawn(enter)];
            for ceiling in (30..=60).cycle() {
                mutex.set_ceiling(ceiling);
                if tasks.iter().all(thread::ScopedJoinHandle::is_finished) {
                    break;
                }
            }
            assert_eq!(now(), OTHER);
        });
    })
}

#[test]
fn a_waiter_that_may_no_longer_enter_passes_its_wakeup_on() {
    with_priorities(|trial| {
        let mutex = lock(50);
        let (above, below) = (ThreadId::default(), ThreadId::default());
        thread::scope(|scope| {
            let guard = mutex.lock().unwrap();
            scope.spawn(|| {
                fifo(10).give(0);
                above.set();
                assert_eq!(
                    mutex.lock().err(),
                    Some(ProtectFault::AboveCeiling {
                        own: 60,
                        ceiling: 50
                    })
                );
                assert_eq!(now(), fifo(60));
            });
            trial.wait_until(|| above.is_in_futex());
            scope.spawn(|| {
                fifo(5).give(0);
                below.set();
                assert_eq!(inside(&mutex), fifo(50));
            });
            trial.wait_until(|| below.is_in_futex());
            fifo(60).give(above.number());
            drop(guard);
        });
    })
}

#[test]
fn a_kept_boost_lasts_until_its_guard_is_dropped_or_the_task_waits() {
    with_priorities(|trial| {
        fifo(10).give(0);
        let (low, high) = (lock(30), lock(50));
        let kept = Protect::keep_boost().unwrap();
        assert_eq!(now(), fifo(10));
        assert_eq!((inside(&low), now()), (fifo(30), fifo(30)));
        assert_eq!((inside(&high), now()), (fifo(50), fifo(50)));
        assert_eq!((inside(&low), now()), (fifo(50), fifo(50)));
        let inner = Protect::keep_boost().unwrap();
        drop(kept);
        assert_eq!((now(), inside(&low), now()), (fifo(50), fifo(50), fifo(50)));
        let guard = low.lock().unwrap();
        drop(inner);
        assert_eq!(now(), fifo(30));
        drop(guard);
        assert_eq!(now(), fifo(10));
        // The boost is given up for a sleep.
        let kept = Protect::keep_boost().unwrap();
        assert_eq!((inside(&high), now()), (fifo(50), fifo(50)));
        let id = ThreadId::default();
        thread::scope(|scope| {
            let held = low.lock().unwrap();
            scope.spawn(|| {
                fifo(10).give(0);
                let _kept = Protect::keep_boost().unwrap();
                assert_eq!((inside(&high), now()), (fifo(50), fifo(50)));
                id.set();
                assert_eq!((inside(&low), now()), (fifo(30), fifo(30)));
            });
            trial.wait_until(|| id.is_in_futex());
            assert_eq!(Now::of(id.number()), fifo(10));
            drop(held);
        });
        // A change from outside ends it.
        fifo(20).give(0);
        drop(kept);
        assert_eq!(
            (now(), inside(&high), now()),
            (fifo(20), fifo(50), fifo(20))
        );
        // Dropped in a child, where nothing is kept.
        let kept = Protect::keep_boost().unwrap();
        drop(high.lock().unwrap());
        Child::fork(|| {
            drop(low.lock().unwrap());
            drop(kept);
            assert_eq!(
                (now(), inside(&high), now()),
                (fifo(20), fifo(50), fifo(20))
            );
        })
        .succeed();
    })
}

#[test]
fn a_wait_for_a_condition_runs_at_the_tasks_own_priority() {
    with_priorities(|trial| {
        let (mutex, changed) = (lock(50), Condvar::new());
        let id = ThreadId::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                fifo(10).give(0);
                id.set();
                let guard = mutex.lock().unwrap();
                let guard = changed.wait_while(guard, |value| *value == 0).unwrap();
                assert_eq!(now(), fifo(50));
                drop(guard);
                assert_eq!(now(), fifo(10));
            });
            trial.wait_until(|| id.is_in_futex() && Now::of(id.number()) == fifo(10));
            *mutex.lock().unwrap() = 1;
            changed.notify_one();
        });
    })
}
