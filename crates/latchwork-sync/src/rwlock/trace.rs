//! What a call of a reader/writer lock reports of itself: how a task entered, what an unlock did for the tasks that wait,
//! and, if wanted, how often each event happened.

use crate::mutex::throughput::{self, Countable};

/// How a task entered a reader/writer lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The lock admitted the task at once.
    Free,
    /// The lock did not admit the task at first, and did so while the task polled.
    Polled,
    /// The task went to sleep, and entered after that.
    Woken,
    /// The task had waited for too long (for [`Preference::STARVES_AFTER`](super::Preference::STARVES_AFTER), or the
    /// threshold of a robust lock), and entered past the tasks that came later.
    HandedOff,
}

/// How one call that acquired a reader/writer lock went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquisition {
    /// How the task entered.
    pub entry: Entry,
    /// How often the task went to sleep for it.
    pub sleeps: u32,
}

impl Acquisition {
    pub(crate) const FREE: Self = Self {
        entry: Entry::Free,
        sleeps: 0,
    };
}

/// What an unlock of a reader/writer lock did for the tasks that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The unlock woke no task: none had asked for it, or other tasks are still inside. (A task that polls may enter.)
    NoSleeper,
    /// The unlock woke a writer, or all readers, that had asked for it. (There may be none: the waiter had not gone to
    /// sleep yet, or had given up; or data of a dead writer was passed on.)
    Woke,
    /// A task had waited for too long: the unlock woke such tasks, and the lock keeps out those that came later.
    HandedOff,
}

/// What the gate of a robust lock says of its release.
impl From<throughput::Released> for Released {
    fn from(released: throughput::Released) -> Self {
        match released {
            throughput::Released::NoSleeper => Self::NoSleeper,
            throughput::Released::Woke => Self::Woke,
            throughput::Released::HandedOff => Self::HandedOff,
        }
    }
}

/// The events that a reader/writer lock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The lock did not admit a call to read at once.
    ReadSlowPath,
    /// The lock did not admit a call to write at once.
    WriteSlowPath,
    /// An unlock found that other tasks may wait.
    UnlockSlowPath,
    /// [`Entry::Polled`].
    Polled,
    /// [`Entry::Woken`].
    Woken,
    /// [`Entry::HandedOff`].
    HandedOff,
    /// A task went to sleep.
    Sleep,
    /// A call that could wait ended without the lock.
    GivenUp,
}

impl Countable for Event {
    fn index(self) -> usize {
        self as usize
    }
}

impl Event {
    /// Of a call that the lock did not admit at once.
    pub(super) fn slow_path(writes: bool) -> Self {
        if writes {
            Self::WriteSlowPath
        } else {
            Self::ReadSlowPath
        }
    }

    /// How such a call ended; `None`: it is none.
    pub(super) fn ended<F>(entered: &Result<Acquisition, F>) -> Option<Self> {
        match entered {
            Ok(how) => match how.entry {
                Entry::Free => None,
                Entry::Polled => Some(Self::Polled),
                Entry::Woken => Some(Self::Woken),
                Entry::HandedOff => Some(Self::HandedOff),
            },
            Err(_) => Some(Self::GivenUp),
        }
    }
}
