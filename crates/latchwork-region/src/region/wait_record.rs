//! The wait record of a task's slot: the object that the task waits for, and the task's priority.
//!
//! Each waiter sleeps on the word of its own slot, so that a wake-up is for one task. The queue of an object is
//! linked through these records. The links are a cache: the authoritative state is *which task waits for which
//! object, since when, in which order*, from which any survivor can rebuild the queue.
//!
//! | state (low bits of [`word`](WaitRecord::word)) | meaning | entered by |
//! | --- | --- | --- |
//! | 0 `IDLE` | the task waits for nothing | the task |
//! | 1 `WAITING` | the task is in the queue of `object` | the task, under the object's lock |
//! | 2 `GRANTED` | the task has what it waited for | the task that hands it over, under the object's lock |
//! | 3 `FLUSHED` | the wait was ended by a flush | the task that flushes, under the object's lock |
//! | 4 `DELETED` | the object was deleted | the task that deletes, under the object's lock |
//!
//! The bits above are the *epoch*, which is advanced by each wait: a task that reads the same word twice has seen one
//! and the same wait.
//!
//! The fields of the first line are changed by the task itself while it does not wait, and under the lock of `object`
//! while it does. The fields of [`Standing`] are documented there.
//!
//! *To which task does a record belong?* Other tasks write to it under one of three locks, those of `object`,
//! standing and lending, and only if they saw the task alive under that lock. Such a writer may outlive the task, and
//! must not write to the record of the slot's next task. (The exception is [`inherits`](Standing::inherits), which any
//! task may set needlessly.)
//!
//! The next task cannot acquire the locks: they are region locks, and it is no task of the region before the record is
//! [initialised](WaitRecord::init). It only [waits](super::Inner::wait_for_writers) until the owner that each lock has at
//! one moment, if it is alive, has released it. That is enough. The moment is a read-modify-write of the word that
//! changes nothing, after the next task has the slot. Every owner before it has released the lock by the end of that
//! wait, or is the owner that was waited for, or is dead: it writes no more, and its writes come before. Every owner after
//! it sees that the slot has another generation: each change of the word is a read-modify-write, so its acquisition reads
//! the end of a chain that begins at that moment. It does not see the dead task alive, and does not write. That holds for
//! owners that take the lock over from a dead one, too. The owner that is waited for waits for no thread that is about to
//! become a task, so the wait ends.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::mutex::InRegion;

pub const IDLE: u32 = 0;
pub const WAITING: u32 = 1;
pub const GRANTED: u32 = 2;
pub const FLUSHED: u32 = 3;
pub const DELETED: u32 = 4;
/// The bits of the state in the word.
pub const STATE: u32 = 7;
/// The increment for one more wait.
pub const EPOCH: u32 = 8;

/// The lowest priority, which is also that of a task for which none was recorded.
pub const LOWEST: u32 = 255;

/// The offset of the lock in an object.
#[cfg(not(loom))]
pub const LOCK: usize = 56;

/// See the module's documentation. Zero is the record of a task that waits for nothing.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub struct WaitRecord {
    /// State and epoch; the task sleeps on this word.
    pub word: AtomicU32,
    /// Slot + 1 of the next and the previous task in the queue; 0: none.
    pub next: AtomicU32,
    pub previous: AtomicU32,
    /// The priority that determines the task's place in the queue.
    pub priority: AtomicU32,
    /// The address of the object that the task waits for, or that was granted and not yet acknowledged; else 0.
    pub object: AtomicU64,
    /// Orders the waiters of one object, or those of one priority there.
    pub ticket: AtomicU64,
    /// The task to which the record belongs: slot and generation as one number. Any task reads it.
    pub task: AtomicU64,
    pub standing: Standing,
    #[cfg(not(loom))]
    pub lending: Lending,
}

/// A task's priority, and the state that it is computed from.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub struct Standing {
    /// The effective priority: the best of all that the task has. [`BUSY`] is set while it is being computed.
    pub effective: AtomicU32,
    /// The task's own priority.
    pub base: AtomicU32,
    /// The number of owned objects that the task has obtained and not released. Only the task itself uses it.
    pub held: AtomicU32,
    /// Whether the kernel is informed of each change.
    pub mirrored: AtomicU32,
    /// The address of the object with a ceiling that the task obtained last. Only the task itself links these.
    pub ceilings: AtomicU64,
    /// The ceiling at which the task waits for a MrsP semaphore, or owns one that is not yet on its list, or any
    /// owned semaphore that is no longer on its list; 0: none. Only the task itself uses it.
    #[cfg(not(loom))]
    pub waits_at: AtomicU32,
    /// The priority that the kernel gets while the task waits in this way; 0: the effective one. Only the task itself
    /// uses it.
    #[cfg(not(loom))]
    pub spins_at: AtomicU32,
    /// The priority that the kernel was last set to; 0: unknown. Under the lock.
    #[cfg(not(loom))]
    pub kernel_priority: AtomicU32,
    /// 0 if no task waits for an object that the task owns and inherits by. A task that begins to wait sets it, and a
    /// task that hands over; it is cleared under the lock: see `semaphore/priority.rs`.
    pub inherits: AtomicU32,
    /// Held while the effective priority is computed.
    pub lock: InRegion,
}

/// The processors that a task may run on while it owns MrsP semaphores: see `semaphore/mrsp/lend.rs`.
#[cfg(not(loom))]
#[repr(C, align(64))]
pub struct Lending {
    /// Held while the processors that the task may run on are changed.
    pub lock: InRegion,
    /// The only processor that the task could run on when it obtained its first MrsP semaphore, or began to wait for
    /// it, plus 1; 0: there were several, or the task is not mirrored. Only the task itself uses it.
    pub home: AtomicU32,
    /// The number of MrsP semaphores that the task owns. Only the task itself uses it.
    pub sections: AtomicU32,
    /// Whether the kernel may have been set to processors other than its home, or is about to be: see
    /// `semaphore/mrsp/lend.rs`. Under the lock.
    pub lent: AtomicU32,
    /// A superset of the processors that the kernel was then set to. Under the lock.
    pub told: [AtomicU64; crate::sys::scheduling::MAX_CPUS / 64],
}

/// A flag in [`Standing::effective`].
pub const BUSY: u32 = 1 << 31;

/// Why a sleep in a region ended (`park.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parked {
    /// Something may have changed: the caller must check again.
    Again,
    /// The deadline has passed.
    TimedOut,
}

impl WaitRecord {
    #[cfg(loom)]
    pub fn new(task: u64) -> Self {
        Self {
            priority: AtomicU32::new(LOWEST),
            task: AtomicU64::new(task),
            standing: Standing {
                effective: AtomicU32::new(LOWEST),
                base: AtomicU32::new(LOWEST),
                ..Standing::default()
            },
            ..Self::default()
        }
    }

    /// Initialises the record for a new task; the previous one may have left it in any state.
    #[cfg(not(loom))]
    pub(super) fn init(&self, task: u64, priority: u32) {
        self.clear_wait();
        // Relaxed: other tasks find the record by the task's identity, which is published later.
        self.standing.base.store(priority, Ordering::Relaxed);
        self.standing.effective.store(priority, Ordering::Relaxed);
        self.standing.mirrored.store(0, Ordering::Relaxed);
        self.standing.ceilings.store(0, Ordering::Relaxed);
        self.standing.held.store(0, Ordering::Relaxed);
        self.standing.waits_at.store(0, Ordering::Relaxed);
        self.standing.spins_at.store(0, Ordering::Relaxed);
        self.standing.kernel_priority.store(0, Ordering::Relaxed);
        self.standing.inherits.store(0, Ordering::Relaxed);
        self.lending.home.store(0, Ordering::Relaxed);
        self.lending.sections.store(0, Ordering::Relaxed);
        self.lending.lent.store(0, Ordering::Relaxed);
        // Release: a task that finds the task's identity here sees the other fields.
        self.task.store(task, Ordering::Release);
    }

    /// Resets the wait: the task waits for nothing, and was granted nothing.
    #[cfg(not(loom))]
    pub(super) fn clear_wait(&self) {
        // Relaxed, here and below: see `init`. The epoch is kept.
        self.object.store(0, Ordering::Relaxed);
        let epoch = self.word.load(Ordering::Relaxed) & !STATE;
        self.word.store(epoch | IDLE, Ordering::Relaxed);
    }
}

impl Standing {
    /// The number of owned objects that the task holds.
    #[inline]
    pub fn held(&self) -> u32 {
        // Relaxed, and no read-modify-write, here and below: only the task's own thread calls this.
        self.held.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn obtained(&self) {
        self.held.store(self.held() + 1, Ordering::Relaxed);
    }

    #[inline]
    pub fn released(&self) {
        self.held
            .store(self.held().wrapping_sub(1), Ordering::Relaxed);
    }
}

/// The priority to be recorded for a thread that the kernel runs at a real-time priority; 0 means none.
///
/// 99 is recorded as 1, the highest, and 1 as 99; a thread without a real-time priority gets the lowest, [`LOWEST`].
#[cfg(not(loom))]
pub fn recorded(real_time: u8) -> u32 {
    match real_time {
        1..=99 => 100 - u32::from(real_time),
        _ => LOWEST,
    }
}

/// The real-time priority for a recorded one; 0 means none. The reverse of [`recorded`]; recorded priorities from 99
/// to 254 all give 1.
#[cfg(not(loom))]
pub fn real_time(recorded: u32) -> u8 {
    match recorded {
        0 => 99,
        1..=99 => (100 - recorded) as u8,
        LOWEST.. => 0,
        _ => 1,
    }
}
