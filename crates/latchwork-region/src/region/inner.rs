//! A region that this process has mapped: its parts, and where they lie in the mapping.
//!
//! `grow.rs` makes an [`Inner`] of a mapping, `lifetime.rs` says how long it stays mapped, and `registry.rs` finds it
//! by an address.
#![allow(unsafe_code)]

use super::header::{Header, Identity, Layout};
use super::heap::Heap;
use super::names::Entry;
use super::region_id::RegionId;
use super::task_table::Slot;
use crate::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sys::memory::Mapping;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::slice;
use rustix::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

#[doc(hidden)]
pub struct Inner {
    /// Closed where cancellation is disabled.
    pub(super) file: ManuallyDrop<OwnedFd>,
    /// It contains atomics, tables under robust locks, and blocks whose users are responsible for them. The registry
    /// unmaps it.
    pub(super) mapping: ManuallyDrop<Mapping>,
    /// A copy from the time of the check: the one in the mapping could change.
    pub(super) identity: Identity,
    pub(super) layout: Layout,
    pub(super) path: Option<PathBuf>,
    pub(super) heap: Heap,
    /// By which containers name the region.
    pub(super) id: RegionId,
    /// Handles, and threads of this process that are tasks. The last use to end removes the region's name, if that
    /// was asked for.
    pub(super) uses: AtomicUsize,
    /// Handles only.
    pub(super) handles: AtomicUsize,
    /// The region stays mapped until the process ends: there was no room to record which of its blocks are borrowed.
    pub(super) never_unmapped: AtomicBool,
    /// Whether the registry has ever contained it.
    pub(super) registered: AtomicBool,
}

impl Inner {
    pub(super) fn header(&self) -> &Header {
        // SAFETY: the mapping begins with the header, whose mutable parts are atomics and locks.
        unsafe { self.base().cast().as_ref() }
    }

    #[inline]
    pub(super) fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    pub fn slots(&self) -> &[Slot] {
        // SAFETY: the layout places that many slots there; they consist of atomics.
        unsafe {
            let first = self.base().add(self.layout.slots).cast();
            slice::from_raw_parts(first.as_ptr(), self.layout.heap_layout.slots as usize)
        }
    }

    pub(super) fn entries(&self) -> &[Entry] {
        // SAFETY: the layout places that many entries there; they consist of atomics.
        unsafe {
            let first = self.base().add(self.layout.names).cast();
            slice::from_raw_parts(first.as_ptr(), self.identity.max_names as usize)
        }
    }

    pub(super) fn addresses(&self) -> core::ops::Range<usize> {
        self.mapping.addresses()
    }

    /// Leaves the region mapped until the process ends.
    pub(super) fn keep_mapped_forever(self: &Arc<Self>) {
        if !self.never_unmapped.swap(true, Ordering::Relaxed) {
            core::mem::forget(Arc::clone(self));
        }
    }
}
