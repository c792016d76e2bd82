//! What the C interface needs of regions: the words that cancel the waits of a task that is deleted, and a wake-up of
//! all sleepers.
#![allow(missing_docs)]

use super::{Region, cancel};
use crate::atomic::AtomicU32;

/// Sets the calling thread's word for [`enable_cancel_word`].
pub fn set_cancel_word(word: Option<&'static AtomicU32>) {
    cancel::set_word(word);
}

/// Lets the directives of the calling thread use its cancel word, or none, until the next call: their waits end as if
/// timed out once the word is not 0. See `region/cancel.rs`.
pub fn enable_cancel_word(is_enabled: bool) {
    cancel::enable(is_enabled);
}

/// Wakes all sleepers of a region, so that they check their conditions again.
pub fn wake_sleepers(region: &Region) {
    region.inner().wake_sleepers();
}
