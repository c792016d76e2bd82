//! When a throughput mutex is handed off, and to which waiter: the bounds in the head of `mutex/throughput.rs`.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use latchwork::mutex::throughput::{Entry, Event};
use latchwork_testkit::Watchdog;
use std::thread;
use std::time::Instant;

mod throughput_support;
use latchwork_testkit::ThreadId;
use latchwork_testkit::priority::{fifo, may_use_priorities};
use throughput_support::{AT_ONCE, Counted, count, counted, handle_sigusr2, wait_until};

fn become_real_time(sched_priority: i32) {
    fifo(sched_priority).give(0);
}

/// The entry of a task that sleeps on the word when it is released.
fn entry_of_a_sleeper(mutex: &Counted) -> Entry {
    let sleeper = ThreadId::default();
    thread::scope(|scope| {
        let held = mutex.lock();
        let waiter = scope.spawn(|| {
            sleeper.set();
            let (_guard, how) = mutex.lock_traced();
            assert!(how.sleeps > 0);
            how.entry
        });
        wait_until(|| count(mutex, Event::TopSleep) > 0 && sleeper.is_in_futex());
        drop(held);
        waiter.join().unwrap()
    })
}

#[test]
fn an_overdue_top_waiter_is_handed_the_lock() {
    let _watchdog = Watchdog::start("handed the lock".into());
    let mutex = counted(AT_ONCE);
    assert_eq!(entry_of_a_sleeper(&mutex), Entry::HandedOff);
    assert_eq!(count(&mutex, Event::HandedOff), 1);
}

#[test]
fn without_hand_off_a_top_waiter_takes_a_free_lock() {
    let _watchdog = Watchdog::start("takes what is free".into());
    assert_eq!(entry_of_a_sleeper(&counted(None)), Entry::TopWaiter);
}

#[test]
fn a_real_time_task_does_not_wait_at_the_gate() {
    let _watchdog = Watchdog::start("real-time".into());
    if !may_use_priorities("a_real_time_task_does_not_wait_at_the_gate") {
        return;
    }
    let mutex = counted(None);
    thread::scope(|scope| {
        let held = mutex.lock();
        scope.spawn(|| *mutex.lock() += 1);
        wait_until(|| count(&mutex, Event::TopSleep) > 0);
        let real_time = scope.spawn(|| {
            become_real_time(1);
            mutex.lock_traced().1
        });
        wait_until(|| count(&mutex, Event::TopSleep) > 1);
        drop(held);
        real_time.join().unwrap();
    });
    assert_eq!(count(&mutex, Event::QueueSleep), 0);
}

/// The only waiter is a real-time task: it requests the lock, though the gate is free and the threshold is far away.
#[test]
fn a_real_time_task_that_waits_alone_is_overdue_at_once() {
    let _watchdog = Watchdog::start("waits alone".into());
    if !may_use_priorities("a_real_time_task_that_waits_alone_is_overdue_at_once") {
        return;
    }
    let mutex = counted(Some(Duration::from_secs(1000)));
    let sleeper = ThreadId::default();
    thread::scope(|scope| {
        let held = mutex.lock();
        let waiter = scope.spawn(|| {
            become_real_time(1);
            sleeper.set();
            mutex.lock_traced().1.entry
        });
        wait_until(|| count(&mutex, Event::TopSleep) > 0 && sleeper.is_in_futex());
        drop(held);
        assert_eq!(waiter.join().unwrap(), Entry::HandedOff);
    });
}

/// A lock that is reserved for a top waiter without the gate is not taken by newcomers when the gate is free.
#[test]
fn a_top_waiter_without_the_gate_gets_the_reserved_lock() {
    let _watchdog = Watchdog::start("passed the gate".into());
    if !may_use_priorities("a_top_waiter_without_the_gate_gets_the_reserved_lock") {
        return;
    }
    handle_sigusr2();
    let mutex = counted(AT_ONCE);
    let (first, second) = (ThreadId::default(), ThreadId::default());
    let got = AtomicBool::new(false);
    // A task of a higher priority than the others must sleep.
    let wait_until = |condition: &dyn Fn() -> bool| {
        while !condition() {
            thread::sleep(Duration::from_millis(1));
        }
    };
    let newcomer = || {
        thread::scope(|scope| {
            let mut held = mutex.lock();
            let gives_up = scope.spawn(|| {
                first.set();
                assert!(mutex.lock_interruptible(None).is_err());
            });
            wait_until(&|| count(&mutex, Event::TopSleep) > 0);
            scope.spawn(|| {
                become_real_time(1);
                second.set();
                let _guard = mutex.lock();
                got.store(true, Ordering::Relaxed);
            });
            wait_until(&|| second.is_in_futex());
            wait_until(&|| {
                first.signal(libc::SIGUSR2);
                gives_up.is_finished()
            });
            // No task that this one wakes runs before its next check.
            become_real_time(2);
            let mut stolen = 0;
            loop {
                drop(held);
                let Some(again) = mutex.try_lock() else { break };
                held = again;
                if got.load(Ordering::Relaxed) {
                    break;
                }
                stolen += 1;
                assert!(stolen < 10, "newcomers take what is reserved");
                let sleeps = count(&mutex, Event::TopSleep);
                wait_until(&|| count(&mutex, Event::TopSleep) > sleeps && second.is_in_futex());
            }
        });
    };
    thread::scope(|scope| scope.spawn(newcomer).join().unwrap());
}

/// A top waiter that sleeps since before its threshold sets the request when the threshold passes, not when it is woken.
#[test]
fn a_top_waiter_requests_the_lock_in_its_sleep() {
    let _watchdog = Watchdog::start("requests in its sleep".into());
    // A sleeping top waiter reads the word every 100 ms anyway.
    let nap = Duration::from_millis(100);
    // On a busy machine an attempt may take too long to show anything.
    let shown = || {
        let mutex = counted(Some(Duration::from_millis(10)));
        let sleeper = ThreadId::default();
        thread::scope(|scope| {
            let held = mutex.lock();
            let waiter = scope.spawn(|| {
                sleeper.set();
                mutex.lock_traced().1.entry
            });
            wait_until(|| count(&mutex, Event::TopSleep) > 0);
            let began = Instant::now();
            wait_until(|| count(&mutex, Event::TopSleep) > 1 && sleeper.is_in_futex());
            let in_time = began.elapsed() < nap / 2;
            drop(held);
            let entry = waiter.join().unwrap();
            assert!(!in_time || entry == Entry::HandedOff);
            in_time
        })
    };
    while !shown() {}
}

/// With hand-off switched off no task requests the lock.
#[test]
fn a_real_time_task_does_not_request_a_lock_that_is_never_handed_off() {
    let _watchdog = Watchdog::start("never handed off".into());
    if !may_use_priorities("a_real_time_task_does_not_request_a_lock_that_is_never_handed_off") {
        return;
    }
    for threshold in [None, Some(Duration::from_secs(1000))] {
        let mutex = counted(threshold);
        let (first, second) = (ThreadId::default(), ThreadId::default());
        thread::scope(|scope| {
            let held = mutex.lock();
            scope.spawn(|| {
                first.set();
                *mutex.lock() += 1;
            });
            wait_until(|| count(&mutex, Event::TopSleep) > 0 && first.is_in_futex());
            let real_time = scope.spawn(|| {
                become_real_time(1);
                second.set();
                *mutex.lock() += 1;
            });
            wait_until(|| count(&mutex, Event::TopSleep) > 1 && second.is_in_futex());
            drop(held);
            real_time.join().unwrap();
        });
        assert_eq!(count(&mutex, Event::HandedOff) > 0, threshold.is_some());
    }
}

/// Otherwise one waiter after another would pass the gate, and take the words that are reserved for the overdue one.
#[test]
fn an_overdue_top_waiter_takes_the_gate() {
    let _watchdog = Watchdog::start("takes the gate".into());
    if !may_use_priorities("an_overdue_top_waiter_takes_the_gate") {
        return;
    }
    handle_sigusr2();
    // A waiter at the gate goes on to the word after 50 ms in any case: on a busy machine an attempt may show nothing.
    let shown = || {
        let mutex = counted(Some(Duration::from_secs(1000)));
        let (first, second) = (ThreadId::default(), ThreadId::default());
        thread::scope(|scope| {
            let held = mutex.lock();
            let began = Instant::now();
            let gives_up = scope.spawn(|| {
                first.set();
                assert!(mutex.lock_interruptible(None).is_err());
            });
            wait_until(|| count(&mutex, Event::TopSleep) > 0 && first.is_in_futex());
            scope.spawn(|| *mutex.lock() += 1);
            wait_until(|| count(&mutex, Event::QueueSleep) > 0);
            let sleeps = count(&mutex, Event::TopSleep);
            scope.spawn(|| {
                // Real-time tasks do not wait at the gate, and are overdue at once.
                become_real_time(1);
                second.set();
                *mutex.lock() += 1;
            });
            wait_until(|| count(&mutex, Event::TopSleep) > sleeps && second.is_in_futex());
            wait_until(|| {
                first.signal(libc::SIGUSR2);
                gives_up.is_finished()
            });
            thread::sleep(Duration::from_millis(5));
            let others = count(&mutex, Event::TopSleep) - sleeps - 1;
            let in_time = began.elapsed() < Duration::from_millis(45);
            drop(held);
            assert!(!in_time || others == 0, "a waiter passed the gate");
            in_time
        })
    };
    while !shown() {}
}
