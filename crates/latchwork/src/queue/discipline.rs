//! The order in which waiting receivers are served.

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
        [Self::Racing, Self::Fifo, Self::Priority]
            .into_iter()
            .find(|discipline| discipline.code() == code)
            .unwrap_or_default()
    }
}
