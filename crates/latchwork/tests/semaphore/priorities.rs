//! Priorities: inheritance, and the order of waiters as priorities change.

use super::semaphore_support::{current, me_at, priority, region, until, watched};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use core::time::Duration;
use latchwork::region::{Region, RegionOptions, TaskId};
use latchwork::semaphore::TaskPriority as _;
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline, MirrorError, NoSuchTask,
    ObtainError,
};
use latchwork_testkit::{Child, Page};
use std::sync::Mutex;
use std::thread::{self, Scope};

pub(crate) const INHERIT: BinaryOptions = BinaryOptions::new().inherit();

pub(crate) fn make<'r>(
    region: &'r Region,
    name: &str,
    options: &BinaryOptions,
) -> BinarySemaphore<'r> {
    BinarySemaphore::create(region, name, options).unwrap()
}

/// A task of this priority that waits for the semaphore, and releases it at once.
fn waiter<'s>(
    scope: &'s Scope<'s, '_>,
    region: &'s Region,
    semaphore: BinarySemaphore<'s>,
    of: u8,
) -> TaskId {
    let id = std::sync::Arc::new(AtomicU64::new(0));
    let before = semaphore.waiting();
    let told = std::sync::Arc::clone(&id);
    scope.spawn(move || {
        told.store(me_at(region, of).to_raw(), SeqCst);
        match semaphore.obtain() {
            Ok(_) | Err(ObtainError::Flushed) => {}
            Err(error) => panic!("{error}"),
        }
    });
    until(|| semaphore.waiting() > before);
    TaskId::from_raw(id.load(SeqCst)).unwrap()
}

/// Only a task acquires the lock of another's priority.
#[test]
fn a_thread_without_a_slot_cannot_change_a_priority() {
    let region = RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(1)
        .create_anonymous()
        .unwrap();
    let me = region.task_id().unwrap();
    let outsider = || {
        assert_eq!(me.set_priority(&region, priority(7)), Err(NoSuchTask));
        assert_eq!(me.mirror(&region, true), Err(MirrorError::NoSuchTask));
        assert_eq!(me.priority(&region).unwrap().get(), 255);
    };
    thread::scope(|scope| scope.spawn(outsider).join().unwrap());
    assert_eq!(me.set_priority(&region, priority(7)).unwrap().get(), 255);
}

#[test]
fn a_task_has_the_priority_that_was_recorded_for_it() {
    let region = region();
    let me = region.task_id().unwrap();
    assert_eq!(me.priority(&region).unwrap().get(), 255);
    assert_eq!(me.set_priority(&region, priority(7)).unwrap().get(), 255);
    assert_eq!(me.priority(&region).unwrap().get(), 7);
    assert_eq!(current(&region, me), 7);
    let gone = thread::scope(|scope| scope.spawn(|| region.task_id().unwrap()).join().unwrap());
    until(|| gone.priority(&region) == Err(NoSuchTask));
    assert_eq!(gone.set_priority(&region, priority(1)), Err(NoSuchTask));
    assert_eq!(
        TaskId::from_raw(u64::MAX).unwrap().priority(&region),
        Err(NoSuchTask)
    );
}

#[test]
fn an_owner_has_the_priority_of_its_best_waiter() {
    let _watchdog = watched("an_owner_has_the_priority_of_its_best_waiter");
    let region = region();
    let me = me_at(&region, 100);
    let semaphore = make(&region, "s", &INHERIT);
    let held = semaphore.obtain().unwrap();
    thread::scope(|scope| {
        waiter(scope, &region, semaphore, 120);
        assert_eq!(current(&region, me), 100);
        let fifty = waiter(scope, &region, semaphore, 50);
        // It stands in the queue before it has lent its priority.
        until(|| current(&region, me) == 50);
        waiter(scope, &region, semaphore, 70);
        assert_eq!(current(&region, me), 50);
        // It follows each change, either way.
        fifty.set_priority(&region, priority(10)).unwrap();
        assert_eq!(current(&region, me), 10);
        fifty.set_priority(&region, priority(90)).unwrap();
        assert_eq!(current(&region, me), 70);
        me_at(&region, 30);
        assert_eq!(current(&region, me), 30);
        me_at(&region, 100);
        assert_eq!(current(&region, me), 70);
        drop(held);
        assert_eq!(current(&region, me), 100);
    });
}

#[test]
fn inheritance_goes_through_a_chain_of_owners() {
    let _watchdog = watched("inheritance_goes_through_a_chain_of_owners");
    let region = region();
    let me = me_at(&region, 200);
    let chain: Vec<_> = (0..5)
        .map(|index| make(&region, &format!("s{index}"), &INHERIT))
        .collect();
    let held = chain[0].obtain().unwrap();
    let ids = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let (region, chain, ids) = (&region, &chain, &ids);
        // Each owns one semaphore and waits for the one before.
        for index in 1..5_usize {
            scope.spawn(move || {
                let own = chain[index].obtain().unwrap();
                ids.lock().unwrap().push(me_at(region, 150 + index as u8));
                drop(chain[index - 1].obtain().unwrap());
                drop(own);
                assert_eq!(
                    current(region, region.task_id().unwrap()),
                    150 + index as u8
                );
            });
            until(|| chain[index - 1].waiting() == 1);
        }
        until(|| current(region, me) == 151);
        // One that gives up at its deadline takes its priority back all along the chain.
        let impatient = scope.spawn(move || {
            me_at(region, 20);
            let waited = chain[4].obtain_for(Duration::from_millis(30));
            assert!(matches!(waited, Err(ObtainError::TimedOut)));
        });
        impatient.join().unwrap();
        assert_eq!(current(region, me), 151);
        // One whose priority changes in the midst of it.
        let last = ids.lock().unwrap()[3];
        last.set_priority(region, priority(40)).unwrap();
        assert_eq!(current(region, me), 40);
        last.set_priority(region, priority(154)).unwrap();
        assert_eq!(current(region, me), 151);
        // One that is sent away.
        scope.spawn(move || {
            me_at(region, 9);
            assert!(matches!(chain[4].obtain(), Err(ObtainError::Flushed)));
        });
        until(|| current(region, me) == 9);
        for id in ids.lock().unwrap().iter() {
            assert_eq!(current(region, *id), 9);
        }
        assert_eq!(chain[4].flush().unwrap(), 1);
        assert_eq!(current(region, me), 151);
        drop(held);
    });
    assert_eq!(current(&region, me), 200);
}

#[test]
fn an_inner_release_drops_what_was_inherited_by_it() {
    let _watchdog = watched("an_inner_release_drops_what_was_inherited_by_it");
    let region = region();
    let me = me_at(&region, 100);
    let [outer, inner] = ["outer", "inner"].map(|name| make(&region, name, &INHERIT));
    let held_outer = outer.obtain().unwrap();
    let held_inner = inner.obtain().unwrap();
    let nested = inner.obtain().unwrap();
    thread::scope(|scope| {
        waiter(scope, &region, outer, 60);
        waiter(scope, &region, inner, 30);
        until(|| current(&region, me) == 30);
        drop(nested);
        assert_eq!(current(&region, me), 30);
        drop(held_inner);
        assert_eq!(current(&region, me), 60);
        drop(held_outer);
        assert_eq!(current(&region, me), 100);
    });
}

#[test]
fn a_flush_ends_inheritance() {
    let _watchdog = watched("a_flush_ends_inheritance");
    let region = region();
    let me = me_at(&region, 100);
    let semaphore = make(&region, "s", &INHERIT);
    let held = semaphore.obtain().unwrap();
    thread::scope(|scope| {
        waiter(scope, &region, semaphore, 60);
        until(|| current(&region, me) == 60);
        semaphore.flush().unwrap();
        assert_eq!(current(&region, me), 100);
    });
    drop(held);
}

#[test]
fn the_priority_inherited_from_a_dead_waiter_is_given_back() {
    let _watchdog = watched("the_priority_inherited_from_a_dead_waiter_is_given_back");
    let region = region();
    let me = me_at(&region, 100);
    let semaphore = make(&region, "s", &INHERIT);
    let held = semaphore.obtain().unwrap();
    let mut child = Child::fork(|| {
        me_at(&region, 10);
        let _ = semaphore.obtain();
    });
    until(|| current(&region, me) == 10);
    thread::scope(|scope| {
        // Somebody must be there to notice.
        waiter(scope, &region, semaphore, 50);
        child.kill();
        until(|| current(&region, me) == 50);
        drop(held);
    });
    assert_eq!(current(&region, me), 100);
    // And nobody: the next release of anything sets it right.
    let held = semaphore.obtain().unwrap();
    let mut child = Child::fork(|| {
        me_at(&region, 10);
        let _ = semaphore.obtain();
    });
    until(|| current(&region, me) == 10);
    child.kill();
    drop(held);
    assert_eq!(current(&region, me), 100);
}

#[test]
fn a_waiter_whose_priority_changes_moves_in_the_queue() {
    let _watchdog = watched("a_waiter_whose_priority_changes_moves_in_the_queue");
    for (discipline, expected) in [
        (Discipline::Priority, [2, 1, 0]),
        (Discipline::Fifo, [0, 1, 2]),
    ] {
        let region = region();
        let semaphore = CountingSemaphore::create(&region, "s", 0, discipline).unwrap();
        let order = Mutex::new(Vec::new());
        let ids = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for index in 0..3_u8 {
                let (order, ids, region) = (&order, &ids, &region);
                scope.spawn(move || {
                    ids.lock().unwrap().push(me_at(region, 10 + index));
                    semaphore.obtain().unwrap();
                    order.lock().unwrap().push(index);
                });
                until(|| semaphore.waiting() == u32::from(index) + 1);
            }
            let ids = ids.lock().unwrap().clone();
            ids[2].set_priority(&region, priority(3)).unwrap();
            // Behind its equals.
            ids[0].set_priority(&region, priority(11)).unwrap();
            for served in 1..=3 {
                semaphore.release().unwrap();
                until(|| order.lock().unwrap().len() == served);
            }
        });
        assert_eq!(order.into_inner().unwrap(), expected);
    }
}

#[test]
fn inheritance_goes_from_process_to_process() {
    let _watchdog = watched("inheritance_goes_from_process_to_process");
    let region = region();
    let [a, b] = ["a", "b"].map(|name| make(&region, name, &INHERIT));
    let me = me_at(&region, 100);
    let held = a.obtain().unwrap();
    let middle = Child::fork(|| {
        me_at(&region, 90);
        let own = b.obtain().unwrap();
        drop(a.obtain().unwrap());
        drop(own);
        let me = region.task_id().unwrap();
        assert_eq!(current(&region, me), 90);
    });
    until(|| current(&region, me) == 90);
    let last = Child::fork(|| {
        me_at(&region, 15);
        drop(b.obtain().unwrap());
    });
    until(|| current(&region, me) == 15);
    drop(held);
    assert_eq!(current(&region, me), 100);
    middle.succeed();
    last.succeed();
}

/// Tasks of all priorities take random pairs in one order, wait with deadlines, and change each other's priorities.
/// In the end each task has its own priority again.
#[test]
fn inherited_priorities_are_given_back() {
    let _watchdog = watched("inherited_priorities_are_given_back");
    let region = region();
    let semaphores: Vec<_> = (0..4)
        .map(|index| {
            let options = if index == 3 {
                BinaryOptions::new().ceiling(priority(1))
            } else {
                INHERIT
            };
            make(&region, &format!("s{index}"), &options)
        })
        .collect();
    let ids: Page<[AtomicU64; 6]> = Page::new();
    let done: Page<AtomicU32> = Page::new();
    let work = |index: usize| {
        let me = me_at(&region, 10 + index as u8);
        ids[index].store(me.to_raw(), SeqCst);
        until(|| ids.iter().all(|id| id.load(SeqCst) != 0));
        let mut rng = latchwork_testkit::fastrand::Rng::with_seed(index as u64);
        for _ in 0..800 {
            let first = rng.usize(..3);
            let Ok(outer) = semaphores[first].obtain_for(Duration::from_micros(rng.u64(..500)))
            else {
                continue;
            };
            let inner = semaphores[rng.usize(first + 1..4)]
                .obtain_for(Duration::from_micros(rng.u64(..200)));
            if rng.bool() {
                thread::yield_now();
            }
            // Some may not be tasks yet.
            let other = TaskId::from_raw(ids[rng.usize(..6)].load(SeqCst));
            let chosen = priority(rng.u8(2..250));
            let _ = other.map(|other| other.set_priority(&region, chosen));
            if rng.bool() {
                drop(outer);
                drop(inner);
            } else {
                drop(inner);
                drop(outer);
            }
        }
        done.fetch_add(1, SeqCst);
        until(|| done.load(SeqCst) == 6);
        assert_eq!(current(&region, me), me.priority(&region).unwrap().get());
    };
    let children: Vec<Child> = (0..2).map(|index| Child::fork(|| work(index))).collect();
    thread::scope(|scope| {
        for index in 2..6 {
            let work = &work;
            scope.spawn(move || work(index));
        }
    });
    children.into_iter().for_each(Child::succeed);
}

/// What the kernel says of the calling thread: policy and priority.
#[allow(unsafe_code)]
fn scheduling() -> (i32, i32) {
    // SAFETY: zero is a valid parameter, which the call fills in.
    unsafe {
        let mut parameter: libc::sched_param = core::mem::zeroed();
        libc::sched_getparam(0, &raw mut parameter);
        (libc::sched_getscheduler(0), parameter.sched_priority)
    }
}

#[test]
fn a_mirrored_task_has_its_priority_from_the_kernel_where_that_is_allowed() {
    let _watchdog = watched("a_mirrored_task_has_its_priority_from_the_kernel");
    let region = RegionOptions::new()
        .max_bytes(4 << 20)
        .create_anonymous()
        .unwrap();
    let semaphore = make(&region, "s", &BinaryOptions::new().ceiling(priority(90)));
    thread::scope(|scope| {
        scope.spawn(|| {
            let me = me_at(&region, 255);
            me.mirror(&region, true).unwrap();
            let held = semaphore.obtain().unwrap();
            assert_eq!(current(&region, me), 90);
            if scheduling() != (libc::SCHED_FIFO, 10) {
                println!("skipped: no right to real-time priorities here");
                return;
            }
            drop(held);
            assert_eq!(scheduling(), (libc::SCHED_OTHER, 0));
            me.set_priority(&region, priority(99)).unwrap();
            assert_eq!(scheduling(), (libc::SCHED_FIFO, 1));
            // A new task begins with what the kernel gives it.
            let inherited = thread::spawn({
                let region = region.clone();
                move || {
                    let me = region.task_id().unwrap();
                    me.priority(&region).unwrap().get()
                }
            });
            assert_eq!(inherited.join().unwrap(), 99);
            me.mirror(&region, false).unwrap();
            me.set_priority(&region, priority(255)).unwrap();
            assert_eq!(scheduling(), (libc::SCHED_FIFO, 1));
        });
    });
}
