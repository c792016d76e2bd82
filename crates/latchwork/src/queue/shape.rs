//! The sizes and offsets of a queue's body, computed from the queue's options.

use super::{Discipline, cell::Cell, line::Line};
use core::alloc::Layout;

/// This many chunks have twice as many cells as the largest region has slots for tasks.
pub(super) const CHUNKS: usize = 14;

/// The largest number of cells in chunks.
pub(super) fn max_chunk_cells(tasks: usize) -> u32 {
    let most = (1 << CHUNKS) - 1;
    u32::try_from(2 * tasks).map_or(most, |cells| cells.min(most))
}

/// Indices of the parts of a body. The lane from senders to receivers, and the one from receivers to senders.
pub(super) const MESSAGE_LANE: usize = 0;
pub(super) const FREE_LANE: usize = 1;
/// The ring of the free cells that the senders have, and the ring of ready cells.
pub(super) const STASH: usize = 2;
pub(super) const READY_RING: usize = 3;
pub(super) const CELLS: usize = 4;
pub(super) const PARTS: usize = 5;

/// Indices of the sizes. The first two: the number of places in a lane, and in a ring.
pub(super) const LANE: usize = 0;
pub(super) const RING: usize = 1;
/// The number of cells in the body.
pub(super) const BASE: usize = 2;
/// The offset from a cell to its message's bytes.
pub(super) const BYTES: usize = 3;
pub(super) const STRIDE: usize = 4;
pub(super) const SIZES: usize = 5;

/// The offsets of a body's parts from its beginning, and the sizes of and in them.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) parts: [usize; PARTS],
    pub(super) sizes: [u32; SIZES],
}

/// A cache line.
const LINE: usize = 64;
/// The largest number of messages, and the largest size of one.
const MAX: u32 = 1 << 30;
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
    let fits = |value: u32| (1..=MAX).contains(&value);
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
        (base, base + max_chunk_cells(tasks), 1)
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
pub(super) fn parts_at(body: usize, shape: Shape) -> [usize; PARTS] {
    shape.parts.map(|part| body + part)
}
