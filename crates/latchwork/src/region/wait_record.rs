//! What a task's slot says of the object that the task waits for, and of the task's priority.
//!
//! Each waiter sleeps on the word of its own slot, so that a wake-up is for one task. The queue of an object
//! is linked through these records; the links are a cache, and *who waits for which object, since when, in
//! which order* is the truth, from which any survivor links the queue again.
//!
//! | state (low bits of [`word`](WaitRecord::word)) | meaning | entered by |
//! | --- | --- | --- |
//! | 0 `IDLE` | the task waits for nothing | itself |
//! | 1 `WAITING` | it stands in the queue of `object` | itself, under the object's lock |
//! | 2 `GRANTED` | it has what it waited for | who hands it over, under the object's lock |
//! | 3 `FLUSHED` | it was sent away | who flushes, under the object's lock |
//! | 4 `DELETED` | the object is gone | who deletes, under the object's lock |
//!
//! The bits above are the *epoch*, which moves on with each wait: who reads the same word twice has looked
//! at one and the same wait.
//!
//! Fields of the first line are changed by the task itself while it does not wait, and under the lock of
//! `object` while it does. Those of [`Standing`] say for themselves.
//!
//! *Whose record is it?* Others write to it under one of three locks, those of `object`, standing and lending, and
//! only if they saw the task alive under that lock. One that stands still there may outlive the task, and must
//! not write to the next one's: so that goes through them before it [settles in](WaitRecord::settle_in). (But for
//! [`inherits`](Standing::inherits), which may be set for nothing, by anybody.)
#![allow(unsafe_code)]

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use crate::mutex::Acquired;
use crate::mutex::Robust;

pub(crate) const IDLE: u32 = 0;
pub(crate) const WAITING: u32 = 1;
pub(crate) const GRANTED: u32 = 2;
pub(crate) const FLUSHED: u32 = 3;
pub(crate) const DELETED: u32 = 4;
/// Of the word.
pub(crate) const STATE: u32 = 7;
/// One more wait.
pub(crate) const EPOCH: u32 = 8;

/// The lowest priority, and that of a task for which none was recorded.
pub(crate) const LOWEST: u32 = 255;

/// Where in it an object has its lock.
#[cfg(not(loom))]
pub(crate) const LOCK: usize = 56;

/// See the head of this file. Zero is the record of a task that waits for nothing.
#[repr(C, align(64))]
pub(crate) struct WaitRecord {
    /// What the task sleeps on: state and epoch.
    pub(crate) word: AtomicU32,
    /// Slot + 1 of who stands behind it, and before it; 0: nobody.
    pub(crate) next: AtomicU32,
    pub(crate) previous: AtomicU32,
    /// The priority by which it stands in the queue.
    pub(crate) priority: AtomicU32,
    /// The address of what it waits for, or has been granted and not acknowledged; else 0.
    pub(crate) object: AtomicU64,
    /// Orders those who came to the same object, or to the same priority there.
    pub(crate) ticket: AtomicU64,
    /// Whose record this is: slot and generation as one number. Read by anybody.
    pub(crate) task: AtomicU64,
    pub(crate) standing: Standing,
    #[cfg(not(loom))]
    pub(crate) lending: Lending,
}

/// A task's priority, and what it rests on.
#[repr(C, align(64))]
pub(crate) struct Standing {
    /// The priority that counts: the best of all that the task has. [`BUSY`] is set while it is worked out.
    pub(crate) effective: AtomicU32,
    /// The task's own.
    pub(crate) base: AtomicU32,
    /// How often the task has obtained what has an owner, and not released it. Its own business.
    pub(crate) held: AtomicU32,
    /// Whether the kernel is told of each change.
    pub(crate) mirrored: AtomicU32,
    /// The address of the latest object with a ceiling that the task has obtained. Linked by itself.
    pub(crate) ceilings: AtomicU64,
    /// The ceiling at which the task waits for a MrsP semaphore, or owns one that is not on its list yet; or that of
    /// any semaphore that it owns and that is on its list no more; 0: none. Its own business.
    #[cfg(not(loom))]
    pub(crate) waits_at: AtomicU32,
    /// The priority that the kernel is told of while the task waits like that; 0: the one that counts. Its own
    /// business.
    #[cfg(not(loom))]
    pub(crate) spins_at: AtomicU32,
    /// The priority that the kernel was last told of; 0: unknown. Under the lock.
    #[cfg(not(loom))]
    pub(crate) told: AtomicU32,
    /// 0 if nobody waits for what the task owns and inherits by. Set by who begins to wait and by who hands over,
    /// cleared under the lock: see `semaphore/priority.rs`.
    pub(crate) inherits: AtomicU32,
    /// Who works out the effective priority holds this.
    pub(crate) lock: Robust,
}

/// Where a task may run while it owns MrsP semaphores: see `semaphore/mrsp/lend.rs`.
#[cfg(not(loom))]
#[repr(C, align(64))]
pub(crate) struct Lending {
    /// Who changes where the task may run holds this.
    pub(crate) lock: Robust,
    /// The only processor that the task could run on when it obtained its first MrsP semaphore, or began to
    /// wait for it, plus 1; 0: there were several, or the task is not mirrored. Its own business.
    pub(crate) home: AtomicU32,
    /// How many MrsP semaphores the task owns. Its own business.
    pub(crate) sections: AtomicU32,
    /// Whether the kernel may have been told of other processors than its home, or is about to be: see
    /// `semaphore/mrsp/lend.rs`. Under the lock.
    pub(crate) lent: AtomicU32,
    /// The processors that the kernel was told of, if so; or more. Under the lock.
    pub(crate) told: [AtomicU64; crate::sys::scheduling::MAX_CPUS / 64],
}

/// In [`Standing::effective`].
pub(crate) const BUSY: u32 = 1 << 31;

impl WaitRecord {
    #[cfg(loom)]
    pub(crate) fn new(task: u64) -> Self {
        Self {
            word: AtomicU32::new(IDLE),
            next: AtomicU32::new(0),
            previous: AtomicU32::new(0),
            priority: AtomicU32::new(LOWEST),
            object: AtomicU64::new(0),
            ticket: AtomicU64::new(0),
            task: AtomicU64::new(task),
            standing: Standing {
                effective: AtomicU32::new(LOWEST),
                base: AtomicU32::new(LOWEST),
                held: AtomicU32::new(0),
                mirrored: AtomicU32::new(0),
                ceilings: AtomicU64::new(0),
                inherits: AtomicU32::new(0),
                lock: Robust::new(),
            },
        }
    }

    /// Waits until nobody is at work any more on what a dead task has left here: who holds one of the locks may
    /// have seen it alive; who comes to them later sees that it is not. For the slot's next task.
    #[cfg(not(loom))]
    pub(super) fn outlast(&self) {
        // Acquire: whatever the address leads to was there before it. 0 if the task left in good order.
        let object = self.object.load(Ordering::Acquire);
        if object != 0 {
            let lock = object as usize + LOCK;
            // SAFETY: a task of this library's waited for it, and what is waited for is never moved or freed.
            pass_through(unsafe { &*core::ptr::with_exposed_provenance::<Robust>(lock) });
        }
        pass_through(&self.standing.lock);
        pass_through(&self.lending.lock);
    }

    /// A new task has the slot, which the one before left in any state.
    #[cfg(not(loom))]
    pub(super) fn settle_in(&self, task: u64, priority: u32) {
        self.forget();
        // Relaxed: others come here by way of the task's identity, which it publishes later.
        self.standing.base.store(priority, Ordering::Relaxed);
        self.standing.effective.store(priority, Ordering::Relaxed);
        self.standing.mirrored.store(0, Ordering::Relaxed);
        self.standing.ceilings.store(0, Ordering::Relaxed);
        self.standing.held.store(0, Ordering::Relaxed);
        self.standing.waits_at.store(0, Ordering::Relaxed);
        self.standing.spins_at.store(0, Ordering::Relaxed);
        self.standing.told.store(0, Ordering::Relaxed);
        self.standing.inherits.store(0, Ordering::Relaxed);
        self.lending.home.store(0, Ordering::Relaxed);
        self.lending.sections.store(0, Ordering::Relaxed);
        self.lending.lent.store(0, Ordering::Relaxed);
        // Release: who finds the task here finds the rest.
        self.task.store(task, Ordering::Release);
    }

    /// Nobody waits here, and nobody has been granted anything.
    #[cfg(not(loom))]
    pub(super) fn forget(&self) {
        // Relaxed, here and below: see `settle_in`. The epoch goes on.
        self.object.store(0, Ordering::Relaxed);
        let epoch = self.word.load(Ordering::Relaxed) & !STATE;
        self.word.store(epoch | IDLE, Ordering::Relaxed);
    }
}

/// Takes a lock and gives it back as it was.
#[cfg(not(loom))]
pub(super) fn pass_through(lock: &Robust) {
    // SAFETY: neither an object nor a slot is ever moved.
    let taken = unsafe { lock.lock_raw(None) };
    // SAFETY: locked above.
    unsafe {
        match taken {
            Ok(Acquired::Clean) => lock.unlock_raw(),
            // Who has use for it puts right what there is.
            Ok(Acquired::OwnerDied) => lock.unlock_inconsistent(),
            Err(_) => {}
        }
    }
}

impl Standing {
    /// What the task holds that has an owner.
    pub(crate) fn held(&self) -> u32 {
        // Relaxed, and no read-modify-write, here and below: only the task's own thread comes here.
        self.held.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn obtained(&self) {
        self.held.store(self.held() + 1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn released(&self) {
        self.held
            .store(self.held().wrapping_sub(1), Ordering::Relaxed);
    }
}

/// The priority to be recorded for a thread that the kernel runs at a real-time priority; 0: at none.
///
/// 99 is 1, the highest, and 1 is 99; who has none has the lowest, [`LOWEST`].
#[cfg(not(loom))]
pub(crate) fn recorded(real_time: u8) -> u32 {
    match real_time {
        1..=99 => 100 - u32::from(real_time),
        _ => LOWEST,
    }
}

/// The real-time priority that stands for a recorded one; 0: none. The reverse of [`recorded`]; those from
/// 99 to 254 are all 1.
#[cfg(not(loom))]
pub(crate) fn real_time(recorded: u32) -> u8 {
    match recorded {
        0 => 99,
        1..=99 => (100 - recorded) as u8,
        LOWEST.. => 0,
        _ => 1,
    }
}
