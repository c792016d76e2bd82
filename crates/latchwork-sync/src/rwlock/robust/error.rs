//! Why a robust reader/writer lock was not acquired.

use super::owner_died::OwnerDied;
use super::parts::SeatLock;
use crate::mutex::throughput::{Counting, Uncounted};
use crate::mutex::{LockFailure, RawError, Robust, from_raw_error, lock_error};
use crate::rwlock::trace::Event;
use crate::task::TaskError;
use core::error::Error;
use core::fmt;

/// Why a robust reader/writer lock was not acquired in the ordinary way.
///
/// The error may hold the lock. Converted by `?` to a [`LockFailure`] or a `Box<dyn Error>`, it does not.
#[non_exhaustive]
pub enum LockError<
    'a,
    T: ?Sized,
    const READERS: usize = 16,
    C: Counting<Event> = Uncounted,
    K: SeatLock = Robust,
> {
    /// A writer died, or panicked, inside. The lock is held *to write*, even if the call was to read: repair
    /// the data and call [`OwnerDied::make_consistent`], or drop the guard to give the lock up for ever.
    OwnerDied(OwnerDied<'a, T, READERS, C, K>),
    /// A writer died and its successor gave the lock up. No task can acquire it any more.
    NotRecoverable,
    /// Other tasks hold it, or are just entering (`try_read`, `try_write`).
    WouldBlock,
    /// The deadline passed.
    TimedOut,
    /// A signal handler ran (`read_interruptible`, `write_interruptible`).
    Interrupted,
    /// The calling task holds the lock already and would wait for itself, or might: a task that reads is
    /// refused a second read lock while others are entering or waiting, or all seats are taken.
    Deadlock,
    /// The calling task holds as many robust locks as the kernel would release at its death.
    TooManyHeld,
    /// The calling thread cannot own robust locks on this system.
    Unavailable(TaskError),
    /// The calling thread is no task of the region that the lock lies in, and cannot become one (a lock of region locks).
    Refused(K::Fault),
}

lock_error!(
    {T: ?Sized, const READERS: usize, C: Counting<Event>, K: SeatLock}
    {T: ?Sized, const READERS: usize, C: Counting<Event>, K: SeatLock}
    LockError<'_, T, READERS, C, K>, K::Fault, {Refused} {TooManyHeld} Unavailable,
    "a writer died while it held the lock",
    "the lock is not recoverable: a writer died and the data was not repaired",
    "the calling task holds the lock already"
);
from_raw_error!(
    {T: ?Sized, const READERS: usize, C: Counting<Event>, K: SeatLock}
    RawError<K::Fault>, LockError<'_, T, READERS, C, K>,
    {WouldBlock TimedOut Interrupted NotRecoverable Deadlock TooManyHeld} {Unavailable Refused}
);
