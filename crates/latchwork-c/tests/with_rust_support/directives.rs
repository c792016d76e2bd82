//! RTEMS's own tables, run against the directives as C calls them.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use latchwork_testkit::Trial;
use latchwork_testkit::conformance::semaphores::{self, ClassicSemaphores};
use std::sync::Arc;

const CAPACITY: u16 = 8;

/// `struct lw_classic_options`.
#[repr(C)]
struct Options {
    region: *const c_char,
    memory: usize,
    semaphores: u16,
    message_queues: u16,
    microseconds_per_tick: u32,
    flags: u32,
    schedulers: *const Scheduler,
    scheduler_count: usize,
}

/// `struct lw_classic_scheduler`.
#[repr(C)]
struct Scheduler {
    name: u32,
    cpusetsize: usize,
    cpuset: *const c_void,
}

unsafe extern "C" {
    fn lw_classic_configure(options: *const Options) -> c_int;
    fn rtems_semaphore_create(
        name: u32,
        count: u32,
        attributes: u32,
        ceiling: u32,
        id: *mut u32,
    ) -> u32;
    fn rtems_semaphore_ident(name: u32, node: u32, id: *mut u32) -> u32;
    fn rtems_semaphore_delete(id: u32) -> u32;
    fn rtems_semaphore_obtain(id: u32, options: u32, timeout: u32) -> u32;
    fn rtems_semaphore_release(id: u32) -> u32;
    fn rtems_semaphore_flush(id: u32) -> u32;
    fn rtems_semaphore_set_priority(id: u32, scheduler: u32, new: u32, old: *mut u32) -> u32;
    fn rtems_task_self() -> u32;
    fn rtems_task_set_priority(id: u32, new: u32, old: *mut u32) -> u32;
}

fn pointer(place: Option<&mut u32>) -> *mut u32 {
    place.map_or(ptr::null_mut(), ptr::from_mut)
}

fn priority(task: u32, new: u32) -> u32 {
    let mut old = 0;
    // SAFETY: a place of its own.
    let status = unsafe { rtems_task_set_priority(task, new, &raw mut old) };
    assert_eq!(status, 0);
    old
}

struct Directives;

impl ClassicSemaphores for Directives {
    fn join(&self, own: u32) -> u64 {
        priority(0, own);
        // SAFETY: numbers, and places of the caller's, or null pointers.
        unsafe { rtems_task_self() }.into()
    }
    fn set_own_priority(&self, own: u32) {
        priority(0, own);
    }
    fn priority_of(&self, task: u64) -> u32 {
        priority(task as u32, 0)
    }
    fn create(&self, name: u32, count: u32, bits: u32, ceiling: u32, id: Option<&mut u32>) -> u32 {
        // SAFETY: numbers, and places of the caller's, or null pointers.
        unsafe { rtems_semaphore_create(name, count, bits, ceiling, pointer(id)) }
    }
    fn ident(&self, name: u32, id: Option<&mut u32>) -> u32 {
        // SAFETY: numbers, and places of the caller's, or null pointers.
        unsafe { rtems_semaphore_ident(name, 0, pointer(id)) }
    }
    fn delete(&self, id: u32) -> u32 {
        // SAFETY: numbers, and places of the caller's, or null pointers.
        unsafe { rtems_semaphore_delete(id) }
    }
    fn obtain(&self, id: u32, options: u32, ticks: u32) -> u32 {
        // SAFETY: numbers, and places of the caller's, or null pointers.
        unsafe { rtems_semaphore_obtain(id, options, ticks) }
    }
    fn release(&self, id: u32) -> u32 {
        // SAFETY: numbers, and places of the caller's, or null pointers.
        unsafe { rtems_semaphore_release(id) }
    }
    fn flush(&self, id: u32) -> u32 {
        // SAFETY: numbers, and places of the caller's, or null pointers.
        unsafe { rtems_semaphore_flush(id) }
    }
    fn set_priority(&self, id: u32, scheduler: u32, new: u32, old: Option<&mut u32>) -> u32 {
        // SAFETY: numbers, and places of the caller's, or null pointers.
        unsafe { rtems_semaphore_set_priority(id, scheduler, new, pointer(old)) }
    }
    fn scheduler(&self) -> u32 {
        0xf000_0001
    }
    fn capacity(&self) -> u32 {
        CAPACITY.into()
    }
}

#[test]
fn directives_of_c_conform_to_rtems_tables() {
    let _trial = Trial::begin("directives_of_c_conform_to_rtems_tables");
    let options = Options {
        region: ptr::null(),
        memory: 0,
        semaphores: CAPACITY,
        message_queues: 0,
        microseconds_per_tick: 1000,
        // The tables are about the recorded priorities.
        flags: 1,
        schedulers: ptr::null(),
        scheduler_count: 0,
    };
    // SAFETY: options that are there.
    assert_eq!(unsafe { lw_classic_configure(&raw const options) }, 0);
    semaphores::run(&Arc::new(Directives)).assert_passed();
}
