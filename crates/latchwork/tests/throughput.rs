//! What only a throughput mutex does: it reports how it was taken, counts, and survives waiters that give up, are killed,
//! or fork. (`throughput_hand_off.rs` tests the hand-off; `mutex.rs` and `interruptible.rs` test what every mutex must
//! do.)
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::forget;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use latchwork::mutex::throughput::{Entry, Event};
use latchwork::mutex::{Mutex, Robust, Throughput, Unfinished};
use latchwork::sharing::Shared;
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Exit, Trial, Watchdog};
use std::thread;

mod throughput_support;
use latchwork_testkit::{Mapped, ThreadId};
use throughput_support::{AT_ONCE, count, counted, handle_sigusr2, wait_until};

#[test]
fn a_free_lock_is_taken_without_waiting() {
    let mutex = counted(AT_ONCE);
    for _ in 0..2 {
        let (_guard, how) = mutex.lock_traced();
        assert_eq!((how.entry, how.sleeps), (Entry::Free, 0));
    }
    assert_eq!(count(&mutex, Event::LockSlowPath), 0);
    assert_eq!(count(&mutex, Event::UnlockSlowPath), 0);
}

/// The holder takes the lock again and again, and sleeps inside, so that no other task is awake when it
/// is free.
#[test]
fn no_task_starves_if_the_owner_sleeps_in_its_sections() {
    let _watchdog = Watchdog::start("starves".into());
    let mutex = Mutex::throughput(0_u64);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _guard = mutex.lock();
                thread::sleep(Duration::from_micros(100));
            }
        });
        let others: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| (0..5).for_each(|_| *mutex.lock() += 1)))
            .collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(*mutex.lock(), 15);
}

#[test]
fn a_waiter_that_requested_the_lock_and_gave_up_leaves_it_free() {
    let _watchdog = Watchdog::start("gave up".into());
    let mutex = counted(AT_ONCE);
    for _ in 0..20 {
        let held = mutex.lock();
        let given_up = thread::scope(|scope| {
            scope
                .spawn(|| mutex.lock_for(Duration::from_millis(1)).is_none())
                .join()
                .unwrap()
        });
        assert!(given_up);
        drop(held);
        assert!(mutex.try_lock().is_some());
        *mutex.lock() += 1;
    }
    assert_eq!(*mutex.lock(), 20);
}

#[test]
fn simultaneous_deadlines_and_unlocks_lose_no_lock() {
    let _watchdog = Watchdog::start("meet".into());
    let mutex = counted(AT_ONCE);
    let entered = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..2_000_u64 {
                    let end = Deadline::after(Duration::from_micros(round % 60));
                    if let Some(mut guard) = mutex.lock_until(end) {
                        *guard += 1;
                        entered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(*mutex.lock(), entered.into_inner());
    let slow = count(&mutex, Event::LockSlowPath);
    let ends = [
        Event::Stolen,
        Event::TopWaiter,
        Event::HandedOff,
        Event::GivenUp,
    ];
    assert_eq!(
        ends.map(|event| count(&mutex, event)).iter().sum::<u64>(),
        slow
    );
}

#[test]
fn a_killed_top_waiter_does_not_block_the_lock() {
    let trial = Trial::begin("a_killed_top_waiter");
    let mutex: Mapped<Mutex<u64, Throughput<Shared>>> = Mapped::new(Mutex::from_raw(
        Throughput::new().hand_off_after(AT_ONCE),
        0,
    ));
    for _ in 0..3 {
        let held = mutex.lock();
        let mut waiter = Child::fork(|| drop(mutex.lock()));
        trial.wait_until(|| waiter.is_in_futex());
        assert_eq!(waiter.kill(), Exit::Signal(libc::SIGKILL));
        drop(held);
        *mutex.lock() += 1;
    }
    assert!(mutex.try_lock().is_some());
}

#[test]
fn a_stopped_top_waiter_does_not_block_the_lock() {
    let trial = Trial::begin("a_stopped_top_waiter");
    let mutex: Mapped<Mutex<u64, Throughput<Shared>>> =
        Mapped::new(Mutex::from_raw(Throughput::new(), 0));
    let held = mutex.lock();
    let waiter = Child::fork(|| drop(mutex.lock()));
    trial.wait_until(|| waiter.is_in_futex());
    waiter.signal(libc::SIGSTOP);
    let other = Child::fork(|| drop(mutex.lock()));
    trial.wait_until(|| other.is_in_futex());
    drop(held);
    other.succeed();
    drop(mutex.lock());
    waiter.signal(libc::SIGCONT);
    waiter.succeed();
}

#[test]
fn a_dead_owner_is_detected() {
    let trial = Trial::begin("a_dead_owner");
    let mutex = Mutex::throughput(0);
    assert!(!mutex.protocol().owner_is_gone(), "there is none");
    thread::scope(|scope| {
        scope.spawn(|| forget(mutex.lock())).join().unwrap();
    });
    // `join` may return before the thread's end is complete.
    trial.wait_until(|| mutex.protocol().owner_is_gone());
    let shared: Mapped<Mutex<u64, Throughput<Shared>>> =
        Mapped::new(Mutex::from_raw(Throughput::new(), 0));
    let mut owner = Child::fork(|| {
        let _guard = shared.lock();
        loop {
            thread::park();
        }
    });
    trial.wait_until(|| shared.protocol().owner().is_some());
    assert!(!shared.protocol().owner_is_gone());
    owner.kill();
    assert!(shared.protocol().owner_is_gone());
}

#[test]
fn an_inherited_guard_aborts_the_child_and_leaves_the_parents_lock_alone() {
    let _trial = Trial::begin("an_inherited_throughput_guard");
    let mutex: Mapped<Mutex<u64, Throughput<Shared>>> =
        Mapped::new(Mutex::from_raw(Throughput::new(), 0));
    let guard = mutex.lock();
    let mut child = Child::fork(|| {
        // SAFETY: a second guard, in a process where the first one is never dropped.
        drop(unsafe { core::ptr::read(&raw const guard) });
    });
    assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
    // SAFETY: no preconditions.
    let me = unsafe { libc::gettid() }.cast_unsigned();
    assert_eq!(mutex.protocol().owner(), Some(me));
    drop(guard);
    assert!(mutex.try_lock().is_some());
}

#[test]
fn locking_a_private_one_again_aborts() {
    let _trial = Trial::begin("locking_again");
    let mut child = Child::fork(|| {
        let mutex = Mutex::throughput(0);
        let _guard = mutex.lock();
        assert!(mutex.lock_for(Duration::from_millis(1)).is_none());
        drop(mutex.lock());
    });
    assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
}

#[test]
fn a_signal_during_a_hand_off_loses_no_lock() {
    let _watchdog = Watchdog::start("signals".into());
    handle_sigusr2();
    let mutex = counted(AT_ONCE);
    let (waiter, done) = (ThreadId::default(), AtomicBool::new(false));
    let entered = thread::scope(|scope| {
        let interrupted = scope.spawn(|| {
            waiter.set();
            let mut entered = 0;
            for _ in 0..500 {
                match mutex.lock_interruptible(None) {
                    Ok(mut guard) => {
                        *guard += 1;
                        entered += 1;
                    }
                    Err(ended) => assert_eq!(ended, Unfinished::Interrupted),
                }
            }
            done.store(true, Ordering::Relaxed);
            // The signals go on until the thread is about to be joined.
            entered
        });
        wait_until(|| waiter.is_set());
        while !done.load(Ordering::Relaxed) {
            let guard = mutex.lock();
            waiter.signal(libc::SIGUSR2);
            drop(guard);
        }
        interrupted.join().unwrap()
    });
    assert_eq!(*mutex.try_lock().expect("free"), entered);
}

type SharedMutex = Mutex<u64, Throughput<Shared>>;

/// A hand-off to a top waiter that was killed keeps out neither `try_lock` nor waits that are shorter than a nap.
#[test]
fn a_word_reserved_for_a_killed_top_waiter_is_taken_without_a_wait() {
    let trial = Trial::begin("reserved_for_a_killed_top_waiter");
    let attempts: [fn(&SharedMutex) -> bool; 2] = [
        |mutex| mutex.try_lock().is_some(),
        |mutex| {
            mutex
                .lock_until(Deadline::after(Duration::from_millis(1)))
                .is_some()
        },
    ];
    for attempt in attempts {
        let mutex: Mapped<SharedMutex> = Mapped::new(Mutex::from_raw(
            Throughput::new().hand_off_after(AT_ONCE),
            0,
        ));
        let held = mutex.lock();
        let mut waiter = Child::fork(|| drop(mutex.lock()));
        trial.wait_until(|| waiter.is_in_futex());
        // A stopped task does not take what is handed to it.
        waiter.signal(libc::SIGSTOP);
        trial.wait_until(|| waiter.is_stopped());
        drop(held);
        assert!(!attempt(&mutex), "reserved for a task that lives");
        assert_eq!(waiter.kill(), Exit::Signal(libc::SIGKILL));
        assert!(attempt(&mutex), "reserved for ever");
    }
}

/// A stopped top waiter has a robust lock reserved for it. It keeps out no task that waits, also if all waits are shorter than
/// a nap.
#[test]
fn a_robust_lock_reserved_for_a_stopped_top_waiter_is_taken_by_waits_shorter_than_a_nap() {
    let trial = Trial::begin("robust_reserved_for_a_stopped_top_waiter");
    let lock = Robust::<Throughput<Shared>>::new().hand_off_after(AT_ONCE);
    let mutex: Mapped<Mutex<u64, Robust<Throughput<Shared>>>> =
        Mapped::new(Mutex::from_raw(lock, 0));
    let held = mutex.pin().lock().unwrap();
    let mut waiter = Child::fork(|| drop(mutex.pin().lock().unwrap()));
    trial.wait_until(|| waiter.is_in_futex());
    waiter.signal(libc::SIGSTOP);
    trial.wait_until(|| waiter.is_stopped());
    drop(held);
    let short = || mutex.pin().lock_for(Duration::from_millis(2));
    assert!(short().is_ok());
    assert_eq!(waiter.kill(), Exit::Signal(libc::SIGKILL));
}

/// The dead top waiter's ID belongs to the caller by now.
#[test]
fn a_word_reserved_for_a_dead_task_with_the_callers_id_is_taken() {
    let _watchdog = Watchdog::start("the caller's ID".into());
    const WAITERS: u32 = 1 << 31;
    let attempts: [fn(&SharedMutex) -> bool; 2] = [
        |mutex| mutex.try_lock().is_some(),
        |mutex| mutex.lock_for(Duration::from_millis(1)).is_some(),
    ];
    for attempt in attempts {
        let mutex: SharedMutex = Mutex::from_raw(Throughput::new(), 0);
        // SAFETY: the layout is fixed: the word and the gate are the first two of four atomic words.
        let [word, gate] = unsafe { &*core::ptr::from_ref(mutex.protocol()).cast() };
        let _: &AtomicU32 = word;
        // SAFETY: no preconditions.
        gate.store(unsafe { libc::gettid() }.cast_unsigned(), Ordering::Relaxed);
        word.store(WAITERS, Ordering::Relaxed);
        assert!(attempt(&mutex), "reserved for ever");
        assert_eq!(word.load(Ordering::Relaxed) & !WAITERS, 0, "not released");
    }
}

/// An inherited guard of a lock that is free by now: the drop has no owner to report, and changes nothing.
#[test]
fn an_inherited_guard_of_a_free_lock_changes_nothing() {
    let trial = Trial::begin("an_inherited_throughput_guard_of_a_free_lock");
    let mutex: Mapped<Mutex<u64, Throughput<Shared>>> =
        Mapped::new(Mutex::from_raw(Throughput::new(), 0));
    let guard = mutex.lock();
    let child = Child::fork(|| {
        trial.wait_until(|| mutex.protocol().owner().is_none());
        // SAFETY: a second guard, in a process where the first one is never dropped.
        drop(unsafe { core::ptr::read(&raw const guard) });
    });
    drop(guard);
    child.succeed();
    assert!(mutex.protocol().owner().is_none());
    assert!(mutex.try_lock().is_some());
}
