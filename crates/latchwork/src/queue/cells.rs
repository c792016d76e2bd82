//! The memory of a queue: one block with a header, two index rings, and the cells.
//!
//! | cell state | meaning | left by |
//! | --- | --- | --- |
//! | `FREE` | no message | send: `WRITING`, or `READY` at once for a small message or a block; broadcast: `BOARD` |
//! | `WRITING` + task | a sender writes into it | commit: `READY` or `BOARD`; given up, or death of the task: `FREE` |
//! | `READY` | a message, in the order of its key | receive, hand-over: `READING`; received in one step, flushed: `FREE` |
//! | `READING` + task | that task has it, or is about to | done: `FREE`; given back or death of the task: `READY` |
//! | `BOARD` | a message for those who have it in their inboxes | the last of them: `FREE` |
//!
//! `READY` and `READING` may be marked `BLOCK`: then the message is a block of the heap, whose address
//! stands in the cell.
//!
//! Invariants
//! 1. The states and keys of the cells, and the tasks' inboxes (`region/inbox.rs`), are the truth; the
//!    rings (ready cells in order, free cells) and counts are derived from them and rebuilt by
//!    [`Cells::recover`].
//! 2. Everything but the bytes of a `WRITING`, `READING` or `BOARD` cell changes under the queue's lock.
//! 3. Each change of a cell is one store of its state, made after all that it promises: a kill
//!    before it changes nothing, a kill after it at most leaves the rings stale, and then the lock's
//!    owner is dead, and the next one rebuilds them.
//! 4. Who is given a cell is told first: an inbox that names a cell which is neither a board nor being
//!    read by the inbox's task says nothing, and is emptied by the next recovery.
//! 5. A cell has a block exactly while it is marked so, but for the instants at which a task that holds
//!    the lock puts it in (before `READY`) or takes it out (before `FREE`). Killed between, it leaves a
//!    `FREE` cell with a block, which recovery frees, or a marked one without, which becomes `FREE`.
//! 6. One cell more than the capacity exists, so that a broadcast finds one.
//!
//! Relaxed suffices for all atomics here: the lock orders them, and the region's sweep orders what
//! a dead task did.
#![allow(unsafe_code)]

use super::rank::{Key, Rank};
use super::sleepers::{Sleepers, Wake};
use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, compiler_fence};
use crate::mutex::Robust;
use crate::region::heap::Owner;
use crate::region::{Inner, Task};
use core::alloc::Layout;
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
    length: AtomicUsize,
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

    pub(super) fn kind(&self) -> u64 {
        self.state.load(Relaxed) & KIND
    }
}

/// The head of a queue's block. The lock has a line of its own, for those who wait for it; what never
/// changes has another; the rest is the holder's, and stands next to the rings.
#[repr(C, align(128))]
pub(crate) struct Core {
    pub(super) lock: Robust,
    pub(super) fixed: Fixed,
    pub(super) ready_first: AtomicU32,
    pub(super) ready_count: AtomicU32,
    pub(super) free_count: AtomicU32,
    /// Cells in state `BOARD`.
    pub(super) boards: AtomicU32,
    pub(super) next_number: AtomicU64,
    pub(super) receivers: Sleepers,
    pub(super) senders: Sleepers,
    pub(super) watchers: Sleepers,
    /// Inboxes that wait for this queue and have been given nothing.
    pub(super) waiting: AtomicU32,
    /// The region's count of deaths at the last recovery.
    pub(super) recovered: AtomicU32,
    pub(super) next_arrival: AtomicU64,
    pub(super) redelivered: AtomicU64,
}

/// What hardly ever changes.
#[repr(C, align(128))]
pub(super) struct Fixed {
    pub(super) capacity: u32,
    pub(super) max_message: u32,
    /// How receivers that wait are served; see `waiters.rs`.
    pub(super) discipline: u32,
    /// Even: the queue lives; odd: it was deleted. A handle knows the life that it was made in.
    pub(super) life: AtomicU32,
}

const _: () = assert!(core::mem::offset_of!(Core, lock) == crate::region::QUEUE_LOCK);

/// Where the parts of the block lie, behind its head and the ring of ready cells.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    free: usize,
    cells: usize,
    stride: usize,
}

impl Shape {
    /// `None` if the queue would not fit the address space.
    pub(super) fn new(capacity: u32, max_message: u32) -> Option<(Self, Layout)> {
        let total = capacity as usize + 1;
        let ring = total * size_of::<u32>();
        let free = size_of::<Core>() + ring;
        let cells = (free + ring).next_multiple_of(64);
        let stride = (size_of::<Cell>() + max_message as usize).next_multiple_of(64);
        let bytes = stride.checked_mul(total)?.checked_add(cells)?;
        let shape = Self {
            free,
            cells,
            stride,
        };
        let layout = Layout::from_size_align(bytes, align_of::<Core>()).ok()?;
        Some((shape, layout))
    }
}

/// What a receiver gets hold of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Index(pub(super) u32);

impl Index {
    /// As a cell or an inbox names it.
    pub(super) fn name(self) -> u32 {
        self.0 + 1
    }

    /// What [`Self::name`] gave, if anything.
    pub(super) fn named(name: u32) -> Option<Self> {
        name.checked_sub(1).map(Self)
    }
}

/// A queue's block with its shape; all but the constructor under the lock, except where said.
#[derive(Clone, Copy)]
pub(super) struct Cells<'r> {
    pub(super) core: &'r Core,
    pub(super) inner: &'r Inner,
    shape: Shape,
}

impl<'r> Cells<'r> {
    /// Writes an empty queue into a fresh block.
    ///
    /// # Safety
    /// The block has the shape's layout and belongs to the caller.
    pub(super) unsafe fn initialise(
        block: NonNull<u8>,
        (shape, layout): (Shape, Layout),
        (capacity, max_message, discipline): (u32, u32, u32),
    ) {
        // SAFETY: by the contract; zero is a valid cell (a free one), ring entry, and byte.
        unsafe {
            block.write_bytes(0, layout.size());
            block.cast::<Core>().write(Core {
                lock: Robust::new(),
                fixed: Fixed {
                    capacity,
                    max_message,
                    discipline,
                    life: AtomicU32::new(0),
                },
                ready_first: AtomicU32::new(0),
                ready_count: AtomicU32::new(0),
                free_count: AtomicU32::new(capacity + 1),
                boards: AtomicU32::new(0),
                recovered: AtomicU32::new(0),
                waiting: AtomicU32::new(0),
                next_number: AtomicU64::new(1),
                next_arrival: AtomicU64::new(1),
                redelivered: AtomicU64::new(0),
                receivers: Sleepers::new(),
                senders: Sleepers::new(),
                watchers: Sleepers::new(),
            });
            let free = block.add(shape.free).cast::<u32>();
            for place in 0..=capacity {
                // The first cell is taken first.
                free.add(place as usize).write(capacity - place);
            }
        }
    }

    /// The queue in a block of `bytes`; `None` if its head does not fit them.
    ///
    /// # Safety
    /// The block is in the region, was written by [`Self::initialise`] and stays for `'r`.
    pub(super) unsafe fn open(block: NonNull<u8>, bytes: usize, inner: &'r Inner) -> Option<Self> {
        // SAFETY: by the contract.
        let core: &'r Core = unsafe { block.cast().as_ref() };
        let (shape, layout) = Shape::new(core.fixed.capacity, core.fixed.max_message)?;
        (layout.size() == bytes).then_some(Self { core, inner, shape })
    }

    fn at(self, offset: usize) -> NonNull<u8> {
        // SAFETY: offsets come from the shape and stay inside the block, whose address is exposed by
        // being the region's.
        unsafe { NonNull::from(self.core).cast::<u8>().add(offset) }
    }

    fn ring(self, offset: usize) -> &'r [AtomicU32] {
        // SAFETY: an entry for each cell lies there.
        unsafe {
            core::slice::from_raw_parts(self.at(offset).cast().as_ptr(), self.total() as usize)
        }
    }

    /// The ring of ready cells.
    pub(super) fn ready(self) -> &'r [AtomicU32] {
        self.ring(size_of::<Core>())
    }

    /// How many cells there are.
    pub(super) fn total(self) -> u32 {
        self.core.fixed.capacity + 1
    }

    pub(super) fn all(self) -> impl Iterator<Item = Index> {
        (0..self.total()).map(Index)
    }

    pub(super) fn cell(self, index: Index) -> &'r Cell {
        debug_assert!(index.0 < self.total());
        // SAFETY: an index below the number of cells.
        unsafe {
            self.at(self.shape.cells + index.0 as usize * self.shape.stride)
                .cast()
                .as_ref()
        }
    }

    /// The bytes of a cell. Outside the lock for a `WRITING` or `READING` cell of the caller.
    pub(super) fn bytes(self, index: Index) -> NonNull<u8> {
        self.at(self.shape.cells + index.0 as usize * self.shape.stride + size_of::<Cell>())
    }

    /// Copies a message into a cell that is free, or that the caller writes.
    pub(super) fn fill(self, index: Index, message: &[u8]) {
        debug_assert!(message.len() <= self.core.fixed.max_message as usize);
        // SAFETY: `max_message` bytes lie there.
        unsafe {
            self.bytes(index)
                .copy_from_nonoverlapping(NonNull::from(message).cast(), message.len())
        };
    }

    /// The message in a cell that the caller has, or under the lock.
    pub(super) fn message(self, index: Index) -> &'r [u8] {
        let cell = self.cell(index);
        let length = cell.length.load(Relaxed);
        let (place, length) = match NonNull::new(core::ptr::with_exposed_provenance_mut(
            cell.block.load(Relaxed),
        )) {
            Some(block) => (block, length),
            None => (
                self.bytes(index),
                length.min(self.core.fixed.max_message as usize),
            ),
        };
        // SAFETY: so many bytes lie there, written before the cell became ready.
        unsafe { core::slice::from_raw_parts(place.as_ptr(), length) }
    }

    pub(super) fn push_free(self, index: Index) {
        let count = self.core.free_count.load(Relaxed);
        self.ring(self.shape.free)[count as usize].store(index.0, Relaxed);
        self.core.free_count.store(count + 1, Relaxed);
    }

    pub(super) fn pop_free(self) -> Option<Index> {
        let count = self.core.free_count.load(Relaxed).checked_sub(1)?;
        self.core.free_count.store(count, Relaxed);
        Some(Index(
            self.ring(self.shape.free)[count as usize].load(Relaxed),
        ))
    }

    /// How many more messages fit. Also without the lock, as a guess.
    pub(super) fn room(self) -> u32 {
        let free = self.core.free_count.load(Relaxed);
        let used = self
            .total()
            .saturating_sub(free + self.core.boards.load(Relaxed));
        free.min(self.core.fixed.capacity.saturating_sub(used))
    }

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
        if self.room() == 0 {
            return None;
        }
        self.pop_free()
    }

    /// Makes a cell's message visible, in its place; [`Self::announce`] is to follow. `block`: the
    /// cell has been given one.
    pub(super) fn commit(self, index: Index, length: usize, rank: Rank, block: u64) {
        let number = self.core.next_number.load(Relaxed);
        let cell = self.cell(index);
        let (rank, sequence) = rank.key(number);
        cell.length.store(length, Relaxed);
        cell.deliveries.store(0, Relaxed);
        cell.rank.store(rank, Relaxed);
        cell.sequence.store(sequence, Relaxed);
        self.set(index, READY | block);
        self.core.next_number.store(number + 1, Relaxed);
        self.insert_ready(index);
    }

    /// Has so many new messages come to those who wait.
    pub(super) fn announce(self, messages: u32) -> Wake<'r> {
        let receivers = if self.serves_in_order() {
            self.hand_out()
        } else {
            self.core.receivers.notify(messages)
        };
        receivers.and(self.core.watchers.notify(u32::MAX))
    }

    /// Takes the first message for a receiver that keeps it in flight.
    pub(super) fn begin_receive(self, owner: Owner) -> Option<Index> {
        let index = self.pop_ready()?;
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
        self.cell(index).state.load(Relaxed) & !BLOCK == owned(READING, owner)
    }

    /// Whether a message is a block.
    pub(super) fn is_block(self, index: Index) -> bool {
        self.cell(index).state.load(Relaxed) & BLOCK != 0
    }

    /// Frees a cell that the caller has, or has taken off the ready ones, with its block.
    pub(super) fn release(self, index: Index, task: Task<'_>) {
        if self.is_block(index) {
            self.discard_block(index, task);
        }
        self.set(index, FREE);
        self.push_free(index);
    }

    pub(super) fn discard_block(self, index: Index, task: Task<'_>) {
        // SAFETY: the word is the cell's, and the queue's lock is held, a robust one; nobody uses the
        // block: the cell is the caller's, or nobody's.
        unsafe { self.inner.discard(task, &self.cell(index).block) };
    }

    /// Puts a message in flight back in its place; [`Self::announce`] is to follow.
    pub(super) fn give_back(self, index: Index) {
        self.put_back(index);
        self.insert_ready(index);
    }

    /// A cell that was being read is ready again.
    pub(super) fn put_back(self, index: Index) {
        let block = self.cell(index).state.load(Relaxed) & BLOCK;
        self.set(index, READY | block);
        let redelivered = self.core.redelivered.load(Relaxed) + 1;
        self.core.redelivered.store(redelivered, Relaxed);
    }

    /// Drops all messages that are ready; how many.
    pub(super) fn flush(self, task: Task<'_>) -> u32 {
        let mut count = 0;
        while let Some(index) = self.pop_ready() {
            self.release(index, task);
            count += 1;
        }
        count
    }
}
