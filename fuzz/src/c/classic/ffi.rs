//! The functions of `classic.h`.

use core::ffi::{c_char, c_int, c_void};

#[repr(C)]
pub struct Options {
    pub region: *const c_char,
    pub memory: usize,
    pub semaphores: u16,
    pub message_queues: u16,
    pub microseconds_per_tick: u32,
    pub flags: u32,
    pub schedulers: *const c_void,
    pub scheduler_count: usize,
}

#[repr(C)]
pub struct Config {
    pub name: u32,
    pub maximum_pending_messages: u32,
    pub maximum_message_size: usize,
    pub storage_area: *mut c_void,
    pub storage_size: usize,
    pub storage_free: Option<extern "C" fn(*mut c_void)>,
    pub attributes: u32,
}

unsafe extern "C" {
    pub fn lw_classic_configure(options: *const Options) -> c_int;
    pub fn lw_classic_ticks(milliseconds: u64) -> u32;
    pub fn rtems_semaphore_create(
        name: u32,
        count: u32,
        attributes: u32,
        ceiling: u32,
        id: *mut u32,
    ) -> u32;
    pub fn rtems_semaphore_ident(name: u32, node: u32, id: *mut u32) -> u32;
    pub fn rtems_semaphore_delete(id: u32) -> u32;
    pub fn rtems_semaphore_obtain(id: u32, options: u32, timeout: u32) -> u32;
    pub fn rtems_semaphore_release(id: u32) -> u32;
    pub fn rtems_semaphore_flush(id: u32) -> u32;
    pub fn rtems_semaphore_set_priority(id: u32, scheduler: u32, new: u32, old: *mut u32) -> u32;
    pub fn rtems_event_send(id: u32, events: u32) -> u32;
    pub fn rtems_event_receive(events: u32, options: u32, ticks: u32, out: *mut u32) -> u32;
    pub fn rtems_event_system_send(id: u32, events: u32) -> u32;
    pub fn rtems_event_system_receive(events: u32, options: u32, ticks: u32, out: *mut u32) -> u32;
    pub fn rtems_event_transient_send(id: u32) -> u32;
    pub fn rtems_event_transient_receive(options: u32, ticks: u32) -> u32;
    pub fn rtems_event_transient_clear();
    pub fn rtems_message_queue_create(
        name: u32,
        count: u32,
        size: usize,
        attributes: u32,
        id: *mut u32,
    ) -> u32;
    pub fn rtems_message_queue_construct(config: *const Config, id: *mut u32) -> u32;
    pub fn rtems_message_queue_ident(name: u32, node: u32, id: *mut u32) -> u32;
    pub fn rtems_message_queue_delete(id: u32) -> u32;
    pub fn rtems_message_queue_send(id: u32, buffer: *const c_void, size: usize) -> u32;
    pub fn rtems_message_queue_urgent(id: u32, buffer: *const c_void, size: usize) -> u32;
    pub fn rtems_message_queue_broadcast(
        id: u32,
        buffer: *const c_void,
        size: usize,
        count: *mut u32,
    ) -> u32;
    pub fn rtems_message_queue_receive(
        id: u32,
        buffer: *mut c_void,
        size: *mut usize,
        options: u32,
        timeout: u32,
    ) -> u32;
    pub fn lw_message_queue_receive(
        id: u32,
        buffer: *mut c_void,
        room: usize,
        size: *mut usize,
        options: u32,
        timeout: u32,
    ) -> u32;
    pub fn rtems_message_queue_get_number_pending(id: u32, count: *mut u32) -> u32;
    pub fn rtems_message_queue_flush(id: u32, count: *mut u32) -> u32;
    pub fn rtems_task_create(
        name: u32,
        priority: u32,
        stack: usize,
        modes: u32,
        attributes: u32,
        id: *mut u32,
    ) -> u32;
    pub fn rtems_task_ident(name: u32, node: u32, id: *mut u32) -> u32;
    pub fn rtems_task_start(id: u32, entry: Option<extern "C" fn(usize)>, argument: usize) -> u32;
    pub fn rtems_task_delete(id: u32) -> u32;
    pub fn rtems_task_self() -> u32;
    pub fn rtems_task_set_priority(id: u32, new: u32, old: *mut u32) -> u32;
    pub fn rtems_task_get_scheduler(id: u32, scheduler: *mut u32) -> u32;
    pub fn rtems_task_set_scheduler(id: u32, scheduler: u32, priority: u32) -> u32;
    pub fn rtems_task_get_affinity(id: u32, size: usize, set: *mut c_void) -> u32;
    pub fn rtems_task_set_affinity(id: u32, size: usize, set: *const c_void) -> u32;
    pub fn rtems_task_wake_after(ticks: u32) -> u32;
    pub fn rtems_scheduler_ident(name: u32, id: *mut u32) -> u32;
    pub fn rtems_scheduler_ident_by_processor(index: u32, id: *mut u32) -> u32;
    pub fn rtems_scheduler_ident_by_processor_set(
        size: usize,
        set: *const c_void,
        id: *mut u32,
    ) -> u32;
    pub fn rtems_scheduler_get_maximum_priority(id: u32, priority: *mut u32) -> u32;
    pub fn rtems_scheduler_get_processor_set(id: u32, size: usize, set: *mut c_void) -> u32;
    pub fn rtems_status_text(status: u32) -> *const c_char;
}
