//! Validation of a queue by a checked attach: its blocks, which it shares with nothing, and the states of its cells. All
//! else is derived from these, and rebuilt at the queue's first use (`recover.rs`).
#![allow(unsafe_code)]

use super::cell::{BLOCK, Cell, FREE, KIND, LATE, READING, READY};
use super::{Queue, head::Head, layout::Cells};
use crate::atomic::Ordering::Relaxed;
use crate::region::{Content, KnownContent, ReusedContent, Unsound, Validator};
use core::alloc::Layout;
use core::ptr::NonNull;

// SAFETY: all words of the object are validated, and its list is the one of its handle.
unsafe impl KnownContent for Queue<'_> {
    fn content() -> Content {
        <Head as ReusedContent>::content()
    }
}

// SAFETY: body, chunks and messages are claimed; what is derived from the cells is rebuilt before it is used.
unsafe impl ReusedContent for Head {
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
        // SAFETY: the caller's place, and every value of the head's words is valid.
        validate_head(unsafe { place.as_ref() }, region)
    }
}

/// A block of any size, where the size was checked.
const BLOCK_OF_ANY_SIZE: Layout = Layout::new::<u8>();

/// Validates the head of a queue, and all that belongs to it.
pub(crate) fn validate_head(head: &Head, region: &mut Validator<'_>) -> Result<(), Unsound> {
    let place = NonNull::from(head);
    head.receivers_lock.end_ownership();
    head.senders_lock.end_ownership();
    let fixed = &head.fixed;
    for sleepers in [&fixed.receivers, &fixed.senders, &fixed.watchers] {
        sleepers.clear();
    }
    let inner = region.inner();
    // Another number than the region's: the first task that takes a lock rebuilds what is derived.
    let before = inner.deaths().wrapping_sub(1);
    fixed.recovered.store(before, Relaxed);
    if !head.has_body() {
        return match head.is_alive() {
            true => Err(region.unsound(place, "a queue has no memory for messages")),
            // A creation clears the rest.
            false => Ok(()),
        };
    }
    if !Cells::is_sound(head, inner) {
        return Err(region.unsound(place, "a queue's memory is not what its options need"));
    }
    let body = &head.blocks.body;
    region.claim(NonNull::from(body), body.load(Relaxed), BLOCK_OF_ANY_SIZE)?;
    let cells = Cells { core: head, inner };
    // It clears what leads to no chunk.
    cells.count_spares();
    for chunk in &head.blocks.chunks {
        if let address @ 1.. = chunk.load(Relaxed) {
            region.claim(NonNull::from(chunk), address, BLOCK_OF_ANY_SIZE)?;
        }
    }
    cells
        .all()
        .try_for_each(|index| validate_cell(cells.cell(index), region))
}

fn validate_cell(cell: &Cell, region: &mut Validator<'_>) -> Result<(), Unsound> {
    // Without an owner, who is dead, and whose number a task to come might have.
    let state = cell.state.load(Relaxed) & (KIND | BLOCK | LATE);
    cell.set(state);
    let address = cell.block.load(Relaxed);
    if address == 0 {
        return Ok(());
    }
    let bytes = match (state & KIND, state & BLOCK) {
        (FREE, _) => 0,
        (READY | READING, BLOCK) => cell.length.load(Relaxed),
        _ => {
            return Err(region.unsound(
                NonNull::from(cell),
                "a cell of a queue has a block that is no message",
            ));
        }
    };
    let layout = Layout::from_size_align(bytes, 1)
        .map_err(|_| region.unsound(NonNull::from(cell), "a message is too long"))?;
    let block = region.claim(NonNull::from(&cell.block), address, layout);
    block.map(drop)
}
