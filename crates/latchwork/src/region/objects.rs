//! Named objects of a region: made once, found by everybody.
#![allow(unsafe_code)]

use super::heap::TaskRef;
use super::names::{self, Entry, NAME_BYTES};
use super::{Inner, NameError, ObjectError, Region, Shareable};
use crate::atomic::Ordering;
use crate::mutex::{Acquired, RawError};
use core::alloc::Layout;
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
        let entry = names::find_free(self.inner().entries()).ok_or(ObjectError::DirectoryFull {
            names: self.inner().entries().len(),
        })?;
        let heap = &self.inner().heap;
        let heap_task = task.heap_task();
        let block = heap.alloc(&heap_task, layout)?;
        let unmade = Unmade {
            directory: &directory,
            task: heap_task,
            block,
        };
        make(block);
        // The user's code, which may have forked: what follows is for one of the two.
        directory.assert_ours();
        core::mem::forget(unmade);
        entry.claim(name, fingerprint, layout.size() as u64);
        // SAFETY: the block was allocated by this task just now, and the location is protected by
        // the directory's lock, which this task holds.
        unsafe { heap.publish(&heap_task, block, &entry.object, block.addr().get()) };
        entry.ready();
        Ok((block, layout.size()))
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
