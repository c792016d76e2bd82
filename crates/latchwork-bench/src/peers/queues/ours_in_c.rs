//! Latchwork's queue, through its C interface.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::io;
use std::ptr::{self, NonNull};

use latchwork_c as _;

use super::{CAPACITY, MessageQueue, Receives, Sends};

unsafe extern "C" {
    fn lw_queue_create(
        queue: *mut *mut c_void,
        region: *mut c_void,
        name: *const c_char,
        capacity: u32,
        max_message: u32,
        order: c_uint,
    ) -> c_int;
    fn lw_queue_close(queue: *mut c_void) -> c_int;
    fn lw_queue_send(
        queue: *mut c_void,
        message: *const c_void,
        bytes: usize,
        priority: c_uint,
    ) -> c_int;
    fn lw_queue_receive(
        queue: *mut c_void,
        buffer: *mut c_void,
        room: usize,
        bytes: *mut usize,
        priority: *mut c_uint,
    ) -> c_int;
}

fn check(error: c_int) -> io::Result<()> {
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Copied in and out.
pub(crate) struct InC(NonNull<c_void>);

// SAFETY: threads may share a handle.
unsafe impl Send for InC {}
// SAFETY: as for `Send`.
unsafe impl Sync for InC {}

impl MessageQueue for InC {
    type Sender<'a> = End<'a>;
    type Receiver<'a> = End<'a>;

    fn make(size: usize) -> io::Result<Self> {
        let mut queue = ptr::null_mut();
        let (capacity, size) = (CAPACITY as u32, size as u32);
        // SAFETY: a queue of the process's own, and of those that are forked, needs no name.
        check(unsafe {
            lw_queue_create(
                &raw mut queue,
                ptr::null_mut(),
                ptr::null(),
                capacity,
                size,
                0,
            )
        })?;
        Ok(Self(NonNull::new(queue).ok_or(io::ErrorKind::OutOfMemory)?))
    }

    fn sender(&self) -> io::Result<End<'_>> {
        Ok(End(self))
    }

    fn receiver(&self) -> io::Result<End<'_>> {
        Ok(End(self))
    }
}

impl Drop for InC {
    fn drop(&mut self) {
        // SAFETY: no end is left.
        unsafe { lw_queue_close(self.0.as_ptr()) };
    }
}

pub(crate) struct End<'a>(&'a InC);

impl Sends for End<'_> {
    fn send(&mut self, message: &[u8], times: u64) -> io::Result<()> {
        let queue = self.0.0.as_ptr();
        // SAFETY: a message of that length.
        (0..times).try_for_each(|_| unsafe {
            check(lw_queue_send(
                queue,
                message.as_ptr().cast(),
                message.len(),
                0,
            ))
        })
    }
}

impl Receives for End<'_> {
    fn receive(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()> {
        let (queue, room) = (self.0.0.as_ptr(), buffer.len());
        let (mut bytes, mut priority) = (0, 0);
        // SAFETY: a buffer of that length, and places for the results.
        (0..times).try_for_each(|_| unsafe {
            let buffer = buffer.as_mut_ptr().cast();
            check(lw_queue_receive(
                queue,
                buffer,
                room,
                &raw mut bytes,
                &raw mut priority,
            ))
        })
    }
}
