//! Regions and queues of the C interface.

mod exchange;
mod ffi;
mod step;

pub use step::Step;

use core::ffi::{c_int, c_void};
use core::ptr;
use ffi::*;
use std::ffi::CString;

const ROOM: usize = 4096;

struct State {
    region: Handle,
    queue: Handle,
    message: Message,
    /// Whether the message is in hand.
    held: bool,
    blocks: Vec<*mut c_void>,
    buffer: Box<[u8; ROOM]>,
}

/// Errors are numbers of `errno.h`, with a text.
fn check(error: c_int) -> c_int {
    assert!((0..134).contains(&error), "error {error}");
    // SAFETY: a plain call, which returns a string.
    let text = unsafe { core::ffi::CStr::from_ptr(lw_error_text()) };
    assert!(text.to_str().is_ok());
    error
}

fn string(text: &[u8]) -> CString {
    let end = text
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(text.len());
    CString::new(&text[..end]).unwrap()
}

fn or_null<T>(pointer: *const T, null: u8, bit: u8) -> *const T {
    if null >> bit & 1 != 0 {
        ptr::null()
    } else {
        pointer
    }
}

fn or_null_mut<T>(pointer: *mut T, null: u8, bit: u8) -> *mut T {
    if null >> bit & 1 != 0 {
        ptr::null_mut()
    } else {
        pointer
    }
}

pub fn run(steps: Vec<Step>) {
    let options = Options {
        max_bytes: 1 << 20,
        max_tasks: 4,
        max_names: 8,
        mode: 0,
        flags: 0,
        address: ptr::null_mut(),
        label: c"fuzz".as_ptr(),
    };
    let mut state = State {
        region: ptr::null_mut(),
        queue: ptr::null_mut(),
        message: Message {
            data: ptr::null_mut(),
            bytes: 0,
            priority: 0,
            deliveries: 0,
            opaque: [0; 12],
        },
        held: false,
        blocks: Vec::new(),
        buffer: Box::new([5; ROOM]),
    };
    // SAFETY: pointers are null, or lead to variables and buffers of at least the sizes that the calls may use. No handle
    // is used after it was given up.
    unsafe {
        assert_eq!(
            lw_region_create(&raw mut state.region, ptr::null(), &raw const options),
            0
        );
        for step in steps.into_iter().take(48) {
            act(&mut state, step);
        }
        if state.held {
            let _ = lw_message_done(&raw mut state.message) != 0
                && lw_message_cancel(&raw mut state.message) != 0;
        }
        if !state.queue.is_null() {
            assert_eq!(lw_queue_close(state.queue), 0);
        }
        for block in state.blocks {
            lw_region_free(state.region, block);
        }
        assert_eq!(lw_region_detach(state.region), 0);
    }
}

/// A time that has passed, or is nonsense: nobody would end a longer wait.
fn time((seconds, nanoseconds): (i64, i64)) -> libc::timespec {
    libc::timespec {
        tv_sec: seconds.min(0),
        tv_nsec: nanoseconds,
    }
}

unsafe fn act(state: &mut State, step: Step) {
    let at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let region = state.region;
    // SAFETY: as the caller says.
    unsafe {
        match step {
            Step::Create {
                bytes,
                tasks,
                names,
                mode,
                flags,
                label,
                null,
            } => {
                let label = string(&label);
                let options = Options {
                    max_bytes: if null & 4 != 0 {
                        bytes
                    } else {
                        bytes % (1 << 22)
                    },
                    max_tasks: tasks,
                    max_names: names,
                    mode,
                    flags,
                    address: ptr::null_mut(),
                    label: or_null(label.as_ptr(), null, 3),
                };
                let mut made = ptr::null_mut();
                let to = or_null_mut(&raw mut made, null, 0);
                let error = check(lw_region_create(
                    to,
                    ptr::null(),
                    or_null(&raw const options, null, 1),
                ));
                if error == 0 {
                    assert_eq!(lw_region_detach(made), 0);
                }
            }
            Step::Attach { name, flags, null } => {
                let name = string(&name);
                let options = Options {
                    max_bytes: 0,
                    max_tasks: 0,
                    max_names: 0,
                    mode: 0,
                    // Not files of other users.
                    flags: flags & !2,
                    address: ptr::null_mut(),
                    label: ptr::null(),
                };
                let mut made = ptr::null_mut();
                let to = or_null_mut(&raw mut made, null, 0);
                let error = check(lw_region_attach(
                    to,
                    or_null(name.as_ptr(), null, 1),
                    &raw const options,
                ));
                if error == 0 {
                    lw_region_detach(made);
                }
                assert_ne!(lw_region_unlink(c"a/b".as_ptr()), 0);
                assert_ne!(lw_region_unlink(ptr::null()), 0);
            }
            Step::AttachFd { fd, own, flags } => {
                let mut made = ptr::null_mut();
                let options = Options {
                    max_bytes: 0,
                    max_tasks: 0,
                    max_names: 0,
                    mode: 0,
                    flags: flags & !2,
                    address: ptr::null_mut(),
                    label: ptr::null(),
                };
                let fd = if own { lw_region_fd(region) } else { fd };
                if check(lw_region_attach_fd(&raw mut made, fd, &raw const options)) == 0 {
                    // Another number may be that of another region of this process.
                    assert!(!own || lw_region_base(made) == lw_region_base(region));
                    check(lw_region_detach(made));
                }
            }
            Step::Ask { null } => {
                let region = or_null_mut(region, null, 0);
                let _ = (
                    lw_region_base(region),
                    lw_region_max_bytes(region),
                    lw_region_fd(region),
                );
                let mut stats = [0; 3];
                check(lw_region_heap_stats(
                    region,
                    or_null_mut(&raw mut stats, null, 1),
                ));
            }
            Step::Join { name, null } => {
                let name = string(&name);
                check(lw_region_join(
                    or_null_mut(region, null, 0),
                    or_null(name.as_ptr(), null, 1),
                ));
            }
            Step::Alloc {
                bytes,
                align,
                how,
                null,
            } => {
                let region = or_null_mut(region, null, 0);
                let bytes = bytes as usize >> (bytes % 64);
                let block = match how % 3 {
                    0 => lw_region_alloc(region, bytes),
                    1 => lw_region_zalloc(region, bytes),
                    _ => lw_region_aligned_alloc(region, usize::from(align) << (align % 8), bytes),
                };
                if !block.is_null() {
                    block.cast::<u8>().write_bytes(3, bytes);
                    state.blocks.push(block);
                }
            }
            Step::Free { which } => {
                if let Some(index) = usize::from(which).checked_rem(state.blocks.len()) {
                    lw_region_free(region, state.blocks.swap_remove(index));
                }
                lw_region_free(region, ptr::null_mut());
            }
            Step::Keep { which, shift, null } => {
                let block = usize::from(which)
                    .checked_rem(state.blocks.len())
                    .map(|index| state.blocks[index]);
                let block = block
                    .unwrap_or(lw_region_base(region))
                    .wrapping_byte_add(shift.into());
                check(lw_region_keep(
                    or_null_mut(region, null, 0),
                    or_null_mut(block, null, 1),
                ));
            }
            Step::Trim { null } => {
                let mut freed = 0;
                check(lw_region_trim(
                    or_null_mut(region, null, 0),
                    or_null_mut(&raw mut freed, null, 1),
                ));
            }
            Step::Object {
                name,
                kind,
                bytes,
                null,
            } => {
                let (name, mut object) = (string(&name), ptr::null_mut());
                let bytes = bytes.get();
                check(lw_region_object(
                    or_null_mut(region, null, 0),
                    or_null(name.as_ptr(), null, 1),
                    kind.into(),
                    bytes,
                    None,
                    ptr::null_mut(),
                    or_null_mut(&raw mut object, null, 2),
                ));
                if !object.is_null() {
                    object.cast::<u8>().write_bytes(9, bytes);
                }
            }
            Step::Find {
                name,
                kind,
                bytes,
                null,
            } => {
                let (name, mut object) = (string(&name), ptr::null_mut());
                let to = or_null_mut(&raw mut object, null, 2);
                let (region, name) = (
                    or_null_mut(region, null, 0),
                    or_null(name.as_ptr(), null, 1),
                );
                check(lw_region_find(region, name, kind.into(), bytes.get(), to));
            }
            Step::Remove {
                name,
                kind,
                bytes,
                null,
            } => {
                let name = string(&name);
                let (region, name) = (
                    or_null_mut(region, null, 0),
                    or_null(name.as_ptr(), null, 1),
                );
                check(lw_region_remove(region, name, kind.into(), bytes.get()));
            }
            Step::Queue {
                name,
                capacity,
                longest,
                order,
                null,
            } => {
                let name = string(&name);
                let mut queue = ptr::null_mut();
                let to = or_null_mut(&raw mut queue, null, 0);
                let (region, name) = (
                    or_null_mut(region, null, 1),
                    or_null(name.as_ptr(), null, 2),
                );
                // Rarely one of its own, which is a region of its own, and as large as it must be.
                let (capacity, longest) = match region.is_null() {
                    true => (capacity % 64, longest % 512),
                    false => (capacity, longest),
                };
                let error = match null & 8 {
                    0 => lw_queue_create(to, region, name, capacity, longest, order % 4),
                    _ => lw_queue_open(to, region, name),
                };
                if check(error) == 0 {
                    if state.queue.is_null() {
                        state.queue = queue;
                    } else {
                        assert_eq!(lw_queue_close(queue), 0);
                    }
                }
            }
            Step::QueueEnd { closes, null } => {
                let queue = or_null_mut(state.queue, null, 0);
                if !closes {
                    check(lw_queue_delete(queue));
                } else if check(lw_queue_close(queue)) == 0 {
                    state.queue = ptr::null_mut();
                }
            }
            step => exchange::exchange(state, step, &at_once),
        }
    }
}
