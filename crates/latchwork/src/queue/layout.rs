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

use super::cells::Cell;
use super::lane::{Index, Lane};
use super::sleepers::Sleepers;
use super::spares::{CHUNKS, most_far};
use super::waiters::Discipline;
use crate::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    compiler_fence, fence,
};
use crate::mutex::Robust;
use crate::region::{Inner, ObjectError, Task};
use core::alloc::Layout;
use core::ptr::NonNull;

/// The head of a queue. Each lock has a line of its own, for its waiters; so have the words of each side, and the words
/// that hardly ever change.
#[repr(C)]
pub(crate) struct Core {
    /// First: code that knows a queue's address only, such as that of inboxes, finds it there.
    pub(super) receivers_lock: Line<Robust>,
    pub(super) senders_lock: Line<Robust>,
    pub(super) fixed: Line<Fixed>,
    pub(super) blocks: Line<Blocks>,
    pub(super) sending: Line<Sending>,
    pub(super) receiving: Line<Receiving>,
}

const _: () = assert!(core::mem::offset_of!(Core, receivers_lock) == crate::region::QUEUE_LOCK);

/// A cache line and its neighbour, which CPUs prefetch with it.
#[repr(C, align(128))]
pub(super) struct Line<T>(T);

impl<T> core::ops::Deref for Line<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Words that hardly ever change: most of them only when a queue begins or ends, the sleepers' words around sleeps,
/// `spares` when a chunk is added, `recovered` after deaths, `given` and `ranked` with such messages.
#[repr(C)]
pub(super) struct Fixed {
    capacity: AtomicU32,
    max_message: AtomicU32,
    /// How waiting receivers are served; see `waiters.rs`.
    discipline: AtomicU32,
    /// Even: the queue lives; odd: there is none. A handle keeps the life that it was made in.
    pub(super) life: AtomicU32,
    pub(super) receivers: Sleepers,
    pub(super) senders: Sleepers,
    pub(super) watchers: Sleepers,
    /// The region's count of deaths at the last recovery.
    pub(super) recovered: AtomicU32,
    /// The number of cells that inboxes name: boards, and messages that were handed over. It grows under all locks, and
    /// shrinks under the receivers' lock.
    pub(super) given: AtomicU32,
    /// The number of cells beyond the capacity. Changes under all locks.
    pub(super) spares: AtomicU32,
    /// The number of messages sent that do not belong behind all others. Under the senders' lock.
    pub(super) ranked: AtomicU32,
    /// The sizes of a [`Shape`].
    sizes: [AtomicU32; SIZES],
    /// The parts of a [`Shape`], as addresses.
    parts: [AtomicUsize; PARTS],
}

/// The addresses of the queue's blocks.
#[repr(C)]
pub(super) struct Blocks {
    pub(super) chunks: [AtomicUsize; CHUNKS],
    /// The address of the body, or 0.
    body: AtomicUsize,
    /// The next head in the region's list of free heads. Under the lock of the region's names.
    next_spare: AtomicUsize,
}

/// The words of the senders; they change under the senders' lock.
#[repr(C)]
pub(super) struct Sending {
    /// The senders' position in the lane of messages.
    pub(super) sent: AtomicU32,
    /// The senders' position in the lane of free cells.
    pub(super) fetched: AtomicU32,
    pub(super) stash_first: AtomicU32,
    pub(super) stash_count: AtomicU32,
    pub(super) next_number: AtomicU64,
}

/// The words of the receivers; they change under the receivers' lock.
#[repr(C)]
pub(super) struct Receiving {
    /// The receivers' position in the lane of messages.
    pub(super) taken: AtomicU32,
    /// The receivers' position in the lane of free cells.
    pub(super) freed: AtomicU32,
    pub(super) ready_first: AtomicU32,
    pub(super) ready_count: AtomicU32,
    /// The value of `ranked` for which a receiver last emptied the lane.
    pub(super) heeded: AtomicU32,
    /// The number of inboxes that wait for this queue and have been given nothing.
    pub(super) waiting: AtomicU32,
    pub(super) next_arrival: AtomicU64,
    pub(super) redelivered: AtomicU64,
}

/// Indices of the parts of a body.
const MESSAGES: usize = 0;
const FREED: usize = 1;
const STASH: usize = 2;
const READY: usize = 3;
const CELLS: usize = 4;
const PARTS: usize = 5;

/// Indices of the sizes. The first two: the number of places in a lane, and in a ring.
const LANE: usize = 0;
const RING: usize = 1;
/// The number of cells in the body.
const BASE: usize = 2;
/// The offset from a cell to its message's bytes.
const BYTES: usize = 3;
const STRIDE: usize = 4;
const SIZES: usize = 5;

/// The offsets of a body's parts from its beginning, and the sizes of and in them.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    parts: [usize; PARTS],
    sizes: [u32; SIZES],
}

/// A cache line.
const LINE: usize = 64;
/// The largest number of messages, and the largest size of one.
pub(super) const MOST: u32 = 1 << 30;
/// Spare cells in the body: one for a board.
const SPARES_RACING: u32 = 1;
/// Spare cells in the body: one for a message that is handed over, and one for a board.
const SPARES_IN_ORDER: u32 = 2;

/// The shape of a body, and its block, in a region for this many tasks; `None` if it would not fit the address space.
pub(super) fn shape(
    (capacity, max_message, discipline): (u32, u32, u32),
    tasks: usize,
) -> Option<(Shape, Layout)> {
    const ALIGN: usize = align_of::<Line<u8>>();
    let fits = |value: u32| (1..=MOST).contains(&value);
    // A corrupted file could hold any other value.
    let is_known = Discipline::of_code(discipline).code() == discipline;
    if !fits(capacity) || !fits(max_message) || !is_known {
        return None;
    }
    // In order: no lanes, and each cell serves for messages and boards alike. Racing: the spare cells are boards only.
    let (base, ring, lane) = if discipline == Discipline::Racing.code() {
        let base = capacity + SPARES_RACING;
        (base, capacity, capacity.next_power_of_two())
    } else {
        let base = capacity + SPARES_IN_ORDER;
        (base, base + most_far(tasks), 1)
    };
    let lane_bytes = (lane as usize * size_of::<u64>()).next_multiple_of(ALIGN);
    let ring_bytes = (ring as usize * size_of::<u32>()).next_multiple_of(ALIGN);
    let freed = lane_bytes;
    let stash = freed + lane_bytes;
    let ready = stash + ring_bytes;
    let cells = ready + ring_bytes;
    // Header and message share one line if both fit; otherwise the message begins a line, which suits aligned contents.
    let max_message = max_message as usize;
    let bytes = match size_of::<Cell>() + max_message {
        ..=LINE => size_of::<Cell>(),
        _ => size_of::<Cell>().next_multiple_of(LINE),
    };
    let stride = (bytes + max_message).next_multiple_of(LINE);
    let size = stride.checked_mul(base as usize)?.checked_add(cells)?;
    let layout = Layout::from_size_align(size, ALIGN).ok()?;
    let shape = Shape {
        parts: [0, freed, stash, ready, cells],
        sizes: [lane, ring, base, bytes as u32, u32::try_from(stride).ok()?],
    };
    Some((shape, layout))
}

/// The parts of a body of this shape that begins at an address.
fn parts_at(body: usize, shape: Shape) -> [usize; PARTS] {
    shape.parts.map(|part| body + part)
}

/// Which lane is read without a lock.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Messages,
    FreeCells,
}

impl Core {
    /// The offset of the link between free heads.
    pub(super) const NEXT_SPARE: usize =
        core::mem::offset_of!(Core, blocks) + core::mem::offset_of!(Blocks, next_spare);

    /// A head without a queue.
    pub(crate) fn new() -> Self {
        let word = || AtomicU32::new(0);
        Self {
            receivers_lock: Line(Robust::new()),
            senders_lock: Line(Robust::new()),
            fixed: Line(Fixed {
                capacity: word(),
                max_message: word(),
                discipline: word(),
                life: AtomicU32::new(1),
                receivers: Sleepers::new(),
                senders: Sleepers::new(),
                watchers: Sleepers::new(),
                recovered: word(),
                given: word(),
                spares: word(),
                ranked: word(),
                sizes: [const { AtomicU32::new(0) }; SIZES],
                parts: [const { AtomicUsize::new(0) }; PARTS],
            }),
            blocks: Line(Blocks {
                chunks: [const { AtomicUsize::new(0) }; CHUNKS],
                body: AtomicUsize::new(0),
                next_spare: AtomicUsize::new(0),
            }),
            sending: Line(Sending {
                sent: word(),
                fetched: word(),
                stash_first: word(),
                stash_count: word(),
                next_number: AtomicU64::new(1),
            }),
            receiving: Line(Receiving {
                taken: word(),
                freed: word(),
                ready_first: word(),
                ready_count: word(),
                heeded: word(),
                waiting: word(),
                next_arrival: AtomicU64::new(1),
                redelivered: AtomicU64::new(0),
            }),
        }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.fixed.capacity.load(Relaxed)
    }

    pub(super) fn max_message(&self) -> u32 {
        self.fixed.max_message.load(Relaxed)
    }

    /// The [`Discipline::code`](super::Discipline::code). A task that reads that of a later life than its handle's also
    /// reads that later life.
    pub(super) fn discipline(&self) -> u32 {
        self.fixed.discipline.load(Acquire)
    }

    /// Whether there is a queue.
    pub(super) fn is_alive(&self) -> bool {
        self.fixed.life.load(Acquire).is_multiple_of(2)
    }

    /// Clears the body's address: there is no body.
    pub(super) fn forget_body(&self) {
        self.blocks.body.store(0, Relaxed);
    }

    /// Whether there is a body, of a live or of a deleted queue. Under a lock.
    pub(super) fn has_body(&self) -> bool {
        self.blocks.body.load(Relaxed) != 0
    }
}

/// A queue's head and body. Methods run under the lock, except where they say otherwise.
#[derive(Clone, Copy)]
pub(super) struct Cells<'r> {
    pub(super) core: &'r Core,
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
        let tasks = self.inner.slots().len();
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
        let Core {
            fixed,
            sending,
            receiving,
            blocks,
            ..
        } = self.core;
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
        for word in [
            &fixed.given,
            &fixed.ranked,
            &sending.sent,
            &sending.fetched,
            &sending.stash_first,
            &receiving.taken,
            &receiving.freed,
            &receiving.ready_first,
            &receiving.ready_count,
            &receiving.heeded,
            &receiving.waiting,
        ] {
            word.store(0, Relaxed);
        }
        fixed.recovered.store(self.inner.deaths(), Relaxed);
        sending.stash_count.store(stashed, Relaxed);
        sending.next_number.store(1, Relaxed);
        receiving.redelivered.store(0, Relaxed);
        // SAFETY: the word is the head's, under its robust locks; the block is the caller's.
        unsafe { self.inner.publish_block(task, block, &blocks.body) };
        let life = fixed.life.load(Relaxed).wrapping_add(1);
        compiler_fence(crate::atomic::Ordering::SeqCst);
        // Release: a task that reads the life with Acquire also reads the rest.
        fixed.life.store(life, Release);
        Ok(life)
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
            self.disown();
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
    pub(super) fn is_sound(core: &Core, inner: &Inner) -> bool {
        let body = core.blocks.body.load(Relaxed);
        let options = (core.capacity(), core.max_message(), core.discipline());
        let Some((shape, layout)) = shape(options, inner.slots().len()) else {
            return false;
        };
        let sizes = shape.sizes.iter().zip(&core.fixed.sizes);
        sizes
            .into_iter()
            .all(|(right, size)| size.load(Relaxed) == *right)
            && inner.has_block_at(body, layout.size())
            && body.is_multiple_of(layout.align())
            && parts_at(body, shape)
                .iter()
                .zip(&core.fixed.parts)
                .all(|(right, part)| part.load(Relaxed) == *right)
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

    fn ring(self, part: usize) -> &'r [AtomicU32] {
        let first = self.at(self.part(part)).cast().as_ptr();
        // SAFETY: the ring of this part has `ring_length` entries.
        unsafe { core::slice::from_raw_parts(first, self.ring_length()) }
    }

    /// The ring of ready cells.
    pub(super) fn ready(self) -> &'r [AtomicU32] {
        self.ring(READY)
    }

    /// The ring of the free cells that the senders have.
    pub(super) fn stashed(self) -> &'r [AtomicU32] {
        self.ring(STASH)
    }

    /// The distance from one cell to the next, in bytes.
    pub(super) fn stride(self) -> usize {
        self.size(STRIDE)
    }

    fn lane(self, part: usize) -> Lane<'r> {
        let first = self.at(self.part(part)).cast().as_ptr();
        // SAFETY: the lane of this part has as many entries as the size `LANE` says.
        Lane::new(unsafe { core::slice::from_raw_parts(first, self.size(LANE)) })
    }

    /// The lane from senders to receivers.
    pub(super) fn messages(self) -> Lane<'r> {
        self.lane(MESSAGES)
    }

    /// The lane from receivers to senders.
    pub(super) fn free_cells(self) -> Lane<'r> {
        self.lane(FREED)
    }

    /// A lane that the caller reads without the lock; `None` if there is no queue.
    pub(super) fn guessed(self, way: Way) -> Option<Lane<'r>> {
        let life = self.core.fixed.life.load(Acquire);
        let lane = match way {
            _ if !life.is_multiple_of(2) => return None,
            Way::Messages => self.messages(),
            Way::FreeCells => self.free_cells(),
        };
        // If the life has not changed, the values read from the head are of this life.
        fence(Acquire);
        (self.core.fixed.life.load(Relaxed) == life).then_some(lane)
    }

    /// The address of a position in a lane, as a prefetch hint; any address if there is no queue. Without the lock.
    pub(super) fn hint(self, way: Way, position: u32) -> *const u8 {
        let part = match way {
            Way::Messages => MESSAGES,
            Way::FreeCells => FREED,
        };
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

    #[inline]
    fn head(self, index: Index) -> NonNull<u8> {
        debug_assert!(index.0 < self.total());
        match index.0.checked_sub(self.base()) {
            None => self.at(self.part(CELLS) + index.0 as usize * self.stride()),
            Some(far) => self.far(far),
        }
    }

    #[inline]
    pub(super) fn cell(self, index: Index) -> &'r Cell {
        // SAFETY: `head` returns the address of a cell, in the body or in a chunk.
        unsafe { self.head(index).cast().as_ref() }
    }

    /// The bytes of a cell. Outside the lock only for a `WRITING`, `READING` or `BOARD` cell that the caller has.
    pub(super) fn bytes(self, index: Index) -> NonNull<u8> {
        // SAFETY: the message's bytes follow the cell at this offset, in the same block.
        unsafe { self.head(index).add(self.size(BYTES)) }
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
        let cell = self.cell(index);
        let length = cell.length.load(Relaxed);
        let (place, length) = match NonNull::new(core::ptr::with_exposed_provenance_mut(
            cell.block.load(Relaxed),
        )) {
            Some(block) => (block, length),
            None => (
                self.bytes(index),
                length.min(self.core.max_message() as usize),
            ),
        };
        // SAFETY: `length` bytes are there, written before the cell became ready.
        unsafe { core::slice::from_raw_parts(place.as_ptr(), length) }
    }
}
