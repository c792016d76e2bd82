//! The calls that acquire a robust reader/writer lock.
#![allow(unsafe_code)]

use super::error::LockError;
use super::guard::{RobustReadGuard, RobustWriteGuard};
use super::lock::RobustRwLock;
use super::owner_died::OwnerDied;
use super::parts::SeatLock;
use super::raw::Entered;
use crate::mutex::throughput::Counting;
use crate::mutex::{Acquired, Pinned, Robust, Unpinned, WaitMode, methods_of_unpinned};
use crate::rwlock::trace::{Acquisition, Event};
use crate::task;
use crate::time::Deadline;
use crate::torn_safe;
use core::ops::Deref;
use core::pin::Pin;

pub(super) type ReadResult<'a, T, const READERS: usize, C, K> =
    Result<RobustReadGuard<'a, T, READERS, C, K>, LockError<'a, T, READERS, C, K>>;
pub(super) type WriteResult<'a, T, const READERS: usize, C, K> =
    Result<RobustWriteGuard<'a, T, READERS, C, K>, LockError<'a, T, READERS, C, K>>;
/// A guard, and how the task entered.
pub(super) type Traced<'a, G, T, const READERS: usize, C, K> =
    Result<(G, Acquisition), LockError<'a, T, READERS, C, K>>;

/// The six calls that acquire a lock to read, or to write.
macro_rules! robust_calls {
    (
        $Result:ident $Guard:ident $with:ident $with_trace:ident $to:literal, while $sleeps:literal:
        $enter:ident $enter_traced:ident $try_enter:ident $enter_until:ident $enter_for:ident $enter_interruptible:ident
    ) => {
        #[doc = concat!("Acquires the lock to ", $to, ". Sleeps while ", $sleeps, ".")]
        ///
        /// # Errors
        /// See [`LockError`]; `WouldBlock`, `TimedOut` and `Interrupted` do not occur.
        #[inline]
        pub fn $enter(self: Pin<&Self>) -> $Result<'_, T, READERS, C, K> {
            self.get_ref().$with(WaitMode::FOREVER)
        }

        #[doc = concat!("Acquires the lock to ", $to, ", as [`Self::", stringify!($enter), "`], and returns how the task entered.")]
        ///
        /// ```
        /// use core::pin::pin;
        /// use latchwork::rwlock::{Entry, RobustRwLock};
        ///
        /// let table = pin!(RobustRwLock::<_>::new(1));
        #[doc = concat!("let (held, how) = table.as_ref().", stringify!($enter_traced), "()?;")]
        /// assert_eq!((*held, how.entry, how.sleeps), (1, Entry::Free, 0));
        /// # drop(held);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        ///
        /// # Errors
        #[doc = concat!("As of [`Self::", stringify!($enter), "`]. A lock that is taken from a dead writer comes without the account.")]
        pub fn $enter_traced(self: Pin<&Self>) -> Traced<'_, $Guard<'_, T, READERS, C, K>, T, READERS, C, K> {
            self.get_ref().$with_trace(WaitMode::FOREVER)
        }

        #[doc = concat!("Acquires the lock to ", $to, ", if that is possible at this moment.")]
        ///
        /// # Errors
        /// See [`LockError`]; `TimedOut` and `Interrupted` do not occur.
        #[inline]
        pub fn $try_enter(self: Pin<&Self>) -> $Result<'_, T, READERS, C, K> {
            self.get_ref().$with(WaitMode::TRY)
        }

        #[doc = concat!("Acquires the lock to ", $to, ", or fails once `deadline` has passed.")]
        ///
        /// # Errors
        /// See [`LockError`]; `WouldBlock` and `Interrupted` do not occur.
        #[inline]
        pub fn $enter_until(self: Pin<&Self>, deadline: Deadline) -> $Result<'_, T, READERS, C, K> {
            self.get_ref().$with(WaitMode::until(Some(deadline)))
        }

        #[doc = concat!("Acquires the lock to ", $to, ", or fails after `timeout`.")]
        ///
        /// # Errors
        #[doc = concat!("As for [`Self::", stringify!($enter_until), "`].")]
        #[cfg(not(loom))]
        pub fn $enter_for(self: Pin<&Self>, timeout: core::time::Duration) -> $Result<'_, T, READERS, C, K> {
            self.$enter_until(Deadline::after(timeout))
        }

        #[doc = concat!("Acquires the lock to ", $to, ". Fails at `deadline`, if there is one, and when a signal")]
        /// handler runs in this thread while it sleeps; see
        /// [`Mutex::lock_interruptible`](crate::mutex::Mutex#method.lock_interruptible).
        ///
        /// # Errors
        /// See [`LockError`]; `WouldBlock` does not occur.
        #[inline]
        pub fn $enter_interruptible(self: Pin<&Self>, deadline: Option<Deadline>) -> $Result<'_, T, READERS, C, K> {
            self.get_ref().$with(WaitMode::interruptible(deadline))
        }
    };
}

impl<T: ?Sized, const READERS: usize, C: Counting<Event>, K: SeatLock>
    RobustRwLock<T, READERS, C, K>
{
    robust_calls!(
        ReadResult RobustReadGuard read_with read_with_trace "read",
        while "a living writer holds it or waits for it, and while all seats are taken":
        read read_traced try_read read_until read_for read_interruptible
    );
    robust_calls!(
        WriteResult RobustWriteGuard write_with write_with_trace "write", while "another living task holds it":
        write write_traced try_write write_until write_for write_interruptible
    );

    /// Makes a lock whose writer died, or that was given up, usable again with new data; torn data is not
    /// dropped. An exclusive reference proves that no task uses the lock.
    pub fn reset(self: Pin<&mut Self>, value: T)
    where
        T: Sized,
    {
        // SAFETY: nothing is moved out. Whole data is dropped in its place before the new data is written there; torn
        // data that was ever pinned is `Relocatable`, and need not be dropped.
        let this = unsafe { self.get_unchecked_mut() };
        if this.raw.is_torn() {
            let place: *mut T = &raw mut **this.data.get_mut();
            // SAFETY: `&mut self` gives the place to this task; `overwrite` does not drop the bytes there, which
            // may be no value of `T`.
            unsafe { torn_safe::overwrite(place, value) };
        } else {
            **this.data.get_mut() = value;
        }
        this.raw.make_whole();
    }

    /// The stamp of the calling task, after it has acquired the lock.
    fn stamp(&self) -> K::Owner {
        K::stamp(self.raw.gate()).unwrap_or_else(|| {
            crate::fatal(format_args!("a reader/writer lock's owner is unknown"))
        })
    }

    // In all that follows the lock is pinned, or its parts and its data may move.

    #[inline(always)]
    pub(super) fn read_with(&self, wait_mode: WaitMode) -> ReadResult<'_, T, READERS, C, K> {
        // SAFETY: a lock that must be pinned is, and each `Robust` aborts if it is dropped while locked.
        match unsafe { self.raw.read_free() } {
            Some((seat, owner)) => Ok(RobustReadGuard::new(self, seat, owner)),
            None => self.read_slowly(wait_mode),
        }
    }

    #[cold]
    #[inline(never)]
    fn read_slowly(&self, wait_mode: WaitMode) -> ReadResult<'_, T, READERS, C, K> {
        self.read_slowly_with_trace(wait_mode)
            .map(|(guard, _)| guard)
    }

    pub(super) fn read_with_trace(
        &self,
        wait_mode: WaitMode,
    ) -> Traced<'_, RobustReadGuard<'_, T, READERS, C, K>, T, READERS, C, K> {
        // SAFETY: a lock that must be pinned is, and each `Robust` aborts if it is dropped while locked.
        match unsafe { self.raw.read_free() } {
            Some((seat, owner)) => {
                let guard = RobustReadGuard::new(self, seat, owner);
                Ok((guard, Acquisition::FREE))
            }
            None => self.read_slowly_with_trace(wait_mode),
        }
    }

    fn read_slowly_with_trace(
        &self,
        wait_mode: WaitMode,
    ) -> Traced<'_, RobustReadGuard<'_, T, READERS, C, K>, T, READERS, C, K> {
        let lock = self;
        // SAFETY: a lock that must be pinned is, and each `Robust` aborts if it is dropped while locked.
        match unsafe { lock.raw.read(wait_mode) } {
            Ok((Entered::Reading(seat), how)) => {
                Ok((RobustReadGuard::new(lock, seat, lock.stamp()), how))
            }
            Ok((Entered::Torn, _)) => Err(lock.owner_died()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn write_with(&self, wait_mode: WaitMode) -> WriteResult<'_, T, READERS, C, K> {
        let lock = self;
        // SAFETY: a lock that must be pinned is, and each `Robust` aborts if it is dropped while locked.
        match unsafe { lock.raw.write(wait_mode) } {
            Ok(Acquired::Clean) => Ok(RobustWriteGuard::new(lock, lock.stamp())),
            Ok(Acquired::OwnerDied) => Err(lock.owner_died()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn write_with_trace(
        &self,
        wait_mode: WaitMode,
    ) -> Traced<'_, RobustWriteGuard<'_, T, READERS, C, K>, T, READERS, C, K> {
        let lock = self;
        // SAFETY: a lock that must be pinned is, and each `Robust` aborts if it is dropped while locked.
        match unsafe { lock.raw.write_traced(wait_mode) } {
            Ok((Acquired::Clean, how)) => Ok((RobustWriteGuard::new(lock, lock.stamp()), how)),
            Ok((Acquired::OwnerDied, _)) => Err(lock.owner_died()),
            Err(error) => Err(error.into()),
        }
    }

    /// The error for a lock that the calling task holds to write.
    fn owner_died(&self) -> LockError<'_, T, READERS, C, K> {
        task::after_owner_death(core::ptr::from_ref(self).cast::<u8>().addr());
        LockError::OwnerDied(OwnerDied::new(RobustWriteGuard::new(self, self.stamp())))
    }
}

/// The compiler's message for a lock that is used through a plain reference: see [`Pinned`].
#[allow(clippy::missing_errors_doc)]
impl<'a, T: ?Sized, const READERS: usize, C: Counting<Event>> Unpinned<RobustRwLock<T, READERS, C>>
where
    T: 'a,
{
    methods_of_unpinned! {
        read() -> ReadResult<'a, T, READERS, C, Robust>;
        try_read() -> ReadResult<'a, T, READERS, C, Robust>;
        read_until(deadline: Deadline) -> ReadResult<'a, T, READERS, C, Robust>;
        write() -> WriteResult<'a, T, READERS, C, Robust>;
        try_write() -> WriteResult<'a, T, READERS, C, Robust>;
        write_until(deadline: Deadline) -> WriteResult<'a, T, READERS, C, Robust>;
        read_interruptible(deadline: Option<Deadline>) -> ReadResult<'a, T, READERS, C, Robust>;
        write_interruptible(deadline: Option<Deadline>) -> WriteResult<'a, T, READERS, C, Robust>;
        #[cfg(not(loom))]
        read_for(timeout: core::time::Duration) -> ReadResult<'a, T, READERS, C, Robust>;
        #[cfg(not(loom))]
        write_for(timeout: core::time::Duration) -> WriteResult<'a, T, READERS, C, Robust>;
    }
}

/// Not for use: see [`Pinned`].
#[doc(hidden)]
impl<T: ?Sized, const READERS: usize, C: Counting<Event>> Deref for RobustRwLock<T, READERS, C> {
    type Target = Unpinned<Self>;
    fn deref(&self) -> &Unpinned<Self> {
        Unpinned::of(self)
    }
}
