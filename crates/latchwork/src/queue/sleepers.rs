//! Where the receivers of an empty queue sleep, and the senders of a full one.
//!
//! | word | meaning | changed by |
//! | --- | --- | --- |
//! | `ticket` | what sleepers compare; changes with each notification | a notifier, under the queue's lock |
//! | `registered` | at least as many as sleep, or are about to | +1 by a sleeper, −1 by a notifier, under the lock |
//!
//! Invariants
//! 1. A task registers, and reads the ticket, under the lock, after it found nothing to do there.
//! 2. A notifier changes the state that sleepers wait for, takes one registration, and moves the
//!    ticket on, all under the lock; the wake follows after the unlock.
//! 3. `registered` never falls below the number of tasks that sleep or are about to with the
//!    current or an older ticket. It may be too high: whoever leaves for another cause (deadline,
//!    death of a task, signal) leaves its registration behind, which costs a later notifier one
//!    needless system call.
//!
//! *No wake-up is lost.* A sleeper that registered before the notification is asleep, and the wake
//! takes it or one like it off the queue; or it is about to sleep, and the kernel refuses since the
//! ticket moved. One that comes later finds the changed state under the lock (1, 2). 3 holds since a
//! notification takes one registration and releases at least one sleeper, or all that are about to.
//! A notifier, or a woken task, that dies before it did its part is covered by the region: its death
//! wakes all who sleep there (see `region/park.rs`).
//!
//! *Elision:* with nobody registered a notification makes no system call.
//!
//! *Checked by:* `tests/loom_queue.rs` (one and two senders and receivers, capacity 1 and 2, spurious
//! wake-ups, deadlines), with negative twins: the ticket does not move, a single sleeper is skipped, a
//! notification takes two registrations.

use crate::atomic::{AtomicU32, Ordering, const_unless_loom, unless_fault};
use crate::sys::futex::{self, Sharing};

#[repr(C)]
pub(crate) struct Sleepers {
    ticket: AtomicU32,
    registered: AtomicU32,
}

#[cfg(loom)]
impl Default for Sleepers {
    fn default() -> Self {
        Self::new()
    }
}

/// A wake-up to be carried out after the unlock.
#[must_use]
pub(crate) struct Wake<'a>(Option<&'a AtomicU32>);

impl Sleepers {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self { ticket: AtomicU32::new(0), registered: AtomicU32::new(0) }
        }
    }

    /// The word to sleep on.
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.ticket
    }

    /// Announces a sleep; returns the value to sleep on. Under the lock.
    pub(crate) fn register(&self) -> u32 {
        // Relaxed, here and below: ordered by the queue's lock, and compared by the kernel. Saturating:
        // years of timed-out waits that nobody notifies must not wrap it below the sleepers.
        self.registered.store(
            self.registered.load(Ordering::Relaxed).saturating_add(1),
            Ordering::Relaxed,
        );
        self.ticket.load(Ordering::Relaxed)
    }

    /// Releases one sleeper. Under the lock.
    pub(crate) fn notify(&self) -> Wake<'_> {
        let registered = self.registered.load(Ordering::Relaxed);
        if registered < unless_fault!(QueueSkipsSingleSleeper, 1, 2) {
            return Wake(None);
        }
        let taken = unless_fault!(QueueTakesTwoRegistrations, 1, 2);
        self.registered
            .store(registered.saturating_sub(taken), Ordering::Relaxed);
        let moved = unless_fault!(QueueTicketStays, 1, 0);
        self.ticket.store(
            self.ticket.load(Ordering::Relaxed).wrapping_add(moved),
            Ordering::Relaxed,
        );
        Wake(Some(&self.ticket))
    }
}

impl Wake<'_> {
    /// Nobody is to be woken.
    pub(crate) const NONE: Self = Self(None);

    #[cfg(loom)]
    pub(crate) fn is_needed(&self) -> bool {
        self.0.is_some()
    }

    /// Makes the system call, if one is needed.
    pub(crate) fn carry_out(self) {
        if let Some(word) = self.0 {
            futex::wake(word, 1, Sharing::Shared);
        }
    }
}
