//! Circles of waits.
//!
//! From the semaphore that a task is about to wait for the way leads to its owner, to what that waits for,
//! to the owner of that, and so on. It ends at a task that does not wait, at a semaphore without an owner;
//! or at the task that asks.
//!
//! *No circle goes unnoticed.* A circle is closed by a task that begins to wait; being handed a semaphore
//! closes none, for the heir waits no longer. Each task enters its queue *before* it goes round, with a full
//! barrier between the two. Let all of a circle wait, and take the one whose barrier was the last: it sees
//! the others' records, and the owners of their semaphores, who cannot give them up, and comes back to itself.
//! So of several that close a circle in the same moment one at least is told, and possibly all.
//!
//! *Nobody else is told.* The way is gone twice. A record's word is another with each wait, and a task that
//! waits gives nothing up: if the same tasks are found in the same waits twice, they were all in them at the
//! moment between the two, and owned what they were found to own. A task that is dead, or waits in a circle that
//! others form, ends the way.
//!
//! A task that polls, before it queues, stands in no circle yet.

use super::ground::Ground;
use super::object::{Core, owner_of, slot_of};
use super::wait::Me;
use crate::atomic::Ordering::{Acquire, SeqCst};
use crate::region::wait_record::{STATE, WAITING};

/// Whether the calling task, which waits for `core`, waits for itself.
pub(crate) fn is_circle<G: Ground>(ground: &G, core: &Core, me: Me<'_>) -> bool {
    loop {
        let Some(first) = walk(ground, core, me) else {
            return false;
        };
        if walk(ground, core, me) == Some(first) {
            return true;
        }
    }
}

/// The way back to the calling task, as a number that is another for another way; `None` if it ends.
fn walk<G: Ground>(ground: &G, core: &Core, me: Me<'_>) -> Option<u64> {
    let mut core = core;
    let mut way = 0;
    // A way that is longer leads round a circle of others.
    for _ in 0..=ground.used() {
        // SeqCst, here and below: ordered behind the entering, as the head says.
        let owner = owner_of(core.word.load(SeqCst));
        if owner == me.task {
            return Some(way);
        }
        if owner == 0 || !core.form().kind().has_owner() {
            return None;
        }
        let record = ground.record(slot_of(owner))?;
        let word = record.word.load(SeqCst);
        // Acquire: before the second look at the word.
        let object = record.object.load(Acquire);
        let waits = word & STATE == WAITING
            && object != 0
            && record.task.load(Acquire) == owner
            && ground.is_alive(owner)
            && record.word.load(Acquire) == word;
        if !waits {
            return None;
        }
        for part in [owner, u64::from(word), object] {
            way = mix(way, part);
        }
        // SAFETY: a living task waits for it: the address was stored by this library. A core is never moved
        // or freed, nor anything else.
        core = unsafe { super::core_at(object) };
    }
    None
}

/// Different ways get different numbers, as good as always.
fn mix(way: u64, part: u64) -> u64 {
    (way ^ part)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
}
