//! What only a throughput mutex does: it hands off, tells how it was got, counts, and survives waiters
//! that give up, are killed, or fork. (`mutex.rs` and `interruptible.rs` ask what every mutex must do.)
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::forget;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use latchwork::mutex::throughput::{Counters, Entry, Event};
use latchwork::mutex::{Mutex, Throughput, Unfinished};
use latchwork::sharing::{Private, Shared};
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Exit, Trial, Watchdog};
use std::thread;
use std::time::Instant;

mod lock_support;
mod protect_support;
use lock_support::{Mapped, ThreadId};
use protect_support::may_use_priorities;

type Counted = Mutex<u64, Throughput<Private, Counters>>;

/// With which a top waiter that sleeps has asked for the lock.
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

fn counted(threshold: Option<Duration>) -> Counted {
    Mutex::from_raw(Throughput::counted().hand_off_after(threshold), 0)
}

fn count(mutex: &Counted, event: Event) -> u64 {
    mutex.protocol().counters().of(event)
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        thread::yield_now();
    }
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
fn a_free_lock_is_got_without_waiting() {
    let mutex = counted(AT_ONCE);
    for _ in 0..2 {
        let (_guard, how) = mutex.lock_traced();
        assert_eq!((how.entry, how.sleeps), (Entry::Free, 0));
    }
    assert_eq!(count(&mutex, Event::LockSlowPath), 0);
    assert_eq!(count(&mutex, Event::UnlockSlowPath), 0);
}

#[test]
fn a_top_waiter_that_has_waited_too_long_is_handed_the_lock() {
    let _watchdog = Watchdog::start("handed the lock".into());
    let mutex = counted(AT_ONCE);
    assert_eq!(entry_of_a_sleeper(&mutex), Entry::HandedOff);
    assert_eq!(count(&mutex, Event::HandedOff), 1);
}

#[test]
fn without_hand_off_a_top_waiter_takes_what_is_free() {
    let _watchdog = Watchdog::start("takes what is free".into());
    assert_eq!(entry_of_a_sleeper(&counted(None)), Entry::TopWaiter);
}

/// The holder takes the lock again and again, and sleeps inside, so that nobody else is ever awake when
/// it is free.
#[test]
fn nobody_starves_beside_a_task_that_sleeps_inside() {
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
fn who_asked_for_the_lock_and_gave_up_leaves_it_free() {
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
fn deadlines_and_releases_that_meet_lose_no_lock() {
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
fn a_killed_top_waiter_takes_no_lock_with_it() {
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
fn a_stopped_top_waiter_holds_up_nobody() {
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
fn a_dead_owner_can_be_found() {
    let trial = Trial::begin("a_dead_owner");
    let mutex = Mutex::throughput(0);
    assert!(!mutex.protocol().owner_is_gone(), "there is none");
    thread::scope(|scope| {
        scope.spawn(|| forget(mutex.lock())).join().unwrap();
    });
    // Who joins a thread may be faster than the rest of its end.
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
fn a_real_time_task_does_not_queue() {
    let _watchdog = Watchdog::start("real-time".into());
    if !may_use_priorities("a_real_time_task_does_not_queue") {
        return;
    }
    let mutex = counted(None);
    thread::scope(|scope| {
        let held = mutex.lock();
        scope.spawn(|| *mutex.lock() += 1);
        wait_until(|| count(&mutex, Event::TopSleep) > 0);
        let real_time = scope.spawn(|| {
            let parameter = libc::sched_param { sched_priority: 1 };
            // SAFETY: the kernel reads the parameter.
            let set =
                unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
            assert_eq!(set, 0);
            mutex.lock_traced().1
        });
        wait_until(|| count(&mutex, Event::TopSleep) > 1);
        drop(held);
        real_time.join().unwrap();
    });
    assert_eq!(count(&mutex, Event::QueueSleep), 0);
}

extern "C" fn nothing(_: i32) {}

/// What is reserved for a top waiter that came past the gate is no newcomer's when nobody else is at the gate.
#[test]
fn who_passed_the_gate_and_is_alone_gets_what_is_reserved() {
    let _watchdog = Watchdog::start("passed the gate".into());
    if !may_use_priorities("who_passed_the_gate_and_is_alone_gets_what_is_reserved") {
        return;
    }
    // SAFETY: a handler that does nothing.
    unsafe { libc::signal(libc::SIGUSR2, nothing as *const () as usize) };
    let mutex = counted(AT_ONCE);
    let (first, second) = (ThreadId::default(), ThreadId::default());
    let got = AtomicBool::new(false);
    let become_real_time = |sched_priority| {
        let parameter = libc::sched_param { sched_priority };
        // SAFETY: the kernel reads the parameter.
        let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
        assert_eq!(set, 0);
    };
    // Who is more urgent than the others must sleep.
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
            // It wakes nobody who comes before its next look.
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

#[test]
fn a_signal_that_meets_a_hand_off_loses_nothing() {
    let _watchdog = Watchdog::start("signals".into());
    // SAFETY: a handler that does nothing.
    unsafe { libc::signal(libc::SIGUSR2, nothing as *const () as usize) };
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

/// A top waiter that sleeps since before its threshold sets the request when the threshold passes, not when it is woken.
#[test]
fn a_top_waiter_requests_the_lock_in_its_sleep() {
    let _watchdog = Watchdog::start("requests in its sleep".into());
    // A sleeping top waiter reads the word every 100 ms anyway.
    let nap = Duration::from_millis(100);
    // On a busy machine an attempt may take too long to show anything.
    let shown = (0..20).any(|_| {
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
    });
    assert!(shown, "no request before the nap ended");
}

/// A hand-off to a top waiter that was killed keeps out neither `try_lock` nor waits that are shorter than a nap.
#[test]
fn a_word_reserved_for_a_killed_top_waiter_is_taken_without_a_wait() {
    let trial = Trial::begin("reserved_for_a_killed_top_waiter");
    let attempts: [fn(&Mutex<u64, Throughput<Shared>>) -> bool; 2] = [
        |mutex| mutex.try_lock().is_some(),
        |mutex| mutex.lock_for(Duration::from_millis(1)).is_some(),
    ];
    for attempt in attempts {
        let mutex: Mapped<Mutex<u64, Throughput<Shared>>> = Mapped::new(Mutex::from_raw(
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
                let parameter = libc::sched_param { sched_priority: 1 };
                // SAFETY: the kernel reads the parameter.
                let set =
                    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
                assert_eq!(set, 0);
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
    // SAFETY: a handler that does nothing.
    unsafe { libc::signal(libc::SIGUSR2, nothing as *const () as usize) };
    // A waiter at the gate goes on to the word after 50 ms in any case: on a busy machine an attempt may show nothing.
    let shown = (0..20).any(|_| {
        let mutex = counted(Some(Duration::from_secs(1000)));
        let (first, second) = (ThreadId::default(), ThreadId::default());
        thread::scope(|scope| {
            let held = mutex.lock();
            let gives_up = scope.spawn(|| {
                first.set();
                assert!(mutex.lock_interruptible(None).is_err());
            });
            wait_until(|| count(&mutex, Event::TopSleep) == 1 && first.is_in_futex());
            let began = Instant::now();
            scope.spawn(|| *mutex.lock() += 1);
            wait_until(|| count(&mutex, Event::QueueSleep) == 1);
            scope.spawn(|| {
                // Real-time tasks do not wait at the gate, and are overdue at once.
                let parameter = libc::sched_param { sched_priority: 1 };
                // SAFETY: the kernel reads the parameter.
                let set =
                    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
                assert_eq!(set, 0);
                second.set();
                *mutex.lock() += 1;
            });
            wait_until(|| count(&mutex, Event::TopSleep) == 2 && second.is_in_futex());
            wait_until(|| {
                first.signal(libc::SIGUSR2);
                gives_up.is_finished()
            });
            thread::sleep(Duration::from_millis(5));
            let others = count(&mutex, Event::TopSleep) - 2;
            let in_time = began.elapsed() < Duration::from_millis(45);
            drop(held);
            assert!(!in_time || others == 0, "a waiter passed the gate");
            in_time
        })
    });
    assert!(shown, "no attempt was quick enough");
}
