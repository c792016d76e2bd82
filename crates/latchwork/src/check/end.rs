//! The end of a thread, and what it holds then.
//!
//! A thread's destructors run one after the other: those of its thread-locals, and then those of its keys
//! (`pthread_key_create`), in rounds. The end of the thread's record is one of the latter. What the thread holds then may
//! be released by a later one. So a thread that holds something is looked at again, in the next round, and in the one
//! after that; not in a fourth one, since nobody says in which round the first look was made: a thread may have locked for
//! the first time in a key's destructor. What is released after the third look, or taken then and left to one that
//! comes still later, is reported wrongly.

use super::own::Own;
use super::tell;
use crate::hook::Site;
use crate::sys::thread_end::ROUNDS;
use crate::task;

/// The thread's end has begun, or has come once more; whether it will again, and the thread is to be known until then.
pub(super) fn task_ends() -> bool {
    // None in the child of a fork, which begins again.
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
