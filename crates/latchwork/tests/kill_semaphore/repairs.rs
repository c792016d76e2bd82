//! Repairs after a kill: recovery that is itself killed at each instruction, and priorities that a killed task left.

use super::steps::{check_count, counting, lasting_region};
use super::{all_binary, die, priority};
use core::time::Duration;
use latchwork::region::TaskId;
use latchwork::semaphore::TaskPriority as _;
use latchwork::semaphore::{BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline};
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Child, Trial};

/// Owners and waiters are dead, and the task that detects it is killed during the recovery.
#[test]
fn recovery_of_a_semaphore_can_be_repeated_from_every_instruction() {
    let trial = Trial::begin("recovery_of_a_semaphore_can_be_repeated_from_every_instruction");
    for (name, options) in all_binary() {
        let region = lasting_region(&trial);
        let semaphore = BinarySemaphore::create(region, "s", &options).unwrap();
        step::each_instruction_and_recovery(
            &trial,
            &format!("recovery, {name}"),
            || {
                Child::fork(|| {
                    semaphore.obtain().unwrap().keep();
                    semaphore.obtain().unwrap().keep();
                    die();
                })
                .wait();
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
                let held = semaphore.obtain().unwrap();
                let died = held.owner_died();
                assert!(point != Point::Finished || !died);
                drop(held);
                assert!(!semaphore.try_obtain().unwrap().owner_died());
                assert_eq!((semaphore.owner(), semaphore.waiting()), (None, 0));
                // What the dead owner had obtained twice, this one has not.
                semaphore.obtain().unwrap().keep();
                semaphore.obtain().unwrap().keep();
                semaphore.release().unwrap();
                assert!(semaphore.owner().is_some(), "{name}, killed at {point:?}");
                semaphore.release().unwrap();
                assert_eq!(semaphore.owner(), None);
                step::reported(died.into())
            },
        );
    }
}

/// A task is killed while it recomputes a priority: the next task recomputes it.
#[test]
fn a_change_of_priority_takes_effect_or_not_at_every_instruction() {
    let trial = Trial::begin("a_change_of_priority_takes_effect_or_not_at_every_instruction")
        .across_namespaces();
    let region = lasting_region(&trial);
    let semaphore = BinarySemaphore::create(region, "s", &BinaryOptions::new().inherit()).unwrap();
    let me = region.task_id().unwrap();
    me.set_priority(region, priority(100)).unwrap();
    step::each_instruction_and_recovery(
        &trial,
        "set_priority of a waiter",
        || {
            semaphore.obtain().unwrap().keep();
            let id = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
            let told = std::sync::Arc::clone(&id);
            let waiter = std::thread::spawn(move || {
                let me = region.task_id().unwrap();
                me.set_priority(region, priority(50)).unwrap();
                told.store(me.to_raw(), std::sync::atomic::Ordering::SeqCst);
                drop(semaphore.obtain().unwrap());
            });
            trial.wait_until(|| semaphore.waiting() == 1);
            let id = id.load(std::sync::atomic::Ordering::SeqCst);
            (TaskId::from_raw(id).unwrap(), waiter)
        },
        |(id, _), span| {
            region.join("stepped").unwrap();
            span.run(|| id.set_priority(region, priority(7)).unwrap());
        },
        |_| false,
        |_, span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                semaphore.waiting()
            });
        },
        |(id, waiter), point| {
            let now = me.current_priority(region).unwrap().get();
            assert!(
                if point == Point::Finished {
                    now == 7
                } else {
                    [7, 50].contains(&now)
                },
                "killed at {point:?}: {now}"
            );
            id.set_priority(region, priority(60)).unwrap();
            // Whoever was killed in it had the last word only until now.
            assert_eq!(me.current_priority(region).unwrap().get(), 60);
            semaphore.release().unwrap();
            waiter.join().unwrap();
            assert_eq!(me.current_priority(region).unwrap().get(), 100);
            step::done(now == 7)
        },
    );
}

/// A task is stopped in the middle of a hand-over; meanwhile the heir dies, and another task gets the heir's slot and
/// waits for another object.
#[test]
fn a_task_is_not_taken_for_its_predecessor_at_any_instruction() {
    let trial = Trial::begin("a_task_is_not_taken_for_its_predecessor_at_any_instruction")
        .across_namespaces();
    let region = lasting_region(&trial);
    region.join("test").unwrap();
    let make = |name| CountingSemaphore::create(region, name, 0, Discipline::Fifo).unwrap();
    let (first, second) = (make("first"), make("second"));
    step::each_standstill(
        &trial,
        "release to a waiter that dies",
        || {
            region.sweep().unwrap();
            let waiter = Child::fork(|| first.obtain().unwrap());
            trial.wait_until(|| first.waiting() == 1);
            (waiter, None)
        },
        |_, span| {
            region.join("stepped").unwrap();
            span.run(|| first.release().unwrap());
        },
        |(waiter, successor)| {
            waiter.kill();
            *successor = Some(std::thread::spawn(move || second.obtain().unwrap()));
            // It cannot come to that while the other one is in its way.
            for _ in 0..20 {
                if second.waiting() == 1 {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        },
        |(mut waiter, successor), point| {
            waiter.kill();
            if let Some(successor) = successor {
                second.release().unwrap();
                successor.join().unwrap();
            }
            check_count(second, &[0], "the successor's obtain", point);
            region.sweep().unwrap();
            check_count(first, &[0, 1], "release to a waiter that dies", point);
        },
    );
}

/// The same change as above; but no other task uses the semaphore until the wait is over.
#[test]
fn a_waiter_completes_a_killed_change_of_its_priority() {
    let trial =
        Trial::begin("a_waiter_completes_a_killed_change_of_its_priority").across_namespaces();
    let region = lasting_region(&trial);
    let semaphore = counting(region, Discipline::Priority);
    step::each_instruction_and_recovery(
        &trial,
        "set_priority of a waiter for a unit",
        || {
            let (told, id) = std::sync::mpsc::channel();
            let waiter = std::thread::spawn(move || {
                let me = region.task_id().unwrap();
                me.set_priority(region, priority(50)).unwrap();
                told.send(me).unwrap();
                semaphore.obtain().unwrap();
            });
            let id: TaskId = id.recv().unwrap();
            trial.wait_until(|| semaphore.waiting() == 1);
            (id, waiter)
        },
        |(id, _), span| {
            region.join("stepped").unwrap();
            span.run(|| id.set_priority(region, priority(7)).unwrap());
        },
        |_| false,
        |_, span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                semaphore.waiting()
            });
        },
        |(id, waiter), _| {
            trial.wait_until(|| id.current_priority(region) == id.priority(region));
            let now = id.priority(region).unwrap().get();
            semaphore.release().unwrap();
            waiter.join().unwrap();
            step::done(now == 7)
        },
    );
}

/// The same for a task that does not wait yet: no task is woken that could repair it.
#[test]
fn a_task_that_begins_to_wait_completes_a_killed_change_of_its_priority() {
    let trial =
        Trial::begin("a_task_that_begins_to_wait_completes_a_killed_change_of_its_priority")
            .across_namespaces();
    let region = lasting_region(&trial);
    let semaphore = counting(region, Discipline::Priority);
    step::each_instruction_and_recovery(
        &trial,
        "set_priority of a task that is going to wait",
        || {
            let (told, id) = std::sync::mpsc::channel();
            let (begin, begun) = std::sync::mpsc::channel();
            let waiter = std::thread::spawn(move || {
                let me = region.task_id().unwrap();
                me.set_priority(region, priority(50)).unwrap();
                told.send(me).unwrap();
                begun.recv().unwrap();
                semaphore.obtain().unwrap();
            });
            let id: TaskId = id.recv().unwrap();
            (id, waiter, begin)
        },
        |(id, ..), span| {
            region.join("stepped").unwrap();
            span.run(|| id.set_priority(region, priority(7)).unwrap());
        },
        |_| false,
        |_, span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                semaphore.waiting()
            });
        },
        |(id, waiter, begin), _| {
            region.sweep().unwrap();
            begin.send(()).unwrap();
            trial.wait_until(|| semaphore.waiting() == 1);
            trial.wait_until(|| id.current_priority(region) == id.priority(region));
            let now = id.priority(region).unwrap().get();
            semaphore.release().unwrap();
            waiter.join().unwrap();
            step::done(now == 7)
        },
    );
}
