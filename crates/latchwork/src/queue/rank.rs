//! The order of messages: urgent messages first, the last sent before the others; then by priority, and within one
//! priority in the order of sending.

use core::fmt;

/// A message's priority: 0, the default, to [`Priority::MAX`], which is received first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u16);

impl Priority {
    /// The highest of the 32,768 priorities, as many as POSIX message queues have on Linux.
    pub const MAX: Self = Self(32_767);
    /// The lowest, and the default.
    pub const MIN: Self = Self(0);

    /// `None` beyond [`Self::MAX`].
    #[must_use]
    pub const fn new(priority: u16) -> Option<Self> {
        if priority <= Self::MAX.0 {
            Some(Self(priority))
        } else {
            None
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The position of a message among the pending ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Before all others: of several urgent messages, the last sent is received first.
    Urgent,
    /// Behind those of its own and of higher priority.
    Priority(Priority),
}

impl Default for Rank {
    fn default() -> Self {
        Self::Priority(Priority::MIN)
    }
}

/// Rank and sequence number, as stored in a cell: the smaller key comes first.
pub(super) type Key = (u32, u64);

impl Rank {
    /// The key of the message with this number; numbers grow from message to message.
    pub(super) fn key(self, number: u64) -> Key {
        match self {
            Self::Urgent => (0, u64::MAX - number),
            Self::Priority(priority) => (u32::from(Priority::MAX.0 - priority.0) + 1, number),
        }
    }

    pub(super) fn of_key((rank, _): Key) -> Self {
        match rank.checked_sub(1) {
            None => Self::Urgent,
            Some(below) => {
                let below = u16::try_from(below).unwrap_or(u16::MAX);
                Self::Priority(Priority(Priority::MAX.0.saturating_sub(below)))
            }
        }
    }
}

/// The number that a key was made of.
pub(super) fn number((rank, sequence): Key) -> u64 {
    match rank {
        0 => u64::MAX - sequence,
        _ => sequence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_messages_and_tell_their_rank() {
        let at = |priority| Rank::Priority(Priority::new(priority).unwrap());
        let order = [
            Rank::Urgent.key(9),
            Rank::Urgent.key(8),
            at(32_767).key(3),
            at(32_767).key(4),
            at(1).key(2),
            at(0).key(1),
            at(0).key(5),
        ];
        assert!(order.is_sorted());
        assert_eq!(order.map(number), [9, 8, 3, 4, 2, 1, 5]);
        assert_eq!(Rank::of_key(order[1]), Rank::Urgent);
        assert_eq!(Rank::of_key(order[3]), at(32_767));
        assert_eq!(Rank::of_key(order[6]), Rank::default());
        assert_eq!(Priority::new(32_768), None);
    }
}
