//! The lookout: in a region of many tasks, the one sleeper that looks after all of them.
//!
//! A sleep takes at most 128 words, so in a region of more tasks a sleeper cannot watch the life-words of all others. It
//! watches those of its [`NEIGHBOURS`], the tasks that follow it in the table. A death that no sleeping neighbour sees
//! would stay unseen if all other tasks slept. So one of the sleepers, the lookout, checks all life-words when
//! [`RECHECK`] has passed since the last such check, whose time is in the header. All others sleep until something
//! happens: a region of sleepers costs one wake-up per [`RECHECK`], and one per [`PER_TASK`] for the check below, however
//! many they are. Since the time outlives the lookout, short sleeps take turns as the lookout, and the first one that
//! begins after [`RECHECK`] checks at once.
//!
//! The word `lookout` of the header is 0, or the lookout's slot and 1.
//!
//! | word | changed by |
//! | --- | --- |
//! | 0 → the caller's | a task that is about to sleep, and finds no lookout |
//! | another's → the caller's | the same, if that slot has no task; or a sleeper that has seen no round for the time below |
//! | the caller's → 0 | the lookout, as its sleep ends; it then wakes one task that sleeps on the word |
//! | a dead or leaving task's → 0 | its sweep, or the task as it leaves: a successor in the slot is no lookout |
//!
//! *There is a lookout while tasks sleep*, except for the short sleep by which a wait may begin (`park.rs`). A task takes the
//! post before it sleeps, if it is free; otherwise it sleeps on the word, too, as the first of its words, and the kernel
//! compares the word as it enqueues the task. The lookout gives the post up by a store and a wake-up. Whoever is woken on
//! the word takes the post, if it is still free, and sleeps on. If that task is woken on another of its words at the same
//! time, the kernel reports that one, since it comes later in the list; the task then finds the post free as it ends its
//! sleep, and wakes the next.
//!
//! *The lookout dies.* All who went to sleep since it has the post watch its life-word as well. The kernel wakes one of them,
//! which sweeps, and the sweep wakes all who watch that word. Each sees the dead task, or the free slot, before it sleeps
//! again.
//!
//! *What remains.* In these cases nobody checks for a while:
//! - the lookout is killed, and none of its neighbours sleeps: a task that slept when the post passed on watches the former
//!   lookout;
//! - the lookout is stopped, or runs a signal handler;
//! - a task is killed after it was woken to take the post, and before it has it;
//! - a thread was cancelled in its sleep;
//! - a task stores an old time after it was stopped between its check and this store: sleepers take that for a check.
//!
//! Therefore no check may be older than [`PER_TASK`] for each task of the table. A sleep ends when it would be: if there was no
//! other check since the sleep began, the task checks all tasks itself, and takes the post. Two lookouts at a time do no harm.
//!
//! *The time* also says, in a region of any size, whether a wait may begin with a sleep that watches no task (`park.rs`). In a
//! region whose tasks one sleep can watch, each sleeper checks all of them and stores it. It is that of the monotonic clock,
//! in milliseconds of 32 bits. Only differences count: after 49 days without a check one may come 100 ms late. Where time
//! namespaces give tasks different clocks, most checks come too often, and one may come 100 ms late.
//!
//! *Checked by:* `lookout.rs` among the models of `latchwork-testkit`, and `tests/region_scale.rs`.
//!
//! *Orderings:* the post and the time order nothing. What a check reads are life-words, which have orderings of their own.
#![allow(unsafe_code)]

use super::task_table::{Life, Slot};
use crate::atomic::{AtomicU32, Ordering};
use crate::sys::clock::coarse;
use crate::sys::futex::{self, Sharing, WaitWord};
use core::time::Duration;

/// The number of tasks that a sleeper watches in a region with more tasks than one sleep can watch.
pub(super) const NEIGHBOURS: usize = 16;

/// The time between two checks of all tasks.
pub(super) const RECHECK: Duration = Duration::from_millis(100);

/// For each task of the table: the time after which a sleeper asks whether all were checked. (With a constant in place of it,
/// the number of wake-ups would grow with the number of sleepers.)
const PER_TASK: Duration = Duration::from_millis(4);

/// The most words of a wait.
pub(super) const MOST_WORDS: usize = 8;

/// Whether each sleep has room for all life-words, in a region of so many slots.
pub(super) fn each_watches_all(slots: usize) -> bool {
    watches_all(slots, MOST_WORDS)
}

/// Whether a sleep on so many words of its own has room for all life-words.
pub(super) fn watches_all(used: usize, words: usize) -> bool {
    used + words < futex::WAIT_MANY_MAX
}

/// The words by which the sleepers of a region agree on a lookout.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Lookout {
    /// The lookout's slot and 1; 0: none. Sleepers watch this word.
    slot: AtomicU32,
    /// When all tasks were checked last, in milliseconds.
    checked: AtomicU32,
}

impl Lookout {
    /// The task in this slot is gone, or about to leave.
    pub(super) fn leaves(&self, slot: u16) {
        self.give_up(u32::from(slot) + 1);
    }

    fn give_up(&self, mine: u32) {
        // Relaxed: the post orders nothing.
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        if self
            .slot
            .compare_exchange(mine, 0, success, failure)
            .is_ok()
        {
            self.wake_successor();
        }
    }

    /// How long ago all tasks were checked.
    pub(super) fn age(&self) -> Duration {
        // Relaxed: the time orders nothing.
        let checked = self.checked.load(Ordering::Relaxed);
        Duration::from_millis(now().wrapping_sub(checked).into())
    }

    /// All tasks were checked since this time, and none was dead.
    pub(super) fn all_were_alive(&self, now: u32) {
        // Relaxed, as above. Most calls find the time there, and leave the cache line as it is.
        if self.checked.load(Ordering::Relaxed) != now {
            self.checked.store(now, Ordering::Relaxed);
        }
    }

    fn wake_successor(&self) {
        futex::wake(&raw const self.slot, 1, Sharing::Shared);
    }
}

/// Milliseconds of the monotonic clock.
pub(super) fn now() -> u32 {
    (coarse() / 1_000_000) as u32
}

/// The part of a sleeping task in the lookout of its region, for one sleep. Ends when it is dropped.
pub(super) struct Post<'r> {
    lookout: &'r Lookout,
    mine: u32,
    role: Role<'r>,
}

enum Role<'r> {
    /// The task is not about to sleep.
    None,
    /// The task is the lookout.
    Lookout,
    /// The task watches the lookout, which has this word, and the life-word of its slot. All tasks had been checked at
    /// this time.
    Watches {
        word: u32,
        slot: &'r Slot,
        checked: u32,
    },
}

/// What the end of a sleep means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The task sleeps on.
    SleepOn,
    /// The task checks all tasks for deaths.
    CheckAll,
}

impl<'r> Post<'r> {
    /// For the task in slot `me`.
    pub(super) fn new(lookout: &'r Lookout, me: u16) -> Self {
        Self {
            lookout,
            mine: u32::from(me) + 1,
            role: Role::None,
        }
    }

    /// Takes the post if it is free, or nobody has it; otherwise watches who has it. `slots` are those of the table that were
    /// ever used.
    pub(super) fn assume(&mut self, slots: &'r [Slot]) {
        // Relaxed: the post orders nothing.
        let mut word = self.lookout.slot.load(Ordering::Relaxed);
        while word != self.mine {
            // Before the check of the life-word.
            let checked = self.lookout.checked.load(Ordering::Relaxed);
            let index = (word as usize).checked_sub(1);
            // A malicious file may name a slot that does not exist.
            let holder = index.and_then(|index| slots.get(index));
            if let Some(slot) = holder.filter(|slot| slot.life() != Life::Free) {
                self.role = Role::Watches {
                    word,
                    slot,
                    checked,
                };
                return;
            }
            match self.replace(word) {
                Ok(()) => break,
                Err(now) => word = now,
            }
        }
        self.role = Role::Lookout;
    }

    /// What the task watches for it, first the word of the post.
    pub(super) fn watched(&self) -> Option<(WaitWord, &'r Slot)> {
        match self.role {
            Role::Watches { word, slot, .. } => {
                Some((futex::shared_word(&self.lookout.slot, word), slot))
            }
            Role::None | Role::Lookout => None,
        }
    }

    /// How long a sleep lasts, in a table of so many slots: not at all, if the task has to check all others now.
    pub(super) fn limit(&self, slots: usize) -> Duration {
        let most = match self.role {
            Role::Watches { .. } => PER_TASK * u32::try_from(slots).unwrap_or(u32::MAX),
            Role::None | Role::Lookout => RECHECK,
        };
        most.saturating_sub(self.lookout.age())
    }

    /// A sleep has ended by its limit.
    pub(super) fn limit_has_passed(&mut self) -> Then {
        match self.role {
            Role::Watches { checked, .. }
                if self.lookout.checked.load(Ordering::Relaxed) != checked =>
            {
                Then::SleepOn
            }
            Role::Watches { word, .. } => {
                // If it fails, another one is the lookout by now.
                if self.replace(word).is_ok() {
                    self.role = Role::Lookout;
                }
                Then::CheckAll
            }
            Role::None | Role::Lookout => Then::CheckAll,
        }
    }

    /// A wake-up on the word of the post has ended the sleep: the post may be free.
    pub(super) fn is_offered(&mut self) {
        if self.replace(0).is_ok() {
            self.role = Role::Lookout;
        }
    }

    fn replace(&self, word: u32) -> Result<(), u32> {
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let result = self
            .lookout
            .slot
            .compare_exchange(word, self.mine, success, failure);
        result.map(drop)
    }
}

impl Drop for Post<'_> {
    fn drop(&mut self) {
        match self.role {
            Role::None => {}
            Role::Lookout => self.lookout.give_up(self.mine),
            // A wake-up for the post may have come together with the one that ended the sleep.
            Role::Watches { .. } => {
                if self.lookout.slot.load(Ordering::Relaxed) == 0 {
                    self.lookout.wake_successor();
                }
            }
        }
    }
}
