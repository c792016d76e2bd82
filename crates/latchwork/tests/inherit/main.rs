//! Priority-inheritance locks with the real kernel: priorities, deadlocks, owner deaths, stopped owners, forks.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use latchwork::mutex::{Inherit, InheritFault, InheritPlain, Mutex, Protocol};
use latchwork::sharing::{Private, Shared};
use latchwork::time::Deadline;
use latchwork_testkit::Watchdog;
use std::sync::{Barrier, Mutex as StdMutex};
use std::thread;

#[path = "../inherit_support/mod.rs"]
mod inherit_support;

mod processes;

use inherit_support::{
    Lock, Task, between_checks, distant, is_asleep, make_real_time, may_be_real_time, ordinary,
};

/// Declares each body as the tests of both sizes and both sharings.
macro_rules! of_each_kind {
    ($($body:ident)*) => {
        of_each_kind!(@ gated: Inherit<Private>; $($body)*);
        of_each_kind!(@ gated_shared: Inherit<Shared>; $($body)*);
        of_each_kind!(@ plain: InheritPlain<Private>; $($body)*);
        of_each_kind!(@ plain_shared: InheritPlain<Shared>; $($body)*);
    };
    (@ $module:ident: $lock:ty; $($body:ident)*) => {
        mod $module {
            use super::*;
            $(#[test]
            fn $body() {
                let _watchdog = Watchdog::start(concat!(stringify!($body), " of ", stringify!($lock)).into());
                super::$body::<$lock>();
            })*
        }
    };
}

of_each_kind! {
    locking_again_is_reported_as_a_deadlock
    every_deadlock_is_reported_and_can_be_resolved
    a_dead_owner_is_reported_to_all_later_callers
    owner_death_is_reported_to_sleepers
    a_wait_goes_on_after_a_signal
    waiters_that_give_up_leave_the_lock_consistent
    an_owner_runs_at_the_priority_of_its_waiters
    priority_passes_along_a_chain_of_owners
    a_real_time_task_goes_first
}

fn locking_again_is_reported_as_a_deadlock<L: Lock>() {
    let lock = L::default();
    lock.lock();
    assert_eq!(lock.acquire(), Err(InheritFault::Deadlock));
    assert_eq!(lock.acquire_until(distant()), Err(InheritFault::Deadlock));
    assert_eq!(lock.try_acquire(), Ok(false));
    lock.unlock();
    assert_eq!(lock.acquire_until(distant()), Ok(true));
    lock.unlock();
}

fn every_deadlock_is_reported_and_can_be_resolved<L: Lock>() {
    for tasks in [2, 3] {
        for _ in 0..30 {
            let locks: Vec<L> = (0..tasks).map(|_| L::default()).collect();
            let (all_hold_one, reports) = (Barrier::new(tasks), AtomicU32::new(0));
            thread::scope(|scope| {
                for task in 0..tasks {
                    let (locks, all_hold_one, reports) = (&locks, &all_hold_one, &reports);
                    scope.spawn(move || {
                        locks[task].lock();
                        all_hold_one.wait();
                        let next = &locks[(task + 1) % tasks];
                        match next.acquire() {
                            Ok(()) => next.unlock(),
                            Err(fault) => {
                                assert_eq!(fault, InheritFault::Deadlock);
                                reports.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        locks[task].unlock();
                    });
                }
            });
            // All tasks that complete the cycle at the same moment get the report.
            assert!((1..=tasks as u32).contains(&reports.into_inner()));
            assert!(locks.iter().all(L::try_lock));
        }
    }
}

/// A thread that ends with the lock held.
fn die_with<L: Lock>(lock: &'static L) {
    thread::spawn(|| lock.lock()).join().unwrap();
}

fn a_dead_owner_is_reported_to_all_later_callers<L: Lock>() {
    let lock: &L = Box::leak(Box::default());
    die_with(lock);
    assert_eq!(lock.try_acquire(), Ok(false), "no task has detected it yet");
    for _ in 0..2 {
        assert_eq!(lock.acquire(), Err(InheritFault::OwnerGone));
        assert_eq!(lock.acquire_until(distant()), Err(InheritFault::OwnerGone));
        assert_eq!(lock.try_acquire(), Err(InheritFault::OwnerGone));
    }
    let lock: &L = Box::leak(Box::default());
    die_with(lock);
    assert_eq!(lock.acquire_until(distant()), Err(InheritFault::OwnerGone));
}

fn owner_death_is_reported_to_sleepers<L: Lock>() {
    let lock: &L = Box::leak(Box::default());
    let tasks = [const { Task::new() }; 4];
    let (is_held, may_end) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            lock.lock();
            is_held.wait();
            may_end.wait();
        });
        is_held.wait();
        for (index, task) in tasks.iter().enumerate() {
            scope.spawn(move || {
                task.begin();
                let result = if index % 2 == 0 {
                    lock.acquire()
                } else {
                    lock.acquire_until(distant()).map(drop)
                };
                assert_eq!(result, Err(InheritFault::OwnerGone));
            });
            if index == 0 {
                task.wait_until_asleep(lock.word());
            } else {
                lock.wait_until_behind(task);
            }
        }
        may_end.wait();
    });
}

fn a_wait_goes_on_after_a_signal<L: Lock>() {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: a handler that does nothing, without SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut()),
            0
        );
    }
    let lock = L::default();
    let tasks = [const { Task::new() }; 2];
    lock.lock();
    thread::scope(|scope| {
        for task in &tasks {
            scope.spawn(|| {
                task.begin();
                lock.enter();
            });
            for _ in 0..20 {
                lock.wait_until_behind(task);
                // SAFETY: the thread is alive, for it waits for the lock.
                unsafe {
                    libc::syscall(libc::SYS_tgkill, libc::getpid(), task.id(), libc::SIGUSR1)
                };
            }
        }
        for task in &tasks {
            lock.wait_until_behind(task);
        }
        lock.unlock();
    });
    assert!(lock.try_lock());
}

fn waiters_that_give_up_leave_the_lock_consistent<L: Lock>() {
    let lock = L::default();
    for round in 0..20 {
        lock.lock();
        thread::scope(|scope| {
            for waiter in 0..4 {
                let lock = &lock;
                scope.spawn(move || {
                    let soon = Deadline::after(Duration::from_micros(round * 50 + waiter * 100));
                    assert_eq!(lock.acquire_until(soon), Ok(false));
                    assert!(soon.has_passed());
                });
            }
        });
        lock.unlock();
        // Neither the word nor the gate is anybody's.
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| lock.enter());
            }
        });
        assert!(lock.try_lock());
        lock.unlock();
    }
}

/// What `/proc` shows for a task at a real-time priority.
const fn at(priority: i32) -> i64 {
    -1 - priority as i64
}

/// Waits until the gate's owner has the priority of the one behind it, if there is a gate, and that one is still there.
fn wait_for_loan<L: Lock>(lock: &L, owner: &Task, behind: &Task, priority: i64) {
    if L::GATE == 0 {
        return owner.wait_for_priority(ordinary());
    }
    while !owner.has_priority(priority) && !is_asleep(behind.id(), lock.word()) {
        between_checks();
    }
}

fn an_owner_runs_at_the_priority_of_its_waiters<L: Lock>() {
    if !may_be_real_time("an_owner_runs_at_the_priority_of_its_waiters") {
        return;
    }
    let lock = L::default();
    let (owner, first, second) = (Task::new(), Task::new(), Task::new());
    let (may_give_up, may_release) = (AtomicBool::new(false), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            lock.lock();
            owner.begin();
            may_release.wait();
            lock.unlock();
            owner.wait_for_priority(ordinary());
        });
        owner.wait_for_priority(ordinary());
        // A real-time task, which gives up.
        scope.spawn(|| {
            assert!(make_real_time(0, 30));
            while !may_give_up.load(Ordering::Relaxed) {
                let soon = Deadline::after(Duration::from_millis(20));
                assert_eq!(lock.acquire_until(soon), Ok(false));
            }
        });
        owner.wait_for_priority(at(30));
        may_give_up.store(true, Ordering::Relaxed);
        owner.wait_for_priority(ordinary());
        // Two ordinary ones: the second is at the gate, if there is one, and becomes more urgent there.
        for task in [&first, &second] {
            scope.spawn(|| {
                task.begin();
                lock.enter();
            });
            lock.wait_until_behind(task);
        }
        owner.wait_for_priority(ordinary());
        assert!(make_real_time(second.id(), 20));
        owner.wait_for_priority(at(20));
        wait_for_loan(&lock, &first, &second, at(20));
        may_release.wait();
    });
    assert!(lock.try_lock());
}

fn priority_passes_along_a_chain_of_owners<L: Lock>() {
    if !may_be_real_time("priority_passes_along_a_chain_of_owners") {
        return;
    }
    let (inner, outer) = (L::default(), L::default());
    let [owner, bystander, middle, urgent] = [const { Task::new() }; 4];
    let may_release = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            inner.lock();
            owner.begin();
            may_release.wait();
            inner.unlock();
        });
        owner.id();
        // So that the middle one waits at the gate, if there is one.
        scope.spawn(|| {
            bystander.begin();
            inner.enter();
        });
        bystander.wait_until_asleep(inner.word());
        scope.spawn(|| {
            outer.lock();
            middle.begin();
            inner.enter();
            outer.unlock();
        });
        inner.wait_until_behind(&middle);
        scope.spawn(|| {
            assert!(make_real_time(0, 40));
            urgent.begin();
            outer.enter();
        });
        urgent.wait_until_asleep(outer.word());
        for task in [&middle, &owner] {
            task.wait_for_priority(at(40));
        }
        wait_for_loan(&inner, &bystander, &middle, at(40));
        may_release.wait();
    });
    assert!(inner.try_lock() && outer.try_lock());
}

fn a_real_time_task_goes_first<L: Lock>() {
    if !may_be_real_time("a_real_time_task_goes_first") {
        return;
    }
    let lock = L::default();
    let order = StdMutex::new(Vec::new());
    let tasks = [const { Task::new() }; 4];
    lock.lock();
    thread::scope(|scope| {
        for (index, task) in tasks.iter().enumerate() {
            let (lock, order) = (&lock, &order);
            scope.spawn(move || {
                let urgent = index >= 2;
                assert!(!urgent || make_real_time(0, 10 + index as i32));
                task.begin();
                lock.lock();
                order.lock().unwrap().push(index);
                lock.unlock();
            });
            if index == 1 {
                lock.wait_until_behind(task);
            } else {
                task.wait_until_asleep(lock.word());
            }
        }
        lock.unlock();
    });
    assert_eq!(order.into_inner().unwrap()[..2], [3, 2]);
}

/// C holds `right` and waits at the gate of `left`, whose owner sleeps on the word of `left`. The holder
/// of `left` asks for `right`.
#[test]
fn a_deadlock_through_a_gate_is_reported_to_the_task_that_completes_it() {
    let _watchdog = Watchdog::start("a_deadlock_through_a_gate".into());
    let (left, right) = (Inherit::<Private>::new(), Inherit::<Private>::new());
    let [at_word, at_gate] = [const { Task::new() }; 2];
    left.lock();
    thread::scope(|scope| {
        scope.spawn(|| {
            at_word.begin();
            left.enter();
        });
        at_word.wait_until_asleep(left.word());
        scope.spawn(|| {
            right.lock();
            at_gate.begin();
            left.enter();
            right.unlock();
        });
        left.wait_until_behind(&at_gate);
        assert_eq!(right.acquire(), Err(InheritFault::Deadlock));
        left.unlock();
    });
    assert!(left.try_lock() && right.try_lock());
}

#[test]
fn a_guard_gives_the_data_and_names_its_owner() {
    static PLAIN: Mutex<u32, InheritPlain> = Mutex::inherit_plain(1);
    static GATED: Mutex<u32, Inherit> = Mutex::inherit(2);
    *PLAIN.lock().unwrap() += *GATED.lock().unwrap();
    assert_eq!(
        *PLAIN.lock_for(Duration::from_secs(3600)).unwrap().unwrap(),
        3
    );
    let (lock, me) = (Inherit::<Private>::new(), Task::new());
    me.begin();
    assert_eq!(lock.owner(), None);
    lock.lock();
    assert_eq!(lock.owner().map(u32::cast_signed), Some(me.id()));
    assert_eq!(
        format!("{lock:?}"),
        format!("Inherit {{ owner: Some({}) }}", me.id())
    );
    lock.unlock();
}

/// A lock that lies in shared memory is the same in every build.
#[test]
fn sizes_are_as_promised_and_zero_is_unlocked() {
    assert_eq!((size_of::<Inherit>(), align_of::<Inherit>()), (8, 4));
    assert_eq!(
        (size_of::<InheritPlain>(), align_of::<InheritPlain>()),
        (4, 4)
    );
    // SAFETY: zero is an unlocked lock, and an integer.
    let (gated, plain): (Mutex<u32, Inherit>, Mutex<u32, InheritPlain>) =
        unsafe { core::mem::zeroed() };
    assert!(gated.try_lock().unwrap().is_some() && plain.try_lock().unwrap().is_some());
}
