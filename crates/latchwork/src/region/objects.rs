//! Named objects of a region: made once, found by everybody.
#![allow(unsafe_code)]

use super::names::{self, NAME_BYTES};
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
    /// directory itself. If the caller is killed in it, the name stays free. The object stays until
    /// [`Self::remove`] or the end of the region; it is not dropped.
    ///
    /// # Errors
    /// [`ObjectError::OtherType`] if the name stands for an object of another type or layout; see
    /// [`ObjectError`].
    pub fn object<T: Shareable>(&self, name: &str, make: impl FnOnce() -> T) -> Result<Pin<&T>, ObjectError> {
        check_name(name)?;
        let task = self.inner().task()?;
        let directory = Directory::lock(self.inner())?;
        if let Some(found) = directory.find::<T>(name)? {
            return Ok(found);
        }
        let entry = names::find_free(self.inner().entries())
            .ok_or(ObjectError::DirectoryFull { names: self.inner().entries().len() })?;
        let heap = &self.inner().heap;
        let heap_task = task.heap_task();
        let block = heap.alloc(&heap_task, Layout::new::<T>())?;
        // SAFETY: a block of the right size and alignment that nobody else knows.
        unsafe { block.cast::<T>().write(make()) };
        entry.claim(name, T::FINGERPRINT, size_of::<T>() as u64);
        // SAFETY: the block was allocated by this task just now, and the location is protected by
        // the directory's lock, which this task holds.
        unsafe { heap.publish(&heap_task, block, &entry.object, block.addr().get()) };
        entry.ready();
        // SAFETY: as above; objects are neither moved nor freed while the handle is borrowed,
        // except by `remove`, which is unsafe.
        Ok(unsafe { Pin::new_unchecked(block.cast::<T>().as_ref()) })
    }

    /// The object of this name.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`], [`ObjectError::OtherType`]; see [`ObjectError`].
    pub fn find<T: Shareable>(&self, name: &str) -> Result<Pin<&T>, ObjectError> {
        check_name(name)?;
        Directory::lock(self.inner())?.find(name)?.ok_or(ObjectError::NotFound)
    }

    /// Removes a name and frees its object, dropping it.
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
        let object = directory.find::<T>(name)?.ok_or(ObjectError::NotFound)?;
        let object = NonNull::from(object.get_ref());
        if let Some(entry) = names::find(self.inner().entries(), name) {
            entry.removing();
            // SAFETY: by the caller's contract nobody else uses it.
            unsafe { object.drop_in_place() };
            // SAFETY: the location is protected by the directory's lock, and the block is the one
            // that `object` allocated.
            unsafe { self.inner().heap.retire(&task.heap_task(), object.cast(), &entry.object, 0) };
            entry.free();
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() || name.len() > NAME_BYTES || name.contains('\0') { Err(NameError { max: NAME_BYTES }) } else { Ok(()) }
}

/// The directory, locked.
struct Directory<'r> {
    region: &'r Arc<Inner>,
}

impl<'r> Directory<'r> {
    fn lock(region: &'r Arc<Inner>) -> Result<Self, ObjectError> {
        let lock = &region.header().names_lock;
        // SAFETY: the lock lies in the mapping, which `region` keeps.
        match unsafe { lock.lock_raw(None) } {
            Ok(Acquired::Clean) => {}
            Ok(Acquired::OwnerDied) => {
                // First the heap: an intent of the dead is decided by an entry as it is now.
                region.sweep()?;
                let task = region.task()?;
                names::repair(region.entries(), |object, location| {
                    // SAFETY: the object of an entry whose remover died; the directory is locked.
                    unsafe { region.heap.retire(&task.heap_task(), object, location, 0) };
                });
                lock.mark_consistent();
            }
            Err(RawError::Unavailable(error)) => return Err(ObjectError::Attach(error.into())),
            Err(RawError::Deadlock) => return Err(ObjectError::Locked("the calling task holds it already")),
            Err(_) => return Err(ObjectError::Locked("the calling task holds too many robust locks")),
        }
        Ok(Self { region })
    }

    fn find<T: Shareable>(&self, name: &str) -> Result<Option<Pin<&'r T>>, ObjectError> {
        let Some(entry) = names::find(self.region.entries(), name) else { return Ok(None) };
        let address = entry.object.load(Ordering::Relaxed);
        let same = entry.fingerprint.load(Ordering::Relaxed) == T::FINGERPRINT
            && entry.bytes.load(Ordering::Relaxed) == size_of::<T>() as u64;
        let pointer = NonNull::new(core::ptr::with_exposed_provenance_mut::<T>(address));
        match pointer.filter(|pointer| same && pointer.is_aligned() && self.region.heap.owns(pointer.cast())) {
            // SAFETY: an object of this type lives there: `object` wrote it before the entry.
            Some(pointer) => Ok(Some(unsafe { Pin::new_unchecked(pointer.as_ref()) })),
            None => Err(ObjectError::OtherType),
        }
    }
}

impl Drop for Directory<'_> {
    fn drop(&mut self) {
        // SAFETY: locked by `lock`. (A panic in `make` leaves the directory as it was.)
        unsafe { self.region.header().names_lock.unlock_raw() };
    }
}
