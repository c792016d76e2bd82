//! RTEMS's classic interface: see `include/classic.h`. Tasks are in `classic.c`, and so are the directives that may
//! wait: a task that is to end does so in a frame of C.
//!
//! Cancellation is disabled while Rust code runs: it opens files, for one, which libc would act upon a request in.
//!
//! `Option<&mut T>` is a pointer of C's: null, or to a place of the caller's that nobody else uses meanwhile.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::slice;
use core::sync::atomic::AtomicU32;
use core::time::Duration;
use latchwork::classic::{self, Classic, ClassicError, ClassicOptions, Id, Interval, Name, Status};
use latchwork::foreign;
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
    flags: u32,
}

/// `LW_CLASSIC_UNSCHEDULED`
const UNSCHEDULED: u32 = 1;

/// The table, and where it lies.
struct Made {
    table: Classic<'static>,
    region: &'static Region,
    /// Whether the kernel is to know the priorities of tasks.
    is_scheduled: bool,
}

static CLASSIC: OnceLock<Made> = OnceLock::new();
/// Of those who make it.
static MAKING: Mutex<()> = Mutex::new(());

fn make(options: Option<&Options>) -> Result<Made, c_int> {
    if std::env::var_os("LATCHWORK_CHECK").is_some() {
        latchwork::check::begin();
    }
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
    let table = Classic::create(region, &table).map_err(|error| match error {
        ClassicError::Object(_) => ENOMEM,
        _ => EINVAL,
    })?;
    Ok(Made {
        table,
        region,
        is_scheduled: options.is_none_or(|options| options.flags & UNSCHEDULED == 0),
    })
}

/// The table, which the first directive makes.
fn made() -> Result<&'static Made, Status> {
    if let Some(made) = CLASSIC.get() {
        return Ok(made);
    }
    let _making = MAKING.lock();
    if CLASSIC.get().is_none() {
        let made = make(None).map_err(|_| Status::InternalError)?;
        let _ = CLASSIC.set(made);
    }
    CLASSIC.get().ok_or(Status::InternalError)
}

fn table() -> Result<&'static Classic<'static>, Status> {
    made().map(|made| &made.table)
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}
const CANCEL_ENABLE: c_int = 0;
const CANCEL_DISABLE: c_int = 1;

/// The calling thread is not cancelled while this lives.
struct Undisturbed {
    before: c_int,
}

impl Undisturbed {
    fn begin() -> Self {
        let mut before = CANCEL_DISABLE;
        // SAFETY: a place for the state.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        // SAFETY: null: nobody wants to know. A request is not acted upon here, unless the thread has asked for that
        // at any instruction, and must not call a directive then.
        unsafe { pthread_setcancelstate(self.before, core::ptr::null_mut()) };
    }
}

fn with(directive: impl FnOnce(&'static Classic<'static>) -> Status) -> u32 {
    let _undisturbed = Undisturbed::begin();
    table().map_or_else(Status::code, |table| directive(table).code())
}

/// A directive that may wait: as long as the task is not to end.
fn with_wait(directive: impl FnOnce(&'static Classic<'static>) -> Status) -> u32 {
    let undisturbed = Undisturbed::begin();
    let is_to_hear = undisturbed.before == CANCEL_ENABLE;
    foreign::lend_stop_word(is_to_hear);
    let status = table().map_or_else(Status::code, |table| directive(table).code());
    foreign::lend_stop_word(false);
    status
}

/// The calling thread has become a task, which `stop` is to end; with a null pointer it is one no more.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_task_stops_by(stop: *const u32) {
    // SAFETY: the caller's, for as long as the thread is in directives; it is changed by atomic operations only.
    foreign::set_stop_word(unsafe { stop.cast::<AtomicU32>().as_ref() });
}

/// Has all who sleep in the region look again.
#[unsafe(no_mangle)]
extern "C" fn latchwork_classic_wake() {
    if let Some(made) = CLASSIC.get() {
        foreign::wake_sleepers(made.region);
    }
}

/// Whether the kernel is to know the priorities of tasks.
#[unsafe(no_mangle)]
extern "C" fn latchwork_classic_is_scheduled() -> c_int {
    let _undisturbed = Undisturbed::begin();
    made().is_ok_and(|made| made.is_scheduled).into()
}

#[unsafe(no_mangle)]
extern "C" fn lw_classic_configure(options: Option<&Options>) -> c_int {
    let Some(options) = options else {
        return EINVAL;
    };
    let _undisturbed = Undisturbed::begin();
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
    let _undisturbed = Undisturbed::begin();
    table().map_or(0, |table| table.tick().as_micros() as u64)
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
    // If there is none, none is to be cleared.
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

/// What `classic.c` makes `rtems_message_queue_construct` of.
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
    count: Option<&mut u32>,
) -> u32 {
    // SAFETY: the caller's.
    let message = unsafe { message(buffer, size) };
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
    let room = room.min(isize::MAX as usize);
    // SAFETY: the caller's: so many bytes, which nobody else uses.
    let buffer =
        (!buffer.is_null()).then(|| unsafe { slice::from_raw_parts_mut(buffer.cast(), room) });
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
    // As long as RTEMS wants it. An id that is none is told by the directive itself.
    let room = table()
        .ok()
        .and_then(|table| table.message_queue_max_message_size(id));
    // SAFETY: as there.
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
    let _undisturbed = Undisturbed::begin();
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
        let is_new = status == Status::Successful && new_priority != classic::CURRENT_PRIORITY;
        if is_new && CLASSIC.get().is_some_and(|made| made.is_scheduled) {
            return table.task_mirror(id, true);
        }
        status
    })
}
