//! Semaphores: what each kind does, between threads and between processes.

mod semaphore_support;

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::region::{DetachError, RegionOptions};
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline, ObtainError, ReleaseError,
    SemaphoreError, SimpleBinarySemaphore, UseError,
};
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Page};
use semaphore_support::{me_at, priority, region, until, watched};
use std::sync::Mutex;
use std::thread;

const SOON: Duration = Duration::from_millis(5);

fn all_binary() -> [BinaryOptions; 4] {
    [
        BinaryOptions::new(),
        BinaryOptions::new().by_priority(),
        BinaryOptions::new().inherit(),
        BinaryOptions::new().ceiling(priority(10)),
    ]
}

#[test]
fn a_count_is_what_was_released_less_what_was_obtained() {
    let region = region();
    let semaphore = CountingSemaphore::create(&region, "s", 2, Discipline::Fifo).unwrap();
    semaphore.obtain().unwrap();
    semaphore.try_obtain().unwrap();
    assert_eq!(semaphore.count(), 0);
    assert!(matches!(
        semaphore.try_obtain(),
        Err(ObtainError::WouldBlock)
    ));
    assert!(matches!(
        semaphore.obtain_for(SOON),
        Err(ObtainError::TimedOut)
    ));
    for _ in 0..3 {
        semaphore.release().unwrap();
    }
    assert_eq!(semaphore.count(), 3);
    assert_eq!(semaphore.waiting(), 0);
}

#[test]
fn a_count_does_not_overflow() {
    let region = region();
    let semaphore = CountingSemaphore::create(&region, "s", u32::MAX, Discipline::Fifo).unwrap();
    assert!(matches!(semaphore.release(), Err(ReleaseError::Overflow)));
    semaphore.obtain().unwrap();
    semaphore.release().unwrap();
    assert_eq!(semaphore.count(), u32::MAX);
}

#[test]
fn a_simple_binary_semaphore_is_silently_released_at_one() {
    let region = region();
    let semaphore = SimpleBinarySemaphore::create(&region, "s", 0, Discipline::Fifo).unwrap();
    assert!(matches!(
        semaphore.try_obtain(),
        Err(ObtainError::WouldBlock)
    ));
    semaphore.release().unwrap();
    semaphore.release().unwrap();
    assert_eq!(semaphore.count(), 1);
    // Nobody owns it: it is not nested.
    semaphore.obtain().unwrap();
    assert!(matches!(
        semaphore.try_obtain(),
        Err(ObtainError::WouldBlock)
    ));
    let two = SimpleBinarySemaphore::create(&region, "two", 2, Discipline::Fifo);
    assert!(matches!(two, Err(SemaphoreError::Count(2))));
}

#[test]
fn a_binary_semaphore_nests_and_belongs_to_its_owner() {
    for options in all_binary() {
        let region = region();
        let semaphore = BinarySemaphore::create(&region, "s", &options).unwrap();
        let me = region.task_id().unwrap();
        assert_eq!(semaphore.owner(), None);
        assert!(matches!(semaphore.release(), Err(ReleaseError::NotOwner)));
        let outer = semaphore.obtain().unwrap();
        assert_eq!(semaphore.owner(), Some(me));
        semaphore.try_obtain().unwrap().keep();
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(matches!(
                    semaphore.try_obtain(),
                    Err(ObtainError::WouldBlock)
                ));
                assert!(matches!(
                    semaphore.obtain_for(SOON),
                    Err(ObtainError::TimedOut)
                ));
                assert!(matches!(semaphore.release(), Err(ReleaseError::NotOwner)));
            });
        });
        semaphore.release().unwrap();
        assert_eq!(semaphore.owner(), Some(me));
        assert!(matches!(semaphore.delete(), Err(UseError::InUse)));
        drop(outer);
        assert_eq!(semaphore.owner(), None);
        thread::scope(|scope| {
            scope.spawn(|| drop(semaphore.obtain().unwrap()));
        });
        semaphore.delete().unwrap();
        assert!(matches!(semaphore.obtain(), Err(ObtainError::Deleted)));
        assert!(matches!(semaphore.release(), Err(ReleaseError::Deleted)));
    }
}

#[test]
fn a_semaphore_is_made_once_and_found_by_all() {
    let region = region();
    let counting = CountingSemaphore::create(&region, "c", 3, Discipline::Fifo).unwrap();
    let again = CountingSemaphore::create(&region, "c", 7, Discipline::Fifo).unwrap();
    counting.obtain().unwrap();
    assert_eq!(again.count(), 2);
    let other = CountingSemaphore::create(&region, "c", 3, Discipline::Priority);
    assert!(matches!(other, Err(SemaphoreError::OtherKind)));
    assert!(matches!(
        BinarySemaphore::open(&region, "c"),
        Err(SemaphoreError::OtherKind)
    ));
    assert!(matches!(
        CountingSemaphore::open(&region, "d"),
        Err(SemaphoreError::Object(_))
    ));
    Child::fork(|| {
        let found = CountingSemaphore::open(&region, "c").unwrap();
        found.release().unwrap();
    })
    .succeed();
    assert_eq!(counting.count(), 3);
}

#[test]
fn handles_on_a_deleted_semaphore_do_not_touch_its_successor() {
    let region = region();
    let old = CountingSemaphore::create(&region, "s", 1, Discipline::Fifo).unwrap();
    old.delete().unwrap();
    assert!(matches!(old.obtain(), Err(ObtainError::Deleted)));
    assert!(matches!(old.release(), Err(ReleaseError::Deleted)));
    assert!(matches!(old.flush(), Err(UseError::Deleted)));
    assert!(matches!(old.delete(), Err(UseError::Deleted)));
    assert!(matches!(
        CountingSemaphore::open(&region, "s"),
        Err(SemaphoreError::Deleted)
    ));
    let new = BinarySemaphore::create(&region, "s", &BinaryOptions::new()).unwrap();
    assert!(matches!(old.try_obtain(), Err(ObtainError::Deleted)));
    assert!(matches!(old.release(), Err(ReleaseError::Deleted)));
    assert_eq!(new.owner(), None);
    drop(new.obtain().unwrap());
}

#[test]
fn waiters_are_served_in_the_order_of_the_discipline() {
    let _watchdog = watched("waiters_are_served_in_the_order_of_the_discipline");
    let priorities = [7, 3, 9, 3, 1, 7];
    for (discipline, expected) in [
        (Discipline::Fifo, [0, 1, 2, 3, 4, 5]),
        (Discipline::Priority, [4, 1, 3, 0, 5, 2]),
    ] {
        let region = region();
        let semaphore = CountingSemaphore::create(&region, "s", 0, discipline).unwrap();
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for (index, of) in priorities.into_iter().enumerate() {
                let (order, region) = (&order, &region);
                scope.spawn(move || {
                    me_at(region, of);
                    semaphore.obtain().unwrap();
                    order.lock().unwrap().push(index);
                });
                until(|| semaphore.waiting() == index as u32 + 1);
            }
            for served in 1..=priorities.len() {
                semaphore.release().unwrap();
                assert_eq!(semaphore.waiting() as usize, priorities.len() - served);
                assert_eq!(semaphore.count(), 0);
                until(|| order.lock().unwrap().len() == served);
            }
        });
        assert_eq!(order.into_inner().unwrap(), expected);
    }
}

#[test]
fn a_binary_semaphore_is_handed_over_in_the_order_of_the_discipline() {
    let _watchdog = watched("a_binary_semaphore_is_handed_over_in_the_order_of_the_discipline");
    let priorities = [70, 30, 90, 30, 10, 70];
    for options in all_binary() {
        let region = region();
        let by_priority = options != BinaryOptions::new();
        let semaphore = BinarySemaphore::create(&region, "s", &options).unwrap();
        let order = Mutex::new(Vec::new());
        let first = semaphore.obtain().unwrap();
        thread::scope(|scope| {
            for (index, of) in priorities.iter().enumerate() {
                let (order, region) = (&order, &region);
                scope.spawn(move || {
                    me_at(region, *of);
                    let held = semaphore.obtain().unwrap();
                    assert!(!held.owner_died());
                    // Owning it: the order is that of the hand-overs.
                    order.lock().unwrap().push(index);
                });
                until(|| semaphore.waiting() == index as u32 + 1);
            }
            drop(first);
        });
        let expected = if by_priority {
            [4, 1, 3, 0, 5, 2]
        } else {
            [0, 1, 2, 3, 4, 5]
        };
        assert_eq!(order.into_inner().unwrap(), expected, "{options:?}");
        assert_eq!(semaphore.owner(), None);
    }
}

#[test]
fn who_comes_while_somebody_waits_cannot_be_faster() {
    let _watchdog = watched("who_comes_while_somebody_waits_cannot_be_faster");
    let region = region();
    let semaphore = BinarySemaphore::create(&region, "s", &BinaryOptions::new()).unwrap();
    let held = semaphore.obtain().unwrap();
    let waiter = Mutex::new(None);
    thread::scope(|scope| {
        let (region, waiter) = (&region, &waiter);
        scope.spawn(move || {
            *waiter.lock().unwrap() = Some(region.task_id().unwrap());
            let held = semaphore.obtain().unwrap();
            until(|| semaphore.waiting() == 1);
            drop(held);
        });
        until(|| semaphore.waiting() == 1);
        drop(held);
        // It is the waiter's from this moment on, whether or not it has run.
        assert_eq!(semaphore.owner(), *waiter.lock().unwrap());
        assert!(matches!(
            semaphore.try_obtain(),
            Err(ObtainError::WouldBlock)
        ));
        drop(semaphore.obtain().unwrap());
    });
}

#[test]
fn a_flush_sends_all_away_and_leaves_the_count() {
    let _watchdog = watched("a_flush_sends_all_away_and_leaves_the_count");
    let region = region();
    let counting = CountingSemaphore::create(&region, "c", 0, Discipline::Priority).unwrap();
    assert_eq!(counting.flush().unwrap(), 0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(matches!(counting.obtain(), Err(ObtainError::Flushed))));
        }
        until(|| counting.waiting() == 4);
        assert_eq!(counting.flush().unwrap(), 4);
    });
    assert_eq!((counting.count(), counting.waiting()), (0, 0));
    counting.release().unwrap();
    assert_eq!(counting.count(), 1);
    for options in all_binary() {
        let region = self::region();
        let binary = BinarySemaphore::create(&region, "b", &options).unwrap();
        let held = binary.obtain().unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| assert!(matches!(binary.obtain(), Err(ObtainError::Flushed))));
            }
            until(|| binary.waiting() == 3);
            assert_eq!(binary.flush().unwrap(), 3);
        });
        assert_eq!(binary.owner(), Some(region.task_id().unwrap()));
        drop(held);
    }
}

#[test]
fn a_deletion_ends_all_waits() {
    let _watchdog = watched("a_deletion_ends_all_waits");
    let region = region();
    let counting = CountingSemaphore::create(&region, "c", 0, Discipline::Fifo).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(matches!(counting.obtain(), Err(ObtainError::Deleted))));
        }
        until(|| counting.waiting() == 4);
        counting.delete().unwrap();
    });
}

#[test]
fn deadlocks_of_any_length_are_reported_to_one_of_the_circle() {
    let _watchdog = watched("deadlocks_of_any_length_are_reported_to_one_of_the_circle");
    for length in 2..=6_usize {
        let region = region();
        let options = all_binary()[length % 4].by_priority();
        let semaphores: Vec<_> = (0..length)
            .map(|index| BinarySemaphore::create(&region, &format!("s{index}"), &options).unwrap())
            .collect();
        let told = AtomicU32::new(0);
        let ready = std::sync::Barrier::new(length);
        thread::scope(|scope| {
            for index in 0..length {
                let (semaphores, told, ready) = (&semaphores, &told, &ready);
                scope.spawn(move || {
                    let _own = semaphores[index].obtain().unwrap();
                    ready.wait();
                    // All at once: the circle may be closed by several in the same moment.
                    match semaphores[(index + 1) % length].obtain() {
                        Ok(_) => {}
                        Err(ObtainError::Deadlock) => {
                            told.fetch_add(1, SeqCst);
                        }
                        Err(error) => panic!("{error}"),
                    }
                });
            }
        });
        assert!((1..=length as u32).contains(&told.load(SeqCst)));
    }
}

#[test]
fn who_waits_for_a_circle_but_is_not_in_it_is_not_told() {
    let _watchdog = watched("who_waits_for_a_circle_but_is_not_in_it_is_not_told");
    for _ in 0..200 {
        let region = region();
        let [a, b] = ["a", "b"]
            .map(|name| BinarySemaphore::create(&region, name, &BinaryOptions::new()).unwrap());
        let ready = std::sync::Barrier::new(3);
        thread::scope(|scope| {
            let ready = &ready;
            for (own, other) in [(a, b), (b, a)] {
                scope.spawn(move || {
                    let _own = own.obtain().unwrap();
                    ready.wait();
                    match other.obtain() {
                        Ok(_) | Err(ObtainError::Deadlock) => {}
                        Err(error) => panic!("{error}"),
                    }
                });
            }
            scope.spawn(move || {
                ready.wait();
                drop(a.obtain().unwrap());
            });
        });
    }
}

#[test]
fn a_deadlock_between_processes_is_reported() {
    let _watchdog = watched("a_deadlock_between_processes_is_reported");
    let region = region();
    let [a, b] = ["a", "b"].map(|name| {
        BinarySemaphore::create(&region, name, &BinaryOptions::new().inherit()).unwrap()
    });
    let told: Page<AtomicU32> = Page::new();
    let started: Page<AtomicU32> = Page::new();
    let children: Vec<Child> = [(a, b), (b, a)]
        .into_iter()
        .map(|(own, other)| {
            Child::fork(|| {
                let _own = own.obtain().unwrap();
                started.fetch_add(1, SeqCst);
                until(|| started.load(SeqCst) == 2);
                if matches!(other.obtain(), Err(ObtainError::Deadlock)) {
                    told.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    children.into_iter().for_each(Child::succeed);
    assert!(told.load(SeqCst) >= 1);
}

#[test]
fn a_deadlock_is_none_without_waiting() {
    let _watchdog = watched("a_deadlock_is_none_without_waiting");
    let region = region();
    let [a, b] = ["a", "b"]
        .map(|name| BinarySemaphore::create(&region, name, &BinaryOptions::new()).unwrap());
    let held = a.obtain().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let held = b.obtain().unwrap();
            drop(a.obtain().unwrap());
            drop(held);
        });
        until(|| a.waiting() == 1);
        assert!(matches!(b.try_obtain(), Err(ObtainError::WouldBlock)));
        assert!(matches!(b.obtain(), Err(ObtainError::Deadlock)));
        drop(held);
    });
}

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
        // Many wait: the first is told.
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

#[test]
fn a_passed_deadline_still_tries() {
    let region = region();
    let past = Deadline::from_nanoseconds(1);
    let counting = CountingSemaphore::create(&region, "c", 1, Discipline::Fifo).unwrap();
    counting.obtain_until(past).unwrap();
    assert!(matches!(
        counting.obtain_until(past),
        Err(ObtainError::TimedOut)
    ));
    assert_eq!(counting.waiting(), 0);
    counting.release().unwrap();
    counting.obtain_until(past).unwrap();
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
