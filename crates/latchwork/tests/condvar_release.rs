//! How waiters are released: one after the other, by priority, each to its own mutex.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;
use latchwork::condvar::Condvar;
use latchwork::mutex::{InheritFault, InheritPlain, Mutex};
use latchwork::sharing::{Private, Shared, Sharing};
use latchwork::time::Deadline;
use latchwork_testkit::Watchdog;
use std::thread;

mod condvar_support;
mod inherit_support;
mod pthread;
use condvar_support::*;
use inherit_support::{Task, make_real_time, may_be_real_time, ordinary};
use latchwork_testkit::ThreadId;
use latchwork_testkit::bodies::condvar::{asleep, settled};

const WAITERS: usize = 24;

fn settled_of<W: Way>() -> Box<Of<W>> {
    settled::<Of<W>>()
}

/// Lets `WAITERS` threads sleep, notifies all of them under the lock, and keeps that for a while. Then each passes the
/// section, and none passes it twice.
fn each_passes_the_section_once<W: Way>() {
    let contestant = settled_of::<W>();
    let ids: [ThreadId; WAITERS] = core::array::from_fn(|_| ThreadId::default());
    let passed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for id in &ids {
            let (contestant, passed) = (&contestant, &passed);
            scope.spawn(move || {
                let mut guard = contestant.lock();
                id.set();
                while *guard == 0 {
                    guard = contestant.wait_for_change(guard);
                }
                passed.fetch_add(1, Ordering::Relaxed);
            });
        }
        asleep(&ids);
        let mut guard = contestant.lock();
        *guard = 1;
        contestant.changed().notify_all();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(passed.load(Ordering::Relaxed), 0, "the mutex is held");
        drop(guard);
    });
    assert_eq!(passed.into_inner(), WAITERS);
}

macro_rules! of_ways {
    ($($body:ident: $($way:ident)*;)*) => {$(
        mod $body {
            $(
                #[test]
                #[allow(non_snake_case)]
                fn $way() {
                    use super::condvar_support::Way;
                    if super::condvar_support::$way::is_permitted(stringify!($body)) {
                        let _watchdog = super::Watchdog::start(
                            concat!(stringify!($body), " ", stringify!($way)).into(),
                        );
                        super::$body::<super::condvar_support::$way>();
                    }
                }
            )*
        }
    )*};
}

of_ways! {
    each_passes_the_section_once: ByWord ByKernel ByKernelPastGate ByRelay ByRelayUnderCeiling ByRelayToShared;
    no_waiter_is_woken_before_its_turn: ByWord ByKernel ByKernelPastGate ByRelay ByRelayUnderCeiling ByRelayToShared;
    all_are_woken_together: ByCrowd ByCrowdInheriting;
    several_mutexes_in_turn_lose_nothing: ByWord ByKernel ByKernelPastGate ByRelay ByRelayToShared ByCrowd;
    several_mutexes_at_once_lose_nothing: ByWord ByKernel ByKernelPastGate ByRelay ByRelayToShared ByCrowd;
}

/// Notifies all, and lets `check` count, while the mutex is held, how many waiters have left the system call in which
/// they slept. A waiter that the kernel moves to another word stays in its call.
fn woken_while_held<W: Way>(check: impl FnOnce(&dyn Fn() -> usize)) {
    let contestant = settled_of::<W>();
    let ids: [ThreadId; WAITERS] = core::array::from_fn(|_| ThreadId::default());
    thread::scope(|scope| {
        for id in &ids {
            let contestant = &contestant;
            scope.spawn(move || {
                let mut guard = contestant.lock();
                // Not before: a thread that waits for the mutex would be taken for a waiter.
                id.set();
                while *guard == 0 {
                    guard = contestant.wait_for_change(guard);
                }
            });
        }
        asleep(&ids);
        // A waiter enqueues before it releases the mutex, so from here on all are enqueued; their next call is the sleep.
        let mut guard = contestant.lock();
        asleep(&ids);
        let before = ids.each_ref().map(ThreadId::call);
        *guard = 1;
        contestant.changed().notify_all();
        check(&|| {
            let both = ids.iter().zip(&before);
            both.filter(|(id, before)| id.call() != **before).count()
        });
        drop(guard);
    });
}

/// While the mutex is held, at most two waiters are woken.
fn no_waiter_is_woken_before_its_turn<W: Way>() {
    woken_while_held::<W>(|woken| {
        thread::sleep(Duration::from_millis(20));
        assert!(woken() <= 2);
    });
}

/// The twin of the test before: it shows that waiters that are woken are counted.
fn all_are_woken_together<W: Way>() {
    woken_while_held::<W>(|woken| {
        while woken() < WAITERS {
            thread::yield_now();
        }
    });
}

/// Takers of two kinds, each with its mutex; the one condition variable is used with the one mutex, then
/// with the other.
fn several_mutexes_in_turn_lose_nothing<W: Way>() {
    let mutexes = [
        Mutex::from_raw(W::lock(), 0_u64),
        Mutex::from_raw(W::lock(), 0),
    ];
    let changed = Condvar::<W::Sharing>::new_in();
    for round in 1..200 {
        let mutex = &mutexes[round as usize % 2];
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut guard = W::get(mutex.lock());
                    while *guard != round {
                        guard = W::get(changed.wait(guard));
                    }
                });
            }
            *W::get(mutex.lock()) = round;
            changed.notify_all();
        });
    }
}

fn several_mutexes_at_once_lose_nothing<W: Way>() {
    const ROUNDS: u64 = 300;
    let mutexes = [(); 3].map(|()| Mutex::from_raw(W::lock(), 0_u64));
    let changed = Condvar::<W::Sharing>::new_in();
    thread::scope(|scope| {
        for mutex in &mutexes {
            let changed = &changed;
            for parity in [0, 1] {
                // Two that take turns, and give up now and then.
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let mut guard = W::get(mutex.lock());
                        while *guard % 2 != parity {
                            let soon = Deadline::after(Duration::from_micros(*guard * 7 % 50));
                            guard = if *guard % 3 == 0 {
                                W::get(changed.wait_until(guard, soon)).0
                            } else {
                                W::get(changed.wait(guard))
                            };
                        }
                        *guard += 1;
                        drop(guard);
                        changed.notify_all();
                    }
                });
            }
        }
    });
    for mutex in &mutexes {
        assert_eq!(*W::get(mutex.lock()), 2 * ROUNDS);
    }
}

/// Released waiters have the mutex in the order of their priorities, and lend it to the holder while they
/// wait for that.
fn released_waiters_lend_their_priority_and_come_in_its_order<W: Way>() {
    const NAME: &str = "released_waiters_lend_their_priority_and_come_in_its_order";
    if !may_be_real_time(NAME) {
        return;
    }
    let _watchdog = Watchdog::start(NAME.into());
    let contestant = settled_of::<W>();
    let priorities = [20, 40, 30];
    let tasks = [const { Task::new() }; 3];
    let holder = Task::new();
    let (held, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let order = AtomicU32::new(0);
    thread::scope(|scope| {
        for (task, priority) in tasks.iter().zip(priorities) {
            let (contestant, order) = (&contestant, &order);
            scope.spawn(move || {
                task.begin();
                assert!(make_real_time(0, priority));
                let mut guard = contestant.lock();
                while *guard == 0 {
                    guard = contestant.wait_for_change(guard);
                }
                // The last to come stands in the last digits.
                let before = order.load(Ordering::Relaxed);
                order.store(before * 100 + priority as u32, Ordering::Relaxed);
            });
        }
        let ticket = core::ptr::from_ref(contestant.changed()).addr() + 8;
        tasks.iter().for_each(|task| task.wait_until_asleep(ticket));
        scope.spawn(|| {
            holder.begin();
            let mut guard = contestant.lock();
            *guard = 1;
            held.store(true, Ordering::Release);
            while !done.load(Ordering::Acquire) {
                thread::sleep(Duration::from_micros(100));
            }
        });
        while !held.load(Ordering::Acquire) {
            thread::yield_now();
        }
        holder.wait_for_priority(ordinary());
        contestant.changed().notify_all();
        holder.wait_for_priority(-1 - 40);
        done.store(true, Ordering::Release);
    });
    assert_eq!(order.into_inner(), 40_30_20);
}

#[test]
fn released_waiters_lend_their_priority_and_come_in_its_order_by_kernel() {
    released_waiters_lend_their_priority_and_come_in_its_order::<ByKernel>();
}

#[test]
fn released_waiters_lend_their_priority_and_come_in_its_order_past_the_gate() {
    released_waiters_lend_their_priority_and_come_in_its_order::<ByKernelPastGate>();
}

/// Who sleeps on the relay is never alone with waiters of lower priority.
#[test]
fn released_waiters_lend_their_priority_and_come_in_its_order_by_relay() {
    released_waiters_lend_their_priority_and_come_in_its_order::<ByRelayToShared>();
}

fn waiters_learn_that_a_holder_died<S: Sharing + Sync>(died_before: bool) {
    let mutex = Mutex::from_raw(InheritPlain::<S>::new(), 0_u64);
    let changed = Condvar::new();
    let ids: [ThreadId; 3] = Default::default();
    thread::scope(|scope| {
        for id in &ids {
            let (mutex, changed) = (&mutex, &changed);
            scope.spawn(move || {
                let guard = mutex.lock().unwrap();
                id.set();
                let waited = changed.wait_while(guard, |number| *number == 0);
                assert_eq!(waited.err(), Some(InheritFault::OwnerGone));
            });
        }
        asleep(&ids);
        let holder = scope.spawn(|| {
            core::mem::forget(mutex.lock().unwrap());
            if !died_before {
                changed.notify_all();
            }
        });
        holder.join().unwrap();
        changed.notify_all();
    });
}

/// Nobody can be sent to a dead owner's mutex; all hear of it.
#[test]
fn waiters_learn_that_a_holder_of_an_inheriting_mutex_died() {
    let _watchdog =
        Watchdog::start("waiters_learn_that_a_holder_of_an_inheriting_mutex_died".into());
    // At the same time, since they may take a nap.
    thread::scope(|scope| {
        for died_before in [true, false] {
            scope.spawn(move || waiters_learn_that_a_holder_died::<Private>(died_before));
            scope.spawn(move || waiters_learn_that_a_holder_died::<Shared>(died_before));
        }
    });
}
