//! The options of a queue, and how long a call waits at it.

use crate::time::Deadline;
use core::time::Duration;

/// The options of a queue to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    pub(super) capacity: u32,
    pub(super) max_message: u32,
    discipline: Discipline,
}

impl QueueOptions {
    /// A queue for `capacity` messages of at most `max_message` bytes each. Creation allocates its memory, except for
    /// messages on their way to waiting receivers that have not run yet: where several receivers wait, one more may
    /// allocate memory for one more message when it begins to wait (and fails with
    /// [`ReceiveError::Storage`](super::ReceiveError::Storage) if the region has none). The memory is freed when the
    /// queue is deleted.
    #[must_use]
    pub const fn new(capacity: u32, max_message: u32) -> Self {
        Self {
            capacity,
            max_message,
            discipline: Discipline::Racing,
        }
    }

    /// Sets which of several waiting receivers gets a message.
    #[must_use]
    pub const fn discipline(mut self, discipline: Discipline) -> Self {
        self.discipline = discipline;
        self
    }

    pub(super) fn capacities(self) -> (u32, u32) {
        (self.capacity, self.max_message)
    }

    pub(super) fn parts(self) -> (u32, u32, u32) {
        (self.capacity, self.max_message, self.discipline.code())
    }
}

/// Which of several waiting receivers gets a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// The first task that takes the lock, even one that has not waited.
    #[default]
    Racing,
    /// The receiver that has waited longest.
    Fifo,
    /// The receiver of the highest priority; among equals, the one that has waited longest. The priority is the task's
    /// [priority](crate::semaphore::TaskPriority::current_priority) in the region, whose changes take effect while it waits; or
    /// the thread's real-time priority when the wait began, if that is higher.
    Priority,
}

impl Discipline {
    pub(super) const fn code(self) -> u32 {
        self as u32
    }

    pub(super) fn of_code(code: u32) -> Self {
        let all = [Self::Racing, Self::Fifo, Self::Priority];
        all.get(code as usize).copied().unwrap_or_default()
    }
}

/// How long a call waits for its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It does not wait.
    Not,
    /// Until the deadline passes.
    Until(Deadline),
    /// For ever, or until the queue is deleted.
    Forever,
}

impl Wait {
    /// For at most this long, from now.
    #[must_use]
    pub fn at_most(timeout: Duration) -> Self {
        Self::Until(Deadline::after(timeout))
    }

    pub(super) fn deadline(self) -> Option<Deadline> {
        match self {
            Self::Until(deadline) => Some(deadline),
            Self::Not | Self::Forever => None,
        }
    }
}

impl From<Deadline> for Wait {
    fn from(deadline: Deadline) -> Self {
        Self::Until(deadline)
    }
}
