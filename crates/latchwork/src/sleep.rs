//! Sleeping on a word, with or without a region's eye on the other tasks.
//!
//! A word inside a region is slept on through the region, which wakes its sleepers when any of its
//! tasks dies (`region/park.rs`). So whoever consumed a wake-up and was killed before it could act
//! leaves nobody asleep; nor does one who changed what the others wait for, and was killed before it
//! could tell them. Only *tasks* of the region are watched. A waiter becomes one here; a process that
//! wakes others through references that it inherited, and has no thread that is a task, is to
//! [join](crate::region::Region::join) first. (A wake-up does not attach its caller: that would be
//! too late for a kill before it, and is nothing for a signal handler.)
//!
//! *Deaths are counted from the beginning of a [`Watch`]*, which is to come before the last look at
//! what is waited for. Where the word itself tells all there is to know (the kernel compares it as
//! it enqueues) that may be the sleep itself: [`sleep`]. Where it does not, as in a condition
//! variable, the watch begins under the mutex: a death that is found between unlock and sleep may be
//! that of the only one who would have moved the word.
//!
//! Regions lie above this layer and put themselves in through [`Hooks`].
#![allow(unsafe_code)]

use crate::atomic::AtomicU32;
use crate::sys::futex::{self, Sharing, Wait};
use crate::time::Deadline;

#[cfg(not(loom))]
use crate::atomic::{AtomicPtr, Ordering};

/// Sleeps while `word` holds `expected`; may return without cause.
pub(crate) fn sleep(
    word: &AtomicU32,
    expected: u32,
    sharing: Sharing,
    deadline: Option<Deadline>,
) -> Wait {
    Watch::begin(word, sharing).sleep(expected, deadline)
}

/// A sleep to come.
pub(crate) struct Watch<'a> {
    word: &'a AtomicU32,
    sharing: Sharing,
    /// The deaths known at the beginning, if the word lies in a region.
    #[cfg(not(loom))]
    deaths: Option<u32>,
}

impl<'a> Watch<'a> {
    /// From here on no death ends unnoticed by [`Self::sleep`].
    pub(crate) fn begin(word: &'a AtomicU32, sharing: Sharing) -> Self {
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
    pub(crate) fn is_of_region(&self) -> bool {
        self.deaths.is_some()
    }

    /// Sleeps while the word holds `expected`, and nobody has died; may return without cause.
    pub(crate) fn sleep(&self, expected: u32, deadline: Option<Deadline>) -> Wait {
        #[cfg(not(loom))]
        if let Some(deaths) = self.deaths
            && let Some(hooks) = hooks()
            && let Some(ended) = (hooks.sleep)(self.word, expected, deaths, deadline)
        {
            return ended;
        }
        futex::wait(self.word, expected, self.sharing, deadline)
    }
}

/// The regions' way of sleeping.
#[cfg(not(loom))]
pub(crate) struct Hooks {
    /// Makes the calling thread a task of the region that a word lies in, and counts the deaths
    /// there; `None` if it lies in none, or the thread cannot.
    pub(crate) deaths: fn(&AtomicU32) -> Option<u32>,
    /// Sleeps on a word of a region, unless there were more deaths; `None` as above.
    pub(crate) sleep: fn(&AtomicU32, u32, u32, Option<Deadline>) -> Option<Wait>,
}

#[cfg(not(loom))]
static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(core::ptr::null_mut());

/// Installs the regions' way of sleeping.
#[cfg(not(loom))]
pub(crate) fn set_hooks(hooks: &'static Hooks) {
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
