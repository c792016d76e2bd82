//! Sleeping on a word, with or without a region's eye on the other tasks.
//!
//! A word inside a region is slept on through the region, which wakes its sleepers when any of its
//! tasks dies (`region/park.rs`). So whoever consumed a wake-up and was killed before it could act
//! leaves nobody asleep. Regions lie above this layer and put themselves in through a hook.
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
    #[cfg(not(loom))]
    if sharing == Sharing::Shared
        && let Some(hook) = hook()
        && let Some(ended) = hook(word, expected, deadline)
    {
        return ended;
    }
    futex::wait(word, expected, sharing, deadline)
}

/// Sleeps on a word of a region; `None` if the word lies in none.
#[cfg(not(loom))]
pub(crate) type Hook = fn(&AtomicU32, u32, Option<Deadline>) -> Option<Wait>;

#[cfg(not(loom))]
static HOOK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Installs the regions' way of sleeping.
#[cfg(not(loom))]
pub(crate) fn set_hook(hook: Hook) {
    // Release: pairs with the Acquire in `hook`.
    HOOK.store(hook as *mut (), Ordering::Release);
}

#[cfg(not(loom))]
fn hook() -> Option<Hook> {
    let hook = HOOK.load(Ordering::Acquire);
    // SAFETY: only `set_hook` stores here, and only functions of this type.
    (!hook.is_null()).then(|| unsafe { core::mem::transmute::<*mut (), Hook>(hook) })
}
