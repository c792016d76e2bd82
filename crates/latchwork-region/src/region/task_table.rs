//! The task table of a region: its tasks, which of them died, and how a sleeping task detects a death.
//!
//! Each thread that uses a region owns a [`Slot`] of it. The slot's **life-word** is a word on the thread's robust
//! list, held from attach to detach: when the thread dies, for any reason, the kernel marks the word and wakes
//! one sleeper on it. Only the life-word decides whether a task is alive: a thread ID and a start time can be reused
//! and outlive an `exec`; the life-word cannot.
//!
//! A second word of this kind, the **tail**, comes after all locks on the thread's robust list. A third word, the
//! **claim**, says which thread uses the slot: its PID namespace and its ID there. The kernel does not know that word.
//!
//! | claim | life-word | tail | meaning | entered by |
//! | --- | --- | --- | --- | --- |
//! | 0 | 0 | 0 | the slot is free | leaving; the last step of a sweep; `free_abandoned` |
//! | thread, `SWEPT` | 0 | 0 | the slot is free: a sweep is about to end the claim, or was killed before | the sweep |
//! | thread | 0 | any | the thread joins, or leaves, or was killed as it did: no task | joining: CAS 0→thread, or of an abandoned claim; leaving: see below |
//! | thread | TID + `WAITERS` | TID | the task is alive | joining: one store, when both words are on the list |
//! | thread | `OWNER_DIED` (+ `WAITERS`) | TID | the task runs no more; the kernel is walking its list | the kernel |
//! | thread | `OWNER_DIED` (+ `WAITERS`) | `OWNER_DIED` | the kernel has finished walking its list; the slot is unswept | the kernel |
//! | thread, `SWEPT` | `OWNER_DIED` (+ `WAITERS`) | any | what the task left is settled; the words are about to be cleared | the sweep |
//! | thread, `CLEARING` | any | any | in the reserve: a thread takes the slot of a dead task over, and clears its words | joining: CAS |
//!
//! `WAITERS` is always set, so the kernel always wakes a sleeper, which need not announce itself.
//!
//! *Why a claim?* The kernel marks a word that the dying thread has on its list, or has announced, and that holds its ID.
//! Tasks of two PID namespaces may have the same ID. If both announced one life-word, the death of the one would mark the
//! life of the other. So a thread links the two words only after it has claimed the slot, while they hold no ID, and
//! announces neither: then the life-word is set, and the task begins, in one store. It leaves in the reverse order. A word
//! with a thread's ID is on no list but that thread's. (The keeper announces both words when a slot passes to it, and so
//! does the giver: see [`Slot::claim_for`].)
//!
//! A thread that is killed while it joins or leaves leaves a claim without a life. Once the thread's ID does not exist any
//! more, the kernel has finished with its list. A thread of the same PID namespace can see that. It takes the slot over
//! when no other is free; and `Region::sweep` frees it. (If the whole namespace has ended, nobody can see it: the slot is
//! lost until no process has the region.) *Checked by:* `tests/slot_model.rs`, a model of all states that includes the
//! kernel's walk; `region_slots.rs`, `pid_namespaces`.
//!
//! *An unmarked death.* A thread that becomes another program by `exec` dies as a task. If it is not the first of its process,
//! it gets that one's ID before the kernel walks its list, and the kernel marks no word, since none holds that ID: the
//! life-word names a thread that does not exist. So it does if the memory of a killed process, in which the list begins, is taken
//! away before the process has ended (`process_mrelease`, and the kernel itself where memory is short). A thread of the same PID
//! namespace that joins or calls `Region::sweep`, or has waited long for such an owner, asks the kernel whether the threads of
//! tasks exist, and marks such a life-word itself (`vanished.rs`). The kernel no longer touches it: before an ID ceases to exist,
//! the list of its thread is walked, or cannot be walked any more, or all words on it name another thread.
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
//! 2. A task that sleeps until another task makes progress also sleeps on the life-words of *all* other tasks, or
//!    for a few milliseconds at most, without `futex_waitv` for 50 (see [`park`](super::park)). An interruptible wait of C does not, and
//!    looks again every second.
//! 3. A task that detects a dead task wakes all its watchers before it sweeps the slot. If the detecting task dies
//!    first, its own death wakes one watcher, which detects both.
//! 4. Life-words precede all other locks of this library on the robust list, tails come after all locks of any
//!    library, and the kernel works from front to back. So a task that acquires a dead task's lock finds that task's
//!    life-word already marked, and can sweep (which waits for the tail, and settles the heap's intents) before it
//!    touches the protected data.
//! 5. A sweep is idempotent at every step; it runs under the region's sweep lock, which is a region lock. So a thread must
//!    be a task to sweep. The last slots, the *reserve*, are for threads that find all others taken: they sweep, and then look
//!    for a free slot again. Such a task does nothing else in the region: nobody watches it, and no sweep frees its slot; the
//!    next such thread takes the slot of a dead one over.
//! 6. A task that has locks or semaphores of the region, or messages in flight, does not leave in an orderly way: the
//!    waiters for those learn about it only by the task's death. A thread that ends with them releases its heap. If
//!    what it has may be lent to another thread (all but semaphores), both words pass to the process's keeper, and the
//!    task lives until the process dies; otherwise the life-word is left to the kernel.
//! 7. Nobody is killed between a change and the wake-up that others need: a life ends by one system call, which also wakes; a
//!    thread that joins wakes all sleepers, unless a task has lived in its slot before, so that they watch it; and a thread
//!    that sleeps on a life-word alone sweeps when that life is over, since the kernel may have woken no other.
#![allow(unsafe_code)]

use super::events::EventSets;
use super::heap::TaskHeap;
use super::inbox::Inbox;
use super::wait_record::WaitRecord;
use super::word::text;
use crate::atomic::{AtomicPair, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use crate::hook::TaskRecord;
use crate::mutex::{OWNER_DIED, TID_MASK, WAITERS};
use crate::sys::futex::{self, Sharing};
use crate::sys::futex_bits::NO_THREAD;
use crate::sys::robust_list::{AtEnd, Node};
use crate::sys::running::no_such_task;
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
    /// The thread that uses the slot, or 0; and the number of changes of this pair.
    claim: AtomicPair,
    /// The thread from which the slot passed to its process's keeper last, or 0. The keeper's ID is in the life-word's node.
    kept_for: AtomicU64,
    pub(super) orphans: AtomicU8,
    name: [AtomicU8; NAME_BYTES],
    /// Whether the task's process has, or has had in the meantime, another task here.
    pub(super) shares_process: AtomicU8,
    /// Whether the task's thread has ended by itself, and lends nothing to other threads.
    pub(super) ended: AtomicU8,
    /// What the task has learned about its partners in exchanging messages and events. Only the task itself uses it.
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

/// Why nobody uses a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unused {
    /// It is free.
    Free,
    /// The thread that claimed it was killed while it joined or left. Only a thread of the same PID namespace knows.
    Abandoned,
    /// Its task is dead. For slots of the reserve, which no sweep frees.
    Dead,
}

/// A thread of any PID namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thread {
    /// The number of its PID namespace: unique as long as one of its threads exists.
    pub(super) namespace: u32,
    /// Its ID there.
    pub(super) id: u32,
}

impl Thread {
    fn raw(self) -> u64 {
        u64::from(self.namespace) << 32 | u64::from(self.id)
    }

    fn from_raw(raw: u64) -> Self {
        Self {
            namespace: (raw >> 32) as u32,
            id: raw as u32 & TID_MASK,
        }
    }
}

/// A flag of a claim: its thread is about to clear what a dead task left in the slot's words.
const CLEARING: u64 = 1 << 31;
/// Another one: the slot's dead task is settled, and its words are about to be cleared.
const SWEPT: u64 = 1 << 30;

/// The meaning of a life-word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Free,
    Alive(u32),
    Dead,
}

#[inline]
pub(super) fn life_of(word: u32) -> Life {
    match word & TID_MASK {
        0 if word & OWNER_DIED != 0 => Life::Dead,
        0 => Life::Free,
        tid => Life::Alive(tid),
    }
}

impl Slot {
    #[inline]
    pub(super) fn life(&self) -> Life {
        // Acquire: pairs with the Release of `occupy` and `vacate`: a task that sees the new life sees the generation
        // and the claim that belong to it.
        life_of(self.life.word.load(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn is_alive(&self) -> bool {
        matches!(self.life(), Life::Alive(_))
    }

    /// Ends the life of a thread that ended without a keeper: it lasted as long as its process, and no process has the
    /// region. (A dead task's word: the kernel leaves the same.)
    pub(super) fn end_if_stranded(&self) {
        // Relaxed, here and below: no task lives that uses it.
        if self.life.word.load(Ordering::Relaxed) == NO_THREAD | WAITERS {
            self.life.word.store(OWNER_DIED, Ordering::Relaxed);
        }
    }

    /// The slot of an attachment.
    #[inline]
    pub(super) fn of(attachment: &Attachment) -> &Self {
        // SAFETY: an attachment refers to a slot of its region, and keeps the region mapped.
        unsafe { attachment.slot.cast().as_ref() }
    }

    /// Claims the slot for the calling thread, which is to [occupy](Self::occupy) it, if nobody uses it.
    ///
    /// If the slot once passed to the keeper of a process, a thread of another PID namespace with the ID of that keeper, or of
    /// the thread that gave it the slot, gets another slot: both announce the life-word meanwhile, and the kernel may still
    /// look for their IDs here when it has marked the life as dead.
    pub(super) fn claim_for(&self, thread: Thread, which: Unused) -> bool {
        let claim = self.claim_now();
        let user = Thread::from_raw(claim[0]);
        let is_unlived = || self.life() == Life::Free || claim[0] & CLEARING != 0;
        let is_unused = match which {
            Unused::Free => {
                let is_swept = claim[0] & SWEPT != 0 && self.life() == Life::Free;
                // By a sweep that was cut short, too.
                claim[0] == 0
                    || crate::atomic::unless_disabled!(JoinerTakesSweptSlot, is_swept, false)
            }
            // The life-word is read once more at the end: when no thread has the ID, the claim's thread begins no life any
            // more. If a thread with the same ID has claimed the slot since, the pair has changed.
            Unused::Abandoned => {
                claim[0] != 0
                    && user.namespace == thread.namespace
                    && user.id != thread.id
                    && is_unlived()
                    && no_such_task(user.id)
                    && is_unlived()
            }
            Unused::Dead => {
                claim[0] & CLEARING == 0 && self.life() == Life::Dead && self.is_list_walked()
            }
        };
        // Relaxed: whoever has used the slot since has changed the claim.
        let giver = Thread::from_raw(self.kept_for.load(Ordering::Relaxed));
        let keeper = self.life.extra.load(Ordering::Relaxed);
        let may_be_looked_for = giver.id != 0
            && [giver.id, keeper].contains(&thread.id)
            && giver.namespace != thread.namespace;
        if !is_unused || may_be_looked_for {
            return false;
        }
        if self.life() == Life::Free {
            return self.change_claim(claim, thread.raw());
        }
        // As long as the life-word is that of the dead task, the claim says that its thread is not dead.
        let clears = self.change_claim(claim, thread.raw() | CLEARING);
        if clears {
            self.clear_dead();
            self.change_claim(self.claim.load(), thread.raw());
        }
        clears
    }

    /// Clears the words of a dead task's slot, for the thread that sweeps it, or has claimed it.
    fn clear_dead(&self) {
        crate::atomic::unless_disabled!(SweepEndsGeneration, self.next_generation(), ());
        self.tail.word.store(0, Ordering::Relaxed);
        // Release: pairs with `life`.
        self.life.word.store(0, Ordering::Release);
    }

    /// Makes the slot free, as the only thread that uses the region.
    pub(super) fn make_free(&self) {
        if self.life() == Life::Dead {
            self.clear_dead();
        }
        // Its processes have ended.
        self.kept_for.store(0, Ordering::Relaxed);
        self.end_claim();
    }

    /// Whether the kernel has finished with the list of the dead task.
    pub(super) fn is_list_walked(&self) -> bool {
        // Acquire: the kernel's changes to the list are complete.
        let tail = self.tail.word.load(Ordering::Acquire);
        !matches!(life_of(tail), Life::Alive(_))
    }

    /// Frees the slot, if the thread that claimed it was killed while it joined or left: as by a joiner that leaves at once.
    ///
    /// A swept slot is free for all already. And in the child of a fork by a signal handler the claim may have ended.
    pub(super) fn free_abandoned(&self, thread: Thread) {
        let is_swept = self.claim.load()[0] & SWEPT != 0;
        if !is_swept && self.claim_for(thread, Unused::Abandoned) {
            let claim = self.claim.load();
            if claim[0] == thread.raw() {
                // Relaxed: only the claim's end publishes it.
                self.tail.word.store(0, Ordering::Relaxed);
                self.change_claim(claim, 0);
            }
        }
    }

    /// Ends the claim of the calling thread, which has left the slot.
    fn end_claim(&self) {
        // As long as its thread exists, no other changes a claim that is in use.
        self.change_claim(self.claim.load(), 0);
    }

    /// Frees the slot of a dead task, which is settled. For the task that sweeps.
    ///
    /// The claim is marked first: if this task is killed before it has ended the claim, the slot is free nevertheless. Once
    /// the life-word is free, another thread may claim the slot at once.
    pub(super) fn free_swept(&self) {
        let claim = self.claim.load();
        let marked = claim[0] | SWEPT;
        self.change_claim(claim, marked);
        self.clear_dead();
        self.change_claim([marked, claim[1].wrapping_add(1)], 0);
    }

    /// The claim. What is read of the slot later is as it is under this claim, or a later one.
    pub(super) fn claim_now(&self) -> [u64; 2] {
        let claim = self.claim.load();
        // Pairs with the Release of `change_claim`.
        fence(Ordering::Acquire);
        claim
    }

    pub(super) fn change_claim(&self, from: [u64; 2], to: u64) -> bool {
        let changed = [to, from[1].wrapping_add(1)];
        // Release: pairs with the Acquire in `claim_for`.
        self.claim.compare_exchange(from, changed, Ordering::AcqRel)
    }

    /// Whether no task has lived in the slot yet.
    pub(super) fn is_unlived(&self) -> bool {
        // Relaxed: only the wake-up that follows depends on it, which may be one too many.
        self.generation.load(Ordering::Relaxed) == 0
    }

    /// Whether a thread uses the slot; a guess.
    pub(super) fn is_claimed(&self) -> bool {
        let claim = self.claim.load()[0];
        claim != 0 && (claim & SWEPT == 0 || self.life() != Life::Free)
    }

    /// The PID namespace of the slot's task. For a reader that has read its life-word.
    pub(super) fn namespace(&self) -> u32 {
        // Relaxed: the life-word's Acquire has ordered it.
        Thread::from_raw(self.claim.load()[0]).namespace
    }

    /// Begins the life of the calling thread in the slot that it has claimed.
    pub(super) fn occupy(&self, me: Me) {
        self.life.set_at_end(AtEnd::HandOn);
        self.tail.set_at_end(AtEnd::HandOn);
        // SAFETY: the list is used in this call alone. The slot never moves, and the words are unlinked in `vacate`, before the
        // region can be unmapped. They are neither locked nor announced: the kernel passes over a word that does not hold the
        // thread's ID, and no other task links or changes them in a slot that this thread has claimed. The life-word goes to
        // the front (invariant 4).
        unsafe {
            let head = me.head();
            head.link(&self.life, 0, head.front(), me.end());
            head.link_tail(&self.tail);
        }
        me.spend();
        me.spend();
        let life = me.tid() | WAITERS;
        // Relaxed: other tasks read it only after the kernel has marked the life-word. Before that, since the kernel must find
        // both words.
        self.tail.word.store(life, Ordering::Relaxed);
        // Release: pairs with `life`.
        self.life.word.store(life, Ordering::Release);
    }

    /// The calling thread, which ends, leaves the slot to its process.
    pub(super) fn stay(&self) {
        // Relaxed: whoever claims the slot later sees the end of this claim. The keeper adds its ID (`task/keeper.rs`).
        let claimant = self.claim.load()[0];
        self.kept_for.store(claimant, Ordering::Relaxed);
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
        // In one system call, so that no kill comes between the two: the kernel passes over the word from here on, and nobody
        // else would wake a waiter for this task's end. The store is a Release: it pairs with `life` and the next `claim_for`.
        crate::atomic::unless_disabled!(
            LeaverWakesAtOnce,
            futex::clear_and_wake_all(&self.life.word, Sharing::Shared),
            {
                self.life.word.store(0, Ordering::Release);
                futex::wake(&raw const self.life.word, u32::MAX, Sharing::Shared);
            }
        );
        // (After a kill here the kernel marks the tail, which whoever claims the slot clears.)
        self.tail.word.store(0, Ordering::Relaxed);
        // SAFETY: the list is used in this call alone; `occupy` has linked both, on this thread.
        unsafe {
            let head = me.head();
            head.unlink_tail(&self.tail);
            head.unlink(&self.life, me.end());
        }
        me.refund();
        me.refund();
        self.end_claim();
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
        let is_same = other.process.load(Ordering::SeqCst) == process;
        if is_same && other.is_alive() && other.namespace() == self.namespace() {
            self.shares_process.store(1, Ordering::Relaxed);
            other.shares_process.store(1, Ordering::Relaxed);
        }
    }

    /// Whether the tasks of the two slots belong to one process.
    pub(super) fn is_of_process_of(&self, other: &Self) -> bool {
        // Relaxed, both: a task's process never changes.
        self.process.load(Ordering::Relaxed) == other.process.load(Ordering::Relaxed)
            && self.namespace() == other.namespace()
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
