//! Tasks that die between two [steps](super::step), and the kernel's reaction.
#![allow(unsafe_code)]

use super::step::{Death, TASKS, become_task, number, set_life};
use super::task::{Record, current};
use crate::atomic::{AtomicU32, Ordering, fence, unless_fault};
use crate::sys::futex::{self, Sharing};
use crate::sys::futex_pi;
use crate::sys::robust_list::{self, Head};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

std::thread_local! {
    static SOMEBODY_DIED: Cell<bool> = const { Cell::new(false) };
}

loom::lazy_static! {
    /// The life of the task of each number, as a region's task table shows it: its generation, and in the lowest bit
    /// whether it is gone. Task 0, which sets the scene, lives from the beginning.
    static ref LIFE: [AtomicU32; TASKS] =
        core::array::from_fn(|number| AtomicU32::new(if number == 0 { 2 } else { 1 }));
}

/// The calling task's number and generation, by which a region names it: the generation is in the low half.
pub fn identity() -> u64 {
    let generation = LIFE[number()].for_kernel().load(Ordering::Relaxed) >> 1;
    (number() as u64 + first_slot()) << 48 | u64::from(generation)
}

/// The number of task 0 in an identity: not 0, since sleepers compare the half of a word in which it is.
fn first_slot() -> u64 {
    unless_fault!(RegionCountsSlotsFromZero, 1, 0)
}

/// Whether the task with this identity is gone.
pub fn is_gone(identity: u64) -> bool {
    let life = LIFE[((identity >> 48) - first_slot()) as usize].load(Ordering::Acquire);
    let same = unless_fault!(RegionIgnoresGenerations, life >> 1 == identity as u32, true);
    !same || life & 1 != 0
}

/// The calling task's life begins, in the next generation; that of task 0 may have begun.
fn begin_life() {
    let life = LIFE[number()].for_kernel();
    if life.load(Ordering::Relaxed) & 1 == 0 {
        return;
    }
    // It is gone, so this makes the next generation. AcqRel and the fence: as in `region/task_table.rs` and `task.rs`.
    life.fetch_add(1, Ordering::AcqRel);
    fence(Ordering::Release);
}

/// The calling task's life ends.
fn end_life() {
    LIFE[number()].for_kernel().fetch_or(1, Ordering::SeqCst);
}

/// Runs `body` as the task of this number (0 to 3; each in one thread only), which dies after `life` steps.
/// Returns whether it survived.
pub fn as_task(number: usize, life: Option<usize>, body: impl FnOnce()) -> bool {
    become_task(number);
    let record = current();
    record.begin();
    begin_life();
    set_life(life);
    let end = catch_unwind(AssertUnwindSafe(body));
    match end {
        Ok(()) => {
            assert!(
                record.head.is_empty(),
                "a task ended with locks on its list"
            );
            set_life(None);
            end_life();
            true
        }
        Err(death) if death.is::<Death>() => {
            SOMEBODY_DIED.set(true);
            end_life();
            walk(record);
            futex::note_death();
            futex_pi::handle_task_exit(record.tid);
            false
        }
        Err(panic) => resume_unwind(panic),
    }
}

/// Whether any task has died since the last call.
pub fn somebody_died() -> bool {
    SOMEBODY_DIED.replace(false)
}

/// `exit_robust_list` of Linux: the list, then the pending node.
fn walk(record: &Record) {
    let head: &Head = &record.head;
    let pending = head.pending();
    for node in head.nodes() {
        if node != pending {
            // SAFETY: the node is on the list, so it is alive by the contract of `link`.
            unsafe { handle_futex_death(node, record.tid, false) };
        }
    }
    if pending != 0 {
        // SAFETY: a method of the lock has announced the node, and the model keeps its locks alive.
        unsafe { handle_futex_death(pending, record.tid, true) };
    }
    head.clear();
}

/// `handle_futex_death` of Linux.
///
/// # Safety
/// `node` is the address of a living node, with or without the mark.
#[allow(unsafe_code)]
unsafe fn handle_futex_death(node: usize, tid: u32, announced: bool) {
    let inherits = node & robust_list::PI != 0;
    use crate::atomic::Ordering::SeqCst;
    use crate::sys::futex_bits::{OWNER_DIED, TID_MASK, WAITERS};
    // SAFETY: the node is alive by this function's contract.
    let word = unsafe { robust_list::word_of(node & !robust_list::PI) };
    let mut value = word.for_kernel().load(SeqCst);
    loop {
        if announced
            && !inherits
            && value & TID_MASK == 0
            && !crate::model::has(crate::model::Fault::KernelSwallowsWake)
        {
            futex::wake(word, 1, Sharing::Shared);
            return;
        }
        if value & TID_MASK != tid {
            // The dead task may have been woken, or about to wake another, and a third task has acquired the
            // word meanwhile, which does not know of the sleepers. The kernel passes no wake-up on; the
            // sleepers' time-outs end.
            if announced && !inherits && value & TID_MASK != 0 && value & WAITERS == 0 {
                unless_fault!(RobustSleepersNeverLook, futex::end_naps(word), ());
            }
            return;
        }
        match word.for_kernel().compare_exchange(
            value,
            (value & WAITERS) | OWNER_DIED,
            SeqCst,
            SeqCst,
        ) {
            Ok(_) => break,
            Err(now) => value = now,
        }
    }
    if value & WAITERS != 0 && !inherits {
        futex::wake(word, 1, Sharing::Shared);
    }
}
