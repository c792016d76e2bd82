//! RTEMS's own tables, run against the directives as C calls them.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use latchwork_testkit::Trial;
use latchwork_testkit::conformance::semaphores::{self, ClassicSemaphores};
use std::sync::Arc;

const CAPACITY: u16 = 8;
const FIRST_SCHEDULER: u32 = 0xf000_0001;

/// Sets of one processor each that the test may use, at most three.
fn processors() -> Vec<libc::cpu_set_t> {
    // SAFETY: a set is an array of numbers.
    let empty: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    let mut allowed = empty;
    // SAFETY: the kernel writes at most as many bytes as the call passes, which is the size of the set.
    let error = unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &raw mut allowed) };
    assert_eq!(error, 0);
    // SAFETY: a number that a set has.
    let is_allowed = |processor: &usize| unsafe { libc::CPU_ISSET(*processor, &allowed) };
    let found = (0..libc::CPU_SETSIZE as usize).filter(is_allowed).take(3);
    found
        .map(|processor| {
            let mut set = empty;
            // SAFETY: a number that a set has.
            unsafe { libc::CPU_SET(processor, &mut set) };
            set
        })
        .collect()
}

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
    fn rtems_task_set_scheduler(id: u32, scheduler: u32, priority: u32) -> u32;
    fn rtems_scheduler_get_processor() -> u32;
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

struct Directives {
    schedulers: Vec<u32>,
}

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
        FIRST_SCHEDULER
    }
    fn schedulers(&self) -> Vec<u32> {
        self.schedulers.clone()
    }
    fn set_own_scheduler(&self, scheduler: u32, priority: u32) -> u32 {
        // SAFETY: numbers.
        unsafe { rtems_task_set_scheduler(0, scheduler, priority) }
    }
    fn processor(&self) -> u32 {
        // SAFETY: no preconditions.
        unsafe { rtems_scheduler_get_processor() }
    }
    fn capacity(&self) -> u32 {
        CAPACITY.into()
    }
}

#[test]
fn directives_of_c_conform_to_rtems_tables() {
    let _trial = Trial::begin("directives_of_c_conform_to_rtems_tables");
    let sets = processors();
    // Two or three schedulers with a processor each, and one without.
    let mut schedulers: Vec<Scheduler> = (1..)
        .zip(&sets)
        .map(|(name, set)| Scheduler {
            name,
            cpusetsize: size_of_val(set),
            cpuset: ptr::from_ref(set).cast(),
        })
        .collect();
    if schedulers.len() > 1 {
        schedulers.push(Scheduler {
            name: 4,
            cpusetsize: 0,
            cpuset: ptr::null(),
        });
    } else {
        schedulers.clear();
        println!("skipped: combinations with several schedulers (FewSchedulers): one processor");
    }
    let ids = (FIRST_SCHEDULER..).take(sets.len()).collect();
    let options = Options {
        region: ptr::null(),
        memory: 0,
        semaphores: CAPACITY,
        message_queues: 0,
        microseconds_per_tick: 1000,
        // The tables are about the recorded priorities.
        flags: 1,
        schedulers: schedulers.as_ptr(),
        scheduler_count: schedulers.len(),
    };
    // SAFETY: options that are there.
    assert_eq!(unsafe { lw_classic_configure(&raw const options) }, 0);
    semaphores::run(&Arc::new(Directives { schedulers: ids })).assert_passed();
}
