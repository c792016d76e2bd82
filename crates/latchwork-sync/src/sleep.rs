//! Sleeping on a word, with or without a region that watches for deaths.
//!
//! A waiter sleeps on a word inside a region through that region, whose sleeps end when any of its tasks dies, or some
//! milliseconds later (`region/park.rs`). So a task that consumed a wake-up and was killed before it could act leaves
//! no waiter asleep. Neither does a task that changed what the others wait for and was killed before it could notify them. Only *tasks*
//! of the region are watched. A waiter becomes one here. A process that wakes others through references that it
//! inherited, and has no thread that is a task, has to join (`latchwork::region::Region::join`) first. (A wake-up does
//! not attach its caller: that would be too late for a kill before it, and is not async-signal-safe.)
//!
//! *Deaths are counted from the beginning of a [`DeathWatch`]*, which has to come before the waiter's last check of its
//! condition. Where the word alone decides whether to sleep (the kernel compares it as it enqueues), the watch may
//! begin with the sleep itself: [`sleep`]. Where it does not, as in a condition variable, the watch begins under the
//! mutex: a death between unlock and sleep may be that of the only task that would have changed the word.
//!
//! Regions lie above this layer and register through [`Hooks`].
#![allow(unsafe_code)]

use crate::atomic::AtomicU32;
use crate::sys::futex::{self, Sharing, Wait};
use crate::time::Deadline;

#[cfg(not(loom))]
use crate::atomic::{AtomicPtr, Ordering};

/// Sleeps while `word` holds `expected`; may wake up spuriously.
pub fn sleep(
    word: &AtomicU32,
    expected: u32,
    sharing: Sharing,
    deadline: Option<Deadline>,
) -> Wait {
    DeathWatch::begin(word, sharing).sleep(expected, deadline)
}

/// A sleep that has not begun yet.
pub struct DeathWatch<'a> {
    word: &'a AtomicU32,
    sharing: Sharing,
    /// The number of deaths at the beginning, if the word lies in a region.
    #[cfg(not(loom))]
    deaths: Option<u32>,
}

impl<'a> DeathWatch<'a> {
    /// A death from here on ends [`Self::sleep`], at once or some milliseconds later.
    pub fn begin(word: &'a AtomicU32, sharing: Sharing) -> Self {
        Self {
            word,
            sharing,
            #[cfg(not(loom))]
            deaths: match (sharing, hooks()) {
                (Sharing::Shared, Some(hooks)) => (hooks.deaths)(word),
                _ => None,
            },
        }
    }

    /// Whether the word lies in a region, whose other tasks are watched.
    #[cfg(all(feature = "foreign", not(loom)))]
    pub fn is_of_region(&self) -> bool {
        self.deaths.is_some()
    }

    /// Sleeps while the word holds `expected` and no task has died since `begin`; may wake up spuriously. A death may end the
    /// sleep some milliseconds late.
    pub fn sleep(&self, expected: u32, deadline: Option<Deadline>) -> Wait {
        self.sleep_on(expected, deadline, false)
    }

    /// As [`Self::sleep`], but each death ends the sleep at once: for a wait that has slept before.
    pub fn sleep_again(&self, expected: u32, deadline: Option<Deadline>) -> Wait {
        self.sleep_on(expected, deadline, true)
    }

    #[cfg_attr(loom, expect(unused_variables, reason = "models have no regions here"))]
    fn sleep_on(&self, expected: u32, deadline: Option<Deadline>, has_slept: bool) -> Wait {
        #[cfg(not(loom))]
        if let Some(deaths) = self.deaths
            && let Some(hooks) = hooks()
            && let Some(ended) = (hooks.sleep)(self.word, expected, deaths, deadline, has_slept)
        {
            return ended;
        }
        futex::wait(self.word, expected, self.sharing, deadline)
    }
}

/// How regions sleep.
#[cfg(not(loom))]
pub struct Hooks {
    /// Makes the calling thread a task of the region that a word lies in, and returns the number of deaths
    /// there. `None`: the word lies in no region, or the thread cannot become a task.
    pub deaths: fn(&AtomicU32) -> Option<u32>,
    /// Sleeps on a word of a region, unless the number of deaths has changed; `None` as above. Whether the wait has slept
    /// before is the last parameter.
    pub sleep: fn(&AtomicU32, u32, u32, Option<Deadline>, bool) -> Option<Wait>,
}

#[cfg(not(loom))]
static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(core::ptr::null_mut());

/// Registers how regions sleep. (It is safe: without the hooks a death wakes no sleeper, which is all that is lost.)
#[cfg(not(loom))]
pub fn set_hooks(hooks: &'static Hooks) {
    // Release: pairs with the Acquire in `hooks`.
    HOOKS.store(core::ptr::from_ref(hooks).cast_mut(), Ordering::Release);
}

#[cfg(not(loom))]
fn hooks() -> Option<&'static Hooks> {
    // Acquire: pairs with the Release in `set_hooks`.
    let hooks = HOOKS.load(Ordering::Acquire);
    // SAFETY: null, or from a `&'static` in `set_hooks`.
    unsafe { hooks.as_ref() }
}
