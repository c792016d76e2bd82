//! What the calling task does with its ceilings: see [the data](super::ceiling).

use super::ceiling::{Ceilings, REQUESTED};
use super::{Me, TaskError};
use crate::sys::scheduling;
use core::cell::Cell;
use rustix::io::Errno;

/// Why the calling task cannot run at a ceiling. The lock is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtectFault {
    /// The task's own priority is higher than the ceiling; it must not use the lock.
    #[error("the task's own priority, {own}, is above the ceiling, {ceiling}")]
    AboveCeiling {
        /// The task's real-time priority without any boost.
        own: u8,
        /// The ceiling.
        ceiling: u8,
    },
    /// The privilege is missing: `CAP_SYS_NICE`, or a limit on real-time priorities (`rtprio` in
    /// limits.conf) that reaches the ceiling.
    ///
    /// If the limit reaches the ceiling, the system has another reason: a control group without real-time runtime, or a
    /// `SCHED_IDLE` task without an `RLIMIT_NICE`.
    #[error(
        "no permission for priority {ceiling}: it needs CAP_SYS_NICE, or an RLIMIT_RTPRIO of {ceiling} (it is {limit})"
    )]
    Permission {
        /// The ceiling.
        ceiling: u8,
        /// The process's soft `RLIMIT_RTPRIO`; `u64::MAX` is no limit.
        limit: u64,
    },
    /// A `SCHED_DEADLINE` task precedes every priority; a ceiling would lower it.
    #[error("a SCHED_DEADLINE task cannot run at a ceiling")]
    Deadline,
    /// The thread cannot be a task: it can have no record.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The system refuses to report or to change the priority, for instance in a sandbox.
    #[error("the system refuses a change of priority: {0}")]
    System(Errno),
}

impl Ceilings {
    /// The calling task's ceilings. Without a record: those of the shared record of zeros, which hold nothing and must
    /// not be changed.
    #[inline]
    fn current() -> &'static Self {
        &Me::current_or_none().record.ceilings
    }

    /// Raises the calling task to `ceiling` (1 to [`HIGHEST`]), which it holds from now on.
    #[inline]
    pub fn enter(ceiling: u8) -> Result<(), ProtectFault> {
        let current = Self::current();
        // 0, which is no ceiling, passes for 256: without a record, nothing may be counted.
        let is_covered = ceiling.wrapping_sub(1) < current.effective.get();
        if current.own.get() <= ceiling && is_covered {
            current.count(ceiling);
            Ok(())
        } else {
            Self::raise(ceiling)
        }
    }

    /// Ends one [`enter`](Self::enter) of the calling task. In the child of a fork, for an `enter` of the parent, it
    /// does nothing.
    #[inline]
    pub fn leave(ceiling: u8) {
        let current = Self::current();
        if current.uncount(ceiling) && current.kept.get() < ceiling {
            current.lower(ceiling);
        }
    }

    /// As [`leave`](Self::leave), but without keeping the boost: the task is about to sleep, in the order of its own
    /// priority.
    pub fn leave_to_sleep(ceiling: u8) {
        let current = Self::current();
        current.uncount(ceiling);
        current.drop_kept();
    }

    /// Keeps the boost from now on.
    pub fn keep() -> Result<(), TaskError> {
        let keeping = &Me::get()?.record.ceilings.keeping;
        keeping.set(keeping.get() + 1);
        Ok(())
    }

    /// Ends one [`keep`](Self::keep).
    pub fn keep_no_longer() {
        let current = Self::current();
        if let Some(left) = current.keeping.get().checked_sub(1) {
            current.keeping.set(left);
            if left == 0 {
                current.drop_kept();
            }
        }
    }

    /// Records the caller's declaration that only this crate changes this task's priority from now on.
    pub fn declare() -> Result<(), ProtectFault> {
        let current = &Me::get()?.record.ceilings;
        let requested = REQUESTED.with(Cell::get).refreshed();
        current.store(requested.map_err(ProtectFault::System)?);
        current.declared.set(current.declared.get() + 1);
        Ok(())
    }

    /// Ends one [`declare`](Self::declare).
    pub fn declare_no_longer() {
        let current = Self::current();
        if let Some(left) = current.declared.get().checked_sub(1) {
            current.declared.set(left);
        }
    }

    /// Discards the known priority of the calling task.
    pub fn forget() {
        let (current, requested) = (Self::current(), REQUESTED.with(Cell::get));
        REQUESTED.with(|known| known.set(requested.unknown()));
        // The end of a boost reads the priority in any case. A record of zeros needs no change.
        if requested.boost == 0 && current.effective.get() > 0 {
            current.own.set(0);
            current.effective.set(0);
        }
    }

    #[cold]
    fn raise(ceiling: u8) -> Result<(), ProtectFault> {
        let current = &Me::get()?.record.ceilings;
        let requested = current.requested().map_err(ProtectFault::System)?;
        if requested.own.is_deadline() {
            return Err(ProtectFault::Deadline);
        }
        let own = requested.own.priority();
        if own > ceiling {
            return Err(ProtectFault::AboveCeiling { own, ceiling });
        }
        current
            .request(requested, ceiling.max(current.highest()))
            .map_err(|error| match error {
                Errno::PERM => ProtectFault::Permission {
                    ceiling,
                    limit: scheduling::priority_limit(),
                },
                error => ProtectFault::System(error),
            })?;
        current.count(ceiling);
        Ok(())
    }
}
