//! What a condition variable must know of a lock, to release many waiters without waking them all.

use crate::atomic::AtomicU32;

/// Where those who wait for a lock sleep, so that a condition variable can send its own there.
///
/// One of this process only: the private condition variable that moves sleepers does so by private
/// futex calls.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a>(pub(crate) Sleeps<'a>);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Sleeps<'a> {
    /// Nowhere that others could be sent to.
    Elsewhere,
    /// On a word; whoever is woken there, or takes the lock after one that may have been sent there,
    /// takes it as one that has slept: [`By::Sent`].
    On(&'a AtomicU32),
    /// On a word that the kernel passes on: [`By::Kernel`]. Where it can send them there.
    Owning(&'a AtomicU32),
}

impl Queue<'_> {
    pub(crate) const NONE: Self = Self(Sleeps::Elsewhere);
}

/// How a task comes back to a lock from a condition variable.
#[derive(Clone, Copy, Debug)]
pub struct Arrival(pub(crate) By);

#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    /// As anybody who wants the lock.
    Itself,
    /// As one that has slept for it, as others may.
    Sent,
    /// As one whom the kernel has made the owner of the lock's word.
    Kernel,
}
