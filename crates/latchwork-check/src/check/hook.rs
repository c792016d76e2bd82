//! What a lock, a wrapper around foreign locks, or an interposer reports to the checker.
//!
//! Every function may be called in any context in which a lock may be taken: before `main`, in a signal handler, in the
//! child of a fork, inside an allocator. None allocates from the program's allocator, and none takes a lock while all
//! that it meets is known. A lock that is taken while the checker itself runs in the same thread is not seen.
//!
//! A lock that can be acquired at once: try, then [`taken`]. One that cannot: [`wants`], wait, then [`taken`] or
//! [`gave_up`]. Before the release: [`releasing`].

pub use super::observe::ended_threads::{joined, joins_are_reported};
#[doc(hidden)]
pub use super::observe::fast_path::{Since, releasing_as_usual, taken_as_usual};
pub use super::observe::lookup::NoLock;
pub use super::observe::sleep::condvar_notifies;
pub use super::observer::{
    condvar_begins, condvar_ends, destroyed, ends_for_sleepers, failed, forked, freed,
    freed_meanwhile, gave_up, has_ended, has_waited, initialised, initialised_again, is_made,
    is_unknown, knows_this_thread, locks_in, next_report_time, not_a_lock, notifies_without_mutex,
    re_site, releasing, seen, source_line, still_waits, taken, task_ends, unmarked, uses_no_lock,
    waits, wants,
};
#[doc(hidden)]
pub use super::record::known::may_be_in;
pub use crate::hook::{
    HELD, Held, HeldLock, How, Kind, Lock, Mode, RecordedSite, Site, TaskRecord, TaskView, Traits,
    Verdict, Wanted,
};
#[doc(hidden)]
pub use crate::sys::process_mark::ProcessMark;
