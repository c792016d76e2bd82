//! Waits with a recursive mutex.

use super::variable::Condvar;
use super::waited::Waited;
use crate::mutex::{Protocol, RecursiveGuard};
use crate::sharing::Sharing;
use crate::time::Deadline;
use core::ptr;

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
        timeout: core::time::Duration,
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
}
