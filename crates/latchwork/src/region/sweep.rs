//! Settling what dead tasks left behind.
//!
//! Under the region's robust sweep lock, for each slot whose life-word says `OWNER_DIED`:
//! 1. count the death and wake all who watch the life-word (invariant 3 of the task table);
//! 2. settle the task's heap: finish or undo its intent, free or keep its blocks, orphan its spans;
//! 3. next generation; 4. life-word to 0: the slot is free.
//!
//! A kill between any two steps leaves the life-word at `OWNER_DIED`: the next sweep repeats all of
//! them, each of which is idempotent. (A generation may be skipped.)
#![allow(unsafe_code)]

use super::heap::OnDeath;
use super::task_table::{Life, Orphans};
use super::{AttachError, Inner, Region};
use crate::atomic::Ordering;
use crate::mutex::RawError;
use crate::sys::futex::{self, Sharing};
use std::sync::Arc;

/// What a [sweep](Region::sweep) found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// The names of the dead tasks, as they were in the table.
    pub dead: Vec<String>,
}

impl Region {
    /// Finds the tasks that died and settles what they left: blocks that only they knew, half-done
    /// heap operations, their slots. Returns whom it found.
    ///
    /// The library does this by itself whenever somebody waits for a dead task, takes over its lock,
    /// attaches, or joins it; call it to have it done at once. What a dead task held under a robust
    /// mutex is reported by that mutex, and messages that it was receiving are delivered again.
    ///
    /// # Errors
    /// If the calling thread cannot own robust locks.
    pub fn sweep(&self) -> Result<Swept, AttachError> {
        self.inner.sweep()
    }
}

impl Inner {
    /// Whether a task died whose slot nobody has swept.
    pub(crate) fn has_unswept(&self) -> bool {
        // Acquire: pairs with the Release of `attach_thread`.
        let used = self.header().slots_used.load(Ordering::Acquire) as usize;
        self.slots()
            .iter()
            .take(used)
            .any(|slot| slot.life() == Life::Dead)
    }

    pub(crate) fn sweep(&self) -> Result<Swept, AttachError> {
        let mut swept = Swept::default();
        if !self.has_unswept() {
            return Ok(swept);
        }
        let lock = &self.header().sweep_lock;
        // SAFETY: the lock lies in the mapping, which `self` keeps.
        match unsafe { lock.lock_raw(None) } {
            // A dead sweeper's work is repeated below: its victims are still marked.
            Ok(_) => lock.mark_consistent(),
            Err(RawError::Deadlock) => return Ok(swept),
            Err(RawError::Unavailable(error)) => return Err(AttachError::Task(error)),
            Err(_) => return Err(AttachError::TooManyLocks),
        }
        for (index, slot) in self.slots().iter().enumerate() {
            if slot.life() != Life::Dead {
                continue;
            }
            swept.dead.push(slot.name());
            self.bury(index as u16);
        }
        // SAFETY: locked above.
        unsafe { lock.unlock_raw() };
        Ok(swept)
    }

    fn bury(&self, index: u16) {
        let slot = &self.slots()[usize::from(index)];
        // Release: pairs with the Acquire in `park`: who sees the count sees the death.
        self.header().deaths.fetch_add(1, Ordering::Release);
        futex::wake(slot.life_word(), u32::MAX, Sharing::Shared);
        let policy = match slot.orphans.load(Ordering::Relaxed) {
            keep if keep == Orphans::Keep as u8 => OnDeath::Keep,
            _ => OnDeath::Free,
        };
        // SAFETY: the slot's task is dead, and the sweep lock admits one recoverer.
        unsafe { self.heap.recover(self.owner_of(index), policy) };
        slot.next_generation();
        // Release: pairs with `occupy`.
        slot.life_word().store(0, Ordering::Release);
    }

    /// Gives up the heap of a living task that leaves: what it allocated stays, as others may use
    /// it, and belongs to nobody.
    pub(super) fn release_heap(&self, index: u16) {
        let lock = &self.header().sweep_lock;
        // SAFETY: the lock lies in the mapping, which `self` keeps.
        let locked = unsafe { lock.lock_raw(None) };
        if locked.is_ok() {
            lock.mark_consistent();
        }
        // SAFETY: the calling thread is the slot's task and does not use the heap meanwhile.
        unsafe { self.heap.recover(self.owner_of(index), OnDeath::Keep) };
        if locked.is_ok() {
            // SAFETY: locked above.
            unsafe { lock.unlock_raw() };
        }
    }
}

/// A robust lock has passed on from a dead owner. If it lies in a region, the dead task's heap
/// intents are settled before anybody touches what the lock protects: an intent is decided by
/// looking at a location that the lock protects.
pub(super) fn after_owner_death(lock: usize) {
    if let Some(inner) = Inner::containing(lock) {
        // The slot is swept if it can be; if not, nobody could, and the heap aborts on misuse.
        let _ = inner.sweep();
        drop::<Arc<Inner>>(inner);
    }
}
