//! What a task holds and what it waits for, where others can read it.
//!
//! The same record stands in a task's slot of each region that it is a task of, and on its process's board.
//! Its task alone writes it; anybody may read it at any time, also from a file, without cooperation.
//!
//! | field | says | written |
//! | --- | --- | --- |
//! | `process`, `thread` | whose record it is; `thread` 0: nobody's | at the first lock, and at the end |
//! | `count`, `held` | what the task holds: entries below `count` whose `lock` is not 0, oldest first | an entry before the count that includes it |
//! | `wanted` | what it waits for while `epoch` is odd | before the epoch that says so |
//!
//! Addresses and sites are those of `process`. An address of a region means the same to all its tasks.
//!
//! Invariants
//! 1. An odd epoch, read twice around anything, says that the task waited all the while for what
//!    `wanted` says.
//! 2. A task publishes what it holds before it publishes that it waits. So of several tasks that close a
//!    circle, the last one to publish its wait sees all of it (see `check/detect/cycle.rs`).
//! 3. What is held beyond [`HELD`] is not here; `count` then counts only what is.
//!
//! *Frozen within a version of the region's layout and of the board's.* Zero is the record of nobody.

use super::{Kind, Lock, Mode, RecordedSite, Traits};
use crate::atomic::{AtomicU32, AtomicU64, Ordering, fence_after_update, unless_fault};

/// How many locks of a task are told to others.
pub const HELD: usize = if cfg!(loom) { 2 } else { 16 };

/// Bytes of a name that are kept.
pub const NAME: usize = 16;

/// A lock that is held, as others see it.
#[repr(C)]
#[derive(Debug)]
pub struct HeldLock {
    /// Its address; 0: this place is empty.
    pub lock: AtomicU64,
    /// Where it was taken: a [`Site`](super::Site).
    pub site: AtomicU64,
    /// Since when, in nanoseconds on CLOCK_MONOTONIC, as coarse as the kernel's tick.
    pub since: AtomicU64,
    /// Kind, traits, mode, depth: see [`pack`].
    pub what: AtomicU32,
    /// Its class, by the number that its process gave it; 0: not known yet.
    /// (The highest bit says that at least two tasks have taken it.)
    pub class: AtomicU32,
}

/// What a task waits for, as others see it.
#[repr(C)]
#[derive(Debug)]
pub struct Wanted {
    /// Its address.
    pub lock: AtomicU64,
    /// Where: a [`Site`](super::Site).
    pub site: AtomicU64,
    /// Since when, as for [`HeldLock`].
    pub since: AtomicU64,
    /// As for [`HeldLock`]; [`TIMED`] says that the wait ends at a deadline.
    pub what: AtomicU32,
    /// Odd while the task waits; moves on twice for each wait.
    pub epoch: AtomicU32,
    /// Process in the high half and thread in the low one of a task that held it when the wait began; 0:
    /// not known. A hint, which nobody keeps up.
    pub waits_for: AtomicU64,
    /// The mutex that a wait for a condition needs to end; else 0.
    pub also: AtomicU64,
}

/// See the head of this file.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct TaskRecord {
    pub process: AtomicU32,
    pub thread: AtomicU32,
    /// The real-time priority, 0 if none, when it was last looked at.
    pub priority: AtomicU32,
    /// Entries of `held` in use, empty ones among them included.
    pub count: AtomicU32,
    pub wanted: Wanted,
    /// The thread's name.
    pub name: [AtomicU64; NAME / 8],
    pub held: [HeldLock; HELD],
}

/// In [`HeldLock::what`]: as one of several readers.
pub const READS: u32 = 1 << 16;
/// In [`HeldLock::what`] of a wait: it ends at a deadline.
pub const TIMED: u32 = 1 << 17;
/// The lock was taken by a call that never waits.
pub const TRIED: u32 = 1 << 18;
/// How often a recursive lock was taken, beyond once.
pub const DEEPER: u32 = 1 << 20;

/// Kind, traits and mode in one word.
#[inline]
pub const fn pack(lock: Lock, mode: Mode) -> u32 {
    lock.kind as u32 | (lock.traits.bits() as u32) << 8 | (mode as u32) << 16
}

/// What [`pack`] packed.
#[inline]
pub fn unpack(address: u64, what: u32) -> (Lock, Mode) {
    let traits = Traits::from_bits_truncate((what >> 8) as u8);
    let lock = Lock::new(address as usize, Kind::from_number(what as u8)).with(traits);
    let mode = if what & READS != 0 {
        Mode::Shared
    } else {
        Mode::Exclusive
    };
    (lock, mode)
}

impl HeldLock {
    /// Says all of a lock; the lock last.
    #[inline]
    pub fn write(&self, lock: u64, site: u64, since: u64, what: u32, class: u32) {
        self.site.store(site, Ordering::Relaxed);
        self.since.store(since, Ordering::Relaxed);
        self.what.store(what, Ordering::Relaxed);
        self.class.store(class, Ordering::Relaxed);
        // Release: who sees the lock sees what is said of it.
        self.lock.store(lock, Ordering::Release);
    }

    /// A copy, if a lock stands here.
    #[must_use]
    pub fn view(&self) -> Option<Held> {
        // Acquire: pairs with `write`.
        let lock = self.lock.load(Ordering::Acquire);
        (lock != 0).then(|| {
            Held::new(
                lock,
                self.site.load(Ordering::Relaxed),
                self.since.load(Ordering::Relaxed),
                self.what.load(Ordering::Relaxed),
                self.class.load(Ordering::Relaxed) & !(1 << 31),
            )
        })
    }
}

// Relaxed in all of this file, where nothing is said: the task's own, or a look whose answer may be stale.
impl TaskRecord {
    /// Nobody's.
    #[allow(clippy::new_without_default, reason = "for models and unit tests")]
    pub fn new() -> Self {
        use core::array::from_fn;
        let wide = || AtomicU64::new(0);
        let narrow = || AtomicU32::new(0);
        Self {
            process: narrow(),
            thread: narrow(),
            priority: narrow(),
            count: narrow(),
            wanted: Wanted {
                lock: wide(),
                site: wide(),
                since: wide(),
                what: narrow(),
                epoch: narrow(),
                waits_for: wide(),
                also: wide(),
            },
            name: from_fn(|_| wide()),
            held: from_fn(|_| HeldLock {
                lock: wide(),
                site: wide(),
                since: wide(),
                what: narrow(),
                class: narrow(),
            }),
        }
    }

    /// Says whose record this is, and that it holds and wants nothing.
    #[inline]
    pub fn begin(&self, process: u32, thread: u32, priority: u32, name: &str) {
        self.end();
        self.process.store(process, Ordering::Relaxed);
        self.priority.store(priority, Ordering::Relaxed);
        self.set_name(name);
        // Release: who sees the thread sees that the record is its.
        self.thread.store(thread, Ordering::Release);
    }

    /// Says what the thread is called now.
    pub fn set_name(&self, name: &str) {
        let mut bytes = [0; NAME];
        let length = name.len().min(NAME);
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        for (place, eight) in self.name.iter().zip(bytes.chunks_exact(8)) {
            let eight = eight.try_into().unwrap_or([0; 8]);
            place.store(u64::from_le_bytes(eight), Ordering::Relaxed);
        }
    }

    /// It is nobody's record any more.
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

    /// Takes an entry away, and says how many are left.
    #[inline]
    pub fn pop(&self, place: usize, left: usize) {
        if let Some(entry) = self.held.get(place) {
            entry.lock.store(0, Ordering::Relaxed);
        }
        self.count.store(left.min(HELD) as u32, Ordering::Relaxed);
    }

    /// Whether the task holds a lock, and how; the place in [`Self::held`].
    #[inline]
    pub fn holds(&self, lock: u64) -> Option<usize> {
        // Acquire: pairs with `push`.
        let count = self.count.load(Ordering::Acquire) as usize;
        self.held[..count.min(HELD)]
            .iter()
            .position(|entry| entry.lock.load(Ordering::Acquire) == lock)
    }

    /// The name of the thread.
    fn name(&self) -> [u8; NAME] {
        let mut bytes = [0; NAME];
        for (place, eight) in self.name.iter().zip(bytes.chunks_exact_mut(8)) {
            eight.copy_from_slice(&place.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes
    }

    /// A copy, in which everything belongs together if the task has not moved on meanwhile.
    #[must_use]
    pub fn view(&self) -> TaskView {
        let wanted = &self.wanted;
        // Acquire: pairs with `Wanted::begin`.
        let epoch = wanted.epoch.load(Ordering::Acquire);
        let waits = epoch & 1 != 0;
        let what = wanted.what.load(Ordering::Relaxed);
        let waits_for = wanted.waits_for.load(Ordering::Relaxed);
        let also = wanted.also.load(Ordering::Relaxed);
        let wants = waits.then(|| {
            Held::new(
                wanted.lock.load(Ordering::Relaxed),
                wanted.site.load(Ordering::Relaxed),
                wanted.since.load(Ordering::Relaxed),
                what,
                0,
            )
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
            name: self.name(),
            epoch,
            wants,
            waits_for: (waits_for != 0).then_some(((waits_for >> 32) as u32, waits_for as u32)),
            also: (waits && also != 0).then_some(also),
            held,
        }
    }
}

impl Wanted {
    /// The task is about to wait. What it holds was published before; after this it may look round.
    pub fn begin(&self, lock: u64, site: u64, since: u64, what: u32, also: u64) {
        self.lock.store(lock, Ordering::Relaxed);
        self.also.store(also, Ordering::Relaxed);
        self.site.store(site, Ordering::Relaxed);
        self.since.store(since, Ordering::Relaxed);
        self.what.store(what, Ordering::Relaxed);
        self.waits_for.store(0, Ordering::Relaxed);
        let epoch = self.epoch.load(Ordering::Relaxed);
        // Release: pairs with the Acquire in `waits`. And ahead of all looks that follow (invariant 2).
        if unless_fault!(CheckWaitUnordered, true, false) {
            self.epoch.swap(epoch | 1, Ordering::AcqRel);
            fence_after_update();
        } else {
            self.epoch.store(epoch | 1, Ordering::Release);
        }
    }

    /// The wait is over.
    pub fn end(&self) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        if epoch & 1 != 0 {
            // Release: a reader that sees the even epoch must not take what follows for this wait.
            self.epoch.store(epoch.wrapping_add(1), Ordering::Release);
        }
    }

    /// The epoch of the wait that is under way.
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
    /// Where it was taken, or asked for, in the task's process.
    pub site: RecordedSite,
    /// Since when, in nanoseconds on CLOCK_MONOTONIC, as coarse as the kernel's tick.
    pub since: u64,
    /// Its class, by the number that the task's process gave it; 0 if unknown, or wanted.
    pub class: u32,
    /// A wait that ends at a deadline.
    pub timed: bool,
    /// Taken by a call that never waits.
    pub tried: bool,
    /// How often it was taken.
    pub depth: u32,
}

impl Held {
    fn new(address: u64, site: u64, since: u64, what: u32, class: u32) -> Self {
        let (lock, mode) = unpack(address, what);
        Self {
            lock,
            mode,
            site: RecordedSite::new(site),
            since,
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
    /// Its thread; 0: the record is nobody's.
    pub thread: u32,
    /// Its real-time priority when it was last looked at; 0: none.
    pub priority: u32,
    /// Its thread's name, which may contain anything; see [`Self::name`].
    pub name: [u8; NAME],
    /// Odd while it waits; another one says that it has moved on.
    pub epoch: u32,
    /// What it waits for.
    pub wants: Option<Held>,
    /// Process and thread of a task that held that when the wait began, if it was known. A hint.
    pub waits_for: Option<(u32, u32)>,
    /// The mutex that it needs for a wait for a condition to end.
    pub also: Option<u64>,
    /// What it holds, oldest first.
    pub held: [Option<Held>; HELD],
}

/// The text in a name's place, as far as it is one.
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

    /// The address of what another task must release before this one can go on: what it wants, or the mutex of a
    /// condition that it waits for.
    #[must_use]
    pub fn needs(&self) -> Option<u64> {
        let wants = self.wants?;
        Some(self.also.unwrap_or(wants.lock.address as u64))
    }

    /// What it holds, oldest first.
    pub fn held(&self) -> impl Iterator<Item = Held> {
        self.held.iter().copied().flatten()
    }
}
