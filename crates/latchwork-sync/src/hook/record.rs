//! The record in which a task publishes the locks that it holds and the one that it waits for.
//!
//! The same record is in the task's slot of each region that it is a task of, and on its process's board.
//! Only its task writes it; any task may read it at any time, also from a file, without cooperation.
//!
//! | field | meaning | written |
//! | --- | --- | --- |
//! | `process`, `thread` | the task that owns the record; `thread` 0: none | at the first lock, and at the end |
//! | `count`, `held` | the locks that the task holds: entries below `count` whose `lock` is not 0, oldest first | an entry before the count that includes it |
//! | `wanted` | the lock that it waits for while `epoch` is odd | before the odd epoch |
//!
//! Addresses and sites are those of `process`. An address of a region means the same to all its tasks.
//!
//! Invariants
//! 1. If two reads return the same odd epoch, the task has waited for what `wanted` names during the whole time between
//!    them.
//! 2. A task publishes what it holds before it publishes that it waits. So of several tasks that complete a
//!    wait-for cycle, the last one to publish its wait sees all of the cycle.
//! 3. Locks beyond [`HELD`] are not recorded here; `count` then counts only those that are.
//!
//! *Frozen within a version of the region's layout and of the board's.* Zero is a record without an owner.

use super::{Kind, Lock, Mode, RecordedSite, Traits};
use crate::atomic::{AtomicU32, AtomicU64, Ordering, fence_after_update, unless_fault};

/// The number of a task's locks that it publishes.
pub const HELD: usize = if cfg!(loom) { 2 } else { 16 };

/// The length of a thread's name in bytes.
pub const NAME: usize = 16;

/// A lock that is held, as it is published.
#[repr(C)]
#[derive(Debug, Default)]
pub struct HeldLock {
    /// Its address; 0: this entry is empty.
    pub lock: AtomicU64,
    /// Where it was acquired: a [`Site`](super::Site).
    pub site: AtomicU64,
    /// Since when, in nanoseconds on CLOCK_MONOTONIC, as coarse as the kernel's tick.
    pub since: AtomicU64,
    /// Kind, traits, mode, depth: see [`pack`].
    pub what: AtomicU32,
    /// Its class, by its process's number; 0: not known yet. (The highest bit: at least two tasks have acquired it.)
    pub class: AtomicU32,
}

/// The lock that a task waits for, as it is published.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Wanted {
    /// Its address.
    pub lock: AtomicU64,
    /// Where it waits: a [`Site`](super::Site).
    pub site: AtomicU64,
    /// Since when, as for [`HeldLock`].
    pub since: AtomicU64,
    /// As for [`HeldLock`]; [`TIMED`] says that the wait ends at a deadline.
    pub what: AtomicU32,
    /// Odd while the task waits; increases by two with each wait.
    pub epoch: AtomicU32,
    /// Process in the high half and thread in the low one of a task that held it when the wait began, by their IDs in
    /// their own PID namespace; 0: not known. A hint, which is not updated.
    pub waits_for: AtomicU64,
    /// The mutex that a wait for a condition needs to end; otherwise 0.
    pub also: AtomicU64,
}

/// The record of one task; see the module. The default has no owner.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct TaskRecord {
    pub process: AtomicU32,
    pub thread: AtomicU32,
    /// The real-time priority, 0 if none, when it was last read.
    pub priority: AtomicU32,
    /// Entries of `held` in use, empty ones among them included.
    pub count: AtomicU32,
    pub wanted: Wanted,
    /// The thread's name.
    pub name: [AtomicU64; NAME / 8],
    pub held: [HeldLock; HELD],
}

/// In [`HeldLock::what`]: held as one of several readers.
pub const READS: u32 = 1 << 16;
/// In [`HeldLock::what`] of a wait: it ends at a deadline.
pub const TIMED: u32 = 1 << 17;
/// The lock was acquired by a call that never waits.
pub const TRIED: u32 = 1 << 18;
/// The number of acquisitions of a recursive lock beyond the first.
pub const DEEPER: u32 = 1 << 20;

/// Kind, traits and mode in one word.
#[inline]
pub const fn pack(lock: Lock, mode: Mode) -> u32 {
    lock.kind as u32 | (lock.traits.bits() as u32) << 8 | (mode as u32) << 16
}

/// The inverse of [`pack`].
#[inline]
pub fn unpack(address: u64, what: u32) -> (Lock, Mode) {
    let traits = Traits::from_bits_truncate((what >> 8) as u8);
    let lock = Lock::new(address as usize, Kind::from_number(what as u8)).with(traits);
    (lock, Mode::of(what & READS == 0))
}

impl HeldLock {
    /// Publishes a lock: its address last.
    #[inline]
    pub fn write(&self, lock: u64, site: u64, since: u64, what: u32, class: u32) {
        self.site.store(site, Ordering::Relaxed);
        self.since.store(since, Ordering::Relaxed);
        self.what.store(what, Ordering::Relaxed);
        self.class.store(class, Ordering::Relaxed);
        // Release: a reader that sees the address sees the other fields.
        self.lock.store(lock, Ordering::Release);
    }

    /// A copy, if the entry contains a lock.
    #[must_use]
    pub fn view(&self) -> Option<Held> {
        // Acquire: pairs with `write`.
        let lock = self.lock.load(Ordering::Acquire);
        (lock != 0).then(|| {
            let class = self.class.load(Ordering::Relaxed) & !(1 << 31);
            Held::load(lock, &self.site, &self.since, &self.what, class)
        })
    }
}

// Relaxed in this file unless stated otherwise: an access by the owning task, or a read that may be stale.
impl TaskRecord {
    /// Makes it the record of a task that holds no lock and waits for none.
    #[inline]
    pub fn begin(&self, process: u32, thread: u32, priority: u32, name: &str) {
        self.end();
        self.process.store(process, Ordering::Relaxed);
        self.priority.store(priority, Ordering::Relaxed);
        self.set_name(name);
        // Release: a reader that sees the thread's ID sees the record as its own.
        self.thread.store(thread, Ordering::Release);
    }

    /// Publishes the thread's name.
    pub fn set_name(&self, name: &str) {
        store_name(&self.name, name);
    }

    /// Ends the record: it has no owner any more.
    #[inline]
    pub fn end(&self) {
        self.thread.store(0, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
        self.wanted.end();
        self.wanted.lock.store(0, Ordering::Relaxed);
    }

    /// Publishes an entry; `count` are in use with it.
    #[inline]
    pub fn push(&self, place: usize, count: usize, write: impl FnOnce(&HeldLock)) {
        if let Some(entry) = self.held.get(place) {
            write(entry);
            // Release: pairs with `holds` and `view`.
            self.count.store(count.min(HELD) as u32, Ordering::Release);
        }
    }

    /// Removes an entry, and publishes the number of those left.
    #[inline]
    pub fn pop(&self, place: usize, left: usize) {
        if let Some(entry) = self.held.get(place) {
            entry.lock.store(0, Ordering::Relaxed);
        }
        self.count.store(left.min(HELD) as u32, Ordering::Relaxed);
    }

    /// The index in [`Self::held`] of a lock that the task holds.
    #[inline]
    pub fn holds(&self, lock: u64) -> Option<usize> {
        // Acquire: pairs with `push`.
        let count = self.count.load(Ordering::Acquire) as usize;
        self.held[..count.min(HELD)]
            .iter()
            .position(|entry| entry.lock.load(Ordering::Acquire) == lock)
    }

    /// A copy, which is consistent if the task has not changed the record meanwhile.
    #[must_use]
    pub fn view(&self) -> TaskView {
        let wanted = &self.wanted;
        // Acquire: pairs with `Wanted::begin`.
        let epoch = wanted.epoch.load(Ordering::Acquire);
        let waits = epoch & 1 != 0;
        let waits_for = wanted.waits_for.load(Ordering::Relaxed);
        let also = wanted.also.load(Ordering::Relaxed);
        let wants = waits.then(|| {
            let lock = wanted.lock.load(Ordering::Relaxed);
            Held::load(lock, &wanted.site, &wanted.since, &wanted.what, 0)
        });
        let count = self.count.load(Ordering::Acquire) as usize;
        let mut held = [None; HELD];
        for (place, entry) in held.iter_mut().zip(&self.held[..count.min(HELD)]) {
            *place = entry.view();
        }
        TaskView {
            process: self.process.load(Ordering::Relaxed),
            thread: self.thread.load(Ordering::Relaxed),
            priority: self.priority.load(Ordering::Relaxed),
            name: load_name(&self.name),
            epoch,
            wants,
            waits_for: (waits_for != 0).then_some(((waits_for >> 32) as u32, waits_for as u32)),
            also: (waits && also != 0).then_some(also),
            held,
        }
    }
}

impl Wanted {
    /// Publishes that the task is about to wait. The locks that it holds were published before; after this it may search
    /// for a wait-for cycle.
    pub fn begin(&self, lock: u64, site: u64, since: u64, what: u32, also: u64) {
        self.lock.store(lock, Ordering::Relaxed);
        self.also.store(also, Ordering::Relaxed);
        self.site.store(site, Ordering::Relaxed);
        self.since.store(since, Ordering::Relaxed);
        self.what.store(what, Ordering::Relaxed);
        self.waits_for.store(0, Ordering::Relaxed);
        let epoch = self.epoch.load(Ordering::Relaxed);
        // Release: pairs with the Acquire in `waits`. The fence orders it before all reads that follow (invariant 2).
        if unless_fault!(CheckWaitUnordered, true, false) {
            self.epoch.swap(epoch | 1, Ordering::AcqRel);
            fence_after_update();
        } else {
            self.epoch.store(epoch | 1, Ordering::Release);
        }
    }

    /// Publishes that the wait is over.
    pub fn end(&self) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        if epoch & 1 != 0 {
            // Release: a reader must not take later stores for a part of this wait.
            self.epoch.store(epoch.wrapping_add(1), Ordering::Release);
        }
    }

    /// The epoch of the current wait, if there is one.
    #[inline]
    pub fn waits(&self) -> Option<u32> {
        // Acquire: pairs with `begin`.
        let epoch = self.epoch.load(Ordering::Acquire);
        (epoch & 1 != 0).then_some(epoch)
    }
}

/// A copy of a lock that is held or wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// The lock, by its address in the task's process.
    pub lock: Lock,
    /// How it is held or wanted.
    pub mode: Mode,
    /// Where it was acquired or requested, in the task's process.
    pub site: RecordedSite,
    /// Since when, in nanoseconds on CLOCK_MONOTONIC, as coarse as the kernel's tick.
    pub since: u64,
    /// Its class, by the number that the task's process gave it; 0 if unknown, or wanted.
    pub class: u32,
    /// Whether the wait ends at a deadline.
    pub timed: bool,
    /// Whether it was acquired by a call that never waits.
    pub tried: bool,
    /// How many times it was acquired.
    pub depth: u32,
}

impl Held {
    fn load(
        address: u64,
        site: &AtomicU64,
        since: &AtomicU64,
        what: &AtomicU32,
        class: u32,
    ) -> Self {
        let what = what.load(Ordering::Relaxed);
        let (lock, mode) = unpack(address, what);
        Self {
            lock,
            mode,
            site: RecordedSite::new(site.load(Ordering::Relaxed)),
            since: since.load(Ordering::Relaxed),
            class,
            timed: what & TIMED != 0,
            tried: what & TRIED != 0,
            depth: what / DEEPER + 1,
        }
    }
}

/// A copy of a [`TaskRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskView {
    /// Its process.
    pub process: u32,
    /// Its thread; 0: the record has no owner.
    pub thread: u32,
    /// Its real-time priority when it was last read; 0: none.
    pub priority: u32,
    /// Its thread's name, which may contain anything; see [`Self::name`].
    pub name: [u8; NAME],
    /// Odd while it waits; a different value means that this wait is over.
    pub epoch: u32,
    /// The lock that it waits for.
    pub wants: Option<Held>,
    /// Process and thread of a task that held the wanted lock when the wait began, if known, by their IDs in their own
    /// PID namespace. A hint.
    pub waits_for: Option<(u32, u32)>,
    /// The mutex that it needs to end a wait for a condition.
    pub also: Option<u64>,
    /// The locks that it holds, oldest first.
    pub held: [Option<Held>; HELD],
}

/// Stores a thread's name, which another task may read.
pub fn store_name(place: &[AtomicU64; NAME / 8], name: &str) {
    let mut bytes = [0; NAME];
    let length = name.len().min(NAME);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    for (place, eight) in place.iter().zip(bytes.chunks_exact(8)) {
        let eight = eight.try_into().unwrap_or([0; 8]);
        place.store(u64::from_le_bytes(eight), Ordering::Relaxed);
    }
}

/// The bytes of a stored name.
pub fn load_name(place: &[AtomicU64; NAME / 8]) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    for (place, eight) in place.iter().zip(bytes.chunks_exact_mut(8)) {
        eight.copy_from_slice(&place.load(Ordering::Relaxed).to_le_bytes());
    }
    bytes
}

/// The text in a name's bytes, as far as it is UTF-8.
pub fn name_of(name: &[u8; NAME]) -> &str {
    let end = name.iter().position(|byte| *byte == 0);
    let name = &name[..end.unwrap_or(NAME)];
    name.utf8_chunks().next().map_or("", |whole| whole.valid())
}

impl TaskView {
    /// The thread's name, as far as it is text.
    #[must_use]
    pub fn name(&self) -> &str {
        name_of(&self.name)
    }

    /// The address of the lock that another task must release before this one can continue: the wanted lock, or the
    /// mutex of a condition that it waits for.
    #[must_use]
    pub fn needs(&self) -> Option<u64> {
        let wants = self.wants?;
        Some(self.also.unwrap_or(wants.lock.address() as u64))
    }

    /// The locks that it holds, oldest first.
    pub fn held(&self) -> impl Iterator<Item = Held> {
        self.held.iter().copied().flatten()
    }
}
