//! Descriptors that the checker keeps for reports. A program may close all descriptors that it finds, and get the same
//! numbers for files of its own.
#![allow(unsafe_code)]

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sys::introspect;
use std::os::fd::BorrowedFd;

/// A descriptor, and the file that it refers to: device and inode. Relaxed throughout: it is set before it is used.
pub(crate) struct ReportFd {
    /// The descriptor plus 1; 0 for none.
    descriptor: AtomicU32,
    file: [AtomicU64; 2],
}

impl ReportFd {
    pub(crate) const fn new() -> Self {
        Self {
            descriptor: AtomicU32::new(0),
            file: [const { AtomicU64::new(0) }; 2],
        }
    }

    pub(crate) fn keep(&self, descriptor: u32) {
        for (known, now) in self.file.iter().zip(introspect::identity(descriptor)) {
            known.store(now, Ordering::Relaxed);
        }
        self.descriptor.store(descriptor + 1, Ordering::Relaxed);
    }

    pub(crate) fn forget(&self) {
        self.descriptor.store(0, Ordering::Relaxed);
    }

    fn descriptor(&self) -> Option<u32> {
        self.descriptor.load(Ordering::Relaxed).checked_sub(1)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.descriptor().is_some()
    }

    /// Whether a descriptor refers to the file.
    fn is_at(&self, descriptor: u32) -> bool {
        let known = self
            .file
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        // Zeros mean that the descriptor is closed.
        known != [0; 2] && introspect::identity(descriptor) == known
    }

    /// The descriptor, if it still refers to the file.
    pub(crate) fn get(&self) -> Option<BorrowedFd<'static>> {
        self.descriptor().and_then(|descriptor| self.at(descriptor))
    }

    /// This descriptor, if it refers to the file.
    pub(crate) fn at(&self, descriptor: u32) -> Option<BorrowedFd<'static>> {
        // SAFETY: the descriptor is open: it refers to the file. It is the checker's own, which nothing closes but a
        // program that closes all that it finds, or the program's standard error; the borrow ends with the next write.
        self.is_at(descriptor)
            .then(|| unsafe { BorrowedFd::borrow_raw(descriptor.cast_signed()) })
    }
}
