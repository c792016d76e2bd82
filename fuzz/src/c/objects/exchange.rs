//! The calls of queues.

use super::ffi::*;
use super::step::Step;
use super::{ROOM, State, check, or_null, or_null_mut, time};
use core::ffi::c_void;
use core::ptr;

pub unsafe fn exchange(state: &mut State, step: Step, at_once: *const libc::timespec) {
    let queue = state.queue;
    let text = state.buffer.as_mut_ptr().cast::<c_void>();
    // SAFETY: as the caller says.
    unsafe {
        match step {
            Step::State { null } => {
                let (mut numbers, mut count) = ([0; 6], 0);
                check(lw_queue_get_state(
                    or_null_mut(queue, null, 0),
                    or_null_mut(&raw mut numbers, null, 1),
                ));
                check(lw_queue_flush(
                    or_null_mut(queue, null, 2),
                    or_null_mut(&raw mut count, null, 3),
                ));
            }
            Step::Send {
                bytes,
                priority,
                time: at,
                how,
                null,
            } => {
                let (queue, message) = (
                    or_null_mut(queue, null, 0),
                    or_null(text.cast_const(), null, 1),
                );
                let (bytes, priority) = (
                    bytes.of_buffer(),
                    if how & 8 == 0 {
                        priority % 65_538
                    } else {
                        priority
                    },
                );
                let (at, mut count) = (time(at), 0);
                check(match how % 3 {
                    0 => lw_queue_trysend(queue, message, bytes, priority),
                    1 => lw_queue_timedsend(queue, message, bytes, priority, &raw const at),
                    _ => lw_queue_broadcast(
                        queue,
                        message,
                        bytes,
                        or_null_mut(&raw mut count, null, 2),
                    ),
                });
            }
            Step::Receive {
                room,
                clock,
                time: at,
                tries,
                null,
            } => {
                let (queue, buffer) = (or_null_mut(queue, null, 0), or_null_mut(text, null, 1));
                let (mut bytes, mut priority, at) = (0, 0, time(at));
                let (length, rank) = (
                    or_null_mut(&raw mut bytes, null, 2),
                    or_null_mut(&raw mut priority, null, 3),
                );
                let room = usize::from(room) % (ROOM + 1);
                check(match tries {
                    true => lw_queue_tryreceive(queue, buffer, room, length, rank),
                    false => lw_queue_clockreceive(
                        queue,
                        buffer,
                        room,
                        length,
                        rank,
                        clock % 12,
                        &raw const at,
                    ),
                });
            }
            Step::Reserve { priority, null } if !state.held => {
                let to = or_null_mut(&raw mut state.message, null, 0);
                let error = check(lw_queue_reserve(
                    or_null_mut(queue, null, 1),
                    to,
                    priority % 65_538,
                    at_once,
                ));
                state.held = error == 0;
                if state.held {
                    state
                        .message
                        .data
                        .cast::<u8>()
                        .write_bytes(4, state.message.bytes);
                }
            }
            Step::Hold { null } if !state.held => {
                let to = or_null_mut(&raw mut state.message, null, 0);
                state.held = check(lw_queue_hold(or_null_mut(queue, null, 1), to, at_once)) == 0;
            }
            Step::End { how, bytes, null } => {
                let message = or_null_mut(&raw mut state.message, null, 0);
                let error = check(match how % 4 {
                    0 => lw_message_send(message, bytes.get()),
                    1 => lw_message_cancel(message),
                    2 => lw_message_done(message),
                    _ => lw_message_give_back(message),
                });
                // Messages that are too long, or of a deleted queue, have ended.
                let is_over = error == 0 || error == libc::EMSGSIZE || error == libc::EIDRM;
                state.held &= !is_over;
            }
            Step::SendBlock {
                which,
                bytes,
                shift,
                priority,
                null,
            } => {
                let index = usize::from(which).checked_rem(state.blocks.len());
                let block = index.map_or(ptr::null_mut(), |index| state.blocks[index]);
                let block = block.wrapping_byte_add(if null & 8 != 0 { shift.into() } else { 0 });
                let queue = or_null_mut(queue, null, 0);
                if check(lw_queue_send_block(
                    queue,
                    block,
                    bytes.get(),
                    priority % 65_538,
                    at_once,
                )) == 0
                {
                    state.blocks.swap_remove(index.expect("a block"));
                }
            }
            Step::ReceiveBlock { null } => {
                let (mut block, mut bytes) = (ptr::null_mut(), 0);
                let (to, length) = (
                    or_null_mut(&raw mut block, null, 1),
                    or_null_mut(&raw mut bytes, null, 2),
                );
                // A queue of this process's own has a region of its own, whose blocks end with it.
                let error = check(lw_queue_receive_block(
                    or_null_mut(queue, null, 0),
                    to,
                    length,
                    at_once,
                ));
                let base = lw_region_base(state.region).addr();
                if error == 0 && (base..base + (2 << 20)).contains(&block.addr()) {
                    state.blocks.push(block);
                }
            }
            Step::Batch {
                bytes,
                count,
                priority,
                null,
            } => {
                let parts = bytes.map(|bytes| libc::iovec {
                    iov_base: text,
                    iov_len: bytes.into(),
                });
                let mut sent = 0;
                let error = check(lw_queue_send_batch(
                    or_null_mut(queue, null, 0),
                    or_null(parts.as_ptr(), null, 1),
                    (count % 4).into(),
                    priority % 65_538,
                    or_null_mut(&raw mut sent, null, 2),
                    at_once,
                ));
                assert!(error != 0 || sent <= u32::from(count % 4));
            }
            Step::HoldBatch {
                most,
                gives_back,
                null,
            } => {
                let mut batch = Batch {
                    count: 0,
                    opaque: [0; 13],
                };
                let mut parts = [libc::iovec {
                    iov_base: ptr::null_mut(),
                    iov_len: 0,
                }; 4];
                let error = check(lw_queue_hold_batch(
                    or_null_mut(queue, null, 0),
                    or_null_mut(&raw mut batch, null, 1),
                    or_null_mut(parts.as_mut_ptr(), null, 2),
                    (most % 5).into(),
                    at_once,
                ));
                if error == 0 {
                    assert!((1..=4).contains(&batch.count));
                    let ended = if gives_back {
                        lw_batch_give_back(&raw mut batch)
                    } else {
                        lw_batch_done(&raw mut batch)
                    };
                    assert_eq!(ended, 0);
                }
                // It is over, or has never begun.
                assert_eq!(check(lw_batch_done(&raw mut batch)), libc::EINVAL);
                assert_eq!(check(lw_batch_done(ptr::null_mut())), libc::EINVAL);
            }
            Step::Clear { null } => drop(check(lw_queue_clear(or_null_mut(queue, null, 0)))),
            _ => {}
        }
    }
}
