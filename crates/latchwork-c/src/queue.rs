//! Queues: see `include/latchwork/queue.h`. Points in time and cancellation are in `queue.c`.
//!
//! A handle lends its region's handle, so C cannot give up the region while the queue is open, nor the queue while one of
//! its messages is in hand; `'static` stands for both.
#![allow(unsafe_code)]

mod in_hand;

use crate::failure::{Invalid, Number, call, call_often, failed, given, store};
use crate::region::{Handle as RegionHandle, Lent, TABLES, name, text};
use crate::{bytes, bytes_mut, how_of};
use core::ffi::{c_char, c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::foreign::Blocking;
use latchwork::queue::{
    Discipline, Priority, Queue, QueueOptions, Rank, ReceiveError, SendError, Wait, Watch,
};
use latchwork::region::{self, Region, RegionOptions};
use libc::{EBUSY, EMSGSIZE, EPERM, iovec};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

/// What a message needs in addition to its bytes, at most.
const PER_MESSAGE: u64 = 128;

/// `lw_queue_t`
///
/// Fields are dropped in this order: each uses those behind it.
pub struct Handle {
    /// Its thread uses the queue.
    watch: OnceLock<Watch>,
    queue: Queue<'static>,
    /// How many messages and batches are in hand by this handle.
    in_hand: AtomicU32,
    _region: Lent,
    _own: Option<Own>,
}

/// The region of a queue of the process's own, which C does not know.
struct Own(NonNull<RegionHandle>);

// SAFETY: a handle is shared by threads, and any of them may give it up.
unsafe impl Send for Own {}
// SAFETY: as for `Send`.
unsafe impl Sync for Own {}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: only the queue's handle used it, and this is the last of its fields.
        unsafe { RegionHandle::give_up(self.0) };
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
    match how_of(how, deadline) {
        Blocking::Try => Wait::Not,
        Blocking::Until(deadline) => Wait::Until(deadline),
        _ => Wait::Forever,
    }
}

/// A message of C's, which may be null if it is empty.
///
/// # Safety
/// As for [`bytes`].
unsafe fn message<'a>(message: *const c_void, count: usize) -> Result<&'a [u8], Invalid> {
    // SAFETY: by the caller's contract.
    match unsafe { bytes(message, count) } {
        None if count == 0 => Ok(&[]),
        message => message.ok_or(Invalid("the message is NULL")),
    }
}

/// Stores a handle on a queue of this region.
///
/// # Safety
/// C has not given up the region's handle, or it is `own`.
unsafe fn open(
    to: &mut *mut Handle,
    region: NonNull<RegionHandle>,
    own: Option<Own>,
    open: impl FnOnce(&'static Region) -> Result<Queue<'static>, Number>,
) -> Result<(), Number> {
    // SAFETY: by the caller's contract the handle exists; from now on it is lent, until the queue's handle is dropped.
    let (lent, region) = unsafe { RegionHandle::lend(region) }?;
    let handle = Handle {
        watch: OnceLock::new(),
        queue: open(region)?,
        in_hand: AtomicU32::new(0),
        _region: lent,
        _own: own,
    };
    *to = Box::into_raw(Box::new(handle));
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_queue_create(
    to: Option<&mut *mut Handle>,
    region: *mut RegionHandle,
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
        if let Some(region) = NonNull::new(region) {
            // SAFETY: C passes a string that ends in NUL, and a region's handle that it has not given up.
            return unsafe {
                let name = name(queue_name)?;
                open(to, region, None, |region| {
                    Ok(Queue::create(region, name, &options)?)
                })
            };
        }
        // SAFETY: C passes null, or a string that ends in NUL.
        let name = unsafe { text(queue_name) }?.unwrap_or("queue");
        // Saturating: what is too much for a region is refused as that.
        let messages = u64::from(capacity).saturating_mul(u64::from(max_message) + PER_MESSAGE);
        let own = RegionOptions::new()
            .label(name)
            .max_bytes(messages.saturating_mul(2).saturating_add(TABLES))
            .create_anonymous()?;
        let region = RegionHandle::new(own);
        // SAFETY: the region's handle is made here, and given up with the queue's.
        unsafe {
            open(to, region, Some(Own(region)), |region| {
                Ok(Queue::create(region, name, &options)?)
            })
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_queue_open(
    to: Option<&mut *mut Handle>,
    region: *mut RegionHandle,
    queue_name: *const c_char,
) -> c_int {
    call(|| {
        let (to, region) = (given(to)?, given(NonNull::new(region))?);
        // SAFETY: C passes null or a string that ends in NUL, and a region's handle that it has not given up.
        unsafe {
            let name = name(queue_name)?;
            open(to, region, None, |region| Ok(Queue::open(region, name)?))
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_queue_close(handle: *mut Handle) -> c_int {
    call(|| {
        let handle = given(NonNull::new(handle))?;
        // SAFETY: `open` made it, and C has not given it up before. Acquire: pairs with the Release of the last message's
        // end.
        if unsafe { handle.as_ref() }.in_hand.load(Ordering::Acquire) != 0 {
            let text = "messages of the queue are in hand by this handle";
            return Err(Number(failed(EBUSY, text)));
        }
        // SAFETY: as above; no message uses it, and no other thread uses a handle that C gives up.
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
    call_often(|| {
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
    call_often(|| {
        store(count, given(handle)?.queue.flush()?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_queue_send(
    handle: Option<&Handle>,
    bytes: *const c_void,
    count: usize,
    priority: u32,
    how: u32,
    deadline: u64,
) -> c_int {
    call_often(|| {
        let queue = given(handle)?.with_priority(priority)?;
        // SAFETY: C passes so many bytes, which nothing changes during the call.
        let message = unsafe { message(bytes, count) }?;
        Ok(queue.send_within(message, wait_of(how, deadline))?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_queue_broadcast(
    handle: Option<&Handle>,
    bytes: *const c_void,
    count: usize,
    receivers: Option<&mut u32>,
) -> c_int {
    call_often(|| {
        // SAFETY: C passes so many bytes, which nothing changes during the call.
        let message = unsafe { message(bytes, count) }?;
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
    call_often(|| {
        let queue = &given(handle)?.queue;
        // SAFETY: C passes a buffer of so many bytes, which nothing else uses during the call.
        let buffer = match unsafe { bytes_mut(buffer, room) } {
            None if room == 0 => &mut [],
            buffer => buffer.ok_or(Invalid("the buffer is NULL"))?,
        };
        let received = queue.receive_within(buffer, wait_of(how, deadline));
        match received {
            Ok((length, rank)) => {
                store(count, length);
                store(priority, priority_of(rank));
            }
            Err(ReceiveError::BufferTooSmall { bytes, .. }) => store(count, bytes),
            Err(_) => {}
        }
        received?;
        Ok(())
    })
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
    call_often(|| {
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
    call_often(|| {
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
    call_often(|| {
        let queue = given(handle)?.with_priority(priority)?;
        if messages.is_null() && count != 0 {
            return Err(Invalid("the messages are NULL").into());
        }
        let messages: Vec<&[u8]> = (0..count as usize)
            .map(|index| {
                // SAFETY: C passes an array of so many messages, each of so many bytes, which nothing changes meanwhile.
                unsafe {
                    let part = &*messages.add(index);
                    message(part.iov_base, part.iov_len)
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
        *file = watch_of(handle)?.as_raw_fd();
        Ok(())
    })
}

/// The watch of a handle, if it watches in this process.
fn watch_of(handle: &Handle) -> Result<&Watch, Number> {
    let watch = handle.watch.get();
    let watch = watch.ok_or(Invalid("lw_queue_fd() has not been called"))?;
    match watch.is_of_this_process() {
        true => Ok(watch),
        false => Err(Number(failed(
            EPERM,
            "the parent's thread watches the queue",
        ))),
    }
}

#[unsafe(no_mangle)]
extern "C" fn lw_queue_clear(handle: Option<&Handle>) -> c_int {
    call_often(|| {
        watch_of(given(handle)?)?.clear();
        Ok(())
    })
}
