//! Shared memory at one address in every task that joins it.
//!
//! A region holds a heap, a table of its tasks, and named objects. Every process maps it at the same address, so
//! ordinary pointers are valid in all of them: a linked list is a linked list. A task may be killed at any
//! instruction; the other tasks detect its death and clean up after it (see [`Region::sweep`]).
//!
//! | to | use |
//! | --- | --- |
//! | create a region, find it by its name | [`RegionOptions`] |
//! | find each other's data | [`Region::object`]; in a struct, [`Object`] |
//! | say which types may be in it | [`Shareable`], [`TornSafe`]: derive them; [`PinnedFields`] for robust locks in fields |
//! | store growing data | [`Vec`], [`String`], [`HashMap`], [`List`], [`Box`] |
//! | change several numbers atomically | [`Undo`] |
//! | return memory | [`Vec::shrink_to_fit`], [`HashMap::shrink_to_fit`], [`Region::trim`] |
//! | inspect from outside, clean up | [`inspect`], [`leftovers`] |
//!
//! ```
//! use latchwork::mutex::{Mutex, Robust};
//! use latchwork::region::RegionOptions;
//!
//! let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
//! let hits = region.object("hits", || Mutex::robust(0u64))?;
//! *hits.lock().unwrap() += 1;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What safety rests on
//!
//! A region's file is memory that contains pointers. Safe code is sound under one condition: the file was made by
//! this library, and only this library writes it while a process has it mapped. A file is validated before use:
//! identity, layout, sizes, lock words, heap, names. The contents of the *objects* are not validated, and could not
//! be: a well-formed file can contain an object whose pointer leads anywhere. A file that another user owns is
//! therefore refused ([`RegionOptions::trust_any_owner`] is `unsafe`). A program that writes the file by other means
//! breaks the contract, even if each of its calls is safe: through a descriptor from [`Region::file`], or through the
//! name in `/dev/shm`, just as through `/proc/self/mem`.
//!
//! # How it works
//!
//! | part | file | what |
//! | --- | --- | --- |
//! | options | `create.rs`, `attach.rs`, `grow.rs` | create; attach and validate; grow |
//! | registry | `registry.rs` | the regions of this process, by address |
//! | header and layout | `header.rs` | offsets of all tables, fingerprint |
//! | task | `task.rs` | the calling thread joins and leaves |
//! | task table | `task_table.rs` | slots, life-words, generations |
//! | `park` | `park.rs`, `stop.rs` | sleep until another task makes progress or dies; end such a sleep |
//! | sweep | `sweep.rs` | clean up after dead tasks |
//! | events | `events.rs` | a task's pending events, and the events that it waits for |
//! | heap | `heap/` | blocks, private to a task or shared |
//! | named objects | `names.rs`, `objects.rs` | find each other's data |
//! | inspection | `inspect.rs`, `leftovers.rs` | inspect from outside, clean up |
//! | containers | `boxed.rs`, `vec.rs`, … | Box, Vec, String, HashMap, List |
#![allow(unsafe_code)]

mod attach;
mod boxed;
mod create;
mod error;
#[doc(hidden)]
pub mod events;
#[cfg(feature = "foreign")]
#[doc(hidden)]
pub mod foreign;
mod ground;
mod grow;
mod handed;
mod hash_map;
mod header;
#[doc(hidden)]
pub mod heap;
mod homes;
mod inbox;
pub mod inspect;
pub mod leftovers;
mod list;
mod names;
mod object;
mod objects;
mod park;
mod pinned;
mod registry;
mod shareable;
pub(crate) mod stop;
mod string;
mod sweep;
mod task;
mod task_id;
mod task_table;
mod undo;
mod vec;
#[doc(hidden)]
pub mod wait_record;
#[doc(hidden)]
pub mod watch;

pub use crate::torn_safe::TornSafe;
pub use boxed::Box;
pub use create::RegionOptions;
pub use error::{AttachError, CreateError, DetachError, NameError, ObjectError};
pub use ground::{PushError, StorageError};
pub use hash_map::HashMap;
pub use heap::{AllocError, Corruption, HeapStats};
pub use latchwork_derive::{Shareable, TornSafe};
pub use list::List;
#[doc(hidden)]
pub use names::SpareKind;
pub use object::Object;
#[doc(hidden)]
pub use objects::Reused;
#[doc(hidden)]
pub use pinned::PinnedParts;
pub use pinned::{PinnedFields, each_pinned};
#[doc(hidden)]
pub use shareable::type_path;
pub use shareable::{Shareable, fingerprint};
pub use string::String;
pub use sweep::Swept;
pub use task_id::TaskId;
pub use task_table::Orphans;
pub use undo::{Cells, Transaction, Undo, UndoError};
pub use vec::Vec;

#[doc(hidden)]
pub use inbox::{Inbox, LOCK as QUEUE_LOCK};
#[doc(hidden)]
pub use park::Parked;
#[doc(hidden)]
pub use task::Task;

use crate::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::hook::TaskRecord;
use crate::sys::memory::Mapping;
use crate::task::{Me, TaskError};
use core::alloc::Layout as MemoryLayout;
use core::fmt;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::ptr::{self, NonNull};
use header::{Header, Identity, Layout};
use heap::Heap;
use names::Entry;
use registry::Gate;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use task_table::{Life, Slot};

/// The checker's record in the slot of a task.
#[inline]
#[doc(hidden)]
pub fn check_record(attachment: &crate::task::Attachment) -> &TaskRecord {
    // SAFETY: an attachment refers to a slot of its region, and keeps the region mapped.
    unsafe { &attachment.slot.cast::<Slot>().as_ref().check }
}

/// The checker's records of all living tasks of the region that an attachment of the calling thread belongs to.
#[doc(hidden)]
pub fn check_records(
    attachment: &crate::task::Attachment,
) -> impl Iterator<Item = &'static TaskRecord> + use<> {
    // SAFETY: an attachment's context is its region, which it keeps mapped; the caller does not end its own
    // attachment while it uses the iterator.
    let inner: &'static Inner = unsafe { attachment.context.cast().as_ref() };
    inner.slots()[..usize::from(inner.slots_used())]
        .iter()
        .filter(|slot| matches!(slot.life(), Life::Alive(_)))
        .map(|slot| &slot.check)
}

/// Makes the calling thread a task of the region that contains an address, if there is such a region and the thread
/// is not yet a task of it.
#[inline]
#[doc(hidden)]
pub fn join_at(address: usize) {
    let is_here =
        |attachment: crate::task::Attachment| (attachment.base..attachment.end).contains(&address);
    if registry::may_contain(address)
        && !Me::current_or_none().attachments().any(is_here)
        && let Some(region) = Inner::containing(address)
    {
        // If no slot is free, other processes cannot see the thread; its own process can.
        let _ = region.task();
    }
}

/// The effective recorded priority of a thread of any process, as a task of the regions that this process has mapped:
/// the best one, 1 being the highest. `None` if the thread is a task of none of them.
#[doc(hidden)]
pub fn recorded_priority(thread: u32) -> Option<u32> {
    let priorities = registry::all().filter_map(|region| {
        let used = usize::from(region.slots_used());
        let slot = region.slots()[..used]
            .iter()
            .find(|slot| matches!(slot.life(), Life::Alive(tid) if tid == thread))?;
        Some(recorded_in(slot))
    });
    priorities.min()
}

/// The same for the calling thread, without searching the slots of others.
#[doc(hidden)]
pub fn own_recorded_priority() -> Option<u32> {
    let attachments = Me::current_or_none().attachments();
    attachments
        // SAFETY: an attachment refers to a slot of its region, and keeps the region mapped.
        .map(|attachment| recorded_in(unsafe { attachment.slot.cast().as_ref() }))
        .min()
}

fn recorded_in(slot: &Slot) -> u32 {
    // Relaxed: the value may change at once in any case.
    slot.wait.standing.effective.load(Ordering::Relaxed) & !wait_record::BUSY
}

/// Whether an address lies in a region of this process.
#[doc(hidden)]
pub fn contains(address: usize) -> bool {
    registry::may_contain(address) && Inner::containing(address).is_some()
}

/// Whether an address lies in an anonymous region that this process has made and whose only task belongs to this
/// process.
#[doc(hidden)]
pub fn is_lone(address: usize) -> bool {
    let Some(region) = Inner::containing(address) else {
        return false;
    };
    let process = crate::sys::thread::process_id();
    let used = usize::from(region.slots_used());
    let is_alive = |slot: &&Slot| matches!(slot.life(), Life::Alive(_));
    let alive = region.slots()[..used].iter().filter(is_alive).count();
    region.path.is_none() && region.identity.creator == process && alive == 1
}

/// Writes the name of the object that contains an address in a region of this process.
#[doc(hidden)]
pub fn write_object_name(address: usize, to: &mut impl fmt::Write) {
    let Some(region) = Inner::containing(address) else {
        return;
    };
    let object = region.entries().iter().find(|entry| {
        // Acquire: pairs with the Release that makes an entry ready.
        entry.state.load(Ordering::Acquire) == names::READY && {
            let start = entry.object.load(Ordering::Relaxed);
            (start..start + entry.bytes.load(Ordering::Relaxed) as usize).contains(&address)
        }
    });
    if let Some(object) = object {
        let start = object.object.load(Ordering::Relaxed);
        let _ = to.write_str(&object.name());
        if start != address {
            let _ = write!(to, "+{:#x}", address - start);
        }
    }
}

/// A handle on a region, made by [`RegionOptions`]; clones refer to the same mapping. The [module](self) has an
/// example.
///
/// The mapping stays until the last handle and the last thread that used the region are gone. Every thread that uses
/// a region becomes a *task* of it at its first use. The thread leaves the region when it ends or, if the process has
/// no handle on the region any more, when it becomes a task of another region; [`Self::detach`] leaves explicitly.
///
/// A container that was taken out of the region, or not yet placed in it, borrows from no handle. Its methods find
/// the region as long as it is mapped, and panic afterwards; a container that is dropped after that is leaked. Once a
/// container has lent something (a slice, an element, an iterator), it keeps the region mapped until it is dropped or
/// grows.
///
/// In the child of a fork the mapping persists (it is shared), and the child's thread becomes a task of its own at
/// its first use of a handle. Using only references does not make it a task, and then its death wakes no waiter; see
/// [`Self::join`]. A thread that ends while it owns a robust lock or a semaphore, or has a message in flight, does
/// not leave: its end counts as its death.
///
/// A process can have at most 4096 regions mapped, with a descriptor for each. A thread can be a task of at most 128
/// regions at a time, not counting those without a handle.
pub struct Region {
    inner: Arc<Inner>,
}

#[doc(hidden)]
pub struct Inner {
    file: OwnedFd,
    /// It contains atomics, tables under robust locks, and blocks whose users are responsible for them. The registry
    /// unmaps it.
    mapping: ManuallyDrop<Mapping>,
    /// A copy from the time of the check: the one in the mapping could change.
    identity: Identity,
    layout: Layout,
    path: Option<PathBuf>,
    heap: Heap,
    /// The number by which containers name the region.
    home: usize,
    /// Handles, and threads of this process that are tasks. The last use to end removes the region's name, if that
    /// was asked for.
    uses: AtomicUsize,
    /// Handles only.
    handles: AtomicUsize,
    /// The region stays mapped until the process ends: there was no room to record which of its blocks are lent.
    lasting: AtomicBool,
    /// Whether the registry has ever contained it.
    entered: AtomicBool,
}

impl Inner {
    fn header(&self) -> &Header {
        // SAFETY: the mapping begins with the header, whose mutable parts are atomics and locks.
        unsafe { self.base().cast().as_ref() }
    }

    #[inline]
    fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    #[doc(hidden)]
    pub fn slots(&self) -> &[Slot] {
        let count = self.layout.heap_layout.slots as usize;
        // SAFETY: the layout places that many slots there; they consist of atomics.
        unsafe {
            core::slice::from_raw_parts(self.base().add(self.layout.slots).cast().as_ptr(), count)
        }
    }

    fn entries(&self) -> &[Entry] {
        let count = self.identity.max_names as usize;
        // SAFETY: the layout places that many entries there; they consist of atomics.
        unsafe {
            core::slice::from_raw_parts(self.base().add(self.layout.names).cast().as_ptr(), count)
        }
    }

    fn addresses(&self) -> core::ops::Range<usize> {
        self.mapping.addresses()
    }

    /// The region of this process that contains an address.
    pub(crate) fn containing(address: usize) -> Option<Arc<Self>> {
        registry::find(address)
    }

    /// Makes the region findable, and returns a handle on it; `None` if there are too many regions.
    fn enter(self: Arc<Self>, gate: &Gate) -> Option<Region> {
        registry::enter(&self, gate).then(|| {
            // Relaxed: only the last user reads it.
            self.entered.store(true, Ordering::Relaxed);
            Region::new(self)
        })
    }

    fn was_entered(&self) -> bool {
        self.entered.load(Ordering::Relaxed)
    }

    fn use_begins(&self) {
        // Relaxed: the caller has a use already, or the only reference.
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    fn use_ends(&self) {
        // AcqRel: the last user sees what the others did.
        if self.uses.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let unlink = self.identity.flags & header::FLAG_UNLINK_AT_LAST_DETACH != 0
            && !self
                .slots()
                .iter()
                .any(|slot| matches!(slot.life(), Life::Alive(_)));
        if unlink && let Some(path) = &self.path {
            let _gate = Gate::enter();
            // Acquire: another thread may have attached the region again.
            if self.uses.load(Ordering::Acquire) == 0 {
                create::unlink_if_unused(self, path);
            }
        }
    }

    /// Leaves the region mapped until the process ends.
    fn make_lasting(self: &Arc<Self>) {
        if !self.lasting.swap(true, Ordering::Relaxed) {
            core::mem::forget(Arc::clone(self));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        crate::hook::freed(|| self.addresses());
        // SAFETY: the mapping is not used again. No handle and no attachment is left, references borrow from handles,
        // and everything else that could refer to the region has made it lasting.
        let mapping = unsafe { ManuallyDrop::take(&mut self.mapping) };
        registry::leave(self, mapping);
    }
}

impl Clone for Region {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.inner))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.inner.handles.fetch_sub(1, Ordering::Relaxed);
        self.inner.use_ends();
    }
}

impl Region {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        // Relaxed: see `leave_unused`.
        inner.handles.fetch_add(1, Ordering::Relaxed);
        inner.use_begins();
        Self { inner }
    }

    /// First address of the region, the same in every task.
    #[must_use]
    pub fn base(&self) -> *const u8 {
        self.inner.base().as_ptr()
    }

    /// The maximum size of the heap in bytes.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.inner.identity.max_bytes
    }

    /// The label that [`RegionOptions::label`] gave, or the region's name.
    #[must_use]
    pub fn label(&self) -> std::string::String {
        self.inner.identity.label()
    }

    /// The path of a named region's file; `None` for an anonymous region.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// The memory file, to be passed to another process, which attaches it with [`RegionOptions::attach_file`]. The
    /// caller must neither write nor truncate it: see [what safety rests on](self#what-safety-rests-on).
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }

    /// Makes the calling thread a task of the region now, instead of at its first use, under a name of at most 32
    /// bytes that `latchwork ps` shows.
    ///
    /// # Errors
    /// [`AttachError::TaskTableFull`], [`AttachError::TooManyAttachments`], [`AttachError::Task`].
    pub fn join(&self, name: &str) -> Result<(), AttachError> {
        self.inner.task()?.slot.set_name(name);
        Ok(())
    }

    /// Sets what happens, at the calling task's death, to the blocks that only this task knows. By default they are
    /// freed.
    ///
    /// # Errors
    /// As for [`Self::join`].
    pub fn on_death(&self, orphans: Orphans) -> Result<(), AttachError> {
        // Relaxed: read after this task's death.
        self.inner
            .task()?
            .slot
            .orphans
            .store(orphans as u8, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the calling thread's membership of the region, instead of at its exit, and drops this handle.
    ///
    /// # Errors
    /// [`DetachError::Holding`] if the thread holds robust locks of the region (unmapping them would leave dangling
    /// entries in its robust list), owns semaphores of it, or has messages of its queues in flight.
    pub fn detach(self) -> Result<(), DetachError> {
        let me = Me::get().map_err(DetachError::Task)?;
        let base = self.inner.base().addr().get();
        let Some(attachment) = me.attachments().find(|attachment| attachment.base == base) else {
            return Ok(());
        };
        let slot = self.inner.task_of(&attachment).slot;
        let locks = self.inner.locks_held(me) + slot.wait.standing.held() as usize;
        let messages = slot.messages() as usize;
        if locks != 0 || messages != 0 {
            return Err(DetachError::Holding {
                locks,
                messages,
                region: self,
            });
        }
        // SAFETY: this thread's attachment, which the callback forgets.
        unsafe { (attachment.detach)(attachment.context, attachment.slot) };
        Ok(())
    }

    /// Allocates a block for the calling task. The block is freed when the task dies, unless it was kept
    /// ([`Self::on_death`], [`Self::keep`]) or linked by a container.
    ///
    /// # Errors
    /// [`ObjectError::Alloc`] if the region is full or the system has no memory,
    /// [`ObjectError::Attach`] if the thread cannot become a task.
    #[inline]
    pub fn allocate(&self, layout: MemoryLayout) -> Result<NonNull<u8>, ObjectError> {
        match self.allocate_quick(layout) {
            Some(block) => Ok(block),
            None => self.allocate_slow(layout),
        }
    }

    // Each quick part is a leaf function, so that it need not save registers.

    #[inline(never)]
    fn allocate_quick(&self, layout: MemoryLayout) -> Option<NonNull<u8>> {
        let task = self.inner.task_at_hand()?;
        self.inner.heap.alloc_quick(&task.heap_task(), layout)
    }

    #[cold]
    fn allocate_slow(&self, layout: MemoryLayout) -> Result<NonNull<u8>, ObjectError> {
        let task = self.inner.task()?;
        Ok(self.inner.heap.alloc(&task.heap_task(), layout)?)
    }

    /// Frees a block, whichever task allocated it. Aborts the process, with one line on standard error, if `block` is
    /// not the address of an allocated block.
    ///
    /// # Safety
    /// The block is not used any more.
    ///
    /// # Errors
    /// If the thread cannot become a task.
    #[inline]
    pub unsafe fn deallocate(&self, block: NonNull<u8>) -> Result<(), AttachError> {
        crate::hook::freed(|| self.inner.heap.addresses_of(block));
        // SAFETY: the caller guarantees that the block is not used any more.
        unsafe {
            if self.deallocate_quick(block) {
                return Ok(());
            }
            self.deallocate_slow(block)
        }
    }

    /// # Safety
    /// As for [`Self::deallocate`].
    #[inline(never)]
    unsafe fn deallocate_quick(&self, block: NonNull<u8>) -> bool {
        let Some(task) = self.inner.task_at_hand() else {
            return false;
        };
        // SAFETY: the caller guarantees that the block is not used any more.
        unsafe { self.inner.heap.free_quick(&task.heap_task(), block) }
    }

    /// # Safety
    /// As for [`Self::deallocate`].
    #[cold]
    unsafe fn deallocate_slow(&self, block: NonNull<u8>) -> Result<(), AttachError> {
        let task = self.inner.task()?;
        // SAFETY: the caller guarantees that the block is not used any more.
        unsafe { self.inner.heap.free(&task.heap_task(), block) };
        Ok(())
    }

    /// Makes a block outlive the task that allocated it.
    ///
    /// # Safety
    /// The block is not freed meanwhile.
    pub unsafe fn keep(&self, block: NonNull<u8>) {
        // SAFETY: the caller guarantees that the block is not freed meanwhile.
        unsafe { self.inner.heap.keep(block) };
    }

    /// Statistics of the heap at this moment.
    #[must_use]
    pub fn heap_stats(&self) -> HeapStats {
        self.inner.heap.stats()
    }

    /// Checks the heap's invariants, for tests and for regions suspected of damage.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check_heap(&self) -> Result<(), Corruption> {
        self.inner.heap.check()
    }

    /// Pins a named object that the caller has as a plain reference, such as a coproc's argument. Its robust locks
    /// can then be used.
    ///
    /// This is sound since a named object never moves: safe code never gets a `&mut` to it. That is not true of other
    /// values in a region: a value behind a lock, for instance, can be moved by `mem::replace`. For the *parts* of an
    /// object there are [`PinnedFields`] and [`each_pinned`]; for elements of containers, [`HashMap::get_pin`],
    /// [`List::iter_pin`] and [`Box::as_pin`].
    ///
    /// Searches the directory, O(names).
    ///
    /// # Panics
    /// If `object` is not a whole named object of the region.
    #[must_use]
    pub fn pin<'a, T: Shareable>(&'a self, object: &'a T) -> Pin<&'a T> {
        assert!(
            self.is_object(object),
            "the value at {:#x} is no named object of this region",
            ptr::from_ref(object).addr()
        );
        // SAFETY: a named object of this type. It is lent as a shared, pinned reference only, and dropped in its
        // place, by `remove`, which is unsafe.
        unsafe { Pin::new_unchecked(object) }
    }

    #[doc(hidden)]
    pub fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Region")
            .field("label", &self.label())
            .field("base", &self.base())
            .field("max_bytes", &self.max_bytes())
            .finish_non_exhaustive()
    }
}

impl From<TaskError> for AttachError {
    fn from(error: TaskError) -> Self {
        Self::Task(error)
    }
}
