//! A region that is mapped for reading only.
//!
//! An observer reads the tables with `pread`, as an inspection does, and maps the file without the right to write. It is
//! no task and takes no lock, not even the file's. So it disturbs nothing, and nothing waits for it: the last task's
//! detach may remove the name, and the next attach may repair the contents. The memory stays while the mapping does.
#![allow(unsafe_code)]

use super::create::path_of;
use super::error::system;
use super::header::Header;
use super::inspect::{Contents, Snapshot, attach_error, open, open_error};
use super::objects::{Block, check_name, typed_address};
use super::{AttachError, ObjectError, RegionOptions, Shareable};
use crate::atomic::Ordering::Relaxed;
use crate::sys::inspect::Place;
use crate::sys::memory::{self, Mapping};
use core::fmt;
use core::pin::Pin;
use core::ptr::{self, NonNull};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;

/// A region that this process can read, and cannot change: for monitors, which need no more than the right to read the
/// region's file.
///
/// It is mapped at the region's address, so pointers in it are valid. The process is no task of the region: it holds no
/// lock, does not wait, allocates nothing, and its death concerns nobody. It may be in another PID namespace.
///
/// ```
/// use latchwork::region::RegionOptions;
///
/// let name = format!("observed-{}", std::process::id());
/// let options = RegionOptions::new().max_bytes(4 << 20).mode(0o640);
/// let region = options.create_named(&name)?;
/// region.object("version", || 7u32)?;
/// region.detach()?;
///
/// // As a rule, in another process:
/// let observer = options.observe(&name)?;
/// assert_eq!(*observer.find::<u32>("version")?, 7);
/// assert_eq!(observer.contents()?.objects[0].name, "version");
/// # RegionOptions::unlink(&name)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *Signals:* a write to the region's memory, by unsafe code, ends the process with `SIGSEGV`.
pub struct Observer {
    mapping: Mapping,
    snapshot: Snapshot,
}

impl RegionOptions {
    /// Maps a named region for reading only. The right to read its file suffices; of the options only
    /// [`trust_any_owner`](Self::trust_any_owner) matters.
    ///
    /// # Errors
    /// As for [`Self::attach`], but for those that concern tasks. [`AttachError::AddressTaken`] also if this process has
    /// the region attached, or observes it already.
    pub fn observe(&self, name: &str) -> Result<Observer, AttachError> {
        Observer::new(&Place::at(&path_of(name)?).map_err(attach_error)?, self)
    }

    /// Maps a region for reading only by its memory file, as passed from another process. The file is opened once more,
    /// through `/proc`, for which this process needs permission.
    ///
    /// # Errors
    /// As for [`Self::observe`].
    pub fn observe_file(&self, file: &OwnedFd) -> Result<Observer, AttachError> {
        Observer::new(&place_of(file)?, self)
    }
}

fn place_of(file: &OwnedFd) -> Result<Place, AttachError> {
    Place::of(file).map_err(open_error)
}

impl Observer {
    fn new(place: &Place, options: &RegionOptions) -> Result<Self, AttachError> {
        let file = open(place)?;
        let status = memory::file_status(&file).map_err(system("fstat"))?;
        if !options.trusts_any_owner() && !memory::is_own_user(status.user) {
            return Err(AttachError::Permission);
        }
        let snapshot = Snapshot::new(file, place)?;
        let base = snapshot.identity.base as usize;
        let mapping = Mapping::read_only_at(&snapshot.file, base, snapshot.layout.total);
        let mapping = mapping.map_err(|error| match error {
            Errno::EXIST => AttachError::AddressTaken { base },
            error => system("mmap")(error),
        })?;
        Ok(Self { mapping, snapshot })
    }

    /// The object of this name, of a type that no task changes: such an object is as it was made.
    ///
    /// # Errors
    /// As for [`Region::find`](super::Region::find).
    pub fn find<T: Shareable + Copy>(&self, name: &str) -> Result<&T, ObjectError> {
        // SAFETY: a type that is `Copy` contains no cell, so safe code changes no object of it.
        Ok(unsafe { self.find_changing::<T>(name) }?.get_ref())
    }

    /// The object of this name, which tasks may change meanwhile.
    ///
    /// # Safety
    /// What is called on the object does not write, so it is neither locked nor stored to. What it reads is changed by
    /// atomic accesses only. Atomics are loaded with `Relaxed` or `Acquire`, in parts of at most 8 bytes.
    ///
    /// # Errors
    /// As for [`Region::find`](super::Region::find).
    pub unsafe fn find_changing<T: Shareable>(&self, name: &str) -> Result<Pin<&T>, ObjectError> {
        let object = typed_address::<T>(self.find_raw_object(name, T::FINGERPRINT)?)?;
        // SAFETY: an object of this type, in a mapping that lives as long as `self`; it does not move. For accesses the
        // caller is responsible.
        Ok(unsafe { Pin::new_unchecked(object.as_ref()) })
    }

    /// The object of this name, of any size, and its size.
    #[doc(hidden)]
    pub fn find_raw_object(&self, name: &str, fingerprint: u64) -> Result<Block, ObjectError> {
        check_name(name)?;
        let found = self.snapshot.object(name)?.ok_or(ObjectError::NotFound)?;
        if found.fingerprint != fingerprint {
            return Err(ObjectError::OtherType);
        }
        let header = self.snapshot.read::<Header>(0)?;
        let heap = self.snapshot.layout.heap as u64;
        let status = memory::file_status(&self.snapshot.file).map_err(system("fstat"))?;
        let end = header.committed.load(Relaxed).min(status.bytes);
        let offset = found.address.checked_sub(self.snapshot.identity.base);
        let is_in = |offset: &u64| {
            *offset >= heap
                && offset
                    .checked_add(found.bytes)
                    .is_some_and(|last| last <= end)
        };
        offset.filter(is_in).ok_or(ObjectError::Damaged)?;
        let object = NonNull::new(ptr::with_exposed_provenance_mut(found.address as usize));
        Ok((object.ok_or(ObjectError::Damaged)?, found.bytes as usize))
    }

    /// The tasks, objects, locks and memory of the region at this moment: what `latchwork ps` shows.
    ///
    /// # Errors
    /// [`AttachError::Damaged`], [`AttachError::Truncated`], [`AttachError::System`].
    pub fn contents(&self) -> Result<Contents, AttachError> {
        // The file has grown since it was mapped.
        let place = place_of(&self.snapshot.file)?;
        let file = open(&place)?;
        Arc::new(Snapshot::new(file, &place)?).contents()
    }

    /// The address of the region, in this process and in each of its tasks.
    #[must_use]
    pub fn base(&self) -> *const u8 {
        self.mapping.base().as_ptr()
    }

    /// The maximum size of the heap in bytes.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.snapshot.identity.max_bytes
    }

    /// The region's file, open for reading.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.snapshot.file.as_fd()
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Observer")
            .field("base", &self.base())
            .finish_non_exhaustive()
    }
}
