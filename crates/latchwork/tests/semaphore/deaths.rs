//! Tasks that die, end, panic or fork; and many at once.

use super::all_binary;
use super::semaphore_support::{me_at, region, until, watched};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::region::{DetachError, Region, RegionOptions, TaskId};
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline, MrspSemaphore, ObtainError,
    Priority, ReleaseError,
};
use latchwork_testkit::{Child, Page};
use std::thread;

#[test]
fn a_dead_owner_is_reported_to_the_next_one() {
    let _watchdog = watched("a_dead_owner_is_reported_to_the_next_one");
    for options in all_binary() {
        let region = region();
        let semaphore = BinarySemaphore::create(&region, "s", &options).unwrap();
        // Nobody waits.
        Child::fork(|| {
            semaphore.obtain().unwrap().keep();
            semaphore.obtain().unwrap().keep();
        })
        .succeed();
        let held = semaphore.try_obtain().unwrap();
        assert!(held.owner_died());
        drop(held);
        assert!(!semaphore.obtain().unwrap().owner_died());
        // Many wait: the first gets the report.
        let owns: Page<AtomicU32> = Page::new();
        let mut owner = Child::fork(|| {
            semaphore.obtain().unwrap().keep();
            owns.store(1, SeqCst);
            loop {
                thread::park();
            }
        });
        until(|| owns.load(SeqCst) == 1);
        let died = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    if semaphore.obtain().unwrap().owner_died() {
                        died.fetch_add(1, SeqCst);
                    }
                });
            }
            until(|| semaphore.waiting() == 3);
            owner.kill();
        });
        assert_eq!(died.load(SeqCst), 1, "{options:?}");
        assert_eq!(semaphore.owner(), None);
    }
}

#[test]
fn a_thread_that_ends_as_an_owner_counts_as_dead() {
    let _watchdog = watched("a_thread_that_ends_as_an_owner_counts_as_dead");
    let region = region();
    let semaphore = BinarySemaphore::create(&region, "s", &BinaryOptions::new()).unwrap();
    thread::scope(|scope| {
        scope
            .spawn(|| semaphore.obtain().unwrap().keep())
            .join()
            .unwrap();
    });
    assert!(semaphore.obtain().unwrap().owner_died());
    semaphore.obtain().unwrap().keep();
    let Err(DetachError::Holding {
        locks,
        region: handle,
        ..
    }) = region.clone().detach()
    else {
        panic!("an owner left");
    };
    assert_eq!(locks, 1);
    drop(handle);
    semaphore.release().unwrap();
}

#[test]
fn a_panic_of_the_owner_is_reported_to_the_next_one() {
    let region = region();
    let semaphore = BinarySemaphore::create(&region, "s", &BinaryOptions::new()).unwrap();
    let panicked = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        let _held = semaphore.obtain().unwrap();
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err());
    assert!(semaphore.obtain().unwrap().owner_died());
    assert!(!semaphore.obtain().unwrap().owner_died());
    // Also one that was caught within an outer section.
    let outer = semaphore.obtain().unwrap();
    let panicked = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        let _held = semaphore.obtain().unwrap();
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err());
    drop(outer);
    assert!(semaphore.obtain().unwrap().owner_died());
    assert!(!semaphore.obtain().unwrap().owner_died());
}

#[test]
fn a_child_of_a_fork_owns_nothing() {
    let region = region();
    let semaphore = BinarySemaphore::create(&region, "s", &BinaryOptions::new()).unwrap();
    let held = semaphore.obtain().unwrap();
    let mut inherited = Some(held);
    Child::fork(|| {
        drop(inherited.take());
        assert!(matches!(semaphore.release(), Err(ReleaseError::NotOwner)));
        assert!(matches!(
            semaphore.try_obtain(),
            Err(ObtainError::WouldBlock)
        ));
    })
    .succeed();
    assert_eq!(semaphore.owner(), Some(region.task_id().unwrap()));
    drop(inherited);
    assert_eq!(semaphore.owner(), None);
}

#[test]
fn a_guard_that_a_fork_inherited_does_not_release_what_the_child_obtained() {
    fn check<H>(obtain: impl Fn() -> H, owner: impl Fn() -> Option<TaskId>, region: &Region) {
        let mut inherited = Some(obtain());
        let obtained: Page<AtomicU32> = Page::new();
        let child = Child::fork(|| {
            region.join("child").unwrap();
            obtained.store(1, SeqCst);
            let own = obtain();
            drop(inherited.take());
            assert_eq!(owner(), Some(region.task_id().unwrap()));
            drop(own);
            assert_eq!(owner(), None);
        });
        until(|| obtained.load(SeqCst) == 1);
        drop(inherited.take());
        child.succeed();
    }
    let _watchdog =
        watched("a_guard_that_a_fork_inherited_does_not_release_what_the_child_obtained");
    for options in all_binary() {
        let region = region();
        let semaphore = BinarySemaphore::create(&region, "s", &options).unwrap();
        check(
            || semaphore.obtain().unwrap(),
            || semaphore.owner(),
            &region,
        );
    }
    let region = region();
    let semaphore = MrspSemaphore::create(&region, "m", Priority::HIGHEST).unwrap();
    check(
        || semaphore.obtain().unwrap(),
        || semaphore.owner(),
        &region,
    );
}

#[test]
fn a_guard_that_a_fork_inherited_makes_no_task() {
    let region = RegionOptions::new()
        .max_bytes(16 << 20)
        .max_tasks(1)
        .create_anonymous()
        .unwrap();
    let semaphore = BinarySemaphore::create(&region, "s", &BinaryOptions::new()).unwrap();
    let mut inherited = Some(semaphore.obtain().unwrap());
    // There is no room for another one.
    Child::fork(|| drop(inherited.take())).succeed();
    drop(inherited);
    assert_eq!(semaphore.owner(), None);
}

#[test]
fn a_dead_waiter_is_skipped() {
    let _watchdog = watched("a_dead_waiter_is_skipped");
    let region = region();
    let semaphore = CountingSemaphore::create(&region, "s", 0, Discipline::Fifo).unwrap();
    let got: Page<AtomicU32> = Page::new();
    let mut waiters: Vec<Child> = (0..3_u32)
        .map(|index| {
            let waiter = Child::fork(|| {
                semaphore.obtain().unwrap();
                got.store(index + 1, SeqCst);
            });
            until(|| semaphore.waiting() == index + 1);
            waiter
        })
        .collect();
    waiters[0].kill();
    semaphore.release().unwrap();
    waiters[1].wait();
    assert_eq!(got.load(SeqCst), 2);
    waiters[2].kill();
    semaphore.release().unwrap();
    assert_eq!(semaphore.count(), 1);
}

/// Threads and processes at once; each obtains, holds for a moment, and releases. Some give up.
#[test]
fn units_are_neither_lost_nor_made() {
    let _watchdog = watched("units_are_neither_lost_nor_made");
    for discipline in [Discipline::Fifo, Discipline::Priority] {
        let region = region();
        let semaphore = CountingSemaphore::create(&region, "s", 2, discipline).unwrap();
        let inside: Page<AtomicU32> = Page::new();
        let work = |impatient: bool| {
            for round in 0..2_000_u32 {
                if impatient {
                    let timeout = Duration::from_nanos(u64::from(round % 50) * 1000);
                    match semaphore.obtain_for(timeout) {
                        Ok(()) => {}
                        Err(ObtainError::TimedOut) => continue,
                        Err(error) => panic!("{error}"),
                    }
                } else {
                    semaphore.obtain().unwrap();
                }
                assert!(inside.fetch_add(1, SeqCst) < 2);
                if round % 16 == 0 {
                    thread::yield_now();
                }
                inside.fetch_sub(1, SeqCst);
                semaphore.release().unwrap();
            }
        };
        let children: Vec<Child> = (0..2)
            .map(|index| Child::fork(|| work(index == 0)))
            .collect();
        thread::scope(|scope| {
            scope.spawn(|| work(false));
            scope.spawn(|| work(true));
        });
        children.into_iter().for_each(Child::succeed);
        assert_eq!((semaphore.count(), semaphore.waiting()), (2, 0));
    }
}

#[test]
fn owners_exclude_each_other() {
    let _watchdog = watched("owners_exclude_each_other");
    for options in all_binary() {
        let region = region();
        let semaphore = BinarySemaphore::create(&region, "s", &options).unwrap();
        let counter: Page<[AtomicU32; 2]> = Page::new();
        let work = |of: u8, impatient: bool| {
            me_at(&region, of);
            for round in 0..2_000_u32 {
                let held = if impatient {
                    let timeout = Duration::from_nanos(u64::from(round % 50) * 1000);
                    match semaphore.obtain_for(timeout) {
                        Ok(held) => held,
                        Err(ObtainError::TimedOut) => continue,
                        Err(error) => panic!("{error}"),
                    }
                } else {
                    semaphore.obtain().unwrap()
                };
                assert!(!held.owner_died());
                let seen = counter[0].load(SeqCst);
                assert_eq!(counter[1].load(SeqCst), seen);
                counter[0].store(seen + 1, SeqCst);
                if round % 16 == 0 {
                    drop(semaphore.obtain().unwrap());
                    thread::yield_now();
                }
                counter[1].store(seen + 1, SeqCst);
            }
        };
        let children: Vec<Child> = (0..2_u8)
            .map(|index| Child::fork(|| work(20 + index, index == 0)))
            .collect();
        thread::scope(|scope| {
            scope.spawn(|| work(30, false));
            scope.spawn(|| work(20, true));
        });
        children.into_iter().for_each(Child::succeed);
        assert_eq!((semaphore.owner(), semaphore.waiting()), (None, 0));
    }
}
