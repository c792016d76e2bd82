//! Tasks whose death the kernel has not marked: who asks whether their threads exist, and marks them. The [task
//! table](super::task_table) says when that happens.

use super::heap::Owner;
use super::sweep::Swept;
use super::task_table::{Life, Slot, life_of};
use super::{AttachError, Inner};
use crate::atomic::Ordering;
use crate::mutex::{OWNER_DIED, WAITERS};
use crate::sys::futex_bits::NO_THREAD;
use crate::sys::running::no_such_task;
use crate::task::Me;

/// So many tasks a joiner asks about, whatever the size of the table: each costs a system call.
const ASKED: usize = 4;

impl Inner {
    /// As [`Self::sweep`], also for the tasks whose death the kernel has not marked. One system call for each living task of
    /// this PID namespace.
    pub fn sweep_all(&self) -> Result<Swept, AttachError> {
        // No sweep frees a slot of the reserve, but the next thread there takes that of a task whose death is marked.
        let reserve = &self.slots()[self.max_tasks()..];
        self.sweep_vanished(self.used_slots().iter().chain(reserve))
    }

    /// Whether a task has died without the kernel's mark. One system call for each living task of this PID namespace.
    pub(super) fn any_has_vanished(&self) -> bool {
        let mut slots = self.used_slots().iter();
        Me::get().is_ok_and(|me| slots.any(|slot| self.is_here(slot, me) && slot.has_vanished()))
    }

    /// Marks the tasks whose death the kernel has not marked, in a region that no process uses.
    pub(super) fn end_vanished(&self) {
        let Ok(me) = Me::get() else { return };
        for slot in self.slots() {
            slot.mark_if_vanished(|| self.is_here(slot, me));
        }
    }

    /// As [`Self::sweep_all`], for [`ASKED`] of the tasks: others for each task that joins.
    pub fn sweep_some(&self, joined: Owner) -> Result<Swept, AttachError> {
        let used = self.used_slots();
        // The successive tasks of one place ask about all others in turn.
        let turn = usize::from(joined.slot()).wrapping_add(joined.generation() as usize);
        let first = turn.wrapping_mul(ASKED);
        let of_turn = |index| used.get(first.wrapping_add(index) % used.len());
        self.sweep_vanished((0..ASKED.min(used.len())).filter_map(of_turn))
    }

    /// Whether this task has vanished: the kernel has not marked its death, and its thread does not exist. A system call.
    pub(super) fn has_vanished(&self, task: Owner) -> bool {
        let (Some(slot), Ok(me)) = (self.slots().get(usize::from(task.slot())), Me::get()) else {
            return false;
        };
        // The slot may be another task's after the first question; that one has not been seen to live by the last.
        self.is_alive(task) && self.is_here(slot, me) && slot.has_vanished() && self.is_alive(task)
    }

    /// Whether this task has vanished, for a waiter for its `lock`. Settles that death, unless the lock is the sweep lock: the
    /// caller takes that over, and a later sweep settles the death.
    pub fn settle_if_vanished(&self, task: Owner, lock: usize) -> bool {
        if !self.has_vanished(task) {
            return false;
        }
        if lock == core::ptr::from_ref(&self.header().sweep_lock).addr() {
            return true;
        }
        // With all others that have vanished: a thread that joins in the slot waits for those that had locks of its record. If it
        // fails, the next waiter asks again.
        let _ = self.sweep_all();
        !self.is_alive(task)
    }

    /// As [`Self::sweep`], also for those of these slots whose task has vanished.
    fn sweep_vanished<'s>(
        &self,
        slots: impl Iterator<Item = &'s Slot> + Clone,
    ) -> Result<Swept, AttachError> {
        let Ok(me) = Me::get() else {
            return self.sweep();
        };
        let may_ask = |slot: &Slot| slot.is_alive() && self.is_here(slot, me);
        let mut lost = slots.clone();
        if !lost.any(|slot| may_ask(slot) && slot.has_vanished()) {
            return self.sweep();
        }
        self.sweep_after(|| {
            for slot in slots {
                crate::atomic::unless_disabled!(
                    SweepMarksVanished,
                    slot.mark_if_vanished(|| may_ask(slot)),
                    ()
                );
            }
        })
    }
}

impl Slot {
    /// Whether the life-word names a thread that does not exist, although the kernel has not marked it. For a slot of the
    /// calling thread's PID namespace. A system call.
    pub(super) fn has_vanished(&self) -> bool {
        match self.life() {
            // No thread's ID says that the task is one that lives as long as its process.
            Life::Alive(tid) => tid != NO_THREAD && no_such_task(tid),
            _ => false,
        }
    }

    /// Marks the task as the kernel would have at its death, if it [has vanished](Self::has_vanished), and is one of those
    /// that the caller may ask about. For the thread that sweeps.
    ///
    /// Until the marks are set the thread may leave, or its process's keeper or another thread may take the slot: the sweep lock
    /// keeps none of them away. So the claim is changed first, from what it was before the question to itself, with a new
    /// count. If that succeeds, nobody has left or claimed the slot since; and from then on nobody does, since the thread
    /// is gone and the life-word is not free. A life-word that has passed to the keeper is not the one that was read.
    fn mark_if_vanished(&self, may_ask: impl FnOnce() -> bool) {
        let claim = self.claim_now();
        // The tail comes first: after a kill in between the task is still one that has vanished.
        let words = [&self.tail.word, &self.life.word];
        let read = words.map(|word| (word, word.load(Ordering::Acquire)));
        if !may_ask() || !self.has_vanished() || !self.change_claim(claim, claim[0]) {
            return;
        }
        for (word, value) in read {
            if matches!(life_of(value), Life::Alive(_)) {
                // AcqRel, and Acquire: as the kernel's marks.
                let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
                let _ = word.compare_exchange(value, OWNER_DIED | WAITERS, success, failure);
            }
        }
    }
}
