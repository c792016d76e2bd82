//! Cancelling the waits of a task that is to be deleted: for the interface to C, whose tasks delete each other.
//!
//! A thread enables its *cancel word* while it is in a directive that may wait. Once that word is not 0, the wait ends
//! as if it had timed out: the task has left the object's queue then, and has received whatever it was granted before.
//! The task that stores the word wakes all sleepers in the region, and repeats that until the deleted task has ended: a
//! wake-up between the task's check of the word and its sleep has no effect. Deletions are rare; a wait that is not
//! cancelled costs two reads of a thread-local variable.
//!
//! Not cancelled: a spinning wait for a MrsP semaphore, and waits outside directives.

#[cfg(feature = "foreign")]
use super::Region;
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

#[cfg(feature = "foreign")]
each_thread! {
    /// The word that a task has for this purpose.
    static OWN: Cell<Option<&'static AtomicU32>> = Cell::new(None);
}

/// Sets the calling thread's word for [`enable_cancel_word`].
#[cfg(feature = "foreign")]
pub fn set_cancel_word(word: Option<&'static AtomicU32>) {
    OWN.with(|own| own.set(word));
}

/// Lets the directives of the calling thread use its cancel word, or none, until the next call.
#[cfg(feature = "foreign")]
pub fn enable_cancel_word(is_enabled: bool) {
    let word = OWN.with(Cell::get).filter(|_| is_enabled);
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
}

/// Wakes all sleepers of a region, so that they check their conditions again.
#[cfg(feature = "foreign")]
pub fn wake_sleepers(region: &Region) {
    futex::wake(
        &region.inner().header().slots_used,
        u32::MAX,
        Sharing::Shared,
    );
}
