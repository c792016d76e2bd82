//! Counts, owners, order, flush, deletion, circles.

use super::semaphore_support::{me_at, region, until, watched};
use super::{SOON, all_binary};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use latchwork::region::ObjectError;
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline, ObtainError, ReleaseError,
    SemaphoreError, SimpleBinarySemaphore, UseError,
};
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Page};
use std::sync::Mutex;
use std::thread;

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
        Err(SemaphoreError::Object(ObjectError::NotFound))
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
fn a_newcomer_does_not_overtake_a_waiter() {
    let _watchdog = watched("a_newcomer_does_not_overtake_a_waiter");
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
fn deadlocks_of_any_length_are_reported_to_a_member_of_the_cycle() {
    let _watchdog = watched("deadlocks_of_any_length_are_reported_to_a_member_of_the_cycle");
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
fn a_waiter_outside_a_cycle_gets_no_error() {
    let _watchdog = watched("a_waiter_outside_a_cycle_gets_no_error");
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
