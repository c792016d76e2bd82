//! Counts of what the checker has seen.

use super::order_graph::graph::GRAPH;
use crate::atomic::{AtomicU64, Ordering};
use crate::check::record::board;

/// What the checker has seen in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// How many locks, and other objects that tasks wait for.
    pub locks: u32,
    /// How many uses were of further objects, which found no room and are not checked.
    pub unchecked: u32,
    /// How many lock orders found no room, and are not checked.
    pub lost_orders: u32,
    /// How many findings were reported.
    pub findings: u32,
    /// How many waits for locks have ended.
    pub waits: u64,
    /// The longest of these waits, in nanoseconds.
    pub longest_wait: u64,
    /// The longest hold of a lock, in nanoseconds, with the precision of a kernel tick.
    pub longest_hold: u64,
}

/// In a cache line of its own: each wait changes one of these, and each release reads another.
#[repr(align(64))]
struct Apart(AtomicU64);

static LONGEST_HOLD: Apart = Apart(AtomicU64::new(0));
static WAITS: Apart = Apart(AtomicU64::new(0));
static LONGEST_WAIT: Apart = Apart(AtomicU64::new(0));

#[inline]
fn longest(one: &Apart, nanoseconds: u64) {
    // Relaxed, here and below: nothing else depends on the numbers.
    if nanoseconds > one.0.load(Ordering::Relaxed) {
        one.0.fetch_max(nanoseconds, Ordering::Relaxed);
    }
}

/// A wait for a lock has ended, which lasted for so many nanoseconds.
pub(crate) fn waited_for(nanoseconds: u64) {
    WAITS.0.fetch_add(1, Ordering::Relaxed);
    longest(&LONGEST_WAIT, nanoseconds);
}

/// A lock was held for so many nanoseconds.
#[inline]
pub(crate) fn held_for(nanoseconds: u64) {
    longest(&LONGEST_HOLD, nanoseconds);
}

/// The counts so far; zeros if nothing was checked.
#[must_use]
pub fn totals() -> Totals {
    let Some(board) = board::board() else {
        return Totals::default();
    };
    let header = board.header();
    let findings = header.findings.iter();
    Totals {
        locks: header.locks.load(Ordering::Relaxed),
        unchecked: header.unchecked.load(Ordering::Relaxed),
        lost_orders: GRAPH.head.lost.load(Ordering::Relaxed),
        findings: findings.map(|count| count.load(Ordering::Relaxed)).sum(),
        waits: WAITS.0.load(Ordering::Relaxed),
        longest_wait: LONGEST_WAIT.0.load(Ordering::Relaxed),
        longest_hold: LONGEST_HOLD.0.load(Ordering::Relaxed),
    }
}
