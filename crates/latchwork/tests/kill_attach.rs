//! Attaching, leaving and making regions, by tasks that are killed.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use latchwork::mutex::{LockError, Mutex};
use latchwork::region::inspect::inspect_path;
use latchwork::region::{AttachError, CreateError, Region, RegionOptions};
use latchwork_testkit::step;
use latchwork_testkit::{Child, Leftover, Page, Storm, Trial, Worker};

fn options() -> RegionOptions {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(16)
        .max_names(16)
}

/// The region of this name, if there is one; it must be a good one.
fn visit(name: &str) -> Option<Region> {
    match options().attach(name) {
        Ok(region) => {
            use_region(&region);
            region.check_heap().unwrap();
            Some(region)
        }
        Err(AttachError::NotFound) => None,
        Err(error) => panic!("the name is poisoned: {error}"),
    }
}

fn use_region(region: &Region) {
    let count = region.object("count", || Mutex::robust(0_u64)).unwrap();
    match count.lock() {
        Ok(mut count) => *count += 1,
        Err(LockError::OwnerDied(count)) => *count.make_consistent() += 1,
        Err(error) => panic!("{error}"),
    }
}

fn leave(region: Region) {
    region.detach().unwrap_or_else(|error| panic!("{error}"));
}

/// All places in the task table can be taken.
fn check_table(region: &Region, tasks: usize) {
    let all_joined = std::sync::Barrier::new(tasks);
    std::thread::scope(|scope| {
        let join = || {
            region.join("one of all").unwrap();
            all_joined.wait();
        };
        let threads: Vec<_> = (0..tasks).map(|_| scope.spawn(join)).collect();
        // The scope alone would not wait for the end of the threads, at which they leave.
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_name_is_never_poisoned_by_a_killed_creator() {
    let trial = Trial::begin("a_name_is_never_poisoned_by_a_killed_creator");
    let (name, file) = Leftover::region("create");
    let progress = Page::<[AtomicU64; 4]>::new();
    let work = |worker: Worker| {
        loop {
            let region = options().attach_or_create(&name).unwrap();
            use_region(&region);
            leave(region);
            let _ = std::fs::remove_file(file.path());
            progress[worker.seat].fetch_add(1, SeqCst);
        }
    };
    let mut storm = Storm::start(&trial, 3, work);
    let kills = trial.times(150);
    while storm.kills() < kills {
        storm.kill();
        storm.wait_for_progress(|seat| progress[seat].load(SeqCst));
        if let Some(region) = visit(&name) {
            leave(region);
        }
    }
    storm.finish();
    if let Some(region) = visit(&name) {
        leave(region);
    }
}

#[test]
fn tasks_come_and_go_and_die_and_leave_no_slot_behind() {
    let trial = Trial::begin("tasks_come_and_go_and_die_and_leave_no_slot_behind");
    let (name, _file) = Leftover::region("attach");
    drop(options().create_named(&name).unwrap());
    let progress = Page::<[AtomicU64; 4]>::new();
    let work = |worker: Worker| {
        loop {
            let region = options().attach(&name).unwrap();
            use_region(&region);
            leave(region);
            progress[worker.seat].fetch_add(1, SeqCst);
        }
    };
    let mut storm = Storm::start(&trial, 4, work);
    let kills = trial.times(200);
    while storm.kills() < kills {
        storm.kill();
        storm.wait_for_progress(|seat| progress[seat].load(SeqCst));
    }
    storm.finish();
    let region = visit(&name).unwrap();
    region.sweep().unwrap();
    leave(region);
    let region = options().attach(&name).unwrap();
    check_table(&region, 16);
}

#[test]
fn the_last_orderly_detach_removes_the_name() {
    let trial = Trial::begin("the_last_orderly_detach_removes_the_name");
    let (name, file) = Leftover::region("unlink");
    let progress = Page::<[AtomicU64; 4]>::new();
    let work = |worker: Worker| {
        loop {
            let region = options()
                .unlink_at_last_detach(true)
                .attach_or_create(&name)
                .unwrap();
            use_region(&region);
            leave(region);
            progress[worker.seat].fetch_add(1, SeqCst);
        }
    };
    let mut storm = Storm::start(&trial, 3, work);
    let kills = trial.times(100);
    while storm.kills() < kills {
        storm.kill();
        storm.wait_for_progress(|seat| progress[seat].load(SeqCst));
    }
    storm.finish();
    if let Some(region) = visit(&name) {
        leave(region);
    }
    assert!(!file.path().exists(), "the name stayed");
}

#[test]
fn making_a_named_region_is_all_or_nothing_at_every_instruction() {
    let trial = Trial::begin("making_a_named_region_is_all_or_nothing_at_every_instruction");
    let (name, file) = Leftover::region("make");
    step::each_instruction_and_recovery(
        &trial,
        "make a named region",
        || (),
        |(), span| drop(span.run(|| options().create_named(&name))),
        |()| false,
        |(), span| drop(span.run(|| options().attach_or_create(&name))),
        |(), _| {
            let region = visit(&name);
            let outcome = step::done(region.is_some());
            region.into_iter().for_each(leave);
            let _ = std::fs::remove_file(file.path());
            // The name is free: nothing but the file stands for it.
            drop(options().create_named(&name).unwrap());
            assert!(matches!(
                options().create_named(&name),
                Err(CreateError::Exists)
            ));
            std::fs::remove_file(file.path()).unwrap();
            outcome
        },
    );
}

/// Its file has no name, and ends with the process; its address is free for the next one.
#[test]
fn a_killed_creator_of_an_anonymous_region_leaves_nothing_at_any_instruction() {
    let trial =
        Trial::begin("a_killed_creator_of_an_anonymous_region_leaves_nothing_at_any_instruction");
    let (label, _) = Leftover::region("anonymous");
    let create = || options().label(&label).create_anonymous().unwrap();
    // Files of this name; and memory files that this process has open: those of the regions that it made, and gave back.
    let files = || {
        let all = std::fs::read_dir("/dev/shm").unwrap().flatten();
        let named = all.filter(|file| file.file_name().to_string_lossy().contains(&label));
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = open.filter_map(|file| std::fs::read_link(file.path()).ok());
        let anonymous = links.filter(|link| link.to_string_lossy().contains(&label));
        named.count() + anonymous.count()
    };
    step::each_instruction_and_recovery(
        &trial,
        "make an anonymous region",
        || (),
        |(), span| drop(span.run(create)),
        |()| false,
        |(), span| drop(span.run(create)),
        |(), point| {
            assert_eq!(files(), 0, "killed at {point:?}");
            let region = create();
            use_region(&region);
            region.check_heap().unwrap();
            check_table(&region, 15);
            leave(region);
            assert_eq!(files(), 0, "killed at {point:?}: it was not given back");
            "nothing was left"
        },
    );
}

#[test]
fn attaching_and_leaving_are_recoverable_at_every_instruction() {
    let trial = Trial::begin("attaching_and_leaving_are_recoverable_at_every_instruction");
    let (name, file) = Leftover::region("steps");
    drop(options().max_tasks(3).create_named(&name).unwrap());
    let check = |(), _| {
        let report = inspect_path(file.path()).unwrap();
        let has_joined = !report.contents.unwrap().tasks.is_empty();
        let region = options().attach(&name).unwrap();
        check_table(&region, 3);
        use_region(&region);
        region.check_heap().unwrap();
        leave(region);
        match has_joined {
            true => "a dead task was left",
            false => "no task was left",
        }
    };
    // While another process has the region, no attach frees all slots as the only one.
    let attached = Page::<AtomicBool>::new();
    for has_other in [false, true] {
        let _other = has_other.then(|| {
            let other = Child::fork(|| {
                let _region = options().attach(&name).unwrap();
                attached.store(true, SeqCst);
                loop {
                    std::thread::park();
                }
            });
            trial.wait_until(|| attached.load(SeqCst));
            other
        });
        let label = |operation| match has_other {
            true => format!("{operation}, with another process"),
            false => String::from(operation),
        };
        step::each_instruction_and_recovery(
            &trial,
            &label("attach"),
            || (),
            |(), span| drop(span.run(|| options().attach(&name).unwrap())),
            |()| false,
            |(), span| {
                span.run(|| {
                    let region = options().attach(&name).unwrap();
                    use_region(&region);
                    leave(region);
                });
            },
            check,
        );
        step::each_instruction_and_recovery(
            &trial,
            &label("become a task"),
            || (),
            |(), span| {
                let region = options().attach(&name).unwrap();
                span.run(|| region.join("stepped").unwrap());
            },
            |()| false,
            |(), span| {
                span.run(|| {
                    let region = options().attach(&name).unwrap();
                    use_region(&region);
                    leave(region);
                });
            },
            check,
        );
        step::each_instruction_and_recovery(
            &trial,
            &label("leave"),
            || (),
            |(), span| {
                let region = options().attach(&name).unwrap();
                use_region(&region);
                span.run(|| leave(region));
            },
            |()| false,
            |(), span| {
                span.run(|| {
                    let region = options().attach(&name).unwrap();
                    use_region(&region);
                    leave(region);
                });
            },
            check,
        );
    }
}
