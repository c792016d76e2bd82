//! The wait that a task is in, the task that blocks it, and the priorities of both.

use crate::atomic::{AtomicBool, Ordering};
use crate::check::record::bounded::Text;
use crate::check::record::process::ProcessId;
use crate::hook::{Held, Lock, Mode, Site};
use crate::region::{self, wait_record};
use crate::sys::introspect;
use core::cmp::Reverse;

/// Whether some task of this process has, or had, a real-time priority.
pub(crate) static REAL_TIME: AtomicBool = AtomicBool::new(false);

/// The priority of a task, as far as known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// The kernel's real-time priority; 0 for none.
    pub(crate) kernel: u32,
    /// Its region's, in which 1 is the highest.
    pub(crate) recorded: Reverse<u32>,
}

impl Rank {
    /// Above all others.
    pub(crate) const UNKNOWN: Self = Self {
        kernel: u32::MAX,
        recorded: Reverse(0),
    };

    pub(crate) fn of(thread: u32) -> Option<Self> {
        let kernel = introspect::priority_of(thread)?;
        let recorded = region::recorded_priority(thread);
        Some(Self {
            kernel: kernel.into(),
            recorded: Reverse(recorded.unwrap_or_else(|| wait_record::recorded(kernel))),
        })
    }
}

/// Records that a task with this priority exists.
pub(crate) fn note_priority(priority: u32) {
    // Relaxed, here and below: a hint; a task that waits for long reads the priorities anyway.
    if priority > 0 && !REAL_TIME.load(Ordering::Relaxed) {
        REAL_TIME.store(true, Ordering::Relaxed);
    }
}

/// A wait that goes on.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) lock: Lock,
    pub(crate) mode: Mode,
    pub(crate) site: Site,
    pub(crate) began: u64,
    pub(crate) blocker: Option<Blocker>,
    /// Whether an inversion is still to be reported: never for a lock that lends priority.
    pub(crate) may_be_inverted: bool,
    /// Whether its length is still to be reported.
    pub(crate) may_be_long: bool,
    /// Whether other processes are still to be searched: see `cross_process.rs`.
    pub(crate) searches_processes: bool,
    /// Whether it waits to read where readers come first: writers then block it only after a while.
    pub(crate) may_queue_behind_writers: bool,
}

/// The task that blocks a waiter.
#[derive(Clone, Copy)]
pub(crate) struct Blocker {
    pub(crate) process: ProcessId,
    pub(crate) thread: u32,
    /// The name with which it began, as it may contain anything; only of a task of another PID namespace.
    pub(crate) name: Text<16>,
    /// The priorities of the waiter and of the blocking task when they were in the wrong order.
    pub(crate) mine: Rank,
    pub(crate) theirs: Rank,
    /// How it holds the wanted lock.
    pub(crate) held: Held,
}

impl Blocker {
    /// Whether the waiter was seen to have the higher priority.
    pub(crate) fn is_below(&self) -> bool {
        self.mine > self.theirs
    }
}
