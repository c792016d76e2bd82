//! The tasks of a region: who is in it, who died, and how a sleeper learns of a death.
//!
//! Each thread that uses a region owns a [`Slot`] of it. The slot's **life-word** is a word on the
//! thread's robust list, held from attach to detach: when the thread dies, by whatever cause, the
//! kernel marks the word and wakes one sleeper on it. The life-word is the authority on life; TID
//! and start time can be reused and outlive an `exec`, the life-word cannot.
//!
//! | life-word | meaning | entered by |
//! | --- | --- | --- |
//! | 0 | the slot is free | detach; the last step of a sweep |
//! | TID + `WAITERS` | the task lives | attach: CAS 0→TID+`WAITERS` |
//! | `OWNER_DIED` (+ `WAITERS`) | the task died, its slot is unswept | the kernel |
//!
//! `WAITERS` is always set, so the kernel always wakes: a sleeper need not announce itself.
//!
//! A second word of this kind, the **tail**, stands behind all locks on the thread's robust list.
//!
//! | life-word | tail | meaning |
//! | --- | --- | --- |
//! | TID | 0 or TID | the task lives (0: it is about to begin, or to leave) |
//! | `OWNER_DIED` | TID | the task runs no more; the kernel is going through its list |
//! | `OWNER_DIED` | 0 or `OWNER_DIED` | the kernel has done with what the task held |
//! | 0 | 0 | the slot is free |
//!
//! The kernel follows pointers in the locks themselves, and may be interrupted between any two of
//! them, for as long as others run. So what the dead task had on its list must stay as it is until
//! then: its private blocks with locks in them, and what a taken lock gives its next holder to change.
//!
//! Invariants
//! 1. A slot's generation changes only while nobody's life-word is in it (dead and under the sweep
//!    lock, or by its task at detach before the word goes to 0). So *(slot, generation)* names one
//!    task for ever, and it lives exactly if the generation is current and the word holds a TID.
//! 2. A task that sleeps for another's progress sleeps on the life-words of *all* other tasks, too
//!    (see [`park`](super::park)).
//! 3. Whoever finds a dead task wakes all its watchers before it sweeps the slot. If the finder
//!    dies first, its own death wakes one watcher, who finds both.
//! 4. Life-words stand on the robust list before all other locks of ours, tails behind all locks of
//!    anybody's, and the kernel works from front to back: who takes a dead task's lock finds the
//!    task's life-word marked already, and can sweep (which waits for the tail, and settles the heap's
//!    intents) before it touches what the lock protects.
//! 5. A sweep is idempotent at every step; it runs under the region's robust sweep lock.
//! 6. A task that has locks or semaphores of the region, or messages in flight, does not leave in good order: who
//!    waits for those learns of it by the task's death only. A thread that ends with them gives up
//!    its heap, and leaves its life-word to the kernel.
#![allow(unsafe_code)]

use super::events::EventSets;
use super::heap::TaskHeap;
use super::inbox::Inbox;
use super::wait_record::WaitRecord;
use crate::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::hook::TaskRecord;
use crate::mutex::{OWNER_DIED, TID_MASK, WAITERS};
use crate::sys::futex::{self, Sharing};
use crate::sys::robust_list::Node;
use crate::task::Me;
use crate::text::whole_characters;

/// Bytes of a task's name that are kept.
pub(super) const NAME_BYTES: usize = 32;

/// What becomes of the heap blocks that only a dead task knew.
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
pub(crate) struct Slot {
    pub(super) life: Node,
    pub(super) generation: AtomicU32,
    pub(super) process: AtomicU32,
    pub(super) attached_at: AtomicU64,
    pub(super) orphans: AtomicU8,
    name: [AtomicU8; NAME_BYTES],
    /// Whether the task's process has, or has had, another task here meanwhile.
    company: AtomicU8,
    /// What the task has learned of those that it exchanges messages with. Its own business.
    pub(crate) takes_turns: AtomicU8,
    /// Messages that the task has taken off queues of the region and not finished. Its own business.
    messages: AtomicU32,
    pub(crate) inbox: Inbox,
    pub(super) heap: TaskHeap,
    pub(super) tail: Node,
    pub(crate) events: EventSets,
    pub(crate) wait: WaitRecord,
    /// What the task holds and wants, if its locks are checked.
    pub(crate) check: TaskRecord,
}

/// What a life-word says.
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
    pub(super) fn life_word(&self) -> &AtomicU32 {
        &self.life.word
    }

    pub(super) fn life(&self) -> Life {
        // Acquire: pairs with the Release of `occupy` and `vacate`: whoever sees the new life sees
        // the generation that belongs to it.
        life_of(self.life.word.load(Ordering::Acquire))
    }

    /// Claims a free slot for the calling thread.
    ///
    /// A kill after the CAS leaves the life-word announced or linked with our TID, which the kernel
    /// then marks: the slot is swept like that of a task that did nothing yet. The same goes for the
    /// tail, which comes second: before it the task has nothing in the region.
    pub(super) fn occupy(&self, me: Me) -> bool {
        let head = me.head();
        let before = head.announce(&self.life, 0);
        // AcqRel: pairs with `vacate` of the previous owner and with `life`.
        let taken = self
            .life
            .word
            .compare_exchange(0, me.tid() | WAITERS, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if taken {
            // SAFETY: taken just now, announced; a slot never moves, and it is unlinked in
            // `vacate`, before the region can be unmapped. At the front (invariant 4).
            unsafe { head.link(&self.life, 0, head.front(), me.end()) };
            me.spend();
        }
        head.settle(before);
        if taken {
            self.occupy_tail(me);
        }
        taken
    }

    fn occupy_tail(&self, me: Me) {
        let head = me.head();
        let before = head.announce(&self.tail, 0);
        // Relaxed: read by others when the kernel has marked the life-word.
        self.tail.word.store(me.tid() | WAITERS, Ordering::Relaxed);
        // SAFETY: this task's and announced; as for the life-word.
        unsafe { head.link_tail(&self.tail) };
        me.spend();
        head.settle(before);
    }

    /// Ends the calling thread's ownership. The slot holds nothing of it any more.
    ///
    /// # Safety
    /// The calling thread occupies the slot, and has forgotten the attachment: a lock that a signal
    /// handler takes once the life-word is off the list must not be linked behind it.
    pub(super) unsafe fn vacate(&self, me: Me) {
        self.check.end();
        self.next_generation();
        let head = me.head();
        let before = head.announce(&self.tail, 0);
        // SAFETY: linked by `occupy` of this thread.
        unsafe { head.unlink_tail(&self.tail) };
        self.tail.word.store(0, Ordering::Relaxed);
        head.settle(before);
        me.refund();
        let before = head.announce(&self.life, 0);
        // SAFETY: as above.
        unsafe { head.unlink(&self.life, me.end()) };
        // Release: pairs with `life` and the next `occupy`.
        self.life.word.store(0, Ordering::Release);
        futex::wake(&raw const self.life.word, u32::MAX, Sharing::Shared);
        head.settle(before);
        me.refund();
    }

    /// Says whose slot this is, before [`Self::meet`]. For the new task.
    pub(super) fn settle_in(&self, process: u32) {
        self.company.store(0, Ordering::Relaxed);
        // SeqCst: of two fellows that settle in at once, one at least sees the other. And who sees
        // the process sees the company at 0 before it changes it.
        self.process.store(process, Ordering::SeqCst);
    }

    /// Tells this task and `other` of each other, if they are fellows.
    pub(super) fn meet(&self, other: &Self) {
        // SeqCst: see `settle_in`. The own process is not changed by others.
        let fellows = other.process.load(Ordering::SeqCst) == self.process.load(Ordering::Relaxed);
        if fellows && matches!(other.life(), Life::Alive(_)) {
            self.company.store(1, Ordering::Relaxed);
            other.company.store(1, Ordering::Relaxed);
        }
    }

    /// Whether there may be fellows.
    pub(super) fn has_had_company(&self) -> bool {
        // Relaxed: a fellow that settles in meanwhile is the user's.
        self.company.load(Ordering::Relaxed) != 0
    }

    /// How many messages the task has in flight.
    pub(super) fn messages(&self) -> u32 {
        // Relaxed, and no read-modify-write, here and below: only the task's own thread comes here,
        // and a signal handler leaves no message behind.
        self.messages.load(Ordering::Relaxed)
    }

    /// The task has taken a message.
    pub(crate) fn message_taken(&self) {
        self.messages.store(self.messages() + 1, Ordering::Relaxed);
    }

    /// The task has finished a message, or given it back.
    pub(crate) fn message_finished(&self) {
        self.messages.store(self.messages() - 1, Ordering::Relaxed);
    }

    /// Whether others wait for what the task would take with it.
    pub(super) fn has_obligations(&self) -> bool {
        self.messages() != 0 || self.wait.standing.held() != 0
    }

    /// A new task has none, and waits for none.
    pub(super) fn forget_messages(&self) {
        self.messages.store(0, Ordering::Relaxed);
        self.inbox.reset();
    }

    pub(super) fn next_generation(&self) {
        let next = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        // Relaxed: the life-word's Release publishes it (invariant 1). 0 is never a generation.
        self.generation.store(next.max(1), Ordering::Relaxed);
    }

    pub(crate) fn set_name(&self, name: &str) {
        let mut bytes = whole_characters(name, NAME_BYTES).bytes();
        for place in &self.name {
            // Relaxed: a name read while it changes is garbled, which harms nobody.
            place.store(bytes.next().unwrap_or(0), Ordering::Relaxed);
        }
    }

    pub(crate) fn name(&self) -> String {
        let bytes: Vec<u8> = self
            .name
            .iter()
            .map(|byte| byte.load(Ordering::Relaxed))
            .take_while(|byte| *byte != 0)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
