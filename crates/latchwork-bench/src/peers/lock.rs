//! The traits of the measured locks.

use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;

use latchwork::mutex::KeptBoost;
use latchwork::region::Region;
use latchwork::time::Deadline;

use super::SharedPage;

/// A lock with a datum beside it.
pub(crate) trait Lock: Send + Sync + Sized + 'static {
    /// The right to use the datum; dropping it unlocks.
    type Held<'a>: DerefMut<Target = u64>;

    /// Size of the lock, without the datum.
    const BYTES: usize;
    /// Whether it is Latchwork's: its slow paths are counted for each thread.
    const OURS: bool = false;

    /// The region in which it must lie, if any.
    fn region() -> io::Result<Option<&'static Region>> {
        Ok(None)
    }

    /// Prepares it for use, at its final address.
    fn settle(self: Pin<&Self>) -> io::Result<()> {
        Ok(())
    }

    /// Prepares a task for the use of such locks, on its own thread: the result lives as long as the task uses them.
    fn enlist() -> io::Result<Option<KeptBoost>> {
        Ok(None)
    }

    /// Locks. Errors are ignored, or panic: [`check`](Self::check) has ensured that there are none.
    fn lock<'a>(self: Pin<&'a Self>) -> Self::Held<'a>;

    /// Locks and unlocks once, checking errors, on a thread like the one that is going to measure.
    fn check(self: Pin<&Self>) -> io::Result<()> {
        drop(self.lock());
        Ok(())
    }

    /// Its counters since it was made, if it has any.
    fn counts(self: Pin<&Self>) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Waits until `deadline` for a lock that another task holds; returns whether the deadline passed. If the lock was
    /// acquired, it is released.
    fn times_out(self: Pin<&Self>, _deadline: Deadline) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A reader/writer lock with a datum beside it.
pub(crate) trait RwLock: Send + Sync + Sized + 'static {
    /// The right to read the datum; dropping it unlocks.
    type Reading<'a>: Deref<Target = u64>;
    /// The right to change the datum; dropping it unlocks.
    type Writing<'a>: DerefMut<Target = u64>;

    /// As for [`Lock`].
    const OURS: bool = false;

    /// As for [`Lock`].
    fn region() -> io::Result<Option<&'static Region>> {
        Ok(None)
    }

    /// As for [`Lock`].
    fn settle(self: Pin<&Self>) -> io::Result<()> {
        Ok(())
    }

    /// Locks for reading.
    fn read<'a>(self: Pin<&'a Self>) -> Self::Reading<'a>;

    /// Locks for writing.
    fn write<'a>(self: Pin<&'a Self>) -> Self::Writing<'a>;
}

/// Places a lock at its final address.
pub(crate) fn placed<L: Lock>(lock: L) -> io::Result<SharedPage<L>> {
    let place = match L::region()? {
        Some(region) => SharedPage::new_in(lock, region)?,
        None => SharedPage::new(lock)?,
    };
    place.pin().settle()?;
    Ok(place)
}
