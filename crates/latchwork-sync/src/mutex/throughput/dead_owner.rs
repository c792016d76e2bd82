//! What a waiter does about the dead owner of a throughput lock that is not robust: it says so, and goes on waiting.
//!
//! *Why it does not take the lock.* The kernel of the 2017 patches passed a dead owner's futex on to the top waiter. It
//! had a reference to the owner's task, and a futex protects no data of the kernel's. Here,
//! 1. a guard can be leaked, and `&mut` to the data moved to another thread, which still uses it after the owner's end:
//!    a second guard would be a second `&mut`;
//! 2. the data may be half changed, and `lock` of a plain mutex has no result by which to say so;
//! 3. mutual exclusion would depend on IDs, which are not unique across PID namespaces: the owner there looks dead here.
//!
//! [`Robust`](crate::mutex::Robust) passes the lock on, with a result that says so, and the kernel reports the death.
//!
//! *When.* A top waiter looks after each nap on the word, and when it gives up: at most some ten times a second, and
//! never on the way of a lock that is released. *Once:* a process remembers the latest reports, one per entry of a table
//! by address; two dead locks that share an entry may be reported alternately, once for each look.

use super::words::is_dead;
#[cfg(not(loom))]
use super::words::is_not_in_process;
#[cfg(not(loom))]
use crate::atomic::AtomicU64;
use crate::atomic::{AtomicU32, Ordering};
use crate::mutex::TID_MASK;
use crate::sharing::Sharing;
#[cfg(not(loom))]
use crate::sys::futex::Sharing as Flag;

/// Reports, if `seen` names an owner that is dead and the word still names it. (In a model no task is dead.)
#[cold]
pub(super) fn report_if_dead<S: Sharing>(word: &AtomicU32, me: u32, seen: u32) {
    let owner = seen & TID_MASK;
    // The owner may have released the lock and ended before it was asked for. Relaxed: nothing is read by it.
    let still_owns = || word.load(Ordering::Relaxed) & TID_MASK == owner;
    if owner != 0 && owner != me && is_dead::<S>(owner) && still_owns() {
        #[cfg(not(loom))]
        report::<S>(core::ptr::from_ref(word).addr(), me, owner);
    }
}

#[cfg(not(loom))]
fn report<S: Sharing>(lock: usize, me: u32, owner: u32) {
    let has_ended = match S::FLAG {
        // Where not even the caller's own clock can be read, nothing is known of the owner.
        Flag::Private if is_not_in_process(me) => return,
        // In the child of a fork, the owner may live in the parent.
        Flag::Private => "is no thread of this process",
        Flag::Shared => "has ended",
    };
    if is_first(lock, owner) {
        crate::sys::warn(format_args!(
            "the throughput mutex at {lock:#x} is held by task {owner}, which {has_ended}; task {me} waits for it (a robust mutex would be passed on)"
        ));
    }
}

/// Whether this process has not reported this yet.
#[cfg(not(loom))]
fn is_first(lock: usize, owner: u32) -> bool {
    static REPORTED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
    // An address has 47 bits, of which the lowest two are 0; an ID has 22.
    let report = (lock as u64 >> 2) ^ (u64::from(owner) << 42);
    // Relaxed: the swap alone decides which of several waiters reports.
    REPORTED[(lock >> 4) % REPORTED.len()].swap(report, Ordering::Relaxed) != report
}
