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
    /// Waits for locks that have ended.
    pub waits: u64,
    /// The longest of them, in nanoseconds.
    pub longest_wait: u64,
    /// The longest that a lock was held, in nanoseconds, to a tick of the kernel's.
    pub longest_hold: u64,
}

/// In a line of its own: what each release looks at must not go with what each wait changes.
#[repr(align(64))]
struct Apart(AtomicU64);

static LONGEST_HOLD: Apart = Apart(AtomicU64::new(0));
static WAITS: Apart = Apart(AtomicU64::new(0));
static LONGEST_WAIT: Apart = Apart(AtomicU64::new(0));

#[inline]
fn longest(one: &Apart, nanoseconds: u64) {
    // Relaxed, here and below: a number, and nothing that follows from it.
    if nanoseconds > one.0.load(Ordering::Relaxed) {
        one.0.fetch_max(nanoseconds, Ordering::Relaxed);
    }
}

/// A wait for a lock has ended, which has lasted for so long, in nanoseconds.
pub(super) fn waited_for(nanoseconds: u64) {
    WAITS.0.fetch_add(1, Ordering::Relaxed);
    longest(&LONGEST_WAIT, nanoseconds);
}

/// A lock was held for so long, in nanoseconds.
#[inline]
pub(super) fn held_for(nanoseconds: u64) {
    longest(&LONGEST_HOLD, nanoseconds);
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
        waits: WAITS.0.load(Ordering::Relaxed),
        longest_wait: LONGEST_WAIT.0.load(Ordering::Relaxed),
        longest_hold: LONGEST_HOLD.0.load(Ordering::Relaxed),
    }
}
