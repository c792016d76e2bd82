//! Named objects: what can be pinned, what panics leave behind, and what an inspector sees of their lock.
#![allow(unsafe_code)]

use latchwork::mutex::{Mutex, Robust, WaitWake};
use latchwork::region::inspect::{self, LockState};
use latchwork::region::{ObjectError, Region, RegionOptions, Shareable, each_pinned};
use latchwork::sharing::Shared;
use latchwork_testkit::{Child, Trial};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A small one.
fn region() -> Region {
    RegionOptions::new()
        .max_bytes(1 << 20)
        .create_anonymous()
        .unwrap()
}

/// `mem::replace` moves what a guard lends: it must not be pinned.
#[test]
fn only_a_whole_named_object_can_be_pinned() {
    let region = region();
    let object = region.object("object", || Mutex::robust(1u32)).unwrap();
    assert_eq!(*region.pin(object.get_ref()).lock().unwrap(), 1);
    let nested = region
        .object("nested", || {
            Mutex::<_, WaitWake<Shared>>::shared(Mutex::robust(7u64))
        })
        .unwrap();
    let mut guard = nested.lock();
    let pinned = catch_unwind(AssertUnwindSafe(|| {
        core::mem::forget(region.pin(&*guard).lock());
    }));
    assert!(pinned.is_err(), "a value behind a lock was pinned");
    drop(core::mem::replace(&mut *guard, Mutex::robust(8)));
}

#[test]
fn each_lock_of_an_array_can_be_used() {
    let region = region();
    let locks = region
        .object::<[Mutex<usize, Robust>; 5]>("locks", || [const { Mutex::robust(0) }; 5])
        .unwrap();
    for (index, lock) in each_pinned(locks).enumerate() {
        *lock.lock().unwrap() = index;
    }
    let sum: usize = each_pinned(locks).map(|lock| *lock.lock().unwrap()).sum();
    assert_eq!(sum, 10);
}

#[test]
fn an_object_whose_maker_panics_leaves_nothing() {
    let region = region();
    region.join("test").unwrap();
    let before = region.heap_stats().allocated_bytes;
    for _ in 0..100 {
        let made = catch_unwind(AssertUnwindSafe(|| {
            region.object::<[u64; 100]>("object", || resume_unwind(Box::new(())))
        }));
        assert!(made.is_err());
    }
    assert_eq!(region.heap_stats().allocated_bytes, before);
    assert!(matches!(
        region.find::<[u64; 100]>("object"),
        Err(ObjectError::NotFound)
    ));
    region.object("object", || [1u64; 100]).unwrap();
}

#[derive(Shareable)]
#[repr(C)]
struct Unwilling(u64);

impl Drop for Unwilling {
    fn drop(&mut self) {
        resume_unwind(Box::new(()));
    }
}

#[test]
#[allow(unsafe_code)]
fn an_object_whose_drop_panics_is_removed() {
    let region = region();
    region.join("test").unwrap();
    let before = region.heap_stats().allocated_bytes;
    region.object("object", || Unwilling(1)).unwrap();
    let removed = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: no task uses it.
        unsafe { region.remove::<Unwilling>("object") }
    }));
    assert!(removed.is_err());
    assert_eq!(region.heap_stats().allocated_bytes, before);
    region.object("object", || 5u32).unwrap();
}

/// The state of the directory's lock in the region of this label, as another process sees it.
fn directory_lock(label: &str) -> LockState {
    let survey = inspect::survey();
    let report = survey.regions.iter().find(|report| report.name == label);
    let contents = report.unwrap().contents.as_ref().unwrap();
    let mut locks = contents.locks.iter();
    locks.find(|lock| lock.name == "names").unwrap().state
}

#[test]
fn the_owner_of_the_directory_is_seen_alive_and_dead() {
    let _trial = Trial::begin("the_owner_of_the_directory_is_seen_alive_and_dead");
    let label = format!("directory {}", std::process::id());
    let region = RegionOptions::new()
        .max_bytes(1 << 20)
        .label(&label)
        .create_anonymous()
        .unwrap();
    region.join("test").unwrap();
    assert_eq!(directory_lock(&label), LockState::Free);
    // SAFETY: a system call without memory.
    let thread = unsafe { libc::gettid() } as u32;
    let mut seen = LockState::Free;
    let make = || {
        seen = directory_lock(&label);
        1u32
    };
    region.object("object", make).unwrap();
    assert_eq!(seen, LockState::Held { thread });
    assert_eq!(directory_lock(&label), LockState::Free);
    let mut victim = Child::fork(|| {
        let make = || -> u32 {
            // SAFETY: ends the calling process, which is a child of the test.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            unreachable!("killed")
        };
        region.object("next", make).unwrap();
    });
    victim.wait();
    assert_eq!(directory_lock(&label), LockState::OwnerDied);
    region.object("next", || 2u32).unwrap();
    assert_eq!(directory_lock(&label), LockState::Free);
}
