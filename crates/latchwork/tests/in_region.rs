//! Region locks: what they promise beside mutual exclusion (`mutex.rs` tries that). `kill_in_region.rs` kills at random
//! and at every instruction; `loom_in_region.rs` has the models.
#![cfg(not(loom))]

use core::mem::forget;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::condvar::{Condvar, Waited};
use latchwork::mutex::in_region::{LockError, NotATask};
use latchwork::mutex::{
    InRegion, LockFailure, Mutex, RegionGuard, RegionProtocol, Throughput, WaitWake,
};
use latchwork::region::{self, DetachError, Region, RegionOptions};
use latchwork::sharing::Shared;
use latchwork_sync::task::Me;
use latchwork_testkit::{Child, Exit, Mapped, Trial, in_dying_thread};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::Instant;

mod region_form_support;
use region_form_support::with_every_form;

type Lock<P> = Mutex<u64, InRegion<P>>;

with_every_form!(
    it_is_free_when_zero
    a_lock_outside_a_region_is_refused
    a_task_that_locks_again_gets_a_deadlock
    waits_end_at_their_deadline
    a_dead_owner_is_reported_once
    a_successor_in_the_slot_is_not_taken_for_the_dead_owner
    a_sleeping_waiter_sees_the_owners_death
    a_death_that_nobody_repairs_makes_the_lock_not_recoverable
    a_death_can_be_passed_on
    a_panic_leaves_the_data_inconsistent
    the_child_of_a_fork_holds_nothing
    a_leaked_guard_stays_its_processs
    the_death_of_a_thread_alone_is_reported
    a_task_does_not_leave_with_a_lock
    the_count_of_held_locks_does_not_overflow
    locks_of_several_regions_do_not_meet
    a_task_can_hold_any_number
    condition_variables_wait_with_it
);

/// A wait that must fail: long enough for a lock that is free to be taken.
const SHORT: Duration = Duration::from_millis(30);

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(16 << 20)
        .max_tasks(64)
        .label("in_region")
        .create_anonymous()
        .unwrap()
}

const fn new<P: RegionProtocol>(data: u64) -> Lock<P> {
    Mutex::from_raw(InRegion::new(), data)
}

fn lock_in<P: RegionProtocol>(region: &Region) -> &Lock<P> {
    region.object("lock", || new(0)).unwrap().get_ref()
}

/// Leaves the lock to a dead owner.
fn leave_dead_owner<P: RegionProtocol>(lock: &Lock<P>) {
    Child::fork(|| forget(lock.lock().unwrap())).succeed();
}

fn expect_owner_died<P: RegionProtocol>(lock: &Lock<P>) -> RegionGuard<'_, u64, P> {
    match lock.lock() {
        Err(LockError::OwnerDied(died)) => died.make_consistent(),
        Ok(_) => panic!("no death was reported"),
        Err(error) => panic!("{error}"),
    }
}

fn is_held_by_another<P: RegionProtocol>(lock: &Lock<P>) -> bool {
    matches!(lock.try_lock(), Err(LockError::WouldBlock))
}

#[test]
fn they_have_these_sizes() {
    assert_eq!((size_of::<InRegion>(), align_of::<InRegion>()), (8, 8));
    assert_eq!(size_of::<Lock<WaitWake<Shared>>>(), 16);
    type Other = InRegion<Throughput<Shared>>;
    assert_eq!((size_of::<Other>(), align_of::<Other>()), (16, 8));
}

fn it_is_free_when_zero<P: RegionProtocol>() {
    let region = region();
    let lock = lock_in::<P>(&region);
    let word = || {
        // SAFETY: the word is the first thing in the mutex, and no task changes it meanwhile.
        #[allow(unsafe_code)]
        unsafe {
            core::ptr::from_ref(lock).cast::<u64>().read_volatile()
        }
    };
    assert_eq!(word(), 0);
    let guard = lock.lock().unwrap();
    assert_ne!(word(), 0);
    drop(guard);
    assert_eq!(word(), 0);
}

fn a_lock_outside_a_region_is_refused<P: RegionProtocol>() {
    let outside = Box::new(new::<P>(0));
    let on_the_stack = new::<P>(0);
    for lock in [&*outside, &on_the_stack] {
        assert!(matches!(
            lock.lock(),
            Err(LockError::Unavailable(NotATask::NoRegion))
        ));
        let failure = LockFailure::from(lock.try_lock().unwrap_err());
        assert_eq!(failure, LockFailure::Refused(NotATask::NoRegion));
    }
    // Also in a process that has a region.
    let region = region();
    drop(lock_in::<P>(&region).lock().unwrap());
    let error: Box<dyn core::error::Error> = outside.lock().unwrap_err().into();
    assert_eq!(
        error.to_string(),
        "the lock lies in no region of this process"
    );
}

fn a_task_that_locks_again_gets_a_deadlock<P: RegionProtocol>() {
    let region = region();
    let lock = lock_in::<P>(&region);
    let guard = lock.lock().unwrap();
    assert!(matches!(lock.lock(), Err(LockError::Deadlock)));
    assert!(matches!(lock.try_lock(), Err(LockError::Deadlock)));
    drop(guard);
    drop(lock.lock().unwrap());
}

fn waits_end_at_their_deadline<P: RegionProtocol>() {
    let region = region();
    let lock = lock_in::<P>(&region);
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            // Shorter and longer than the first sleep of a wait.
            for timeout in [Duration::ZERO, Duration::from_millis(1), SHORT] {
                assert!(matches!(lock.lock_for(timeout), Err(LockError::TimedOut)));
            }
            assert!(is_held_by_another(lock));
        });
        waits.join().unwrap();
    });
    drop(guard);
    assert!(lock.lock_for(Duration::ZERO).is_ok());
}

fn a_dead_owner_is_reported_once<P: RegionProtocol>() {
    let _trial = Trial::begin("a_dead_owner_is_reported_once");
    let region = region();
    let lock = lock_in::<P>(&region);
    leave_dead_owner(lock);
    match lock.try_lock() {
        Err(LockError::OwnerDied(mut died)) => {
            *died += 1;
            assert_eq!(*died.make_consistent(), 1);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(*lock.lock().unwrap(), 1);
}

/// With the slot's next task as the one that asks: it has the same slot.
fn a_successor_in_the_slot_is_not_taken_for_the_dead_owner<P: RegionProtocol>() {
    let _trial = Trial::begin("a_successor_in_the_slot");
    let region = region();
    let lock = lock_in::<P>(&region);
    for _ in 0..3 {
        leave_dead_owner(lock);
        region.sweep().unwrap();
        Child::fork(|| drop(expect_owner_died(lock))).succeed();
        leave_dead_owner(lock);
        region.sweep().unwrap();
        // It holds another lock, from the slot in which the owner died.
        let held = region.object("other", || new::<P>(0)).unwrap();
        Child::fork(|| {
            let _held = held.lock().unwrap();
            drop(expect_owner_died(lock));
        })
        .succeed();
    }
}

fn a_sleeping_waiter_sees_the_owners_death<P: RegionProtocol>() {
    let trial = Trial::begin("a_sleeping_waiter_sees_the_owners_death");
    let region = region();
    let lock = lock_in::<P>(&region);
    let is_held = Mapped::new(AtomicU32::new(0));
    let mut owner = Child::fork(|| {
        let _held = lock.lock().unwrap();
        is_held.store(1, SeqCst);
        loop {
            thread::park();
        }
    });
    trial.wait_until(|| is_held.load(SeqCst) == 1);
    let waiters = [(); 3].map(|()| {
        Child::fork(|| match lock.lock() {
            Ok(mut data) => *data += 1,
            Err(LockError::OwnerDied(died)) => *died.make_consistent() += 10,
            Err(error) => panic!("{error}"),
        })
    });
    trial.wait_until(|| waiters.iter().all(Child::is_in_futex));
    // Beyond the first sleep, which ends by itself.
    thread::sleep(Duration::from_millis(10));
    owner.kill();
    waiters.into_iter().for_each(Child::succeed);
    assert_eq!(*lock.lock().unwrap(), 12);
}

fn a_death_that_nobody_repairs_makes_the_lock_not_recoverable<P: RegionProtocol>() {
    let trial = Trial::begin("not recoverable");
    let region = region();
    let lock = lock_in::<P>(&region);
    leave_dead_owner(lock);
    let Err(LockError::OwnerDied(died)) = lock.lock() else {
        panic!("no death was reported");
    };
    let waiters = [(); 3]
        .map(|()| Child::fork(|| assert!(matches!(lock.lock(), Err(LockError::NotRecoverable)))));
    trial.wait_until(|| waiters.iter().all(Child::is_in_futex));
    drop(died);
    waiters.into_iter().for_each(Child::succeed);
    assert!(matches!(lock.try_lock(), Err(LockError::NotRecoverable)));
}

fn a_death_can_be_passed_on<P: RegionProtocol>() {
    let _trial = Trial::begin("a_death_can_be_passed_on");
    let region = region();
    let lock = lock_in::<P>(&region);
    leave_dead_owner(lock);
    for _ in 0..2 {
        assert_eq!(
            LockFailure::from(lock.lock().unwrap_err()),
            LockFailure::OwnerDied
        );
    }
    *expect_owner_died(lock) = 5;
    leave_dead_owner(lock);
    let Err(LockError::OwnerDied(died)) = lock.lock() else {
        panic!("no death was reported");
    };
    assert_eq!(*died.replace(7), 7);
    assert_eq!(*lock.lock().unwrap(), 7);
}

fn a_panic_leaves_the_data_inconsistent<P: RegionProtocol>() {
    let region = region();
    let lock = lock_in::<P>(&region);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _held = lock.lock().unwrap();
        resume_unwind(Box::new(()));
    }));
    assert!(caught.is_err());
    drop(expect_owner_died(lock));
    // An unrepaired death stays one.
    leave_dead_owner(lock);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _died = lock.lock();
        resume_unwind(Box::new(()));
    }));
    assert!(caught.is_err());
    drop(expect_owner_died(lock));
}

fn the_child_of_a_fork_holds_nothing<P: RegionProtocol>() {
    let _trial = Trial::begin("the_child_of_a_fork_holds_nothing");
    let region = region();
    let lock = lock_in::<P>(&region);
    let mut held = Some(lock.lock().unwrap());
    Child::fork(|| {
        assert!(is_held_by_another(lock));
        // It is a task of its own.
        let own = region.object("own", || new::<P>(0)).unwrap();
        *own.lock().unwrap() += 1;
        region.clone().detach().unwrap();
    })
    .succeed();
    for become_task in [false, true] {
        let mut child = Child::fork(|| {
            if become_task {
                region.join("child").unwrap();
            }
            drop(held.take());
        });
        assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
    }
    *held.unwrap() += 1;
    assert_eq!(*lock.lock().unwrap(), 1);
}

fn a_leaked_guard_stays_its_processs<P: RegionProtocol>() {
    let trial = Trial::begin("a_leaked_guard_stays_its_processs");
    let region = region();
    let lock = lock_in::<P>(&region);
    let ended = Mapped::new(AtomicU32::new(0));
    let mut child = Child::fork(|| {
        thread::scope(|scope| scope.spawn(|| forget(lock.lock().unwrap())).join().unwrap());
        assert!(matches!(lock.lock_for(SHORT), Err(LockError::TimedOut)));
        ended.store(1, SeqCst);
        loop {
            thread::park();
        }
    });
    trial.wait_until(|| ended.load(SeqCst) == 1 || child.try_wait().is_some());
    region.sweep().unwrap();
    assert!(matches!(lock.lock_for(SHORT), Err(LockError::TimedOut)));
    assert_eq!(child.kill(), Exit::Signal(libc::SIGKILL));
    drop(expect_owner_died(lock));
}

fn the_death_of_a_thread_alone_is_reported<P: RegionProtocol>() {
    let _trial = Trial::begin("the_death_of_a_thread_alone_is_reported");
    let region = region();
    let lock = lock_in::<P>(&region);
    in_dying_thread(|| forget(lock.lock().unwrap()));
    drop(expect_owner_died(lock));
}

fn a_task_does_not_leave_with_a_lock<P: RegionProtocol>() {
    let region = region();
    let lock = lock_in::<P>(&region);
    let guard = lock.lock().unwrap();
    assert!(matches!(
        region.clone().detach(),
        Err(DetachError::Holding { locks: 1, .. })
    ));
    drop(guard);
    region.clone().detach().unwrap();
    drop(lock.lock().unwrap());
}

/// A program can forget guards and reinitialise their locks, so that a task holds more locks than a region has room for.
fn the_count_of_held_locks_does_not_overflow<P: RegionProtocol>() {
    let region = region();
    let lock = lock_in::<P>(&region);
    drop(lock.lock().unwrap());
    Me::current_or_none().set_first_held(u32::MAX.into());
    let guard = lock.lock().unwrap();
    assert!(matches!(
        region.clone().detach(),
        Err(DetachError::Holding {
            locks: 0x1_0000_0000,
            ..
        })
    ));
    drop(guard);
    Me::current_or_none().set_first_held(0);
    region.detach().unwrap();
}

/// The tasks of both regions have equal identities.
fn locks_of_several_regions_do_not_meet<P: RegionProtocol>() {
    let _trial = Trial::begin("locks_of_several_regions_do_not_meet");
    thread::scope(|scope| {
        scope.spawn(|| {
            let regions = [region(), region(), region()];
            let locks = [0, 1, 2].map(|index: usize| lock_in::<P>(&regions[index]));
            let holding = |region: &Region| match region.clone().detach() {
                Ok(()) => 0,
                Err(DetachError::Holding { locks, .. }) => locks,
                Err(error) => panic!("{error}"),
            };
            let mut guards = locks.map(|lock| Some(lock.lock().unwrap()));
            assert_eq!(regions.each_ref().map(holding), [1, 1, 1]);
            // The thread leaves the first region; then another is its first.
            guards[0] = None;
            assert_eq!(regions.each_ref().map(holding), [0, 1, 1]);
            *guards[2].take().unwrap() += 1;
            assert_eq!(regions.each_ref().map(holding), [0, 1, 0]);
            let again = [locks[0].lock().unwrap(), locks[2].lock().unwrap()];
            assert_eq!(regions.each_ref().map(holding), [1, 1, 1]);
            drop((guards, again));
            assert_eq!(regions.each_ref().map(holding), [0, 0, 0]);
        });
    });
}

/// Unlike a robust lock, of which the kernel hands on 2048 at most.
fn a_task_can_hold_any_number<P: RegionProtocol>() {
    const LOCKS: usize = 100_000;
    let trial = Trial::begin("a_task_can_hold_any_number");
    let region = region();
    let locks = region
        .object("locks", || {
            Mutex::in_region(region::Vec::<Lock<P>>::new_in(&region))
        })
        .unwrap();
    let mut all = locks.lock().unwrap();
    for _ in 0..LOCKS {
        // The vector moves its locks as it grows.
        all.edit().push(new(0)).unwrap();
    }
    let all: &[Lock<P>] = &all;
    let has_all = Mapped::new(AtomicU32::new(0));
    let mut owner = Child::fork(|| {
        for lock in all {
            forget(lock.lock().unwrap());
        }
        has_all.store(1, SeqCst);
        loop {
            thread::park();
        }
    });
    trial.wait_until(|| has_all.load(SeqCst) == 1 || owner.try_wait().is_some());
    assert_eq!(owner.kill(), Exit::Signal(libc::SIGKILL));
    let begin = Instant::now();
    for lock in all {
        *expect_owner_died(lock) += 1;
        // Each takeover may yield the processor for a slice.
        trial.progress();
    }
    eprintln!(
        "{}: {LOCKS} locks of {} bytes with their data, of one dead task: taken over in {:?}",
        core::any::type_name::<P>(),
        size_of::<Lock<P>>(),
        begin.elapsed()
    );
    assert!(all.iter().all(|lock| *lock.lock().unwrap() == 1));
}

fn condition_variables_wait_with_it<P: RegionProtocol>() {
    let trial = Trial::begin("condition_variables_wait_with_it");
    let region = region();
    let lock = lock_in::<P>(&region);
    let changed = region.object("changed", Condvar::<Shared>::shared).unwrap();
    let waiter = Child::fork(|| {
        let guard = lock.lock().unwrap();
        let guard = changed.wait_in_region_while(guard, |data| *data == 0);
        assert_eq!(*guard.unwrap(), 1);
        let (_, waited) = changed
            .wait_in_region_for(lock.lock().unwrap(), Duration::from_millis(1))
            .unwrap();
        assert_eq!(waited, Waited::TimedOut);
    });
    trial.wait_until(|| waiter.is_in_futex());
    *lock.lock().unwrap() = 1;
    changed.notify_one();
    waiter.succeed();

    // The death of an owner is reported to a waiter that returns.
    let waiter = Child::fork(|| {
        let mut guard = lock.lock().unwrap();
        // Deaths in the region end waits, too.
        let died = loop {
            match changed.wait_in_region(guard) {
                Ok(again) => guard = again,
                Err(LockError::OwnerDied(died)) => break died,
                Err(error) => panic!("{error}"),
            }
        };
        drop(died.make_consistent());
    });
    trial.wait_until(|| waiter.is_in_futex() && lock.try_lock().is_ok());
    leave_dead_owner(lock);
    changed.notify_all();
    waiter.succeed();
}
