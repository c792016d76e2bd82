//! Reader/writer locks: many readers at a time, or one writer.
//!
//! | lock | size | if a holder dies | for |
//! | --- | --- | --- | --- |
//! | [`RwLock<T>`](RwLock) | 8 bytes | held for ever | threads of one process |
//! | [`RwLock<T, Shared>`](RwLock) | 8 bytes | held for ever | processes that cannot be killed, or that die together |
//! | [`RobustRwLock<T>`](RobustRwLock) | 64 bytes, and 64 for each reader at a time | a writer's death is reported to the next task; a dead reader's share is released | processes that can be killed at any moment |
//! | [`RegionRwLock<T>`](RegionRwLock) | the same | the same | the same, for data in a region; need not be pinned |
//!
//! Use one where critical sections are long, or readers many. For critical sections below a microsecond a
//! [`Mutex`](crate::mutex::Mutex) is as fast.
//!
//! *Preference* is a type, [`WritersFirst`] (the default) or [`ReadersFirst`]. It bounds for how long others may pass a
//! waiter: a task that has waited for [`Preference::STARVES_AFTER`] has its turn before all that come later, readers
//! and writers in alternation. (Starving readers enter together: a reader that came later may be the first of them.)
//!
//! *Reading while reading.* A task that acquires a read lock while it holds one waits for ever if a writer
//! waits in between: always under `WritersFirst`, after the threshold under `ReadersFirst`. A reader that waits
//! for another task to enter as a reader waits for ever in the same cases. `try_read` never waits. Writing
//! while reading, and reading while writing, always wait for ever. [`RobustRwLock`] and [`RegionRwLock`] report all of these as
//! [`LockError::Deadlock`], except where tasks wait for each other outside the lock.
//!
//! ```
//! use latchwork::rwlock::RwLock;
//!
//! let limits = RwLock::new([1, 2]);
//! {
//!     let (one, other) = (limits.read(), limits.read());
//!     assert_eq!(*one, *other);
//!     assert!(limits.try_write().is_none());
//! }
//! limits.write()[0] = 3;
//! ```
//!
//! *What a call did:* `read_traced` and `write_traced` return how the task entered, and how often it slept ([`Acquisition`]);
//! `unlock_traced`, of the guards, returns whether the unlock woke tasks, or handed the lock over ([`Released`]). A lock
//! that was made by `counted` counts these events ([`Event`]). A call that finds the lock free costs nothing more.

/// What a guard of a reader/writer lock does with its data: it lends `&T`.
macro_rules! lend {
    ({$($generics:tt)*} $Guard:ty) => {
        // SAFETY: a shared guard gives `&T` and nothing else.
        unsafe impl<T: ?Sized + Sync, $($generics)*> Sync for $Guard {}

        impl<T: ?Sized, $($generics)*> core::ops::Deref for $Guard {
            type Target = T;
            #[inline]
            fn deref(&self) -> &T {
                // SAFETY: the guard keeps writers out.
                unsafe { &*self.lock.data.get() }
            }
        }

        impl<T: ?Sized + core::fmt::Debug, $($generics)*> core::fmt::Debug for $Guard {
            fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                (**self).fmt(formatter)
            }
        }
    };
}

mod acquire;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod at_rest;
mod guard;
mod lock;
mod raw;
mod report;
pub(crate) mod robust;
mod trace;
#[cfg(not(loom))]
mod traits;

pub use self::guard::{ReadGuard, WriteGuard};
pub use self::lock::RwLock;
pub use self::raw::RawRwLock;
#[cfg(loom)]
pub(crate) use self::robust::{Entered, Part, RawRobust};
pub use self::robust::{
    LockError, Movable, OwnerDied, RegionRwLock, RobustReadGuard, RobustRwLock, RobustWriteGuard,
    SeatLock,
};
pub use self::trace::{Acquisition, Entry, Event, Released};
#[cfg(not(loom))]
pub use crate::mutex::throughput::Counters;
pub use crate::mutex::throughput::{Counting, Uncounted};

use core::time::Duration;

/// Which side a reader/writer lock prefers, and for how long. A program may implement its own:
///
/// ```
/// use core::time::Duration;
/// use latchwork::rwlock::{Preference, RwLock};
/// use latchwork::sharing::Private;
///
/// struct Patient;
/// impl Preference for Patient {
///     const READERS_FIRST: bool = true;
///     const STARVES_AFTER: Duration = Duration::from_millis(50);
/// }
/// static LOCK: RwLock<u32, Private, Patient> = RwLock::new_in(0);
/// ```
pub trait Preference: 'static {
    /// Whether readers that come while a writer waits enter before that writer.
    const READERS_FIRST: bool;
    /// How long others may pass a waiter. Much shorter values cost throughput when there are more tasks than
    /// CPUs: the time in which a task waits for its CPU counts as waiting.
    const STARVES_AFTER: Duration = Duration::from_millis(5);
}

/// A reader that comes while a writer waits has to wait, too.
#[derive(Debug)]
pub struct WritersFirst;

/// A writer waits until no reader holds the lock.
#[derive(Debug)]
pub struct ReadersFirst;

impl Preference for WritersFirst {
    const READERS_FIRST: bool = false;
}

impl Preference for ReadersFirst {
    const READERS_FIRST: bool = true;
}
