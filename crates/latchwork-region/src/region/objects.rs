//! Named objects of a region: made once, found by every task.
#![allow(unsafe_code)]

use super::names::{self, CLAIMED, Entry, FREE, MOVING, NAME_BYTES, READY, REMOVING, SpareKind};
use super::word::{OnDrop, pointer};
use super::{Inner, NameError, ObjectError, Region, Shareable, Task};
use crate::atomic::{AtomicUsize, Ordering};
use crate::mutex::Acquired;
use crate::mutex::in_region::RawError;
use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::ptr::NonNull;
use std::sync::Arc;

impl Region {
    /// The object of this name, made by `make` if there is none yet.
    ///
    /// `make` runs at most once per name, under the directory's lock; it must not use the directory itself. (If `make`
    /// forks, the child must not return from it: that aborts.) If the caller is killed in `make`, or `make` panics, the
    /// name stays free. The object stays until [`Self::remove`] or the end of the region, and is then not dropped.
    ///
    /// # Errors
    /// [`ObjectError::OtherType`] if the object of this name has another type or layout; see [`ObjectError`].
    pub fn object<T: Shareable>(
        &self,
        name: &str,
        make: impl FnOnce() -> T,
    ) -> Result<Pin<&T>, ObjectError> {
        if T::NAMES_THREADS && self.inner.spans_pid_namespaces() {
            return Err(ObjectError::NamesThreads);
        }
        let found = self.raw_object(name, T::FINGERPRINT, Layout::new::<T>(), |block| {
            // SAFETY: a fresh block of the right size and alignment.
            unsafe { block.cast::<T>().write(make()) };
        });
        typed(found?)
    }

    /// The object of this name, of any size, and its size; made by `make` if there is none yet.
    #[doc(hidden)]
    pub fn raw_object(
        &self,
        name: &str,
        fingerprint: u64,
        layout: Layout,
        make: impl FnOnce(NonNull<u8>),
    ) -> Result<(NonNull<u8>, usize), ObjectError> {
        let directory = Directory::lock_for(self, name)?;
        if let Some(found) = directory.find(name, fingerprint)? {
            return Ok(found);
        }
        let entry = directory.free_entry(name)?;
        let block = directory.make(layout, make)?;
        entry.claim(name, fingerprint, layout.size() as u64);
        // SAFETY: the block was made just now, by this task.
        unsafe { directory.fill(entry, block) };
        Ok((block, layout.size()))
    }

    /// Runs `open` on the object of this name. `open` returns `None` if the object has ended. Then, or if there is no object
    /// of this name, runs `begin` on memory without an object, in which `begin` starts a new one. If that fails, searches all
    /// names for objects that have ended, and tries once more. The directory's lock is held, without which no object begins.
    #[doc(hidden)]
    pub fn reused<'r, T: Reused + 'r, R, E: From<ObjectError>>(
        &'r self,
        name: &str,
        open: impl FnOnce(&'r T) -> Result<Option<R>, E>,
        begin: impl Fn(&'r T) -> Result<R, E>,
    ) -> Result<R, E> {
        let directory = Directory::lock_for(self, name)?;
        let bytes = size_of::<T>();
        let is_usable = |address| {
            let block = self.inner().block(pointer(address), bytes);
            let object = block.and_then(|block| reused_in::<T>(block).ok());
            object.is_some_and(|object| object.has_ended() && object.can_be_reused(self))
        };
        // Each look frees what a dead task has left in the spare.
        let look_at_spares = || {
            for object in directory.spares_of(T::KIND) {
                is_usable(object);
            }
        };
        if directory.search_if_due::<T>() {
            look_at_spares();
        }
        if let Some(entry) = directory.entry(name, T::FINGERPRINT)? {
            let object = reused_in::<T>(directory.object_of(entry)?)?;
            if let Some(opened) = open(object)? {
                return Ok(opened);
            }
            // Its end has not freed the name yet. Its memory may still be in use.
            directory.return_ended(entry, T::KIND);
        }
        let begin_in_one = || {
            let entry = directory.entry_with_object::<T>(name, is_usable)?;
            let block = entry.object().ok_or(ObjectError::Damaged)?;
            let object = reused_in::<T>((block, bytes))?;
            // If `begin` panics, the name stays with an object that has ended. The next creation searches for it.
            let panic = OnDrop(|| self.inner().search_next_time(T::KIND));
            let begun = begin(object);
            core::mem::forget(panic);
            if object.has_ended() {
                directory.return_ended(entry, T::KIND);
            }
            begun
        };
        begin_in_one().or_else(|_: E| {
            // Perhaps for lack of names or memory, and objects that have ended may still have some.
            directory.search_for_ended::<T>();
            look_at_spares();
            begin_in_one()
        })
    }

    /// Runs `open` on the object of this name, under the directory's lock. If `open` returns `None`, the object has ended,
    /// and the result is [`ObjectError::NotFound`].
    #[doc(hidden)]
    pub fn find_reused<'r, T: Reused + 'r, R, E: From<ObjectError>>(
        &'r self,
        name: &str,
        open: impl FnOnce(&'r T) -> Result<Option<R>, E>,
    ) -> Result<R, E> {
        let directory = Directory::lock_for(self, name)?;
        let found = directory.find(name, T::FINGERPRINT)?;
        let object = reused_in::<T>(found.ok_or(ObjectError::NotFound)?)?;
        open(object)?.ok_or_else(|| ObjectError::NotFound.into())
    }

    /// The object of this name and fingerprint, and its size.
    #[doc(hidden)]
    pub fn find_raw_object(
        &self,
        name: &str,
        fingerprint: u64,
    ) -> Result<(NonNull<u8>, usize), ObjectError> {
        let found = Directory::lock_for(self, name)?.find(name, fingerprint)?;
        found.ok_or(ObjectError::NotFound)
    }

    /// The object of this name.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`], [`ObjectError::OtherType`]; see [`ObjectError`].
    pub fn find<T: Shareable>(&self, name: &str) -> Result<Pin<&T>, ObjectError> {
        typed(self.find_raw_object(name, T::FINGERPRINT)?)
    }

    /// Removes a name, drops its object and frees it. If the drop panics, the name and the memory are still released.
    ///
    /// # Safety
    /// No task uses the object any more, nor keeps a reference to it.
    ///
    /// # Errors
    /// As for [`Self::find`].
    pub unsafe fn remove<T: Shareable>(&self, name: &str) -> Result<(), ObjectError> {
        // SAFETY: the caller guarantees that no task uses the object.
        unsafe {
            self.remove_raw_object(name, T::FINGERPRINT, |found| {
                let object = typed_address::<T>(found)?;
                Ok(move || object.drop_in_place())
            })
        }
    }

    /// Removes a name and frees its object. `check` gets the object's address and size; what it returns drops the
    /// object.
    ///
    /// # Safety
    /// No task uses the object any more, nor keeps a reference to it.
    #[doc(hidden)]
    pub unsafe fn remove_raw_object<D: FnOnce()>(
        &self,
        name: &str,
        fingerprint: u64,
        check: impl FnOnce((NonNull<u8>, usize)) -> Result<D, ObjectError>,
    ) -> Result<(), ObjectError> {
        let directory = Directory::lock_for(self, name)?;
        let entry = directory.entry(name, fingerprint)?;
        let entry = entry.ok_or(ObjectError::NotFound)?;
        let found = directory.object_of(entry)?;
        let drop_object = check(found)?;
        entry.state.store(REMOVING, Ordering::Relaxed);
        // Also if the drop panics.
        let _removal = OnDrop(|| {
            directory.assert_held();
            // SAFETY: no task uses the object, and `object` allocated its block.
            unsafe { directory.retire(found.0, &entry.object) };
            entry.mark_free();
        });
        drop_object();
        Ok(())
    }
}

/// A kind of objects whose memory is reused only for the same kind: handles may read it after the object's end, and
/// detect that it has ended. See `names.rs`.
#[doc(hidden)]
pub trait Reused: Sized {
    const FINGERPRINT: u64;
    const KIND: SpareKind;

    /// Memory without an object.
    fn new() -> Self;

    /// Whether there is no object at the moment. An object begins only under the directory's lock.
    fn has_ended(&self) -> bool;

    /// For an object that has ended: whether another one may begin in its memory. Also cleans up what dead tasks left
    /// in it.
    fn can_be_reused(&self, _region: &Region) -> bool {
        true
    }
}

/// A block and its size.
pub(super) type Block = (NonNull<u8>, usize);

/// Refuses what cannot be an object's name.
pub(super) fn check_name(name: &str) -> Result<(), NameError> {
    let is_name = !name.is_empty() && name.len() <= NAME_BYTES && !name.contains('\0');
    is_name.then_some(()).ok_or(NameError { max: NAME_BYTES })
}

/// The address of the object in a block, whose fingerprint is `T`'s.
pub(super) fn typed_address<T>((block, bytes): Block) -> Result<NonNull<T>, ObjectError> {
    let object = block.cast::<T>();
    let fits = bytes == size_of::<T>() && object.is_aligned();
    fits.then_some(object).ok_or(ObjectError::OtherType)
}

fn typed<'r, T: Shareable>(block: Block) -> Result<Pin<&'r T>, ObjectError> {
    let object = typed_address::<T>(block)?;
    // SAFETY: an object of this type was written there before its entry. Objects are neither moved nor freed while a
    // handle on the region is borrowed, except by `remove`, which is unsafe.
    Ok(unsafe { Pin::new_unchecked(object.as_ref()) })
}

pub(super) fn reused_in<'r, T: Reused>(block: Block) -> Result<&'r T, ObjectError> {
    let object = typed_address::<T>(block)?;
    object.as_ptr().expose_provenance();
    // SAFETY: `reused` wrote an object of this fingerprint. It is never freed: no type exists by which
    // `Region::remove` would find it.
    Ok(unsafe { object.as_ref() })
}

impl Inner {
    /// Runs `step` under the directory's lock, if that can be acquired.
    pub fn with_directory_lock(self: &Arc<Self>, step: impl FnOnce()) {
        if let Ok(_directory) = Directory::lock(self) {
            step();
        }
    }
}

/// The locked directory.
pub(super) struct Directory<'r> {
    pub(super) region: &'r Arc<Inner>,
    task: Task<'r>,
}

impl<'r> Directory<'r> {
    /// Locks the directory, if an object can have this name.
    fn lock_for(region: &'r Region, name: &str) -> Result<Self, ObjectError> {
        check_name(name)?;
        Self::lock(region.inner())
    }

    pub(super) fn lock(region: &'r Arc<Inner>) -> Result<Self, ObjectError> {
        // This comes first since it can fail, and a failure under the lock would leave it locked.
        let task = region.task()?;
        let lock = &region.header().names_lock;
        match lock.lock_raw() {
            Ok(Acquired::Clean) => {}
            Ok(Acquired::OwnerDied) => {
                // The heap comes first: an intent of a dead task is decided by the current value of an entry.
                if let Err(error) = region.sweep() {
                    // SAFETY: locked above. The next holder repeats this repair.
                    unsafe { lock.unlock_raw_inconsistent() };
                    return Err(error.into());
                }
                crate::atomic::unless_disabled!(
                    DirectoryRepairs,
                    ManuallyDrop::new(Self { region, task }).repair(),
                    ()
                );
                // SAFETY: locked above.
                unsafe { lock.mark_raw_consistent() };
            }
            Err(RawError::Unavailable(error)) => return Err(ObjectError::Attach(error.into())),
            Err(RawError::Deadlock) => {
                return Err(ObjectError::Locked("the calling task holds it already"));
            }
            Err(_) => return Err(ObjectError::Locked("it is not recoverable")),
        }
        Ok(Self { region, task })
    }

    /// Aborts in the child of a fork, which does not own the directory's lock.
    fn assert_held(&self) {
        self.region.header().names_lock.assert_held();
    }

    /// The entry for a new object of this name.
    fn free_entry(&self, name: &str) -> Result<&'r Entry, ObjectError> {
        let entries = self.region.entries();
        let names = entries.len();
        let is_free = |place: &usize| entries[*place].state.load(Ordering::Relaxed) == FREE;
        let mut places = names::places(name, names, u32::MAX).enumerate();
        let free = places.find(|(_, place)| is_free(place));
        let (steps, place) = free.ok_or(ObjectError::DirectoryFull { names })?;
        // Before the claim, in program order: a kill in between leaves the reach too large.
        let reach = &self.region.header().names_reach;
        reach.fetch_max(steps as u32, Ordering::Relaxed);
        Ok(&entries[place])
    }

    /// An entry of this name with an object that has ended, or never began: the first spare for which `is_usable` returns
    /// true, or a new one.
    fn entry_with_object<T: Reused>(
        &self,
        name: &str,
        is_usable: impl Fn(usize) -> bool,
    ) -> Result<&'r Entry, ObjectError> {
        let entry = self.free_entry(name)?;
        entry.claim(name, T::FINGERPRINT, size_of::<T>() as u64);
        if self.take_spare(entry, T::KIND, is_usable) {
            return Ok(entry);
        }
        let made = self.make(Layout::new::<T>(), |block| {
            // SAFETY: a fresh block of the right size and alignment.
            unsafe { block.cast::<T>().write(T::new()) };
        });
        match made {
            Ok(block) => {
                // SAFETY: the block was made just now, by this task.
                unsafe { self.fill(entry, block) };
                self.leave_hint(entry, T::KIND);
                Ok(entry)
            }
            Err(full) => {
                entry.mark_free();
                Err(full)
            }
        }
    }

    /// A block that is private to the task, with an object that `make` has written.
    fn make(
        &self,
        layout: Layout,
        make: impl FnOnce(NonNull<u8>),
    ) -> Result<NonNull<u8>, ObjectError> {
        let (heap, task) = (&self.region.heap, self.task.heap_task());
        let block = heap.alloc(&task, layout)?;
        let unfinished = OnDrop(|| {
            self.assert_held();
            // SAFETY: this task allocated the block, and no other task knows it.
            unsafe { heap.free(&task, block) };
        });
        make(block);
        // `make` is the user's code and may have forked: only one of the two processes may go on.
        self.assert_held();
        core::mem::forget(unfinished);
        Ok(block)
    }

    /// Stores the object of a claimed entry.
    ///
    /// # Safety
    /// The block is private to the task.
    unsafe fn fill(&self, entry: &Entry, block: NonNull<u8>) {
        let (heap, task) = (&self.region.heap, self.task.heap_task());
        // SAFETY: the block is private to the task, and the directory's lock, which this task holds, protects the
        // location.
        unsafe { heap.publish(&task, block, &entry.object, block.addr().get()) };
        entry.mark_ready();
    }

    /// Frees an object's block and clears the location that names it.
    ///
    /// # Safety
    /// The location is that of an entry, and no task uses the object.
    unsafe fn retire(&self, block: NonNull<u8>, location: &AtomicUsize) {
        let (heap, task) = (&self.region.heap, self.task.heap_task());
        crate::hook::freed(|| heap.addresses_of(block));
        // SAFETY: no task uses the block, and the directory's lock, which this task holds, protects the location.
        unsafe { heap.retire(&task, block, location, 0) };
    }

    /// Finishes or undoes the operation of a dead holder of the lock. An insert whose object is already linked is
    /// complete except for its state. An object whose removal began is freed.
    pub(super) fn repair(&self) {
        for entry in self.region.entries() {
            match (entry.state.load(Ordering::Relaxed), entry.object()) {
                (MOVING, _) => crate::atomic::unless_disabled!(
                    DirectoryFinishesMove,
                    self.finish_move(entry, true),
                    entry.mark_free()
                ),
                (CLAIMED, Some(_)) => entry.mark_ready(),
                (CLAIMED | REMOVING, None) => entry.mark_free(),
                (REMOVING, Some(object)) => {
                    // SAFETY: the object of an entry whose remover died.
                    unsafe { self.retire(object, &entry.object) };
                    entry.mark_free();
                }
                _ => {}
            }
        }
    }

    fn entry(&self, name: &str, fingerprint: u64) -> Result<Option<&'r Entry>, ObjectError> {
        let entries = self.region.entries();
        // Relaxed: the directory's lock is held.
        let reach = self.region.header().names_reach.load(Ordering::Relaxed);
        let mut entries = names::places(name, entries.len(), reach).map(|place| &entries[place]);
        match entries.find(|entry| entry.state.load(Ordering::Relaxed) == READY && entry.is(name)) {
            Some(entry) if entry.fingerprint.load(Ordering::Relaxed) != fingerprint => {
                Err(ObjectError::OtherType)
            }
            found => Ok(found),
        }
    }

    /// The object of an entry. The file's contents are not trusted: see `attach`.
    fn object_of(&self, entry: &Entry) -> Result<Block, ObjectError> {
        let block = self.region.block(entry.object(), entry.bytes());
        block.ok_or(ObjectError::Damaged)
    }

    fn find(&self, name: &str, fingerprint: u64) -> Result<Option<Block>, ObjectError> {
        let entry = self.entry(name, fingerprint)?;
        entry.map(|entry| self.object_of(entry)).transpose()
    }
}

impl Inner {
    /// Where there can be an object of this size: an allocated block of at least that size.
    pub(super) fn block(&self, object: Option<NonNull<u8>>, bytes: usize) -> Option<Block> {
        let object = object.filter(|object| self.heap.owns(*object))?;
        (self.heap.size_of_block(object)? >= bytes).then_some((object, bytes))
    }
}

impl Drop for Directory<'_> {
    fn drop(&mut self) {
        self.assert_held();
        // SAFETY: locked by `lock`. (A panic in `make` leaves the directory unchanged.)
        unsafe { self.region.header().names_lock.unlock_raw() };
    }
}
