//! Waits with recursive mutexes, with robust ones, and with region locks.

use super::Waited;
use super::variable::Condvar;
use crate::mutex::{
    LockError, Protocol, RecursiveGuard, RegionGuard, RegionProtocol, RobustGuard, RobustProtocol,
    SleepPlace, in_region,
};
use crate::sharing::Sharing;
use crate::time::Deadline;
use core::ptr;
use core::time::Duration;

type Taken<'a, T, P> = Result<RobustGuard<'a, T, P>, LockError<'a, T, P>>;

type TakenInRegion<'a, T, P> = Result<RegionGuard<'a, T, P>, in_region::LockError<'a, T, P>>;

impl<S: Sharing> Condvar<S> {
    /// As [`Condvar::wait`], with a recursive mutex that this task has locked once.
    ///
    /// Aborts if the task has locked it more than once: the other guards would be left without the mutex.
    pub fn wait_recursive<'a, T: ?Sized, P: Protocol>(
        &self,
        guard: RecursiveGuard<'a, T, P>,
    ) -> P::Outcome<RecursiveGuard<'a, T, P>> {
        let waited = self.wait_recursive_inner(guard, None);
        P::outcome(waited.map(|(guard, _)| guard))
    }

    /// As [`Condvar::wait_until`], with a recursive mutex that this task has locked once.
    ///
    /// Aborts as [`Self::wait_recursive`].
    pub fn wait_recursive_until<'a, T: ?Sized, P: Protocol>(
        &self,
        guard: RecursiveGuard<'a, T, P>,
        deadline: Deadline,
    ) -> P::Outcome<(RecursiveGuard<'a, T, P>, Waited)> {
        P::outcome(self.wait_recursive_inner(guard, Some(deadline)))
    }

    /// As [`Condvar::wait_for`], with a recursive mutex that this task has locked once.
    ///
    /// Aborts as [`Self::wait_recursive`].
    pub fn wait_recursive_for<'a, T: ?Sized, P: Protocol>(
        &self,
        guard: RecursiveGuard<'a, T, P>,
        timeout: Duration,
    ) -> P::Outcome<(RecursiveGuard<'a, T, P>, Waited)> {
        self.wait_recursive_until(guard, Deadline::after(timeout))
    }

    /// As [`Condvar::wait_while`], with a recursive mutex that this task has locked once.
    ///
    /// Aborts as [`Self::wait_recursive`].
    pub fn wait_recursive_while<'a, T: ?Sized, P: Protocol>(
        &self,
        mut guard: RecursiveGuard<'a, T, P>,
        mut condition: impl FnMut(&T) -> bool,
    ) -> P::Outcome<RecursiveGuard<'a, T, P>> {
        while condition(&guard) {
            guard = match self.wait_recursive_inner(guard, None) {
                Ok((guard, _)) => guard,
                Err(fault) => return P::outcome(Err(fault)),
            };
        }
        P::outcome(Ok(guard))
    }

    fn wait_recursive_inner<'a, T: ?Sized, P: Protocol>(
        &self,
        guard: RecursiveGuard<'a, T, P>,
        deadline: Option<Deadline>,
    ) -> Result<(RecursiveGuard<'a, T, P>, Waited), P::Fault> {
        let mutex = RecursiveGuard::only(&guard);
        let raw = mutex.raw();
        let address = ptr::from_ref(raw).cast();
        let release = || drop(guard);
        let (taken, waited) =
            self.pause(address, raw.sleep_place(), deadline, release, |arrival| {
                mutex.lock_again(arrival)
            });
        Ok((taken?, waited))
    }

    /// As [`Condvar::wait`], with a robust mutex.
    ///
    /// # Errors
    /// Those of the mutex: [`LockError::OwnerDied`] (with the mutex acquired) if an owner died meanwhile.
    pub fn wait_robust<'a, T: ?Sized, P: RobustProtocol>(
        &self,
        guard: RobustGuard<'a, T, P>,
    ) -> Taken<'a, T, P> {
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
        timeout: Duration,
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
    ) -> Taken<'a, T, P> {
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

    /// As [`Condvar::wait`], with a region lock.
    ///
    /// # Errors
    /// Those of the lock: [`OwnerDied`](in_region::LockError::OwnerDied) (with the lock acquired) if an owner died
    /// meanwhile.
    pub fn wait_in_region<'a, T: ?Sized, P: RegionProtocol>(
        &self,
        guard: RegionGuard<'a, T, P>,
    ) -> TakenInRegion<'a, T, P> {
        self.wait_in_region_inner(guard, None).0
    }

    /// As [`Condvar::wait_until`], with a region lock.
    ///
    /// # Errors
    /// As for [`Self::wait_in_region`].
    pub fn wait_in_region_until<'a, T: ?Sized, P: RegionProtocol>(
        &self,
        guard: RegionGuard<'a, T, P>,
        deadline: Deadline,
    ) -> Result<(RegionGuard<'a, T, P>, Waited), in_region::LockError<'a, T, P>> {
        let (taken, waited) = self.wait_in_region_inner(guard, Some(deadline));
        Ok((taken?, waited))
    }

    /// As [`Condvar::wait_for`], with a region lock.
    ///
    /// # Errors
    /// As for [`Self::wait_in_region`].
    pub fn wait_in_region_for<'a, T: ?Sized, P: RegionProtocol>(
        &self,
        guard: RegionGuard<'a, T, P>,
        timeout: Duration,
    ) -> Result<(RegionGuard<'a, T, P>, Waited), in_region::LockError<'a, T, P>> {
        self.wait_in_region_until(guard, Deadline::after(timeout))
    }

    /// As [`Condvar::wait_while`], with a region lock. The condition only reads the data.
    ///
    /// # Errors
    /// As for [`Self::wait_in_region`]. Once the data is repaired, wait again: the condition is checked first.
    pub fn wait_in_region_while<'a, T: ?Sized, P: RegionProtocol>(
        &self,
        mut guard: RegionGuard<'a, T, P>,
        mut condition: impl FnMut(&T) -> bool,
    ) -> TakenInRegion<'a, T, P> {
        while condition(&guard) {
            guard = self.wait_in_region(guard)?;
        }
        Ok(guard)
    }

    fn wait_in_region_inner<'a, T: ?Sized, P: RegionProtocol>(
        &self,
        guard: RegionGuard<'a, T, P>,
        deadline: Option<Deadline>,
    ) -> (TakenInRegion<'a, T, P>, Waited) {
        let mutex = RegionGuard::mutex(&guard);
        let address = ptr::from_ref(mutex.get_ref()).cast();
        let release = || RegionGuard::release(guard);
        self.pause(address, SleepPlace::NONE, deadline, release, |_| {
            mutex.lock()
        })
    }
}
