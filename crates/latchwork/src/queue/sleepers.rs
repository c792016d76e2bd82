//! Where the receivers of an empty queue sleep, the senders of a full one, and who watches.
//!
//! | word | meaning | changed by |
//! | --- | --- | --- |
//! | `ticket` | what sleepers compare; changes with each notification | a notifier, under the queue's lock |
//! | `registered` | at least as many as sleep, or are about to | +1 by a sleeper, −1 by a notifier, under the lock |
//!
//! Invariants
//! 1. A task registers, and reads the ticket, under the lock, after it found nothing to do there.
//! 2. A notifier changes the state that sleepers wait for, takes as many registrations as it wakes
//!    sleepers, and moves the ticket on, all under the lock; the wake follows after the unlock.
//! 3. `registered` never falls below the number of tasks that sleep or are about to with the
//!    current or an older ticket. It may be too high: whoever leaves for another cause (deadline,
//!    death of a task, signal) leaves its registration behind, which costs a later notifier one
//!    needless system call.
//!
//! *No wake-up is lost.* A sleeper that registered before the notification is asleep, and the wake
//! takes it or one like it off the queue; or it is about to sleep, and the kernel refuses since the
//! ticket moved. A notification of all (a deletion, a broadcast) wakes all, and leaves no registration. One that comes later finds the changed state under the lock (1, 2). 3 holds since a
//! notification takes one registration and releases at least one sleeper, or all that are about to.
//! A notifier, or a woken task, that dies before it did its part is covered by the region: its death
//! wakes all who sleep there (see `region/park.rs`).
//!
//! *Elision:* with nobody registered a notification makes no system call.
//!
//! *Checked by:* `tests/loom_queue.rs` (one and two senders and receivers, capacity 1 and 2, spurious
//! wake-ups, deadlines), with negative twins: the ticket does not move, a single sleeper is skipped, a
//! notification takes two registrations, a notification of all wakes one.

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

/// Wake-ups to be carried out after the unlock: of so many who sleep on a word, twice.
#[must_use]
#[derive(Clone, Copy)]
pub(crate) struct Wake<'a>([Option<(&'a AtomicU32, u32)>; 2]);

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

    /// Releases up to so many sleepers. Under the lock.
    pub(crate) fn notify(&self, most: u32) -> Wake<'_> {
        let registered = self.registered.load(Ordering::Relaxed);
        if registered < unless_fault!(QueueSkipsSingleSleeper, 1, 2) {
            return Wake::NONE;
        }
        let count = registered.min(most);
        let taken = unless_fault!(QueueTakesTwoRegistrations, count, 2);
        self.registered
            .store(registered.saturating_sub(taken), Ordering::Relaxed);
        self.move_on();
        Wake::of(&self.ticket, count)
    }

    /// Releases all sleepers, registered or not. Under the lock.
    pub(crate) fn notify_all(&self) -> Wake<'_> {
        self.registered.store(0, Ordering::Relaxed);
        self.move_on();
        Wake::of(
            &self.ticket,
            unless_fault!(QueueNotifiesOneOfAll, u32::MAX, 1),
        )
    }

    fn move_on(&self) {
        let moved = unless_fault!(QueueTicketStays, 1, 0);
        self.ticket.store(
            self.ticket.load(Ordering::Relaxed).wrapping_add(moved),
            Ordering::Relaxed,
        );
    }
}

impl<'a> Wake<'a> {
    /// Nobody is to be woken.
    pub(crate) const NONE: Self = Self([None; 2]);

    /// So many who sleep on a word.
    pub(crate) fn of(word: &'a AtomicU32, count: u32) -> Self {
        Self([Some((word, count)), None])
    }

    /// Both; of three wake-ups one is carried out at once.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self.0, other.0) {
            (_, [None, _]) => self,
            ([None, _], _) => other,
            ([first, None], [second, None]) => Self([first, second]),
            _ => {
                self.carry_out();
                other
            }
        }
    }

    #[cfg(loom)]
    pub(crate) fn is_needed(&self) -> bool {
        self.0[0].is_some()
    }

    /// Makes the system call, if one is needed.
    pub(crate) fn carry_out(self) {
        for (word, count) in self.0.into_iter().flatten() {
            futex::wake(word, count, Sharing::Shared);
        }
    }
}
