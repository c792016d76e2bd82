//! A mutex with data, each of whose operations is killed at each instruction.

use super::{die, priority};
use core::cell::{Cell, RefCell};
use core::mem::forget;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use latchwork::region::{Region, RegionOptions};
use latchwork::semaphore::TaskPriority as _;
use latchwork::semaphore::priority_mutex::LockError;
use latchwork::semaphore::{PriorityGuard, PriorityMutex, PriorityMutexOptions};
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Child, Page, Trial};
use std::thread;

/// An update stores both numbers, which are equal in whole data.
type Data = [u64; 2];
type Plan = PriorityMutex<'static, Data>;

const INHERIT: PriorityMutexOptions = PriorityMutexOptions::new();

fn both() -> [(&'static str, PriorityMutexOptions); 2] {
    [
        ("inheriting", INHERIT),
        ("with a ceiling", INHERIT.ceiling(priority(1))),
    ]
}

/// A region that lives as long as the process, with room for a name in each round: nothing deletes such a mutex.
fn lasting_region(trial: &Trial) -> &'static Region {
    let region = RegionOptions::new()
        .max_bytes(16 << 20)
        .max_tasks(64)
        .max_names(1 << 14)
        .label("kill_semaphore")
        .any_pid_namespace(trial.is_across_namespaces())
        .create_anonymous();
    Box::leak(Box::new(region.unwrap()))
}

fn make(region: &'static Region, name: &str, options: &PriorityMutexOptions) -> Plan {
    PriorityMutex::create(region, name, options, || [7; 2]).unwrap()
}

fn update(mut data: PriorityGuard<'_, Data>) {
    let [first, second] = *data;
    assert_eq!(
        first, second,
        "data that is not whole came without a report"
    );
    data[0] += 1;
    data[1] += 1;
}

/// Locks, repairs what a dead owner left, and updates. Returns whether a death was reported.
fn repair_and_update(plan: Plan) -> bool {
    match plan.lock() {
        Ok(guard) => {
            update(guard);
            false
        }
        Err(LockError::OwnerDied(mut died)) => {
            let [first, second] = *died;
            assert!(first - second <= 1, "{first} and {second}");
            died[1] = first;
            update(died.make_consistent());
            true
        }
        Err(error) => panic!("{error}"),
    }
}

/// What a task does that recovers from a death.
fn recover(region: &Region, plan: Plan) {
    region.join("recoverer").unwrap();
    region.sweep().unwrap();
    repair_and_update(plan);
}

/// Asserts that the mutex is free and works; returns whether a death was reported.
fn check(plan: Plan, point: Point) -> bool {
    let died = repair_and_update(plan);
    assert!(point != Point::Finished || !died, "{point:?}");
    assert!(!repair_and_update(plan), "the death is reported once");
    assert_eq!((plan.owner(), plan.waiting()), (None, 0), "{point:?}");
    died
}

#[test]
fn a_priority_mutex_is_made_whole_or_not_at_every_instruction() {
    let trial = Trial::begin("a_priority_mutex_is_made_whole_or_not_at_every_instruction")
        .across_namespaces();
    let region = lasting_region(&trial);
    let round = Cell::new(0);
    step::each_instruction_and_recovery(
        &trial,
        "create a priority mutex",
        || {
            round.set(round.get() + 1);
            format!("m{}", round.get())
        },
        |name, span| {
            region.join("stepped").unwrap();
            span.run(|| make(region, name, &INHERIT));
        },
        |_| false,
        |name, span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                make(region, name, &INHERIT);
            });
        },
        |name, point| {
            let made: Plan = PriorityMutex::create(region, &name, &INHERIT, || [9; 2]).unwrap();
            let data = *made.lock().unwrap();
            assert!(data == [7; 2] || data == [9; 2] && point != Point::Finished);
            assert_eq!(made.owner(), None);
            step::done(data == [7; 2])
        },
    );
}

#[test]
fn a_free_priority_mutex_is_locked_or_not_at_every_instruction() {
    let trial = Trial::begin("a_free_priority_mutex_is_locked_or_not_at_every_instruction")
        .across_namespaces();
    let region = lasting_region(&trial);
    for (name, options) in both() {
        let plan = make(region, name, &options);
        step::each_instruction_and_recovery(
            &trial,
            &format!("lock and unlock a priority mutex, {name}"),
            // All deaths are counted, and settled here. So the check finds an owner whose death is not.
            || drop(region.sweep().unwrap()),
            |(), span| {
                region.join("stepped").unwrap();
                span.run(|| update(plan.lock().unwrap()));
            },
            |()| false,
            |(), span| span.run(|| recover(region, plan)),
            |(), point| step::reported(check(plan, point).into()),
        );
    }
}

#[test]
fn a_wait_for_a_priority_mutex_ends_once_at_every_instruction() {
    let trial = Trial::begin("a_wait_for_a_priority_mutex_ends_once_at_every_instruction")
        .across_namespaces();
    let region = lasting_region(&trial);
    let me = region.task_id().unwrap();
    me.set_priority(region, priority(100)).unwrap();
    for (name, options) in both() {
        let plan = make(region, name, &options);
        let held = RefCell::new(None);
        step::each_instruction_and_recovery(
            &trial,
            &format!("lock a priority mutex that another task has, {name}"),
            || *held.borrow_mut() = Some(plan.lock().unwrap()),
            |(), span| {
                let me = region.task_id().unwrap();
                me.set_priority(region, priority(5)).unwrap();
                span.run(|| update(plan.lock().unwrap()));
            },
            |()| held.take().is_some(),
            |(), span| {
                span.run(|| {
                    region.join("recoverer").unwrap();
                    region.sweep().unwrap();
                    plan.waiting()
                });
            },
            |(), point| {
                drop(held.take());
                let died = check(plan, point);
                assert_eq!(me.current_priority(region).unwrap().get(), 100);
                step::reported(died.into())
            },
        );
    }
}

#[test]
fn a_priority_mutex_is_handed_over_or_not_at_every_instruction() {
    let trial = Trial::begin("a_priority_mutex_is_handed_over_or_not_at_every_instruction")
        .across_namespaces();
    let region = lasting_region(&trial);
    for (name, options) in both() {
        let plan = make(region, name, &options);
        step::each_instruction_and_recovery(
            &trial,
            &format!("unlock a priority mutex for a waiter, {name}"),
            || {
                // They wait as soon as the child owns it.
                let wait = move |own| {
                    let me = region.task_id().unwrap();
                    me.set_priority(region, priority(own)).unwrap();
                    while plan.owner().is_none() {
                        thread::yield_now();
                    }
                    repair_and_update(plan)
                };
                [10, 11].map(|own| thread::spawn(move || wait(own)))
            },
            |_, span| {
                let me = region.task_id().unwrap();
                me.set_priority(region, priority(100)).unwrap();
                let guard = plan.lock().unwrap();
                while plan.waiting() < 2 {
                    thread::yield_now();
                }
                span.run(|| update(guard));
            },
            |_| false,
            |_, span| {
                span.run(|| {
                    region.join("recoverer").unwrap();
                    region.sweep().unwrap();
                    plan.waiting()
                });
            },
            |waiters, point| {
                let told = waiters.map(|waiter| waiter.join().unwrap());
                let told = told.into_iter().filter(|told| *told).count();
                assert!(told <= 1, "{name}, killed at {point:?}: {told} were told");
                assert!(point != Point::Finished || told == 0);
                assert!(!check(plan, point));
                step::reported(told as u64)
            },
        );
    }
}

#[test]
fn a_priority_mutex_of_a_dead_owner_is_repaired_or_not_at_every_instruction() {
    let trial =
        Trial::begin("a_priority_mutex_of_a_dead_owner_is_repaired_or_not_at_every_instruction")
            .across_namespaces();
    let region = lasting_region(&trial);
    for (name, options) in both() {
        let plan = make(region, name, &options);
        step::each_instruction_and_recovery(
            &trial,
            &format!("repair a priority mutex, {name}"),
            || {
                Child::fork(|| {
                    let mut data = plan.lock().unwrap();
                    data[0] += 1;
                    forget(data);
                    die();
                })
                .wait();
            },
            |(), span| {
                region.join("stepped").unwrap();
                span.run(|| assert!(repair_and_update(plan)));
            },
            |()| false,
            |(), span| span.run(|| recover(region, plan)),
            |(), point| step::reported(check(plan, point).into()),
        );
    }
}

#[test]
fn a_priority_mutex_becomes_not_recoverable_or_not_at_every_instruction() {
    let trial =
        Trial::begin("a_priority_mutex_becomes_not_recoverable_or_not_at_every_instruction")
            .across_namespaces();
    let region = lasting_region(&trial);
    let round = Cell::new(0);
    for (name, options) in both() {
        step::each_instruction_and_recovery(
            &trial,
            &format!("give up a priority mutex that others wait for, {name}"),
            || {
                round.set(round.get() + 1);
                let plan = make(region, &format!("m{}", round.get()), &options);
                Child::fork(|| forget(plan.lock().unwrap())).succeed();
                // They wait as soon as the child owns it: before, they would be told of the death themselves.
                let is_owned: &Page<AtomicU32> = Box::leak(Box::new(Page::new()));
                let wait = move |own| {
                    let me = region.task_id().unwrap();
                    me.set_priority(region, priority(own)).unwrap();
                    while is_owned.load(SeqCst) == 0 {
                        thread::yield_now();
                    }
                    match plan.lock() {
                        Ok(_) => (0, 0),
                        Err(LockError::OwnerDied(died)) => {
                            drop(died.make_consistent());
                            (1, 0)
                        }
                        Err(LockError::NotRecoverable) => (0, 1),
                        Err(error) => panic!("{error}"),
                    }
                };
                let waiters = [10, 11].map(|own| thread::spawn(move || wait(own)));
                (plan, is_owned, waiters)
            },
            |(plan, is_owned, _), span| {
                let me = region.task_id().unwrap();
                me.set_priority(region, priority(100)).unwrap();
                let Err(LockError::OwnerDied(died)) = plan.lock() else {
                    panic!("no death was reported");
                };
                is_owned.store(1, SeqCst);
                while plan.waiting() < 2 {
                    thread::yield_now();
                }
                span.run(|| drop(died));
            },
            |_| false,
            |(plan, ..), span| {
                span.run(|| {
                    region.join("recoverer").unwrap();
                    region.sweep().unwrap();
                    plan.waiting()
                });
            },
            |(plan, _, waiters), point| {
                let [first, second] = waiters.map(|waiter| waiter.join().unwrap());
                let (told, refused) = (first.0 + second.0, first.1 + second.1);
                let is_over = refused != 0;
                assert_eq!((told, refused), if is_over { (0, 2) } else { (1, 0) });
                assert!(point != Point::Finished || is_over);
                match plan.try_lock() {
                    Ok(guard) if !is_over => update(guard),
                    Err(LockError::NotRecoverable) if is_over => {}
                    other => panic!("{other:?}, killed at {point:?}"),
                }
                assert_eq!((plan.owner(), plan.waiting()), (None, 0));
                step::done(is_over)
            },
        );
    }
}
