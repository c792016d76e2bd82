//! Named objects of a region: made once, found by everybody.
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
    /// `make` runs at most once per name, under the directory's lock; it must not use the
    /// directory itself. (A child of a fork that it makes must not return from it: that aborts.) If
    /// the caller is killed in it, or it panics, the name stays free. The object stays until [`Self::remove`] or
    /// the end of the region; it is not dropped.
    ///
    /// # Errors
    /// [`ObjectError::OtherType`] if the name stands for an object of another type or layout; see
    /// [`ObjectError`].
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
    pub(crate) fn raw_object(
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
        // SAFETY: the block was made just now.
        unsafe { directory.fill(task, entry, block) };
        Ok((block, layout.size()))
    }

    /// Runs `begin` on the object of this name, whether there is one or not: then on one that has ended, or never
    /// began, for `begin` to have it begin. Under the directory's lock, without which none begins.
    pub(crate) fn reused<'r, T: Reused + 'r, R, E: From<ObjectError>>(
        &'r self,
        name: &str,
        begin: impl FnOnce(&'r T) -> Result<R, E>,
    ) -> Result<R, E> {
        check_name(name).map_err(ObjectError::from)?;
        let task = self.inner().task().map_err(ObjectError::from)?;
        let directory = Directory::lock(self.inner())?;
        directory.shelve_ended::<T>(|_| true);
        if let Some(found) = directory.find(name, T::FINGERPRINT)? {
            return begin(reused_in(found)?);
        }
        let entry = directory.free_entry()?;
        let bytes = size_of::<T>();
        entry.claim(name, T::FINGERPRINT, bytes as u64);
        let is_right = |address| {
            let block = NonNull::new(core::ptr::with_exposed_provenance_mut(address));
            block
                .filter(|block| self.inner().has_block(Some(*block), bytes))
                .and_then(|block| reused_in::<T>((block, bytes)).ok())
                .is_some_and(|object| object.is_over(self))
        };
        if !directory.spares().take(entry, T::KIND, is_right) {
            let made = directory.make(task, Layout::new::<T>(), |block| {
                // SAFETY: a fresh block of the right size and alignment.
                unsafe { block.cast::<T>().write(T::new()) };
            });
            let block = made.inspect_err(|_| entry.free())?;
            // SAFETY: the block was made just now.
            unsafe { directory.fill(task, entry, block) };
        }
        let block = entry.object().ok_or(ObjectError::Damaged)?;
        let object = reused_in::<T>((block, bytes))?;
        let begun = begin(object);
        if object.has_ended() {
            directory.spares().shelve(entry);
        }
        begun
    }

    /// Runs `open` on the object of this name, under the directory's lock.
    pub(crate) fn find_reused<'r, T: Reused + 'r, R, E: From<ObjectError>>(
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
    pub(crate) fn find_raw_object(
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

    /// Removes a name and frees its object, dropping it. Should the drop panic, it is gone, too.
    ///
    /// # Safety
    /// No task uses the object any more, nor will by a reference that it has.
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
            entry.removing();
            let _removal = Removal {
                directory: &directory,
                task: task.heap_task(),
                entry,
                block: object.cast(),
            };
            // SAFETY: by the caller's contract nobody else uses it.
            unsafe { object.drop_in_place() };
        }
        Ok(())
    }
}

/// A kind of objects whose memory stays one of the kind: handles may look at it after the object's end, and see that
/// it has ended. See `names.rs`.
pub(crate) trait Reused: Sized {
    const FINGERPRINT: u64;
    const KIND: SpareKind;

    /// None yet.
    fn new() -> Self;

    /// Whether there is none, at the moment. Nobody has one begin but under the directory's lock.
    fn has_ended(&self) -> bool;

    /// Of one that has ended: whether another one may begin, which settles what the dead left of it.
    fn is_over(&self, _region: &Region) -> bool {
        true
    }
}

fn reused_in<'r, T: Reused>((block, bytes): (NonNull<u8>, usize)) -> Result<&'r T, ObjectError> {
    let object = block.cast::<T>();
    if bytes != size_of::<T>() || !object.is_aligned() {
        return Err(ObjectError::OtherType);
    }
    object.as_ptr().expose_provenance();
    // SAFETY: an object of this fingerprint was written by `reused`. Nothing frees it: there is no type by which
    // `Region::remove` would find it.
    Ok(unsafe { object.as_ref() })
}

impl Inner {
    /// Runs `step` under the lock of the names, if that can be had.
    pub(crate) fn with_names(self: &Arc<Self>, step: impl FnOnce()) {
        if let Ok(_directory) = Directory::lock(self) {
            step();
        }
    }

    /// An object has ended: its name is free. If this cannot be done now, the next creation of one of the kind does.
    pub(crate) fn give_up_name<T: Reused>(self: &Arc<Self>, object: *const T) {
        if let Ok(directory) = Directory::lock(self) {
            directory.shelve_ended::<T>(|other| core::ptr::eq(other, object));
        }
    }
}

/// A block for an object that is being made; freed if that panics.
struct Unmade<'a> {
    directory: &'a Directory<'a>,
    task: TaskRef<'a>,
    block: NonNull<u8>,
}

impl Drop for Unmade<'_> {
    fn drop(&mut self) {
        self.directory.assert_ours();
        // SAFETY: allocated by this task; nobody else knows it.
        unsafe { self.directory.region.heap.free(&self.task, self.block) };
    }
}

/// An object that is being dropped; it goes even if that panics.
struct Removal<'a> {
    directory: &'a Directory<'a>,
    task: TaskRef<'a>,
    entry: &'a Entry,
    block: NonNull<u8>,
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        self.directory.assert_ours();
        // SAFETY: the location is protected by the directory's lock, and the block is the one that
        // `object` allocated.
        unsafe {
            let heap = &self.directory.region.heap;
            crate::hook::freed(|| heap.addresses_of(self.block));
            heap.retire(&self.task, self.block, &self.entry.object, 0);
        }
        self.entry.free();
    }
}

fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() || name.len() > NAME_BYTES || name.contains('\0') {
        Err(NameError { max: NAME_BYTES })
    } else {
        Ok(())
    }
}

/// The directory, locked.
struct Directory<'r> {
    region: &'r Arc<Inner>,
}

impl<'r> Directory<'r> {
    fn lock(region: &'r Arc<Inner>) -> Result<Self, ObjectError> {
        // First, for it can fail, and a failure under the lock would leave it locked.
        let task = region.task()?;
        let lock = &region.header().names_lock;
        // SAFETY: the lock lies in the mapping, which `region` keeps.
        match unsafe { lock.lock_raw(None) } {
            Ok(Acquired::Clean) => {}
            Ok(Acquired::OwnerDied) => {
                // First the heap: an intent of the dead is decided by an entry as it is now.
                if let Err(error) = region.sweep() {
                    // SAFETY: locked above. The next one finds what this one found.
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
            Err(_) => return Err(ObjectError::Locked("it was given up")),
        }
        Ok(Self { region })
    }

    /// Aborts in the child of a fork, where the directory is the parent's.
    fn assert_ours(&self) {
        self.region.header().names_lock.assert_held();
    }

    fn free_entry(&self) -> Result<&'r Entry, ObjectError> {
        let entries = self.region.entries();
        names::find_free(entries).ok_or(ObjectError::DirectoryFull {
            names: entries.len(),
        })
    }

    /// A block of the task's own, with an object that `make` has written.
    fn make(
        &self,
        task: Task<'_>,
        layout: Layout,
        make: impl FnOnce(NonNull<u8>),
    ) -> Result<NonNull<u8>, ObjectError> {
        let heap_task = task.heap_task();
        let block = self.region.heap.alloc(&heap_task, layout)?;
        let unmade = Unmade {
            directory: self,
            task: heap_task,
            block,
        };
        make(block);
        // The user's code, which may have forked: what follows is for one of the two.
        self.assert_ours();
        core::mem::forget(unmade);
        Ok(block)
    }

    /// Gives a claimed entry its object.
    ///
    /// # Safety
    /// The block is the task's own.
    unsafe fn fill(&self, task: Task<'_>, entry: &Entry, block: NonNull<u8>) {
        let (heap, address) = (&self.region.heap, block.addr().get());
        // SAFETY: the block is the task's, and the location is protected by the directory's lock, which this task
        // holds.
        unsafe { heap.publish(&task.heap_task(), block, &entry.object, address) };
        entry.ready();
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
                // SAFETY: a word in a block of the region.
                is_there.then(|| unsafe { &*word })
            },
        }
    }

    /// Frees the names of objects of a kind that have ended, those of whom this is said.
    fn shelve_ended<T: Reused>(&self, which: impl Fn(&T) -> bool) {
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
                // What a file says is no more than that.
                entry.set_kind(T::KIND);
                self.spares().shelve(entry);
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
        // What a file says is no more than that: see `attach`.
        match entry.object() {
            Some(object) if self.region.has_block(Some(object), entry.bytes()) => {
                Ok(Some((object, entry.bytes())))
            }
            _ => Err(ObjectError::Damaged),
        }
    }
}

impl Inner {
    /// Whether an object of this size can be there: an allocated block.
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

/// An object whose fingerprint is `T`'s.
fn typed<'r, T: Shareable>(object: NonNull<u8>, bytes: usize) -> Result<Pin<&'r T>, ObjectError> {
    let object = object.cast::<T>();
    if bytes != size_of::<T>() || !object.is_aligned() {
        return Err(ObjectError::OtherType);
    }
    // SAFETY: an object of this type lives there: it was written before its entry. Objects are
    // neither moved nor freed while a handle on the region is borrowed, except by `remove`, which is
    // unsafe.
    Ok(unsafe { Pin::new_unchecked(object.as_ref()) })
}

impl Drop for Directory<'_> {
    fn drop(&mut self) {
        self.assert_ours();
        // SAFETY: locked by `lock`. (A panic in `make` leaves the directory as it was.)
        unsafe { self.region.header().names_lock.unlock_raw() };
    }
}
