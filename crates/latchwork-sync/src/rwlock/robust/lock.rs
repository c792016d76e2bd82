//! The robust reader/writer lock with its data. How it is acquired is in `acquire.rs`.
#![allow(unsafe_code)]

use super::raw::RawRobust;
use crate::atomic::const_unless_loom;
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::ManuallyDrop;

/// Data that many tasks may read at a time, or one may change, each of which may be killed at any instruction.
///
/// 64 bytes, and 64 for each of at most `READERS` readers that are inside at a time, beside the data; one more reader
/// waits. The lock must not move while it is in use, hence the pinned methods; see [`Robust`](crate::mutex::Robust). Processes share it in a region or another mapping.
///
/// The death of a writer, or its panic, is reported to the next task by
/// [`LockError::OwnerDied`](super::LockError::OwnerDied). That of a reader is detected by a task that waits for it, and
/// needs no report. Data that no task has repaired is not dropped with the lock.
///
/// ```
/// use core::pin::Pin;
/// use latchwork::rwlock::{LockError, RobustRwLock};
///
/// static LIMITS: RobustRwLock<[u32; 2]> = RobustRwLock::new([1, 9]);
/// let limits = Pin::static_ref(&LIMITS);
/// match limits.read() {
///     Ok(limits) => assert!(limits[0] <= limits[1]),
///     // A writer died; what it was doing is ours to find out, with the lock held to write.
///     Err(LockError::OwnerDied(died)) => {
///         let repaired = died.replace([1, 9]);
///         assert_eq!(repaired[0], 1);
///     }
///     Err(error) => panic!("{error}"),
/// }
/// ```
#[repr(C)]
pub struct RobustRwLock<T: ?Sized, const READERS: usize = 16> {
    pub(super) raw: RawRobust<READERS>,
    /// Dropped if it is not torn.
    pub(super) data: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: a writer has the data alone, and it may be on any thread: hence `T: Send`.
unsafe impl<T: ?Sized + Send, const READERS: usize> Send for RobustRwLock<T, READERS> {}
// SAFETY: readers on several threads share `&T` (`T: Sync`); a writer on any thread has `&mut T` (`T: Send`).
unsafe impl<T: ?Sized + Send + Sync, const READERS: usize> Sync for RobustRwLock<T, READERS> {}

impl<T, const READERS: usize> RobustRwLock<T, READERS> {
    const_unless_loom! {
        /// An unlocked lock, for threads and processes alike.
        ///
        /// A lock without seats (`READERS == 0`) does not compile.
        #[must_use]
        pub fn new(value: T) -> Self {
            Self { raw: RawRobust::new(), data: UnsafeCell::new(ManuallyDrop::new(value)) }
        }
    }
}

impl<T: ?Sized, const READERS: usize> Drop for RobustRwLock<T, READERS> {
    fn drop(&mut self) {
        if !self.raw.is_torn() {
            // SAFETY: the data is not torn, and is not used after this.
            unsafe { ManuallyDrop::drop(self.data.get_mut()) };
        }
    }
}

impl<T: ?Sized, const READERS: usize> fmt::Debug for RobustRwLock<T, READERS> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seats = self.raw.seats.iter();
        formatter
            .debug_struct("RobustRwLock")
            .field("writer", &self.raw.gate.owner())
            .field("readers", &seats.filter_map(|seat| seat.0.owner()).count())
            .finish_non_exhaustive()
    }
}
