//! Deadlock detection: cycles of waits.
//!
//! From the semaphore that a task is about to wait for, a chain leads to its owner, to the semaphore that this owner
//! waits for, to the owner of that, and so on. The chain ends at a task that does not wait, at a semaphore without an
//! owner, or at the calling task: then there is a cycle.
//!
//! *Every cycle is detected.* Only a task that begins to wait completes a cycle; being handed a semaphore completes
//! none, since the new owner waits no longer. Each task enters its queue *before* it walks the chain, with a full
//! barrier between the two. Suppose that all tasks of a cycle wait, and take the one whose barrier was the last: it
//! sees the records of the others, and the owners of their semaphores, who cannot give them up; so its walk comes back
//! to itself. So of several tasks that complete a cycle at the same moment at least one gets the error, and possibly
//! all do.
//!
//! *No task outside the cycle gets the error, and none without a cycle.* A cycle counts only if two walks agree. A
//! record's word changes with each wait, and a waiting task gives nothing up: if two walks find the same tasks in the
//! same waits, all of them were in these waits at the moment between the walks, and owned what the walks saw. A dead
//! task, or a cycle that the calling task is not part of, ends the walk.
//!
//! A task that polls before it queues is not yet part of a cycle.

use super::object::{core_at, owner_of, slot_of};
use super::{Caller, Core, TaskTable};
use crate::atomic::Ordering::{Acquire, SeqCst};
use crate::region::wait_record::{STATE, WAITING};

/// Whether the calling task, which waits for `core`, waits for itself.
pub(crate) fn completes_cycle<T: TaskTable>(tasks: &T, core: &Core, caller: Caller<'_>) -> bool {
    loop {
        let first = walk(tasks, core, caller);
        if first.is_none() || walk(tasks, core, caller) == first {
            return first.is_some();
        }
    }
}

/// Walks the chain back to the calling task; returns a number that differs for different chains, or `None` if the chain
/// ends elsewhere.
fn walk<T: TaskTable>(tasks: &T, mut core: &Core, caller: Caller<'_>) -> Option<u64> {
    let mut digest = 0;
    // A longer chain leads round a cycle of other tasks.
    for _ in 0..=tasks.used() {
        // SeqCst, here and below: ordered after the entry into the queue, as the head says.
        let owner = owner_of(core.word.load(SeqCst));
        if owner == caller.task {
            return Some(digest);
        }
        if owner == 0 || !core.form().kind().has_owner() {
            return None;
        }
        let record = tasks.record(slot_of(owner))?;
        let word = record.word.load(SeqCst);
        // Acquire: ordered before the second read of the word.
        let object = record.object.load(Acquire);
        let waits = word & STATE == WAITING
            && object != 0
            && record.task.load(Acquire) == owner
            && tasks.is_alive(owner)
            && record.word.load(Acquire) == word;
        if !waits {
            return None;
        }
        digest = [owner, u64::from(word), object]
            .into_iter()
            .fold(digest, mix);
        // SAFETY: a living task waits for it, so this library stored the address. A core is never moved or freed, and
        // its memory is never used otherwise.
        core = unsafe { core_at(object) };
    }
    None
}

/// Mixes a part into a chain's number. Different chains get different numbers with very high probability.
fn mix(digest: u64, part: u64) -> u64 {
    (digest ^ part)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
}
