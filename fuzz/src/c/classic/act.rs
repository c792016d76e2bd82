//! The calls.

use super::ffi::*;
use super::step::{Step, To};
use super::{ROOM, State, check, entry, limit, name, place, size};
use core::ffi::c_void;
use core::ptr;

pub unsafe fn act(state: &mut State, step: Step) {
    let mut word = 0u32;
    // SAFETY: as the caller says.
    unsafe {
        match step {
            Step::SemaphoreCreate {
                name: which,
                count,
                attributes,
                ceiling,
                to,
            } => {
                let ceiling = if ceiling & 1 == 0 {
                    ceiling % 300
                } else {
                    ceiling
                };
                let id = place(&mut word, to);
                let status =
                    rtems_semaphore_create(name(which), count.get(), attributes, ceiling, id);
                state.made(status, word, |state| Some(&mut state.semaphores));
            }
            Step::SemaphoreIdent {
                name: which,
                node,
                to,
            } => {
                let status = rtems_semaphore_ident(name(which), node % 3, place(&mut word, to));
                state.made(status, word, |_| None);
            }
            Step::SemaphoreDelete(id) => check(rtems_semaphore_delete(state.id(id))),
            Step::SemaphoreObtain {
                id,
                options,
                timeout,
            } => {
                let (options, timeout) = limit(options, timeout);
                check(rtems_semaphore_obtain(state.id(id), options, timeout));
            }
            Step::SemaphoreRelease(id) => check(rtems_semaphore_release(state.id(id))),
            Step::SemaphoreFlush(id) => check(rtems_semaphore_flush(state.id(id))),
            Step::SemaphoreSetPriority {
                id,
                scheduler,
                priority,
                to,
            } => {
                let (id, scheduler) = (state.id(id), state.id(scheduler));
                check(rtems_semaphore_set_priority(
                    id,
                    scheduler,
                    priority % 300,
                    place(&mut word, to),
                ));
            }
            Step::EventSend { id, events, system } => {
                let id = state.id(id);
                let status = if system {
                    rtems_event_system_send(id, events)
                } else {
                    rtems_event_send(id, events)
                };
                check(status);
            }
            Step::EventReceive {
                events,
                options,
                ticks,
                to,
                system,
            } => {
                let (options, ticks) = limit(options, ticks);
                let out = place(&mut word, to);
                let receive = if system {
                    rtems_event_system_receive
                } else {
                    rtems_event_receive
                };
                check(receive(events, options, ticks, out));
            }
            Step::Transient { id, options, what } => match what % 3 {
                0 => check(rtems_event_transient_send(state.id(id))),
                1 => check(rtems_event_transient_receive(options, 1)),
                _ => rtems_event_transient_clear(),
            },
            Step::QueueCreate {
                name: which,
                count,
                size: longest,
                attributes,
                to,
            } => {
                let id = place(&mut word, to);
                let status = rtems_message_queue_create(
                    name(which),
                    count.get(),
                    size(longest),
                    attributes,
                    id,
                );
                state.made(status, word, |state| Some(&mut state.queues));
            }
            Step::QueueConstruct {
                name: which,
                count,
                size: longest,
                storage,
                attributes,
                null,
            } => {
                let mut area = [0u64; 512];
                let config = Config {
                    name: name(which),
                    maximum_pending_messages: count.into(),
                    maximum_message_size: longest.into(),
                    storage_area: if null & 1 != 0 {
                        ptr::null_mut()
                    } else {
                        area.as_mut_ptr().cast()
                    },
                    storage_size: size(storage),
                    storage_free: None,
                    attributes,
                };
                let config = if null & 2 != 0 {
                    ptr::null()
                } else {
                    &raw const config
                };
                let id = if null & 4 != 0 {
                    ptr::null_mut()
                } else {
                    &raw mut word
                };
                let status = rtems_message_queue_construct(config, id);
                state.made(status, word, |state| Some(&mut state.queues));
            }
            Step::QueueIdent {
                name: which,
                node,
                to,
            } => {
                let status = rtems_message_queue_ident(name(which), node % 3, place(&mut word, to));
                state.made(status, word, |_| None);
            }
            Step::QueueDelete(id) => check(rtems_message_queue_delete(state.id(id))),
            Step::Send {
                id,
                size: bytes,
                how,
                to,
            } => {
                // A longer message than any queue takes is refused by its length.
                let (id, bytes) = (state.id(id), size(bytes));
                let bytes = if bytes > 1 << 20 {
                    bytes
                } else {
                    bytes % (ROOM + 1)
                };
                let buffer = if how & 4 != 0 {
                    ptr::null()
                } else {
                    state.buffer.as_ptr().cast()
                };
                check(match how % 3 {
                    0 => rtems_message_queue_send(id, buffer, bytes),
                    1 => rtems_message_queue_urgent(id, buffer, bytes),
                    _ => rtems_message_queue_broadcast(id, buffer, bytes, place(&mut word, to)),
                });
            }
            Step::Receive {
                id,
                options,
                timeout,
                to,
                buffer,
            } => {
                let (options, timeout) = limit(options, timeout);
                let mut length = 0;
                // Queues of longer messages than this buffer are not received from.
                let mut most = vec![0u8; 1 << 17];
                let buffer = if buffer == To::Null {
                    ptr::null_mut()
                } else {
                    most.as_mut_ptr().cast()
                };
                let length = place(&mut length, to);
                check(rtems_message_queue_receive(
                    state.id(id),
                    buffer,
                    length,
                    options,
                    timeout,
                ));
            }
            Step::ReceiveInto {
                id,
                room,
                options,
                timeout,
                to,
                buffer,
            } => {
                let (options, timeout) = limit(options, timeout);
                let (mut length, room) = (0, usize::from(room) % (ROOM + 1));
                let id = state.id(id);
                let buffer = if buffer == To::Null {
                    ptr::null_mut()
                } else {
                    state.buffer.as_mut_ptr().cast()
                };
                let status = lw_message_queue_receive(
                    id,
                    buffer,
                    room,
                    place(&mut length, to),
                    options,
                    timeout,
                );
                check(status);
                assert!(status != 0 || length <= room);
            }
            Step::Pending { id, to } => {
                check(rtems_message_queue_get_number_pending(
                    state.id(id),
                    place(&mut word, to),
                ));
            }
            Step::Flush { id, to } => check(rtems_message_queue_flush(
                state.id(id),
                place(&mut word, to),
            )),
            Step::TaskCreate {
                name: which,
                priority,
                stack,
                modes,
                to,
            } => {
                // Few tasks: each is a thread.
                if state.tasks.len() < 2 {
                    let stack = size(stack);
                    let stack = if stack > 1 << 40 {
                        stack
                    } else {
                        stack % (1 << 20)
                    };
                    let id = place(&mut word, to);
                    let status =
                        rtems_task_create(name(which), priority % 300, stack, modes, modes, id);
                    state.made(status, word, |state| Some(&mut state.tasks));
                }
            }
            Step::TaskIdent {
                name: which,
                node,
                to,
            } => {
                let status = rtems_task_ident(name(which), node % 3, place(&mut word, to));
                state.made(status, word, |_| None);
            }
            Step::TaskStart { id, to } => {
                check(rtems_task_start(
                    state.id(id),
                    (to == To::Variable).then_some(entry),
                    0,
                ));
            }
            Step::TaskDelete(id) => {
                let id = state.id(id);
                // That would end this thread.
                if id != 0 && id != state.own {
                    check(rtems_task_delete(id));
                }
            }
            Step::TaskSetPriority { id, priority, to } => {
                check(rtems_task_set_priority(
                    state.id(id),
                    priority % 300,
                    place(&mut word, to),
                ));
            }
            Step::TaskScheduler {
                id,
                scheduler,
                priority,
                sets,
                to,
            } => {
                let (id, scheduler) = (state.id(id), state.id(scheduler));
                check(match sets {
                    true => rtems_task_set_scheduler(id, scheduler, priority % 300),
                    false => rtems_task_get_scheduler(id, place(&mut word, to)),
                });
                state.ids.push(word);
            }
            Step::TaskAffinity {
                id,
                size: bytes,
                set,
                sets,
                to,
            } => {
                let id = state.id(id);
                let mut bits = [0u64; ROOM / 8];
                bits[0] = set;
                // So many bytes are read or written.
                let bytes = size(bytes) % (ROOM + 1);
                let bits = if to == To::Null {
                    ptr::null_mut()
                } else {
                    bits.as_mut_ptr().cast()
                };
                check(match sets {
                    true => rtems_task_set_affinity(id, bytes, bits),
                    false => rtems_task_get_affinity(id, bytes, bits),
                });
            }
            Step::WakeAfter(ticks) => check(rtems_task_wake_after((ticks % 2).into())),
            Step::Scheduler {
                id,
                number,
                size: bytes,
                what,
                to,
            } => {
                let id = state.id(id);
                let mut bits = [3u64; ROOM / 8];
                let bytes = size(bytes) % (ROOM + 1);
                let to_word = place(&mut word, to);
                let to_bits = if to == To::Null {
                    ptr::null_mut()
                } else {
                    bits.as_mut_ptr().cast::<c_void>()
                };
                check(match what % 5 {
                    0 => rtems_scheduler_ident(number, to_word),
                    1 => rtems_scheduler_ident_by_processor(number, to_word),
                    2 => rtems_scheduler_ident_by_processor_set(bytes, to_bits, to_word),
                    3 => rtems_scheduler_get_maximum_priority(id, to_word),
                    _ => rtems_scheduler_get_processor_set(id, bytes, to_bits),
                });
            }
            Step::Ticks(milliseconds) => {
                let ticks = lw_classic_ticks(milliseconds);
                assert!(milliseconds == 0 || ticks != 0);
            }
        }
    }
}
