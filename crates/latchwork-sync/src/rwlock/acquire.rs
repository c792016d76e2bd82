//! The calls that acquire a reader/writer lock.

use super::Preference;
use super::guard::{ReadGuard, WriteGuard};
use super::lock::RwLock;
use crate::mutex::{Unfinished, WaitMode};
use crate::sharing::Sharing;
use crate::time::Deadline;

/// The five calls that acquire a lock to read, or to write.
macro_rules! calls {
    (
        $Guard:ident $writes:literal $to:literal, if $admits:literal:
        $enter:ident $try_enter:ident $enter_until:ident $enter_for:ident $enter_interruptible:ident
    ) => {
        #[doc = concat!("Acquires the lock to ", $to, ". Waits without a limit.")]
        #[inline]
        #[track_caller]
        pub fn $enter(&self) -> $Guard<'_, T, S, P> {
            // Only success ends an endless wait.
            let _ = self.raw.enter_observed::<$writes>(WaitMode::FOREVER);
            $Guard::new(self)
        }

        #[doc = concat!("Acquires the lock to ", $to, ", if ", $admits, " at this moment.")]
        #[inline]
        #[track_caller]
        pub fn $try_enter(&self) -> Option<$Guard<'_, T, S, P>> {
            self.raw.try_enter_observed::<$writes>().then(|| $Guard::new(self))
        }

        #[doc = concat!("Acquires the lock to ", $to, ", or returns `None` once `deadline` has passed.")]
        #[inline]
        #[track_caller]
        pub fn $enter_until(&self, deadline: Deadline) -> Option<$Guard<'_, T, S, P>> {
            let taken = self.raw.enter_observed::<$writes>(WaitMode::until(Some(deadline)));
            taken.is_ok().then(|| $Guard::new(self))
        }

        #[doc = concat!("Acquires the lock to ", $to, ", or returns `None` after `timeout`.")]
        #[cfg(not(loom))]
        #[inline]
        #[track_caller]
        pub fn $enter_for(&self, timeout: core::time::Duration) -> Option<$Guard<'_, T, S, P>> {
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
        pub fn $enter_interruptible(&self, deadline: Option<Deadline>) -> Result<$Guard<'_, T, S, P>, Unfinished> {
            self.raw.enter_observed::<$writes>(WaitMode::interruptible(deadline))?;
            Ok($Guard::new(self))
        }
    };
}

impl<T: ?Sized, S: Sharing, P: Preference> RwLock<T, S, P> {
    calls!(ReadGuard false "read", if "readers may enter": read try_read read_until read_for read_interruptible);
    calls!(WriteGuard true "write", if "it is free": write try_write write_until write_for write_interruptible);
}
