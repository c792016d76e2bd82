//! Shared memory at one address in every task that joins it.
//!
//! A region holds a heap, a table of its tasks, and named objects. Since it is mapped at the same
//! address everywhere, real pointers mean the same to all: a linked list is a linked list. A task
//! may be killed at any instruction; what it leaves behind is found and settled by the others (see
//! [`Region::sweep`]).
//!
//! | part | file | what |
//! | --- | --- | --- |
//! | [`RegionOptions`] | `create.rs`, `attach.rs`, `grow.rs` | make; attach, validate; grow |
//! | registry | `registry.rs` | the regions of this process, by address |
//! | header and layout | `header.rs` | where everything lies, fingerprint |
//! | task table | `task_table.rs` | slots, life-words, generations |
//! | `park` | `park.rs` | sleep for another's progress, and learn of its death |
//! | sweep | `sweep.rs` | settle what dead tasks left |
//! | [`heap`] | `heap/` | blocks, private to a task or shared |
//! | named objects | `names.rs`, `objects.rs` | find each other's data |
//! | [`inspect`], [`leftovers`] | `inspect.rs`, `leftovers.rs` | look from outside, clean up |
//! | containers | `boxed.rs`, `vec.rs`, … | Box, Vec, String, HashMap, List |
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
#![allow(unsafe_code)]

mod attach;
mod boxed;
mod create;
mod error;
mod ground;
mod grow;
mod hash_map;
mod header;
pub mod heap;
pub mod inspect;
pub mod leftovers;
mod list;
mod names;
mod objects;
mod park;
mod registry;
mod shareable;
mod string;
mod sweep;
mod task_table;
mod undo;
mod vec;
pub(crate) mod watch;

pub use boxed::Box;
pub use create::RegionOptions;
pub use error::{AttachError, CreateError, DetachError, NameError, ObjectError};
pub use ground::{PushError, StorageError};
pub use hash_map::HashMap;
pub use heap::{AllocError, HeapStats};
pub use latchwork_derive::{Shareable, TornSafe};
pub use list::List;
pub use shareable::{Shareable, TornSafe, each_pinned, fingerprint};
pub use string::String;
pub use sweep::Swept;
pub use task_table::Orphans;
pub use undo::{Cells, Transaction, Undo, UndoError};
pub use vec::Vec;

pub(crate) use park::Parked;
pub(crate) use task_table::Slot;

use crate::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sys::memory::Mapping;
use crate::task::{Attachment, Me, TaskError};
use core::alloc::Layout as MemoryLayout;
use core::fmt;
use core::mem::ManuallyDrop;
use core::num::NonZero;
use core::pin::Pin;
use core::ptr::{self, NonNull};
use header::{Header, Identity, Layout};
use heap::{Heap, Owner, TaskRef};
use names::Entry;
use registry::Gate;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use task_table::Life;

/// A handle on a region; clones refer to the same mapping.
///
/// The mapping stays until the last handle and the last thread that used the region are gone; if the
/// process has had containers of it in its hands (which borrow from no handle), until it ends. Every
/// thread that uses a region becomes a *task* of it, at its first use, and leaves it when it ends.
/// In the child of a fork the mapping is still there (it is shared), and the child's thread becomes
/// a task of its own at its first use. (Of a handle: references alone do not make it one, and nobody
/// is woken by its death then; see [`Self::join`].) A thread that ends with a robust lock, or with a
/// message in flight, does not leave: that counts as its death.
///
/// A process has at most 64 regions mapped; one whose containers it has had in its hands counts until
/// it ends. A thread is a task of at most 16 at a time, not counting those without a handle.
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
    /// Handles, and threads of this process that are tasks. The name goes with the last, if it is to.
    uses: AtomicUsize,
    /// Handles alone.
    handles: AtomicUsize,
    /// Containers of this process may refer to the region for as long as it runs.
    lasting: AtomicBool,
    /// Whether the registry has had it.
    entered: AtomicBool,
}

/// The calling thread as a task of a region.
#[derive(Clone, Copy)]
pub(crate) struct Task<'r> {
    pub(crate) slot: &'r Slot,
    owner: Owner,
}

impl Task<'_> {
    /// Slot and generation: this task for ever.
    pub(crate) fn owner(self) -> Owner {
        self.owner
    }

    fn heap_task(&self) -> TaskRef<'_> {
        // SAFETY: this is the slot's task, on its own thread.
        unsafe { TaskRef::new(self.owner(), &self.slot.heap) }
    }
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

    pub(crate) fn owner_of(&self, index: u16) -> Owner {
        // Relaxed: read by the slot's own task, or behind an Acquire of its life-word.
        let generation = self.slots()[usize::from(index)]
            .generation
            .load(Ordering::Relaxed);
        Owner::new(
            index,
            NonZero::new(generation).unwrap_or(NonZero::<u32>::MIN),
        )
    }

    /// Whether the calling thread is this task. Not so in the child of a fork; still so in a thread that
    /// is about to end, after it has forgotten its attachments.
    pub(crate) fn is_me(&self, owner: Owner) -> bool {
        let life = self.slots()[usize::from(owner.slot())].life();
        // The life-word is the authority (a thread that is known here has an ID other than 0).
        Me::get().is_ok_and(|me| life == Life::Alive(me.tid())) && self.is_alive(owner)
    }

    /// Whether the task that this was still lives.
    pub(crate) fn is_alive(&self, owner: Owner) -> bool {
        let Some(slot) = self.slots().get(usize::from(owner.slot())) else {
            return false;
        };
        // The life-word first: its Acquire orders the generation behind it.
        matches!(slot.life(), Life::Alive(_))
            && slot.generation.load(Ordering::Relaxed) == owner.generation()
    }

    /// The calling thread as a task; attaches it at first use.
    #[inline]
    pub(crate) fn task(self: &Arc<Self>) -> Result<Task<'_>, AttachError> {
        let me = Me::get()?;
        match self.known_task(me) {
            Some(task) => Ok(task),
            None => self.attach_thread(me),
        }
    }

    #[inline]
    fn known_task(&self, me: Me) -> Option<Task<'_>> {
        let base = self.base().addr().get();
        let attachment = me
            .attachments()
            .find(|attachment| attachment.base == base)?;
        Some(self.task_of(&attachment))
    }

    /// As [`Self::task`], where it takes one comparison.
    #[inline(always)]
    fn task_at_hand(&self) -> Option<Task<'_>> {
        let attachment = Me::whoever().first_attachment()?;
        (attachment.base == self.base().addr().get()).then(|| self.task_of(&attachment))
    }

    /// The task that an attachment to this region made.
    #[inline]
    fn task_of(&self, attachment: &Attachment) -> Task<'_> {
        // SAFETY: attachments hold slots of the region that they name, and tags that are owners.
        let (slot, owner) = unsafe {
            (
                attachment.slot.cast().as_ref(),
                Owner::from_raw(attachment.tag).unwrap_unchecked(),
            )
        };
        Task { slot, owner }
    }

    #[cold]
    fn attach_thread(self: &Arc<Self>, me: Me) -> Result<Task<'_>, AttachError> {
        if me.is_ending() {
            return Err(AttachError::ThreadEnding);
        }
        if !me.can_attach() {
            leave_unused(me);
        }
        if !me.can_attach() {
            leave_unused(me);
        }
        if !me.can_attach() {
            return Err(AttachError::TooManyRegions);
        }
        // A successor finds what its predecessor left settled: messages in their places, free slots.
        // If it cannot sweep, others will.
        let _ = self.sweep();
        let index = self.occupy_slot(me).ok_or(AttachError::TaskTableFull {
            tasks: self.slots().len(),
        })?;
        let slot = &self.slots()[index];
        slot.settle_in(crate::sys::thread::process_id());
        // Acquire: pairs with the Release of `use_slot`.
        let used = self.header().slots_used.load(Ordering::Acquire) as usize;
        for other in self.slots()[..used]
            .iter()
            .filter(|other| !ptr::eq(*other, slot))
        {
            slot.meet(other);
        }
        slot.attached_at
            .store(crate::sys::clock::since_boot(), Ordering::Relaxed);
        slot.orphans.store(Orphans::Free as u8, Ordering::Relaxed);
        slot.forget_messages();
        slot.set_name(&crate::sys::thread::name());
        self.use_begins();
        let addresses = self.addresses();
        let owner = self.owner_of(index as u16);
        me.attach(Attachment {
            base: addresses.start,
            end: addresses.end,
            slot: NonNull::from(slot).cast(),
            life: slot.life.link(),
            tail: slot.tail.link(),
            tag: owner.raw(),
            // SAFETY: `into_raw` never gives null; `detach_thread` takes the count back.
            context: unsafe {
                NonNull::new_unchecked(Arc::into_raw(Arc::clone(self)).cast_mut()).cast()
            },
            detach: detach_thread,
        });
        Ok(Task { slot, owner })
    }

    /// Counts a slot among those that are looked at for dead tasks, before it has a task: one that is
    /// killed in its first instructions is found, too.
    fn use_slot(&self, index: usize) -> bool {
        let used = index as u32 + 1;
        // Release: pairs with the Acquire in `park`. Sleepers did not watch this slot so far.
        if self.header().slots_used.fetch_max(used, Ordering::Release) < used {
            crate::sys::futex::wake(
                &raw const self.header().slots_used,
                u32::MAX,
                crate::sys::futex::Sharing::Shared,
            );
        }
        true
    }

    fn occupy_slot(&self, me: Me) -> Option<usize> {
        // A generation of 0 would look like no owner; a fresh slot gets its first one here, before
        // anybody can have named it.
        self.slots().iter().enumerate().position(|(index, slot)| {
            slot.life() == Life::Free && self.use_slot(index) && slot.occupy(me) && {
                if slot.generation.load(Ordering::Relaxed) == 0 {
                    slot.generation.store(1, Ordering::Relaxed);
                }
                true
            }
        })
    }

    /// Robust locks of this region that the calling thread holds.
    fn locks_held(&self, me: Me) -> usize {
        let addresses = self.addresses();
        me.locks().filter(|link| addresses.contains(link)).count()
    }

    /// The region of this process that contains an address.
    pub(crate) fn containing(address: usize) -> Option<Arc<Self>> {
        registry::find(address)
    }

    /// Makes the region findable, and a handle on it; `None` if there are too many.
    fn enter(self: Arc<Self>, gate: &Gate) -> Option<Region> {
        // Relaxed: read by the last user.
        self.entered.store(true, Ordering::Relaxed);
        registry::enter(&self, gate).then(|| Region::new(self))
    }

    fn was_entered(&self) -> bool {
        self.entered.load(Ordering::Relaxed)
    }
}

/// Ends the calling thread's part in regions that this process has no handle on any more. Should
/// containers still use one, the thread becomes a task of it again.
fn leave_unused(me: Me) {
    let unused = |attachment: &Attachment| {
        // SAFETY: an attachment's context is its region, which it keeps.
        let inner: &Inner = unsafe { attachment.context.cast().as_ref() };
        // Relaxed: a handle that is made meanwhile finds the thread gone, or not.
        inner.handles.load(Ordering::Relaxed) == 0
            && inner.locks_held(me) == 0
            && inner.task_of(attachment).slot.messages() == 0
    };
    while let Some(attachment) = me.attachments().find(unused) {
        // SAFETY: this thread's attachment, which `detach` forgets.
        unsafe { (attachment.detach)(attachment.context, attachment.slot) };
    }
}

/// # Safety
/// `context` came from an attachment of the calling thread in `slot`, and is not used again.
unsafe fn detach_thread(context: NonNull<()>, slot: NonNull<()>) {
    // SAFETY: made by `attach_thread` with `Arc::into_raw`.
    let inner = unsafe { Arc::from_raw(context.cast::<Inner>().as_ptr()) };
    // SAFETY: a slot of this region, which `inner` keeps mapped.
    let slot: &Slot = unsafe { slot.cast().as_ref() };
    let Ok(me) = Me::get() else { return };
    let index = (ptr::from_ref(slot).addr() - inner.slots().as_ptr().addr()) / size_of::<Slot>();
    inner.release_heap(index as u16);
    let holds = inner.locks_held(me) != 0 || slot.messages() != 0;
    me.forget(inner.base().addr().get());
    if holds {
        // The kernel ends this life, and what it finds on its way is still mapped then.
        inner.make_lasting();
    } else {
        // SAFETY: the calling thread occupies the slot, and has forgotten it.
        unsafe { slot.vacate(me) };
    }
    inner.use_ends();
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: not used again. No handle and no attachment is left, references borrow from
        // handles, and whatever else may refer to the region has made it lasting.
        let mapping = unsafe { ManuallyDrop::take(&mut self.mapping) };
        registry::leave(self, mapping);
    }
}

impl Inner {
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

    /// Leaves the region mapped until the process ends. A container can be moved out of a region, or
    /// has not been moved in yet; it borrows from nobody, and must find its blocks whenever it is
    /// used.
    fn make_lasting(self: &Arc<Self>) {
        if !self.lasting.swap(true, Ordering::Relaxed) {
            core::mem::forget(Arc::clone(self));
            registry::stays(self.base().addr().get());
        }
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
    /// [`RegionOptions::attach_file`].
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }

    /// Makes the calling thread a task of the region now, instead of at its first use, under a
    /// name of at most 32 bytes that `latchwork ps` shows.
    ///
    /// # Errors
    /// [`AttachError::TaskTableFull`], [`AttachError::TooManyRegions`], [`AttachError::Task`].
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
    /// leave the kernel's list of them dangling), or has messages of its queues in flight.
    pub fn detach(self) -> Result<(), DetachError> {
        let me = Me::get().map_err(DetachError::Task)?;
        let base = self.inner.base().addr().get();
        let Some(attachment) = me.attachments().find(|attachment| attachment.base == base) else {
            return Ok(());
        };
        let locks = self.inner.locks_held(me);
        let messages = self.inner.task_of(&attachment).slot.messages() as usize;
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
    pub fn check_heap(&self) -> Result<(), heap::Corruption> {
        self.inner.heap.check()
    }

    /// Pins a named object that came as a plain reference, as a coproc's argument does: its robust
    /// locks can then be used.
    ///
    /// Sound because a named object never moves: nobody gets a `&mut` to it. The same cannot be said
    /// of any other value in a region: one behind a lock, for instance, moves by `mem::replace`. For
    /// the *parts* of an object there are [`each_pinned`] and the crate `pin-project`; for what
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
