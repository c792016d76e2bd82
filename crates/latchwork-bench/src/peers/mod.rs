//! The contestants: Latchwork's own, its rivals, and the system calls that measuring needs.

pub(crate) mod boards;
pub(crate) mod code;
pub(crate) mod company;
pub(crate) mod dynamic;
pub(crate) mod floor;
pub(crate) mod heap;
pub(crate) mod locks;
pub(crate) mod mail;
mod our_semaphores;
pub(crate) mod ours;
mod place;
pub(crate) mod process;
pub(crate) mod pthread;
mod raw;
pub(crate) mod rust;
pub(crate) mod rwlocks;
mod sched;
pub(crate) mod semaphore;
pub(crate) mod step;

pub(crate) use place::Place;
pub(crate) use raw::{Raw, RawLock};
#[cfg(test)]
pub(crate) use sched::yields_to_all;
pub(crate) use sched::{
    BELOW_CEILING, CEILING, burn, children_cpu_time, cpu_time, enter_fifo, libc_name, minor_faults,
    on_thread, pin_to, scheduler_class, sleep_until, voluntary_switches,
};

use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;

use latchwork::mutex::KeptBoost;
use latchwork::time::Deadline;

/// A lock with a datum beside it.
pub(crate) trait Lock: Send + Sync + Sized + 'static {
    /// The right to use the datum; dropping it unlocks.
    type Held<'a>: DerefMut<Target = u64>;

    /// Size of the lock, without the datum.
    const BYTES: usize;

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
    fn settle(self: Pin<&Self>) -> io::Result<()> {
        Ok(())
    }

    /// Locks for reading.
    fn read<'a>(self: Pin<&'a Self>) -> Self::Reading<'a>;

    /// Locks for writing.
    fn write<'a>(self: Pin<&'a Self>) -> Self::Writing<'a>;
}

/// Places a lock at its final address.
pub(crate) fn placed<L: Lock>(lock: L) -> io::Result<Place<L>> {
    let place = Place::new(lock)?;
    place.pin().settle()?;
    Ok(place)
}

/// Converts the result of a call that returns an errno, like pthread's.
fn errno(code: libc::c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Converts the result of a call that returns -1 and sets errno.
fn cvt(code: libc::c_int) -> io::Result<libc::c_int> {
    match code {
        -1 => Err(io::Error::last_os_error()),
        code => Ok(code),
    }
}

/// Panics for a contestant that failed although it had been checked.
#[cold]
fn broken(error: &dyn std::fmt::Display) -> ! {
    panic!("a contestant failed: {error}")
}
