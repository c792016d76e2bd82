//! The system call of a sleep, for a caller that makes it itself.

use crate::atomic::AtomicU32;
use crate::time::Deadline;

#[allow(missing_docs)]
/// A futex call that sleeps while the word holds `expected`.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub word: *const AtomicU32,
    /// `FUTEX_WAIT_BITSET` with all bits set, or `FUTEX_WAIT_REQUEUE_PI`.
    pub operation: i32,
    pub expected: u32,
    /// The word that the sleeper may be requeued to.
    pub target: *const AtomicU32,
    pub deadline: Option<Deadline>,
}
