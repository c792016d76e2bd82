//! The futex as loom sees it: the documented contract, and nothing more.
//!
//! A wait compares and enqueues in one step (the model's lock stands for the kernel's hash bucket
//! lock); a wake takes waiters off the queue in order. A model that calls
//! [`inject_spurious_wakeups`] lets each wait end without cause once, which the contract allows
//! and which every caller must survive.

use super::futex::{Sharing, Wait};
use crate::atomic::{AtomicU32, Ordering};
use crate::time::Deadline;
use loom::sync::{Arc, Condvar, Mutex};
use std::collections::VecDeque;

struct Waiter {
    address: usize,
    woken: bool,
    condvar: Arc<Condvar>,
    id: usize,
}

#[derive(Default)]
struct Kernel {
    waiters: VecDeque<Waiter>,
    next_id: usize,
    spurious_left: usize,
}

loom::lazy_static! {
    static ref KERNEL: Mutex<Kernel> = Mutex::new(Kernel::default());
}

/// Lets the next `count` waits of this execution return without having been woken.
pub(crate) fn inject_spurious_wakeups(count: usize) {
    KERNEL.lock().unwrap().spurious_left = count;
}

pub(crate) fn wait(word: &AtomicU32, expected: u32, _: Sharing, deadline: Option<Deadline>) -> Wait {
    let mut kernel = KERNEL.lock().unwrap();
    if word.load(Ordering::SeqCst) != expected {
        return Wait::Again;
    }
    // A model has no clock: every deadline has passed as soon as the wait would sleep.
    if deadline.is_some() {
        return Wait::TimedOut;
    }
    if kernel.spurious_left > 0 {
        kernel.spurious_left -= 1;
        return Wait::Again;
    }
    let id = kernel.next_id;
    kernel.next_id += 1;
    let condvar = Arc::new(Condvar::new());
    kernel.waiters.push_back(Waiter {
        address: core::ptr::from_ref(word) as usize,
        woken: false,
        condvar: Arc::clone(&condvar),
        id,
    });
    loop {
        kernel = condvar.wait(kernel).unwrap();
        let position = kernel.waiters.iter().position(|waiter| waiter.id == id).expect("enqueued above");
        if kernel.waiters[position].woken {
            kernel.waiters.remove(position);
            return Wait::Again;
        }
    }
}

pub(crate) fn wake(word: *const AtomicU32, count: u32, _: Sharing) -> usize {
    let mut kernel = KERNEL.lock().unwrap();
    let mut woken = 0;
    for waiter in &mut kernel.waiters {
        if woken == count {
            break;
        }
        if waiter.address == word as usize && !waiter.woken {
            waiter.woken = true;
            waiter.condvar.notify_one();
            woken += 1;
        }
    }
    woken as usize
}
