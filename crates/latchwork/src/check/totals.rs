//! What was seen so far, in numbers.

use super::{board, order};
use crate::atomic::{AtomicU64, Ordering};

/// What the checker has seen in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Locks, and what else tasks wait for.
    pub locks: u32,
    /// Uses of others, which found no room and are not checked.
    pub unchecked: u32,
    /// Orders of locks that found no room, and are not checked.
    pub lost_orders: u32,
    /// Findings that were reported.
    pub findings: u32,
    /// The longest that a lock was held, in nanoseconds, to a tick of the kernel's.
    pub longest_hold: u64,
}

static LONGEST_HOLD: AtomicU64 = AtomicU64::new(0);

/// A lock was held for so long, in nanoseconds.
#[inline]
pub(super) fn held_for(nanoseconds: u64) {
    // Relaxed, here and below: a number, and nothing that follows from it.
    if nanoseconds > LONGEST_HOLD.load(Ordering::Relaxed) {
        LONGEST_HOLD.fetch_max(nanoseconds, Ordering::Relaxed);
    }
}

/// What was seen so far. Zeros if nothing was.
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
        lost_orders: order::lost(),
        findings: findings.map(|count| count.load(Ordering::Relaxed)).sum(),
        longest_hold: LONGEST_HOLD.load(Ordering::Relaxed),
    }
}
