//! Snapshots of a process whose allocator is in use by another thread at that moment.
//!
//! The allocator of this program tells: in a copy of the process it hangs, as the usual one does
//! where a thread that is not in the copy has its lock.
#![allow(unsafe_code)]

mod coproc_support;

use coproc_support::{children, isolated, region};
use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicI32, Ordering};
use latchwork::coproc::{Attributes, Outcome, SpawnError};
use std::alloc::System;

/// The process that may allocate; 0 for all.
static ALONE: AtomicI32 = AtomicI32::new(0);

struct Held;

fn pass() {
    let alone = ALONE.load(Ordering::Relaxed);
    // SAFETY: none of the calls has preconditions.
    while alone != 0 && unsafe { libc::getpid() } != alone {
        // SAFETY: as above.
        unsafe { libc::usleep(1000) };
    }
}

// SAFETY: the system's allocator.
unsafe impl GlobalAlloc for Held {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        pass();
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        pass();
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Held = Held;

/// Runs `body` while no copy of this process can allocate.
fn held<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: has no preconditions.
    ALONE.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    let result = body();
    ALONE.store(0, Ordering::Relaxed);
    result
}

#[test]
fn a_snapshot_starts_and_ends_while_the_allocator_is_in_use() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        let (_read, write) = std::io::pipe().unwrap();
        let attributes = Attributes::new().name("copy").descriptor(write);
        // SAFETY: the closure uses nothing.
        let coproc = held(|| unsafe { coprocs.snapshot(|| 7, &attributes) }.unwrap());
        assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(7));
    });
}

#[test]
fn a_snapshot_that_hangs_before_it_starts_is_killed() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        let before = children().len();
        // It starts a thread, and so allocates.
        let attributes = Attributes::new().die_with_parent();
        // SAFETY: the closure uses nothing.
        let refused = held(|| unsafe { coprocs.snapshot(|| 7, &attributes) });
        assert!(matches!(refused, Err(SpawnError::Stuck)), "{refused:?}");
        coproc_support::until(|| {
            latchwork::coproc::reap_ended();
            children().len() == before
        });
        // SAFETY: as above.
        let coproc = unsafe { coprocs.snapshot(|| 8, &attributes) }.unwrap();
        assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(8));
    });
}
