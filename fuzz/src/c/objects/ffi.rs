//! The functions of `latchwork/region.h` and `latchwork/queue.h`.

use core::ffi::{c_char, c_int, c_void};

#[repr(C)]
pub struct Options {
    pub max_bytes: u64,
    pub max_tasks: u32,
    pub max_names: u32,
    pub mode: u32,
    pub flags: u32,
    pub address: *mut c_void,
    pub label: *const c_char,
}

#[repr(C)]
pub struct Message {
    pub data: *mut c_void,
    pub bytes: usize,
    pub priority: u32,
    pub deliveries: u32,
    pub opaque: [u64; 12],
}

#[repr(C)]
pub struct Batch {
    pub count: u32,
    pub opaque: [u64; 13],
}

pub type Handle = *mut c_void;

unsafe extern "C" {
    pub fn lw_region_create(
        region: *mut Handle,
        name: *const c_char,
        options: *const Options,
    ) -> c_int;
    pub fn lw_region_attach(
        region: *mut Handle,
        name: *const c_char,
        options: *const Options,
    ) -> c_int;
    pub fn lw_region_attach_fd(region: *mut Handle, fd: c_int, options: *const Options) -> c_int;
    pub fn lw_region_unlink(name: *const c_char) -> c_int;
    pub fn lw_region_detach(region: Handle) -> c_int;
    pub fn lw_region_base(region: Handle) -> *mut c_void;
    pub fn lw_region_max_bytes(region: Handle) -> u64;
    pub fn lw_region_fd(region: Handle) -> c_int;
    pub fn lw_region_join(region: Handle, name: *const c_char) -> c_int;
    pub fn lw_region_alloc(region: Handle, bytes: usize) -> *mut c_void;
    pub fn lw_region_zalloc(region: Handle, bytes: usize) -> *mut c_void;
    pub fn lw_region_aligned_alloc(region: Handle, alignment: usize, bytes: usize) -> *mut c_void;
    pub fn lw_region_free(region: Handle, block: *mut c_void);
    pub fn lw_region_keep(region: Handle, block: *mut c_void) -> c_int;
    pub fn lw_region_trim(region: Handle, freed: *mut usize) -> c_int;
    pub fn lw_region_heap_stats(region: Handle, stats: *mut [u64; 3]) -> c_int;
    pub fn lw_region_object(
        region: Handle,
        name: *const c_char,
        kind: u64,
        bytes: usize,
        make: Option<extern "C" fn(*mut c_void, *mut c_void)>,
        argument: *mut c_void,
        object: *mut *mut c_void,
    ) -> c_int;
    pub fn lw_region_find(
        region: Handle,
        name: *const c_char,
        kind: u64,
        bytes: usize,
        object: *mut *mut c_void,
    ) -> c_int;
    pub fn lw_region_remove(region: Handle, name: *const c_char, kind: u64, bytes: usize) -> c_int;
    pub fn lw_queue_create(
        queue: *mut Handle,
        region: Handle,
        name: *const c_char,
        capacity: u32,
        max_message: u32,
        order: u32,
    ) -> c_int;
    pub fn lw_queue_open(queue: *mut Handle, region: Handle, name: *const c_char) -> c_int;
    pub fn lw_queue_close(queue: Handle) -> c_int;
    pub fn lw_queue_delete(queue: Handle) -> c_int;
    pub fn lw_queue_get_state(queue: Handle, state: *mut [u32; 6]) -> c_int;
    pub fn lw_queue_flush(queue: Handle, count: *mut u32) -> c_int;
    pub fn lw_queue_trysend(
        queue: Handle,
        message: *const c_void,
        bytes: usize,
        priority: u32,
    ) -> c_int;
    pub fn lw_queue_timedsend(
        queue: Handle,
        message: *const c_void,
        bytes: usize,
        priority: u32,
        time: *const libc::timespec,
    ) -> c_int;
    pub fn lw_queue_clockreceive(
        queue: Handle,
        buffer: *mut c_void,
        room: usize,
        bytes: *mut usize,
        priority: *mut u32,
        clock: c_int,
        time: *const libc::timespec,
    ) -> c_int;
    pub fn lw_queue_tryreceive(
        queue: Handle,
        buffer: *mut c_void,
        room: usize,
        bytes: *mut usize,
        priority: *mut u32,
    ) -> c_int;
    pub fn lw_queue_broadcast(
        queue: Handle,
        message: *const c_void,
        bytes: usize,
        receivers: *mut u32,
    ) -> c_int;
    pub fn lw_queue_reserve(
        queue: Handle,
        message: *mut Message,
        priority: u32,
        time: *const libc::timespec,
    ) -> c_int;
    pub fn lw_message_send(message: *mut Message, bytes: usize) -> c_int;
    pub fn lw_message_cancel(message: *mut Message) -> c_int;
    pub fn lw_queue_hold(
        queue: Handle,
        message: *mut Message,
        time: *const libc::timespec,
    ) -> c_int;
    pub fn lw_message_done(message: *mut Message) -> c_int;
    pub fn lw_message_give_back(message: *mut Message) -> c_int;
    pub fn lw_queue_send_block(
        queue: Handle,
        block: *mut c_void,
        bytes: usize,
        priority: u32,
        time: *const libc::timespec,
    ) -> c_int;
    pub fn lw_queue_receive_block(
        queue: Handle,
        block: *mut *mut c_void,
        bytes: *mut usize,
        time: *const libc::timespec,
    ) -> c_int;
    pub fn lw_queue_send_batch(
        queue: Handle,
        messages: *const libc::iovec,
        count: u32,
        priority: u32,
        sent: *mut u32,
        time: *const libc::timespec,
    ) -> c_int;
    pub fn lw_queue_hold_batch(
        queue: Handle,
        batch: *mut Batch,
        messages: *mut libc::iovec,
        most: u32,
        time: *const libc::timespec,
    ) -> c_int;
    pub fn lw_batch_done(batch: *mut Batch) -> c_int;
    pub fn lw_batch_give_back(batch: *mut Batch) -> c_int;
    pub fn lw_queue_clear(queue: Handle) -> c_int;
    pub fn lw_error_text() -> *const c_char;
}
