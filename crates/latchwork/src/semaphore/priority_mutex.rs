//! A mutex of a region, with data: its waiters are served by recorded priority, and its owner inherits.
//!
//! The object is a semaphore with an owner (`Core`; `owned.rs` has the word, the hand-over and the recovery), and the data
//! after it. All rules of inheriting semaphores and of those with a ceiling hold: order, priorities, chains, deadlocks,
//! deaths. This file argues only for what the data adds.
//!
//! | word | the data | entered by |
//! | --- | --- | --- |
//! | key | whole, nobody uses it | creation; release |
//! | key + owner | the guard's, or that of an [`OwnerDied`] | lock |
//! | key + owner + `DIED` | the task that is named is about to return an [`OwnerDied`] | a hand-over, after a death or a panic |
//! | key + `DIED` | perhaps torn, nobody uses it | the same, no task waits |
//! | key + `DELETED` | perhaps torn, nobody uses it again: not recoverable, for ever | the drop of an [`OwnerDied`] |
//!
//! Each but the last may have `QUEUED`, if there is an owner.
//!
//! Invariants
//! 1. The object begins, whole and with its data, before the directory names it, and has no end: its memory is never freed
//!    or used otherwise before the region ends, and the data never moves. No type exists by which `Region::remove` would
//!    find it.
//! 2. Only a guard, or an [`OwnerDied`], releases it. Handles on semaphores do not reach it: the directory gives an object
//!    to a handle of its own type only, and the type here is one for each `T`. C and the classic interface have types of
//!    their own.
//! 3. A task obtains it once: its form says that it has data, and then an obtain by the owner is refused.
//! 4. While it names an owner, that task has not ended in good order, nor left the region: each lock is counted in the
//!    thread's record (`Member`), like the region locks.
//! 5. Data that an owner may have left torn is lent by an [`OwnerDied`] only.
//!
//! *No two tasks have the data at a time.* The word names one owner, and by 3 there is one guard for it. It names another
//! only after a release by that guard (2), whose drop ends the loans; or after the owner's death. Safe code can leak a
//! guard, and a loan of it may then be another thread's, and outlive the thread that locked. So the end of that thread must
//! not count as its death: by 4 its slot passes to the keeper of its process, and the word goes on naming a living task
//! until the process dies, and every loan with it. (`task/membership.rs`, `task/keeper.rs`.) A loan does not outlive
//! the region: it borrows the handle on it.
//!
//! *Fork.* The child is another task, or none. A guard names the task that it was made for, and aborts the child that drops
//! or repairs it, as region locks do.
//!
//! *A kill between any two lines.* In a creation: the block is private to the task until the directory's entry names it,
//! which is one store; before that the name stays free, and the sweep frees the block; after it the object is whole. In a
//! lock or an unlock: see `owned.rs`. The count dies with its thread. Between the moment at which `DIED` is cleared and
//! the end of a repair: the task is a dead owner, so the next one gets an [`OwnerDied`], too. As an [`OwnerDied`] is
//! dropped: before the exchange that sets `DELETED` the task is a dead owner; after it the mutex is not recoverable, and
//! the next task that takes the object's lock ends the waits. (Each waiter does, since its sleep ends after the death.)
//!
//! *Before an [`OwnerDied`] is returned* the region has been swept: what the dead task had begun in the heap is finished or
//! undone before the data is accessed.
//!
//! *Frozen:* no C header has it; the region's layout version covers it. *Cost:* a free pair is one compare-and-swap each
//! if it inherits, and with a ceiling the slow path of semaphores. *Checked by:* `tests/semaphore/priority_mutex.rs` and
//! `priority_mutex_deaths.rs`, `tests/kill_semaphore/priority_mutex.rs` (each operation killed at each instruction),
//! `tests/kill_keeper.rs`, `tests/ui`; the word, its queue and the priorities by what [`semaphore`](crate::semaphore) names.

mod content;
mod guard;
mod handle;
mod lock;
mod shared;

pub use guard::{LockError, OwnerDied, PriorityFault, PriorityGuard};
pub use handle::{PriorityMutex, PriorityMutexOptions};
pub(super) use shared::is_in;
