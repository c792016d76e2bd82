//! The robust forms of all protocols: what is the same in each. (`robust_special.rs` has what is not, `robust/`
//! what the wait-wake form alone is tried for; `kill_robust_protocols` kills at random and at every
//! instruction.)
//!
//! Ceilings need a privilege: without it, those tests are skipped, and say so.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::forget;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;
use latchwork::mutex::{Inherit, LockError, Protect, RobustGuard, Throughput, WaitWake};
use latchwork::sharing::{Private, Shared};
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Exit, Trial, die};
use std::panic::resume_unwind;
use std::thread;

mod robust_kinds;
mod robust_support;
use latchwork_testkit::priority::{OTHER, in_thread, now};
use latchwork_testkit::{Mapped, ThreadId, in_dying_thread};
use robust_kinds::{Kind, Lock, expect_owner_died, leave_dead_owner};
use robust_support::{announced, list_is_empty};

type Outcome<'a, K> = Result<RobustGuard<'a, u32, K>, LockError<'a, u32, K>>;

/// Declares each body as the tests of all kinds, and those after the `;` as those of shared ones.
macro_rules! of_each_kind {
    ($($body:ident)*; $($shared:ident)*) => {
        of_each_kind!(@ wait_wake: WaitWake<Private>; $($body)*);
        of_each_kind!(@ wait_wake_shared: WaitWake<Shared>; $($body)* $($shared)*);
        of_each_kind!(@ inherit: Inherit<Private>; $($body)*);
        of_each_kind!(@ inherit_shared: Inherit<Shared>; $($body)* $($shared)*);
        of_each_kind!(@ protect: Protect<Private>; $($body)*);
        of_each_kind!(@ protect_shared: Protect<Shared>; $($body)* $($shared)*);
        of_each_kind!(@ throughput: Throughput<Private>; $($body)*);
        of_each_kind!(@ throughput_shared: Throughput<Shared>; $($body)* $($shared)*);
    };
    (@ $module:ident: $kind:ty; $($body:ident)*) => {
        mod $module {
            use super::*;
            $(#[test]
            fn $body() {
                let name = concat!(stringify!($body), " of ", stringify!($kind));
                if <$kind>::may_be_used(name) {
                    let trial = Trial::begin(name);
                    super::$body::<$kind>(&trial);
                    trial.progress();
                    assert!(list_is_empty());
                    assert_eq!(announced(), 0);
                    assert_eq!(now(), OTHER, "the priority is not restored");
                }
            })*
        }
    };
}

of_each_kind! {
    a_dead_owner_is_reported_once_and_recovered
    several_waiters_are_freed_in_turn_when_the_owner_dies
    not_recoverable_reaches_all_waiters_and_later_callers
    locking_again_is_reported_by_every_variant
    try_and_timed_variants_report_the_reason
    a_panic_of_the_owner_is_reported
    exclusion_holds_and_no_waiter_stays_asleep
    as_many_as_the_kernel_would_release_can_be_held
    a_reset_leaves_the_lock_of_a_forgotten_guard_with_its_owner
    ;
    a_killed_process_leaves_its_lock_to_others
    waiters_of_other_processes_are_freed_in_turn
    a_forked_child_holds_nothing_and_an_inherited_guard_aborts_it
}

fn a_dead_owner_is_reported_once_and_recovered<K: Kind>(_: &Trial) {
    let lock = pin!(K::mutex(0));
    let lock = lock.as_ref();
    for how in 0..3 {
        leave_dead_owner(lock, 7);
        let result = match how {
            0 => lock.lock(),
            1 => lock.try_lock(),
            _ => lock.lock_until(Deadline::from_nanoseconds(0)),
        };
        match result {
            Err(LockError::OwnerDied(died)) => assert_eq!(*died.make_consistent(), 7),
            other => panic!("{other:?}"),
        }
        drop(lock.lock().unwrap());
        drop(lock.try_lock().unwrap());
    }
    // One whose successor dies, too, before it has repaired anything.
    leave_dead_owner(lock, 8);
    in_dying_thread(|| forget(lock.lock()));
    expect_owner_died(lock);
}

/// Counts how often `judge` said true and false for six tasks that sleep when the owner ends.
fn with_waiters_of_a_dying_owner<K: Kind>(
    trial: &Trial,
    lock: Pin<&Lock<K>>,
    judge: fn(Outcome<'_, K>) -> bool,
) -> (usize, usize) {
    const WAITERS: usize = 6;
    let (held, end) = (AtomicBool::new(false), AtomicBool::new(false));
    let ids: [ThreadId; WAITERS] = Default::default();
    let (yes, no) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            in_dying_thread(|| {
                forget(lock.lock());
                held.store(true, Ordering::Release);
                trial.wait_until(|| end.load(Ordering::Acquire));
            });
        });
        trial.wait_until(|| held.load(Ordering::Acquire));
        for id in &ids {
            let (yes, no) = (&yes, &no);
            scope.spawn(move || {
                in_dying_thread(|| {
                    id.set();
                    let count = if judge(lock.lock()) { yes } else { no };
                    count.fetch_add(1, Ordering::Relaxed);
                });
            });
        }
        trial.wait_until(|| ids.iter().all(ThreadId::is_in_futex));
        end.store(true, Ordering::Release);
    });
    (yes.into_inner(), no.into_inner())
}

fn several_waiters_are_freed_in_turn_when_the_owner_dies<K: Kind>(trial: &Trial) {
    let lock = pin!(K::mutex(0));
    let counts = with_waiters_of_a_dying_owner(trial, lock.as_ref(), |result| match result {
        Err(LockError::OwnerDied(died)) => {
            drop(died.make_consistent());
            true
        }
        Ok(_) => false,
        Err(error) => panic!("{error}"),
    });
    assert_eq!(counts, (1, 5));
    // Each of them dies with it.
    let counts = with_waiters_of_a_dying_owner(trial, lock.as_ref(), |result| {
        let died = matches!(result, Err(LockError::OwnerDied(_)));
        forget(result);
        died
    });
    assert_eq!(counts, (6, 0));
    expect_owner_died(lock.as_ref());
}

fn not_recoverable_reaches_all_waiters_and_later_callers<K: Kind>(trial: &Trial) {
    let mut lock = pin!(K::mutex(0));
    let shared = lock.as_ref();
    let counts = with_waiters_of_a_dying_owner(trial, shared, |result| match result {
        Err(LockError::OwnerDied(_)) => true,
        Err(LockError::NotRecoverable) => false,
        other => panic!("{other:?}"),
    });
    assert_eq!(counts, (1, 5));
    let is_lost = |result: Outcome<'_, K>| matches!(result, Err(LockError::NotRecoverable));
    for _ in 0..10 {
        assert!(is_lost(shared.lock()));
        assert!(is_lost(shared.try_lock()));
        assert!(is_lost(shared.lock_for(Duration::from_secs(3600))));
    }
    assert_eq!(now(), OTHER);
    lock.as_mut().reset(7);
    assert_eq!(*lock.as_ref().lock().unwrap(), 7);
    // A lock without waiters, with and without a word that the kernel has changed.
    for waited in [false, true] {
        let lock = pin!(K::mutex(0));
        let lock = lock.as_ref();
        leave_dead_owner(lock, 1);
        let died = lock.lock();
        if waited {
            let soon = || Deadline::after(Duration::from_millis(2));
            in_thread(|| {
                assert!(matches!(lock.lock_until(soon()), Err(LockError::TimedOut)));
            });
        }
        assert!(matches!(died, Err(LockError::OwnerDied(_))));
        drop(died);
        assert!(is_lost(lock.try_lock()));
        assert!(is_lost(lock.lock()));
    }
}

fn locking_again_is_reported_by_every_variant<K: Kind>(_: &Trial) {
    let lock = pin!(K::mutex(0));
    let lock = lock.as_ref();
    let guard = lock.lock().unwrap();
    let before = now();
    assert!(matches!(lock.lock(), Err(LockError::Deadlock)));
    assert!(matches!(lock.try_lock(), Err(LockError::Deadlock)));
    assert!(matches!(
        lock.lock_for(Duration::from_secs(3600)),
        Err(LockError::Deadlock)
    ));
    assert_eq!(now(), before);
    drop(guard);
    drop(lock.lock().unwrap());
}

fn try_and_timed_variants_report_the_reason<K: Kind>(trial: &Trial) {
    let lock = pin!(K::mutex(0));
    let lock = lock.as_ref();
    let past = Deadline::from_nanoseconds(0);
    drop(lock.lock_until(past).unwrap());
    let guard = lock.lock().unwrap();
    in_thread(|| {
        OTHER.give(0);
        assert!(matches!(lock.try_lock(), Err(LockError::WouldBlock)));
        assert!(matches!(lock.lock_until(past), Err(LockError::TimedOut)));
        let soon = Deadline::after(Duration::from_millis(2));
        assert!(matches!(lock.lock_until(soon), Err(LockError::TimedOut)));
        assert!(soon.has_passed());
        assert_eq!(now(), OTHER, "a lock call that failed left a boost");
        assert!(list_is_empty());
    });
    // A timed waiter gets what is released in time.
    let id = ThreadId::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            id.set();
            drop(lock.lock_for(Duration::from_secs(3600)).unwrap());
        });
        trial.wait_until(|| id.is_in_futex());
        drop(guard);
    });
}

fn a_panic_of_the_owner_is_reported<K: Kind>(_: &Trial) {
    let lock = pin!(K::mutex(0));
    let lock = lock.as_ref();
    let panics = |body: &(dyn Fn() + Sync)| {
        thread::scope(|scope| assert!(scope.spawn(body).join().is_err()))
    };
    panics(&|| {
        let _guard = lock.lock().unwrap();
        resume_unwind(Box::new("while holding"));
    });
    panics(&|| {
        let _died = lock.lock().unwrap_err();
        resume_unwind(Box::new("while repairing"));
    });
    expect_owner_died(lock);
}

/// Threads that enter, some with a deadline, some of them ending with the lock.
fn exclusion_holds_and_no_waiter_stays_asleep<K: Kind>(trial: &Trial) {
    const TASKS: usize = 6;
    let lock = pin!(K::mutex(0));
    let lock = lock.as_ref();
    let (inside, died) = (AtomicU32::new(0), AtomicU32::new(0));
    let deaths = AtomicU32::new(0);
    for _ in 0..trial.times(30) {
        thread::scope(|scope| {
            for task in 0..TASKS {
                let mut rng = trial.seed().rng(task as u64);
                let (inside, died, deaths) = (&inside, &died, &deaths);
                scope.spawn(move || {
                    in_dying_thread(move || {
                        for round in 0..200 {
                            let result = match rng.u32(..4) {
                                0 => lock.lock_for(Duration::from_micros(rng.u64(..300))),
                                1 => lock.try_lock(),
                                _ => lock.lock(),
                            };
                            let mut guard = match result {
                                Ok(guard) => guard,
                                Err(LockError::OwnerDied(guard)) => {
                                    died.fetch_add(1, Ordering::Relaxed);
                                    inside.store(0, Ordering::Relaxed);
                                    guard.make_consistent()
                                }
                                Err(LockError::TimedOut | LockError::WouldBlock) => continue,
                                Err(error) => panic!("{error}"),
                            };
                            assert_eq!(inside.swap(1, Ordering::Relaxed), 0);
                            *guard += 1;
                            if rng.u32(..20) == 0 {
                                thread::sleep(Duration::from_micros(50));
                            }
                            if round == 199 && task % 2 == 0 {
                                deaths.fetch_add(1, Ordering::Relaxed);
                                return forget(guard);
                            }
                            assert_eq!(inside.swap(0, Ordering::Relaxed), 1);
                        }
                    })
                });
            }
        });
        trial.progress();
    }
    if let Err(LockError::OwnerDied(last)) = lock.lock() {
        died.fetch_add(1, Ordering::Relaxed);
        drop(last.make_consistent());
    }
    assert_eq!(died.into_inner(), deaths.into_inner());
}

fn as_many_as_the_kernel_would_release_can_be_held<K: Kind>(_: &Trial) {
    let locks: Vec<Lock<K>> = (0..2048).map(|_| K::mutex(0)).collect();
    // SAFETY: the vector is neither moved nor changed below.
    let pinned = |index: usize| unsafe { Pin::new_unchecked(&locks[index]) };
    let count = in_dying_thread(|| {
        let count = (0..locks.len())
            .take_while(|index| match pinned(*index).lock() {
                Ok(guard) => {
                    forget(guard);
                    true
                }
                Err(LockError::TooManyHeld) => false,
                Err(error) => panic!("{error}"),
            })
            .count();
        assert!(matches!(
            pinned(count).try_lock(),
            Err(LockError::TooManyHeld)
        ));
        count
    });
    assert!((1024..2048).contains(&count), "{count}");
    (0..count).for_each(|index| expect_owner_died(pinned(index)));
    (count..locks.len()).for_each(|index| drop(pinned(index).lock().unwrap()));
}

/// Such a lock is on its owner's list: it must not appear free, or its memory would be freed.
fn a_reset_leaves_the_lock_of_a_forgotten_guard_with_its_owner<K: Kind>(_: &Trial) {
    let mut child = Child::fork(|| {
        let mut lock = Box::pin(K::mutex(0));
        leave_dead_owner(lock.as_ref(), 7);
        match lock.as_ref().lock() {
            Err(LockError::OwnerDied(died)) => forget(died.make_consistent()),
            other => panic!("{other:?}"),
        }
        lock.as_mut().reset(5);
        assert!(matches!(lock.as_ref().try_lock(), Err(LockError::Deadlock)));
        drop(lock);
    });
    assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
}

fn a_killed_process_leaves_its_lock_to_others<K: Kind>(_: &Trial) {
    let lock = Mapped::new(K::mutex(0));
    for _ in 0..20 {
        let mut child = Child::fork(|| {
            forget(lock.pin().lock());
            die();
        });
        assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
        expect_owner_died(lock.pin());
        let mut child = Child::clone_raw(|| {
            forget(lock.pin().lock());
            die();
        });
        assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
        expect_owner_died(lock.pin());
    }
}

fn waiters_of_other_processes_are_freed_in_turn<K: Kind>(trial: &Trial) {
    const LINKS: u32 = 6;
    let lock = Mapped::new(K::mutex(0));
    let (died, held) = (
        Mapped::new(AtomicU32::new(0)),
        Mapped::new(AtomicU32::new(0)),
    );
    for _ in 0..5 {
        died.store(0, Ordering::Relaxed);
        held.store(0, Ordering::Relaxed);
        let mut owner = Child::fork(|| {
            forget(lock.pin().lock());
            held.store(1, Ordering::Relaxed);
            loop {
                thread::park();
            }
        });
        trial.wait_until(|| held.load(Ordering::Relaxed) == 1);
        let mut links: Vec<Child> = (0..LINKS)
            .map(|_| {
                Child::fork(|| {
                    let result = lock.pin().lock();
                    if matches!(result, Err(LockError::OwnerDied(_))) {
                        died.fetch_add(1, Ordering::Relaxed);
                    }
                    forget(result);
                    die();
                })
            })
            .collect();
        for link in &links {
            trial.wait_until(|| link.is_in_futex());
        }
        owner.kill();
        for link in &mut links {
            assert_eq!(link.wait(), Exit::Signal(libc::SIGKILL));
        }
        assert_eq!(died.load(Ordering::Relaxed), LINKS);
        expect_owner_died(lock.pin());
    }
}

fn a_forked_child_holds_nothing_and_an_inherited_guard_aborts_it<K: Kind>(_: &Trial) {
    let [parents, childs] = [K::mutex(0), K::mutex(0)].map(Mapped::new);
    let guard = parents.pin().lock().unwrap();
    let mut child = Child::fork(|| {
        assert!(matches!(
            parents.pin().try_lock(),
            Err(LockError::WouldBlock)
        ));
        assert!(matches!(
            parents.pin().lock_for(Duration::from_millis(1)),
            Err(LockError::TimedOut)
        ));
        drop(childs.pin().lock().unwrap());
        assert!(list_is_empty());
        assert_eq!(now(), OTHER);
        forget(childs.pin().lock().unwrap());
        die();
    });
    assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
    expect_owner_died(childs.pin());
    // SAFETY: a copy of the guard, as the child of a fork has it.
    let inherited = || unsafe { core::ptr::read(&raw const guard) };
    let mut child = Child::fork(|| drop(inherited()));
    assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
    assert!(matches!(parents.pin().lock(), Err(LockError::Deadlock)));
    drop(guard);
    drop(parents.pin().lock().unwrap());
}
