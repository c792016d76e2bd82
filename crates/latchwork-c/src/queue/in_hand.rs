//! Messages in the hands of one thread: `lw_message_t` and `lw_batch_t`, which lie in C's memory. Each says which task has
//! it, so that no other ends it.
#![allow(unsafe_code)]

use super::{Handle, priority_of, wait_of};
use crate::failure::{Invalid, Number, call_often, failed, given};
use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, size_of};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use latchwork::foreign;
use latchwork::queue::{Message, Messages, Reservation};
use libc::{EPERM, iovec};

/// What a thread has in hand.
enum InHand {
    Reserved(Reservation<'static>),
    Held(Message<'static>),
    Batch(Messages<'static>),
}

impl InHand {
    fn reserved(self) -> Result<Reservation<'static>, Self> {
        match self {
            Self::Reserved(place) => Ok(place),
            other => Err(other),
        }
    }

    fn held(self) -> Result<Message<'static>, Self> {
        match self {
            Self::Held(held) => Ok(held),
            other => Err(other),
        }
    }

    fn batch(self) -> Result<Messages<'static>, Self> {
        match self {
            Self::Batch(held) => Ok(held),
            other => Err(other),
        }
    }
}

/// What `lw_message_t` and `lw_batch_t` contain: C does not look into it.
#[repr(C)]
struct Flight {
    /// The stamp of the task that has it in hand; 0: it has ended.
    task: u32,
    /// By which handle: C cannot give it up meanwhile.
    handle: NonNull<Handle>,
    what: MaybeUninit<InHand>,
}

impl Flight {
    fn begin(handle: &Handle, what: InHand) -> Self {
        // Relaxed: nothing is handed over by the count's growth.
        handle.in_hand.fetch_add(1, Ordering::Relaxed);
        Self {
            task: foreign::task_stamp(),
            handle: NonNull::from(handle),
            what: MaybeUninit::new(what),
        }
    }

    /// Ends it by `end`, if it is in the calling task's hands and is what `take` is for.
    fn end<T, R>(
        &mut self,
        take: fn(InHand) -> Result<T, InHand>,
        end: impl FnOnce(T) -> R,
    ) -> Result<R, Number> {
        if self.task == 0 {
            return Err(Invalid("the message has ended").into());
        }
        if self.task != foreign::task_stamp() {
            let text = "another task has the message in hand";
            return Err(Number(failed(EPERM, text)));
        }
        // SAFETY: `task` says that it is there.
        match take(unsafe { self.what.assume_init_read() }) {
            Ok(taken) => {
                self.task = 0;
                let ended = end(taken);
                // SAFETY: the handle was not given up, since this message was in hand. Release: pairs with the Acquire in
                // `lw_queue_close`.
                let in_hand = unsafe { &self.handle.as_ref().in_hand };
                in_hand.fetch_sub(1, Ordering::Release);
                Ok(ended)
            }
            Err(other) => {
                self.what.write(other);
                Err(Invalid("this call does not end such a message").into())
            }
        }
    }
}

/// `lw_message_t`
#[repr(C)]
struct CMessage {
    data: *mut c_void,
    bytes: usize,
    priority: u32,
    deliveries: u32,
    flight: Flight,
}

/// `lw_batch_t`
#[repr(C)]
struct CBatch {
    count: u32,
    flight: Flight,
}

const _: () = assert!(size_of::<CMessage>() <= 120 && align_of::<CMessage>() == 8);
const _: () = assert!(size_of::<CBatch>() <= 112 && align_of::<CBatch>() == 8);

#[unsafe(no_mangle)]
extern "C" fn latchwork_queue_reserve(
    handle: Option<&Handle>,
    message: Option<&mut MaybeUninit<CMessage>>,
    priority: u32,
    how: u32,
    deadline: u64,
) -> c_int {
    call_often(|| {
        let (message, handle) = (given(message)?, given(handle)?);
        let mut place = (handle.with_priority(priority)?).reserve(wait_of(how, deadline))?;
        message.write(CMessage {
            data: place.as_mut_ptr().cast(),
            bytes: place.len(),
            priority,
            deliveries: 0,
            flight: Flight::begin(handle, InHand::Reserved(place)),
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_message_send(message: Option<&mut CMessage>, count: usize) -> c_int {
    call_often(|| {
        let flight = &mut given(message)?.flight;
        Ok(flight.end(InHand::reserved, |place| place.commit(count))??)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_message_cancel(message: Option<&mut CMessage>) -> c_int {
    call_often(|| {
        let flight = &mut given(message)?.flight;
        flight.end(InHand::reserved, drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn latchwork_queue_hold(
    handle: Option<&Handle>,
    message: Option<&mut MaybeUninit<CMessage>>,
    how: u32,
    deadline: u64,
) -> c_int {
    call_often(|| {
        let (message, handle) = (given(message)?, given(handle)?);
        let held = handle.queue.receive_held_within(wait_of(how, deadline))?;
        message.write(CMessage {
            data: held.as_ptr().cast_mut().cast(),
            bytes: held.len(),
            priority: priority_of(held.rank()),
            deliveries: held.deliveries(),
            flight: Flight::begin(handle, InHand::Held(held)),
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_message_done(message: Option<&mut CMessage>) -> c_int {
    call_often(|| {
        let flight = &mut given(message)?.flight;
        flight.end(InHand::held, Message::done)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_message_give_back(message: Option<&mut CMessage>) -> c_int {
    call_often(|| {
        let flight = &mut given(message)?.flight;
        flight.end(InHand::held, Message::give_back)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_queue_hold_batch(
    handle: Option<&Handle>,
    batch: Option<&mut MaybeUninit<CBatch>>,
    messages: *mut iovec,
    most: u32,
    how: u32,
    deadline: u64,
) -> c_int {
    call_often(|| {
        let (handle, batch) = (given(handle)?, given(batch)?);
        if messages.is_null() || most == 0 {
            return Err(Invalid("there is no room for a message").into());
        }
        let held = handle.queue.receive_batch(most, wait_of(how, deadline))?;
        for (index, message) in held.iter().enumerate() {
            // SAFETY: C passes an array with room for `most` of them.
            unsafe {
                messages.add(index).write(iovec {
                    iov_base: message.as_ptr().cast_mut().cast(),
                    iov_len: message.len(),
                });
            }
        }
        batch.write(CBatch {
            count: held.len() as u32,
            flight: Flight::begin(handle, InHand::Batch(held)),
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_batch_done(batch: Option<&mut CBatch>) -> c_int {
    call_often(|| {
        let flight = &mut given(batch)?.flight;
        flight.end(InHand::batch, drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_batch_give_back(batch: Option<&mut CBatch>) -> c_int {
    call_often(|| {
        let flight = &mut given(batch)?.flight;
        flight.end(InHand::batch, Messages::give_back)
    })
}
