//! Slots of a region's task table: who gets one when the table is full, when threads of several PID namespaces have the same
//! ID, and when those who free it are killed.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::forget;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use latchwork::event::{EventSet, Events, InvalidTask};
use latchwork::mutex::in_region::{LockError, NotATask};
use latchwork::mutex::{InRegion, Mutex};
use latchwork::queue::QueueOptions;
use latchwork::queue::spsc::Spsc;
use latchwork::region::inspect::inspect_path;
use latchwork::region::{AttachError, CreateError, Region, RegionOptions, TaskId};
use latchwork_testkit::step::Frozen;
use latchwork_testkit::{Child, Leftover, Namespace, Page, Trial, step};
use std::os::fd::AsRawFd as _;
use std::thread;

fn region(tasks: u16) -> Region {
    let options = RegionOptions::new().max_bytes(1 << 20).max_tasks(tasks);
    options
        .any_pid_namespace(true)
        .label("region_slots")
        .create_anonymous()
        .unwrap()
}

fn sleep_for_ever() -> ! {
    loop {
        thread::park();
    }
}

fn skips(test: &str) -> bool {
    let refused = Namespace::may_be_made();
    if let Err(error) = &refused {
        println!("skipped: {test}: PID namespaces with a /proc cannot be made here: {error}");
    }
    refused.is_err()
}

fn is_full(joined: Result<(), AttachError>) -> bool {
    matches!(joined, Err(AttachError::TaskTableFull { .. }))
}

/// A thread that finds a region full leaves it as it was, and its other regions, too: there it has a task of the same slot and
/// generation.
#[test]
fn a_thread_that_gets_no_slot_stays_a_task_of_other_regions() {
    let (other, full) = (region(64), region(1));
    let lock = other.object("lock", || Mutex::<u64, InRegion>::in_region(0));
    let lock = lock.unwrap().get_ref();
    full.join("main").unwrap();
    for holds in [true, false] {
        thread::scope(|scope| {
            scope.spawn(|| {
                let guard = lock.lock().unwrap();
                let before = other.task_id().unwrap();
                let _held = holds.then_some(guard);
                for _ in 0..20 {
                    assert!(is_full(full.join("second")));
                }
                assert_eq!(other.task_id().unwrap(), before);
            });
        });
    }
}

/// A thread may hold a robust lock without being a task of its region.
#[test]
fn a_thread_that_gets_no_slot_keeps_none_for_its_locks() {
    let trial = Trial::begin("a_thread_that_gets_no_slot_keeps_none_for_its_locks");
    let options = RegionOptions::new().max_bytes(1 << 20).max_tasks(1);
    let region = options.create_anonymous().unwrap();
    let made = thread::scope(|scope| {
        let made = scope.spawn(|| region.object("lock", || Mutex::robust(0_u64)).unwrap());
        made.join().unwrap()
    });
    let joined = Page::<AtomicBool>::new();
    let mut child = Child::fork(|| {
        region.join("child").unwrap();
        joined.store(true, SeqCst);
        sleep_for_ever()
    });
    trial.wait_until(|| joined.load(SeqCst));
    thread::scope(|scope| {
        scope
            .spawn(|| {
                let _guard = made.lock().unwrap();
                for _ in 0..20 {
                    assert!(is_full(region.join("second")));
                }
                child.kill();
                region.join("second").unwrap();
            })
            .join()
            .unwrap();
        scope.spawn(|| region.join("third").unwrap());
    });
}

#[test]
fn the_only_slot_is_for_threads_of_all_namespaces() {
    let name = "the_only_slot_is_for_threads_of_all_namespaces";
    if skips(name) {
        return;
    }
    let _trial = Trial::begin(name);
    let region = region(1);
    for _ in 0..3 {
        Namespace::start(false, || region.join("process 1").unwrap()).succeed();
    }
}

/// Each container is one process, which has the ID 1, and there are no more slots than containers.
#[test]
fn containers_that_restart_get_the_slots_of_those_that_ended() {
    let name = "containers_that_restart_get_the_slots_of_those_that_ended";
    if skips(name) {
        return;
    }
    let trial = Trial::begin(name);
    let region = region(3);
    let joined = Page::<AtomicU32>::new();
    let start = || {
        let before = joined.load(SeqCst);
        let namespace = Namespace::start(true, || {
            region.join("container").unwrap();
            joined.fetch_add(1, SeqCst);
            sleep_for_ever()
        });
        trial.wait_until(|| joined.load(SeqCst) != before);
        namespace
    };
    let mut containers: Vec<Namespace> = (0..3).map(|_| start()).collect();
    for round in 0..6 {
        containers[round % 3].end();
        // Another namespace may get the number of the one that has ended.
        let _other = (round % 2 == 0).then(|| Namespace::start(true, || sleep_for_ever()));
        containers[round % 3] = start();
    }
}

/// Process 1 of a namespace forks process 1 of a namespace below.
#[test]
fn a_fork_with_the_same_id_does_not_own_what_its_parent_owns() {
    let name = "a_fork_with_the_same_id_does_not_own_what_its_parent_owns";
    if skips(name) {
        return;
    }
    let _trial = Trial::begin(name);
    Namespace::start(true, || {
        let options = RegionOptions::new().max_bytes(1 << 20).max_tasks(8);
        let region = options.create_anonymous().unwrap();
        let ring = Spsc::create(&region, "ring", &QueueOptions::new(4, 64)).unwrap();
        let end = ring.sender().unwrap();
        assert!(ring.sender().is_err());
        Namespace::start(true, || {
            // SAFETY: the fork has a copy of its own.
            drop(unsafe { core::ptr::read(&end) });
        })
        .succeed();
        assert!(
            ring.sender().is_err(),
            "the child has freed the parent's end"
        );
        drop(end);
        assert!(ring.sender().is_ok());
    })
    .succeed();
}

/// A fork in another namespace cannot say in which one, if it sees no `/proc`. The process that attached the region still
/// knows.
#[test]
fn a_process_without_proc_is_where_it_was() {
    let name = "a_process_without_proc_is_where_it_was";
    if skips(name) {
        return;
    }
    let _trial = Trial::begin(name);
    let folder = Leftover::folder("no-proc");
    let mut path = folder.path().as_os_str().as_encoded_bytes().to_vec();
    path.push(0);
    let hide = || {
        // SAFETY: the path ends with NUL.
        let hidden = unsafe { libc::chroot(path.as_ptr().cast()) };
        assert_eq!(hidden, 0, "{}", std::io::Error::last_os_error());
    };
    let options = RegionOptions::new().max_bytes(1 << 20).max_tasks(4);
    let region = options.create_anonymous().unwrap();
    let lock = region.object("lock", || Mutex::<u64, InRegion>::in_region(0));
    let lock = lock.unwrap().get_ref();
    let file = format!("/proc/self/fd/{}", region.file().as_raw_fd());
    std::fs::copy(file, folder.path().join("region")).unwrap();
    Namespace::start(false, || {
        hide();
        let seen = inspect_path("/region".as_ref()).unwrap().contents;
        let refused = matches!(seen, Err(AttachError::UnknownPidNamespace));
        assert!(refused, "{seen:?}");
        let got = lock.lock();
        let refused = matches!(
            got,
            Err(LockError::Unavailable(NotATask::UnknownPidNamespace))
        );
        assert!(refused, "{got:?}");
        let made = options.clone().create_anonymous();
        let refused = matches!(made, Err(CreateError::UnknownPidNamespace));
        assert!(refused, "{made:?}");
        let file = region.file().try_clone_to_owned().unwrap();
        let observed = RegionOptions::new().observe_file(&file);
        let refused = matches!(observed, Err(AttachError::UnknownPidNamespace));
        assert!(refused, "{observed:?}");
        let attached = RegionOptions::new().attach_file(file);
        let refused = matches!(attached, Err(AttachError::UnknownPidNamespace));
        assert!(refused, "{attached:?}");
    })
    .succeed();
    Namespace::start(false, || {
        let own = options.clone().create_anonymous().unwrap();
        hide();
        thread::scope(|scope| {
            scope.spawn(|| own.join("later").unwrap());
        });
    })
    .succeed();
}

/// The dead task's namespace has ended: nobody there can find out what became of its slot.
#[test]
fn a_killed_sweeper_loses_no_slot() {
    let name = "a_killed_sweeper_loses_no_slot";
    if skips(name) {
        return;
    }
    let trial = Trial::begin(name);
    let world = || {
        let region = region(2);
        let joined = Page::<AtomicBool>::new();
        let dead = Namespace::start(true, || {
            region.join("dead").unwrap();
            joined.store(true, SeqCst);
            sleep_for_ever()
        });
        trial.wait_until(|| joined.load(SeqCst));
        (region, dead, joined)
    };
    step::each_instruction_and_recovery(
        &trial,
        "sweep",
        world,
        |(region, dead, _), span| {
            region.join("sweeper").unwrap();
            // SAFETY: sends a signal. The process's parent, which reaps it, waits for its end.
            unsafe { libc::kill(dead.id().cast_signed(), libc::SIGKILL) };
            while std::fs::read_to_string(format!("/proc/{}/task", dead.id())).is_ok() {
                thread::yield_now();
            }
            span.run(|| drop(region.sweep()));
        },
        |_| false,
        |(region, ..), span| drop(span.run(|| region.sweep())),
        |(region, mut dead, _), _| {
            dead.end();
            // Only a file with a name can be inspected.
            let (_, copy) = Leftover::region("slots");
            let file = format!("/proc/self/fd/{}", region.file().as_raw_fd());
            std::fs::copy(file, copy.path()).unwrap();
            let report = inspect_path(copy.path()).unwrap();
            let mut tasks = report.contents.unwrap().tasks.into_iter();
            let is_left = tasks.any(|task| task.name == "dead");
            let barrier = std::sync::Barrier::new(2);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        region.join("one of two").unwrap();
                        barrier.wait();
                    });
                }
            });
            step::done(!is_left)
        },
    );
}

/// The next task is of another namespace, where nobody can find out that they were killed.
#[test]
fn a_sweep_frees_what_killed_joiners_had_claimed() {
    let name = "a_sweep_frees_what_killed_joiners_had_claimed";
    if skips(name) {
        return;
    }
    let trial = Trial::begin(name);
    let world = || {
        let region = region(2);
        region.join("test").unwrap();
        region
    };
    step::each_instruction(
        &trial,
        "join, before a sweep of the namespace",
        world,
        |region, span| span.run(|| region.join("killed").unwrap()),
        |_| false,
        |region, _| {
            let swept = region.sweep().unwrap();
            Namespace::start(false, || region.join("of another namespace").unwrap()).succeed();
            match swept.dead.is_empty() {
                true => "no task was left",
                false => "a dead task was left",
            }
        },
    );
}

/// A waiter has read the life-word of the owner and is about to sleep on it. The owner dies and is swept, and the next task in its
/// slot has the same thread ID in another namespace: the word is as it was.
#[test]
fn a_death_before_a_sleep_is_seen_behind_a_successor_with_the_same_thread_id() {
    let name = "a_death_before_a_sleep_is_seen_behind_a_successor_with_the_same_thread_id";
    if skips(name) {
        return;
    }
    let trial = Trial::begin(name);
    let region = region(4);
    let lock = region.object("lock", || Mutex::<u64, InRegion>::in_region(0));
    let lock = lock.unwrap().get_ref();
    let slots = Page::<[AtomicU32; 2]>::new();
    let join =
        |slot: &AtomicU32| slot.store(1 + u32::from(region.task_id().unwrap().slot()), SeqCst);
    let mut owner = Namespace::start(true, || {
        forget(lock.lock().unwrap());
        join(&slots[0]);
        sleep_for_ever()
    });
    trial.wait_until(|| slots[0].load(SeqCst) != 0);
    let waiter = Frozen::before_call(&trial, libc::SYS_futex_waitv, || {
        let died = matches!(lock.lock(), Err(LockError::OwnerDied(_)));
        assert!(died, "no death was reported");
    });
    let Some(waiter) = waiter else {
        return;
    };
    owner.end();
    assert_eq!(region.sweep().unwrap().dead.len(), 1);
    let _successor = Namespace::start(true, || {
        join(&slots[1]);
        sleep_for_ever()
    });
    trial.wait_until(|| slots[1].load(SeqCst) != 0);
    assert_eq!(slots[0].load(SeqCst), slots[1].load(SeqCst));
    waiter.thaw().succeed();
}

/// The word in a region that has the generation of the slot which the next task gets: it counts up with each task.
fn generation_word(region: &Region) -> &AtomicU32 {
    const HEAD: usize = 64 << 10;
    let next = || {
        thread::scope(|scope| {
            scope
                .spawn(|| region.task_id().unwrap().generation())
                .join()
                .unwrap()
        })
    };
    // SAFETY: the beginning of a region is mapped, and its words are atomics.
    let words = unsafe {
        core::slice::from_raw_parts(region.base().cast::<AtomicU32>(), HEAD / size_of::<u32>())
    };
    // Far from small numbers, which other words have, too.
    while next() < 5_000 {}
    let mut candidates: Vec<&AtomicU32> = words.iter().collect();
    for _ in 0..4 {
        let due = next() + 1;
        candidates.retain(|word| word.load(SeqCst) == due);
    }
    assert_eq!(candidates.len(), 1, "words that count tasks");
    candidates[0]
}

/// After the last generation of a slot comes the first one again, and 0 never. Events keep fewer bits of it.
#[test]
fn the_generations_of_a_slot_begin_again() {
    let trial = Trial::begin("the_generations_of_a_slot_begin_again");
    let region = region(8);
    let lock = region.object("lock", || Mutex::<u64, InRegion>::in_region(0));
    let lock = lock.unwrap().get_ref();
    let events = Events::new(&region);
    let generation = generation_word(&region);
    let event = EventSet::event(0);
    for last in [u32::MAX, u32::MAX >> 2, u32::MAX >> 1] {
        generation.store(last, SeqCst);
        let name = Page::<AtomicU64>::new();
        let mut victim = Child::fork(|| {
            let me = region.task_id().unwrap();
            events.send(me, event).unwrap();
            forget(lock.lock().unwrap());
            name.store(me.to_raw(), SeqCst);
            sleep_for_ever();
        });
        trial.wait_until(|| name.load(SeqCst) != 0);
        victim.kill();
        let dead = TaskId::from_raw(name.load(SeqCst)).unwrap();
        assert_eq!(dead.generation(), last);
        region.sweep().unwrap();
        thread::scope(|scope| {
            let next = scope.spawn(|| {
                let me = region.task_id().unwrap();
                assert_eq!(me.slot(), dead.slot());
                assert_eq!(me.generation(), last.checked_add(1).unwrap_or(1));
                assert_eq!(events.send(dead, event), Err(InvalidTask(dead)));
                assert!(events.pending().unwrap().is_empty());
                events.send(me, event).unwrap();
                assert_eq!(events.try_receive_any(event).unwrap(), event);
                match lock.lock() {
                    Err(LockError::OwnerDied(died)) => drop(died.make_consistent()),
                    other => panic!("{other:?}"),
                };
                drop(lock.lock().unwrap());
            });
            // Its slot is free when it has ended, which is later than the end of the closure.
            next.join().unwrap();
        });
    }
}
