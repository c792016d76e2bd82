//! The task table of a region: its tasks, which of them died, and how a sleeping task detects a death.
//!
//! Each thread that uses a region owns a [`Slot`] of it. The slot's **life-word** is a word on the thread's robust
//! list, held from attach to detach: when the thread dies, for any reason, the kernel marks the word and wakes
//! one sleeper on it. Only the life-word decides whether a task is alive: a thread ID and a start time can be reused
//! and outlive an `exec`; the life-word cannot.
//!
//! | life-word | meaning | entered by |
//! | --- | --- | --- |
//! | 0 | the slot is free | detach; the last step of a sweep |
//! | TID + `WAITERS` | the task is alive | attach: CAS 0→TID+`WAITERS` |
//! | `OWNER_DIED` (+ `WAITERS`) | the task died, its slot is unswept | the kernel |
//!
//! `WAITERS` is always set, so the kernel always wakes a sleeper, which need not announce itself.
//!
//! A second word of this kind, the **tail**, comes after all locks on the thread's robust list.
//!
//! | life-word | tail | meaning |
//! | --- | --- | --- |
//! | TID | 0 or TID | the task is alive (0: it is just beginning, or leaving) |
//! | `OWNER_DIED` | TID | the task runs no more; the kernel is walking its list |
//! | `OWNER_DIED` | 0 or `OWNER_DIED` | the kernel has finished walking its list |
//! | 0 | 0 | the slot is free |
//!
//! The kernel follows pointers in the locks themselves, and may be interrupted between any two of them, for as long
//! as other tasks run: it finds the remaining locks through those that it has not reached yet. So everything on the
//! dead task's list must stay unchanged, neither freed nor overwritten, until the walk is finished: its private blocks
//! that contain locks, and the data that a held lock opens to its next holder.
//!
//! Invariants
//! 1. A slot's generation changes only while no task's life-word is in it (dead and under the sweep lock, or by its
//!    task at detach before the word becomes 0). So *(slot, generation)* names one task for ever, and that task is
//!    alive if and only if the generation is current and the word holds a TID.
//! 2. A task that sleeps until another task makes progress also sleeps on the life-words of *all* other tasks (see
//!    [`park`](super::park)).
//! 3. A task that detects a dead task wakes all its watchers before it sweeps the slot. If the detecting task dies
//!    first, its own death wakes one watcher, which detects both.
//! 4. Life-words precede all other locks of this library on the robust list, tails come after all locks of any
//!    library, and the kernel works from front to back. So a task that acquires a dead task's lock finds that task's
//!    life-word already marked, and can sweep (which waits for the tail, and settles the heap's intents) before it
//!    touches the protected data.
//! 5. A sweep is idempotent at every step; it runs under the region's robust sweep lock.
//! 6. A task that has locks or semaphores of the region, or messages in flight, does not leave in an orderly way: the
//!    waiters for those learn about it only by the task's death. A thread that ends with them releases its heap. If
//!    what it has may be lent to another thread (all but semaphores), both words pass to the process's keeper, and the
//!    task lives until the process dies; otherwise the life-word is left to the kernel.
#![allow(unsafe_code)]

use super::events::EventSets;
use super::heap::TaskHeap;
use super::inbox::Inbox;
use super::wait_record::WaitRecord;
use super::word::text;
use crate::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::hook::TaskRecord;
use crate::mutex::{OWNER_DIED, TID_MASK, WAITERS};
use crate::sys::futex::{self, Sharing};
use crate::sys::robust_list::{AtEnd, Node};
use crate::task::{Attachment, Me};
use crate::text::whole_characters;

/// Maximum length of a task's name in bytes.
pub(super) const NAME_BYTES: usize = 32;

/// What happens to the heap blocks that only a dead task knew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orphans {
    /// They are freed.
    #[default]
    Free,
    /// They stay allocated, for a successor that finds them by other means.
    Keep,
}

/// One task's place in the table.
#[repr(C, align(128))]
#[doc(hidden)]
pub struct Slot {
    pub(super) life: Node,
    pub(super) generation: AtomicU32,
    pub(super) process: AtomicU32,
    pub(super) attached_at: AtomicU64,
    pub(super) orphans: AtomicU8,
    name: [AtomicU8; NAME_BYTES],
    /// Whether the task's process has, or has had in the meantime, another task here.
    pub(super) shares_process: AtomicU8,
    /// What the task has learned about its partners in exchanging messages. Only the task itself uses it.
    pub takes_turns: AtomicU8,
    /// The number of messages that the task has taken off queues of the region and not finished. Only the task itself
    /// uses it.
    pub(super) messages: AtomicU32,
    pub inbox: Inbox,
    pub(super) heap: TaskHeap,
    pub(super) tail: Node,
    pub events: EventSets,
    pub wait: WaitRecord,
    /// The locks that the task holds and waits for, if its locks are checked.
    pub(crate) check: TaskRecord,
}

/// The meaning of a life-word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Free,
    Alive(u32),
    Dead,
}

pub(super) fn life_of(word: u32) -> Life {
    match word & TID_MASK {
        0 if word & OWNER_DIED != 0 => Life::Dead,
        0 => Life::Free,
        tid => Life::Alive(tid),
    }
}

impl Slot {
    pub(super) fn life(&self) -> Life {
        // Acquire: pairs with the Release of `occupy` and `vacate`: a task that sees the new life sees the generation
        // that belongs to it.
        life_of(self.life.word.load(Ordering::Acquire))
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(self.life(), Life::Alive(_))
    }

    /// The slot of an attachment.
    #[inline]
    pub(super) fn of(attachment: &Attachment) -> &Self {
        // SAFETY: an attachment refers to a slot of its region, and keeps the region mapped.
        unsafe { attachment.slot.cast().as_ref() }
    }

    /// Claims a free slot for the calling thread.
    ///
    /// A kill after the CAS leaves the life-word announced or linked with our TID, and the kernel then marks it: the
    /// slot is swept like that of a task that has done nothing yet. The same holds for the tail, which comes second:
    /// before that, the task has nothing in the region.
    pub(super) fn occupy(&self, me: Me) -> bool {
        // SAFETY: the list is used in this call alone; a slot never moves, and its region stays mapped.
        let head = unsafe { me.head() };
        let before = head.announce(&self.life, 0);
        // AcqRel: pairs with `vacate` of the previous owner and with `life`.
        let life = me.tid() | WAITERS;
        let word = &self.life.word;
        if word
            .compare_exchange(0, life, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            head.settle(before);
            return false;
        }
        self.life.set_at_end(AtEnd::HandOn);
        self.tail.set_at_end(AtEnd::HandOn);
        // SAFETY: the word was acquired just now and is announced; a slot never moves, and the word is unlinked in
        // `vacate`, before the region can be unmapped. It goes to the front (invariant 4).
        unsafe { head.link(&self.life, 0, head.front(), me.end()) };
        me.spend();
        head.settle(before);
        let before = head.announce(&self.tail, 0);
        // Relaxed: other tasks read it only after the kernel has marked the life-word.
        self.tail.word.store(life, Ordering::Relaxed);
        // SAFETY: the word belongs to this task and is announced; a slot never moves, and the word is unlinked in
        // `vacate`.
        unsafe { head.link_tail(&self.tail) };
        me.spend();
        head.settle(before);
        true
    }

    /// The calling thread, which ends, leaves the slot to its process.
    pub(super) fn stay(&self) {
        self.life.set_at_end(AtEnd::KeepLife);
        self.tail.set_at_end(AtEnd::KeepTail);
    }

    /// Ends the calling thread's ownership. The slot then contains nothing of the task.
    ///
    /// # Safety
    /// The calling thread occupies the slot, and has forgotten the attachment: otherwise a signal handler could link
    /// a lock behind the life-word after that was unlinked.
    pub(super) unsafe fn vacate(&self, me: Me) {
        self.check.end();
        self.next_generation();
        // SAFETY: the list is used in this call alone; a slot never moves, and its region stays mapped.
        let head = unsafe { me.head() };
        let before = head.announce(&self.tail, 0);
        // SAFETY: `occupy` has linked it, on this thread.
        unsafe { head.unlink_tail(&self.tail) };
        self.tail.word.store(0, Ordering::Relaxed);
        head.settle(before);
        me.refund();
        let before = head.announce(&self.life, 0);
        // SAFETY: `occupy` has linked it, on this thread.
        unsafe { head.unlink(&self.life, me.end()) };
        // Release: pairs with `life` and the next `occupy`.
        self.life.word.store(0, Ordering::Release);
        futex::wake(&raw const self.life.word, u32::MAX, Sharing::Shared);
        head.settle(before);
        me.refund();
    }

    /// Records the slot's process, before [`Self::note_shared_process`]. For the new task.
    pub(super) fn set_process(&self, process: u32) {
        self.shares_process.store(0, Ordering::Relaxed);
        // SeqCst: of two tasks of a process that begin at once, at least one sees the other. And a task that sees the
        // process sees `shares_process` at 0 before it sets it.
        self.process.store(process, Ordering::SeqCst);
    }

    /// Marks this task and `other`, if they belong to one process.
    pub(super) fn note_shared_process(&self, other: &Self) {
        // SeqCst: see `set_process`. Other tasks do not change this slot's process.
        let process = self.process.load(Ordering::Relaxed);
        if other.process.load(Ordering::SeqCst) == process && other.is_alive() {
            self.shares_process.store(1, Ordering::Relaxed);
            other.shares_process.store(1, Ordering::Relaxed);
        }
    }

    /// The number of messages that the task has in flight.
    pub(super) fn messages(&self) -> u32 {
        // Relaxed, and no read-modify-write, here and below: only the task's own thread calls this, and a signal
        // handler leaves the count as it was.
        self.messages.load(Ordering::Relaxed)
    }

    /// Counts a message that the task has taken.
    pub fn message_taken(&self) {
        self.messages.store(self.messages() + 1, Ordering::Relaxed);
    }

    /// Counts a message that the task has finished, or returned.
    pub fn message_finished(&self) {
        self.messages.store(self.messages() - 1, Ordering::Relaxed);
    }

    /// Whether other tasks may wait for something that the task has.
    pub(super) fn has_obligations(&self) -> bool {
        self.messages() != 0 || self.wait.standing.held() != 0
    }

    pub(super) fn next_generation(&self) {
        let next = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        // Relaxed: the life-word's Release publishes it (invariant 1). 0 is never a generation.
        self.generation.store(next.max(1), Ordering::Relaxed);
    }

    pub fn set_name(&self, name: &str) {
        let mut bytes = whole_characters(name, NAME_BYTES).bytes();
        for place in &self.name {
            // Relaxed: a name read during the change is garbled, which is harmless.
            place.store(bytes.next().unwrap_or(0), Ordering::Relaxed);
        }
    }

    pub(crate) fn name(&self) -> String {
        let mut bytes = self.name.iter();
        let end = bytes.position(|byte| byte.load(Ordering::Relaxed) == 0);
        text(&self.name[..end.unwrap_or(NAME_BYTES)])
    }
}
