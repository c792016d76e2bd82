//! RTEMS's directives.

mod act;
mod ffi;
mod step;

pub use step::Step;

use core::ptr;
use ffi::*;
use std::sync::Once;
use step::{Bytes, Id, To};

/// Latchwork's statuses are RTEMS's, and one more.
fn check(status: u32) {
    assert!(status <= 29 || status == 64, "status {status}");
    // SAFETY: a plain call, which returns a string.
    let text = unsafe { core::ffi::CStr::from_ptr(rtems_status_text(status)) };
    assert_ne!(text, c"?");
}

const ROOM: usize = 4096;

struct State {
    /// Ids that calls have returned.
    ids: Vec<u32>,
    semaphores: Vec<u32>,
    queues: Vec<u32>,
    tasks: Vec<u32>,
    own: u32,
    buffer: Box<[u8; ROOM]>,
}

impl State {
    fn id(&self, id: Id) -> u32 {
        let known = |which: u8| {
            let index = usize::from(which).checked_rem(self.ids.len());
            index.map_or(self.own, |index| self.ids[index])
        };
        match id {
            Id::Known(which) => known(which),
            Id::Near(which, more) => known(which).wrapping_add_signed(more.into()),
            Id::OtherClass(which, class) => known(which) & 0x07ff_ffff | u32::from(class) << 27,
            Id::Any(id) => id,
            Id::Zero => 0,
        }
    }

    /// A call that stores an id.
    fn made(&mut self, status: u32, id: u32, list: fn(&mut Self) -> Option<&mut Vec<u32>>) {
        check(status);
        if status == 0 && id != 0 {
            self.ids.push(id);
            if let Some(list) = list(self) {
                list.push(id);
            }
        }
    }
}

fn name(number: u8) -> u32 {
    u32::from(number % 4) * 0x0101_0101
}

fn size(bytes: Bytes) -> usize {
    match bytes {
        Bytes::Few(count) => count.into(),
        Bytes::Many(count) => count.into(),
        Bytes::Most => usize::MAX,
        Bytes::Any(count) => count as usize,
    }
}

fn place<T>(variable: &mut T, to: To) -> *mut T {
    if to == To::Null {
        ptr::null_mut()
    } else {
        variable
    }
}

/// No wait without end: nobody would end it.
fn limit(options: u32, ticks: u8) -> (u32, u32) {
    (options, u32::from(ticks % 3) + 1)
}

extern "C" fn entry(_argument: usize) {}

pub fn run(steps: Vec<Step>) {
    static CONFIGURED: Once = Once::new();
    CONFIGURED.call_once(|| {
        let options = Options {
            region: ptr::null(),
            memory: 1 << 20,
            semaphores: 8,
            message_queues: 4,
            microseconds_per_tick: 50,
            // Priorities are not the kernel's.
            flags: 1,
            schedulers: ptr::null(),
            scheduler_count: 0,
        };
        // SAFETY: the options are as the header says.
        unsafe {
            assert_eq!(lw_classic_configure(ptr::null()), libc::EINVAL);
            assert_eq!(lw_classic_configure(&raw const options), 0);
        }
    });
    let mut state = State {
        ids: Vec::new(),
        semaphores: Vec::new(),
        queues: Vec::new(),
        tasks: Vec::new(),
        // SAFETY: a plain call.
        own: unsafe { rtems_task_self() },
        buffer: Box::new([7; ROOM]),
    };
    let own = state.own;
    state.ids.push(own);
    for step in steps.into_iter().take(48) {
        // SAFETY: pointers are null, or lead to variables and buffers of at least the sizes that the calls may use.
        unsafe { act::act(&mut state, step) };
    }
    // SAFETY: plain calls.
    unsafe {
        for semaphore in state.semaphores {
            while rtems_semaphore_release(semaphore) == 0 && rtems_semaphore_delete(semaphore) == 12
            {
            }
            rtems_semaphore_delete(semaphore);
        }
        for queue in state.queues {
            check(rtems_message_queue_delete(queue));
        }
        for task in state.tasks {
            check(rtems_task_delete(task));
        }
        assert_eq!(
            rtems_task_set_priority(0, 255, &raw mut *state.ids.as_mut_ptr()),
            0
        );
    }
}
