//! Sleeping for another task's progress, in a way that survives that task's death.
//!
//! The kernel wakes *one* waiter of a dead task's robust words, and nobody who sleeps on any other
//! word. So a task that sleeps in a region sleeps on several words at once (`futex_waitv`): those
//! that it waits for, the life-words of all other tasks, and the count of used slots (a newcomer's
//! life-word is not among those it knows).
//!
//! *Why no death is missed.* Let T die while others sleep. The kernel changes T's life-word and wakes
//! one sleeper S. Whatever else woke S at the same time, S looks at all life-words before it goes on
//! (`park` ends with that look), finds T dead, and sweeps: it wakes everybody who watches T's
//! life-word, and counts the death. Should S be killed before that, *its* life-word wakes another
//! sleeper, who finds S and T. A task that is about to sleep has read T's life-word before: if it
//! was alive then and is dead now, the kernel refuses the sleep. If a sweep ran in between and set
//! the word to 0, the count of deaths has changed against the one that the caller passed, which it
//! read before it last looked at its object.
//!
//! *Limits.* One sleep takes at most 128 words. In a region with more tasks a sleeper watches those
//! that follow it in the table, as on a ring, and looks at all of them every [`RECHECK`].
#![allow(unsafe_code)]

use super::task_table::Life;
use super::{Inner, Task};
use crate::atomic::{AtomicU32, Ordering};
use crate::sleep::Hooks;
use crate::sys::futex::{self, Wait};
use crate::time::Deadline;
use core::time::Duration;
use std::sync::Arc;

/// How long a task sleeps at most when it cannot watch all others.
const RECHECK: Duration = Duration::from_millis(100);

/// Why [`Inner::park`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parked {
    /// Something may have changed: look again.
    Again,
    /// The deadline has passed.
    TimedOut,
}

impl Inner {
    /// How many deaths have been found so far. Read it before looking at the object that a dead task
    /// might have left in mid-change, and pass it to [`Self::park`].
    pub(crate) fn deaths(&self) -> u32 {
        // Acquire: pairs with the Release in `bury`.
        self.header().deaths.load(Ordering::Acquire)
    }

    /// Sleeps while each of `words` holds its value and nobody dies. At most 8 words.
    pub(crate) fn park(
        &self,
        task: Task<'_>,
        words: &[(&AtomicU32, u32)],
        deaths: u32,
        deadline: Option<Deadline>,
    ) -> Parked {
        self.park_told(task, words, deaths, deadline).0
    }

    /// The same. Also says whether a wake-up ended the sleep, be it on one of `words` or for a death.
    pub(crate) fn park_told(
        &self,
        task: Task<'_>,
        words: &[(&AtomicU32, u32)],
        deaths: u32,
        deadline: Option<Deadline>,
    ) -> (Parked, bool) {
        debug_assert!(words.len() <= 8);
        let mut waits = [const { futex::WaitWord::new() }; futex::WAIT_MANY_MAX];
        let mut count = 0;
        let mut watch = |word: &AtomicU32, value: u32| {
            waits[count] = futex::shared_word(word, value);
            count += 1;
        };
        for (word, value) in words {
            watch(word, *value);
        }
        // Acquire: pairs with the Release of `use_slot`.
        let used = self.header().slots_used.load(Ordering::Acquire);
        watch(&self.header().slots_used, used);
        // What a hostile file says may be more than there is.
        let used = (used as usize).min(self.slots().len());
        let room = futex::WAIT_MANY_MAX - words.len() - 1;
        let others =
            (1..used).map(|step| &self.slots()[(usize::from(task.owner().slot()) + step) % used]);
        for slot in others.take(room) {
            // Acquire: whoever sees a word that a sweep has reset sees the deaths that it counted.
            let word = slot.life_word().load(Ordering::Acquire);
            if super::task_table::life_of(word) == Life::Dead {
                let _ = self.sweep();
                return (Parked::Again, false);
            }
            watch(slot.life_word(), word);
        }
        if self.deaths() != deaths {
            return (Parked::Again, false);
        }
        let limit = if used > room + 1 {
            Some(Deadline::after(RECHECK))
        } else {
            None
        };
        let until = match (limit, deadline) {
            (Some(limit), Some(deadline)) => Some(limit.min(deadline)),
            (limit, deadline) => limit.or(deadline),
        };
        let (ended, woken) = futex::wait_many_told(&waits[..count], until);
        // Whatever woke us, the kernel's one wake-up for a death may have been ours.
        if self.has_unswept() {
            let _ = self.sweep();
            return (Parked::Again, woken);
        }
        let late = ended == Wait::TimedOut && deadline.is_some_and(Deadline::has_passed);
        let parked = if late {
            Parked::TimedOut
        } else {
            Parked::Again
        };
        (parked, woken)
    }
}

/// Sleeping on a word that lies in a region of this process.
pub(super) static HOOKS: Hooks = Hooks {
    deaths: |word| {
        let inner = containing(word)?;
        inner.task().ok()?;
        Some(inner.deaths())
    },
    sleep: |word, expected, deaths, deadline| {
        let inner = containing(word)?;
        let task = inner.task().ok()?;
        Some(
            match inner.park(task, &[(word, expected)], deaths, deadline) {
                Parked::Again => Wait::Again,
                Parked::TimedOut => Wait::TimedOut,
            },
        )
    },
};

fn containing(word: &AtomicU32) -> Option<Arc<Inner>> {
    Inner::containing(core::ptr::from_ref(word).addr())
}
