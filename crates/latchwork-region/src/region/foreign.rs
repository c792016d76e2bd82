//! What the C interface needs of regions: the words by which a waiting task is deleted, and a wake-up of all sleepers.
#![allow(missing_docs)]

use super::{Region, stop};
use crate::atomic::AtomicU32;

/// Sets the calling thread's word for [`lend_stop_word`].
pub fn set_stop_word(word: Option<&'static AtomicU32>) {
    stop::set_own(word);
}

/// Lets the directives of the calling thread use its stop word, or none, until the next call: their waits end
/// as if timed out once the word is not 0. See `region/stop.rs`.
pub fn lend_stop_word(is_lent: bool) {
    stop::lend(is_lent);
}

/// Wakes all sleepers of a region, so that they check their conditions again.
pub fn wake_sleepers(region: &Region) {
    region.inner().wake_sleepers();
}
