//! The directives about schedulers and processors.
//!
//! `Option<&mut T>` is a pointer of C's, as in `classic.rs`.
#![allow(unsafe_code)]

use super::{mirror, table, with};
use crate::{bytes, bytes_mut};
use core::ffi::c_void;
use latchwork::classic::{Id, Name, Status};

#[unsafe(no_mangle)]
extern "C" fn rtems_task_get_scheduler(id: Id, scheduler: Option<&mut Id>) -> u32 {
    with(|table| table.task_get_scheduler(id, scheduler))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_task_set_scheduler(id: Id, scheduler: Id, priority: u32) -> u32 {
    with(|table| {
        let status = table.task_set_scheduler(id, scheduler, priority);
        match status {
            Status::Successful => mirror(table, id),
            status => status,
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_task_get_affinity(id: Id, size: usize, set: *mut c_void) -> u32 {
    // SAFETY: by the directive's contract the set has `size` bytes, which nothing else uses.
    let set = unsafe { bytes_mut(set, size) };
    with(|table| table.task_get_affinity(id, set))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_task_set_affinity(id: Id, size: usize, set: *const c_void) -> u32 {
    // SAFETY: by the directive's contract the set has `size` readable bytes.
    let set = unsafe { bytes(set, size) };
    with(|table| table.task_set_affinity(id, set))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_scheduler_ident(name: Name, id: Option<&mut Id>) -> u32 {
    with(|table| table.scheduler_ident(name, id))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_scheduler_ident_by_processor(processor: u32, id: Option<&mut Id>) -> u32 {
    with(|table| table.scheduler_ident_by_processor(processor, id))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_scheduler_ident_by_processor_set(
    size: usize,
    set: *const c_void,
    id: Option<&mut Id>,
) -> u32 {
    // SAFETY: by the directive's contract the set has `size` readable bytes.
    let set = unsafe { bytes(set, size) };
    with(|table| table.scheduler_ident_by_processor_set(set, id))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_scheduler_get_maximum_priority(
    scheduler: Id,
    priority: Option<&mut u32>,
) -> u32 {
    with(|table| table.scheduler_get_maximum_priority(scheduler, priority))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_scheduler_get_processor_set(
    scheduler: Id,
    size: usize,
    set: *mut c_void,
) -> u32 {
    // SAFETY: by the directive's contract the set has `size` bytes, which nothing else uses.
    let set = unsafe { bytes_mut(set, size) };
    with(|table| table.scheduler_get_processor_set(scheduler, set))
}

/// 0 if there is no table.
#[unsafe(no_mangle)]
extern "C" fn rtems_scheduler_get_processor() -> u32 {
    table().map_or(0, |table| table.scheduler_get_processor())
}

/// 1 if there is no table.
#[unsafe(no_mangle)]
extern "C" fn rtems_scheduler_get_processor_maximum() -> u32 {
    table().map_or(1, |table| table.scheduler_get_processor_maximum())
}
