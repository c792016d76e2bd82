//! The tasks that an operation wakes, once it has released the lock.

use super::head::Head;
use crate::atomic::AtomicU32;
use crate::sys::futex::{self, Sharing};

/// The number of tasks of each kind to wake (`u32::MAX`: all), and a word on which one task sleeps alone.
#[must_use]
#[derive(Clone, Copy)]
pub(super) struct Wake<'a> {
    receivers: u32,
    senders: u32,
    watchers: u32,
    word: Option<&'a AtomicU32>,
}

impl<'a> Wake<'a> {
    /// Wakes no task.
    pub(super) const NONE: Self = Self {
        receivers: 0,
        senders: 0,
        watchers: 0,
        word: None,
    };
    /// Wakes all tasks.
    pub(super) const ALL: Self = Self {
        receivers: u32::MAX,
        senders: u32::MAX,
        watchers: u32::MAX,
        word: None,
    };

    /// Wakes this many senders.
    #[inline]
    pub(super) fn senders(count: u32) -> Self {
        Self::NONE.and_senders(count)
    }

    /// Wakes this many receivers.
    #[inline]
    pub(super) fn receivers(count: u32) -> Self {
        Self {
            receivers: count,
            ..Self::NONE
        }
    }

    /// Also wakes this many senders.
    #[inline]
    pub(super) fn and_senders(mut self, count: u32) -> Self {
        self.senders = count;
        self
    }

    /// Also wakes all watchers.
    #[inline]
    pub(super) fn and_watchers(mut self) -> Self {
        self.watchers = u32::MAX;
        self
    }

    /// Also wakes the task that sleeps on this word; if another word was set before, its sleeper is woken at once.
    pub(super) fn and_one_on(mut self, word: &'a AtomicU32) -> Self {
        if let Some(other) = self.word.replace(word) {
            futex::wake(other, 1, Sharing::Shared);
        }
        self
    }

    /// Makes the system calls that are needed. A read-modify-write, that of the unlock, must stand between all changes
    /// and this call.
    #[inline]
    pub(super) fn carry_out(self, core: &Head) {
        let fixed = &core.fixed;
        for (sleepers, count) in [
            (&fixed.receivers, self.receivers),
            (&fixed.senders, self.senders),
            (&fixed.watchers, self.watchers),
        ] {
            if count > 0 {
                sleepers.notify(count);
            }
        }
        if let Some(word) = self.word {
            futex::wake(word, 1, Sharing::Shared);
        }
    }
}
