//! Operations that are killed at each instruction.

use super::{all_binary, priority, region};
use core::cell::Cell;
use core::time::Duration;
use latchwork::region::Region;
use latchwork::semaphore::TaskPriority as _;
use latchwork::semaphore::{BinarySemaphore, CountingSemaphore, Discipline, ObtainError};
use latchwork_testkit::Trial;
use latchwork_testkit::step::{self, Point};
use std::thread::JoinHandle;

/// A region that lives as long as the process: the waiters are threads of the test, which outlive any borrow.
pub(crate) fn lasting_region(trial: &Trial) -> &'static Region {
    Box::leak(Box::new(region(trial)))
}

pub(crate) fn counting(
    region: &'static Region,
    discipline: Discipline,
) -> CountingSemaphore<'static> {
    CountingSemaphore::create(region, "s", 0, discipline).unwrap()
}

/// Starts waiters, one after the other; each returns the result of its wait.
pub(crate) fn waiting<T: Send + 'static>(
    trial: &Trial,
    count: u32,
    semaphore_waiting: impl Fn() -> u32,
    wait: impl Fn() -> T + Send + Copy + 'static,
) -> Vec<JoinHandle<T>> {
    (1..=count)
        .map(|number| {
            let waiter = std::thread::spawn(wait);
            trial.wait_until(|| semaphore_waiting() >= number);
            waiter
        })
        .collect()
}

/// Asserts that no task waits and that the count is one of `counts`; leaves the count at 0. Returns the round's outcome.
pub(crate) fn check_count(
    semaphore: CountingSemaphore<'_>,
    counts: &[u32],
    what: &str,
    point: Point,
) -> String {
    semaphore.flush().unwrap();
    assert_eq!(semaphore.waiting(), 0, "{what}, killed at {point:?}");
    let count = semaphore.count();
    assert!(
        counts.contains(&count),
        "{what}, killed at {point:?}: the count is {count}"
    );
    for _ in 0..count {
        semaphore.try_obtain().unwrap();
    }
    assert!(matches!(
        semaphore.try_obtain(),
        Err(ObtainError::WouldBlock)
    ));
    format!("{count} units left")
}

#[test]
fn operations_that_need_not_wait_are_all_or_nothing_at_every_instruction() {
    let trial =
        Trial::begin("operations_that_need_not_wait_are_all_or_nothing_at_every_instruction")
            .across_namespaces();
    let region = lasting_region(&trial);
    let semaphore = counting(region, Discipline::Fifo);
    step::each_instruction_and_recovery(
        &trial,
        "obtain and release a unit",
        || semaphore.release().unwrap(),
        |(), span| {
            region.join("stepped").unwrap();
            span.run(|| {
                semaphore.obtain().unwrap();
                semaphore.release().unwrap();
            });
        },
        |()| false,
        |(), span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                semaphore.flush().unwrap();
            });
        },
        |(), point| {
            region.sweep().unwrap();
            check_count(semaphore, &[0, 1], "obtain and release", point)
        },
    );
    for (name, options) in all_binary() {
        let semaphore = BinarySemaphore::create(region, name, &options).unwrap();
        step::each_instruction_and_recovery(
            &trial,
            &format!("obtain and release, {name}"),
            || {
                // All deaths are counted, and settled here. So the check finds an owner whose death is not.
                region.sweep().unwrap();
                semaphore.flush().unwrap();
            },
            |(), span| {
                region.join("stepped").unwrap();
                span.run(|| drop(semaphore.obtain().unwrap()));
            },
            |()| false,
            |(), span| {
                span.run(|| {
                    region.join("recoverer").unwrap();
                    region.sweep().unwrap();
                    drop(semaphore.obtain().unwrap());
                });
            },
            |(), point| {
                let held = semaphore.try_obtain().unwrap();
                let died = held.owner_died();
                assert!(point != Point::Finished || !died);
                drop(held);
                assert!(!semaphore.obtain().unwrap().owner_died());
                step::reported(died.into())
            },
        );
    }
}

#[test]
fn a_unit_is_handed_over_or_not_at_every_instruction() {
    let trial =
        Trial::begin("a_unit_is_handed_over_or_not_at_every_instruction").across_namespaces();
    let region = lasting_region(&trial);
    // The last one leaves the queue empty.
    for (discipline, count) in [(Discipline::Fifo, 2), (Discipline::Priority, 1)] {
        let region = region_of(&trial, discipline, region);
        let semaphore = counting(region, discipline);
        step::each_instruction_and_recovery(
            &trial,
            &format!("release to a waiter, {discipline:?}"),
            || {
                waiting(
                    &trial,
                    count,
                    || semaphore.waiting(),
                    move || semaphore.obtain().is_ok(),
                )
            },
            |_, span| {
                region.join("stepped").unwrap();
                span.run(|| semaphore.release().unwrap());
            },
            |_| false,
            |_, span| {
                span.run(|| {
                    region.join("recoverer").unwrap();
                    region.sweep().unwrap();
                    semaphore.waiting()
                });
            },
            |waiters, point| {
                // One more for each: one is left if that of the killed one took effect.
                for _ in 0..count {
                    semaphore.release().unwrap();
                }
                for waiter in waiters {
                    assert!(waiter.join().unwrap());
                }
                let left: &[u32] = if point == Point::Finished {
                    &[1]
                } else {
                    &[0, 1]
                };
                check_count(semaphore, left, "release to a waiter", point)
            },
        );
    }
}

/// A region for each discipline, since a name refers to one kind.
fn region_of(trial: &Trial, discipline: Discipline, first: &'static Region) -> &'static Region {
    match discipline {
        Discipline::Fifo => first,
        Discipline::Priority => lasting_region(trial),
    }
}

#[test]
fn a_wait_for_a_unit_ends_once_at_every_instruction() {
    let trial =
        Trial::begin("a_wait_for_a_unit_ends_once_at_every_instruction").across_namespaces();
    let region = lasting_region(&trial);
    let semaphore = counting(region, Discipline::Priority);
    let released = Cell::new(false);
    step::each_instruction_and_recovery(
        &trial,
        "obtain a unit that is released later",
        || released.set(false),
        |(), span| {
            region.join("stepped").unwrap();
            span.run(|| semaphore.obtain().unwrap());
        },
        |()| {
            !released.replace(true) && {
                semaphore.release().unwrap();
                true
            }
        },
        |(), span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                semaphore.flush().unwrap();
            });
        },
        |(), point| {
            region.sweep().unwrap();
            // What was handed to one who died may be gone with it.
            let left: &[u32] = if released.get() { &[0, 1] } else { &[0] };
            check_count(semaphore, left, "obtain", point)
        },
    );
    step::each_instruction_and_recovery(
        &trial,
        "obtain a unit in vain",
        || (),
        |(), span| {
            region.join("stepped").unwrap();
            span.run(|| {
                let _ = semaphore.obtain_for(Duration::from_millis(1));
            });
        },
        |()| {
            std::thread::sleep(Duration::from_millis(1));
            true
        },
        |(), span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                semaphore.flush().unwrap();
            });
        },
        |(), point| {
            region.sweep().unwrap();
            check_count(semaphore, &[0], "obtain in vain", point)
        },
    );
}

#[test]
fn a_semaphore_is_handed_over_or_not_at_every_instruction() {
    let trial =
        Trial::begin("a_semaphore_is_handed_over_or_not_at_every_instruction").across_namespaces();
    for (name, options) in all_binary() {
        let region = lasting_region(&trial);
        let semaphore = BinarySemaphore::create(region, "s", &options).unwrap();
        step::each_instruction_and_recovery(
            &trial,
            &format!("release to a waiter, {name}"),
            || {
                // They wait as soon as the child owns it.
                (0..2)
                    .map(|index| {
                        std::thread::spawn(move || {
                            let me = region.task_id().unwrap();
                            me.set_priority(region, priority(10 + index)).unwrap();
                            while semaphore.owner().is_none() {
                                std::thread::yield_now();
                            }
                            semaphore.obtain().unwrap().owner_died()
                        })
                    })
                    .collect::<Vec<_>>()
            },
            |_, span| {
                let me = region.task_id().unwrap();
                me.set_priority(region, priority(100)).unwrap();
                semaphore.obtain().unwrap().keep();
                while semaphore.waiting() < 2 {
                    std::thread::yield_now();
                }
                span.run(|| semaphore.release().unwrap());
            },
            |_| false,
            |_, span| {
                span.run(|| {
                    region.join("recoverer").unwrap();
                    region.sweep().unwrap();
                    semaphore.waiting()
                });
            },
            |waiters, point| {
                let told: Vec<bool> = waiters
                    .into_iter()
                    .map(|waiter| waiter.join().unwrap())
                    .collect();
                let told = told.into_iter().filter(|told| *told).count();
                assert!(told <= 1, "{name}, killed at {point:?}: {told} were told");
                assert!(point != Point::Finished || told == 0);
                assert!(!semaphore.try_obtain().unwrap().owner_died());
                assert_eq!((semaphore.owner(), semaphore.waiting()), (None, 0));
                step::reported(told as u64)
            },
        );
    }
}

#[test]
fn a_wait_for_an_owner_ends_once_at_every_instruction() {
    let trial =
        Trial::begin("a_wait_for_an_owner_ends_once_at_every_instruction").across_namespaces();
    for (name, options) in all_binary() {
        let region = lasting_region(&trial);
        let semaphore = BinarySemaphore::create(region, "s", &options).unwrap();
        let me = region.task_id().unwrap();
        me.set_priority(region, priority(100)).unwrap();
        step::each_instruction_and_recovery(
            &trial,
            &format!("obtain and release what is owned, {name}"),
            || semaphore.obtain().unwrap().keep(),
            |(), span| {
                let me = region.task_id().unwrap();
                me.set_priority(region, priority(5)).unwrap();
                span.run(|| drop(semaphore.obtain().unwrap()));
            },
            |()| semaphore.release().is_ok(),
            |(), span| {
                span.run(|| {
                    region.join("recoverer").unwrap();
                    region.sweep().unwrap();
                    semaphore.waiting()
                });
            },
            |(), point| {
                let _ = semaphore.release();
                let held = semaphore.obtain().unwrap();
                let died = held.owner_died();
                assert!(point != Point::Finished || !died);
                drop(held);
                semaphore.flush().unwrap();
                assert_eq!((semaphore.owner(), semaphore.waiting()), (None, 0));
                assert_eq!(me.current_priority(region).unwrap().get(), 100);
                step::reported(died.into())
            },
        );
        step::each_instruction_and_recovery(
            &trial,
            &format!("obtain in vain, {name}"),
            || semaphore.obtain().unwrap().keep(),
            |(), span| {
                let me = region.task_id().unwrap();
                me.set_priority(region, priority(5)).unwrap();
                span.run(|| {
                    let _ = semaphore.obtain_for(Duration::from_millis(1));
                });
            },
            |()| {
                std::thread::sleep(Duration::from_millis(1));
                true
            },
            |(), span| {
                span.run(|| {
                    region.join("recoverer").unwrap();
                    region.sweep().unwrap();
                    semaphore.waiting()
                });
            },
            |(), point| {
                region.sweep().unwrap();
                semaphore.release().unwrap();
                assert_eq!(me.current_priority(region).unwrap().get(), 100);
                let held = semaphore.try_obtain().unwrap();
                assert!(!held.owner_died(), "{name}, killed at {point:?}");
                drop(held);
                step::reported(0)
            },
        );
    }
}
