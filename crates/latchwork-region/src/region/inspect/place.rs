//! The part of a region that an offset lies in.

use super::Contents;
use crate::mutex::InRegion;
use crate::region::header::Header;
use crate::region::task_table::Slot;
use core::mem::offset_of;

/// A part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegionPlace<'a> {
    /// One of the region's own locks: `grow`, `sweep`, `names`, or the `standing` or `lending` of a task's slot.
    Lock(&'static str),
    /// The library's own tables: identity, task table, directory of names, heap tables.
    Tables,
    /// A named object.
    Object {
        /// Its name.
        name: &'a str,
        /// The offset from its beginning.
        offset: u64,
    },
    /// The heap, outside all named objects.
    Heap,
}

impl Contents {
    /// The part of the region at an offset from its beginning, which is also the offset in its file. `None` behind
    /// the region's end.
    #[must_use]
    pub fn place(&self, offset: u64) -> Option<RegionPlace<'_>> {
        let layout = &self.snapshot.layout;
        let at = usize::try_from(offset).ok()?;
        (at < layout.total).then_some(())?;
        if at < layout.heap {
            let is_in_slots = (layout.slots..layout.names).contains(&at);
            let in_slot = is_in_slots.then(|| (at - layout.slots) % size_of::<Slot>());
            // A region lock has two futexes' bytes, of which the second one is slept on.
            let is_at = |lock: usize, at: usize| (lock..lock + size_of::<InRegion>()).contains(&at);
            let lock = match in_slot {
                None if is_at(offset_of!(Header, grow_lock), at) => Some("grow"),
                None if at == offset_of!(Header, sweep_lock) => Some("sweep"),
                None if is_at(offset_of!(Header, names_lock), at) => Some("names"),
                Some(at) if is_at(offset_of!(Slot, wait.standing.lock), at) => Some("standing"),
                Some(at) if is_at(offset_of!(Slot, wait.lending.lock), at) => Some("lending"),
                _ => None,
            };
            return Some(lock.map_or(RegionPlace::Tables, RegionPlace::Lock));
        }
        let address = self.base.checked_add(offset)?;
        Some(self.object_at(address).unwrap_or(RegionPlace::Heap))
    }

    /// (In a damaged region, in which objects overlap: the last one that begins before the address, or nothing.)
    fn object_at(&self, address: u64) -> Option<RegionPlace<'_>> {
        let object = |index: &usize| self.objects.get(*index);
        let begins_before = |index: &usize| object(index).is_some_and(|it| it.address <= address);
        let behind = self.by_address.partition_point(begins_before);
        let object = object(self.by_address.get(behind.checked_sub(1)?)?)?;
        let offset = address.checked_sub(object.address)?;
        let name = &object.name;
        (offset < object.bytes.max(1)).then_some(RegionPlace::Object { name, offset })
    }
}
