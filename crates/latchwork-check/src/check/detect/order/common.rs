//! Whether a lock was taken by one task so far, or is *common*: taken by at least two.
//!
//! [`Entry::task`] says so: [`NO_TASK`], the number of the only task, or [`COMMON`].
//!
//! A task that wants a lock counts as one that takes it. The fast path of taking a lock, in `fast_path.rs`, applies
//! only if this state does not change; so each lock comes here at its first use, and at the first use by a second task.
//!
//! An edge that was made with a lock that was not common yet must be updated when the lock becomes common. Each lock
//! remembers the edges for which it was last wanted and last held ([`Entry::pair`]), and these are marked then. The
//! lock's node number also gets a flag, so that all threads check their chains with it again.
//!
//! In the child of a fork, the task of a lock that one task had taken becomes [`NO_TASK`]: it may have been a task that is
//! not in the child.

use super::search::{OrderCycle, more_important, search};
use crate::atomic::Ordering;
use crate::check::record::board;
use crate::check::record::layout::{COMMON, Entry, NO_TASK};
use crate::check::record::order_graph::graph::{
    COMMON_NODE, GRAPH, HELD_COMMON, WANTED_COMMON, is_common, node_of,
};
use crate::check::record::own::Own;
use crate::hook::Lock;

/// The calling task takes a lock, or wants to. Returns a cycle that is no longer harmless because of that.
#[inline]
pub(crate) fn used(own: &Own, lock: Lock, entry: &Entry) -> Option<OrderCycle> {
    let known = entry.task.load(Ordering::Relaxed);
    if known == own.task.get() || known == COMMON {
        return None;
    }
    used_by_another(own, lock, entry)
}

#[cold]
fn used_by_another(own: &Own, lock: Lock, entry: &Entry) -> Option<OrderCycle> {
    let me = own.task.get();
    let first = || {
        let task = &entry.task;
        task.compare_exchange(NO_TASK, me, Ordering::Relaxed, Ordering::Relaxed)
    };
    if lock.is_shared() || first().is_ok() {
        return None;
    }
    board::alone(|_| {
        GRAPH.settle();
        become_common(entry)
    })
}

/// Under the lock.
fn become_common(entry: &Entry) -> Option<OrderCycle> {
    if entry.task.swap(COMMON, Ordering::Relaxed) == COMMON {
        return None;
    }
    let node = node_of(entry);
    if node != 0 {
        entry.node.store(node | COMMON_NODE, Ordering::Relaxed);
    }
    let edges = entry.pair.load(Ordering::Relaxed);
    let mark = |number: u32, flag: u32| {
        let edge = GRAPH.edge(number);
        let (from, to) = edge.ends();
        let end = if flag == HELD_COMMON { from } else { to };
        let is_new =
            number != 0 && end == node && edge.modes.fetch_or(flag, Ordering::Relaxed) & flag == 0;
        is_new.then(|| search(number)).flatten()
    };
    let wanted = mark((edges >> 32) as u32, WANTED_COMMON);
    more_important(wanted, mark(edges as u32, HELD_COMMON))
}

/// Two locks have made an edge: the held one and the wanted one.
pub(super) fn remember(held: &Entry, wanted: &Entry, edge: u32) {
    let change = |entry: &Entry, change: fn(u64, u64) -> u64| {
        let before = entry.pair.load(Ordering::Relaxed);
        let after = change(before, edge.into());
        // If two tasks change the word at the same time, the lock is common.
        if after != before && !is_common(entry) {
            entry.pair.store(after, Ordering::Relaxed);
        }
    };
    change(held, |before, edge| before >> 32 << 32 | edge);
    change(wanted, |before, edge| {
        edge << 32 | before & u64::from(u32::MAX)
    });
}
