//! The semaphore manager: creation, names, ids, flush, deletion, ceilings, circles, deaths.

use super::semaphore_support::{until, watched};
use super::*;
use latchwork::classic::{NO_TIMEOUT, NO_WAIT, WAIT};
use latchwork::semaphore::TaskPriority as _;
use std::thread;

#[test]
fn a_waiter_also_has_a_shared_ceiling_of_0() {
    let _watched = watched("a_waiter_also_has_a_shared_ceiling_of_0");
    let region = region();
    let rtems = classic(&region, 1);
    let shared = BINARY_SEMAPHORE | PRIORITY | MULTIPROCESSOR_RESOURCE_SHARING;
    let id = create(rtems, 1, shared, 0);
    let obtain = || {
        let status = rtems.semaphore_obtain(id, WAIT, NO_TIMEOUT);
        assert_eq!(status, Status::Successful);
    };
    let release = || assert_eq!(rtems.semaphore_release(id), Status::Successful);
    obtain();
    thread::scope(|scope| {
        let (told, waiter) = std::sync::mpsc::channel();
        let region = &region;
        scope.spawn(move || {
            at(rtems, 100);
            told.send(region.task_id().unwrap()).unwrap();
            obtain();
            release();
        });
        let waiter = waiter.recv().unwrap();
        until(|| rtems.semaphore_waiting(id) == 1);
        let priority = waiter.current_priority(region).unwrap().get();
        release();
        assert_eq!(priority, 1);
    });
}

#[test]
fn create_checks_in_the_order_of_the_specification() {
    const FLAGS: [u32; 6] = [
        BINARY_SEMAPHORE,
        SIMPLE_BINARY_SEMAPHORE,
        INHERIT_PRIORITY,
        PRIORITY_CEILING,
        MULTIPROCESSOR_RESOURCE_SHARING,
        PRIORITY,
    ];
    // Of the calling task: the ceiling is worse, equal, better, or none.
    const OWN: u32 = 100;
    let ceilings = [101, 100, 50, 256, u32::MAX];
    let mut combinations = 0;
    for free in [true, false] {
        let region = region();
        let rtems = classic(&region, 1);
        at(rtems, OWN);
        if !free {
            create(rtems, 1, 0, 0);
        }
        for bits in 0..1 << FLAGS.len() {
            let attributes = (0..FLAGS.len())
                .filter(|bit| bits >> bit & 1 != 0)
                .fold(0, |all, bit| all | FLAGS[bit]);
            for (name, has_id) in [(0, true), (0, false), (NAME, true), (NAME, false)] {
                for (count, ceiling) in (0..3).flat_map(|count| ceilings.map(|at| (count, at))) {
                    combinations += 1;
                    let mut id = 0;
                    let given = has_id.then_some(&mut id);
                    let status = rtems.semaphore_create(name, count, attributes, ceiling, given);
                    let has = |flag| attributes & flag != 0;
                    let protocols = [
                        INHERIT_PRIORITY,
                        PRIORITY_CEILING,
                        MULTIPROCESSOR_RESOURCE_SHARING,
                    ]
                    .iter()
                    .filter(|protocol| has(**protocol))
                    .count();
                    let has_two_classes = has(BINARY_SEMAPHORE) && has(SIMPLE_BINARY_SEMAPHORE);
                    let is_defined = !has_two_classes
                        && (protocols == 0
                            || protocols == 1 && has(BINARY_SEMAPHORE) && has(PRIORITY));
                    let is_counting = !has(BINARY_SEMAPHORE) && !has(SIMPLE_BINARY_SEMAPHORE);
                    let expected = if name == 0 {
                        Status::InvalidName
                    } else if !has_id {
                        Status::InvalidAddress
                    } else if !is_defined {
                        Status::NotDefined
                    } else if count > 1 && !is_counting {
                        Status::InvalidNumber
                    } else if !free {
                        Status::TooMany
                    } else if attributes & ANY_CEILING != 0
                        && (ceiling > 255 || count == 0 && ceiling > OWN)
                    {
                        Status::InvalidPriority
                    } else {
                        Status::Successful
                    };
                    let what = format!("{attributes:#x}, count {count}, ceiling {ceiling}");
                    assert_eq!(status, expected, "{what}");
                    let mut found = 0;
                    let ident = rtems.semaphore_ident(NAME, SEARCH_ALL_NODES, Some(&mut found));
                    if status != Status::Successful {
                        assert_eq!(id, 0, "{what}");
                        assert_eq!(ident == Status::Successful, !free, "{what}");
                        continue;
                    }
                    assert_eq!((ident, found), (Status::Successful, id), "{what}");
                    check_new(rtems, id, count, attributes, ceiling);
                    assert_eq!(current(rtems, SELF), OWN, "{what}");
                }
            }
        }
    }
    assert_eq!(combinations, 2 * 64 * 4 * 15);
}

/// A new semaphore is what was asked for; it is deleted afterwards.
fn check_new(rtems: Classic<'_>, id: Id, count: u32, attributes: u32, ceiling: u32) {
    if has_owner(attributes) {
        if count == 0 {
            if attributes & ANY_CEILING != 0 {
                assert_eq!(current(rtems, SELF), ceiling.min(100));
            }
            assert_eq!(rtems.semaphore_delete(id), Status::ResourceInUse);
            assert_eq!(rtems.semaphore_release(id), Status::Successful);
        }
        assert_eq!(rtems.semaphore_release(id), Status::NotOwnerOfResource);
    } else {
        for _ in 0..count {
            assert_eq!(rtems.semaphore_obtain(id, NO_WAIT, 0), Status::Successful);
        }
        assert_eq!(rtems.semaphore_obtain(id, NO_WAIT, 0), Status::Unsatisfied);
    }
    let expected = if attributes & ANY_CEILING != 0 {
        Ok(ceiling)
    } else {
        Err(Status::NotDefined)
    };
    assert_eq!(ceiling_of(rtems, id), expected);
    assert_eq!(rtems.semaphore_delete(id), Status::Successful);
}

#[test]
fn ident_finds_the_lowest_index() {
    let region = region();
    let rtems = classic(&region, 4);
    assert_eq!(
        rtems.semaphore_ident(NAME, SEARCH_ALL_NODES, None),
        Status::InvalidAddress
    );
    let mut found = 7;
    assert_eq!(
        rtems.semaphore_ident(0, SEARCH_ALL_NODES, Some(&mut found)),
        Status::InvalidName
    );
    assert_eq!(
        rtems.semaphore_ident(NAME, SEARCH_ALL_NODES, Some(&mut found)),
        Status::InvalidName
    );
    assert_eq!(found, 7);
    let ids = [0; 3].map(|_| create(rtems, 1, 0, 0));
    for id in ids {
        assert_eq!(
            rtems.semaphore_ident(NAME, SEARCH_ALL_NODES, Some(&mut found)),
            Status::Successful
        );
        assert_eq!(found, id);
        rtems.semaphore_delete(id);
    }
}

#[test]
fn an_id_never_means_a_later_object() {
    let region = region();
    let rtems = classic(&region, 1);
    let mut seen = vec![stale(rtems)];
    for _ in 0..1000 {
        let id = create(rtems, 1, 0, 0);
        assert!(!seen.contains(&id));
        assert_eq!(
            rtems.semaphore_obtain(*seen.last().unwrap(), NO_WAIT, 0),
            Status::InvalidId
        );
        assert_eq!(rtems.semaphore_delete(id), Status::Successful);
        seen.push(id);
    }
    for id in [0, 1, u32::MAX, SCHEDULER, rtems.task_self()] {
        assert_eq!(rtems.semaphore_release(id), Status::InvalidId, "{id:#x}");
    }
}

#[test]
fn invalid_ids_are_refused_first() {
    let region = region();
    let rtems = classic(&region, 2);
    let id = stale(rtems);
    let mut old = 9;
    for (what, status) in [
        ("obtain", rtems.semaphore_obtain(id, WAIT, NO_TIMEOUT)),
        ("try", rtems.semaphore_obtain(id, NO_WAIT, 0)),
        ("timed", rtems.semaphore_obtain(id, WAIT, 1)),
        ("release", rtems.semaphore_release(id)),
        ("flush", rtems.semaphore_flush(id)),
        ("delete", rtems.semaphore_delete(id)),
        (
            "set_priority",
            rtems.semaphore_set_priority(id, SCHEDULER, 1000, Some(&mut old)),
        ),
    ] {
        assert_eq!(status, Status::InvalidId, "{what}");
    }
    assert_eq!(old, 9);
}

#[test]
fn flush_and_delete_do_what_the_specification_says() {
    let _watchdog = watched("flush_and_delete_do_what_the_specification_says");
    for attributes in ALL {
        let region = region();
        let rtems = classic(&region, 2);
        let id = create(rtems, 1, attributes, 5);
        assert_eq!(rtems.semaphore_flush(id), Status::Successful);
        assert_eq!(rtems.semaphore_obtain(id, WAIT, 0), Status::Successful);
        assert_eq!(
            rtems.semaphore_delete(id),
            if has_owner(attributes) {
                Status::ResourceInUse
            } else {
                Status::Successful
            }
        );
        let id = if has_owner(attributes) {
            id
        } else {
            create(rtems, 0, attributes, 5)
        };
        // In the queue, or about to be: a flush finds all who are.
        let flushed = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    assert_eq!(rtems.semaphore_obtain(id, WAIT, 0), Status::Unsatisfied);
                    flushed.fetch_add(1, SeqCst);
                });
            }
            until(|| {
                assert_eq!(rtems.semaphore_flush(id), Status::Successful);
                flushed.load(SeqCst) == 3
            });
        });
        if has_owner(attributes) {
            assert_eq!(rtems.semaphore_release(id), Status::Successful);
            assert_eq!(rtems.semaphore_delete(id), Status::Successful);
        } else {
            assert_eq!(
                rtems.semaphore_obtain(id, NO_WAIT, 0),
                Status::Unsatisfied,
                "the count has changed"
            );
            thread::scope(|scope| {
                for waiting in 1..=3 {
                    scope.spawn(|| {
                        assert_eq!(
                            rtems.semaphore_obtain(id, WAIT, NO_TIMEOUT),
                            Status::ObjectWasDeleted
                        );
                    });
                    until(|| rtems.semaphore_waiting(id) == waiting);
                }
                assert_eq!(rtems.semaphore_delete(id), Status::Successful);
            });
        }
        assert_eq!(rtems.semaphore_release(id), Status::InvalidId);
    }
}

#[test]
fn set_priority_checks_in_the_order_of_the_specification() {
    for attributes in ALL {
        for owned in [false, true] {
            let region = region();
            let rtems = classic(&region, 4);
            at(rtems, 100);
            let valid = create(rtems, 1, attributes, 60);
            let invalid = stale(rtems);
            if owned {
                assert_eq!(rtems.semaphore_obtain(valid, WAIT, 0), Status::Successful);
            }
            for (id, scheduler, new, has_old) in [valid, invalid]
                .into_iter()
                .flat_map(|id| [0, SCHEDULER].map(|scheduler| (id, scheduler)))
                .flat_map(|(id, scheduler)| {
                    [CURRENT_PRIORITY, 40, 256].map(|new| (id, scheduler, new))
                })
                .flat_map(|(id, scheduler, new)| {
                    [true, false].map(|has_old| (id, scheduler, new, has_old))
                })
            {
                let mut old = 0;
                let given = has_old.then_some(&mut old);
                let status = rtems.semaphore_set_priority(id, scheduler, new, given);
                let expected = if !has_old {
                    Status::InvalidAddress
                } else if scheduler != SCHEDULER || id == invalid {
                    Status::InvalidId
                } else if new > 255 {
                    Status::InvalidPriority
                } else if attributes & PRIORITY_CEILING == 0 {
                    Status::NotDefined
                } else {
                    Status::Successful
                };
                assert_eq!(status, expected, "{attributes:#x}, {new}");
                let set = expected == Status::Successful && new != CURRENT_PRIORITY;
                assert_eq!(
                    old,
                    if expected == Status::Successful {
                        60
                    } else {
                        0
                    }
                );
                if attributes & PRIORITY_CEILING != 0 {
                    assert_eq!(ceiling_of(rtems, valid), Ok(if set { 40 } else { 60 }));
                    let own = match (owned, set) {
                        (false, _) => 100,
                        (true, true) => 40,
                        (true, false) => 60,
                    };
                    assert_eq!(current(rtems, SELF), own);
                }
                if set {
                    rtems.semaphore_set_priority(valid, SCHEDULER, 60, Some(&mut old));
                }
            }
        }
    }
}

#[test]
fn a_circle_of_waits_is_an_incorrect_state() {
    let _watchdog = watched("a_circle_of_waits_is_an_incorrect_state");
    for attributes in [BINARY, BINARY | PRIORITY, INHERIT, CEILING] {
        let region = region();
        let rtems = classic(&region, 4);
        let ids = [0; 3].map(|_| create(rtems, 1, attributes, 1));
        let told = AtomicU32::new(0);
        let ready = std::sync::Barrier::new(3);
        thread::scope(|scope| {
            for index in 0..3 {
                let (told, ready) = (&told, &ready);
                scope.spawn(move || {
                    let (own, other) = (ids[index], ids[(index + 1) % 3]);
                    assert_eq!(rtems.semaphore_obtain(own, WAIT, 0), Status::Successful);
                    ready.wait();
                    match rtems.semaphore_obtain(other, WAIT, 0) {
                        Status::Successful => {
                            assert_eq!(rtems.semaphore_release(other), Status::Successful);
                        }
                        status => {
                            assert_eq!(status, Status::IncorrectState);
                            told.fetch_add(1, SeqCst);
                        }
                    }
                    assert_eq!(rtems.semaphore_release(own), Status::Successful);
                });
            }
        });
        assert!(told.load(SeqCst) >= 1);
    }
}

#[test]
fn the_next_owner_is_notified_of_a_dead_one() {
    let _watchdog = watched("the_next_owner_is_notified_of_a_dead_one");
    let region = region();
    let rtems = classic(&region, 1);
    let id = create(rtems, 1, INHERIT, 0);
    Child::fork(|| {
        let rtems = Classic::open(&region).unwrap();
        let mut found = 0;
        assert_eq!(
            rtems.semaphore_ident(NAME, SEARCH_ALL_NODES, Some(&mut found)),
            Status::Successful
        );
        assert_eq!(found, id);
        assert_eq!(rtems.semaphore_obtain(id, WAIT, 0), Status::Successful);
    })
    .succeed();
    assert_eq!(rtems.semaphore_obtain(id, NO_WAIT, 0), Status::OwnerDied);
    assert_eq!(rtems.semaphore_release(id), Status::Successful);
    assert_eq!(rtems.semaphore_obtain(id, WAIT, 0), Status::Successful);
}

/// A number like any other, though no task can have it.
#[test]
fn a_ceiling_of_0_is_answered_as_such() {
    let region = region();
    let rtems = classic(&region, 1);
    let id = create(rtems, 1, CEILING, 0);
    assert_eq!(ceiling_of(rtems, id), Ok(0));
    let mut old = 7;
    let status = rtems.semaphore_set_priority(id, SCHEDULER, 9, Some(&mut old));
    assert_eq!((status, old), (Status::Successful, 0));
    assert_eq!(ceiling_of(rtems, id), Ok(9));
}
