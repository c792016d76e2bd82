//! Regions come and go in a process, and nothing that may still lead there is left dangling.
//!
//! What ends badly if it fails runs in a child process.

use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use latchwork::completion::Completion;
use latchwork::mutex::{Mutex, Robust};
use latchwork::region::{Region, RegionOptions, Vec};
use latchwork::sharing::Shared;
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Leftover, Trial};
use std::sync::Barrier;

fn options() -> RegionOptions {
    RegionOptions::new()
        .max_bytes(1 << 20)
        .max_tasks(8)
        .max_names(8)
}

fn region() -> Region {
    options().create_anonymous().unwrap()
}

static OUTSIDE: Mutex<u32, Robust> = Mutex::robust(0);

/// Walks and changes the calling thread's robust list.
fn use_robust_list() {
    *Pin::static_ref(&OUTSIDE).lock().unwrap() += 1;
}

/// Takes a robust lock of the region for ever.
fn forget_a_guard(region: &Region) {
    let lock = region.object("lock", || Mutex::robust(7u64)).unwrap();
    core::mem::forget(lock.lock().unwrap());
}

/// The same in a thread that is no task of the region.
fn forget_a_guard_as_no_task(region: &Region) {
    let lock = region.object("lock", || Mutex::robust(7u64)).unwrap();
    region.clone().detach().unwrap();
    core::mem::forget(lock.lock().unwrap());
}

#[test]
fn a_lookup_never_finds_an_unmapped_region() {
    let trial = Trial::begin("a_lookup_never_finds_an_unmapped_region");
    Child::fork(|| {
        static WORD: Completion<Shared> = Completion::shared();
        let _hooks = region();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // A thread that is about to sleep on a shared word asks whether a region contains it.
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    let _ = WORD.wait_until(Deadline::after(core::time::Duration::ZERO));
                }
            });
            for _ in 0..trial.times(3000) {
                drop(region());
            }
            stop.store(true, SeqCst);
        });
    })
    .succeed();
}

#[test]
fn threads_that_attach_and_drop_one_region_do_not_get_in_each_others_way() {
    let trial =
        Trial::begin("threads_that_attach_and_drop_one_region_do_not_get_in_each_others_way");
    let (name, _file) = Leftover::region("threads");
    drop(options().create_named(&name).unwrap());
    Child::fork(|| {
        let turn = Barrier::new(3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..trial.times(200) {
                        turn.wait();
                        for _ in 0..5 {
                            let region = options().attach(&name).unwrap();
                            region.object("count", || Mutex::robust(0u32)).unwrap();
                            region.detach().unwrap();
                        }
                    }
                });
            }
        });
    })
    .succeed();
}

#[test]
fn the_lock_of_a_forgotten_guard_stays_mapped_though_its_thread_is_no_task() {
    let _trial =
        Trial::begin("the_lock_of_a_forgotten_guard_stays_mapped_though_its_thread_is_no_task");
    Child::fork(|| {
        let region = region();
        forget_a_guard_as_no_task(&region);
        drop(region);
        use_robust_list();
    })
    .succeed();
}

#[test]
fn the_lock_of_another_threads_forgotten_guard_stays_mapped() {
    let _trial = Trial::begin("the_lock_of_another_threads_forgotten_guard_stays_mapped");
    Child::fork(|| {
        let region = region();
        let (forgotten, dropped) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            let handle = region.clone();
            let (forgotten, dropped) = (&forgotten, &dropped);
            scope.spawn(move || {
                forget_a_guard_as_no_task(&handle);
                drop(handle);
                forgotten.wait();
                dropped.wait();
                use_robust_list();
            });
            forgotten.wait();
            drop(region);
            dropped.wait();
        });
    })
    .succeed();
}

#[test]
fn a_thread_that_ends_with_forgotten_guards_leaves_its_other_regions_in_order() {
    let _trial =
        Trial::begin("a_thread_that_ends_with_forgotten_guards_leaves_its_other_regions_in_order");
    Child::fork(|| {
        std::thread::spawn(|| {
            let (other, holding) = (region(), region());
            other.join("thread").unwrap();
            forget_a_guard(&holding);
            drop(holding);
        })
        .join()
        .unwrap();
    })
    .succeed();
}

#[test]
fn a_thread_uses_any_number_of_regions_one_after_the_other() {
    let _trial = Trial::begin("a_thread_uses_any_number_of_regions_one_after_the_other");
    Child::fork(|| {
        for _ in 0..100 {
            region().object("object", || Mutex::robust(0u32)).unwrap();
        }
        for _ in 0..100 {
            let region = region();
            Vec::new_in(&region).push(0u8).unwrap();
        }
    })
    .succeed();
}

#[test]
fn the_limit_on_file_sizes_is_an_error_and_no_signal() {
    let _trial = Trial::begin("the_limit_on_file_sizes_is_an_error_and_no_signal");
    Child::fork(|| {
        let region = options().max_bytes(64 << 20).create_anonymous().unwrap();
        let limit = rustix::process::Rlimit {
            current: Some(8 << 20),
            maximum: None,
        };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
        let block = core::alloc::Layout::new::<[u8; 1 << 20]>();
        let blocks = (0..64)
            .take_while(|_| region.allocate(block).is_ok())
            .count();
        assert!((1..8).contains(&blocks), "{blocks}");
        let large = options().max_bytes(1 << 36).create_anonymous();
        assert!(large.is_err());
    })
    .succeed();
}
