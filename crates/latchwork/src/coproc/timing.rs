//! How long a creator and a coproc spin for each other, and how long a coproc delays its exit.

use core::time::Duration;

/// Spawns at most this far apart are a burst: the pool wakes the next coproc before it is requested, and that coproc
/// polls for work without sleeping. Waking an idle processor takes longer than everything else in a spawn.
pub(super) const BURST_GAP: Duration = Duration::from_micros(60);

/// How long a joiner spins for a coproc from the pool, counted from the coproc's start, on a machine of several
/// processors. A short coproc is then joined without a sleep and a wake-up, which would cost as much as its whole life.
/// A longer one costs its joiner this much processor time, once.
pub(super) const JOIN_SPIN: Duration = Duration::from_micros(40);

/// How long a coproc from the pool delays its exit. The kernel needs some 100 µs of processor time to tear a process
/// down; in a burst of short coprocs that time would be taken from the next ones.
pub(super) const EXIT_DELAY: Duration = Duration::from_millis(10);
