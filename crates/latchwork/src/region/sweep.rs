//! Settling what dead tasks left behind.
//!
//! Under the region's robust sweep lock, for each slot whose life-word says `OWNER_DIED`:
//! 1. count the death and wake all who watch the life-word (invariant 3 of the task table);
//! 2. outlast the task: wait until the kernel has gone through all that it had on its robust list,
//!    and those that die with it have died, too;
//! 3. settle the task's heap: finish or undo its intent, free or keep its blocks, orphan its spans;
//! 4. next generation; 5. tail and life-word to 0: the slot is free.
//!
//! A kill between any two steps leaves the life-word at `OWNER_DIED`: the next sweep repeats all of
//! them, each of which is idempotent. (A generation may be skipped.)
//!
//! *Why outlast?* The kernel finds the rest of a dead task's locks through pointers in those that it
//! has not come to yet, and lets others run in between. A lock in a block that only the task knew, or
//! in data whose lock has passed on already, must not be freed or overwritten before. And a SIGKILL
//! ends the threads of a process one by one: one that the dead task had lent its box or guard to may
//! still have locks there. So the other tasks of a process that is being killed are waited for (those
//! that are no tasks of the region, and processes of which `/proc` says nothing, are not).
//!
//! The wait is that for a few thousand instructions of the kernel's. If something is wrong with the
//! dead task's list (a pthread mutex in memory that was unmapped, more locks than the kernel would
//! look at) its tail is never marked. After [`PATIENCE`] the sweep goes on, but keeps the private
//! blocks: memory is lost, no lock.
#![allow(unsafe_code)]

use super::heap::OnDeath;
use super::task_table::{Life, Orphans, Slot, life_of};
use super::{AttachError, Inner, Region};
use crate::atomic::Ordering;
use crate::mutex::RawError;
use crate::sys::futex::{self, Sharing};
use crate::sys::{proc_file, thread};
use crate::time::Deadline;
use core::time::Duration;
use std::sync::Arc;

/// How long a sweep waits for dead tasks to be done with.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it looks whether a living one is dying.
const LOOK: Duration = Duration::from_millis(1);

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
        // Acquire: pairs with the Release of `use_slot`.
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
            // Nobody gives it up; a file made by a hostile hand may say so.
            Err(_) => return Err(AttachError::Damaged("nobody can take its sweep lock")),
        }
        let (dead, done_with) = self.outlast_the_dead();
        for index in dead {
            swept.dead.push(self.slots()[index].name());
            self.bury(index as u16, done_with);
        }
        // SAFETY: locked above.
        unsafe { lock.unlock_raw() };
        Ok(swept)
    }

    /// The slots of all dead tasks, each reported, and whether the kernel has done with all of them.
    fn outlast_the_dead(&self) -> (Vec<usize>, bool) {
        // Acquire: pairs with the Release of `use_slot`.
        let used = self.header().slots_used.load(Ordering::Acquire) as usize;
        let slots = &self.slots()[..used.min(self.slots().len())];
        let until = Deadline::after(PATIENCE);
        let mut dead: Vec<usize> = (0..slots.len())
            .filter(|index| slots[*index].life() == Life::Dead)
            .collect();
        let mut done_with = true;
        let mut next = 0;
        while let Some(slot) = dead.get(next).map(|index| &slots[*index]) {
            next += 1;
            // Release: pairs with the Acquire in `park`: who sees the count sees the death.
            self.header().deaths.fetch_add(1, Ordering::Release);
            // Relaxed: a number to look at.
            self.header().died.fetch_add(1, Ordering::Relaxed);
            futex::wake(slot.life_word(), u32::MAX, Sharing::Shared);
            done_with &= slot.outlast(until);
            let process = slot.process.load(Ordering::Relaxed);
            for (index, fellow) in slots.iter().enumerate() {
                if fellow.process.load(Ordering::Relaxed) == process
                    && matches!(fellow.life(), Life::Alive(_))
                {
                    done_with &= fellow.outlast_if_killed(process, until);
                }
                if fellow.life() == Life::Dead && !dead.contains(&index) {
                    dead.push(index);
                }
            }
        }
        (dead, done_with)
    }

    /// `done_with`: nothing looks at the task's private blocks any more.
    fn bury(&self, index: u16, done_with: bool) {
        let slot = &self.slots()[usize::from(index)];
        let policy = match slot.orphans.load(Ordering::Relaxed) {
            keep if keep == Orphans::Keep as u8 => OnDeath::Keep,
            _ if !done_with => OnDeath::Keep,
            _ => OnDeath::Free,
        };
        // SAFETY: the slot's task is dead, and the sweep lock admits one recoverer.
        unsafe { self.heap.recover(self.owner_of(index), policy) };
        slot.next_generation();
        // Relaxed: published with the life-word.
        slot.tail.word.store(0, Ordering::Relaxed);
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

impl Slot {
    /// Waits until the kernel has gone through the robust list of the dead task; `false` if it takes
    /// too long.
    fn outlast(&self, until: Deadline) -> bool {
        let tail = &self.tail.word;
        loop {
            // Acquire: what the kernel did to the list is done.
            let word = tail.load(Ordering::Acquire);
            if !matches!(life_of(word), Life::Alive(_)) {
                return true;
            }
            if until.has_passed() {
                return false;
            }
            futex::wait(tail, word, Sharing::Shared, Some(until));
        }
    }

    /// Waits for the death of a living task of another process if that is being killed; `false` if it
    /// takes too long.
    fn outlast_if_killed(&self, process: u32, until: Deadline) -> bool {
        loop {
            // Acquire: as for `life`.
            let word = self.life_word().load(Ordering::Acquire);
            let Life::Alive(tid) = life_of(word) else {
                return true;
            };
            if process == thread::process_id() || !proc_file::is_ending(process, tid) {
                return true;
            }
            if until.has_passed() {
                return false;
            }
            let look = Deadline::after(LOOK).min(until);
            futex::wait(self.life_word(), word, Sharing::Shared, Some(look));
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
