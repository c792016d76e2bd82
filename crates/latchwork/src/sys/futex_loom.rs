//! The futex as loom sees it: the documented contract, and nothing more.
//!
//! A wait compares and enqueues in one step (the model's lock stands for the kernel's hash bucket
//! lock); a wake takes waiters off the queue. Within the contract the [scene](crate::model::Scene)
//! chooses: the first waits may end without cause, a wake may take the oldest or the newest waiter
//! (the kernel prefers real-time tasks, whoever came first), and a deadline may pass at any moment.

use super::futex::{Sharing, Wait};
use crate::atomic::{AtomicU32, Ordering};
use crate::model::{Fault, WakeOrder, has, scene, step};
use crate::time::Deadline;
use loom::sync::{Arc, Condvar, Mutex};

struct Waiter {
    address: usize,
    id: usize,
    condvar: Arc<Condvar>,
}

#[derive(Default)]
struct Kernel {
    /// Who sleeps, oldest first. A wake removes its waiter.
    waiters: Vec<Waiter>,
    next_id: usize,
    spurious: usize,
}

loom::lazy_static! {
    static ref KERNEL: Mutex<Kernel> = Mutex::new(Kernel::default());
}

fn kernel() -> loom::sync::MutexGuard<'static, Kernel> {
    // Poisoned by a model that has failed already.
    KERNEL
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub(crate) fn wait(
    word: &AtomicU32,
    expected: u32,
    _: Sharing,
    deadline: Option<Deadline>,
) -> Wait {
    step();
    let mut kernel = kernel();
    // The kernel has a full barrier between counting the waiter in and the comparison.
    crate::atomic::fence(Ordering::SeqCst);
    if word.for_kernel().load(Ordering::SeqCst) != expected {
        return Wait::Again;
    }
    if kernel.spurious < scene().spurious {
        kernel.spurious += 1;
        return Wait::Again;
    }
    let id = kernel.next_id;
    kernel.next_id += 1;
    let condvar = Arc::new(Condvar::new());
    kernel.waiters.push(Waiter {
        address: core::ptr::from_ref(word) as usize,
        id,
        condvar: Arc::clone(&condvar),
    });
    if deadline.is_some() {
        // The time passes: whoever runs now finds this waiter asleep, and may wake it.
        drop(kernel);
        kernel = self::kernel();
        let Some(position) = kernel.waiters.iter().position(|waiter| waiter.id == id) else {
            return Wait::Again;
        };
        kernel.waiters.remove(position);
        return Wait::TimedOut;
    }
    while kernel.waiters.iter().any(|waiter| waiter.id == id) {
        kernel = condvar
            .wait(kernel)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
    }
    Wait::Again
}

pub(crate) fn wake(word: *const AtomicU32, count: u32, _: Sharing) -> usize {
    if has(Fault::RobustSettlesBeforeWake) {
        crate::task::Me::whoever().head().settle(0);
    }
    step();
    wake_in(&mut kernel(), word, count as usize)
}

pub(crate) fn clear_and_wake_all(word: &AtomicU32, _: Sharing) {
    step();
    let mut kernel = kernel();
    word.for_kernel().swap(0, Ordering::SeqCst);
    wake_in(&mut kernel, word, usize::MAX);
}

fn wake_in(kernel: &mut Kernel, word: *const AtomicU32, count: usize) -> usize {
    let mut woken = 0;
    while woken < count {
        let mut positions =
            (0..kernel.waiters.len()).filter(|at| kernel.waiters[*at].address == word as usize);
        let chosen = match scene().wake_order {
            WakeOrder::Oldest => positions.next(),
            WakeOrder::Newest => positions.next_back(),
        };
        let Some(chosen) = chosen else { break };
        kernel.waiters.remove(chosen).condvar.notify_one();
        woken += 1;
    }
    woken
}
