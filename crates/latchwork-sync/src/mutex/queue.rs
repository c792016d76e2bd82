//! What a condition variable must know of a lock, to release many waiters without waking them all.

use crate::atomic::AtomicU32;

/// Where the waiters of a lock sleep, so that a condition variable can move its own waiters there.
///
/// For locks of this process only: the private condition variable that moves sleepers does so by private futex calls.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a>(pub(crate) Sleeps<'a>);

#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum Sleeps<'a> {
    /// The lock has no queue to which other waiters could be moved.
    Elsewhere,
    /// The waiters sleep on this word. A task that is woken there, or that takes the lock after one that may have been
    /// moved there, takes it as one that has slept: [`By::Sent`].
    On(&'a AtomicU32),
    /// The waiters sleep on this word, and the kernel passes its ownership on: [`By::Kernel`]. Used where the kernel
    /// can move waiters there.
    Owning(&'a AtomicU32),
}

impl Queue<'_> {
    pub(crate) const NONE: Self = Self(Sleeps::Elsewhere);
}

/// How a task comes back to a lock from a condition variable.
#[derive(Clone, Copy, Debug)]
pub struct Arrival(pub(crate) By);

#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum By {
    /// As any task that wants the lock.
    Itself,
    /// As a task that has slept on the lock, as others may still do.
    Sent,
    /// As a task that the kernel has made the owner of the word.
    Kernel,
}
