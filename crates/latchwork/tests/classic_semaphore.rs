//! The directives of RTEMS's semaphore manager: each rule, each in its place among the checks.
//!
//! Where RTEMS's own specification enumerates pre-conditions, so do these tests: all combinations are run
//! against the rule that the specification gives for them.

mod semaphore_support;

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::classic::{
    BINARY_SEMAPHORE, CURRENT_PRIORITY, Classic, ClassicError, ClassicOptions, INHERIT_PRIORITY,
    Id, MULTIPROCESSOR_RESOURCE_SHARING, NO_TIMEOUT, NO_WAIT, PRIORITY, PRIORITY_CEILING,
    SCHEDULER, SEARCH_ALL_NODES, SELF, SIMPLE_BINARY_SEMAPHORE, Status, WAIT, build_name,
};
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::{Child, Page};
use semaphore_support::{until, watched};
use std::thread;

const NAME: u32 = build_name(*b"SEMA");
const TICK: Duration = Duration::from_millis(1);

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(64)
        .label("classic")
        .create_anonymous()
        .unwrap()
}

fn classic(region: &Region, semaphores: u16) -> Classic<'_> {
    let options = ClassicOptions::new().semaphores(semaphores).tick(TICK);
    Classic::create(region, &options).unwrap()
}

fn create(rtems: Classic<'_>, count: u32, attributes: u32, ceiling: u32) -> Id {
    let mut id = 0;
    let status = rtems.semaphore_create(NAME, count, attributes, ceiling, Some(&mut id));
    assert_eq!(status, Status::Successful);
    id
}

fn at(rtems: Classic<'_>, priority: u32) {
    let mut old = 0;
    assert_eq!(
        rtems.task_set_priority(SELF, priority, Some(&mut old)),
        Status::Successful
    );
}

fn current(rtems: Classic<'_>, task: Id) -> u32 {
    let mut old = 0;
    assert_eq!(
        rtems.task_set_priority(task, CURRENT_PRIORITY, Some(&mut old)),
        Status::Successful
    );
    old
}

/// The priority at which the semaphore is used: nobody's, with no ceiling.
fn ceiling_of(rtems: Classic<'_>, id: Id) -> Result<u32, Status> {
    let mut old = 0;
    match rtems.semaphore_set_priority(id, SCHEDULER, CURRENT_PRIORITY, Some(&mut old)) {
        Status::Successful => Ok(old),
        status => Err(status),
    }
}

const SIMPLE: u32 = SIMPLE_BINARY_SEMAPHORE;
const BINARY: u32 = BINARY_SEMAPHORE;
const INHERIT: u32 = BINARY_SEMAPHORE | INHERIT_PRIORITY | PRIORITY;
const CEILING: u32 = BINARY_SEMAPHORE | PRIORITY_CEILING | PRIORITY;

/// All kinds with all their disciplines.
const ALL: [u32; 8] = [
    0,
    PRIORITY,
    SIMPLE,
    SIMPLE | PRIORITY,
    BINARY,
    BINARY | PRIORITY,
    INHERIT,
    CEILING,
];

/// There is a ceiling.
const ANY_CEILING: u32 = PRIORITY_CEILING | MULTIPROCESSOR_RESOURCE_SHARING;

fn has_owner(attributes: u32) -> bool {
    attributes & BINARY_SEMAPHORE != 0
}

/// An id that was a semaphore's.
fn stale(rtems: Classic<'_>) -> Id {
    let id = create(rtems, 1, 0, 0);
    assert_eq!(rtems.semaphore_delete(id), Status::Successful);
    id
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

/// How the semaphore is when a directive comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Its count is 1, or nobody owns it.
    Free,
    /// The calling task owns it.
    Own,
    /// Its count is 0, or another task owns it.
    Taken,
}

/// Runs `directive` on a new semaphore in this state, by a task of priority 100.
fn in_state(attributes: u32, ceiling: u32, state: State, directive: impl FnOnce(Classic<'_>, Id)) {
    let region = region();
    let rtems = classic(&region, 4);
    at(rtems, 100);
    let id = create(rtems, 1, attributes, ceiling);
    let (taken, done) = (AtomicU32::new(0), AtomicU32::new(0));
    match state {
        State::Free => directive(rtems, id),
        State::Own => {
            assert_eq!(rtems.semaphore_obtain(id, NO_WAIT, 0), Status::Successful);
            directive(rtems, id);
            while rtems.semaphore_release(id) == Status::Successful && has_owner(attributes) {}
        }
        State::Taken => thread::scope(|scope| {
            let (taken, done) = (&taken, &done);
            scope.spawn(move || {
                at(rtems, 200);
                assert_eq!(rtems.semaphore_obtain(id, NO_WAIT, 0), Status::Successful);
                taken.store(1, SeqCst);
                until(|| done.load(SeqCst) == 1);
                rtems.semaphore_release(id);
            });
            until(|| taken.load(SeqCst) == 1);
            struct Done<'a>(&'a AtomicU32);
            impl Drop for Done<'_> {
                fn drop(&mut self) {
                    self.0.store(1, SeqCst);
                }
            }
            let _done = Done(done);
            directive(rtems, id);
        }),
    }
}

#[test]
fn mrsp_does_what_the_specification_says_in_each_state() {
    let _watchdog = watched("mrsp_does_what_the_specification_says_in_each_state");
    const MRSP: u32 = BINARY_SEMAPHORE | MULTIPROCESSOR_RESOURCE_SHARING | PRIORITY;
    let obtains = [(NO_WAIT, NO_TIMEOUT), (WAIT, NO_TIMEOUT), (WAIT, 1)];
    for (ceiling, state) in [50, 100, 200]
        .into_iter()
        .flat_map(|ceiling| [State::Free, State::Own, State::Taken].map(|state| (ceiling, state)))
        .filter(|case| *case != (200, State::Own))
    {
        for (options, ticks) in obtains {
            let is_above = ceiling == 200;
            // It would wait for ever.
            if state == State::Taken && (options, ticks) == (WAIT, NO_TIMEOUT) && !is_above {
                continue;
            }
            let expected = match state {
                State::Own => Status::IncorrectState,
                State::Taken if options == NO_WAIT => Status::Unsatisfied,
                _ if is_above => Status::InvalidPriority,
                State::Free => Status::Successful,
                State::Taken => Status::Timeout,
            };
            in_state(MRSP, ceiling, state, |rtems, id| {
                let what =
                    format!("ceiling {ceiling}, {state:?}, options {options}, {ticks} ticks");
                assert_eq!(
                    rtems.semaphore_obtain(id, options, ticks),
                    expected,
                    "{what}"
                );
                if state == State::Free && expected == Status::Successful {
                    assert_eq!(current(rtems, SELF), ceiling, "{what}");
                    assert_eq!(rtems.semaphore_release(id), Status::Successful);
                    assert_eq!(current(rtems, SELF), 100, "{what}");
                }
            });
        }
        in_state(MRSP, ceiling, state, |rtems, id| {
            assert_eq!(rtems.semaphore_flush(id), Status::NotDefined);
            let before = current(rtems, SELF);
            let mut old = 0;
            let set = rtems.semaphore_set_priority(id, SCHEDULER, 40, Some(&mut old));
            assert_eq!((set, old), (Status::Successful, ceiling));
            assert_eq!(
                (ceiling_of(rtems, id), current(rtems, SELF)),
                (Ok(40), before)
            );
            if state != State::Free {
                assert_eq!(rtems.semaphore_delete(id), Status::ResourceInUse);
            }
            let released = if state == State::Own {
                Status::Successful
            } else {
                Status::NotOwnerOfResource
            };
            assert_eq!(rtems.semaphore_release(id), released);
        });
    }
}

#[test]
fn obtain_does_what_the_specification_says_in_each_state() {
    let _watchdog = watched("obtain_does_what_the_specification_says_in_each_state");
    for attributes in ALL {
        let ceilings: &[u32] = if attributes & PRIORITY_CEILING != 0 {
            &[50, 100, 255]
        } else {
            &[0]
        };
        for ceiling in ceilings {
            for state in [State::Free, State::Own, State::Taken] {
                let above = *ceiling > 100;
                if state == State::Own && (above || !has_owner(attributes)) {
                    continue;
                }
                for (options, timeout) in [(NO_WAIT, 0), (NO_WAIT, 5), (WAIT, 3)] {
                    if above && state == State::Taken {
                        // The other task's priority is 200.
                        continue;
                    }
                    in_state(attributes, *ceiling, state, |rtems, id| {
                        let status = rtems.semaphore_obtain(id, options, timeout);
                        let expected = match state {
                            State::Free if above => Status::InvalidPriority,
                            State::Free | State::Own => Status::Successful,
                            State::Taken if options == NO_WAIT => Status::Unsatisfied,
                            State::Taken => Status::Timeout,
                        };
                        assert_eq!(status, expected, "{attributes:#x}, {ceiling}, {state:?}");
                        let raised =
                            expected == Status::Successful && attributes & PRIORITY_CEILING != 0;
                        let own = if raised { *ceiling.min(&100) } else { 100 };
                        assert_eq!(current(rtems, SELF), own);
                        if status == Status::Successful {
                            assert_eq!(rtems.semaphore_release(id), Status::Successful);
                        }
                    });
                }
            }
        }
    }
}

#[test]
fn release_does_what_the_specification_says_in_each_state() {
    let _watchdog = watched("release_does_what_the_specification_says_in_each_state");
    for attributes in ALL {
        for state in [State::Free, State::Own, State::Taken] {
            in_state(attributes, 50, state, |rtems, id| {
                let expected = match state {
                    _ if !has_owner(attributes) => Status::Successful,
                    State::Own => Status::Successful,
                    State::Free | State::Taken => Status::NotOwnerOfResource,
                };
                assert_eq!(
                    rtems.semaphore_release(id),
                    expected,
                    "{attributes:#x}, {state:?}"
                );
                if state == State::Own {
                    assert_eq!(current(rtems, SELF), 100);
                }
            });
        }
    }
    let region = region();
    let rtems = classic(&region, 1);
    let full = create(rtems, u32::MAX, 0, 0);
    assert_eq!(rtems.semaphore_release(full), Status::Unsatisfied);
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
fn a_dead_owner_is_told_of_with_the_semaphore() {
    let _watchdog = watched("a_dead_owner_is_told_of_with_the_semaphore");
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

#[test]
fn task_priorities_are_checked_in_order() {
    let region = region();
    let rtems = classic(&region, 1);
    let me = rtems.task_self();
    assert_ne!(me, 0);
    assert_eq!(
        rtems.task_set_priority(0x42, 7, None),
        Status::InvalidAddress
    );
    let mut old = 0;
    for id in [0x42, u32::MAX, me ^ 0x1_0000, me + 1] {
        assert_eq!(
            rtems.task_set_priority(id, 1000, Some(&mut old)),
            Status::InvalidId
        );
    }
    assert_eq!(
        rtems.task_set_priority(me, 256, Some(&mut old)),
        Status::InvalidPriority
    );
    assert_eq!(old, 0);
    at(rtems, 12);
    assert_eq!(current(rtems, me), 12);
    let semaphore = create(rtems, 0, CEILING, 3);
    assert_eq!(current(rtems, me), 3);
    assert_eq!(rtems.semaphore_release(semaphore), Status::Successful);
    assert_eq!(current(rtems, me), 12);
}

#[test]
fn a_table_is_made_once() {
    let region = region();
    assert!(Classic::open(&region).is_err());
    let bad = ClassicOptions::new().tick(Duration::ZERO);
    assert!(matches!(
        Classic::create(&region, &bad),
        Err(ClassicError::Tick(_))
    ));
    let rtems = classic(&region, 3);
    assert_eq!(rtems.tick(), TICK);
    let other = Classic::create(&region, &ClassicOptions::new());
    assert!(matches!(
        other,
        Err(ClassicError::OtherOptions { semaphores: 3, .. })
    ));
    // Its objects are there for every process, and every name for every object.
    let id = create(rtems, 1, 0, 0);
    let said: Page<AtomicU32> = Page::new();
    Child::fork(|| {
        let mut found = 0;
        let rtems = Classic::open(&region).unwrap();
        rtems.semaphore_ident(NAME, SEARCH_ALL_NODES, Some(&mut found));
        said.store(found, SeqCst);
    })
    .succeed();
    assert_eq!(said.load(SeqCst), id);
    assert_eq!(build_name(*b"SEMA"), 0x5345_4d41);
}
