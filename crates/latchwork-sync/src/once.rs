//! Once: an initialisation that runs once, in the first task that needs it, and again in another task if that one dies.
//!
//! For something that is created at its first use, in a region for instance: [`Once::call`] runs its function
//! unless this or another task's call has already completed.
//!
//! ```
//! use core::pin::Pin;
//! use latchwork::once::Once;
//!
//! static ONCE: Once = Once::new();
//! let mut runs = 0;
//! for _ in 0..3 {
//!     Pin::static_ref(&ONCE).call(|| runs += 1)?;
//! }
//! assert_eq!(runs, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! | `done` | meaning | changed by |
//! | --- | --- | --- |
//! | 0 | not done, or under way | initially |
//! | 1 | done | the initialising task, with Release, under the lock |
//!
//! The initialising task holds a robust lock. If it dies or panics, the next task acquires the lock as
//! inconsistent, finds `done` at 0, and runs the initialisation again. *Orderings:* the Release of `done` pairs
//! with the Acquire of the fast path. *Cost, done:* one load.

use crate::atomic::{AtomicU32, Ordering};
use crate::mutex::{LockError, Mutex, Robust};
use core::pin::Pin;

/// An initialisation that survives the death of the task that runs it, for threads and processes: see the
/// [module](self).
///
/// 48 bytes; it must not move: static, in a region, or pinned. (For threads alone, std's is smaller.)
#[derive(Debug)]
#[repr(C)]
pub struct Once {
    done: AtomicU32,
    lock: Mutex<(), Robust>,
}

/// Why an initialisation could not be run or waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OnceError {
    /// The initialisation calls itself.
    #[error("the initialisation was called from inside itself")]
    Recursive,
    /// The thread cannot own robust locks, or holds too many.
    #[error("the calling thread cannot take the lock of the initialisation")]
    Unavailable,
}

impl Once {
    /// An initialisation that is not done yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            done: AtomicU32::new(0),
            lock: Mutex::robust(()),
        }
    }

    /// Whether the initialisation is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        // Acquire: pairs with the Release in `run`.
        self.done.load(Ordering::Acquire) != 0
    }

    /// Runs `initialise` unless it is done; returns when it is done. If the task that runs it dies or panics,
    /// one of the waiting tasks runs its own.
    ///
    /// # Errors
    /// See [`OnceError`].
    #[inline]
    pub fn call(self: Pin<&Self>, initialise: impl FnOnce()) -> Result<(), OnceError> {
        if self.is_done() {
            Ok(())
        } else {
            self.run(initialise)
        }
    }

    #[cold]
    fn run(self: Pin<&Self>, initialise: impl FnOnce()) -> Result<(), OnceError> {
        let _held = match self.lock().lock() {
            Ok(held) => held,
            Err(LockError::OwnerDied(died)) => died.make_consistent(),
            Err(LockError::Deadlock) => return Err(OnceError::Recursive),
            Err(_) => return Err(OnceError::Unavailable),
        };
        if !self.is_done() {
            initialise();
            self.done.store(1, Ordering::Release);
        }
        Ok(())
    }

    #[allow(unsafe_code)]
    fn lock(self: Pin<&Self>) -> Pin<&Mutex<(), Robust>> {
        // SAFETY: the lock is pinned with its `Once`; no method moves it.
        unsafe { self.map_unchecked(|this| &this.lock) }
    }
}

impl Default for Once {
    fn default() -> Self {
        Self::new()
    }
}
