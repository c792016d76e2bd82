//! How long those who are about to meet stay awake, and how long an end is put off.

use core::time::Duration;

/// Spawns that follow each other as closely as this are a burst: the next coproc is then woken before
/// it is asked for, and looks for its work without sleeping. To wake a processor that has nothing to
/// do takes longer than all else that a spawn does.
pub(super) const BURST: Duration = Duration::from_micros(60);

/// How long after its start a coproc from the pool is waited for awake, on a machine of several
/// processors: a short one is then joined without a sleep and a wake-up, which cost as much as its
/// whole life. One that runs for longer costs its joiner this much of a processor, once.
pub(super) const HURRY: Duration = Duration::from_micros(40);

/// How long a coproc from the pool puts its end off. Taking a process apart takes some 100 µs of a
/// processor; in a burst of short coprocs that would be taken from the next ones.
pub(super) const LINGER: Duration = Duration::from_millis(10);
