//! RTEMS's classic interface: see `include/classic.h`. Tasks are in `classic.c`.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::slice;
use core::time::Duration;
use latchwork::classic::{self, Classic, ClassicError, ClassicOptions, Id, Interval, Name, Status};
use latchwork::mutex::Mutex;
use latchwork::region::{Region, RegionOptions};
use libc::{EBUSY, EINVAL, ENOMEM};
use std::sync::OnceLock;

const MEMORY: u64 = 16 << 20;

/// `struct lw_classic_options`.
#[repr(C)]
struct Options {
    region: *const c_char,
    memory: usize,
    semaphores: u16,
    message_queues: u16,
    microseconds_per_tick: u32,
}

static CLASSIC: OnceLock<Classic<'static>> = OnceLock::new();
/// Of those who make it.
static MAKING: Mutex<()> = Mutex::new(());

fn make(options: Option<&Options>) -> Result<Classic<'static>, c_int> {
    let mut table = ClassicOptions::new();
    let mut region = RegionOptions::new().max_bytes(MEMORY).label("classic");
    let mut name = None;
    if let Some(options) = options {
        if options.memory != 0 {
            region = region.max_bytes(options.memory as u64);
        }
        if options.semaphores != 0 {
            table = table.semaphores(options.semaphores);
        }
        if options.message_queues != 0 {
            table = table.message_queues(options.message_queues);
        }
        if options.microseconds_per_tick != 0 {
            table = table.tick(Duration::from_micros(options.microseconds_per_tick.into()));
        }
        if !options.region.is_null() {
            // SAFETY: a string of the caller's.
            name = Some(unsafe { CStr::from_ptr(options.region) });
        }
    }
    let region = match name {
        None => region.create_anonymous().map_err(|_| ENOMEM)?,
        Some(name) => {
            let name = name.to_str().map_err(|_| EINVAL)?;
            region.attach_or_create(name).map_err(|_| EINVAL)?
        }
    };
    // For as long as the process: ids may be used at any time.
    let region: &'static Region = Box::leak(Box::new(region));
    Classic::create(region, &table).map_err(|error| match error {
        ClassicError::Object(_) => ENOMEM,
        _ => EINVAL,
    })
}

/// The table, which the first directive makes.
fn table() -> Result<&'static Classic<'static>, Status> {
    if let Some(table) = CLASSIC.get() {
        return Ok(table);
    }
    let _making = MAKING.lock();
    if CLASSIC.get().is_none() {
        let made = make(None).map_err(|_| Status::InternalError)?;
        let _ = CLASSIC.set(made);
    }
    CLASSIC.get().ok_or(Status::InternalError)
}

fn with(directive: impl FnOnce(&'static Classic<'static>) -> Status) -> u32 {
    table().map_or_else(Status::code, |table| directive(table).code())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_classic_configure(options: *const Options) -> c_int {
    // SAFETY: the caller's, or null.
    let Some(options) = (unsafe { options.as_ref() }) else {
        return EINVAL;
    };
    let _making = MAKING.lock();
    if CLASSIC.get().is_some() {
        return EBUSY;
    }
    match make(Some(options)) {
        Ok(made) => {
            let _ = CLASSIC.set(made);
            0
        }
        Err(error) => error,
    }
}

/// Microseconds of a tick; 0 if there is no table.
#[unsafe(no_mangle)]
extern "C" fn latchwork_classic_tick() -> u64 {
    table().map_or(0, |table| table.tick().as_micros() as u64)
}

/// What the caller lends, or nothing where it gave a null pointer.
///
/// # Safety
/// It can be written to, if it is not null.
unsafe fn out<'a, T>(place: *mut T) -> Option<&'a mut T> {
    // SAFETY: by the caller's contract.
    unsafe { place.as_mut() }
}

/// A message of the caller's.
///
/// # Safety
/// So many bytes can be read there, if it is not null.
unsafe fn message<'a>(buffer: *const c_void, size: usize) -> Option<&'a [u8]> {
    // SAFETY: by the caller's contract. No slice is longer than the address space allows.
    (!buffer.is_null())
        .then(|| unsafe { slice::from_raw_parts(buffer.cast(), size.min(isize::MAX as usize)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_semaphore_create(
    name: Name,
    count: u32,
    attributes: u32,
    ceiling: u32,
    id: *mut Id,
) -> u32 {
    // SAFETY: the caller's, here and below.
    let id = unsafe { out(id) };
    with(|table| table.semaphore_create(name, count, attributes, ceiling, id))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_semaphore_ident(name: Name, node: u32, id: *mut Id) -> u32 {
    // SAFETY: the caller's.
    let id = unsafe { out(id) };
    with(|table| table.semaphore_ident(name, node, id))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_semaphore_delete(id: Id) -> u32 {
    with(|table| table.semaphore_delete(id))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_semaphore_obtain(id: Id, options: u32, timeout: Interval) -> u32 {
    with(|table| table.semaphore_obtain(id, options, timeout))
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
unsafe extern "C" fn rtems_semaphore_set_priority(
    id: Id,
    scheduler: Id,
    new_priority: u32,
    old_priority: *mut u32,
) -> u32 {
    // SAFETY: the caller's.
    let old = unsafe { out(old_priority) };
    with(|table| table.semaphore_set_priority(id, scheduler, new_priority, old))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_event_send(id: Id, event_in: u32) -> u32 {
    with(|table| table.event_send(id, event_in))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_event_receive(
    event_in: u32,
    options: u32,
    ticks: Interval,
    event_out: *mut u32,
) -> u32 {
    // SAFETY: the caller's.
    let event_out = unsafe { out(event_out) };
    with(|table| table.event_receive(event_in, options, ticks, event_out))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_event_system_send(id: Id, event_in: u32) -> u32 {
    with(|table| table.event_system_send(id, event_in))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_event_system_receive(
    event_in: u32,
    options: u32,
    ticks: Interval,
    event_out: *mut u32,
) -> u32 {
    // SAFETY: the caller's.
    let event_out = unsafe { out(event_out) };
    with(|table| table.event_system_receive(event_in, options, ticks, event_out))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_event_transient_send(id: Id) -> u32 {
    with(|table| table.event_system_send(id, classic::EVENT_SYSTEM_TRANSIENT))
}

fn receive_transient(options: u32, ticks: Interval) -> u32 {
    let mut received = 0;
    let event = classic::EVENT_SYSTEM_TRANSIENT;
    with(|table| table.event_system_receive(event, options, ticks, Some(&mut received)))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_event_transient_receive(options: u32, ticks: Interval) -> u32 {
    receive_transient(options, ticks)
}

#[unsafe(no_mangle)]
extern "C" fn rtems_event_transient_clear() {
    // If there is none, none is to be cleared.
    receive_transient(classic::NO_WAIT, 0);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_message_queue_create(
    name: Name,
    count: u32,
    max_message_size: usize,
    attributes: u32,
    id: *mut Id,
) -> u32 {
    // SAFETY: the caller's.
    let id = unsafe { out(id) };
    with(|table| table.message_queue_create(name, count, max_message_size, attributes, id))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_message_queue_ident(name: Name, node: u32, id: *mut Id) -> u32 {
    // SAFETY: the caller's.
    let id = unsafe { out(id) };
    with(|table| table.message_queue_ident(name, node, id))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_message_queue_delete(id: Id) -> u32 {
    with(|table| table.message_queue_delete(id))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_message_queue_send(id: Id, buffer: *const c_void, size: usize) -> u32 {
    // SAFETY: the caller's.
    let message = unsafe { message(buffer, size) };
    with(|table| table.message_queue_send(id, message))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_message_queue_urgent(id: Id, buffer: *const c_void, size: usize) -> u32 {
    // SAFETY: the caller's.
    let message = unsafe { message(buffer, size) };
    with(|table| table.message_queue_urgent(id, message))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_message_queue_broadcast(
    id: Id,
    buffer: *const c_void,
    size: usize,
    count: *mut u32,
) -> u32 {
    // SAFETY: the caller's.
    let (message, count) = unsafe { (message(buffer, size), out(count)) };
    with(|table| table.message_queue_broadcast(id, message, count))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_message_queue_receive(
    id: Id,
    buffer: *mut c_void,
    room: usize,
    size: *mut usize,
    options: u32,
    timeout: Interval,
) -> u32 {
    // SAFETY: the caller's: so many bytes, which nobody else uses.
    let (buffer, size) = unsafe {
        let room = room.min(isize::MAX as usize);
        let buffer = (!buffer.is_null()).then(|| slice::from_raw_parts_mut(buffer.cast(), room));
        (buffer, out(size))
    };
    with(|table| table.message_queue_receive(id, buffer, size, options, timeout))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_message_queue_receive(
    id: Id,
    buffer: *mut c_void,
    size: *mut usize,
    options: u32,
    timeout: Interval,
) -> u32 {
    // As long as RTEMS wants it. An id that is none is told by the directive itself.
    let room = table()
        .ok()
        .and_then(|table| table.message_queue_max_message_size(id));
    // SAFETY: as there.
    unsafe { lw_message_queue_receive(id, buffer, room.unwrap_or(0), size, options, timeout) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_message_queue_get_number_pending(id: Id, count: *mut u32) -> u32 {
    // SAFETY: the caller's.
    let count = unsafe { out(count) };
    with(|table| table.message_queue_get_number_pending(id, count))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_message_queue_flush(id: Id, count: *mut u32) -> u32 {
    // SAFETY: the caller's.
    let count = unsafe { out(count) };
    with(|table| table.message_queue_flush(id, count))
}

#[unsafe(no_mangle)]
extern "C" fn rtems_task_self() -> Id {
    table().map_or(0, |table| table.task_self())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtems_task_set_priority(
    id: Id,
    new_priority: u32,
    old_priority: *mut u32,
) -> u32 {
    // SAFETY: the caller's.
    let old = unsafe { out(old_priority) };
    with(|table| table.task_set_priority(id, new_priority, old))
}
