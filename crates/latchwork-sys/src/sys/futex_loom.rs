//! The futex as a loom model: the documented contract, and nothing more.
//!
//! A wait compares and enqueues in one step (the model's lock stands for the kernel's hash bucket lock); a
//! wake-up removes waiters from the queue. Within the contract the [scene](crate::model::Scene) chooses: the
//! first waits may return spuriously, a wake-up may take the oldest or the newest waiter (the kernel prefers
//! real-time tasks, in whichever order they came), and a deadline may pass at any moment.

use super::futex::{Sharing, Wait};
use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::model::{Fault, has, scene, step};
use crate::time::Deadline;
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::sync::PoisonError;

struct Waiter {
    address: usize,
    /// The wake-ups that apply to it.
    mask: u32,
    id: usize,
    condvar: Arc<Condvar>,
    also: Also,
}

/// What else ends a sleep.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Also {
    Nothing,
    /// A time-out, which passes when a wake-up has gone to a dead task: see [`end_naps`].
    Nap,
    /// The death of any task: see [`note_death`].
    Death,
}

#[derive(Default)]
struct Kernel {
    /// The sleepers, oldest first. A wake-up removes its waiter.
    waiters: Vec<Waiter>,
    next_id: usize,
    spurious: usize,
    refused: usize,
    /// The deaths that have ended sleeps.
    deaths: usize,
}

loom::lazy_static! {
    static ref KERNEL: Mutex<Kernel> = Mutex::new(Kernel::default());
}

fn kernel() -> MutexGuard<'static, Kernel> {
    // A model that has failed already poisons it.
    KERNEL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins a call. The kernel has a full barrier between counting a waiter in and the comparison.
fn enter() -> MutexGuard<'static, Kernel> {
    step();
    let kernel = kernel();
    crate::atomic::fence(Ordering::SeqCst);
    kernel
}

pub fn wait(word: &AtomicU32, expected: u32, _: Sharing, deadline: Option<Deadline>) -> Wait {
    wait_or_nap(word, expected, deadline, false).0
}

/// As [`wait`]. Also returns whether there was a wake-up, or a spurious return.
pub fn wait_woken(
    word: &AtomicU32,
    expected: u32,
    _: Sharing,
    deadline: Option<Deadline>,
) -> (Wait, bool) {
    wait_or_nap(word, expected, deadline, false)
}

/// A wait with a time-out of the waiter's own.
pub fn nap(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait {
    wait_or_nap(word, expected, deadline, true).0
}

/// The time-out passes for all waiters in `nap` on the word: they check it.
pub fn end_naps(word: &AtomicU32) {
    let address = core::ptr::from_ref(word) as usize;
    let mut kernel = kernel();
    kernel.waiters.retain(|waiter| {
        let ends = waiter.also == Also::Nap && waiter.address == address;
        if ends {
            waiter.condvar.notify_one();
        }
        !ends
    });
}

fn wait_or_nap(
    word: &AtomicU32,
    expected: u32,
    deadline: Option<Deadline>,
    naps: bool,
) -> (Wait, bool) {
    let mut kernel = enter();
    if word.for_kernel().load(Ordering::SeqCst) != expected {
        return (Wait::Again, false);
    }
    if kernel.refused < scene().refused {
        kernel.refused += 1;
        return (Wait::Again, false);
    }
    if kernel.spurious < scene().spurious {
        kernel.spurious += 1;
        return (Wait::Again, true);
    }
    let address = core::ptr::from_ref(word) as usize;
    let also = if naps { Also::Nap } else { Also::Nothing };
    sleep(kernel, address, u32::MAX, deadline, also)
}

/// Loom has no atomic for half of a word: the whole word stands for it.
pub fn wait_high(
    word: &AtomicU64,
    expected: u64,
    mask: u32,
    _: Sharing,
    deadline: Option<Deadline>,
) -> (Wait, bool) {
    let mut kernel = enter();
    if word.for_kernel().load(Ordering::SeqCst) >> 32 != expected >> 32 {
        return (Wait::Again, false);
    }
    if kernel.spurious < scene().spurious {
        kernel.spurious += 1;
        return (Wait::Interrupted, false);
    }
    let address = core::ptr::from_ref(word) as usize;
    sleep(kernel, address, mask, deadline, Also::Nothing)
}

/// How many deaths have ended sleeps that watch for them.
pub fn deaths() -> usize {
    kernel().deaths
}

/// As [`wait_high`] with any bit. The sleep also ends when a task dies, and does not begin if one has died since
/// [`deaths`] returned `deaths`. Also returns whether a wake-up or a death ended it.
pub fn watch_high(
    word: &AtomicU64,
    expected: u64,
    deaths: usize,
    deadline: Option<Deadline>,
) -> (Wait, bool) {
    let mut kernel = enter();
    if word.for_kernel().load(Ordering::SeqCst) >> 32 != expected >> 32 || kernel.deaths != deaths {
        return (Wait::Again, false);
    }
    if kernel.spurious < scene().spurious {
        kernel.spurious += 1;
        return (Wait::Again, true);
    }
    let address = core::ptr::from_ref(word) as usize;
    sleep(kernel, address, u32::MAX, deadline, Also::Death)
}

/// A task has died: the sleeps end that watch for that.
pub fn note_death() {
    let mut kernel = kernel();
    kernel.deaths += 1;
    kernel.waiters.retain(|waiter| {
        let ends = waiter.also == Also::Death;
        if ends {
            waiter.condvar.notify_one();
        }
        !ends
    });
}

/// Enqueues the calling task and waits until it is woken, which it also returns, or its deadline has passed.
fn sleep(
    mut kernel: MutexGuard<'static, Kernel>,
    address: usize,
    mask: u32,
    deadline: Option<Deadline>,
    also: Also,
) -> (Wait, bool) {
    let id = kernel.next_id;
    kernel.next_id += 1;
    let condvar = Arc::new(Condvar::new());
    kernel.waiters.push(Waiter {
        address,
        mask,
        id,
        condvar: Arc::clone(&condvar),
        also,
    });
    if deadline.is_some() {
        // The deadline passes here: a task that runs now finds this waiter asleep, and may wake it.
        drop(kernel);
        kernel = self::kernel();
        let Some(position) = kernel.waiters.iter().position(|waiter| waiter.id == id) else {
            return (Wait::Again, true);
        };
        kernel.waiters.remove(position);
        return (Wait::TimedOut, false);
    }
    while kernel.waiters.iter().any(|waiter| waiter.id == id) {
        kernel = condvar.wait(kernel).unwrap_or_else(PoisonError::into_inner);
    }
    (Wait::Again, true)
}

pub fn wake(word: *const AtomicU32, count: u32, _: Sharing) -> usize {
    if has(Fault::RobustSettlesBeforeWake) {
        crate::model::task::current().head.settle(0);
    }
    step();
    wake_in(&mut kernel(), word as usize, u32::MAX, count as usize)
}

pub fn wake_high(word: *const AtomicU64, count: u32, mask: u32, _: Sharing) -> usize {
    step();
    wake_in(&mut kernel(), word as usize, mask, count as usize)
}

pub fn wake_and_requeue(
    word: &AtomicU32,
    expected: u32,
    count: u32,
    target: *const AtomicU32,
    _: Sharing,
) -> Option<usize> {
    let mut kernel = enter();
    if word.for_kernel().load(Ordering::SeqCst) != expected {
        return None;
    }
    let address = core::ptr::from_ref(word) as usize;
    let mut moved = wake_in(&mut kernel, address, u32::MAX, count as usize);
    for waiter in &mut kernel.waiters {
        if waiter.address == address {
            waiter.address = target as usize;
            moved += 1;
        }
    }
    Some(moved)
}

pub fn clear_and_wake_all(word: &AtomicU32, _: Sharing) {
    step();
    let mut kernel = kernel();
    word.for_kernel().swap(0, Ordering::SeqCst);
    let address = core::ptr::from_ref(word) as usize;
    wake_in(&mut kernel, address, u32::MAX, usize::MAX);
}

fn wake_in(kernel: &mut Kernel, address: usize, mask: u32, count: usize) -> usize {
    let mut woken = 0;
    while woken < count {
        let is_meant = |waiter: &Waiter| waiter.address == address && waiter.mask & mask != 0;
        let Some(chosen) = scene().next(&kernel.waiters, is_meant) else {
            break;
        };
        kernel.waiters.remove(chosen).condvar.notify_one();
        woken += 1;
    }
    woken
}
