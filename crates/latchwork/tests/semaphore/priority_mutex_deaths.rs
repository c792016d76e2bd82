//! Owners of a mutex with data that die, end, panic or fork.

use super::priority_mutex::{INHERIT, SHORT, both, make};
use super::semaphore_support::{current, me_at, region, until, watched};
use core::mem::forget;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use latchwork::mutex::LockFailure;
use latchwork::region::{self, DetachError};
use latchwork::semaphore::priority_mutex::LockError;
use latchwork::semaphore::{PriorityGuard, PriorityMutex};
use latchwork_testkit::{Child, Exit, Page, in_dying_thread};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

/// Leaves the lock to a dead owner.
pub(crate) fn leave_dead_owner(mutex: PriorityMutex<'_, u64>) {
    Child::fork(|| forget(mutex.lock().unwrap())).succeed();
}

fn expect_owner_died<'r>(mutex: PriorityMutex<'r, u64>) -> PriorityGuard<'r, u64> {
    match mutex.lock() {
        Err(LockError::OwnerDied(died)) => died.make_consistent(),
        Ok(_) => panic!("no death was reported"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_death_of_a_priority_mutexs_owner_is_reported_once() {
    let _watchdog = watched("the_death_of_a_priority_mutexs_owner_is_reported_once");
    for options in both() {
        let region = region();
        let mutex = make(&region, &options);
        leave_dead_owner(mutex);
        match mutex.try_lock() {
            Err(LockError::OwnerDied(mut died)) => {
                *died += 1;
                assert_eq!(*died.make_consistent(), 1);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(*mutex.lock().unwrap(), 1);
        // Many wait: the first gets the report.
        let owns: Page<AtomicU32> = Page::new();
        let mut owner = Child::fork(|| {
            let mut guard = mutex.lock().unwrap();
            *guard = 100;
            owns.store(1, SeqCst);
            loop {
                thread::park();
            }
        });
        until(|| owns.load(SeqCst) == 1);
        let told = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut guard = match mutex.lock() {
                        Ok(guard) => guard,
                        Err(LockError::OwnerDied(died)) => {
                            told.fetch_add(1, SeqCst);
                            died.replace(10)
                        }
                        Err(error) => panic!("{error}"),
                    };
                    *guard += 1;
                });
            }
            until(|| mutex.waiting() == 3);
            owner.kill();
        });
        assert_eq!(told.load(SeqCst), 1);
        assert_eq!(*mutex.lock().unwrap(), 13);
    }
}

#[test]
fn an_owners_death_that_nobody_repairs_ends_a_priority_mutex() {
    let _watchdog = watched("an_owners_death_that_nobody_repairs_ends_a_priority_mutex");
    for options in both() {
        let region = region();
        let me = me_at(&region, 100);
        let mutex = make(&region, &options);
        leave_dead_owner(mutex);
        // Passed on, it stays reported.
        match mutex.lock() {
            Err(LockError::OwnerDied(died)) => died.pass_on(),
            other => panic!("{other:?}"),
        }
        let failure = LockFailure::from(mutex.lock().unwrap_err());
        assert!(matches!(failure, LockFailure::OwnerDied));
        let Err(LockError::OwnerDied(died)) = mutex.lock() else {
            panic!("no death was reported");
        };
        assert!(matches!(mutex.lock(), Err(LockError::Deadlock)));
        thread::scope(|scope| {
            for own in [20, 30] {
                let region = &region;
                scope.spawn(move || {
                    me_at(region, own);
                    assert!(matches!(mutex.lock(), Err(LockError::NotRecoverable)));
                });
            }
            until(|| mutex.waiting() == 2 && current(&region, me) <= 20);
            drop(died);
        });
        assert_eq!(current(&region, me), 100);
        assert_eq!((mutex.owner(), mutex.waiting()), (None, 0));
        for again in [mutex, make(&region, &options)] {
            assert!(matches!(again.lock(), Err(LockError::NotRecoverable)));
            assert!(matches!(again.try_lock(), Err(LockError::NotRecoverable)));
            assert!(matches!(
                again.lock_for(SHORT),
                Err(LockError::NotRecoverable)
            ));
        }
        region.clone().detach().unwrap();
    }
}

#[test]
fn a_panic_of_a_priority_mutexs_owner_is_reported() {
    for options in both() {
        let region = region();
        let mutex = make(&region, &options);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _guard = mutex.lock().unwrap();
            resume_unwind(Box::new(()));
        }));
        assert!(caught.is_err());
        drop(expect_owner_died(mutex));
        drop(mutex.lock().unwrap());
        // An unrepaired death stays one.
        leave_dead_owner(mutex);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _died = mutex.lock();
            resume_unwind(Box::new(()));
        }));
        assert!(caught.is_err());
        drop(expect_owner_died(mutex));
    }
}

/// A loan of the guard may be another thread's: the end of the thread that locked hands nothing on.
#[test]
fn a_leaked_guard_of_a_priority_mutex_stays_its_processs() {
    let _watchdog = watched("a_leaked_guard_of_a_priority_mutex_stays_its_processs");
    for options in both() {
        let region = region();
        let mutex = make(&region, &options);
        let ended: Page<AtomicU32> = Page::new();
        let mut child = Child::fork(|| {
            // Safe code: the reference outlives the thread that locked.
            let loan: &mut u64 = thread::scope(|scope| {
                scope
                    .spawn(|| &mut **Box::leak(Box::new(mutex.lock().unwrap())))
                    .join()
                    .unwrap()
            });
            assert!(matches!(mutex.lock_for(SHORT), Err(LockError::TimedOut)));
            *loan += 1;
            ended.store(1, SeqCst);
            loop {
                thread::park();
            }
        });
        until(|| ended.load(SeqCst) == 1);
        region.sweep().unwrap();
        assert!(matches!(mutex.lock_for(SHORT), Err(LockError::TimedOut)));
        assert!(mutex.owner().is_some());
        assert_eq!(child.kill(), Exit::Signal(libc::SIGKILL));
        assert_eq!(*expect_owner_died(mutex), 1);
    }
}

#[test]
fn the_death_of_a_thread_that_holds_a_priority_mutex_is_reported() {
    let _watchdog = watched("the_death_of_a_thread_that_holds_a_priority_mutex_is_reported");
    let region = region();
    let mutex = make(&region, &INHERIT);
    in_dying_thread(|| forget(mutex.lock().unwrap()));
    drop(expect_owner_died(mutex));
}

#[test]
fn the_child_of_a_fork_has_no_priority_mutex() {
    let _watchdog = watched("the_child_of_a_fork_has_no_priority_mutex");
    for options in both() {
        let region = region();
        let mutex = make(&region, &options);
        let mut held = Some(mutex.lock().unwrap());
        Child::fork(|| {
            assert!(matches!(mutex.try_lock(), Err(LockError::WouldBlock)));
            // It is a task of its own.
            let own = PriorityMutex::create(&region, "own", &options, || 0_u8).unwrap();
            *own.lock().unwrap() += 1;
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
        leave_dead_owner(mutex);
        let mut died = Some(mutex.lock().unwrap_err());
        for drops in [true, false] {
            let mut child = Child::fork(|| match died.take() {
                Some(LockError::OwnerDied(died)) if !drops => drop(died.make_consistent()),
                died => drop(died),
            });
            assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
        }
        drop(died);
    }
}

#[test]
fn a_task_does_not_leave_with_a_priority_mutex() {
    for options in both() {
        let region = region();
        let mutex = make(&region, &options);
        let guard = mutex.lock().unwrap();
        assert!(matches!(
            region.clone().detach(),
            Err(DetachError::Holding { locks: 1, .. })
        ));
        drop(guard);
        region.clone().detach().unwrap();
        drop(mutex.lock().unwrap());
    }
}

/// Containers are changed in their place; other data of a dead owner is replaced.
#[test]
fn a_priority_mutex_protects_containers_and_data_that_may_be_torn() {
    let _watchdog = watched("a_priority_mutex_protects_containers_and_data_that_may_be_torn");
    let region = region();
    let lines =
        PriorityMutex::create(&region, "lines", &INHERIT, || region::Vec::new_in(&region)).unwrap();
    lines.lock().unwrap().edit().push(1_u64).unwrap();
    Child::fork(|| {
        let mut guard = lines.lock().unwrap();
        guard.as_mut().edit().push(2).unwrap();
        forget(guard);
    })
    .succeed();
    match lines.lock() {
        Err(LockError::OwnerDied(mut died)) => {
            died.edit().push(3).unwrap();
            assert_eq!(**died.make_consistent(), [1, 2, 3]);
        }
        other => panic!("{:?}", other.map(drop)),
    }
    let shape = PriorityMutex::create(&region, "shape", &INHERIT, || Some('a')).unwrap();
    Child::fork(|| forget(shape.lock().unwrap())).succeed();
    match shape.lock() {
        Err(LockError::OwnerDied(died)) => assert_eq!(*died.replace(Some('b')), Some('b')),
        other => panic!("{:?}", other.map(drop)),
    }
}
