//! What every condition variable must do: ours with each kind of mutex, and std's and pthread's,
//! which show that the bodies are right.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::forget;
use core::pin::pin;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use latchwork::condvar::{Condvar, Waited};
use latchwork::mutex::{Inherit, LockError, Mutex, Protect, RecursiveMutex, Throughput};
use latchwork::sharing::{Private, Shared};
use latchwork_testkit::{Child, Exit, Page, Trial, Watchdog};
use std::thread;

mod condvar_support;
mod pthread;
use condvar_support::*;
use latchwork_testkit::bodies::condvar::Contestant;
use latchwork_testkit::{Mapped, ThreadId, in_dying_thread};

latchwork_testkit::condvar_conformance! {
    by_word: Of<ByWord>;
    by_kernel: Of<ByKernel>;
    by_kernel_past_gate: Of<ByKernelPastGate>;
    by_relay: Of<ByRelay>;
    by_relay_under_ceiling: Of<ByRelayUnderCeiling>;
    by_relay_to_shared: Of<ByRelayToShared>;
    by_relay_to_robust: OfRobust<Private>;
    by_crowd: Of<ByCrowd>;
    by_crowd_inheriting: Of<ByCrowdInheriting>;
    by_crowd_to_robust: OfRobust<Shared>;
    by_relay_to_robust_inherit: OfRobust<Private, Inherit<Private>>;
    by_relay_to_robust_protect: OfRobust<Private, Protect<Private>>;
    by_relay_to_robust_throughput: OfRobust<Private, Throughput<Private>>;
    by_crowd_to_robust_inherit: OfRobust<Shared, Inherit<Shared>>;
    by_crowd_to_robust_protect: OfRobust<Shared, Protect<Shared>>;
    by_crowd_to_robust_throughput: OfRobust<Shared, Throughput<Shared>>;
    by_word_of_recursive: OfRecursive;
    of_std: OfStd;
    of_pthread: OfPthread;
}

static NUMBER: Mutex<u32> = Mutex::new(0);
static CHANGED: Condvar = Condvar::new();

#[test]
fn a_condvar_can_be_a_static_and_is_zero() {
    CHANGED.notify_all();
    drop(NUMBER.lock());
    assert_eq!((size_of::<Condvar>(), align_of::<Condvar>()), (24, 8));
    assert_eq!(
        (size_of::<Condvar<Shared>>(), align_of::<Condvar<Shared>>()),
        (24, 8)
    );
    // SAFETY: integers.
    let zeroed: Condvar = unsafe { core::mem::zeroed() };
    assert_eq!(
        zeroed.wait_for(NUMBER.lock(), Duration::from_millis(1)).1,
        Waited::TimedOut
    );
}

#[test]
fn a_waiter_learns_that_a_holder_died_meanwhile() {
    let _watchdog = Watchdog::start("a_waiter_learns_that_a_holder_died_meanwhile".into());
    let number = pin!(Mutex::robust(0_u64));
    let number = number.as_ref();
    let changed = Condvar::shared();
    let id = ThreadId::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            id.set();
            let mut guard = number.lock().unwrap();
            loop {
                match changed.wait_robust(guard) {
                    Ok(woken) => guard = woken,
                    Err(LockError::OwnerDied(died)) => return drop(died.make_consistent()),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        id.wait_until_in_futex();
        in_dying_thread(|| forget(number.lock()));
        changed.notify_one();
    });
}

#[test]
fn a_wait_with_a_robust_mutex_has_all_forms() {
    let _watchdog = Watchdog::start("a_wait_with_a_robust_mutex_has_all_forms".into());
    let number = pin!(Mutex::robust(0_u64));
    let number = number.as_ref();
    let changed = Condvar::shared();
    let guard = number.lock().unwrap();
    let (guard, waited) = changed
        .wait_robust_for(guard, Duration::from_millis(1))
        .unwrap();
    assert_eq!((*guard, waited), (0, Waited::TimedOut));
    drop(guard);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut repairs = 0;
            let mut guard = number.lock();
            loop {
                let held = match guard {
                    Err(LockError::OwnerDied(died)) => {
                        repairs += 1;
                        died.make_consistent()
                    }
                    other => other.unwrap(),
                };
                // Without the look first, the repair of the last change would be waited for in vain.
                guard = changed.wait_robust_while(held, |number| *number < 3);
                if let Ok(held) = guard {
                    return (*held, repairs);
                }
            }
        });
        for _ in 0..2 {
            *number.lock().unwrap() += 1;
            changed.notify_all();
        }
        let last = || {
            let mut guard = number.lock().unwrap();
            *guard += 1;
            forget(guard);
        };
        in_dying_thread(last);
        changed.notify_all();
        let (seen, repairs) = waiter.join().unwrap();
        assert!(seen == 3 && repairs == 1, "{seen} {repairs}");
    });
}

#[test]
fn a_wait_with_a_recursive_mutex_has_all_forms() {
    let _watchdog = Watchdog::start("a_wait_with_a_recursive_mutex_has_all_forms".into());
    let (flag, changed) = (RecursiveMutex::new(AtomicU32::new(0)), Condvar::new());
    let (guard, waited) = changed.wait_recursive_for(flag.lock(), Duration::from_millis(1));
    assert_eq!(waited, Waited::TimedOut);
    drop(guard);
    thread::scope(|scope| {
        scope.spawn(|| {
            flag.lock().store(1, Ordering::Relaxed);
            changed.notify_one();
        });
        let is_unset = |flag: &AtomicU32| flag.load(Ordering::Relaxed) == 0;
        let guard = changed.wait_recursive_while(flag.lock(), is_unset);
        assert_eq!(guard.load(Ordering::Relaxed), 1);
    });
}

/// Its count stays; notifications of the others are none the worse for it.
#[test]
fn a_killed_waiter_blocks_no_other_task() {
    let trial = Trial::begin("a_killed_waiter_blocks_no_other_task");
    let contestant = Mapped::new(OfRobust::<Shared>::make());
    let passed = Page::<AtomicU32>::new();
    let wait = || {
        contestant.wait_while(None, |number| number == 0, |_| ());
        passed.fetch_add(1, Ordering::Relaxed);
    };
    for _ in 0..20 {
        contestant.change(false, |number| *number = 0);
        let mut victim = Child::fork(wait);
        let survivors = [Child::fork(wait), Child::fork(wait)];
        trial.wait_until(|| victim.is_in_futex() && survivors.iter().all(Child::is_in_futex));
        victim.kill();
        contestant.change(true, |number| *number = 1);
        survivors.into_iter().for_each(Child::succeed);
    }
    assert_eq!(passed.load(Ordering::Relaxed), 40);
}

#[test]
fn a_wait_with_a_mutex_that_was_taken_twice_aborts() {
    let _trial = Trial::begin("a_wait_with_a_mutex_that_was_taken_twice_aborts");
    let mut child = Child::fork(|| {
        let (mutex, changed) = (RecursiveMutex::new(()), Condvar::new());
        let _outer = mutex.lock();
        drop(changed.wait_recursive(mutex.lock()));
    });
    assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
}
