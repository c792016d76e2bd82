//! Schedulers: processors, the tasks that belong to them, and ceilings in each.
//!
//! Tests with two schedulers need two processors, and say so where there is one.

use super::bound::processors_of;
use super::*;
use latchwork::classic::{
    ID_NONE, MAX_SCHEDULERS, MAXIMUM_PRIORITY, NO_TIMEOUT, NO_WAIT, Name, SCHEDULER_NAME, WAIT,
    processor_set,
};
use latchwork_testkit::{Trial, priority::thread_id, step};
use std::sync::mpsc::channel;

const FIRST: Name = build_name(*b"ONE ");
const SECOND: Name = build_name(*b"TWO ");
const EMPTY: Name = build_name(*b"NONE");
pub(crate) const MRSP: u32 = BINARY_SEMAPHORE | MULTIPROCESSOR_RESOURCE_SHARING | PRIORITY;
pub(crate) const OTHER: Id = SCHEDULER + 1;
const WITHOUT: Id = SCHEDULER + 2;

/// Two processors that the test may use.
fn two(test: &str) -> Option<[u32; 2]> {
    match processors_of(0)[..] {
        [first, second, ..] => Some([first as u32, second as u32]),
        _ => {
            println!("skipped: {test}: two schedulers need two processors");
            None
        }
    }
}

/// A table with two schedulers of one processor each, and one without any.
pub(crate) fn split(region: &Region, [first, second]: [u32; 2]) -> Classic<'_> {
    let options = ClassicOptions::new()
        .semaphores(8)
        .tick(TICK)
        .scheduler(FIRST, &[first])
        .scheduler(SECOND, &[second])
        .scheduler(EMPTY, &[]);
    Classic::create(region, &options).unwrap()
}

fn scheduler_of(rtems: Classic<'_>, task: Id) -> Id {
    let mut id = 0;
    assert_eq!(
        rtems.task_get_scheduler(task, Some(&mut id)),
        Status::Successful
    );
    id
}

/// Runs in a thread of its own, whose processors may be changed.
fn in_task(rtems: Classic<'_>, scheduler: Id, priority: u32, body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let moved = rtems.task_set_scheduler(SELF, scheduler, priority);
                assert_eq!(moved, Status::Successful);
                body();
            })
            .join()
            .unwrap();
    });
}

#[test]
fn the_only_scheduler_has_all_processors() {
    let region = region();
    let rtems = classic(&region, 1);
    let mut id = 0;
    assert_eq!(
        rtems.scheduler_ident(SCHEDULER_NAME, Some(&mut id)),
        Status::Successful
    );
    assert_eq!(id, SCHEDULER);
    for processor in 0..rtems.scheduler_get_processor_maximum() {
        let mut id = 0;
        let status = rtems.scheduler_ident_by_processor(processor, Some(&mut id));
        assert_eq!((status, id), (Status::Successful, SCHEDULER));
    }
    assert!(rtems.scheduler_get_processor() < rtems.scheduler_get_processor_maximum());
    assert_eq!(scheduler_of(rtems, SELF), SCHEDULER);
    // The scheduler stays the same: so do the processors that others chose.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let allowed = processors_of(0);
            bound::bind(&allowed[..1]);
            let moved = rtems.task_set_scheduler(SELF, SCHEDULER, 77);
            assert_eq!(moved, Status::Successful);
            assert_eq!(current(rtems, SELF), 77);
            assert_eq!(processors_of(0), allowed[..1]);
            let mut set = [0; 128];
            let status = rtems.task_get_affinity(SELF, Some(&mut set));
            assert_eq!(status, Status::Successful);
            assert_eq!(set, processor_set(&[allowed[0] as u32]));
            let every: Vec<u32> = (0..1024).collect();
            let all = processor_set(&every);
            assert_eq!(
                rtems.task_set_affinity(SELF, Some(&all)),
                Status::Successful
            );
            // All that the kernel permits, which may be more than before.
            let now = processors_of(0);
            assert!(allowed.iter().all(|processor| now.contains(processor)));
        });
    });
}

#[test]
fn wrong_schedulers_are_refused() {
    let region = region();
    let of = |options: ClassicOptions| Classic::create(&region, &options).map(drop);
    let new = ClassicOptions::new;
    let many = (0..=MAX_SCHEDULERS as u32).fold(new(), |options, index| {
        options.scheduler(index + 1, &[index])
    });
    for (wrong, of_name) in [
        (new().scheduler(0, &[0]), 0),
        (new().scheduler(FIRST, &[0]).scheduler(FIRST, &[1]), FIRST),
        (
            new().scheduler(FIRST, &[1, 0]).scheduler(SECOND, &[0]),
            SECOND,
        ),
        (new().scheduler(SECOND, &[1024]), SECOND),
        (many, MAX_SCHEDULERS as u32 + 1),
    ] {
        let error = of(wrong).unwrap_err();
        assert!(
            matches!(error, ClassicError::Scheduler { name, .. } if name == of_name),
            "{error}"
        );
    }
    // The processors are a part of the options.
    of(new().scheduler(FIRST, &[0]).scheduler(SECOND, &[1])).unwrap();
    of(new().scheduler(FIRST, &[0]).scheduler(SECOND, &[1])).unwrap();
    for other in [
        new(),
        new().scheduler(FIRST, &[0]),
        new().scheduler(FIRST, &[0]).scheduler(SECOND, &[2]),
    ] {
        assert!(matches!(
            of(other),
            Err(ClassicError::OtherOptions { schedulers: 2, .. })
        ));
    }
}

#[test]
fn schedulers_are_found_with_rtems_statuses_in_rtems_order() {
    let region = region();
    // Processor 0 exists; a table may name others that do not.
    let options = ClassicOptions::new()
        .scheduler(FIRST, &[1, 500])
        .scheduler(EMPTY, &[]);
    let rtems = Classic::create(&region, &options).unwrap();
    let maximum = rtems.scheduler_get_processor_maximum();
    let mut id = 7;
    assert_eq!(rtems.scheduler_ident(0, None), Status::InvalidAddress);
    for name in [0, SECOND, SCHEDULER_NAME] {
        assert_eq!(
            rtems.scheduler_ident(name, Some(&mut id)),
            Status::InvalidName
        );
    }
    assert_eq!(id, 7);
    assert_eq!(
        rtems.scheduler_ident(EMPTY, Some(&mut id)),
        Status::Successful
    );
    assert_eq!(id, OTHER);

    assert_eq!(
        rtems.scheduler_ident_by_processor(maximum, None),
        Status::InvalidAddress
    );
    for (processor, status) in [
        (maximum, Status::InvalidName),
        (u32::MAX, Status::InvalidName),
        (0, Status::IncorrectState),
    ] {
        let found = rtems.scheduler_ident_by_processor(processor, Some(&mut id));
        assert_eq!(found, status, "{processor}");
    }

    let mut by_set = |set: &[u8]| rtems.scheduler_ident_by_processor_set(Some(set), Some(&mut id));
    assert_eq!(by_set(&[1; 7]), Status::InvalidSize);
    assert_eq!(by_set(&[]), Status::InvalidName);
    assert_eq!(by_set(&[0; 128]), Status::InvalidName);
    assert_eq!(by_set(&processor_set(&[maximum])), Status::InvalidName);
    assert_eq!(by_set(&processor_set(&[0, 1023])), Status::IncorrectState);
    if maximum > 1 {
        assert_eq!(by_set(&processor_set(&[0, 1])), Status::Successful);
        assert_eq!(id, SCHEDULER);
    }
    for (set, id) in [
        (None, None),
        (Some(&[1; 7][..]), None),
        (None, Some(&mut 0)),
    ] {
        let status = rtems.scheduler_ident_by_processor_set(set, id);
        assert_eq!(status, Status::InvalidAddress);
    }

    let mut set = [0xff; 128];
    let get = |id, set: Option<&mut [u8]>| rtems.scheduler_get_processor_set(id, set);
    assert_eq!(get(ID_NONE, None), Status::InvalidAddress);
    for id in [ID_NONE, WITHOUT, SCHEDULER | 1 << 16, u32::MAX] {
        assert_eq!(get(id, Some(&mut set[..7])), Status::InvalidId);
    }
    assert_eq!(get(SCHEDULER, Some(&mut set[..7])), Status::InvalidSize);
    assert_eq!(set, [0xff; 128]);
    let own = if maximum > 1 { &[1][..] } else { &[] };
    assert_eq!(get(SCHEDULER, Some(&mut set)), Status::Successful);
    assert_eq!(set, processor_set(own));
    assert_eq!(get(OTHER, Some(&mut set[..0])), Status::Successful);
    if maximum > 1 {
        assert_eq!(get(SCHEDULER, Some(&mut [])), Status::InvalidSize);
    }

    let mut lowest = 0;
    let maximum = |id, place: Option<&mut u32>| rtems.scheduler_get_maximum_priority(id, place);
    assert_eq!(maximum(ID_NONE, None), Status::InvalidAddress);
    assert_eq!(maximum(WITHOUT, Some(&mut lowest)), Status::InvalidId);
    assert_eq!(maximum(OTHER, Some(&mut lowest)), Status::Successful);
    assert_eq!(lowest, MAXIMUM_PRIORITY);
}

#[test]
fn a_task_runs_on_the_processors_of_its_scheduler() {
    let name = "a_task_runs_on_the_processors_of_its_scheduler";
    let Some([first, second]) = two(name) else {
        return;
    };
    let region = region();
    let rtems = split(&region, [first, second]);
    in_task(rtems, OTHER, 40, || {
        let me = rtems.task_self();
        assert_eq!(scheduler_of(rtems, me), OTHER);
        assert_eq!(current(rtems, me), 40);
        assert_eq!(processors_of(0), [second as usize]);
        // Other processes see it, and may move the task.
        let thread = thread_id() as u32;
        Child::fork(|| {
            let rtems = Classic::open(&region).unwrap();
            assert_eq!(scheduler_of(rtems, me), OTHER);
            assert_eq!(scheduler_of(rtems, SELF), SCHEDULER);
            let moved = rtems.task_set_scheduler(me, SCHEDULER, 41);
            assert_eq!(moved, Status::Successful);
            assert_eq!(processors_of(thread), [first as usize]);
        })
        .succeed();
        assert_eq!(
            (scheduler_of(rtems, me), current(rtems, me)),
            (SCHEDULER, 41)
        );
        assert_eq!(processors_of(0), [first as usize]);
        // An affinity counts within the scheduler; it decides whether the next one is possible.
        let set =
            |processors: &[u32]| rtems.task_set_affinity(SELF, Some(&processor_set(processors)));
        assert_eq!(set(&[second]), Status::InvalidNumber);
        assert_eq!(set(&[]), Status::InvalidNumber);
        assert_eq!(set(&[first]), Status::Successful);
        assert_eq!(
            rtems.task_set_scheduler(SELF, OTHER, 50),
            Status::Unsatisfied
        );
        assert_eq!(
            (scheduler_of(rtems, me), current(rtems, me)),
            (SCHEDULER, 41)
        );
        assert_eq!(set(&[first, second, 1023]), Status::Successful);
        let mut affinity = [0; 128];
        let got = rtems.task_get_affinity(SELF, Some(&mut affinity));
        assert_eq!(got, Status::Successful);
        assert_eq!(affinity, processor_set(&[first, second, 1023]));
        let small = rtems.task_get_affinity(SELF, Some(&mut affinity[..64]));
        assert_eq!(small, Status::InvalidSize);
        assert_eq!(
            rtems.task_set_scheduler(SELF, OTHER, 50),
            Status::Successful
        );
        assert_eq!(processors_of(0), [second as usize]);
    });
}

#[test]
fn moves_are_refused_with_rtems_statuses_in_rtems_order() {
    let Some(processors) = two("moves_are_refused_with_rtems_statuses_in_rtems_order") else {
        return;
    };
    let region = region();
    let rtems = split(&region, processors);
    in_task(rtems, SCHEDULER, 40, || {
        let of = |task, scheduler, priority| rtems.task_set_scheduler(task, scheduler, priority);
        let nobody = rtems.task_self() | 0xfff;
        assert_eq!(of(nobody, ID_NONE, 256), Status::InvalidId);
        for wrong in [0, 256] {
            assert_eq!(of(nobody, OTHER, wrong), Status::InvalidPriority);
        }
        assert_eq!(of(nobody, OTHER, 1), Status::InvalidId);
        assert_eq!(of(SELF, WITHOUT, 1), Status::Unsatisfied);
        for class in [CEILING, MRSP] {
            // Even a ceiling that is no better than the task's own priority.
            let id = create(rtems, 0, class, 40);
            for scheduler in [SCHEDULER, OTHER, WITHOUT] {
                assert_eq!(of(SELF, scheduler, 40), Status::ResourceInUse);
            }
            assert_eq!(rtems.semaphore_release(id), Status::Successful);
            assert_eq!(of(SELF, SCHEDULER, 40), Status::Successful);
        }
        // A plain semaphore gives no priority, unless another task waits for an inheriting one.
        let id = create(rtems, 0, INHERIT, 0);
        assert_eq!(of(SELF, SCHEDULER, 40), Status::Successful);
        let me = rtems.task_self();
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                at(rtems, 60);
                tell.send(rtems.task_self()).unwrap();
                let obtained = rtems.semaphore_obtain(id, WAIT, NO_TIMEOUT);
                assert_eq!(obtained, Status::Successful);
                rtems.semaphore_release(id);
            });
            let waiter = told.recv().unwrap();
            semaphore_support::until(|| rtems.semaphore_waiting(id) == 1);
            assert_eq!(of(me, OTHER, 40), Status::ResourceInUse);
            assert_eq!(of(waiter, OTHER, 40), Status::ResourceInUse);
            assert_eq!(rtems.semaphore_release(id), Status::Successful);
        });
        assert_eq!(of(SELF, OTHER, 40), Status::Successful);

        assert_eq!(
            rtems.task_get_scheduler(nobody, None),
            Status::InvalidAddress
        );
        let mut found = 0;
        let missing = rtems.task_get_scheduler(nobody, Some(&mut found));
        assert_eq!(missing, Status::InvalidId);
        let mut set = [0; 7];
        let get = |id, set: Option<&mut [u8]>| rtems.task_get_affinity(id, set);
        assert_eq!(get(nobody, None), Status::InvalidAddress);
        assert_eq!(get(nobody, Some(&mut set)), Status::InvalidId);
        assert_eq!(get(SELF, Some(&mut set)), Status::InvalidSize);
        let give = |id, set: Option<&[u8]>| rtems.task_set_affinity(id, set);
        assert_eq!(give(nobody, None), Status::InvalidAddress);
        assert_eq!(give(nobody, Some(&[1; 7][..])), Status::InvalidId);
        assert_eq!(give(SELF, Some(&[1; 7][..])), Status::InvalidNumber);
        let id = create(rtems, 0, MRSP, 40);
        let every: Vec<u32> = (0..1024).collect();
        let all = processor_set(&every);
        assert_eq!(give(SELF, Some(&all[..])), Status::ResourceInUse);
        assert_eq!(rtems.semaphore_release(id), Status::Successful);
        assert_eq!(give(SELF, Some(&all[..])), Status::Successful);
    });
}

#[test]
fn each_scheduler_has_a_ceiling_of_a_shared_semaphore() {
    let Some(processors) = two("each_scheduler_has_a_ceiling_of_a_shared_semaphore") else {
        return;
    };
    let region = region();
    let rtems = split(&region, processors);
    let ceiling = |id, scheduler, new| {
        let mut old = 999;
        let status = rtems.semaphore_set_priority(id, scheduler, new, Some(&mut old));
        (status, old)
    };
    let read = |id, scheduler| ceiling(id, scheduler, CURRENT_PRIORITY);
    in_task(rtems, OTHER, 40, || {
        let id = create(rtems, 1, MRSP, 30);
        // As in RTEMS, other schedulers begin with 0, before all priorities.
        assert_eq!(read(id, OTHER), (Status::Successful, 30));
        assert_eq!(read(id, SCHEDULER), (Status::Successful, 0));
        assert_eq!(read(id, SCHEDULER + 3), (Status::InvalidId, 999));
        let obtained = |expected: Status, priority: u32| {
            assert_eq!(rtems.semaphore_obtain(id, NO_WAIT, 0), expected);
            assert_eq!(current(rtems, SELF), priority);
            if expected == Status::Successful {
                assert_eq!(rtems.semaphore_release(id), Status::Successful);
            }
        };
        obtained(Status::Successful, 30);
        in_task(rtems, SCHEDULER, 20, || obtained(Status::Successful, 1));
        assert_eq!(ceiling(id, SCHEDULER, 25), (Status::Successful, 0));
        assert_eq!(ceiling(id, OTHER, 35), (Status::Successful, 30));
        in_task(rtems, SCHEDULER, 40, || obtained(Status::Successful, 25));
        in_task(rtems, SCHEDULER, 20, || {
            obtained(Status::InvalidPriority, 20)
        });
        obtained(Status::Successful, 35);
        // The task's scheduler decides, not the processor on which it happens to run.
        in_task(rtems, OTHER, 32, || obtained(Status::InvalidPriority, 32));
        assert_eq!(ceiling(id, SCHEDULER, 256), (Status::InvalidPriority, 999));
        assert_eq!(rtems.semaphore_delete(id), Status::Successful);
        assert_eq!(ceiling(id, SCHEDULER, 3), (Status::InvalidId, 999));
        // The next semaphore in that place has ceilings of its own.
        let next = create(rtems, 1, MRSP, 30);
        assert_eq!(read(next, SCHEDULER), (Status::Successful, 0));
    });
}

#[test]
fn a_semaphore_with_a_priority_ceiling_belongs_to_its_creators_scheduler() {
    let name = "a_semaphore_with_a_priority_ceiling_belongs_to_its_creators_scheduler";
    let Some(processors) = two(name) else {
        return;
    };
    let region = region();
    let rtems = split(&region, processors);
    in_task(rtems, OTHER, 40, || {
        let id = create(rtems, 1, CEILING, 30);
        let mut old = 0;
        for (scheduler, status) in [
            (OTHER, Status::Successful),
            (SCHEDULER, Status::NotDefined),
            (SCHEDULER + 3, Status::InvalidId),
        ] {
            for new in [CURRENT_PRIORITY, 30] {
                let set = rtems.semaphore_set_priority(id, scheduler, new, Some(&mut old));
                assert_eq!(set, status);
            }
        }
        for options in [WAIT, NO_WAIT] {
            in_task(rtems, SCHEDULER, 40, || {
                assert_eq!(rtems.semaphore_obtain(id, options, 1), Status::NotDefined);
            });
        }
        assert_eq!(rtems.semaphore_obtain(id, NO_WAIT, 0), Status::Successful);
        // The scheduler is checked where a task would become the owner at once, as in RTEMS.
        in_task(rtems, SCHEDULER, 40, || {
            assert_eq!(rtems.semaphore_obtain(id, NO_WAIT, 0), Status::Unsatisfied);
            assert_eq!(rtems.semaphore_obtain(id, WAIT, 1), Status::Timeout);
        });
        assert_eq!(rtems.semaphore_release(id), Status::Successful);
    });
}

#[test]
fn a_move_killed_at_any_instruction_is_completed_or_not_begun() {
    const NAME: &str = "a_move_killed_at_any_instruction_is_completed_or_not_begun";
    let trial = Trial::begin(NAME);
    let Some(processors) = two(NAME) else {
        return;
    };
    let region: &'static Region = Box::leak(Box::new(region()));
    let rtems = split(region, processors);
    let (tell, told) = channel();
    let (end, ended) = channel::<()>();
    let target = std::thread::spawn(move || {
        tell.send((rtems.task_self(), thread_id() as u32)).unwrap();
        let _ = ended.recv();
    });
    let (task, thread) = told.recv().unwrap();
    let home = |scheduler: Id| processors[(scheduler - SCHEDULER) as usize] as usize;
    step::each_instruction_and_recovery(
        &trial,
        "move a task",
        || {
            let moved = rtems.task_set_scheduler(task, SCHEDULER, 50);
            assert_eq!(moved, Status::Successful);
        },
        |(), span| {
            region.join("stepped").unwrap();
            span.run(|| {
                rtems.task_set_scheduler(task, OTHER, 60);
            });
        },
        |()| false,
        |(), span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                rtems.task_set_scheduler(task, OTHER, 60);
            });
        },
        |(), point| {
            let mut set = [0; 128];
            let status = rtems.task_get_affinity(task, Some(&mut set));
            assert_eq!(status, Status::Successful, "killed at {point:?}");
            let scheduler = scheduler_of(rtems, task);
            assert_eq!(
                processors_of(thread),
                [home(scheduler)],
                "killed at {point:?}"
            );
            step::done(scheduler == OTHER)
        },
    );
    drop(end);
    target.join().unwrap();
}
