//! Where a queue's words and bytes are. (`cells.rs` says what they mean.) A queue has two parts, and may add a third.
//!
//! | part | contents | while the queue lives | after its deletion |
//! | --- | --- | --- | --- |
//! | head | locks, the words that tasks sleep on, counts, the life | stays | stays a head, for the next queue: old handles may still read it |
//! | body | lanes and rings of indices, cells with their messages | stays | is freed as soon as nothing is in flight |
//! | chunks | more cells: `spares.rs` | are added | are freed before the body |
//!
//! The *life* is a generation counter: it grows by one with each creation and each deletion.
//!
//! | `life` | `body` | meaning | next |
//! | --- | --- | --- | --- |
//! | odd | 0 | no queue | creation: the shape, then a body |
//! | odd | a block | deleted with messages in flight, or a task was killed in creation or deletion | nothing in flight: the body is freed |
//! | even | a block | a queue | deletion: changes `life` first |
//!
//! A queue begins and ends under both locks. A task that holds one of them, and reads the life of its handle, therefore
//! has the body of that life. *Without a lock* a task only guesses: it reads a lane's address between two reads of the
//! life. If the body is freed after that, the task reads memory that has another user, and is still mapped.
#![allow(unsafe_code)]

use super::lane::{Index, Lane};
use super::rank::Rank;
use super::shape::{BASE, BYTES, CELLS, LANE, RING, STASH, STRIDE, parts_at, shape};
use super::{cell::Cell, head::Head};
use crate::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
    compiler_fence, fence,
};
use crate::region::{Inner, ObjectError, Task};
use core::ptr::NonNull;

/// A queue's head and body. Methods run under the lock, except where they say otherwise.
#[derive(Clone, Copy)]
pub(super) struct Cells<'r> {
    pub(super) core: &'r Head,
    pub(super) inner: &'r Inner,
}

impl<'r> Cells<'r> {
    /// Begins a queue in a head that has neither queue nor body, and returns its life. Under both locks. A task that is
    /// killed before the last step leaves a head without a queue.
    pub(super) fn begin(
        self,
        task: Task<'_>,
        options: (u32, u32, u32),
    ) -> Result<u32, ObjectError> {
        debug_assert!(!self.core.is_alive() && !self.core.has_body());
        let (capacity, max_message, discipline) = options;
        let tasks = self.inner.max_tasks();
        let (shape, layout) = shape(options, tasks).ok_or(ObjectError::OtherType)?;
        let (base, ring) = (shape.sizes[BASE], shape.sizes[RING]);
        let stashed = base.min(ring);
        let block = self.inner.alloc_block(task, layout)?;
        // SAFETY: the block is the caller's and has the shape's layout. Zero is a valid cell (a free one), ring entry,
        // and byte.
        unsafe {
            block.write_bytes(0, layout.size());
            let stash = block.add(shape.parts[STASH]).cast::<u32>();
            for place in 0..stashed {
                stash.add(place as usize).write(place);
            }
        }
        let (fixed, blocks) = (&self.core.fixed, &self.core.blocks);
        fixed.capacity.store(capacity, Relaxed);
        fixed.max_message.store(max_message, Relaxed);
        // Release: pairs with `discipline`.
        fixed.discipline.store(discipline, Release);
        let body = block.as_ptr().expose_provenance();
        for (part, value) in fixed.parts.iter().zip(parts_at(body, shape)) {
            part.store(value, Release);
        }
        for (size, value) in fixed.sizes.iter().zip(shape.sizes) {
            size.store(value, Release);
        }
        // A chunk here does not belong to this queue: the head came out of a corrupted file.
        for chunk in &blocks.chunks {
            chunk.store(0, Relaxed);
        }
        fixed.spares.store(base - capacity, Relaxed);
        fixed.given.store(0, Relaxed);
        fixed.recovered.store(self.inner.deaths(), Relaxed);
        self.clear_positions(stashed);
        self.core.sending.next_number.store(1, Relaxed);
        self.core.receiving.waiting.store(0, Relaxed);
        self.core.receiving.redelivered.store(0, Relaxed);
        // SAFETY: the word is the head's, under its robust locks; the block is the caller's.
        unsafe { self.inner.publish_block(task, block, &blocks.body) };
        let life = fixed.life.load(Relaxed).wrapping_add(1);
        compiler_fence(crate::atomic::Ordering::SeqCst);
        // Release: a task that reads the life with Acquire also reads the rest.
        fixed.life.store(life, Release);
        Ok(life)
    }

    /// Empties lanes and rings, except for the first `stashed` cells of the stash. Under both locks.
    pub(super) fn clear_positions(self, stashed: u32) {
        let (sending, receiving) = (&self.core.sending, &self.core.receiving);
        sending.stash_count.store(stashed, Relaxed);
        for word in [
            &self.core.fixed.ranked,
            &sending.sent,
            &sending.fetched,
            &sending.stash_first,
            &receiving.taken,
            &receiving.freed,
            &receiving.ready_first,
            &receiving.ready_count,
            &receiving.ranked_seen,
        ] {
            word.store(0, Relaxed);
        }
    }

    /// Removes all waiters of a deleted queue, drops its messages, and frees its body if nothing of it is in flight.
    /// Returns whether no body is left. Also for a queue whose creation or deletion was cut short. Under both locks.
    pub(super) fn clear_away(self, task: Task<'_>) -> bool {
        if self.core.is_alive() {
            return false;
        }
        if self.core.has_body() {
            self.flush(task);
            self.dismiss_waiters();
            self.mark_in_flight_late();
            if self.all().all(|index| self.cell(index).is_free()) {
                self.discard_chunks(task);
                // SAFETY: the word is the head's, under its robust locks. No task uses the body: no cell is in flight,
                // and a task that takes a lock finds that the queue was deleted.
                unsafe { self.inner.retire_block(task, &self.core.blocks.body) };
            }
        }
        !self.core.has_body()
    }

    /// Whether a head that may come from a file that anybody wrote points to what its fields claim. Without a lock: the
    /// queue must live throughout the call.
    pub(super) fn is_sound(core: &Head, inner: &Inner) -> bool {
        let body = core.blocks.body.load(Relaxed);
        let options = (core.capacity(), core.max_message(), core.discipline());
        let Some((shape, layout)) = shape(options, inner.max_tasks()) else {
            return false;
        };
        // The parts of an unsound body may lie beyond the last address, so they are computed last.
        let parts = || core.fixed.parts.iter().zip(parts_at(body, shape));
        let mut sizes = core.fixed.sizes.iter().zip(shape.sizes);
        sizes.all(|(size, right)| size.load(Relaxed) == right)
            && inner.has_block_at(body, layout.size())
            && body.is_multiple_of(layout.align())
            && parts().all(|(part, right)| part.load(Relaxed) == right)
    }

    /// The address of the body.
    pub(super) fn body(self) -> usize {
        self.core.blocks.body.load(Relaxed)
    }

    /// Cells in the body.
    pub(super) fn base(self) -> u32 {
        self.core.fixed.sizes[BASE].load(Relaxed)
    }

    /// Places in a ring of cells.
    pub(super) fn ring_length(self) -> usize {
        self.size(RING)
    }

    fn size(self, size: usize) -> usize {
        self.core.fixed.sizes[size].load(Relaxed) as usize
    }

    fn part(self, part: usize) -> usize {
        self.core.fixed.parts[part].load(Relaxed)
    }

    fn at(self, address: usize) -> NonNull<u8> {
        let place = core::ptr::with_exposed_provenance_mut(address);
        // SAFETY: addresses come from the parts, lie in the body, and are not null.
        unsafe { NonNull::new_unchecked(place) }
    }

    /// The ring of cells that is this part.
    pub(super) fn ring(self, part: usize) -> &'r [AtomicU32] {
        let first = self.at(self.part(part)).cast().as_ptr();
        // SAFETY: the ring of this part has `ring_length` entries.
        unsafe { core::slice::from_raw_parts(first, self.ring_length()) }
    }

    /// The distance from one cell to the next, in bytes.
    pub(super) fn stride(self) -> usize {
        self.size(STRIDE)
    }

    /// The lane that is this part.
    pub(super) fn lane(self, part: usize) -> Lane<'r> {
        let first = self.at(self.part(part)).cast().as_ptr();
        // SAFETY: the lane of this part has as many entries as the size `LANE` says.
        Lane::new(unsafe { core::slice::from_raw_parts(first, self.size(LANE)) })
    }

    /// A lane that the caller reads without the lock; `None` if there is no queue.
    pub(super) fn unlocked_lane(self, part: usize) -> Option<Lane<'r>> {
        let life = self.core.fixed.life.load(Acquire);
        let lane = life.is_multiple_of(2).then(|| self.lane(part))?;
        // If the life has not changed, the values read from the head are of this life.
        fence(Acquire);
        (self.core.fixed.life.load(Relaxed) == life).then_some(lane)
    }

    /// The address of a position in a lane, as a prefetch hint; any address if there is no queue. Without the lock.
    pub(super) fn prefetch_address(self, part: usize, position: u32) -> *const u8 {
        let place = position as usize & self.size(LANE).wrapping_sub(1);
        let address = self.part(part).wrapping_add(place * size_of::<u64>());
        core::ptr::without_provenance(address)
    }

    /// The number of cells.
    pub(super) fn total(self) -> u32 {
        self.core.capacity() + self.core.fixed.spares.load(Relaxed)
    }

    pub(super) fn all(self) -> impl Iterator<Item = Index> {
        (0..self.total()).map(Index)
    }

    /// The address of a cell, in the body or in a chunk.
    #[inline]
    fn address_of(self, index: Index) -> NonNull<u8> {
        debug_assert!(index.0 < self.total());
        match index.0.checked_sub(self.base()) {
            None => self.at(self.part(CELLS) + index.0 as usize * self.stride()),
            Some(number) => self.in_chunk(number),
        }
    }

    #[inline]
    pub(super) fn cell(self, index: Index) -> &'r Cell {
        // SAFETY: `address_of` returns the address of a cell, in the body or in a chunk.
        unsafe { self.address_of(index).cast().as_ref() }
    }

    /// The rank of a cell's message.
    pub(super) fn rank(self, index: Index) -> Rank {
        Rank::of_key(self.cell(index).key())
    }

    /// The bytes of a cell. Outside the lock only for a `WRITING`, `READING` or `BOARD` cell that the caller has.
    pub(super) fn bytes(self, index: Index) -> NonNull<u8> {
        // SAFETY: the message's bytes follow the cell at this offset, in the same block.
        unsafe { self.address_of(index).add(self.size(BYTES)) }
    }

    /// Copies a message into a cell that is free, or that the caller writes.
    pub(super) fn fill(self, index: Index, message: &[u8]) {
        debug_assert!(message.len() <= self.core.max_message() as usize);
        // SAFETY: the cell has `max_message` bytes, and no other task uses them.
        unsafe {
            self.bytes(index)
                .copy_from_nonoverlapping(NonNull::from(message).cast(), message.len())
        };
    }

    /// The message in a cell that the caller has, or of any cell under the lock.
    pub(super) fn message(self, index: Index) -> &'r [u8] {
        let address = self.address_of(index);
        // SAFETY: `address_of` returns the address of a cell, in the body or in a chunk.
        let cell: &Cell = unsafe { address.cast().as_ref() };
        let length = cell.length.load(Relaxed);
        let block = core::ptr::with_exposed_provenance_mut(cell.block.load(Relaxed));
        let (place, length) = match NonNull::new(block) {
            Some(block) => (block, length),
            None => (
                // SAFETY: the message's bytes follow the cell at this offset, in the same block.
                unsafe { address.add(self.size(BYTES)) },
                length.min(self.core.max_message() as usize),
            ),
        };
        // SAFETY: `length` bytes are there, written before the cell became ready.
        unsafe { core::slice::from_raw_parts(place.as_ptr(), length) }
    }
}
