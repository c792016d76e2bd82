//! The calls that acquire a reader/writer lock.

use super::Preference;
use super::guard::{ReadGuard, WriteGuard};
use super::lock::RwLock;
use super::trace::{Acquisition, Event};
use crate::mutex::throughput::Counting;
use crate::mutex::{Unfinished, WaitMode};
use crate::sharing::Sharing;
use crate::time::Deadline;

/// The six calls that acquire a lock to read, or to write.
macro_rules! calls {
    (
        $Guard:ident $writes:literal $to:literal, if $admits:literal:
        $enter:ident $enter_traced:ident $try_enter:ident $enter_until:ident $enter_for:ident $enter_interruptible:ident
    ) => {
        #[doc = concat!("Acquires the lock to ", $to, ". Waits without a limit.")]
        #[inline]
        #[track_caller]
        pub fn $enter(&self) -> $Guard<'_, T, S, P, C> {
            // Only success ends an endless wait.
            let _ = self.raw.enter_observed::<$writes>(WaitMode::FOREVER);
            $Guard::new(self)
        }

        #[doc = concat!("Acquires the lock to ", $to, ", as [`Self::", stringify!($enter), "`], and returns how the task entered.")]
        ///
        /// ```
        /// use latchwork::rwlock::{Entry, RwLock};
        ///
        /// let table = RwLock::new(1);
        #[doc = concat!("let (held, how) = table.", stringify!($enter_traced), "();")]
        /// assert_eq!((*held, how.entry, how.sleeps), (1, Entry::Free, 0));
        /// ```
        #[inline]
        #[track_caller]
        pub fn $enter_traced(&self) -> ($Guard<'_, T, S, P, C>, Acquisition) {
            let how = self.raw.enter_traced_observed::<$writes>();
            ($Guard::new(self), how)
        }

        #[doc = concat!("Acquires the lock to ", $to, ", if ", $admits, " at this moment.")]
        #[inline]
        #[track_caller]
        pub fn $try_enter(&self) -> Option<$Guard<'_, T, S, P, C>> {
            self.raw.try_enter_observed::<$writes>().then(|| $Guard::new(self))
        }

        #[doc = concat!("Acquires the lock to ", $to, ", or returns `None` once `deadline` has passed.")]
        #[inline]
        #[track_caller]
        pub fn $enter_until(&self, deadline: Deadline) -> Option<$Guard<'_, T, S, P, C>> {
            let taken = self.raw.enter_observed::<$writes>(WaitMode::until(Some(deadline)));
            taken.is_ok().then(|| $Guard::new(self))
        }

        #[doc = concat!("Acquires the lock to ", $to, ", or returns `None` after `timeout`.")]
        #[cfg(not(loom))]
        #[inline]
        #[track_caller]
        pub fn $enter_for(&self, timeout: core::time::Duration) -> Option<$Guard<'_, T, S, P, C>> {
            match self.$try_enter() {
                Some(guard) => Some(guard),
                None => self.$enter_until(Deadline::after(timeout)),
            }
        }

        #[doc = concat!("Acquires the lock to ", $to, ". Gives up at `deadline`, if there is one, and when a signal")]
        /// handler runs in this thread while it sleeps; see
        /// [`Mutex::lock_interruptible`](crate::mutex::Mutex::lock_interruptible).
        ///
        /// # Errors
        /// [`Unfinished`]: the lock is not acquired.
        #[inline]
        #[track_caller]
        pub fn $enter_interruptible(&self, deadline: Option<Deadline>) -> Result<$Guard<'_, T, S, P, C>, Unfinished> {
            self.raw.enter_observed::<$writes>(WaitMode::interruptible(deadline))?;
            Ok($Guard::new(self))
        }
    };
}

impl<T: ?Sized, S: Sharing, P: Preference, C: Counting<Event>> RwLock<T, S, P, C> {
    calls!(ReadGuard false "read", if "readers may enter": read read_traced try_read read_until read_for read_interruptible);
    calls!(WriteGuard true "write", if "it is free": write write_traced try_write write_until write_for write_interruptible);
}
