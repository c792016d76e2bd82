//! The first page of a region: its identity and its shared words.
//!
//! The header contains no offset that a reader would have to trust: the layout follows from the three capacities by
//! [`Layout::new`], and the fingerprint says whether another build computes the same layout. A file that was
//! truncated, corrupted or made by an attacker is refused before it is mapped.
//!
//! # The library's own locks in a region, and their order
//!
//! A task takes one of them only while each that it holds is above it in this table.
//!
//! | lock | protects |
//! | --- | --- |
//! | names (`names.rs`) | the directory of named objects. The function of the user that makes or drops an object runs under it, and may take all locks below |
//! | the table of the classic interface (`classic/handle.rs` of `latchwork`) | the creation of its objects, the homes of its tasks |
//! | a queue's senders', then its receivers' (`queue/locked.rs`) | a side of the queue |
//! | a semaphore's (`semaphore/object.rs`) | its queue. Only one of these, and of the two below, is held at a time |
//! | standing, in a slot (`wait_record.rs`) | a task's effective priority |
//! | lending, in a slot (`wait_record.rs`) | the processors of a task |
//! | grow (`grow.rs`) | the size of the heap. A task allocates under all locks above |
//! | sweep (`sweep.rs`) | the slots of dead tasks |
//!
//! All are region locks: their words name tasks of the region, and a thread that takes one is a task of the region, or
//! becomes one first. (A thread uses the heap and the directory as a task in any case.)
//!
//! *A call that takes a region lock may sweep*, when it has taken the lock from a dead owner, and when a death ends its sleep.
//! It then holds what it held before, and perhaps that lock: so the sweep lock is the last one. A sweep takes no other lock: it settles the heap from
//! the tables, and never grows it. It may run within an allocation of the same task, which has come to the grow lock: to
//! the heap it is then what the sweep of another task is, which may run at any time, and it never changes the sweeping
//! task's own part.

#![allow(unsafe_code)]

use super::heap::{HeapLayout, SPAN_BYTES};
use super::lookout::Lookout;
use super::names::{Entry, LISTS};
use super::task_table::Slot;
use super::{AttachError, shareable::fingerprint};
use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use crate::mutex::InRegion;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"latchwrk");
/// To be incremented with every change of the meaning of a region's bytes that sizes do not show.
pub(super) const VERSION: u32 = 14;
pub(super) const LABEL_BYTES: usize = 64;

/// The smallest and largest capacities that a region can have.
pub(super) const MIN_BYTES: u64 = 1 << 20;
pub(super) const MAX_BYTES: u64 = 1 << 40;
pub(super) const MAX_TASKS: u16 = 1 << 14;
pub(super) const MAX_NAMES: u32 = 1 << 20;

/// The part that is fixed at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Identity {
    pub(super) magic: u64,
    pub(super) version: u32,
    pub(super) max_tasks: u16,
    pub(super) flags: u16,
    pub(super) fingerprint: u64,
    pub(super) base: u64,
    pub(super) max_bytes: u64,
    pub(super) pid_namespace: u64,
    pub(super) max_names: u32,
    pub(super) creator: u32,
    pub(super) label: [u8; LABEL_BYTES],
    /// A random number, drawn at creation: no other region that was at this address has it.
    pub(super) number: u64,
}

/// The name is removed when the last process detaches.
pub(super) const FLAG_UNLINK_AT_LAST_DETACH: u16 = 1;

/// Tasks of any PID namespace may use the region.
pub(super) const FLAG_ANY_PID_NAMESPACE: u16 = 2;

/// The slots beyond those of the tasks that the region is for: for threads that find no other free, and sweep.
const RESERVE: u16 = 8;

/// The shared words of a region, apart from its tables and heap.
#[repr(C)]
pub(super) struct Header {
    pub(super) identity: Identity,
    /// Bytes of the file that have memory. It only grows, under `grow_lock`.
    pub(super) committed: AtomicU64,
    /// The number of slots that were ever used; sleepers watch this word.
    pub(super) slots_used: AtomicU32,
    /// A sequence number that changes with each detected death, and when a file is opened that no process had open.
    pub(super) deaths: AtomicU32,
    pub(super) grow_lock: InRegion,
    pub(super) sweep_lock: InRegion,
    pub(super) names_lock: InRegion,
    /// Memory of objects that have ended, for new objects of their kinds. Under `names_lock`.
    pub(super) spares: [AtomicUsize; LISTS],
    /// The number of detected deaths, for inspection.
    pub(super) died: AtomicU32,
    pub(super) lookout: Lookout,
    /// How many entries after its home (`names.rs`) an object's entry lies at most. It only grows, under `names_lock`.
    pub(super) names_reach: AtomicU32,
    /// For each list of spares: `deaths` at the last search for objects that have ended and still have their names
    /// (`spares.rs`). Under `names_lock`.
    pub(super) names_searched: [AtomicU32; LISTS],
}

/// The offsets of a region's parts from its base, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(super) slots: usize,
    pub(super) names: usize,
    pub(super) heap_tables: usize,
    /// The heap's first span.
    pub(super) heap: usize,
    pub(super) heap_layout: HeapLayout,
    pub(super) total: usize,
}

impl Layout {
    /// The layout for capacities that are within the bounds above.
    pub(super) fn new(max_bytes: u64, max_tasks: u16, max_names: u32) -> Option<Self> {
        let after = |start: usize, bytes: usize| (start + bytes).next_multiple_of(4096);
        let slots = after(0, size_of::<Header>());
        let all_slots = max_tasks + RESERVE;
        let names = after(slots, all_slots as usize * size_of::<Slot>());
        let heap_tables = after(names, max_names as usize * size_of::<Entry>());
        let heap_layout = HeapLayout::for_max(max_bytes as usize, all_slots)?;
        let heap = (heap_tables + heap_layout.meta_bytes).next_multiple_of(SPAN_BYTES);
        Some(Self {
            slots,
            names,
            heap_tables,
            heap,
            heap_layout,
            total: heap + heap_layout.data_bytes(),
        })
    }

    /// The offset and length of spans in the file, in bytes.
    pub(super) fn range(&self, first: u32, spans: u32) -> (u64, u64) {
        let bytes = |spans: u32| u64::from(spans) * SPAN_BYTES as u64;
        (self.heap as u64 + bytes(first), bytes(spans))
    }
}

/// A number on which two builds must agree to use one region.
pub(super) const FINGERPRINT: u64 = fingerprint_with(cfg!(target_env = "musl"));

/// The same for a C library. The robust locks of musl and of glibc are marked and woken in different ways.
const fn fingerprint_with(is_musl: bool) -> u64 {
    fingerprint(
        "latchwork region",
        size_of::<Header>(),
        align_of::<Header>(),
        &[
            VERSION as u64,
            size_of::<Slot>() as u64,
            size_of::<Entry>() as u64,
            super::heap::FINGERPRINT,
            size_of::<usize>() as u64,
            is_musl as u64,
            core::mem::offset_of!(Header, sweep_lock) as u64,
            core::mem::offset_of!(Slot, heap) as u64,
            core::mem::offset_of!(Slot, wait) as u64,
            core::mem::offset_of!(Slot, check) as u64,
        ],
    )
}

impl Identity {
    /// Reads an identity from the first bytes of a file.
    pub(super) fn parse(bytes: [u8; size_of::<Self>()]) -> Self {
        // SAFETY: integers only, without padding between them: every byte string is an identity.
        unsafe { core::mem::transmute(bytes) }
    }

    /// Refuses every identity that this build could not use safely. `file_bytes` is the size of the file.
    pub(super) fn check(&self, file_bytes: u64, page: usize) -> Result<Layout, AttachError> {
        if self.magic != MAGIC {
            return Err(AttachError::NotARegion);
        }
        if self.version != VERSION || self.fingerprint != FINGERPRINT {
            return Err(AttachError::OtherBuild {
                found: self.fingerprint,
                expected: FINGERPRINT,
            });
        }
        let base = self.base as usize;
        let sane = (MIN_BYTES..=MAX_BYTES).contains(&self.max_bytes)
            && (1..=MAX_TASKS).contains(&self.max_tasks)
            && (1..=MAX_NAMES).contains(&self.max_names)
            && base.is_multiple_of(SPAN_BYTES)
            && base.is_multiple_of(page)
            && (SPAN_BYTES..crate::sys::memory::address_window().end << 1).contains(&base);
        if !sane {
            let what = "capacities or base address are out of range";
            return Err(AttachError::Damaged(what));
        }
        let layout = Layout::new(self.max_bytes, self.max_tasks, self.max_names)
            .ok_or(AttachError::Damaged("no layout fits these capacities"))?;
        if file_bytes < layout.heap as u64 {
            return Err(AttachError::Truncated {
                bytes: file_bytes,
                needed: layout.heap as u64,
            });
        }
        Ok(layout)
    }

    pub(super) fn label(&self) -> String {
        let label = self.label.split(|byte| *byte == 0).next();
        String::from_utf8_lossy(label.unwrap_or_default()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attach compares these numbers: `check` above.
    #[test]
    fn a_program_for_musl_and_one_for_glibc_share_no_region() {
        assert_ne!(fingerprint_with(true), fingerprint_with(false));
        assert_eq!(FINGERPRINT, fingerprint_with(cfg!(target_env = "musl")));
    }
}
