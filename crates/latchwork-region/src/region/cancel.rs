//! Cancelling the waits of a task that is to be deleted: for the interface to C, whose tasks delete each other.
//!
//! A thread enables its *cancel word* while it is in a directive that may wait. Once that word is not 0, the wait ends
//! as if it had timed out: the task has left the object's queue then, and has received whatever it was granted before.
//! The task that stores the word wakes all sleepers in the region, and repeats that until the deleted task has ended: a
//! wake-up between the task's check of the word and its sleep has no effect. Deletions are rare; a wait that is not
//! cancelled costs two reads of a thread-local variable.
//!
//! Not cancelled: a spinning wait for a MrsP semaphore, and waits outside directives.

use super::{Inner, Parked, Task};
use crate::atomic::{AtomicU32, Ordering};
use crate::sys::each_thread::each_thread;
#[cfg(feature = "foreign")]
use crate::sys::futex::{self, Sharing};
use crate::time::Deadline;
use core::cell::Cell;

each_thread! {
    /// The word that cancels the calling thread's waits, while that is enabled.
    static CANCEL_WORD: Cell<Option<&'static AtomicU32>> = Cell::new(None);
}

/// The word that a task has for this purpose.
#[cfg(feature = "foreign")]
mod own {
    use super::{AtomicU32, Cell, each_thread};
    each_thread! {
        pub(super) static OWN: Cell<Option<&'static AtomicU32>> = Cell::new(None);
    }
}

/// Sets the calling task's word.
#[cfg(feature = "foreign")]
pub(super) fn set_word(word: Option<&'static AtomicU32>) {
    own::OWN.with(|own| own.set(word));
}

/// Enables or disables the task's word, until the next call.
#[cfg(feature = "foreign")]
pub(super) fn enable(is_enabled: bool) {
    let word = own::OWN.with(Cell::get).filter(|_| is_enabled);
    CANCEL_WORD.with(|enabled| enabled.set(word));
}

fn is_requested() -> bool {
    // Relaxed: no other memory is read because of it.
    CANCEL_WORD
        .with(Cell::get)
        .is_some_and(|word| word.load(Ordering::Relaxed) != 0)
}

impl Inner {
    /// Like [`Self::park`], in a directive: for a task that is to be deleted, the deadline has passed.
    pub fn park_cancellable(
        &self,
        task: Task<'_>,
        words: &[(&AtomicU32, u32)],
        deaths: u32,
        deadline: Option<Deadline>,
    ) -> (Parked, bool) {
        if is_requested() {
            return (Parked::TimedOut, false);
        }
        match self.park(task, words, deaths, deadline) {
            (Parked::Again, woken) if is_requested() => (Parked::TimedOut, woken),
            ended => ended,
        }
    }

    /// Makes all sleepers in the region check again.
    #[cfg(feature = "foreign")]
    pub(super) fn wake_sleepers(&self) {
        futex::wake(&self.header().slots_used, u32::MAX, Sharing::Shared);
    }
}
