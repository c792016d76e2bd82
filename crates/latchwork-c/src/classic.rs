//! RTEMS's classic interface: see `include/classic.h`. Tasks are in `classic.c`, and so are the directives that may
//! wait, since a task that must end is unwound from a C frame.
//!
//! What a directive does that could act on a request for cancellation disables it itself: see `sys/cancellation.rs` of
//! `latchwork-sys`.
//!
//! `Option<&mut T>` is a pointer of C's: null, or to a variable of the caller's that nothing else uses during the call.
#![allow(unsafe_code)]

mod scheduler;
mod table;

use crate::{bytes, bytes_mut};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use latchwork::classic::{self, Classic, Id, Interval, Name, Status};
use latchwork::foreign::{self, ProcessMark, Undisturbed};
use table::{existing, made};

fn table() -> Result<&'static Classic<'static>, Status> {
    made().map(|made| &made.table)
}

fn with(directive: impl FnOnce(&'static Classic<'static>) -> Status) -> u32 {
    table().map_or_else(Status::code, |table| directive(table).code())
}

/// Runs a directive that may wait, unless the task must end.
fn with_wait(directive: impl FnOnce(&'static Classic<'static>) -> Status) -> u32 {
    foreign::enable_cancel_word(true);
    let status = table().map_or_else(Status::code, |table| directive(table).code());
    foreign::enable_cancel_word(false);
    status
}

/// The calling thread has become a task, which `stop` is to end; with a null pointer it is no longer a task.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_task_stops_by(stop: *const u32) {
    // SAFETY: the caller's variable exists as long as the thread calls directives; it is changed by atomic operations
    // only.
    foreign::set_cancel_word(unsafe { stop.cast::<AtomicU32>().as_ref() });
}

/// The process's mark; 0 if there is no memory.
#[unsafe(no_mangle)]
extern "C" fn latchwork_process_mark() -> u64 {
    ProcessMark::own().map_or(0, ProcessMark::number)
}

/// Wakes all tasks that sleep in the region, so that they check their conditions.
#[unsafe(no_mangle)]
extern "C" fn latchwork_classic_wake() {
    if let Some(made) = existing() {
        foreign::wake_sleepers(made.region.region());
    }
}

/// Passes a task's priority on to the kernel, if the process does that. If the kernel refuses, writes a line, once.
fn mirror(table: &Classic<'_>, id: Id) -> Status {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    if !existing().is_some_and(|made| made.is_scheduled) {
        return Status::Successful;
    }
    let status = table.task_mirror(id, true);
    if table.task_priority_is_refused(id) && !IS_REPORTED.swap(true, Ordering::Relaxed) {
        const LINE: &[u8] = b"latchwork: priorities of RTEMS tasks order their queues and are inherited, but the kernel \
            does not schedule by them: that takes CAP_SYS_NICE, or an RLIMIT_RTPRIO\n";
        let _undisturbed = Undisturbed::begin();
        // Not `std::io::stderr`: the child of a fork could wait for its lock for ever.
        // SAFETY: the bytes are readable.
        unsafe { libc::write(2, LINE.as_ptr().cast(), LINE.len()) };
    }
    status
}

/// The length of a tick in microseconds; 0 if there is no table.
#[unsafe(no_mangle)]
extern "C" fn latchwork_classic_tick() -> u64 {
    table().map_or(0, |table| table.tick().as_micros() as u64)
}

#[unsafe(no_mangle)]
extern "C" fn rtems_semaphore_create(
    name: Name,
    count: u32,
    attributes: u32,
    ceiling: u32,
    id: Option<&mut Id>,
) -> u32 {
    with(|table| table.semaphore_create(name, count, attributes, ceiling, id))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_semaphore_ident(name: Name, node: u32, id: Option<&mut Id>) -> u32 {
    with(|table| table.semaphore_ident(name, node, id))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_semaphore_delete(id: Id) -> u32 {
    with(|table| table.semaphore_delete(id))
}

#[unsafe(no_mangle)]
extern "C" fn latchwork_semaphore_obtain(id: Id, options: u32, timeout: Interval) -> u32 {
    with_wait(|table| table.semaphore_obtain(id, options, timeout))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_semaphore_release(id: Id) -> u32 {
    with(|table| table.semaphore_release(id))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_semaphore_flush(id: Id) -> u32 {
    with(|table| table.semaphore_flush(id))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_semaphore_set_priority(
    id: Id,
    scheduler: Id,
    new_priority: u32,
    old_priority: Option<&mut u32>,
) -> u32 {
    with(|table| table.semaphore_set_priority(id, scheduler, new_priority, old_priority))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_event_send(id: Id, event_in: u32) -> u32 {
    with(|table| table.event_send(id, event_in))
}

#[unsafe(no_mangle)]
extern "C" fn latchwork_event_receive(
    event_in: u32,
    options: u32,
    ticks: Interval,
    event_out: Option<&mut u32>,
) -> u32 {
    with_wait(|table| table.event_receive(event_in, options, ticks, event_out))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_event_system_send(id: Id, event_in: u32) -> u32 {
    with(|table| table.event_system_send(id, event_in))
}

#[unsafe(no_mangle)]
extern "C" fn latchwork_event_system_receive(
    event_in: u32,
    options: u32,
    ticks: Interval,
    event_out: Option<&mut u32>,
) -> u32 {
    with_wait(|table| table.event_system_receive(event_in, options, ticks, event_out))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_event_transient_send(id: Id) -> u32 {
    with(|table| table.event_system_send(id, classic::EVENT_SYSTEM_TRANSIENT))
}

fn receive_transient(options: u32, ticks: Interval) -> u32 {
    let mut received = 0;
    let event = classic::EVENT_SYSTEM_TRANSIENT;
    with_wait(|table| table.event_system_receive(event, options, ticks, Some(&mut received)))
}

#[unsafe(no_mangle)]
extern "C" fn latchwork_event_transient_receive(options: u32, ticks: Interval) -> u32 {
    receive_transient(options, ticks)
}

#[unsafe(no_mangle)]
extern "C" fn rtems_event_transient_clear() {
    // If there is no transient event, there is none to clear.
    receive_transient(classic::NO_WAIT, 0);
}

#[unsafe(no_mangle)]
extern "C" fn rtems_message_queue_create(
    name: Name,
    count: u32,
    max_message_size: usize,
    attributes: u32,
    id: Option<&mut Id>,
) -> u32 {
    with(|table| table.message_queue_create(name, count, max_message_size, attributes, id))
}

/// The part of `rtems_message_queue_construct` that `classic.c` calls.
#[unsafe(no_mangle)]
extern "C" fn latchwork_message_queue_construct(
    name: Name,
    count: u32,
    max_message_size: usize,
    attributes: u32,
    storage_size: usize,
    id: Option<&mut Id>,
) -> u32 {
    with(|table| {
        table.message_queue_construct(name, count, max_message_size, attributes, storage_size, id)
    })
}

#[unsafe(no_mangle)]
extern "C" fn rtems_message_queue_ident(name: Name, node: u32, id: Option<&mut Id>) -> u32 {
    with(|table| table.message_queue_ident(name, node, id))
}

#[unsafe(no_mangle)]
extern "C" fn latchwork_message_queue_delete(id: Id) -> u32 {
    with(|table| table.message_queue_delete(id))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_message_queue_send(id: Id, buffer: *const c_void, size: usize) -> u32 {
    // SAFETY: by the directive's contract the buffer has `size` readable bytes.
    let message = unsafe { bytes(buffer, size) };
    with(|table| table.message_queue_send(id, message))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_message_queue_urgent(id: Id, buffer: *const c_void, size: usize) -> u32 {
    // SAFETY: by the directive's contract the buffer has `size` readable bytes.
    let message = unsafe { bytes(buffer, size) };
    with(|table| table.message_queue_urgent(id, message))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_message_queue_broadcast(
    id: Id,
    buffer: *const c_void,
    size: usize,
    count: Option<&mut u32>,
) -> u32 {
    // SAFETY: by the directive's contract the buffer has `size` readable bytes.
    let message = unsafe { bytes(buffer, size) };
    with(|table| table.message_queue_broadcast(id, message, count))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_message_queue_receive(
    id: Id,
    buffer: *mut c_void,
    room: usize,
    size: Option<&mut usize>,
    options: u32,
    timeout: Interval,
) -> u32 {
    // SAFETY: by the function's contract the buffer has `room` bytes, which nothing else uses.
    let buffer = unsafe { bytes_mut(buffer, room) };
    with_wait(|table| table.message_queue_receive(id, buffer, size, options, timeout))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_rtems_message_queue_receive(
    id: Id,
    buffer: *mut c_void,
    size: Option<&mut usize>,
    options: u32,
    timeout: Interval,
) -> u32 {
    // RTEMS requires a buffer for the longest message. For an invalid id the directive itself returns the error.
    let room = table()
        .ok()
        .and_then(|table| table.message_queue_max_message_size(id));
    // SAFETY: by the directive's contract the buffer has room for the queue's longest message.
    unsafe {
        latchwork_message_queue_receive(id, buffer, room.unwrap_or(0), size, options, timeout)
    }
}

#[unsafe(no_mangle)]
extern "C" fn rtems_message_queue_get_number_pending(id: Id, count: Option<&mut u32>) -> u32 {
    with(|table| table.message_queue_get_number_pending(id, count))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_message_queue_flush(id: Id, count: Option<&mut u32>) -> u32 {
    with(|table| table.message_queue_flush(id, count))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_task_self() -> Id {
    table().map_or(0, |table| table.task_self())
}

#[unsafe(no_mangle)]
extern "C" fn rtems_task_set_priority(
    id: Id,
    new_priority: u32,
    old_priority: Option<&mut u32>,
) -> u32 {
    with(|table| {
        let status = table.task_set_priority(id, new_priority, old_priority);
        match status {
            Status::Successful if new_priority != classic::CURRENT_PRIORITY => mirror(table, id),
            status => status,
        }
    })
}
