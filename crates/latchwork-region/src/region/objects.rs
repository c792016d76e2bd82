//! Named objects of a region: made once, found by every task.
#![allow(unsafe_code)]

use super::heap::TaskRef;
use super::names::{self, Entry, NAME_BYTES, SpareKind};
use super::{Inner, NameError, ObjectError, Region, Shareable, Task};
use crate::atomic::{AtomicUsize, Ordering};
use crate::mutex::{Acquired, RawError};
use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::ptr::NonNull;
use std::sync::Arc;

impl Region {
    /// The object of this name, made by `make` if there is none yet.
    ///
    /// `make` runs at most once per name, under the directory's lock; it must not use the directory itself. (If
    /// `make` forks, the child must not return from it: that aborts.) If the caller is killed in `make`, or `make`
    /// panics, the name stays free. The object stays until [`Self::remove`] or the end of the region, and is then not
    /// dropped.
    ///
    /// # Errors
    /// [`ObjectError::OtherType`] if the object of this name has another type or layout; see [`ObjectError`].
    pub fn object<T: Shareable>(
        &self,
        name: &str,
        make: impl FnOnce() -> T,
    ) -> Result<Pin<&T>, ObjectError> {
        let (object, bytes) =
            self.raw_object(name, T::FINGERPRINT, Layout::new::<T>(), |block| {
                // SAFETY: a fresh block of the right size and alignment.
                unsafe { block.cast::<T>().write(make()) };
            })?;
        typed(object, bytes)
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
        check_name(name)?;
        let task = self.inner().task()?;
        let directory = Directory::lock(self.inner())?;
        if let Some(found) = directory.find(name, fingerprint)? {
            return Ok(found);
        }
        let entry = directory.free_entry()?;
        let block = directory.make(task, layout, make)?;
        entry.claim(name, fingerprint, layout.size() as u64);
        // SAFETY: the block was made just now, by this task.
        unsafe { directory.fill(task, entry, block) };
        Ok((block, layout.size()))
    }

    /// Runs `begin` on the object of this name. If there is none, runs it on an object that has ended, or never
    /// began, which `begin` then starts. The directory's lock is held, without which no object begins.
    #[doc(hidden)]
    pub fn reused<'r, T: Reused + 'r, R, E: From<ObjectError>>(
        &'r self,
        name: &str,
        begin: impl FnOnce(&'r T) -> Result<R, E>,
    ) -> Result<R, E> {
        check_name(name).map_err(ObjectError::from)?;
        let task = self.inner().task().map_err(ObjectError::from)?;
        let directory = Directory::lock(self.inner())?;
        directory.return_ended_to_spares::<T>(|_| true);
        if let Some(found) = directory.find(name, T::FINGERPRINT)? {
            return begin(reused_in(found)?);
        }
        let entry = directory.free_entry()?;
        let bytes = size_of::<T>();
        entry.claim(name, T::FINGERPRINT, bytes as u64);
        let is_usable = |address| {
            let block = NonNull::new(core::ptr::with_exposed_provenance_mut(address));
            block
                .filter(|block| self.inner().has_block(Some(*block), bytes))
                .and_then(|block| reused_in::<T>((block, bytes)).ok())
                .is_some_and(|object| object.can_be_reused(self))
        };
        if !directory.spares().take(entry, T::KIND, is_usable) {
            let made = directory.make(task, Layout::new::<T>(), |block| {
                // SAFETY: a fresh block of the right size and alignment.
                unsafe { block.cast::<T>().write(T::new()) };
            });
            let block = made.inspect_err(|_| entry.mark_free())?;
            // SAFETY: the block was made just now, by this task.
            unsafe { directory.fill(task, entry, block) };
        }
        let block = entry.object().ok_or(ObjectError::Damaged)?;
        let object = reused_in::<T>((block, bytes))?;
        let begun = begin(object);
        if object.has_ended() {
            directory.spares().return_to_spares(entry);
        }
        begun
    }

    /// Runs `open` on the object of this name, under the directory's lock.
    #[doc(hidden)]
    pub fn find_reused<'r, T: Reused + 'r, R, E: From<ObjectError>>(
        &'r self,
        name: &str,
        open: impl FnOnce(&'r T) -> Result<R, E>,
    ) -> Result<R, E> {
        check_name(name).map_err(ObjectError::from)?;
        let directory = Directory::lock(self.inner())?;
        let found = directory.find(name, T::FINGERPRINT)?;
        let object = reused_in::<T>(found.ok_or(ObjectError::NotFound)?)?;
        if object.has_ended() {
            return Err(ObjectError::NotFound.into());
        }
        open(object)
    }

    /// The object of this name and fingerprint, and its size.
    #[doc(hidden)]
    pub fn find_raw_object(
        &self,
        name: &str,
        fingerprint: u64,
    ) -> Result<(NonNull<u8>, usize), ObjectError> {
        check_name(name)?;
        Directory::lock(self.inner())?
            .find(name, fingerprint)?
            .ok_or(ObjectError::NotFound)
    }

    /// The object of this name.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`], [`ObjectError::OtherType`]; see [`ObjectError`].
    pub fn find<T: Shareable>(&self, name: &str) -> Result<Pin<&T>, ObjectError> {
        let (object, bytes) = self.find_raw_object(name, T::FINGERPRINT)?;
        typed(object, bytes)
    }

    /// Removes a name, drops its object and frees it. If the drop panics, the name and the memory are still
    /// released.
    ///
    /// # Safety
    /// No task uses the object any more, nor keeps a reference to it.
    ///
    /// # Errors
    /// As for [`Self::find`].
    pub unsafe fn remove<T: Shareable>(&self, name: &str) -> Result<(), ObjectError> {
        check_name(name)?;
        let task = self.inner().task()?;
        let directory = Directory::lock(self.inner())?;
        let (object, bytes) = directory
            .find(name, T::FINGERPRINT)?
            .ok_or(ObjectError::NotFound)?;
        let object = NonNull::from(typed::<T>(object, bytes)?.get_ref());
        if let Some(entry) = names::find(self.inner().entries(), name) {
            entry.mark_removing();
            let _removal = RemovalGuard {
                directory: &directory,
                task: task.heap_task(),
                entry,
                block: object.cast(),
            };
            // SAFETY: the caller guarantees that no task uses the object.
            unsafe { object.drop_in_place() };
        }
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

fn reused_in<'r, T: Reused>((block, bytes): (NonNull<u8>, usize)) -> Result<&'r T, ObjectError> {
    let object = block.cast::<T>();
    if bytes != size_of::<T>() || !object.is_aligned() {
        return Err(ObjectError::OtherType);
    }
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

    /// Frees the name of an object that has ended. If that fails, the next creation of an object of the kind does it.
    pub fn release_name<T: Reused>(self: &Arc<Self>, object: *const T) {
        if let Ok(directory) = Directory::lock(self) {
            directory.return_ended_to_spares::<T>(|other| core::ptr::eq(other, object));
        }
    }
}

/// A block for an object that is being made; it is freed if that panics.
struct UnfinishedObject<'a> {
    directory: &'a Directory<'a>,
    task: TaskRef<'a>,
    block: NonNull<u8>,
}

impl Drop for UnfinishedObject<'_> {
    fn drop(&mut self) {
        self.directory.assert_held();
        // SAFETY: this task allocated the block, and no other task knows it.
        unsafe { self.directory.region.heap.free(&self.task, self.block) };
    }
}

/// An object that is being dropped; its name and memory are released even if that panics.
struct RemovalGuard<'a> {
    directory: &'a Directory<'a>,
    task: TaskRef<'a>,
    entry: &'a Entry,
    block: NonNull<u8>,
}

impl Drop for RemovalGuard<'_> {
    fn drop(&mut self) {
        self.directory.assert_held();
        // SAFETY: the directory's lock protects the location, and `object` allocated the block.
        unsafe {
            let heap = &self.directory.region.heap;
            crate::hook::freed(|| heap.addresses_of(self.block));
            heap.retire(&self.task, self.block, &self.entry.object, 0);
        }
        self.entry.mark_free();
    }
}

fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() || name.len() > NAME_BYTES || name.contains('\0') {
        Err(NameError { max: NAME_BYTES })
    } else {
        Ok(())
    }
}

/// The locked directory.
struct Directory<'r> {
    region: &'r Arc<Inner>,
}

impl<'r> Directory<'r> {
    fn lock(region: &'r Arc<Inner>) -> Result<Self, ObjectError> {
        // This comes first since it can fail, and a failure under the lock would leave it locked.
        let task = region.task()?;
        let lock = &region.header().names_lock;
        // SAFETY: the lock lies in the mapping, which `region` keeps.
        match unsafe { lock.lock_raw(None) } {
            Ok(Acquired::Clean) => {}
            Ok(Acquired::OwnerDied) => {
                // The heap comes first: an intent of a dead task is decided by the current value of an entry.
                if let Err(error) = region.sweep() {
                    // SAFETY: locked above. The next holder repeats this repair.
                    unsafe { lock.unlock_inconsistent() };
                    return Err(error.into());
                }
                let directory = ManuallyDrop::new(Self { region });
                directory.spares().repair(region.entries());
                names::repair(region.entries(), |object, location| {
                    // SAFETY: the object of an entry whose remover died; the directory is locked.
                    unsafe {
                        crate::hook::freed(|| region.heap.addresses_of(object));
                        region.heap.retire(&task.heap_task(), object, location, 0);
                    }
                });
                lock.mark_consistent();
            }
            Err(RawError::Unavailable(error)) => return Err(ObjectError::Attach(error.into())),
            Err(RawError::Deadlock) => {
                return Err(ObjectError::Locked("the calling task holds it already"));
            }
            Err(_) => return Err(ObjectError::Locked("it is not recoverable")),
        }
        Ok(Self { region })
    }

    /// Aborts in the child of a fork, which does not own the directory's lock.
    fn assert_held(&self) {
        self.region.header().names_lock.assert_held();
    }

    fn free_entry(&self) -> Result<&'r Entry, ObjectError> {
        let entries = self.region.entries();
        names::find_free(entries).ok_or(ObjectError::DirectoryFull {
            names: entries.len(),
        })
    }

    /// A block that is private to the task, with an object that `make` has written.
    fn make(
        &self,
        task: Task<'_>,
        layout: Layout,
        make: impl FnOnce(NonNull<u8>),
    ) -> Result<NonNull<u8>, ObjectError> {
        let heap_task = task.heap_task();
        let block = self.region.heap.alloc(&heap_task, layout)?;
        let unfinished = UnfinishedObject {
            directory: self,
            task: heap_task,
            block,
        };
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
    unsafe fn fill(&self, task: Task<'_>, entry: &Entry, block: NonNull<u8>) {
        let (heap, address) = (&self.region.heap, block.addr().get());
        // SAFETY: the block is private to the task, and the directory's lock, which this task holds, protects the
        // location.
        unsafe { heap.publish(&task.heap_task(), block, &entry.object, address) };
        entry.mark_ready();
    }

    fn spares(&self) -> names::Spares<'r, impl Fn(usize, usize) -> Option<&'r AtomicUsize>> {
        let region = self.region;
        names::Spares {
            lists: &region.header().spares,
            reach: |object: usize, link: usize| {
                let end = link + size_of::<AtomicUsize>();
                let is_there = link.is_multiple_of(size_of::<usize>())
                    && object.is_multiple_of(size_of::<usize>())
                    && region.has_block_at(object, end);
                let word = core::ptr::with_exposed_provenance::<AtomicUsize>(object + link);
                // SAFETY: an aligned word in a block of the region.
                is_there.then(|| unsafe { &*word })
            },
        }
    }

    /// Frees the names of those objects of a kind that have ended and for which `which` returns true.
    fn return_ended_to_spares<T: Reused>(&self, which: impl Fn(&T) -> bool) {
        let is_ready = |entry: &&Entry| {
            entry.state.load(Ordering::Relaxed) == names::READY
                && entry.fingerprint.load(Ordering::Relaxed) == T::FINGERPRINT
        };
        for entry in self.region.entries().iter().filter(is_ready) {
            let block = entry
                .object()
                .filter(|block| self.region.has_block(Some(*block), entry.bytes()));
            let object = block.and_then(|block| reused_in::<T>((block, entry.bytes())).ok());
            if object.is_some_and(|object| which(object) && object.has_ended()) {
                // The list number in the file is not trusted.
                entry.set_kind(T::KIND);
                self.spares().return_to_spares(entry);
            }
        }
    }

    fn find(
        &self,
        name: &str,
        fingerprint: u64,
    ) -> Result<Option<(NonNull<u8>, usize)>, ObjectError> {
        let Some(entry) = names::find(self.region.entries(), name) else {
            return Ok(None);
        };
        if entry.fingerprint.load(Ordering::Relaxed) != fingerprint {
            return Err(ObjectError::OtherType);
        }
        // The file's contents are not trusted: see `attach`.
        match entry.object() {
            Some(object) if self.region.has_block(Some(object), entry.bytes()) => {
                Ok(Some((object, entry.bytes())))
            }
            _ => Err(ObjectError::Damaged),
        }
    }
}

impl Inner {
    /// Whether there can be an object of this size: whether there is an allocated block of at least that size.
    pub(super) fn has_block(&self, object: Option<NonNull<u8>>, bytes: usize) -> bool {
        object.is_some_and(|object| {
            self.heap.owns(object)
                && self
                    .heap
                    .size_of_block(object)
                    .is_some_and(|size| size >= bytes)
        })
    }
}

/// The object at an address, whose fingerprint is `T`'s.
fn typed<'r, T: Shareable>(object: NonNull<u8>, bytes: usize) -> Result<Pin<&'r T>, ObjectError> {
    let object = object.cast::<T>();
    if bytes != size_of::<T>() || !object.is_aligned() {
        return Err(ObjectError::OtherType);
    }
    // SAFETY: an object of this type was written there before its entry. Objects are neither moved nor freed while a
    // handle on the region is borrowed, except by `remove`, which is unsafe.
    Ok(unsafe { Pin::new_unchecked(object.as_ref()) })
}

impl Drop for Directory<'_> {
    fn drop(&mut self) {
        self.assert_held();
        // SAFETY: locked by `lock`. (A panic in `make` leaves the directory unchanged.)
        unsafe { self.region.header().names_lock.unlock_raw() };
    }
}
