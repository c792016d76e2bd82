//! Identifiers: class, generation and index of an object.

use super::status::Id;

/// The class, in the first four bits of an id.
pub(super) const TASK: u32 = 1;
pub(super) const SEMAPHORE: u32 = 3;
pub(super) const MESSAGE_QUEUE: u32 = 4;
/// Bits of an id's generation.
pub(super) const GENERATION: u32 = 0xfff;

/// The id of the object of this class in this entry.
pub(super) fn id_of(class: u32, generation: u32, index: usize) -> Id {
    class << 28 | (generation & GENERATION) << 16 | (index as u32 + 1)
}

/// Generation and index of an id of this class.
#[inline]
pub(super) fn parts_of(id: Id, class: u32) -> Option<(u32, usize)> {
    let index = (id & 0xffff).checked_sub(1)? as usize;
    (id >> 28 == class).then_some((id >> 16 & GENERATION, index))
}
