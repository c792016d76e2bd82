//! A lock that a thread holds, in the thread's own list.

use super::layout::Entry;
use crate::hook::record::{DEEPER, READS, pack, unpack};
use crate::hook::{HeldLock, Lock, Mode, Site};
use crate::sys::clock;

/// In [`HeldEntry::what`]: it was held when the process was forked, by a thread that does not exist in the child.
pub(crate) const FORKED: u32 = 1 << 19;

/// A lock that the thread holds.
#[derive(Clone, Copy)]
pub(crate) struct HeldEntry {
    pub(crate) address: usize,
    /// As in the record, without the depth.
    pub(crate) what: u32,
    /// How many times it is held, beyond the first.
    pub(crate) depth: u32,
    /// Its node of the order graph.
    pub(crate) node: u32,
    pub(crate) site: Site,
    pub(crate) since: u64,
    /// The lock's entry on the board.
    pub(crate) entry: Option<&'static Entry>,
}

impl HeldEntry {
    /// The lock, and the mode in which it is held.
    #[inline]
    pub(crate) fn lock(&self) -> (Lock, Mode) {
        unpack(self.address as u64, self.what)
    }

    /// Whether it was held when the process was forked; the parent's thread still holds the parent's lock.
    pub(crate) fn is_from_before_fork(&self) -> bool {
        self.what & FORKED != 0
    }

    /// Whether it is held in a read mode.
    #[inline]
    pub(crate) fn reads(&self) -> bool {
        self.what & READS != 0
    }
}

impl HeldEntry {
    /// The entry of a lock that was taken just now.
    #[inline]
    pub(crate) fn new(
        lock: Lock,
        mode: Mode,
        site: Site,
        node: u32,
        entry: Option<&'static Entry>,
    ) -> Self {
        Self {
            address: lock.address(),
            what: pack(lock, mode),
            depth: 0,
            node,
            site,
            since: clock::coarse(),
            entry,
        }
    }

    #[inline]
    pub(crate) fn write(&self, entry: &HeldLock) {
        entry.write(
            self.address as u64,
            self.site.raw(),
            self.since,
            self.what | (self.depth.min(u32::MAX / DEEPER) * DEEPER),
            self.node,
        );
    }
}
