//! The cells of a queue: what their states mean, and who may change them.
//!
//! | cell state | meaning | left by |
//! | --- | --- | --- |
//! | `FREE` | no message | send: `WRITING`, or `READY` at once for a small message or a block; broadcast: `BOARD`, at once |
//! | `WRITING` + task | a sender writes into it | commit: `READY`; given up, or death of the task: `FREE` |
//! | `READY` | a message, in the order of its key | receive, hand-over: `READING`; received in one step, flushed: `FREE` |
//! | `READING` + task | that task has it, or is about to | done: `FREE`; given back or death of the task: `READY` |
//! | `BOARD` | a message for those who have it in their inboxes | the last of them: `FREE` |
//!
//! `READY` and `READING` may be marked `BLOCK`: then the message is a block of the heap, whose address
//! stands in the cell. `READING` may be marked `LATE`: the queue was deleted since, and a message that would be `READY`
//! again is dropped, `FREE`.
//!
//! *Two locks.* Senders share one, receivers the other, and a stream between two processors takes each
//! where it lies. A cell goes from side to side by two [lanes](super::lane):
//!
//! ```text
//!            senders' lock                          receivers' lock
//!   stash ──► fill, READY ──► lane of messages ──► ring of ready cells, in their order ──► read, FREE
//!     ▲                                                                                     │
//!     └────────────────────── lane of free cells ◄──────────────────────────────────────────┘
//! ```
//!
//! Each side empties the other's lane, several entries at a time, when it has used up what it knew of. A
//! message that does not belong behind all others is announced by `ranked`, too, and then a receiver
//! empties the lane first: so what it takes is the first of all whose send has returned. Who
//! needs both locks takes the senders' first. Queues that serve their receivers in order, where each
//! send must look at them, know the receivers' lock only, and no lanes.
//!
//! *Places and cells.* The capacity counts messages that are pending, being written, or kept in flight by a receiver
//! that reads in place. There are more cells than that, for what is on its way to receivers that wait: see `spares.rs`.
//!
//! Invariants
//! 1. The states and keys of the cells, and the tasks' inboxes (`region/inbox.rs`), are the truth; the
//!    rings, lanes and counts are derived from them and rebuilt by [`Cells::recover`], under both locks.
//! 2. A cell is one side's. It changes under that side's lock, but for the bytes of a `WRITING`, `READING`
//!    or `BOARD` one: `WRITING` ones, and the free ones of the stash, are the senders'; what
//!    came by the lane of messages is the receivers', until it goes into that of free cells.
//! 3. Each change of a cell is one store of its state, made after all that it promises: a kill
//!    before it changes nothing, a kill after it at most leaves rings and lanes stale, and then the lock's
//!    owner is dead, and the next one rebuilds them. What the dead one has put into a lane by then is
//!    true: the state was stored before.
//! 4. Who is given a cell is told first: an inbox that names a cell which is neither a board nor being
//!    read by the inbox's task says nothing, and is emptied by the next recovery.
//! 5. A cell has a block exactly while it is marked so, but for the instants at which a task that holds
//!    the lock puts it in (before `READY`) or takes it out (before `FREE`). Killed between, it leaves a
//!    `FREE` cell with a block, which recovery frees, or a marked one without, which becomes `FREE`. The dead
//!    one's heap is settled before that, or what it was about to do with the word would be done to the next block there.
//! 6. A message that was put into the lane before another of its rank has the smaller number, and one
//!    that comes from there a greater one than all of its rank that came before.
//!
//! Relaxed suffices for nearly all atomics here: the lanes and locks order them, and the region's sweep
//! orders what a dead task did. The exceptions say so.
#![allow(unsafe_code)]

use super::lane::Entry;
pub(super) use super::lane::Index;
pub(super) use super::layout::Cells;
use super::rank::{Key, Rank};
use super::wake::Wake;
use crate::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release},
    compiler_fence,
};
use crate::region::Task;
use crate::region::heap::Owner;
use core::num::NonZero;
use core::ptr::NonNull;

pub(super) const FREE: u64 = 0;
pub(super) const WRITING: u64 = 1;
pub(super) const READY: u64 = 2;
pub(super) const READING: u64 = 3;
pub(super) const BOARD: u64 = 4;
pub(super) const KIND: u64 = 7;
/// The message is a block.
pub(super) const BLOCK: u64 = 8;
/// The message is one of a deleted queue.
const LATE: u64 = 16;

pub(super) fn owned(kind: u64, owner: Owner) -> u64 {
    u64::from(owner.generation()) << 32 | u64::from(owner.slot()) << 16 | kind
}

pub(super) fn owner_in(state: u64) -> Option<Owner> {
    NonZero::new((state >> 32) as u32)
        .map(|generation| Owner::new((state >> 16) as u16, generation))
}

/// What precedes a message's bytes.
#[repr(C, align(16))]
pub(super) struct Cell {
    pub(super) state: AtomicU64,
    sequence: AtomicU64,
    pub(super) length: AtomicUsize,
    /// The address of the block that the message is, or 0.
    pub(super) block: AtomicUsize,
    rank: AtomicU32,
    /// How often the message was handed to a receiver.
    pub(super) deliveries: AtomicU32,
    /// The next cell of a batch, from 1; 0: none. Its receiver's or sender's own business.
    pub(super) next: AtomicU32,
    /// Of a board: how many have still to read it.
    pub(super) readers: AtomicU32,
}

impl Cell {
    pub(super) fn key(&self) -> Key {
        (self.rank.load(Relaxed), self.sequence.load(Relaxed))
    }

    pub(super) fn set_length(&self, length: usize) {
        self.length.store(length, Relaxed);
    }

    /// Whether it holds nothing.
    pub(super) fn is_free(&self) -> bool {
        self.kind() == FREE && self.block.load(Relaxed) == 0
    }

    pub(super) fn kind(&self) -> u64 {
        self.state.load(Relaxed) & KIND
    }
}

impl<'r> Cells<'r> {
    /// Changes a cell's state, before and after all else.
    pub(super) fn set(self, index: Index, state: u64) {
        compiler_fence(crate::atomic::Ordering::SeqCst);
        self.cell(index).state.store(state, Relaxed);
        compiler_fence(crate::atomic::Ordering::SeqCst);
    }

    /// Takes a free cell to be written outside the lock.
    pub(super) fn begin_send(self, owner: Owner) -> Option<Index> {
        let index = self.next_free()?;
        self.set(index, owned(WRITING, owner));
        Some(index)
    }

    /// A free cell for a message, if there is room.
    pub(super) fn next_free(self) -> Option<Index> {
        if self.has_room() {
            self.take_free()
        } else {
            None
        }
    }

    /// Makes a cell's message visible, in its place; [`Self::announce`] is to follow. `block`: the
    /// cell has been given one. For senders.
    pub(super) fn commit(self, index: Index, length: usize, rank: Rank, block: u64) {
        let side = &self.core.sending;
        let number = side.next_number.load(Relaxed);
        let cell = self.cell(index);
        let (level, sequence) = rank.key(number);
        cell.length.store(length, Relaxed);
        cell.deliveries.store(0, Relaxed);
        cell.rank.store(level, Relaxed);
        cell.sequence.store(sequence, Relaxed);
        self.set(index, READY | block);
        side.next_number.store(number.saturating_add(1), Relaxed);
        if self.serves_in_order() {
            return self.insert_ready(index);
        }
        let ranked = rank != Rank::default();
        let position = side.sent.load(Relaxed);
        self.messages().put(position, Entry { index, ranked });
        let next = position.wrapping_add(1);
        if ranked {
            let sent = &self.core.fixed.ranked;
            // Release: who heeds it finds the entry.
            sent.store(sent.load(Relaxed).wrapping_add(1), Release);
        }
        // Release: pairs with the Acquire in `pending`.
        side.sent.store(next, Release);
    }

    /// Has so many messages that are new, or ready again, come to those who wait.
    pub(super) fn announce(self, messages: u32) -> Wake<'r> {
        let wake = if self.serves_in_order() {
            self.hand_out()
        } else {
            Wake::receivers(messages)
        };
        wake.and_watchers()
    }

    /// Takes the first message for a receiver that keeps it in flight.
    pub(super) fn begin_receive(self, owner: Owner) -> Option<Index> {
        let index = self.next_ready()?;
        self.deliver(index, owner);
        Some(index)
    }

    /// A ready cell is being read by `owner`.
    pub(super) fn deliver(self, index: Index, owner: Owner) {
        let cell = self.cell(index);
        let deliveries = cell.deliveries.load(Relaxed).saturating_add(1);
        cell.deliveries.store(deliveries, Relaxed);
        let block = cell.state.load(Relaxed) & BLOCK;
        self.set(index, owned(READING, owner) | block);
    }

    /// Whether a message is in flight with this task.
    pub(super) fn is_read_by(self, index: Index, owner: Owner) -> bool {
        self.cell(index).state.load(Relaxed) & !(BLOCK | LATE) == owned(READING, owner)
    }

    /// Whether a message is a block.
    pub(super) fn is_block(self, index: Index) -> bool {
        self.cell(index).state.load(Relaxed) & BLOCK != 0
    }

    /// Frees a cell that the caller was writing. For senders.
    pub(super) fn give_up(self, index: Index) {
        self.set(index, FREE);
        self.stash(index);
    }

    /// Frees a cell that the caller has, or has taken off the ready ones, with its block. For receivers.
    pub(super) fn release(self, index: Index, task: Task<'_>) {
        if self.is_block(index) {
            self.discard_block(index, task);
        }
        self.set(index, FREE);
        self.push_free(index);
    }

    /// Makes the block that a message is the task's own, and frees its cell; `None`, and nothing has
    /// changed, if it is none or cannot be. For receivers; the cell is as for [`Self::release`].
    pub(super) fn claim_block(self, index: Index, task: Task<'_>) -> Option<NonNull<[u8]>> {
        let message = NonNull::from(self.message(index));
        // SAFETY: the word is the cell's, under the receivers' robust lock, and the cell the caller's.
        let taken =
            self.is_block(index) && unsafe { self.inner.take_over(task, &self.cell(index).block) };
        taken.then(|| {
            self.set(index, FREE);
            self.push_free(index);
            message
        })
    }

    pub(super) fn discard_block(self, index: Index, task: Task<'_>) {
        // SAFETY: the word is the cell's, and the queue's lock is held, a robust one; nobody uses the
        // block: the cell is the caller's, or nobody's.
        unsafe { self.inner.discard(task, &self.cell(index).block) };
    }

    /// Puts a message in flight back in its place, or frees its cell if it has none; [`Self::announce`] is to
    /// follow, and the wake-up of a sender.
    pub(super) fn give_back(self, index: Index, task: Task<'_>) {
        if self.put_back(index, task) {
            self.insert_ready(index);
        } else {
            self.push_free(index);
        }
    }

    /// A cell that was being read is ready again; or free, and this says no.
    pub(super) fn put_back(self, index: Index, task: Task<'_>) -> bool {
        let state = self.cell(index).state.load(Relaxed);
        if state & LATE != 0 {
            if self.is_block(index) {
                self.discard_block(index, task);
            }
            self.set(index, FREE);
            return false;
        }
        self.set(index, READY | state & BLOCK);
        let redelivered = &self.core.receiving.redelivered;
        redelivered.store(redelivered.load(Relaxed).saturating_add(1), Relaxed);
        true
    }

    /// The queue is deleted: what is in flight does not come again.
    pub(super) fn disown(self) {
        for index in self.all() {
            let state = self.cell(index).state.load(Relaxed);
            if state & KIND == READING {
                self.set(index, state | LATE);
            }
        }
    }

    /// Drops all messages that are ready; how many. For receivers.
    pub(super) fn flush(self, task: Task<'_>) -> u32 {
        self.take_all_from_lane();
        let mut count = 0;
        while let Some(index) = self.pop_ready() {
            self.release(index, task);
            count += 1;
        }
        count
    }
}
