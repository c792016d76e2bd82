//! The contestants: Latchwork's own, the rivals that it is measured against, and the system calls that measuring needs.

pub(crate) mod dynamic;
pub(crate) mod floor;
pub(crate) mod heap;
pub(crate) mod ours;
pub(crate) mod process;
pub(crate) mod pthread;
pub(crate) mod rust;
mod sched;
pub(crate) mod semaphore;

pub(crate) use sched::{libc_name, minor_faults, scheduler_class, with_fifo};

use std::io;

/// A lock with a datum beside it, for one task that never waits.
pub(crate) trait FreeLock: Send + Sync + 'static {
    /// Locks, increments the datum, unlocks. Errors are not looked at: [`check`](Self::check) saw
    /// that there are none.
    fn increment(&self);

    /// Locks and unlocks once, looking at errors, on the thread that is going to measure.
    fn check(&self) -> io::Result<()> {
        self.increment();
        Ok(())
    }
}

/// A lock and its datum in one cache line where they fit, for every contestant alike: straddling
/// two lines by chance would cost more than the contestants differ by.
#[repr(align(64))]
pub(crate) struct Line<T>(pub(crate) T);

/// The error that a call which returns an errno, like pthread's, stands for.
fn errno(code: libc::c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// The error of a call which returns -1 and sets errno.
fn cvt(code: libc::c_int) -> io::Result<libc::c_int> {
    match code {
        -1 => Err(io::Error::last_os_error()),
        code => Ok(code),
    }
}
