//! Where a queue's words and bytes lie: one block with a header, rings and lanes of indices, and cells; and chunks
//! of more cells. What they mean: `cells.rs`, `spares.rs`.
#![allow(unsafe_code)]

use super::cells::Cell;
use super::lane::{Index, Lane};
use super::sleepers::Sleepers;
use super::spares::{CHUNKS, most_far};
use super::waiters::Discipline;
use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::mutex::Robust;
use crate::region::Inner;
use core::alloc::Layout;
use core::ptr::NonNull;

/// The head of a queue's block. Each lock has a line of its own, for those who wait for it; so has what
/// each side keeps, and what hardly ever changes.
#[repr(C)]
pub(crate) struct Core {
    /// First: whoever knows a queue's address only, as inboxes do, finds it there.
    pub(super) receivers_lock: Line<Robust>,
    pub(super) senders_lock: Line<Robust>,
    pub(super) fixed: Line<Fixed>,
    pub(super) chunks: Line<[AtomicUsize; CHUNKS]>,
    pub(super) sending: Line<Sending>,
    pub(super) receiving: Line<Receiving>,
}

const _: () = assert!(core::mem::offset_of!(Core, receivers_lock) == crate::region::QUEUE_LOCK);

/// A cache line and its neighbour, which processors fetch along.
#[repr(C, align(128))]
pub(super) struct Line<T>(T);

impl<T> core::ops::Deref for Line<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// What hardly ever changes.
#[repr(C)]
pub(super) struct Fixed {
    pub(super) capacity: u32,
    pub(super) max_message: u32,
    /// How receivers that wait are served; see `waiters.rs`.
    pub(super) discipline: u32,
    /// Even: the queue lives; odd: it was deleted. A handle knows the life that it was made in.
    pub(super) life: AtomicU32,
    pub(super) receivers: Sleepers,
    pub(super) senders: Sleepers,
    pub(super) watchers: Sleepers,
    /// The region's count of deaths at the last recovery.
    pub(super) recovered: AtomicU32,
    /// Cells that inboxes name: boards, and messages that were handed over. More under all locks, fewer under the
    /// receivers'.
    pub(super) given: AtomicU32,
    /// Cells beyond the capacity. Changes under all locks.
    pub(super) spares: AtomicU32,
    /// How many messages were sent that do not belong behind all others. Under the senders' lock.
    pub(super) ranked: AtomicU32,
    shape: Shape,
}

/// What those who have the senders' lock keep.
#[repr(C)]
pub(super) struct Sending {
    /// Their position in the lane of messages.
    pub(super) sent: AtomicU32,
    /// Their position in the lane of free cells.
    pub(super) fetched: AtomicU32,
    pub(super) stash_first: AtomicU32,
    pub(super) stash_count: AtomicU32,
    pub(super) next_number: AtomicU64,
}

/// What those who have the receivers' lock keep.
#[repr(C)]
pub(super) struct Receiving {
    /// Their position in the lane of messages.
    pub(super) taken: AtomicU32,
    /// Their position in the lane of free cells.
    pub(super) freed: AtomicU32,
    pub(super) ready_first: AtomicU32,
    pub(super) ready_count: AtomicU32,
    /// What `ranked` was when they last emptied the lane for its sake.
    pub(super) heeded: AtomicU32,
    /// Inboxes that wait for this queue and have been given nothing.
    pub(super) waiting: AtomicU32,
    pub(super) next_arrival: AtomicU64,
    pub(super) redelivered: AtomicU64,
}

/// Where the parts of the block lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Places in a lane.
    lane: u32,
    /// Places in a ring.
    ring: u32,
    /// Cells in the block.
    base: u32,
    /// From a cell to its message's bytes.
    bytes: u32,
    stride: u32,
    /// The most cells in chunks.
    far: u32,
    messages: usize,
    freed: usize,
    stash: usize,
    ready: usize,
    cells: usize,
}

/// A cache line.
const LINE: usize = 64;
/// The most messages, and the most bytes of one.
pub(super) const MOST: u32 = 1 << 30;
/// Spare cells in the block: one for a board.
const SPARES_RACING: u32 = 1;
/// One for a message that is handed over, and one for a board.
const SPARES_IN_ORDER: u32 = 2;

impl Shape {
    /// Of a queue that is there.
    pub(super) fn of(core: &Core, inner: &Inner) -> Option<(Self, Layout)> {
        let fixed = &core.fixed;
        let discipline = Discipline::of_code(fixed.discipline);
        // What a mutated file says is no more than that.
        if discipline.code() != fixed.discipline {
            return None;
        }
        let sizes = (fixed.capacity, fixed.max_message);
        Self::new(sizes, discipline, inner.slots().len())
    }

    /// In a region for so many tasks. `None` if the queue would not fit the address space.
    pub(super) fn new(
        (capacity, max_message): (u32, u32),
        discipline: Discipline,
        tasks: usize,
    ) -> Option<(Self, Layout)> {
        if capacity > MOST || max_message > MOST {
            return None;
        }
        let in_order = discipline != Discipline::Racing;
        let far = most_far(tasks);
        let base = capacity
            + if in_order {
                SPARES_IN_ORDER
            } else {
                SPARES_RACING
            };
        // In order there are no lanes, and each cell serves for all; else spare ones are boards and no more.
        let (ring, lane) = match in_order {
            true => (base + far, 1),
            false => (capacity, capacity.next_power_of_two()),
        };
        let lane_bytes = (lane as usize * size_of::<u64>()).next_multiple_of(align_of::<Core>());
        let ring_bytes = (ring as usize * size_of::<u32>()).next_multiple_of(align_of::<Core>());
        let messages = size_of::<Core>();
        let freed = messages + lane_bytes;
        let stash = freed + lane_bytes;
        let ready = stash + ring_bytes;
        let cells = ready + ring_bytes;
        // One line for both, if that takes them; or else the message begins a line, which suits what is put there.
        let max_message = max_message as usize;
        let bytes = match size_of::<Cell>() + max_message {
            ..=LINE => size_of::<Cell>(),
            _ => size_of::<Cell>().next_multiple_of(LINE),
        };
        let stride = (bytes + max_message).next_multiple_of(LINE);
        let size = stride.checked_mul(base as usize)?.checked_add(cells)?;
        let shape = Self {
            lane,
            ring,
            base,
            bytes: bytes as u32,
            stride: u32::try_from(stride).ok()?,
            far,
            messages,
            freed,
            stash,
            ready,
            cells,
        };
        let layout = Layout::from_size_align(size, align_of::<Core>()).ok()?;
        Some((shape, layout))
    }
}

/// A queue's block; all but the constructor under the lock, except where said.
#[derive(Clone, Copy)]
pub(super) struct Cells<'r> {
    pub(super) core: &'r Core,
    pub(super) inner: &'r Inner,
}

impl<'r> Cells<'r> {
    /// Writes an empty queue into a fresh block.
    ///
    /// # Safety
    /// The block has the shape's layout and belongs to the caller.
    pub(super) unsafe fn initialise(
        block: NonNull<u8>,
        (shape, layout): (Shape, Layout),
        (capacity, max_message): (u32, u32),
        discipline: Discipline,
    ) {
        let stashed = shape.base.min(shape.ring);
        // SAFETY: by the contract; zero is a valid cell (a free one), ring entry, and byte.
        unsafe {
            block.write_bytes(0, layout.size());
            block.cast::<Core>().write(Core {
                receivers_lock: Line(Robust::new()),
                senders_lock: Line(Robust::new()),
                fixed: Line(Fixed {
                    capacity,
                    max_message,
                    discipline: discipline.code(),
                    life: AtomicU32::new(0),
                    receivers: Sleepers::new(),
                    senders: Sleepers::new(),
                    watchers: Sleepers::new(),
                    recovered: AtomicU32::new(0),
                    given: AtomicU32::new(0),
                    spares: AtomicU32::new(shape.base - capacity),
                    ranked: AtomicU32::new(0),
                    shape,
                }),
                chunks: Line([const { AtomicUsize::new(0) }; CHUNKS]),
                sending: Line(Sending {
                    sent: AtomicU32::new(0),
                    fetched: AtomicU32::new(0),
                    stash_first: AtomicU32::new(0),
                    stash_count: AtomicU32::new(stashed),
                    next_number: AtomicU64::new(1),
                }),
                receiving: Line(Receiving {
                    taken: AtomicU32::new(0),
                    freed: AtomicU32::new(0),
                    ready_first: AtomicU32::new(0),
                    ready_count: AtomicU32::new(0),
                    heeded: AtomicU32::new(0),
                    waiting: AtomicU32::new(0),
                    next_arrival: AtomicU64::new(1),
                    redelivered: AtomicU64::new(0),
                }),
            });
            let stash = block.add(shape.stash).cast::<u32>();
            for place in 0..stashed {
                stash.add(place as usize).write(place);
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
        let (shape, layout) = Shape::of(core, inner)?;
        (layout.size() == bytes && core.fixed.shape == shape).then_some(Self { core, inner })
    }

    fn at(self, offset: usize) -> NonNull<u8> {
        // SAFETY: offsets come from the shape and stay inside the block, whose address is exposed by
        // being the region's.
        unsafe { NonNull::from(self.core).cast::<u8>().add(offset) }
    }

    fn ring(self, offset: usize) -> &'r [AtomicU32] {
        // SAFETY: so many entries lie there.
        unsafe { core::slice::from_raw_parts(self.at(offset).cast().as_ptr(), self.ring_length()) }
    }

    /// The ring of ready cells.
    pub(super) fn ready(self) -> &'r [AtomicU32] {
        self.ring(self.core.fixed.shape.ready)
    }

    /// The ring of free cells that the senders have.
    pub(super) fn stashed(self) -> &'r [AtomicU32] {
        self.ring(self.core.fixed.shape.stash)
    }

    /// Bytes from one cell to the next.
    pub(super) fn stride(self) -> usize {
        self.core.fixed.shape.stride as usize
    }

    /// Places in a ring of cells.
    pub(super) fn ring_length(self) -> usize {
        self.core.fixed.shape.ring as usize
    }

    /// Cells in the block, and the most in chunks.
    pub(super) fn parts(self) -> (u32, u32) {
        let shape = &self.core.fixed.shape;
        (shape.base, shape.far)
    }

    fn lane(self, offset: usize) -> Lane<'r> {
        // SAFETY: so many entries lie there.
        Lane::new(unsafe {
            core::slice::from_raw_parts(
                self.at(offset).cast().as_ptr(),
                self.core.fixed.shape.lane as usize,
            )
        })
    }

    /// From senders to receivers.
    pub(super) fn messages(self) -> Lane<'r> {
        self.lane(self.core.fixed.shape.messages)
    }

    /// From receivers to senders.
    pub(super) fn free_cells(self) -> Lane<'r> {
        self.lane(self.core.fixed.shape.freed)
    }

    /// How many cells there are.
    pub(super) fn total(self) -> u32 {
        self.core.fixed.capacity + self.core.fixed.spares.load(Relaxed)
    }

    pub(super) fn all(self) -> impl Iterator<Item = Index> {
        (0..self.total()).map(Index)
    }

    #[inline]
    fn head(self, index: Index) -> NonNull<u8> {
        debug_assert!(index.0 < self.total());
        let shape = &self.core.fixed.shape;
        match index.0.checked_sub(shape.base) {
            None => self.at(shape.cells + index.0 as usize * shape.stride as usize),
            Some(far) => self.far(far),
        }
    }

    #[inline]
    pub(super) fn cell(self, index: Index) -> &'r Cell {
        // SAFETY: a cell lies there.
        unsafe { self.head(index).cast().as_ref() }
    }

    /// The bytes of a cell. Outside the lock for a `WRITING`, `READING` or `BOARD` cell that the caller has.
    pub(super) fn bytes(self, index: Index) -> NonNull<u8> {
        // SAFETY: the bytes follow the cell.
        unsafe { self.head(index).add(self.core.fixed.shape.bytes as usize) }
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
}
