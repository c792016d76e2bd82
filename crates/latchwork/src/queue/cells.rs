//! The memory of a queue: one block with a header, two index rings, and the cells.
//!
//! | cell state | meaning | left by |
//! | --- | --- | --- |
//! | `FREE` | no message | send: `WRITING`, or `READY` at once for a small message |
//! | `WRITING` + task | a sender copies into it | commit: `READY`; death of the task: `FREE` |
//! | `READY` | a message, in the order of its sequence number | receive: `READING`, or `FREE` at once |
//! | `READING` + task | a receiver has it | done: `FREE`; given back or death of the task: `READY` |
//!
//! Invariants
//! 1. The states and sequence numbers of the cells are the truth; the rings (ready cells in order,
//!    free cells) and counts are derived from them and rebuilt by [`Core::recover`].
//! 2. Everything but the bytes of a `WRITING` or `READING` cell changes under the queue's lock.
//! 3. Each change of a cell is one store of its state, made after all that it promises: a kill
//!    before it changes nothing, a kill after it at most leaves the rings stale, and then the lock's
//!    owner is dead, and the next one rebuilds them.
//!
//! Relaxed suffices for all atomics here: the lock orders them, and the region's sweep orders what
//! a dead task did.
#![allow(unsafe_code)]

use super::sleepers::Sleepers;
use crate::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, compiler_fence};
use crate::mutex::Robust;
use crate::region::heap::Owner;
use core::alloc::Layout;
use core::num::NonZero;
use core::ptr::NonNull;

pub(super) const FREE: u64 = 0;
pub(super) const WRITING: u64 = 1;
pub(super) const READY: u64 = 2;
pub(super) const READING: u64 = 3;
const KIND: u64 = 3;

fn owned(kind: u64, owner: Owner) -> u64 {
    u64::from(owner.generation()) << 32 | u64::from(owner.slot()) << 16 | kind
}

fn owner_in(state: u64) -> Option<Owner> {
    NonZero::new((state >> 32) as u32)
        .map(|generation| Owner::new((state >> 16) as u16, generation))
}

/// What precedes a message's bytes.
#[repr(C, align(16))]
pub(super) struct Cell {
    pub(super) state: AtomicU64,
    pub(super) sequence: AtomicU64,
    pub(super) length: AtomicU32,
    /// How often the message was handed to a receiver.
    pub(super) deliveries: AtomicU32,
}

/// The head of a queue's block.
#[repr(C, align(64))]
pub(crate) struct Core {
    pub(super) lock: Robust,
    pub(super) capacity: u32,
    pub(super) max_message: u32,
    ready_first: AtomicU32,
    pub(super) ready_count: AtomicU32,
    free_count: AtomicU32,
    /// The region's count of deaths at the last recovery.
    pub(super) recovered: AtomicU32,
    next_sequence: AtomicU64,
    pub(super) redelivered: AtomicU64,
    pub(super) receivers: Sleepers,
    pub(super) senders: Sleepers,
}

/// Where the parts of the block lie.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    ready: usize,
    free: usize,
    cells: usize,
    stride: usize,
    pub(super) layout: Layout,
}

impl Shape {
    /// `None` if the queue would not fit the address space.
    pub(super) fn new(capacity: u32, max_message: u32) -> Option<Self> {
        let ready = size_of::<Core>();
        let ring = capacity as usize * size_of::<u32>();
        let free = ready + ring;
        let cells = (free + ring).next_multiple_of(64);
        let stride = (size_of::<Cell>() + max_message as usize).next_multiple_of(64);
        let bytes = stride.checked_mul(capacity as usize)?.checked_add(cells)?;
        Some(Self {
            ready,
            free,
            cells,
            stride,
            layout: Layout::from_size_align(bytes, align_of::<Core>()).ok()?,
        })
    }
}

/// What a receiver gets hold of.
#[derive(Clone, Copy)]
pub(super) struct Index(u32);

/// A queue's block with its shape; all but the constructor under the lock, except where said.
#[derive(Clone, Copy)]
pub(super) struct Cells<'r> {
    pub(super) core: &'r Core,
    shape: Shape,
}

impl<'r> Cells<'r> {
    /// Writes an empty queue into a fresh block.
    ///
    /// # Safety
    /// The block has the shape's layout and belongs to the caller.
    pub(super) unsafe fn initialise(
        block: NonNull<u8>,
        shape: Shape,
        capacity: u32,
        max_message: u32,
    ) {
        // SAFETY: by the contract; zero is a valid cell and ring entry.
        unsafe {
            block.write_bytes(0, shape.cells);
            block.cast::<Core>().write(Core {
                lock: Robust::new(),
                capacity,
                max_message,
                ready_first: AtomicU32::new(0),
                ready_count: AtomicU32::new(0),
                free_count: AtomicU32::new(0),
                recovered: AtomicU32::new(0),
                next_sequence: AtomicU64::new(1),
                redelivered: AtomicU64::new(0),
                receivers: Sleepers::new(),
                senders: Sleepers::new(),
            });
            let cells = Self {
                core: block.cast().as_ref(),
                shape,
            };
            for index in (0..capacity).rev() {
                let cell = block
                    .add(shape.cells + index as usize * shape.stride)
                    .cast::<Cell>();
                cell.write(Cell {
                    state: AtomicU64::new(FREE),
                    sequence: AtomicU64::new(0),
                    length: AtomicU32::new(0),
                    deliveries: AtomicU32::new(0),
                });
                cells.push_free(Index(index));
            }
        }
    }

    /// The queue in a block of `bytes`; `None` if its head does not fit them.
    ///
    /// # Safety
    /// The block was written by [`Self::initialise`] and stays for `'r`.
    pub(super) unsafe fn open(block: NonNull<u8>, bytes: usize) -> Option<Self> {
        // SAFETY: by the contract.
        let core: &'r Core = unsafe { block.cast().as_ref() };
        let shape = Shape::new(core.capacity, core.max_message)?;
        (shape.layout.size() == bytes).then_some(Self { core, shape })
    }

    fn at(self, offset: usize) -> NonNull<u8> {
        // SAFETY: offsets come from the shape and stay inside the block, whose address is exposed by
        // being the region's.
        unsafe { NonNull::from(self.core).cast::<u8>().add(offset) }
    }

    fn ring(self, offset: usize) -> &'r [AtomicU32] {
        // SAFETY: `capacity` entries lie there.
        unsafe {
            core::slice::from_raw_parts(
                self.at(offset).cast().as_ptr(),
                self.core.capacity as usize,
            )
        }
    }

    pub(super) fn cell(self, index: Index) -> &'r Cell {
        // SAFETY: an index below the capacity.
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

    /// The message in a cell that the caller has, or under the lock.
    pub(super) fn message(self, index: Index) -> &'r [u8] {
        let length = self
            .cell(index)
            .length
            .load(Relaxed)
            .min(self.core.max_message) as usize;
        // SAFETY: `max_message` bytes lie there, written before the cell became ready.
        unsafe { core::slice::from_raw_parts(self.bytes(index).as_ptr(), length) }
    }

    fn push_free(self, index: Index) {
        let count = self.core.free_count.load(Relaxed);
        self.ring(self.shape.free)[count as usize].store(index.0, Relaxed);
        self.core.free_count.store(count + 1, Relaxed);
    }

    fn pop_free(self) -> Option<Index> {
        let count = self.core.free_count.load(Relaxed).checked_sub(1)?;
        self.core.free_count.store(count, Relaxed);
        Some(Index(
            self.ring(self.shape.free)[count as usize].load(Relaxed),
        ))
    }

    fn push_ready(self, index: Index) {
        let count = self.core.ready_count.load(Relaxed);
        let place = (self.core.ready_first.load(Relaxed) + count) % self.core.capacity;
        self.ring(self.shape.ready)[place as usize].store(index.0, Relaxed);
        self.core.ready_count.store(count + 1, Relaxed);
    }

    fn pop_ready(self) -> Option<Index> {
        let count = self.core.ready_count.load(Relaxed).checked_sub(1)?;
        let first = self.core.ready_first.load(Relaxed);
        self.core
            .ready_first
            .store((first + 1) % self.core.capacity, Relaxed);
        self.core.ready_count.store(count, Relaxed);
        Some(Index(
            self.ring(self.shape.ready)[first as usize].load(Relaxed),
        ))
    }

    fn set(self, index: Index, state: u64) {
        compiler_fence(crate::atomic::Ordering::SeqCst);
        self.cell(index).state.store(state, Relaxed);
        compiler_fence(crate::atomic::Ordering::SeqCst);
    }

    /// Takes a free cell for a copy outside the lock.
    pub(super) fn begin_send(self, owner: Owner) -> Option<Index> {
        let index = self.pop_free()?;
        self.set(index, owned(WRITING, owner));
        Some(index)
    }

    /// Makes a cell's message visible, at the end of the queue.
    pub(super) fn commit(self, index: Index, length: usize) {
        let sequence = self.core.next_sequence.load(Relaxed);
        let cell = self.cell(index);
        cell.length.store(length as u32, Relaxed);
        cell.deliveries.store(0, Relaxed);
        cell.sequence.store(sequence, Relaxed);
        self.set(index, READY);
        self.core.next_sequence.store(sequence + 1, Relaxed);
        self.push_ready(index);
    }

    /// Sends a small message in one step: the copy is made under the lock.
    pub(super) fn send_small(self, message: &[u8]) -> bool {
        let Some(index) = self.pop_free() else {
            return false;
        };
        // SAFETY: `max_message` bytes lie there, and a free cell is nobody's.
        unsafe {
            self.bytes(index)
                .copy_from_nonoverlapping(NonNull::from(message).cast(), message.len())
        };
        self.commit(index, message.len());
        true
    }

    /// Takes the first message for a receiver that keeps it in flight.
    pub(super) fn begin_receive(self, owner: Owner) -> Option<Index> {
        let index = self.pop_ready()?;
        let deliveries = &self.cell(index).deliveries;
        deliveries.store(deliveries.load(Relaxed).saturating_add(1), Relaxed);
        self.set(index, owned(READING, owner));
        Some(index)
    }

    /// The first message, not yet taken.
    pub(super) fn peek(self) -> Option<Index> {
        if self.core.ready_count.load(Relaxed) == 0 {
            return None;
        }
        let first = self.core.ready_first.load(Relaxed);
        Some(Index(
            self.ring(self.shape.ready)[first as usize].load(Relaxed),
        ))
    }

    /// Takes the first message, which was copied under the lock, off the queue.
    pub(super) fn drop_first(self) {
        if let Some(index) = self.pop_ready() {
            self.release(index);
        }
    }

    /// Whether a message is in flight with this task.
    pub(super) fn is_read_by(self, index: Index, owner: Owner) -> bool {
        self.cell(index).state.load(Relaxed) == owned(READING, owner)
    }

    /// Frees a cell that the caller has.
    pub(super) fn release(self, index: Index) {
        self.set(index, FREE);
        self.push_free(index);
    }

    /// Puts a message in flight back in its place.
    pub(super) fn give_back(self, index: Index) {
        self.set(index, READY);
        self.core
            .redelivered
            .store(self.core.redelivered.load(Relaxed) + 1, Relaxed);
        self.rebuild();
    }

    /// Settles what dead tasks left: what they were writing vanishes, what they were reading is ready
    /// again. Idempotent.
    pub(super) fn recover(self, is_alive: impl Fn(Owner) -> bool) {
        for index in (0..self.core.capacity).map(Index) {
            let state = self.cell(index).state.load(Relaxed);
            let dead = owner_in(state).is_some_and(|owner| !is_alive(owner));
            match state & KIND {
                WRITING if dead => self.set(index, FREE),
                READING if dead => {
                    self.set(index, READY);
                    self.core
                        .redelivered
                        .store(self.core.redelivered.load(Relaxed) + 1, Relaxed);
                }
                _ => {}
            }
        }
        self.rebuild();
    }

    /// Derives rings and counts from the cells.
    fn rebuild(self) {
        let core = self.core;
        core.ready_count.store(0, Relaxed);
        core.ready_first.store(0, Relaxed);
        core.free_count.store(0, Relaxed);
        let mut last = 0;
        for index in (0..core.capacity).map(Index) {
            let cell = self.cell(index);
            let state = cell.state.load(Relaxed);
            match state & KIND {
                FREE => self.push_free(index),
                READY => {
                    self.push_ready(index);
                    last = last.max(cell.sequence.load(Relaxed));
                }
                _ => last = last.max(cell.sequence.load(Relaxed)),
            }
        }
        self.sort_ready();
        core.next_sequence
            .store(core.next_sequence.load(Relaxed).max(last + 1), Relaxed);
    }

    /// Heap sort in place: nothing may be allocated here.
    fn sort_ready(self) {
        let ring = self.ring(self.shape.ready);
        let count = self.core.ready_count.load(Relaxed) as usize;
        let key = |place: usize| {
            self.cell(Index(ring[place].load(Relaxed)))
                .sequence
                .load(Relaxed)
        };
        let swap = |one: usize, other: usize| {
            let kept = ring[one].load(Relaxed);
            ring[one].store(ring[other].load(Relaxed), Relaxed);
            ring[other].store(kept, Relaxed);
        };
        let sift = |mut root: usize, end: usize| {
            while let Some(child) = (2 * root + 1 < end).then_some(2 * root + 1) {
                let child = if child + 1 < end && key(child + 1) > key(child) {
                    child + 1
                } else {
                    child
                };
                if key(root) >= key(child) {
                    break;
                }
                swap(root, child);
                root = child;
            }
        };
        for root in (0..count / 2).rev() {
            sift(root, count);
        }
        for end in (1..count).rev() {
            swap(0, end);
            sift(0, end);
        }
    }

    /// Cells by state: free, being written, ready, being read.
    pub(super) fn census(self) -> [u32; 4] {
        let mut census = [0; 4];
        for index in (0..self.core.capacity).map(Index) {
            census[(self.cell(index).state.load(Relaxed) & KIND) as usize] += 1;
        }
        census
    }

    /// The rings agree with the cells.
    pub(super) fn is_consistent(self) -> bool {
        let census = self.census();
        let ready = self.core.ready_count.load(Relaxed);
        let first = self.core.ready_first.load(Relaxed);
        let mut last = 0;
        census[FREE as usize] == self.core.free_count.load(Relaxed)
            && census[READY as usize] == ready
            && (0..ready).all(|step| {
                let place = (first + step) % self.core.capacity;
                let cell = self.cell(Index(
                    self.ring(self.shape.ready)[place as usize].load(Relaxed),
                ));
                let sequence = cell.sequence.load(Relaxed);
                let ordered = sequence > last && cell.state.load(Relaxed) == READY;
                last = sequence;
                ordered
            })
    }
}
