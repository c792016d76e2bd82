//! RTEMS's directives: each rule, each in its place among the checks.
//!
//! Where RTEMS's own specification enumerates pre-conditions, so do these tests: all combinations are run
//! against the rule that the specification gives for them.
#![cfg(not(loom))]

#[path = "../semaphore_mrsp/bound.rs"]
mod bound;
mod helping;
mod message_queues;
mod schedulers;
mod semaphore_states;
#[path = "../semaphore_support/mod.rs"]
mod semaphore_support;
mod semaphores;

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::classic::{
    BINARY_SEMAPHORE, CURRENT_PRIORITY, Classic, ClassicError, ClassicOptions, INHERIT_PRIORITY,
    Id, MULTIPROCESSOR_RESOURCE_SHARING, PRIORITY, PRIORITY_CEILING, SCHEDULER, SEARCH_ALL_NODES,
    SELF, SIMPLE_BINARY_SEMAPHORE, Status, build_name,
};
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::{Child, Page};

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
    assert_eq!(old, 0);
    at(rtems, 12);
    // The old priority is told all the same.
    for (priority, status) in [
        (256, Status::InvalidPriority),
        (u32::MAX, Status::InvalidPriority),
    ] {
        old = 0;
        let set = rtems.task_set_priority(me, priority, Some(&mut old));
        assert_eq!((set, old), (status, 12));
    }
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
