//! A process's view of a region that it has mapped, and how the region grows and returns memory.
#![allow(unsafe_code)]

use super::header::{Header, Identity, Layout};
use super::heap::{Backing, GrowError, Heap, SPAN_BYTES, TaskHeaps};
use super::region_id::RegionId;
use super::task_table::Slot;
use super::{AttachError, Inner, Region};
use crate::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::mutex::Acquired;
use crate::mutex::in_region::RawError;
use crate::sys::memory::{self, Mapping};
use core::mem::{ManuallyDrop, offset_of};
use core::ptr::NonNull;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::Arc;

/// The minimum growth of a region in bytes.
const GROW_BYTES: usize = 1 << 20;

impl Inner {
    /// Takes over a mapping that contains a region.
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
            first: unsafe { base.add(layout.slots + offset_of!(Slot, heap)).cast() },
            stride: size_of::<Slot>(),
        };
        let backing = FileBacking {
            base,
            // SAFETY: `Inner` contains both the file and the heap.
            file: unsafe { BorrowedFd::borrow_raw(file.as_raw_fd()) },
            layout,
            longest: AtomicU32::new(u32::MAX),
        };
        // SAFETY: tables and data lie in the mapping as the layout says; the tables were zero at creation; the
        // mapping outlives the heap, since `Inner` contains both.
        let heap = unsafe {
            Heap::from_raw(
                base.add(layout.heap_tables),
                base.add(layout.heap),
                layout.heap_layout,
                tasks,
                Box::new(backing),
            )
        };
        // SAFETY: the hook completes what a dead task had begun.
        unsafe { crate::task::set_owner_death_hook(super::sweep::after_owner_death) };
        crate::sleep::set_hooks(&super::park::HOOKS);
        // SAFETY: only a task that has left or died is gone.
        unsafe { crate::task::set_regions(&super::owners::REGIONS) };
        Arc::new(Self {
            file: ManuallyDrop::new(file),
            mapping: ManuallyDrop::new(mapping),
            identity,
            layout,
            path,
            heap,
            id: RegionId::new(base.addr().get(), identity.number),
            uses: AtomicUsize::new(0),
            handles: AtomicUsize::new(0),
            never_unmapped: AtomicBool::new(false),
            registered: AtomicBool::new(false),
        })
    }

    /// Ensures that all committed spans except trimmed ones have memory.
    pub(super) fn fill_used(&self) -> Result<(), Errno> {
        let mut span = 0;
        while span < self.heap.committed() {
            let used = (span..self.heap.committed()).take_while(|span| !self.heap.is_hollow(*span));
            let run = used.count() as u32;
            let (offset, bytes) = self.layout.range(span, run);
            if run > 0 {
                memory::allocate(&*self.file, offset, bytes)?;
            }
            span += run + 1;
        }
        Ok(())
    }
}

impl Region {
    /// Returns the memory of the heap's free spans (of 64 KiB) to the system. Returns the number of bytes.
    ///
    /// The heap keeps freed memory for later allocations by all tasks. That is appropriate until a peak has passed:
    /// call this then, or periodically. Shrink containers first ([`Vec::shrink_to_fit`](super::Vec::shrink_to_fit)).
    /// Spans that another task has as its current ones for small blocks stay; so does a span with a single block.
    ///
    /// Other tasks may allocate and free meanwhile. A task that is killed in it leaves free spans, with or without
    /// memory. A later allocation in trimmed spans asks the system for memory again, and fails if there is none.
    ///
    /// *Cost:* a read for each span, and a system call for each 4 MiB and each gap.
    ///
    /// ```
    /// use latchwork::region::{Box, RegionOptions};
    ///
    /// let region = RegionOptions::new().max_bytes(64 << 20).create_anonymous()?;
    /// drop(Box::zeroed_in(16 << 20, &region)?);
    /// assert!(region.trim()? >= 16 << 20);
    /// # Ok::<(), std::boxed::Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the thread cannot become a task of the region.
    pub fn trim(&self) -> Result<usize, AttachError> {
        let inner = self.inner();
        let spans = inner.heap.trim(&inner.task()?.heap_task());
        Ok(spans as usize * SPAN_BYTES)
    }
}

/// The source of the heap's memory.
struct FileBacking {
    base: NonNull<u8>,
    /// The region's file, which `Inner` keeps open as long as this heap exists.
    file: BorrowedFd<'static>,
    layout: Layout,
    /// The number of spans by which this process lets the region grow beyond a request. After a failure it begins again with
    /// the least, and doubles with each success: a system with little memory is not asked for much at every growth.
    longest: AtomicU32,
}

// SAFETY: the base is only used as the address of the header, which consists of atomics and locks.
unsafe impl Send for FileBacking {}
// SAFETY: as for `Send`.
unsafe impl Sync for FileBacking {}

impl Backing for FileBacking {
    /// Commits memory for `spans` more spans, under the region's lock.
    ///
    /// A kill leaves at most memory that is committed and not yet counted; the next growth counts it (`fallocate` on
    /// committed memory does nothing). A failure gives the memory back: `trim` would not reach it.
    fn grow(&self, heap: &Heap, spans: u32) -> Result<(), GrowError> {
        // SAFETY: the mapping begins with the header.
        let header: &Header = unsafe { self.base.cast().as_ref() };
        let lock = &header.grow_lock;
        match lock.lock_raw() {
            Ok(Acquired::Clean) => {}
            Ok(Acquired::OwnerDied) => {
                crate::atomic::unless_disabled!(
                    GrowerTakesOver,
                    // SAFETY: locked just now.
                    unsafe { lock.mark_raw_consistent() },
                    ()
                );
            }
            Err(RawError::Deadlock) => crate::fatal(format_args!(
                "a region's heap was used by a signal handler that interrupted its growth"
            )),
            Err(_) => return Err(GrowError),
        }
        let before = heap.committed();
        let max = self.layout.heap_layout.max_spans;
        let least = (GROW_BYTES / SPAN_BYTES) as u32;
        // Relaxed, here and below: a hint of this process, under the lock.
        let longest = self.longest.load(Ordering::Relaxed);
        let step = spans.max(least).max((before / 4).min(longest));
        let wanted = before.saturating_add(step).min(max);
        let result = self.commit(heap, header, before, wanted);
        let longer = match result {
            Ok(()) => longest.saturating_mul(2),
            Err(_) => least,
        };
        self.longest.store(longer, Ordering::Relaxed);
        let result = result.or_else(|_| {
            // There may not be enough memory for the desired growth, but enough for the requested one.
            self.commit(heap, header, before, before.saturating_add(spans).min(max))
        });
        // SAFETY: this thread locked it above.
        unsafe { lock.unlock_raw() };
        result.map_err(|_| GrowError)
    }

    fn fill(&self, first: u32, spans: u32) -> Result<(), GrowError> {
        let (offset, bytes) = self.layout.range(first, spans);
        self.allocate(offset, bytes).map_err(|_| GrowError)
    }

    fn empty(&self, first: u32, spans: u32) -> Result<(), GrowError> {
        let (offset, bytes) = self.layout.range(first, spans);
        memory::punch(self.file, offset, bytes).map_err(|_| GrowError)
    }
}

impl FileBacking {
    /// Allocates memory for spans that only the caller can access, or for none of them.
    fn allocate(&self, offset: u64, bytes: u64) -> Result<(), Errno> {
        memory::allocate(self.file, offset, bytes).inspect_err(|_| {
            // If the system refuses, the memory stays as after a kill.
            let _ = memory::punch(self.file, offset, bytes);
        })
    }

    fn commit(&self, heap: &Heap, header: &Header, before: u32, after: u32) -> Result<(), Errno> {
        let (offset, bytes) = self.layout.range(before, after - before);
        if bytes > 0 {
            self.allocate(offset, bytes)?;
        }
        // Relaxed: only the inspector reads it.
        header.committed.store(offset + bytes, Ordering::Relaxed);
        heap.publish_committed(after);
        Ok(())
    }
}
