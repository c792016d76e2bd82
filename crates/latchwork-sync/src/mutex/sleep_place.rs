//! What a condition variable must know about a lock, to release many waiters without waking them all.

use crate::atomic::AtomicU32;

/// Where the waiters of a lock sleep, so that a condition variable can requeue its own waiters there.
///
/// For locks of this process only: the private condition variable that requeues waiters makes private futex calls.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct SleepPlace<'a>(pub(crate) SleepWord<'a>);

/// The futex that waiters sleep on.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum SleepWord<'a> {
    /// Other waiters cannot be requeued to this lock.
    None,
    /// An ordinary futex. A task that is woken there, or that acquires the lock after one that may have been requeued
    /// there, takes it as one that has slept: [`RelockAs::Requeued`].
    Plain(&'a AtomicU32),
    /// A priority-inheritance futex: the kernel passes its ownership on ([`RelockAs::Owner`]). Only where the kernel
    /// can requeue waiters to it.
    Pi(&'a AtomicU32),
}

impl SleepPlace<'_> {
    pub(crate) const NONE: Self = Self(SleepWord::None);
}

/// How a task acquires a lock again after a wait for a condition variable.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Relock(pub(crate) RelockAs);

/// The task that acquires a lock again.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum RelockAs {
    /// A task as any other that wants the lock.
    Newcomer,
    /// A task that has slept on the lock, as others may still do.
    Requeued,
    /// A task that the kernel has made the owner of the word.
    Owner,
}
