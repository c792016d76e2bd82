//! Queues: see `include/latchwork/queue.h`. Points in time and cancellation are in `queue.c`.
//!
//! A handle lends its region's handle, so C cannot give up the region while the queue is open; `'static` stands for that.
#![allow(unsafe_code)]

mod in_hand;

use crate::failure::{Invalid, Number, call, failed, given, store};
use crate::region::{Handle as RegionHandle, Lent, name, text};
use core::ffi::{c_char, c_int, c_void};
use core::ptr::{self, NonNull};
use core::slice;
use latchwork::queue::{
    Discipline, Priority, Queue, QueueOptions, Rank, ReceiveError, SendError, Wait, Watch,
};
use latchwork::region::{self, Region, RegionOptions};
use latchwork::time::Deadline;
use libc::{EMSGSIZE, iovec};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

/// What a queue of the process's own needs in addition to its messages: tables, and partly used spans.
const TABLES: u64 = 4 << 20;
/// What a message needs in addition to its bytes, at most.
const PER_MESSAGE: u64 = 128;

/// `lw_queue_t`
pub struct Handle {
    /// Before the region, which it uses.
    watch: OnceLock<Watch>,
    queue: Queue<'static>,
    _region: Lent,
    own: Option<Box<RegionHandle>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The watch's thread uses the queue.
        drop(self.watch.take());
        if self.own.is_some() {
            let _ = self.queue.delete();
        }
    }
}

/// A priority of C's.
const URGENT: u32 = 65_536;
const BROADCAST: u32 = 65_537;

fn priority_of(rank: Option<Rank>) -> u32 {
    match rank {
        Some(Rank::Priority(priority)) => priority.get().into(),
        Some(Rank::Urgent) => URGENT,
        None => BROADCAST,
    }
}

impl Handle {
    fn with_priority(&self, priority: u32) -> Result<Queue<'static>, Invalid> {
        if priority == URGENT {
            return Ok(self.queue.urgent());
        }
        let priority = u16::try_from(priority).ok().and_then(Priority::new);
        let invalid = Invalid("a priority is 0 to 32767, or LW_QUEUE_URGENT");
        Ok(self.queue.with_priority(priority.ok_or(invalid)?))
    }
}

fn wait_of(how: u32, deadline: u64) -> Wait {
    match how {
        0 => Wait::Forever,
        1 => Wait::Not,
        _ => Wait::Until(Deadline::from_nanoseconds(deadline)),
    }
}

/// Bytes of C's.
///
/// # Safety
/// `bytes` is null, or points to so many readable bytes, which nothing changes during the call.
unsafe fn bytes_of<'a>(bytes: *const c_void, count: usize) -> Result<&'a [u8], Invalid> {
    match NonNull::new(bytes.cast_mut()) {
        None if count == 0 => Ok(&[]),
        // SAFETY: by the caller's contract. No slice is longer than the address space allows.
        Some(bytes) => Ok(unsafe {
            slice::from_raw_parts(bytes.as_ptr().cast(), count.min(isize::MAX as usize))
        }),
        None => Err(Invalid("the message is NULL")),
    }
}

/// Stores a handle on a queue of this region.
///
/// # Safety
/// The region's handle is not given up while the queue is open.
unsafe fn open(
    to: &mut *mut Handle,
    region: &RegionHandle,
    own: Option<Box<RegionHandle>>,
    open: impl FnOnce(&'static Region) -> Result<Queue<'static>, Number>,
) -> Result<(), Number> {
    // SAFETY: by the caller's contract; a queue of the process's own keeps its region's handle.
    let (lent, region) = unsafe { (region.lend(), &*ptr::from_ref(region.region())) };
    let handle = Handle {
        watch: OnceLock::new(),
        queue: open(region)?,
        _region: lent,
        own,
    };
    *to = Box::into_raw(Box::new(handle));
    Ok(())
}

// Each function gets strings from C that end in NUL, handles that C has not given up, and memory as the header says.

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_queue_create(
    to: Option<&mut *mut Handle>,
    region: Option<&RegionHandle>,
    queue_name: *const c_char,
    capacity: u32,
    max_message: u32,
    order: u32,
) -> c_int {
    call(|| {
        let to = given(to)?;
        let discipline = match order {
            0 => Discipline::Racing,
            1 => Discipline::Fifo,
            2 => Discipline::Priority,
            _ => return Err(Invalid("there is no such order of receivers").into()),
        };
        let options = QueueOptions::new(capacity, max_message).discipline(discipline);
        // SAFETY: see above.
        unsafe {
            if let Some(region) = region {
                let name = name(queue_name)?;
                return open(to, region, None, |region| {
                    Ok(Queue::create(region, name, &options)?)
                });
            }
            let name = text(queue_name)?.unwrap_or("queue");
            let messages = u64::from(capacity) * (u64::from(max_message) + PER_MESSAGE);
            let own = RegionOptions::new()
                .label(name)
                .max_bytes(2 * messages + TABLES)
                .create_anonymous()?;
            let own = Box::new(RegionHandle::new(own));
            let region: *const RegionHandle = &raw const *own;
            open(to, &*region, Some(own), |region| {
                Ok(Queue::create(region, name, &options)?)
            })
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_queue_open(
    to: Option<&mut *mut Handle>,
    region: Option<&RegionHandle>,
    queue_name: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: see above.
        unsafe {
            let (to, name) = (given(to)?, name(queue_name)?);
            open(to, given(region)?, None, |region| {
                Ok(Queue::open(region, name)?)
            })
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_queue_close(handle: *mut Handle) -> c_int {
    call(|| {
        let handle = given(NonNull::new(handle))?;
        // SAFETY: see above; made by `open`, and no other thread uses a handle that is given up.
        drop(unsafe { Box::from_raw(handle.as_ptr()) });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_queue_delete(handle: Option<&Handle>) -> c_int {
    call(|| Ok(given(handle)?.queue.delete()?))
}

/// `struct lw_queue_state`
#[repr(C)]
struct State {
    capacity: u32,
    max_message: u32,
    ready: u32,
    in_flight: u32,
    redelivered: u64,
}

#[unsafe(no_mangle)]
extern "C" fn lw_queue_get_state(handle: Option<&Handle>, state: Option<&mut State>) -> c_int {
    call(|| {
        let (queue, state) = (given(handle)?.queue, given(state)?);
        let (ready, in_flight) = queue.ready_and_in_flight()?;
        *state = State {
            capacity: queue.capacity(),
            max_message: queue.max_message(),
            ready,
            in_flight,
            redelivered: queue.redelivered(),
        };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_queue_flush(handle: Option<&Handle>, count: Option<&mut u32>) -> c_int {
    call(|| {
        store(count, given(handle)?.queue.flush()?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_queue_send(
    handle: Option<&Handle>,
    message: *const c_void,
    count: usize,
    priority: u32,
    how: u32,
    deadline: u64,
) -> c_int {
    call(|| {
        let queue = given(handle)?.with_priority(priority)?;
        // SAFETY: see above.
        let message = unsafe { bytes_of(message, count) }?;
        Ok(queue.send_within(message, wait_of(how, deadline))?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_queue_broadcast(
    handle: Option<&Handle>,
    message: *const c_void,
    count: usize,
    receivers: Option<&mut u32>,
) -> c_int {
    call(|| {
        // SAFETY: see above.
        let message = unsafe { bytes_of(message, count) }?;
        store(receivers, given(handle)?.queue.broadcast(message)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_queue_receive(
    handle: Option<&Handle>,
    buffer: *mut c_void,
    room: usize,
    count: Option<&mut usize>,
    priority: Option<&mut u32>,
    how: u32,
    deadline: u64,
) -> c_int {
    call(|| {
        let queue = given(handle)?.queue;
        let buffer = match NonNull::new(buffer.cast::<u8>()) {
            None if room == 0 => &mut [],
            // SAFETY: see above.
            Some(buffer) => unsafe {
                slice::from_raw_parts_mut(buffer.as_ptr(), room.min(isize::MAX as usize))
            },
            None => return Err(Invalid("the buffer is NULL").into()),
        };
        let received = match priority {
            None => queue.receive_within(buffer, wait_of(how, deadline)),
            Some(priority) => receive_with_priority(queue, buffer, wait_of(how, deadline)).map(
                |(length, received)| {
                    *priority = received;
                    length
                },
            ),
        };
        match received {
            Ok(length) | Err(ReceiveError::BufferTooSmall { bytes: length, .. }) => {
                store(count, length);
            }
            Err(_) => {}
        }
        received?;
        Ok(())
    })
}

/// The length and the priority of a message, which is copied from its place.
fn receive_with_priority(
    queue: Queue<'_>,
    to: &mut [u8],
    wait: Wait,
) -> Result<(usize, u32), ReceiveError> {
    let held = queue.receive_held_within(wait)?;
    let (bytes, buffer) = (held.len(), to.len());
    let Some(place) = to.get_mut(..bytes) else {
        // A broadcast message is the receiver's own copy.
        if held.rank().is_some() {
            held.give_back();
        }
        return Err(ReceiveError::BufferTooSmall { bytes, buffer });
    };
    place.copy_from_slice(&held);
    Ok((bytes, priority_of(held.rank())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_queue_send_block(
    handle: Option<&Handle>,
    block: *mut c_void,
    count: usize,
    priority: u32,
    how: u32,
    deadline: u64,
) -> c_int {
    call(|| {
        let queue = given(handle)?.with_priority(priority)?;
        let block = given(NonNull::new(block.cast::<u8>()))?;
        let inner = queue.region().inner();
        let address = block.addr().get();
        if !inner.has_block_at(address, 1) {
            return Err(Number::from(SendError::OtherRegion));
        }
        if !inner.has_block_at(address, count) {
            return Err(Number(failed(EMSGSIZE, "the block is shorter than that")));
        }
        // SAFETY: a block of the region that belongs to the caller. Its bytes are initialised: zero since the region was
        // made, or written by a task since.
        let bytes = unsafe { region::Box::of_block(block, count, inner) };
        queue
            .send_block(bytes, wait_of(how, deadline))
            .map_err(|refused| -> Number {
                // It stays the caller's.
                let _ = inner.block_of(refused.bytes);
                refused.error.into()
            })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_queue_receive_block(
    handle: Option<&Handle>,
    block: Option<&mut *mut c_void>,
    count: Option<&mut usize>,
    how: u32,
    deadline: u64,
) -> c_int {
    call(|| {
        let (handle, block) = (given(handle)?, given(block)?);
        let received = handle.queue.receive_block(wait_of(how, deadline))?;
        store(count, received.len());
        let inner = handle.queue.region().inner();
        *block = inner.block_of(received).0.as_ptr().cast();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_queue_send_batch(
    handle: Option<&Handle>,
    messages: *const iovec,
    count: u32,
    priority: u32,
    sent: Option<&mut u32>,
    how: u32,
    deadline: u64,
) -> c_int {
    call(|| {
        let queue = given(handle)?.with_priority(priority)?;
        if messages.is_null() && count != 0 {
            return Err(Invalid("the messages are NULL").into());
        }
        let messages: Vec<&[u8]> = (0..count as usize)
            .map(|index| {
                // SAFETY: see above.
                unsafe {
                    let message = &*messages.add(index);
                    bytes_of(message.iov_base, message.iov_len)
                }
            })
            .collect::<Result<_, _>>()?;
        store(
            sent,
            queue.send_batch(&messages, wait_of(how, deadline))? as u32,
        );
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_queue_fd(handle: Option<&Handle>, file: Option<&mut c_int>) -> c_int {
    call(|| {
        let (handle, file) = (given(handle)?, given(file)?);
        if handle.watch.get().is_none() {
            // Of two threads that come at the same time, one's watch ends again.
            let _ = handle.watch.set(handle.queue.watch()?);
        }
        *file = given(handle.watch.get())?.as_raw_fd();
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_queue_clear(handle: Option<&Handle>) -> c_int {
    call(|| {
        let watch = given(handle)?.watch.get();
        watch
            .ok_or(Invalid("lw_queue_fd() has not been called"))?
            .clear();
        Ok(())
    })
}
