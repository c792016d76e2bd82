//! Descriptors that the checker keeps for reports. A program may close all descriptors that it finds, and get the same
//! numbers for files of its own.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sys::introspect as look;

/// A descriptor, and the file that it refers to: device and inode. Relaxed throughout: it is set before it is used.
pub(super) struct Kept {
    /// The descriptor plus 1; 0 for none.
    descriptor: AtomicU32,
    file: [AtomicU64; 2],
}

impl Kept {
    pub(super) const fn new() -> Self {
        Self {
            descriptor: AtomicU32::new(0),
            file: [const { AtomicU64::new(0) }; 2],
        }
    }

    pub(super) fn keep(&self, descriptor: u32) {
        for (known, now) in self.file.iter().zip(look::identity(descriptor)) {
            known.store(now, Ordering::Relaxed);
        }
        self.descriptor.store(descriptor + 1, Ordering::Relaxed);
    }

    pub(super) fn forget(&self) {
        self.descriptor.store(0, Ordering::Relaxed);
    }

    fn descriptor(&self) -> Option<u32> {
        self.descriptor.load(Ordering::Relaxed).checked_sub(1)
    }

    pub(super) fn is_set(&self) -> bool {
        self.descriptor().is_some()
    }

    /// Whether a descriptor refers to the file.
    pub(super) fn is_at(&self, descriptor: u32) -> bool {
        let known = self
            .file
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        // Zeros mean that the descriptor is closed.
        known != [0; 2] && look::identity(descriptor) == known
    }

    /// The descriptor, if it still refers to the file.
    pub(super) fn get(&self) -> Option<u32> {
        self.descriptor()
            .filter(|descriptor| self.is_at(*descriptor))
    }
}
