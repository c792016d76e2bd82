//! The end of a thread, and the locks that it holds then.
//!
//! A thread's destructors run one after the other: first those of its thread-locals, then those of its keys
//! (`pthread_key_create`), in rounds. The destructor of the thread's record is one of the latter, and a later one may
//! release what the thread holds. So a thread that holds something is checked again in the next round, and in the one
//! after that. There is no fourth round, since the round of the first check is unknown: a thread may have locked for
//! the first time in a key's destructor. A lock that is released after the third check, or that is taken then and
//! released by a still later destructor, is a false positive.

use crate::check::observe::tell;
use crate::check::record::own::Own;
use crate::hook::Site;
use crate::sys::thread_end::ROUNDS;
use crate::task;

/// The thread's end has begun, or goes on. Returns whether the thread is to be checked again, and must be known until
/// then.
pub(crate) fn task_ends() -> bool {
    // There is no record in the child of a fork, which begins again.
    let Some(own) = Own::enter_if_known() else {
        return false;
    };
    let (process, thread) = own.identity();
    let holds = process != thread && own.locks().next().is_some();
    if holds && looks_again(&own) {
        own.end_copies();
        return true;
    }
    drop(own);
    tell::task_ends(Site::UNKNOWN);
    false
}

fn looks_again(own: &Own) -> bool {
    own.ends.set(own.ends.get() + 1);
    own.ends.get() < ROUNDS - 1 && task::end_again()
}
