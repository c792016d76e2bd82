//! Shared memory at one address in every task that joins it.
//!
//! A region holds a heap, a table of its tasks, and named objects. Since it is mapped at the same
//! address everywhere, real pointers mean the same to all: a linked list is a linked list. A task
//! may be killed at any instruction; what it leaves behind is found and settled by the others (see
//! [`Region::sweep`]).
//!
//! | to | use |
//! | --- | --- |
//! | make one, find one by its name | [`RegionOptions`] |
//! | find each other's data | [`Region::object`]; in a struct, [`Object`] |
//! | say what may be in it | [`Shareable`], [`TornSafe`]: derive them; [`PinnedFields`] for robust locks in fields |
//! | keep what grows | [`Vec`], [`String`], [`HashMap`], [`List`], [`Box`] |
//! | change several numbers or none | [`Undo`] |
//! | give memory back | [`Vec::shrink_to_fit`], [`HashMap::shrink_to_fit`], [`Region::trim`] |
//! | look from outside, clean up | [`inspect`], [`leftovers`] |
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
//! A region's file is memory, in which pointers stand. That safe code cannot misuse it rests on this: the file is one
//! that this library made, and nothing but this library writes it, as long as a process has it mapped. Before a file is
//! mapped it is validated: identity, layout, sizes, lock words, heap, names. What the *objects* hold is not validated,
//! and could not be: a sound file can have an object whose pointer leads anywhere. So a file that another user owns is
//! refused ([`RegionOptions::trust_any_owner`] is `unsafe`), and whoever writes the file by other means breaks the
//! contract, though each call be safe: through a descriptor of [`Region::file`], by the name in `/dev/shm`, as it would
//! through `/proc/self/mem`.
//!
//! # How it works
//!
//! | part | file | what |
//! | --- | --- | --- |
//! | options | `create.rs`, `attach.rs`, `grow.rs` | make; attach, validate; grow |
//! | registry | `registry.rs` | the regions of this process, by address |
//! | header and layout | `header.rs` | where everything lies, fingerprint |
//! | task | `task.rs` | the calling thread joins, and leaves |
//! | task table | `task_table.rs` | slots, life-words, generations |
//! | `park` | `park.rs`, `stop.rs` | sleep for another's progress, and learn of its death; end such a sleep |
//! | sweep | `sweep.rs` | settle what dead tasks left |
//! | events | `events.rs` | what is pending for a task, and what it waits for |
//! | heap | `heap/` | blocks, private to a task or shared |
//! | named objects | `names.rs`, `objects.rs` | find each other's data |
//! | inspection | `inspect.rs`, `leftovers.rs` | look from outside, clean up |
//! | containers | `boxed.rs`, `vec.rs`, … | Box, Vec, String, HashMap, List |
#![allow(unsafe_code)]

mod attach;
mod boxed;
mod create;
mod error;
pub(crate) mod events;
mod ground;
mod grow;
mod handed;
mod hash_map;
mod header;
pub(crate) mod heap;
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
pub(crate) mod wait_record;
pub(crate) mod watch;

pub use crate::torn_safe::TornSafe;
pub use boxed::Box;
pub use create::RegionOptions;
pub use error::{AttachError, CreateError, DetachError, NameError, ObjectError};
pub use ground::{PushError, StorageError};
pub use hash_map::HashMap;
pub use heap::{AllocError, Corruption, HeapStats};
pub use latchwork_derive::{Shareable, TornSafe};
pub use list::List;
pub(crate) use names::SpareKind;
pub use object::Object;
pub(crate) use objects::Reused;
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

pub(crate) use inbox::{Inbox, LOCK as QUEUE_LOCK};
pub(crate) use park::Parked;
pub(crate) use task::Task;

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

/// The record for the checker in the slot of a task.
#[inline]
pub(crate) fn check_record(attachment: &crate::task::Attachment) -> &TaskRecord {
    // SAFETY: an attachment holds a slot of its region, which stays mapped for as long.
    unsafe { &attachment.slot.cast::<Slot>().as_ref().check }
}

/// Those of all living tasks of the region that an attachment of the calling thread is to.
pub(crate) fn check_records(
    attachment: &crate::task::Attachment,
) -> impl Iterator<Item = &'static TaskRecord> + use<> {
    // SAFETY: an attachment's context is its region, which it keeps mapped; the caller does not end its own
    // attachment while it uses what this gives.
    let inner: &'static Inner = unsafe { attachment.context.cast().as_ref() };
    inner.slots()[..usize::from(inner.slots_used())]
        .iter()
        .filter(|slot| matches!(slot.life(), Life::Alive(_)))
        .map(|slot| &slot.check)
}

/// Makes the calling thread a task of the region that an address lies in, if it lies in one, and is none yet.
#[inline]
pub(crate) fn join_at(address: usize) {
    let is_here =
        |attachment: crate::task::Attachment| (attachment.base..attachment.end).contains(&address);
    if registry::may_contain(address)
        && !Me::whoever().attachments().any(is_here)
        && let Some(region) = Inner::containing(address)
    {
        // Without a free slot it is not seen by others; its own process sees it.
        let _ = region.task();
    }
}

/// The priority that is recorded for a thread, of any process, as a task of the regions that this process has, and
/// that counts: its best one, 1 being the highest. `None` if it is a task of none of them.
pub(crate) fn recorded_priority(thread: u32) -> Option<u32> {
    let priorities = registry::all().filter_map(|region| {
        let used = usize::from(region.slots_used());
        let slot = region.slots()[..used]
            .iter()
            .find(|slot| matches!(slot.life(), Life::Alive(tid) if tid == thread))?;
        Some(recorded_in(slot))
    });
    priorities.min()
}

/// The same of the calling thread, without a look at others.
pub(crate) fn own_recorded_priority() -> Option<u32> {
    let attachments = Me::whoever().attachments();
    attachments
        // SAFETY: as in `check_record`.
        .map(|attachment| recorded_in(unsafe { attachment.slot.cast().as_ref() }))
        .min()
}

fn recorded_in(slot: &Slot) -> u32 {
    // Relaxed: it may be another one at once.
    slot.wait.standing.effective.load(Ordering::Relaxed) & !wait_record::BUSY
}

/// Whether an address lies in a region of this process.
pub(crate) fn contains(address: usize) -> bool {
    registry::may_contain(address) && Inner::containing(address).is_some()
}

/// Whether an address lies in an anonymous region that this process has made, and whose only task is of it.
pub(crate) fn is_lone(address: usize) -> bool {
    let Some(region) = Inner::containing(address) else {
        return false;
    };
    let process = crate::sys::thread::process_id();
    let used = usize::from(region.slots_used());
    let is_alive = |slot: &&Slot| matches!(slot.life(), Life::Alive(_));
    let alive = region.slots()[..used].iter().filter(is_alive).count();
    region.path.is_none() && region.identity.creator == process && alive == 1
}

/// Writes the name of the object that an address lies in, of a region of this process.
pub(crate) fn write_object_name(address: usize, to: &mut impl fmt::Write) {
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

/// A handle on a region, made by [`RegionOptions`]; clones refer to the same mapping. An example: the [module](self).
///
/// The mapping stays until the last handle and the last thread that used the region are gone. Every
/// thread that uses a region becomes a *task* of it, at its first use. It leaves the region when it ends,
/// and, once the process has no handle on the region any more, when it becomes a task of another one; a
/// thread that does neither can leave by [`Self::detach`].
///
/// A container that was taken out of the region, or not put in yet, borrows from no handle. Its methods
/// find the region as long as it is mapped, and panic afterwards; dropped then, it is leaked. Once it has
/// lent something (a slice, an element, an iterator), it keeps the region mapped until it is dropped or
/// grows.
///
/// In the child of a fork the mapping is still there (it is shared), and the child's thread becomes
/// a task of its own at its first use. (Of a handle: references alone do not make it one, and nobody
/// is woken by its death then; see [`Self::join`].) A thread that ends with a robust lock or a semaphore
/// of its own, or with a message in flight, does not leave: that counts as its death.
///
/// A process has at most 4096 regions mapped, and a descriptor for each. A thread is a task of at most 128
/// at a time, not counting those without a handle.
pub struct Region {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    file: OwnedFd,
    /// Its contents are atomics, tables under robust locks, and blocks that their users answer for.
    /// Ended by the registry.
    mapping: ManuallyDrop<Mapping>,
    /// As it was when it was checked: what is in the mapping could change.
    identity: Identity,
    layout: Layout,
    path: Option<PathBuf>,
    heap: Heap,
    /// How containers name the region.
    home: usize,
    /// Handles, and threads of this process that are tasks. The name goes with the last, if it is to.
    uses: AtomicUsize,
    /// Handles alone.
    handles: AtomicUsize,
    /// It stays mapped until the process ends: there was no room to note which of its blocks are lent.
    lasting: AtomicBool,
    /// Whether the registry has had it.
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

    pub(crate) fn slots(&self) -> &[Slot] {
        let count = self.layout.heap_layout.slots as usize;
        // SAFETY: the layout places that many slots there; they consist of atomics.
        unsafe {
            core::slice::from_raw_parts(self.base().add(self.layout.slots).cast().as_ptr(), count)
        }
    }

    fn entries(&self) -> &[Entry] {
        let count = self.identity.max_names as usize;
        // SAFETY: as for the slots.
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

    /// Makes the region findable, and a handle on it; `None` if there are too many.
    fn enter(self: Arc<Self>, gate: &Gate) -> Option<Region> {
        registry::enter(&self, gate).then(|| {
            // Relaxed: read by the last user.
            self.entered.store(true, Ordering::Relaxed);
            Region::new(self)
        })
    }

    fn was_entered(&self) -> bool {
        self.entered.load(Ordering::Relaxed)
    }

    fn use_begins(&self) {
        // Relaxed: who begins a use has one, or the only reference there is.
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    fn use_ends(&self) {
        // AcqRel: the last one sees what the others did.
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
            // Acquire: another thread may have attached it again.
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
        // SAFETY: not used again. No handle and no attachment is left, references borrow from
        // handles, and whatever else may refer to the region has made it lasting.
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

    /// The most bytes that the heap can grow to.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.inner.identity.max_bytes
    }

    /// The label that [`RegionOptions::label`] gave, or the region's name.
    #[must_use]
    pub fn label(&self) -> std::string::String {
        self.inner.identity.label()
    }

    /// Where a named region's file is; `None` for an anonymous one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// The memory file, to be passed to another process, which attaches it with
    /// [`RegionOptions::attach_file`]. Not to be written, nor cut: see [what safety rests on](self#what-safety-rests-on).
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }

    /// Makes the calling thread a task of the region now, instead of at its first use, under a
    /// name of at most 32 bytes that `latchwork ps` shows.
    ///
    /// # Errors
    /// [`AttachError::TaskTableFull`], [`AttachError::TooManyAttachments`], [`AttachError::Task`].
    pub fn join(&self, name: &str) -> Result<(), AttachError> {
        self.inner.task()?.slot.set_name(name);
        Ok(())
    }

    /// What becomes of the blocks that only the calling task knows, should it die. The default is
    /// that they are freed.
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

    /// Ends the calling thread's part in the region, instead of at its exit, and drops this handle.
    ///
    /// # Errors
    /// [`DetachError::Holding`] if the thread holds robust locks of the region (unmapping them would
    /// leave the kernel's list of them dangling), owns semaphores of it, or has messages of its queues in
    /// flight.
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
        // SAFETY: this thread's attachment, which `detach` forgets.
        unsafe { (attachment.detach)(attachment.context, attachment.slot) };
        Ok(())
    }

    /// Allocates a block for the calling task: freed when the task dies, unless it was kept
    /// ([`Self::on_death`]) or linked by a container.
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

    // Each quick part is a function without calls, so that it saves no registers.

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

    /// Frees a block, whichever task allocated it. Aborts with one line if there is none.
    ///
    /// # Safety
    /// Nobody uses the block any more.
    ///
    /// # Errors
    /// If the thread cannot become a task.
    #[inline]
    pub unsafe fn deallocate(&self, block: NonNull<u8>) -> Result<(), AttachError> {
        crate::hook::freed(|| self.inner.heap.addresses_of(block));
        // SAFETY: by the caller's contract.
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
        // SAFETY: by the caller's contract.
        unsafe { self.inner.heap.free_quick(&task.heap_task(), block) }
    }

    /// # Safety
    /// As for [`Self::deallocate`].
    #[cold]
    unsafe fn deallocate_slow(&self, block: NonNull<u8>) -> Result<(), AttachError> {
        let task = self.inner.task()?;
        // SAFETY: by the caller's contract.
        unsafe { self.inner.heap.free(&task.heap_task(), block) };
        Ok(())
    }

    /// Makes a block outlive the task that allocated it.
    ///
    /// # Safety
    /// Nobody frees the block meanwhile.
    pub unsafe fn keep(&self, block: NonNull<u8>) {
        // SAFETY: by the caller's contract.
        unsafe { self.inner.heap.keep(block) };
    }

    /// How the heap is used at this moment.
    #[must_use]
    pub fn heap_stats(&self) -> HeapStats {
        self.inner.heap.stats()
    }

    /// Checks the heap's invariants, for tests and for doubtful regions.
    ///
    /// # Errors
    /// Names the first one that does not hold.
    pub fn check_heap(&self) -> Result<(), Corruption> {
        self.inner.heap.check()
    }

    /// Pins a named object that came as a plain reference, as a coproc's argument does: its robust
    /// locks can then be used.
    ///
    /// Sound because a named object never moves: nobody gets a `&mut` to it. The same cannot be said
    /// of any other value in a region: one behind a lock, for instance, moves by `mem::replace`. For
    /// the *parts* of an object there are [`PinnedFields`] and [`each_pinned`]; for what
    /// containers hold [`HashMap::get_pin`], [`List::iter_pin`] and [`Box::as_pin`].
    ///
    /// Looks through the directory, O(names).
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
        // SAFETY: a named object of this type. It is lent as a shared, pinned reference only, and
        // dropped in its place, by `remove`, which is unsafe.
        unsafe { Pin::new_unchecked(object) }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
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
