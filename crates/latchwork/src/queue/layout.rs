//! Where a queue's words and bytes lie, and what they mean: `cells.rs`. A queue has two parts.
//!
//! | part | what it has | while the queue lives | after its deletion |
//! | --- | --- | --- | --- |
//! | head | locks, where sleepers sleep, counts, the life | stays | stays a head, for the next queue: handles may look at it |
//! | body | lanes and rings of indices, cells with their messages | stays | is freed, as soon as nothing is in flight |
//! | chunks | more cells: `spares.rs` | are added | are freed before the body |
//!
//! | `life` | `body` | meaning | next |
//! | --- | --- | --- | --- |
//! | odd | 0 | no queue | creation: the shape, then a body |
//! | odd | a block | deleted and in flight, or killed in its creation or deletion | idle: the body is freed |
//! | even | a block | a queue | deletion: `life` first of all |
//!
//! A head begins and ends under both locks. Who has one of them, and finds the life of his handle, finds the body
//! that goes with it. *Without a lock* only guesses are made: where a lane lies is read between two looks at the life.
//! Should the body be freed after that, they look at memory that is somebody else's by then, and still mapped.
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

/// The head of a queue's block. Each lock has a line of its own, for those who wait for it; so has what
/// each side keeps, and what hardly ever changes.
#[repr(C)]
pub(crate) struct Core {
    /// First: whoever knows a queue's address only, as inboxes do, finds it there.
    pub(super) receivers_lock: Line<Robust>,
    pub(super) senders_lock: Line<Robust>,
    pub(super) fixed: Line<Fixed>,
    pub(super) blocks: Line<Blocks>,
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

/// What hardly ever changes: but for the deaths, what is given and what is ranked, as a queue begins and ends.
#[repr(C)]
pub(super) struct Fixed {
    capacity: AtomicU32,
    max_message: AtomicU32,
    /// How receivers that wait are served; see `waiters.rs`.
    discipline: AtomicU32,
    /// Even: the queue lives; odd: there is none. A handle knows the life that it was made in.
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
    /// Those of a [`Shape`].
    sizes: [AtomicU32; SIZES],
    /// The parts of a [`Shape`], as addresses.
    parts: [AtomicUsize; PARTS],
}

/// What the head leads to.
#[repr(C)]
pub(super) struct Blocks {
    pub(super) chunks: [AtomicUsize; CHUNKS],
    /// The address of the body, or 0.
    body: AtomicUsize,
    /// The next head that is nobody's. Under the lock of the region's names.
    next_spare: AtomicUsize,
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

/// Where the lane of messages lies, and so on.
const MESSAGES: usize = 0;
const FREED: usize = 1;
const STASH: usize = 2;
const READY: usize = 3;
const CELLS: usize = 4;
const PARTS: usize = 5;

/// Places in a lane, and in a ring.
const LANE: usize = 0;
const RING: usize = 1;
/// Cells in the body.
const BASE: usize = 2;
/// From a cell to its message's bytes.
const BYTES: usize = 3;
const STRIDE: usize = 4;
const SIZES: usize = 5;

/// Where the parts of a body lie, from its beginning; and sizes of and in them.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    parts: [usize; PARTS],
    sizes: [u32; SIZES],
}

/// A cache line.
const LINE: usize = 64;
/// The most messages, and the most bytes of one.
pub(super) const MOST: u32 = 1 << 30;
/// Spare cells in the body: one for a board.
const SPARES_RACING: u32 = 1;
/// One for a message that is handed over, and one for a board.
const SPARES_IN_ORDER: u32 = 2;

/// The shape of a body, and its block, in a region for so many tasks; `None` if it would not fit the address space.
pub(super) fn shape(
    (capacity, max_message, discipline): (u32, u32, u32),
    tasks: usize,
) -> Option<(Shape, Layout)> {
    const ALIGN: usize = align_of::<Line<u8>>();
    let fits = |value: u32| (1..=MOST).contains(&value);
    // What a mutated file says is no more than that.
    let is_known = Discipline::of_code(discipline).code() == discipline;
    if !fits(capacity) || !fits(max_message) || !is_known {
        return None;
    }
    // In order there are no lanes, and each cell serves for all; else spare ones are boards and no more.
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
    // One line for both, if that takes them; or else the message begins a line, which suits what is put there.
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

/// What a lane is asked for without a lock.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Messages,
    FreeCells,
}

impl Core {
    /// Where the link between spares lies.
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

    /// By [`Discipline::code`](super::Discipline::code). Who reads the one of a later life than his handle's finds that
    /// life, too.
    pub(super) fn discipline(&self) -> u32 {
        self.fixed.discipline.load(Acquire)
    }

    /// Whether there is a queue.
    pub(super) fn is_alive(&self) -> bool {
        self.fixed.life.load(Acquire).is_multiple_of(2)
    }

    /// There is no body after all.
    pub(super) fn forget_body(&self) {
        self.blocks.body.store(0, Relaxed);
    }

    /// Whether there is a body, of a queue or of one that was deleted. Under a lock.
    pub(super) fn has_body(&self) -> bool {
        self.blocks.body.load(Relaxed) != 0
    }
}

/// A queue's head and body; all under the lock, except where said.
#[derive(Clone, Copy)]
pub(super) struct Cells<'r> {
    pub(super) core: &'r Core,
    pub(super) inner: &'r Inner,
}

impl<'r> Cells<'r> {
    /// Has a queue begin in a head that has neither queue nor body, and returns its life. Under both locks. Killed
    /// before the last step, the task leaves a head without a queue.
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
        // SAFETY: the block is the caller's and has the shape's layout. Zero is a valid cell (a free one), ring
        // entry, and byte.
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
        // If there is one, it is not of this queue: the head came out of a mutated file.
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
        unsafe { self.inner.hand_in(task, block, &blocks.body) };
        let life = fixed.life.load(Relaxed).wrapping_add(1);
        compiler_fence(crate::atomic::Ordering::SeqCst);
        // Release: who finds the life finds the rest.
        fixed.life.store(life, Release);
        Ok(life)
    }

    /// Sends away all who wait at a queue that was deleted, drops its messages, and frees its body, if nothing of it is
    /// in flight; whether none is left. Also of one that never began, or whose deletion was cut short. Under both locks.
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
                // SAFETY: the word is the head's, under its robust locks. Nobody uses the body: no cell is in flight,
                // and who comes with a lock finds that the queue was deleted.
                unsafe { self.inner.discard(task, &self.core.blocks.body) };
            }
        }
        !self.core.has_body()
    }

    /// Whether a head that may have been in a file of anybody's leads to what it says. Without a lock: of a queue that
    /// lives all the while.
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
        // SAFETY: addresses come from the parts and lie in the body.
        unsafe { NonNull::new_unchecked(place) }
    }

    fn ring(self, part: usize) -> &'r [AtomicU32] {
        let first = self.at(self.part(part)).cast().as_ptr();
        // SAFETY: so many entries lie there.
        unsafe { core::slice::from_raw_parts(first, self.ring_length()) }
    }

    /// The ring of ready cells.
    pub(super) fn ready(self) -> &'r [AtomicU32] {
        self.ring(READY)
    }

    /// The ring of free cells that the senders have.
    pub(super) fn stashed(self) -> &'r [AtomicU32] {
        self.ring(STASH)
    }

    /// Bytes from one cell to the next.
    pub(super) fn stride(self) -> usize {
        self.size(STRIDE)
    }

    fn lane(self, part: usize) -> Lane<'r> {
        let first = self.at(self.part(part)).cast().as_ptr();
        // SAFETY: so many entries lie there.
        Lane::new(unsafe { core::slice::from_raw_parts(first, self.size(LANE)) })
    }

    /// From senders to receivers.
    pub(super) fn messages(self) -> Lane<'r> {
        self.lane(MESSAGES)
    }

    /// From receivers to senders.
    pub(super) fn free_cells(self) -> Lane<'r> {
        self.lane(FREED)
    }

    /// A lane without the lock, to look at; `None` if there is no queue.
    pub(super) fn guessed(self, way: Way) -> Option<Lane<'r>> {
        let life = self.core.fixed.life.load(Acquire);
        let lane = match way {
            _ if !life.is_multiple_of(2) => return None,
            Way::Messages => self.messages(),
            Way::FreeCells => self.free_cells(),
        };
        // What was read of the head is of this life, if that goes on.
        fence(Acquire);
        (self.core.fixed.life.load(Relaxed) == life).then_some(lane)
    }

    /// The place of a position in a lane, as a hint; any address, if there is no queue. Without the lock.
    pub(super) fn hint(self, way: Way, position: u32) -> *const u8 {
        let part = match way {
            Way::Messages => MESSAGES,
            Way::FreeCells => FREED,
        };
        let place = position as usize & self.size(LANE).wrapping_sub(1);
        let address = self.part(part).wrapping_add(place * size_of::<u64>());
        core::ptr::without_provenance(address)
    }

    /// How many cells there are.
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
        // SAFETY: a cell lies there.
        unsafe { self.head(index).cast().as_ref() }
    }

    /// The bytes of a cell. Outside the lock for a `WRITING`, `READING` or `BOARD` cell that the caller has.
    pub(super) fn bytes(self, index: Index) -> NonNull<u8> {
        // SAFETY: the bytes follow the cell.
        unsafe { self.head(index).add(self.size(BYTES)) }
    }

    /// Copies a message into a cell that is free, or that the caller writes.
    pub(super) fn fill(self, index: Index, message: &[u8]) {
        debug_assert!(message.len() <= self.core.max_message() as usize);
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
                length.min(self.core.max_message() as usize),
            ),
        };
        // SAFETY: so many bytes lie there, written before the cell became ready.
        unsafe { core::slice::from_raw_parts(place.as_ptr(), length) }
    }
}
