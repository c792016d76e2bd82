//! Where the receivers of an empty queue sleep, the senders of a full one, and who watches.
//!
//! | word | meaning | changed by |
//! | --- | --- | --- |
//! | `ticket` | what sleepers compare; changes with each notification | +1 by a notifier |
//! | `registered` | at least as many as sleep, or are about to | +1 by a sleeper, −n by a notifier |
//!
//! Who sleeps and who notifies need not hold the same lock, or any.
//!
//! Invariants
//! 1. A task that is about to sleep reads the ticket, registers, and then looks once more at what it
//!    waits for.
//! 2. A notifier first changes what is waited for. Then it takes as many registrations as it is going
//!    to wake, moves the ticket on, and wakes.
//! 3. `registered` never falls below the number of tasks that sleep or are about to with the
//!    current or an older ticket. It may be too high: whoever does not sleep after all, or leaves for
//!    another cause (deadline, death of a task, signal), leaves its registration behind, which costs a later
//!    notifier one needless system call.
//!
//! *No wake-up is lost.* Between the registration and the look, and between the change and the look at
//! the registrations, stands a full barrier (a read-modify-write and what `fence_after_update` adds; the
//! notifier's is the unlock of the queue's lock). So if the sleeper does not see the change, the
//! notifier sees the registration, and takes it or one like it. It moves the ticket after that, and the
//! sleeper had read it before: a sleeper that is asleep is taken off the kernel's queue, or one like
//! it; one that is about to sleep is refused. 3 holds since a notification takes as many registrations
//! as it wakes at most, and releases as many sleepers, or all that are about to. A notification of all (a
//! deletion, a broadcast) wakes all, and leaves no registration. A notifier, or a woken task, that dies
//! before it did its part is covered by the region: its death wakes all who sleep there (see
//! `region/park.rs`).
//!
//! *Orderings:* SYNC registration: Release by the sleeper, Acquire by the notifier that takes it, so that the
//! ticket moves after it was read. All else by the barriers.
//!
//! *Elision:* with nobody registered a notification is one load, of a line that is written around sleeps
//! only.
//!
//! *Checked by:* `tests/loom_queue.rs` (one and two senders and receivers, capacity 1 and 2, spurious
//! wake-ups, deadlines), with negative twins: the ticket does not move, or is read after the registration; a
//! single sleeper is skipped; a notification takes two registrations; one of all wakes one; either
//! barrier is left out.

use crate::atomic::{AtomicU32, Ordering, const_unless_loom, fence_after_update, unless_fault};
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

    /// Announces a sleep; returns the value to sleep on. The caller is to look once more at what it waits
    /// for.
    pub(crate) fn register(&self) -> u32 {
        // Relaxed: SYNC registration.
        let early = self.ticket.load(Ordering::Relaxed);
        // Release: SYNC registration. Saturating: years of timed-out waits that nobody notifies must not
        // wrap it.
        let _ = self
            .registered
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |registered| {
                Some(registered.saturating_add(1))
            });
        unless_fault!(QueueSleeperUnordered, fence_after_update(), ());
        unless_fault!(
            QueueReadsTicketLate,
            early,
            self.ticket.load(Ordering::Relaxed)
        )
    }

    /// Releases up to so many sleepers; whether that took a system call. A read-modify-write of the
    /// caller stands between the change that they wait for and this.
    #[inline]
    pub(crate) fn notify(&self, most: u32) -> bool {
        unless_fault!(QueueWakerUnordered, fence_after_update(), ());
        // Relaxed: ordered by the barrier.
        let registered = self.registered.load(Ordering::Relaxed);
        registered >= unless_fault!(QueueSkipsSingleSleeper, 1, 2) && self.release(registered, most)
    }

    #[cold]
    fn release(&self, mut registered: u32, most: u32) -> bool {
        let count = loop {
            let count = registered.min(most);
            if count == 0 {
                return false;
            }
            let taken = unless_fault!(QueueTakesTwoRegistrations, count, 2);
            // Acquire: SYNC registration.
            match self.registered.compare_exchange_weak(
                registered,
                registered.saturating_sub(taken),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break count,
                Err(now) => registered = now,
            }
        };
        let moved = unless_fault!(QueueTicketStays, 1, 0);
        // Relaxed: compared by the kernel, which orders that with the wake-up.
        self.ticket.fetch_add(moved, Ordering::Relaxed);
        let all = unless_fault!(QueueNotifiesOneOfAll, u32::MAX, 1);
        // Of all: also those who did not sleep for their registration.
        let count = if most == u32::MAX { all } else { count };
        futex::wake(&self.ticket, count, Sharing::Shared);
        true
    }
}
