//! The cells of a queue: the meaning of their states, and which task may change them.
//!
//! | cell state | meaning | next state |
//! | --- | --- | --- |
//! | `FREE` | no message | send: `WRITING`, or `READY` at once for a small message or a block; broadcast: `BOARD`, at once |
//! | `WRITING` + task | a sender writes into it | commit: `READY`; given up, or death of the task: `FREE` |
//! | `READY` | a message, in the order of its key | receive, hand-over: `READING`; received in one step, or flushed: `FREE` |
//! | `READING` + task | that task has it, or is about to get it | done: `FREE`; given back, or death of the task: `READY` |
//! | `BOARD` | a broadcast message for the tasks whose inboxes name the cell | last reader done: `FREE` |
//!
//! `READY` and `READING` may carry the flag `BLOCK`: the message is then a block of the heap, whose address is in the
//! cell. `READING` may carry the flag `LATE`: the queue has been deleted since, and a message that would become `READY`
//! again is dropped (`FREE`).
//!
//! *Two locks.* All senders share one lock, all receivers the other, and a stream between two CPUs keeps each lock in
//! its side's cache. A cell passes from one side to the other through two [lanes](super::lane):
//!
//! ```text
//!            senders' lock                          receivers' lock
//!   stash ──► fill, READY ──► lane of messages ──► ring of ready cells, in their order ──► read, FREE
//!     ▲                                                                                     │
//!     └────────────────────── lane of free cells ◄──────────────────────────────────────────┘
//! ```
//!
//! Each side empties the other's lane, several entries at a time, when it has used up the entries that it had. A
//! message that does not belong behind all others also increments `ranked`, and a receiver that sees `ranked` changed
//! empties the lane first: so it takes the first of all messages whose send has returned. A task that needs both locks
//! takes the senders' lock first. A queue that serves its receivers in order uses the receivers' lock only, and no
//! lanes: each send there must examine the receivers.
//!
//! *Places and cells.* The capacity counts messages that are pending, being written, or kept in flight by a receiver
//! that reads in place. There are more cells than that, for messages on their way to waiting receivers: see
//! `spares.rs`.
//!
//! Invariants
//! 1. The states and keys of the cells, and the tasks' inboxes (`region/inbox.rs`), are the truth. The rings, lanes and
//!    counts are derived from them, and [`Cells::recover`] rebuilds them under both locks.
//! 2. Each cell belongs to one side, and changes under that side's lock, except for the bytes of a `WRITING`, `READING`
//!    or `BOARD` cell. `WRITING` cells and the free cells of the stash belong to the senders; a cell that came through
//!    the lane of messages belongs to the receivers, until it enters the lane of free cells.
//! 3. Each change of a cell is one store of its state, made after everything that the new state promises. A kill before
//!    the store changes nothing. A kill after it at most leaves rings and lanes stale; then the lock's owner is dead,
//!    and the next owner rebuilds them. An entry that the dead task has put into a lane is true: the state was stored
//!    before it.
//! 4. A task that is given a cell is named first: its inbox names the cell before the cell's state changes. An inbox
//!    that names a cell which is neither a board nor being read by the inbox's task says nothing, and the next recovery
//!    empties it.
//! 5. A cell has a block exactly while it carries the flag, except for the moments at which a task that holds the lock
//!    puts the block in (before `READY`) or takes it out (before `FREE`). A kill in such a moment leaves a `FREE` cell
//!    with a block, which recovery frees, or a flagged cell without one, which becomes `FREE`. The dead task's heap is
//!    settled before that; otherwise its pending operation on the word would be applied to the next block in it.
//! 6. A message that was put into the lane before another of its rank has the smaller number, and a message that comes
//!    out of the lane has a greater number than all of its rank that came out before.
//!
//! Relaxed suffices for nearly all atomics here: the lanes and locks order them, and the region's sweep orders the
//! writes of a dead task. Comments mark the exceptions.
#![allow(unsafe_code)]

use super::cell::{BLOCK, FREE, KIND, LATE, READING, READY, WRITING, owned};
use super::lane::{Entry, Index};
use super::{Rank, head::count_up, layout::Cells, shape::MESSAGE_LANE, wake::Wake};
use crate::atomic::Ordering::{Relaxed, Release};
use crate::region::{Task, heap::Owner};
use core::ptr::NonNull;

impl<'r> Cells<'r> {
    /// Stores a cell's state; the compiler moves no other access across the store.
    pub(super) fn set(self, index: Index, state: u64) {
        self.cell(index).set(state);
    }

    /// Takes a free cell, to be written outside the lock.
    pub(super) fn begin_send(self, owner: Owner) -> Option<Index> {
        self.next_free()
            .inspect(|index| self.set(*index, owned(WRITING, owner)))
    }

    /// A free cell for a message, if there is room.
    pub(super) fn next_free(self) -> Option<Index> {
        self.has_room().then(|| self.take_free()).flatten()
    }

    /// The commit point of a send: makes a cell's message visible, in the position of its rank. The store of `READY` is
    /// the step after which the message survives its sender; the entry in the lane (or in the ready ring) makes
    /// receivers find it. [`Self::announce`] must follow. `block`: [`BLOCK`] if the cell has a block, else 0. For
    /// senders.
    pub(super) fn commit(self, index: Index, length: usize, rank: Rank, block: u64) {
        let side = &self.core.sending;
        let number = side.next_number.load(Relaxed);
        let cell = self.cell(index);
        let (level, sequence) = rank.key(number);
        cell.length.store(length, Relaxed);
        cell.deliveries.store(0, Relaxed);
        cell.rank.store(level, Relaxed);
        cell.sequence.store(sequence, Relaxed);
        cell.set(READY | block);
        side.next_number.store(number.saturating_add(1), Relaxed);
        if self.serves_in_order() {
            return self.insert_ready(index);
        }
        let ranked = rank != Rank::default();
        let position = side.sent.load(Relaxed);
        self.lane(MESSAGE_LANE)
            .put(position, Entry { index, ranked });
        let next = position.wrapping_add(1);
        if ranked {
            let sent = &self.core.fixed.ranked;
            // Release: a receiver that reads the new `ranked` finds the entry.
            sent.store(sent.load(Relaxed).wrapping_add(1), Release);
        }
        // Release: pairs with the Acquire in `pending`.
        side.sent.store(next, Release);
    }

    /// Passes this many messages, which are new or ready again, to the waiting receivers.
    pub(super) fn announce(self, messages: u32) -> Wake<'r> {
        let wake = if self.serves_in_order() {
            self.serve_waiters()
        } else {
            Wake::receivers(messages)
        };
        wake.and_watchers()
    }

    /// Takes the first message for a receiver that keeps it in flight.
    pub(super) fn begin_receive(self, owner: Owner) -> Option<Index> {
        self.next_ready()
            .inspect(|index| self.deliver(*index, owner))
    }

    /// Marks a ready cell as being read by `owner`.
    pub(super) fn deliver(self, index: Index, owner: Owner) {
        let cell = self.cell(index);
        count_up(&cell.deliveries);
        let block = cell.state.load(Relaxed) & BLOCK;
        cell.set(owned(READING, owner) | block);
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
    pub(super) fn abandon(self, index: Index) {
        self.set(index, FREE);
        self.stash(index);
    }

    /// Frees a cell that the caller has in flight, or has taken off the ready ring, with its block. For receivers.
    pub(super) fn release(self, index: Index, task: Task<'_>) {
        let cell = self.cell(index);
        if cell.state.load(Relaxed) & BLOCK != 0 {
            self.discard_block(index, task);
        }
        cell.set(FREE);
        self.push_free(index);
    }

    /// Makes a message's block the task's own, and frees its cell. Returns `None`, with nothing changed, if the message
    /// is no block or the block cannot be taken over. For receivers; the cell is as for [`Self::release`].
    pub(super) fn claim_block(self, index: Index, task: Task<'_>) -> Option<NonNull<[u8]>> {
        let message = NonNull::from(self.message(index));
        // SAFETY: the word is the cell's, under the receivers' robust lock, and the cell the caller's.
        let taken =
            self.is_block(index) && unsafe { self.inner.take_block(task, &self.cell(index).block) };
        taken.then(|| {
            self.set(index, FREE);
            self.push_free(index);
            message
        })
    }

    pub(super) fn discard_block(self, index: Index, task: Task<'_>) {
        // SAFETY: the word is the cell's, and the caller holds the queue's lock, a robust one. No task uses the block:
        // the cell is the caller's, or no task's.
        unsafe { self.inner.retire_block(task, &self.cell(index).block) };
    }

    /// Puts a message in flight back in its position, or frees its cell if the queue was deleted. [`Self::announce`]
    /// must follow, and the wake-up of a sender.
    pub(super) fn give_back(self, index: Index, task: Task<'_>) {
        if self.put_back(index, task) {
            self.insert_ready(index);
        } else {
            self.push_free(index);
        }
    }

    /// Makes a cell that was being read ready again, or free if the queue was deleted; returns whether it is ready.
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

    /// Marks the messages in flight of a deleted queue: they are not delivered again.
    pub(super) fn mark_in_flight_late(self) {
        for index in self.all() {
            let state = self.cell(index).state.load(Relaxed);
            if state & KIND == READING {
                self.set(index, state | LATE);
            }
        }
    }

    /// Drops all ready messages, and returns how many. For receivers.
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
