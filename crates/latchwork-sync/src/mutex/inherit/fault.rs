//! Why a priority-inheritance lock was not taken.

/// Why a priority-inheritance lock was not taken. A longer wait would not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InheritFault {
    /// The calling task holds the lock already, or the wait would complete a wait-for cycle through locks of this kind
    /// or pthread's. At least one task of a cycle gets this error. If several complete the cycle at the same moment,
    /// each of them may get it, as may a task that just begins to wait for one of them.
    #[error("waiting for the lock would be a deadlock")]
    Deadlock,
    /// An owner died while it held the lock. The data may be torn; no task gets it any more. (`try_lock` returns this
    /// only after a call that waits has detected the death; until then the lock counts as held. A wait for a condition
    /// variable returns this when it is notified.)
    #[error("an owner of the lock died while it held it")]
    OwnerGone,
    /// The kernel had no memory for the wait. The lock is unchanged; a later call may succeed.
    #[error("the kernel has no memory for the wait")]
    NoMemory,
    /// The kernel, or a sandbox, refuses the system call. A free lock can still be taken.
    #[error("this system has no priority-inheritance futexes")]
    Unsupported,
    /// The lock's memory has a value that no state of the lock has: it was overwritten, or waited for by other means.
    #[error("the lock's memory was overwritten")]
    Corrupt,
}
