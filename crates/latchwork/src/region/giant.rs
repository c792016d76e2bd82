//! One lock for a whole region, for comparison only: the cargo feature `giant-lock`.
//!
//! With it each operation on a semaphore, an event or a queue of a region takes this lock first and gives it up for as
//! long as it sleeps. All else stays as it is: rings for one sender and one receiver take no lock, with it or without.
//! It is not robust: a task that is killed inside leaves it locked, and an event must not be sent by a signal handler.
//! Without the feature nothing of this is there.

use super::Inner;

/// An operation is in progress.
pub(crate) struct Giant<'r> {
    #[cfg(feature = "giant-lock")]
    lock: &'r crate::mutex::WaitWake<crate::sharing::Shared>,
    #[cfg(not(feature = "giant-lock"))]
    region: core::marker::PhantomData<&'r Inner>,
}

impl Inner {
    /// An operation begins.
    #[inline(always)]
    pub(crate) fn giant(&self) -> Giant<'_> {
        #[cfg(feature = "giant-lock")]
        {
            use crate::mutex::RawLock;
            let lock = &self.header().giant;
            lock.lock();
            Giant { lock }
        }
        #[cfg(not(feature = "giant-lock"))]
        Giant {
            region: core::marker::PhantomData,
        }
    }

    /// Sleeps, in the midst of an operation.
    #[inline(always)]
    pub(crate) fn without_giant<T>(&self, sleep: impl FnOnce() -> T) -> T {
        #[cfg(feature = "giant-lock")]
        {
            use crate::mutex::RawLock;
            // SAFETY: the calling task is in an operation, which took the lock.
            #[allow(unsafe_code)]
            unsafe {
                self.header().giant.unlock();
            }
            let slept = sleep();
            self.header().giant.lock();
            slept
        }
        #[cfg(not(feature = "giant-lock"))]
        sleep()
    }
}

#[cfg(feature = "giant-lock")]
impl Drop for Giant<'_> {
    fn drop(&mut self) {
        use crate::mutex::RawLock;
        // SAFETY: taken when the operation began.
        #[allow(unsafe_code)]
        unsafe {
            self.lock.unlock();
        }
    }
}
