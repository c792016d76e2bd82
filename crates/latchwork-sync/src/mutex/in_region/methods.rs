//! The calls of a mutex that is a region lock.
//!
//! A lock whose data may move (`T: Unpin`) is used through a plain reference, and one whose data must stay where it is
//! through a pinned one. The methods have the same names. Since a type can have each name once, those for plain
//! references belong to [`Movable`], to which the mutex dereferences.
#![allow(unsafe_code)]

use super::guard::{LockError, OwnerDied, RegionGuard, lock_of};
use super::{InRegion, RegionProtocol, membership};
use crate::hook::{ByFeature, Observer, Site};
use crate::mutex::{
    Acquired, Mutex, Throughput, WaitMode, WaitWake, constructors, exclusive_access, lock_reporting,
};
use crate::sharing::Shared;
use crate::time::Deadline;
use crate::torn_safe;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::pin::Pin;

pub(super) type LockResult<'a, T, P> = Result<RegionGuard<'a, T, P>, LockError<'a, T, P>>;

constructors! {
    /// An unlocked mutex for a region: see [`InRegion`](crate::mutex::InRegion).
    in_region: InRegion;
    /// An unlocked mutex for a region, for short critical sections and many tasks: see
    /// [`InRegion`](crate::mutex::InRegion).
    ///
    /// ```
    /// use latchwork::mutex::Mutex;
    /// use latchwork::region::RegionOptions;
    ///
    /// let region = RegionOptions::new().create_anonymous()?;
    /// let hits = region.object("hits", || Mutex::in_region_throughput(0_u64))?;
    /// *hits.lock()? += 1;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    in_region_throughput: InRegion<Throughput<Shared>>;
}

/// A mutex of a region as it is used through a plain reference: its data may move.
#[repr(transparent)]
pub struct Movable<T: ?Sized, P: RegionProtocol = WaitWake<Shared>>(Mutex<T, InRegion<P>>);

impl<T: ?Sized, P: RegionProtocol> Deref for Mutex<T, InRegion<P>> {
    type Target = Movable<T, P>;
    #[inline(always)]
    fn deref(&self) -> &Movable<T, P> {
        // SAFETY: the type is transparent.
        unsafe { &*(core::ptr::from_ref(self) as *const Movable<T, P>) }
    }
}

macro_rules! lock_calls {
    ($($receiver:tt)*) => {
        /// Acquires the lock; the calling task sleeps as long as a living task holds it.
        ///
        /// # Errors
        /// See [`LockError`]; `WouldBlock`, `TimedOut` and `Interrupted` do not occur.
        #[inline]
        #[track_caller]
        pub fn lock(self: $($receiver)*) -> LockResult<'_, T, P> {
            self.plain().lock_with(WaitMode::FOREVER)
        }

        /// Acquires the lock if it is free at this moment, or its owner is dead.
        ///
        /// # Errors
        /// See [`LockError`]; `TimedOut` and `Interrupted` do not occur.
        #[inline]
        #[track_caller]
        pub fn try_lock(self: $($receiver)*) -> LockResult<'_, T, P> {
            self.plain().lock_with(WaitMode::TRY)
        }

        /// Acquires the lock, or fails once `deadline` has passed.
        ///
        /// # Errors
        /// See [`LockError`]; `WouldBlock` and `Interrupted` do not occur.
        #[inline]
        #[track_caller]
        pub fn lock_until(self: $($receiver)*, deadline: Deadline) -> LockResult<'_, T, P> {
            self.plain().lock_with(WaitMode::until(Some(deadline)))
        }

        /// Acquires the lock, or fails after `timeout`.
        ///
        /// # Errors
        /// See [`LockError`]; `WouldBlock` and `Interrupted` do not occur.
        #[cfg(not(loom))]
        #[track_caller]
        pub fn lock_for(self: $($receiver)*, timeout: core::time::Duration) -> LockResult<'_, T, P> {
            self.lock_until(Deadline::after(timeout))
        }

        /// Acquires the lock, unless `deadline` passes, if there is one, or a signal handler runs in this thread while
        /// it sleeps, with `SA_RESTART` or without.
        ///
        /// # Errors
        /// See [`LockError`]; `WouldBlock` does not occur.
        #[inline]
        #[track_caller]
        pub fn lock_interruptible(self: $($receiver)*, deadline: Option<Deadline>) -> LockResult<'_, T, P> {
            self.plain().lock_with(WaitMode::interruptible(deadline))
        }
    };
}

impl<T: Unpin + ?Sized, P: RegionProtocol> Movable<T, P> {
    lock_calls!(&Self);
}

impl<T: ?Sized, P: RegionProtocol> Movable<T, P> {
    #[inline(always)]
    fn plain(&self) -> &Mutex<T, InRegion<P>> {
        &self.0
    }
}

impl<T: ?Sized, P: RegionProtocol> Mutex<T, InRegion<P>> {
    lock_calls!(Pin<&Self>);

    #[inline(always)]
    fn plain(self: Pin<&Self>) -> &Self {
        self.get_ref()
    }

    /// The mutex is pinned, or `T` is `Unpin`.
    #[inline(always)]
    #[track_caller]
    fn lock_with(&self, wait_mode: WaitMode) -> LockResult<'_, T, P> {
        if ByFeature::IS_ON {
            return self.lock_checked(wait_mode, Site::caller());
        }
        match self.raw.acquire_free() {
            Some(owner) => Ok(RegionGuard::new(self, owner)),
            None => self.lock_slowly(wait_mode),
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, wait_mode: WaitMode) -> LockResult<'_, T, P> {
        match self.raw.acquire_slowly(wait_mode) {
            Ok((Acquired::Clean, owner)) => Ok(RegionGuard::new(self, owner)),
            Ok((Acquired::OwnerDied, owner)) => {
                membership::after_marked_death(core::ptr::from_ref(self).cast::<u8>().addr());
                let died = OwnerDied::new(RegionGuard::new(self, owner));
                Err(LockError::OwnerDied(died))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// As [`Self::lock_with`], and reports each step to the checker.
    fn lock_checked(&self, wait_mode: WaitMode, site: Site) -> LockResult<'_, T, P> {
        lock_reporting::<ByFeature, _, _>(lock_of(&self.raw), wait_mode, site, |wait_mode| {
            self.lock_slowly(wait_mode)
        })
    }
}

exclusive_access!({P: RegionProtocol} InRegion<P>, "died or panicked, or has forgotten its guard");
