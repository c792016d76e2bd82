//! Waits with a robust mutex.

use super::variable::Condvar;
use super::waited::Waited;
use crate::mutex::{LockError, RobustGuard, RobustProtocol, SleepPlace};
use crate::sharing::Sharing;
use crate::time::Deadline;
use core::ptr;

type Taken<'a, T, P> = Result<RobustGuard<'a, T, P>, LockError<'a, T, P>>;

impl<S: Sharing> Condvar<S> {
    /// As [`Condvar::wait`], with a robust mutex.
    ///
    /// # Errors
    /// Those of the mutex: [`LockError::OwnerDied`] (with the mutex acquired) if an owner died meanwhile.
    pub fn wait_robust<'a, T: ?Sized, P: RobustProtocol>(
        &self,
        guard: RobustGuard<'a, T, P>,
    ) -> Result<RobustGuard<'a, T, P>, LockError<'a, T, P>> {
        self.wait_robust_inner(guard, None).0
    }

    /// As [`Condvar::wait_until`], with a robust mutex.
    ///
    /// # Errors
    /// As for [`Self::wait_robust`].
    pub fn wait_robust_until<'a, T: ?Sized, P: RobustProtocol>(
        &self,
        guard: RobustGuard<'a, T, P>,
        deadline: Deadline,
    ) -> Result<(RobustGuard<'a, T, P>, Waited), LockError<'a, T, P>> {
        let (taken, waited) = self.wait_robust_inner(guard, Some(deadline));
        Ok((taken?, waited))
    }

    /// As [`Condvar::wait_for`], with a robust mutex.
    ///
    /// # Errors
    /// As for [`Self::wait_robust`].
    pub fn wait_robust_for<'a, T: ?Sized, P: RobustProtocol>(
        &self,
        guard: RobustGuard<'a, T, P>,
        timeout: core::time::Duration,
    ) -> Result<(RobustGuard<'a, T, P>, Waited), LockError<'a, T, P>> {
        self.wait_robust_until(guard, Deadline::after(timeout))
    }

    /// As [`Condvar::wait_while`], with a robust mutex. The condition only reads the data: data that is not `Unpin`
    /// must not be lent as a `&mut T`.
    ///
    /// # Errors
    /// As for [`Self::wait_robust`]. Once the data is repaired, wait again: the condition is checked first.
    pub fn wait_robust_while<'a, T: ?Sized, P: RobustProtocol>(
        &self,
        mut guard: RobustGuard<'a, T, P>,
        mut condition: impl FnMut(&T) -> bool,
    ) -> Result<RobustGuard<'a, T, P>, LockError<'a, T, P>> {
        while condition(&guard) {
            guard = self.wait_robust(guard)?;
        }
        Ok(guard)
    }

    fn wait_robust_inner<'a, T: ?Sized, P: RobustProtocol>(
        &self,
        guard: RobustGuard<'a, T, P>,
        deadline: Option<Deadline>,
    ) -> (Taken<'a, T, P>, Waited) {
        let mutex = RobustGuard::mutex(&guard);
        let address = ptr::from_ref(mutex.get_ref()).cast();
        let release = || RobustGuard::release(guard);
        self.pause(address, SleepPlace::NONE, deadline, release, |_| {
            mutex.lock()
        })
    }
}
