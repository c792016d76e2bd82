//! Spare cells: room for messages on their way to waiting receivers, so that only pending messages take places.
//!
//! A receiver that is given a message may not run for long. So a message that was handed to it, and a board that it has
//! not read yet, are in cells beyond the queue's capacity; and there is a cell for whatever may be given to a receiver
//! *before* it begins to wait. A receiver that finds too few adds a *chunk* of cells, a block of the region's heap, at
//! a point where it can still fail. So a broadcast always has a cell, and so has a message to a waiting receiver.
//!
//! | word | meaning |
//! | --- | --- |
//! | `chunks[n]` | the address of 2ⁿ cells (the last chunk may have fewer), or 0; all words behind a 0 are 0 |
//! | `spares` | the number of cells beyond the capacity: a few in the queue's body, and those of the chunks |
//! | `given` | the number of cells that the inboxes of waiting tasks name |
//!
//! *Racing:* spare cells are used as boards only, and `given` counts boards. A receiver may wait if there are more
//! spare cells than boards: a broadcast takes one, and then every waiting task has been given something.
//!
//! *In order:* all cells are alike. *Taken* cells are those that are pending, being written, or in the hands of a
//! receiver that keeps them in place; *free* cells are those that the senders have.
//!
//! 1. free + taken + given = capacity + spares.
//! 2. A message may be sent if taken < capacity + waiting, where *waiting* is the number of receivers that have been
//!    given nothing: each of them is one more place.
//! 3. free ≥ (capacity + waiting − taken)⁺, and one more while a receiver waits. So each message that may be sent has a
//!    cell, and so has a broadcast.
//!
//! A receiver that begins to wait makes 3 true, and every other step keeps it. A step that uses a free cell adds one to
//! *taken* (a send), or moves one from *waiting* to *given* (a send that is handed over at once), or gives to all of
//! *waiting* (a broadcast, which uses the one more cell). When the message is done with, the cell is free again. The
//! end of a wait lowers *waiting*. Only two steps raise it: a receiver that begins to wait, and a recovery that finds a
//! receiver which was about to be given a cell; that cell is taken or free then, as before.
//! (`places.rs` has this as code; its tests go through all states of small queues.)
//!
//! *Pending beyond the capacity:* the message of a receiver that died with it, or that did not take it, is pending
//! again, though its place may have been filled meanwhile. Sends are refused until fewer messages than the capacity are
//! pending.
//!
//! *Bounds:* at most capacity + waiting cells are taken, and each task has been given one cell at most. So twice as
//! many spare cells as the region has slots for tasks suffice.
//!
//! *A kill:* a chunk belongs to the receiver that allocated it, and is freed with that task, until one step of the heap
//! makes it the queue's, under all locks. A kill between that step and the update of the counts leaves a lock with a
//! dead owner, and the next owner recounts both. Chunks are freed with the queue's body.
#![allow(unsafe_code)]

use super::cell::{Cell, FREE};
use super::{
    Queue, error::Failure, lane::Index, layout::Cells, places::Places, shape::max_chunk_cells,
    wake::Wake,
};
use crate::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::region::{StorageError, Task};
use core::{alloc::Layout, ptr::NonNull};

/// Each cell begins a cache line.
const CHUNK_ALIGN: usize = 64;

impl<'r> Cells<'r> {
    /// The counts of a queue that serves in order.
    pub(super) fn places(self) -> Places {
        Places {
            free: self.core.sending.stash_count.load(Relaxed),
            given: self.core.fixed.given.load(Relaxed),
            spares: self.core.fixed.spares.load(Relaxed),
        }
    }

    /// Whether one more receiver may wait: there is a cell for whatever may be given to it.
    pub(super) fn may_wait(self) -> bool {
        let places = self.places();
        if self.serves_in_order() {
            places.may_wait(self.waiting())
        } else {
            places.spares > places.given
        }
    }

    /// Whether there is a cell for all that may be given to the waiting receivers.
    pub(super) fn has_spares(self) -> bool {
        let (places, waiting) = (self.places(), self.waiting());
        if self.serves_in_order() {
            places.suffice(waiting)
        } else {
            waiting == 0 || places.spares > places.given
        }
    }

    /// A spare cell, to become a board. Under all locks.
    pub(super) fn take_spare(self) -> Option<Index> {
        if self.serves_in_order() {
            return self.take_free();
        }
        (self.core.capacity()..self.total())
            .map(Index)
            .find(|index| self.cell(*index).kind() == FREE)
    }

    /// Puts a free cell where the next one is taken from.
    pub(super) fn put_spare(self, index: Index) {
        if self.serves_in_order() {
            self.stash(index);
        }
    }

    /// The number of cells in the chunk of this number.
    fn cells_in(self, chunk: usize) -> u32 {
        let all = max_chunk_cells(self.inner.max_tasks());
        let before = (1_u32 << chunk) - 1;
        all.saturating_sub(before).min(1 << chunk)
    }

    /// The layout of a chunk whose cells lie this far from each other; `None` if there is no such chunk.
    fn layout_of(self, chunk: usize, stride: usize) -> Option<Layout> {
        let bytes = stride.checked_mul(self.cells_in(chunk) as usize);
        Layout::from_size_align(bytes.filter(|bytes| *bytes > 0)?, CHUNK_ALIGN).ok()
    }

    /// The address of the cell that has this many cells in chunks before it.
    #[cold]
    #[inline(never)]
    pub(super) fn in_chunk(self, number: u32) -> NonNull<u8> {
        let chunk = (number + 1).ilog2();
        let offset = number + 1 - (1 << chunk);
        let address = self.core.blocks.chunks[chunk as usize].load(Relaxed);
        let start = NonNull::new(core::ptr::with_exposed_provenance_mut(address));
        let Some(start) = start else {
            crate::fatal(format_args!("a queue names a cell that it does not have"));
        };
        // SAFETY: the index is below the number of cells, so the chunk has more than `offset` cells.
        unsafe { start.add(offset as usize * self.stride()) }
    }

    /// The number of chunks.
    fn chunks(self) -> usize {
        let is_there = |word: &AtomicUsize| word.load(Relaxed) != 0;
        let words = &self.core.blocks.chunks;
        words.iter().take_while(|word| is_there(word)).count()
    }

    /// Recounts the spare cells, and clears words that point to no chunk: see `cells.rs`, invariant 5.
    pub(super) fn count_spares(self) {
        let words = &self.core.blocks.chunks;
        let (mut cells, mut ended) = (self.base(), false);
        for (chunk, word) in words.iter().enumerate() {
            let address = word.load(Relaxed);
            let is_sound = |layout: Layout| {
                address.is_multiple_of(layout.align())
                    && ![self.address(), self.body()].contains(&address)
                    && (words[..chunk].iter()).all(|one| one.load(Relaxed) != address)
                    && self.inner.has_block_at(address, layout.size())
            };
            ended |= address == 0 || !self.layout_of(chunk, self.stride()).is_some_and(is_sound);
            if ended {
                word.store(0, Relaxed);
            } else {
                cells += self.cells_in(chunk);
            }
        }
        let spares = cells - self.core.capacity();
        self.core.fixed.spares.store(spares, Relaxed);
    }

    /// Frees all chunks of a queue that was deleted and whose cells are all free. Under both locks.
    pub(super) fn discard_chunks(self, task: Task<'_>) {
        // The last one first: all words behind a 0 must be 0.
        for word in self.core.blocks.chunks[..self.chunks()].iter().rev() {
            // SAFETY: the word is the head's, under its robust locks; no task has a cell of the chunk, and none can get
            // one.
            unsafe { self.inner.retire_block(task, word) };
        }
        let spares = self.base() - self.core.capacity();
        self.core.fixed.spares.store(spares, Relaxed);
    }
}

impl Queue<'_> {
    /// Adds a chunk of cells, unless another task has done so since.
    #[cold]
    pub(super) fn add_spares(&self, task: Task<'_>) -> Result<(), Failure> {
        let cells = self.cells;
        // Read without the lock: if the values are of another life, the checks below detect it.
        let (chunk, stride) = (cells.chunks(), cells.stride());
        let Some(layout) = cells.layout_of(chunk, stride) else {
            self.check_life()?;
            return Err(Failure::Storage(StorageError::TooLong));
        };
        let block = self.inner().alloc_block(task, layout)?;
        for offset in (0..layout.size()).step_by(stride) {
            // SAFETY: the block has a cell at each multiple of the stride, and is this task's own; zeros are a free cell.
            unsafe { block.add(offset).cast::<Cell>().write_bytes(0, 1) };
        }
        let locked = match self.lock_now(self.live_locks(), task) {
            Ok(locked)
                if self.check_life().is_ok() && cells.chunks() == chunk && !cells.may_wait() =>
            {
                locked
            }
            other => {
                let other = other.map(drop);
                // SAFETY: allocated above; no other task knows it.
                unsafe { self.inner().free_block(task, block) };
                return Ok(other?);
            }
        };
        // SAFETY: the word is the queue's, under its robust locks; the block is this task's.
        unsafe {
            self.inner()
                .publish_block(task, block, &cells.core.blocks.chunks[chunk])
        };
        let before = cells.total();
        cells.count_spares();
        for index in before..cells.total() {
            cells.put_spare(Index(index));
        }
        locked.unlock(Wake::NONE);
        Ok(())
    }
}
