//! The name of a process: its ID, and the PID namespace in which it has this ID.

/// A process that has a task. A process of another PID namespace than this one's is not in this `/proc`, where its ID may be
/// that of any process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId {
    id: u32,
    /// The namespace, if it is not that of the calling thread.
    elsewhere: Option<u32>,
}

impl ProcessId {
    /// A process of the calling thread's PID namespace.
    pub(crate) const fn here(id: u32) -> Self {
        Self {
            id,
            elsewhere: None,
        }
    }

    /// A process of the PID namespace `elsewhere`; of the calling thread's if that is `None`.
    pub(crate) const fn of(id: u32, elsewhere: Option<u32>) -> Self {
        Self { id, elsewhere }
    }

    /// Its ID, in its own PID namespace.
    pub(crate) const fn id(self) -> u32 {
        self.id
    }

    /// Its PID namespace, if it is another one.
    pub(crate) const fn elsewhere(self) -> Option<u32> {
        self.elsewhere
    }

    /// Its number in this `/proc`; `None` if it has none.
    pub(crate) const fn visible(self) -> Option<u32> {
        match self.elsewhere {
            None => Some(self.id),
            Some(_) => None,
        }
    }
}
