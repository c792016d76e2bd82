//! The node that a lock has in the order graph, and whether several tasks have taken the lock.

use crate::atomic::{AtomicU32, Ordering};
use crate::check::record::layout::{COMMON, Entry, NO_TASK};
use crate::hook::record::unpack;

/// In a gate, beside its address: the lock was held as one of several readers. (Locks lie at even addresses.)
pub(crate) const READ_GATE: u64 = 1;

/// How many classes were split so far.
pub(crate) static SPLITS: AtomicU32 = AtomicU32::new(0);

/// In [`Entry::node`]: the lock is common.
pub(crate) const COMMON_NODE: u32 = 1 << 31;

pub(crate) fn is_common(entry: &Entry) -> bool {
    let what = entry.what.load(Ordering::Relaxed);
    entry.task.load(Ordering::Relaxed) == COMMON || unpack(0, what).0.is_shared()
}

/// Counts a task in a word that names the only task, or records that there are several.
pub(crate) fn count_task(word: &AtomicU32, task: u32) {
    // Relaxed: under the lock.
    match word.load(Ordering::Relaxed) {
        NO_TASK => word.store(task, Ordering::Relaxed),
        known if known == task => {}
        _ => word.store(COMMON, Ordering::Relaxed),
    }
}

/// A lock's node.
pub(crate) fn node_of(entry: &Entry) -> u32 {
    entry.node.load(Ordering::Relaxed) & !COMMON_NODE
}
