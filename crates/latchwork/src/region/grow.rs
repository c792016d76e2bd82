//! What a process has of a region that it has mapped, and how the region grows.
#![allow(unsafe_code)]

use super::header::{Header, Identity, Layout};
use super::heap::{GrowError, Heap, SPAN_BYTES, TaskHeaps};
use super::task_table::Slot;
use super::{Inner, homes};
use crate::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::mutex::RawError;
use crate::sys::memory::{self, Mapping};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes by which a region grows at least, and the step that it is committed in.
const GROW_BYTES: usize = 1 << 20;

impl Inner {
    /// Takes over a mapping with a region in it.
    pub(super) fn new(
        file: OwnedFd,
        mapping: Mapping,
        identity: Identity,
        layout: Layout,
        path: Option<PathBuf>,
    ) -> Arc<Self> {
        let base = mapping.base();
        let tasks = TaskHeaps {
            // SAFETY: the layout places the slots inside the mapping.
            first: unsafe {
                base.add(layout.slots + core::mem::offset_of!(Slot, heap))
                    .cast()
            },
            stride: size_of::<Slot>(),
        };
        let grower = Grower {
            base,
            descriptor: file.as_raw_fd(),
            layout,
        };
        // SAFETY: tables and data lie in the mapping as the layout says; the tables were zero at
        // creation; the mapping outlives the heap, which `Inner` holds beside it.
        let heap = unsafe {
            Heap::from_raw(
                base.add(layout.heap_tables),
                base.add(layout.heap),
                layout.heap_layout,
                tasks,
                Box::new(move |heap, spans| grower.grow(heap, spans)),
            )
        };
        let home = homes::home_of(base.addr().get(), identity.number);
        crate::task::set_owner_death_hook(super::sweep::after_owner_death);
        crate::sleep::set_hooks(&super::park::HOOKS);
        Arc::new(Self {
            file,
            mapping: ManuallyDrop::new(mapping),
            identity,
            layout,
            path,
            heap,
            home,
            uses: AtomicUsize::new(0),
            handles: AtomicUsize::new(0),
            lasting: AtomicBool::new(false),
            entered: AtomicBool::new(false),
        })
    }
}

/// What the heap calls when it has no free span.
struct Grower {
    base: NonNull<u8>,
    descriptor: i32,
    layout: Layout,
}

// SAFETY: the base is only used as the address of the header, which consists of atomics and locks.
unsafe impl Send for Grower {}
// SAFETY: as above.
unsafe impl Sync for Grower {}

impl Grower {
    /// Commits memory for `spans` more spans, under the region's lock.
    ///
    /// A kill leaves at most memory that is committed and not yet counted; the next growth counts
    /// it (`fallocate` over committed memory does nothing).
    fn grow(&self, heap: &Heap, spans: u32) -> Result<(), GrowError> {
        // SAFETY: the mapping begins with the header.
        let header: &Header = unsafe { self.base.cast().as_ref() };
        // SAFETY: the lock lies in the mapping, which outlives this call.
        match unsafe { header.grow_lock.lock_raw(None) } {
            Ok(_) => header.grow_lock.mark_consistent(),
            Err(RawError::Deadlock) => crate::fatal(format_args!(
                "a region's heap was used by a signal handler that interrupted its growth"
            )),
            Err(_) => return Err(GrowError),
        }
        let before = heap.committed();
        let max = self.layout.heap_layout.max_spans;
        let step = spans.max((GROW_BYTES / SPAN_BYTES) as u32).max(before / 4);
        let wanted = before.saturating_add(step).min(max);
        let result = self.commit(header, before, wanted).or_else(|_| {
            // Not for the growth that was wished for, perhaps for what is needed.
            self.commit(header, before, before.saturating_add(spans).min(max))
        });
        if let Ok(committed) = result {
            heap.publish_committed(committed);
        }
        // SAFETY: locked above.
        unsafe { header.grow_lock.unlock_raw() };
        result.map(|_| ()).map_err(|_| GrowError)
    }

    fn commit(&self, header: &Header, before: u32, after: u32) -> Result<u32, Errno> {
        let offset = (self.layout.heap + before as usize * SPAN_BYTES) as u64;
        let bytes = (after - before) as u64 * SPAN_BYTES as u64;
        // SAFETY: the descriptor is the region's file, which `Inner` keeps open beside this heap.
        let file = unsafe { BorrowedFd::borrow_raw(self.descriptor) };
        if bytes > 0 {
            memory::allocate(file, offset, bytes)?;
        }
        // Relaxed: for the inspector.
        header.committed.store(offset + bytes, Ordering::Relaxed);
        Ok(after)
    }
}
