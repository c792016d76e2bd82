//! The end of a thread, and the locks that it holds then.
//!
//! A thread's destructors run one after the other: first those of its thread-locals, then those of its keys
//! (`pthread_key_create`), in rounds. The destructor of the thread's record is one of the latter, and a later one may
//! release what the thread holds. So a thread that holds something is checked again in the next round, and in the one
//! after that. There is no fourth round, since the round of the first check is unknown: a thread may have locked for
//! the first time in a key's destructor. A lock that is released after the third check, or that is taken then and
//! released by a still later destructor, is a false positive.

use super::ended_threads;
use crate::check::record::own::{Busy, Own};
use crate::hook::Site;
use crate::sys::thread_end::ROUNDS;
use crate::task;

/// The thread's end has begun, or goes on. Returns whether the thread is to be checked again, and must be known until
/// then.
pub(crate) fn goes_on(own: Busy) -> bool {
    let (process, thread) = own.identity();
    let holds = process != thread && own.locks().next().is_some();
    if holds && checks_again(&own) {
        own.end_copies();
        return true;
    }
    ends(own, Site::UNKNOWN);
    false
}

fn checks_again(own: &Own) -> bool {
    own.ends.set(own.ends.get() + 1);
    own.ends.get() < ROUNDS - 1 && task::end_again()
}

/// The calling thread is about to end, with all the locks that it holds.
pub(crate) fn ends(own: Busy, site: Site) {
    for mine in own.locks() {
        ended_threads::ends_with(&own, &mine, site);
    }
    Own::end(own);
}
