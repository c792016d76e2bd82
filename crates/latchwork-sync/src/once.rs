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
//! | once | size | to be used | the task that runs it is named by |
//! | --- | --- | --- | --- |
//! | [`Once`] | 48 bytes | pinned, in any memory | its thread ID; the kernel finds it as the task dies |
//! | [`RegionOnce`] | 16 bytes | in a region | its slot in the region's task table |
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
//! with the Acquire of the fast path. *Cost, done:* one load. *Checked by:* `tests/primitives.rs`, and
//! `tests/kill_meetings.rs` (kills at each instruction).

use crate::atomic::{AtomicU32, Ordering};
use crate::mutex::at_rest::AtRest;
use crate::mutex::in_region::{self, NotATask};
use crate::mutex::{InRegion, LockError, Mutex, Robust};
use core::pin::Pin;

/// An initialisation that survives the death of the task that runs it, for threads and processes: see the
/// [module](self).
///
/// 48 bytes; it must not move: static, in a region, or pinned. (For threads alone, std's is smaller.)
/// [`RegionOnce`] is the kind that may move, for regions alone.
#[derive(Debug)]
#[repr(C)]
pub struct Once {
    done: Done,
    lock: Mutex<(), Robust>,
}

/// An initialisation in a region, which survives the death of the task that runs it.
///
/// 16 bytes, of which zero is "not done". It may move while no task runs it or has died in it, and need not be pinned. Its
/// lock is a region lock ([`InRegion`]): a thread becomes a task of the region by a call that finds it not done.
///
/// A panic of the initialisation counts as a death. In the child of a fork the parent's initialisation is that of another
/// task. A thread that ends inside leaves it to its process: another task runs it when that dies.
///
/// ```
/// use latchwork::once::RegionOnce;
/// use latchwork::region::RegionOptions;
///
/// let region = RegionOptions::new().create_anonymous()?;
/// let once = region.object("once", RegionOnce::in_region)?;
/// let mut runs = 0;
/// for _ in 0..3 {
///     once.call(|| runs += 1)?;
/// }
/// assert_eq!(runs, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[repr(C)]
pub struct RegionOnce {
    done: Done,
    lock: Mutex<(), InRegion>,
}

/// Whether the initialisation is done.
#[derive(Debug)]
#[repr(transparent)]
struct Done(AtomicU32);

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
    /// The thread is no task of the region that a [`RegionOnce`] lies in, and cannot become one.
    #[error(transparent)]
    NotATask(#[from] NotATask),
}

impl Done {
    const fn not_yet() -> Self {
        Self(AtomicU32::new(0))
    }

    fn is_set(&self) -> bool {
        // Acquire: pairs with the Release in `run`.
        self.0.load(Ordering::Acquire) != 0
    }

    /// Runs `initialise` unless it is done. `_held` is the lock, which is released after that; also by a panic, and
    /// then as inconsistent.
    fn run<H>(&self, _held: H, initialise: impl FnOnce()) {
        if !self.is_set() {
            initialise();
            self.0.store(1, Ordering::Release);
        }
    }
}

impl Once {
    /// An initialisation that is not done yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            done: Done::not_yet(),
            lock: Mutex::robust(()),
        }
    }

    /// Whether the initialisation is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done.is_set()
    }

    /// Runs `initialise` unless it is done; returns when it is done. If the task that runs it dies or panics,
    /// one of the waiting tasks runs its own.
    ///
    /// # Errors
    /// See [`OnceError`]; `NotATask` does not occur.
    #[inline]
    pub fn call(self: Pin<&Self>, initialise: impl FnOnce()) -> Result<(), OnceError> {
        if self.is_done() {
            Ok(())
        } else {
            self.call_slowly(initialise)
        }
    }

    #[cold]
    fn call_slowly(self: Pin<&Self>, initialise: impl FnOnce()) -> Result<(), OnceError> {
        let held = match self.lock().lock() {
            Ok(held) => held,
            Err(LockError::OwnerDied(died)) => {
                let held = died.make_consistent();
                crate::atomic::unless_disabled!(OnceRunsAgain, held, return Ok(()))
            }
            Err(LockError::Deadlock) => return Err(OnceError::Recursive),
            Err(_) => return Err(OnceError::Unavailable),
        };
        self.done.run(held, initialise);
        Ok(())
    }

    #[allow(unsafe_code)]
    fn lock(self: Pin<&Self>) -> Pin<&Mutex<(), Robust>> {
        // SAFETY: the lock is pinned with its `Once`; no method moves it.
        unsafe { self.map_unchecked(|this| &this.lock) }
    }
}

impl RegionOnce {
    /// An initialisation in a region that is not done yet: see [`RegionOnce`].
    #[must_use]
    pub const fn in_region() -> Self {
        Self {
            done: Done::not_yet(),
            lock: Mutex::in_region(()),
        }
    }

    /// Whether the initialisation is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done.is_set()
    }

    /// Runs `initialise` unless it is done; returns when it is done. If the task that runs it dies or panics,
    /// one of the waiting tasks runs its own.
    ///
    /// # Errors
    /// See [`OnceError`]; `Unavailable` does not occur.
    #[inline]
    pub fn call(&self, initialise: impl FnOnce()) -> Result<(), OnceError> {
        if self.is_done() {
            Ok(())
        } else {
            self.call_slowly(initialise)
        }
    }

    #[cold]
    fn call_slowly(&self, initialise: impl FnOnce()) -> Result<(), OnceError> {
        let held = match self.lock.lock() {
            Ok(held) => held,
            Err(in_region::LockError::OwnerDied(died)) => {
                let held = died.make_consistent();
                crate::atomic::unless_disabled!(RegionOnceRunsAgain, held, return Ok(()))
            }
            Err(in_region::LockError::Deadlock) => return Err(OnceError::Recursive),
            Err(in_region::LockError::Unavailable(reason)) => return Err(reason.into()),
            Err(_) => return Err(OnceError::Unavailable),
        };
        self.done.run(held, initialise);
        Ok(())
    }
}

impl Default for Once {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for RegionOnce {
    fn default() -> Self {
        Self::in_region()
    }
}

macro_rules! at_rest {
    ($($once:ty),*) => {$(
        impl crate::mutex::at_rest::sealed::Sealed for $once {}

        impl AtRest for $once {
            fn put_to_rest(&mut self) -> Result<(), &'static str> {
                self.lock.raw_mut().put_to_rest()
            }
        }
    )*};
}
at_rest!(Once, RegionOnce);
