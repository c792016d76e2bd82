//! Where the receivers of an empty queue sleep, the senders of a full one, and who watches.
//!
//! One word of 64 bits has two halves.
//!
//! | half | meaning | changed by |
//! | --- | --- | --- |
//! | ticket (high) | what sleepers compare; changes with each notification | +1 by a notifier |
//! | registered (low) | at least as many as sleep, or are about to | +1 by a sleeper; −n by a notifier, in the step that moves the ticket; −1 by one who leaves while the ticket is his, and was not woken |
//!
//! Who sleeps and who notifies need not hold the same lock, or any.
//!
//! Invariants
//! 1. A task that is about to sleep registers, which gives it its ticket, and then looks once more at
//!    what it waits for.
//! 2. A notifier first changes what is waited for. Then it takes as many registrations as it is going
//!    to wake, and moves the ticket on, in one step, and wakes.
//! 3. The registered are never fewer than the tasks that sleep or are about to with the current or an
//!    older ticket, less those whom notifiers are about to wake. They may be more: who was killed leaves its
//!    registration behind, who is woken for another cause (a task's death), and who leaves by itself (deadline,
//!    signal) after a notification that was another's. Each costs a later notifier one needless system call.
//! 4. A wake-up may come late, and take one who has begun to sleep since (the kernel takes the highest priority
//!    first), in place of one whose registration its notifier has taken. So who was woken leaves its own behind,
//!    though the ticket is the current one: it stands for that other one, who sleeps on.
//!
//! *No wake-up is lost.* Between the registration and the look, and between the change and the look at
//! the registrations, stands a full barrier (a read-modify-write and what `fence_after_update` adds; the
//! notifier's is the unlock of the queue's lock). So if the sleeper does not see the change, the
//! notifier sees the registration, and takes it or one like it. It moves the ticket with that: a sleeper
//! that is asleep is taken off the kernel's queue, or one like it; one that is about to sleep is refused.
//! 3 holds since a notification takes as many registrations as it wakes at most, and releases as many
//! sleepers, or all that are about to; and since nobody has taken a registration while its ticket is the
//! current one, so that who leaves with it, not woken, takes its own. A notification of all (a deletion, a broadcast)
//! wakes all, and leaves no registration. A notifier, or a woken task, that dies before it did its part is
//! covered by the region: its death wakes all who sleep there (see `region/park.rs`).
//!
//! *Orderings:* all by the barriers.
//!
//! *Elision:* with nobody registered a notification is one load, of a line that is written around sleeps
//! only.
//!
//! *Checked by:* `tests/loom_queue.rs` (one and two senders and receivers, capacity 1 and 2, spurious
//! wake-ups, deadlines), with negative twins: the ticket does not move; who leaves takes another's
//! registration, or its own when it was woken; a single sleeper is skipped; a notification takes two registrations; one of all wakes one;
//! either barrier is left out.

use crate::atomic::{AtomicU64, Ordering, const_unless_loom, fence_after_update, unless_fault};
use crate::sys::futex::{self, Sharing};

#[repr(C)]
pub(crate) struct Sleepers {
    state: AtomicU64,
}

#[cfg(loom)]
impl Default for Sleepers {
    fn default() -> Self {
        Self::new()
    }
}

fn ticket_in(state: u64) -> u32 {
    (state >> 32) as u32
}

fn registered_in(state: u64) -> u32 {
    state as u32
}

fn state_of(ticket: u32, registered: u32) -> u64 {
    u64::from(ticket) << 32 | u64::from(registered)
}

impl Sleepers {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self { state: AtomicU64::new(0) }
        }
    }

    /// Where in it the word lies that is slept on.
    #[cfg(not(loom))]
    pub(super) const WORD: usize = if cfg!(target_endian = "little") { 4 } else { 0 };

    /// The word to sleep on.
    #[cfg(not(loom))]
    pub(crate) fn word(&self) -> &crate::atomic::AtomicU32 {
        futex::high_word(&self.state)
    }

    /// Sleeps until the ticket moves. Also says whether a notification woke it.
    #[cfg(loom)]
    pub(crate) fn sleep(
        &self,
        ticket: u32,
        deadline: Option<crate::time::Deadline>,
    ) -> (futex::Wait, bool) {
        let expected = state_of(ticket, 0);
        futex::wait_high(&self.state, expected, u32::MAX, Sharing::Shared, deadline)
    }

    /// Announces a sleep; returns the value to sleep on. The caller is to look once more at what it waits
    /// for, and to [leave](Self::leave) in any case.
    pub(crate) fn register(&self) -> u32 {
        // Relaxed: ordered by the barrier. Saturating: those who were killed must not wrap it.
        let registering = |state| {
            let registered = registered_in(state).saturating_add(1);
            Some(state_of(ticket_in(state), registered))
        };
        let before = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, registering);
        unless_fault!(QueueSleeperUnordered, fence_after_update(), ());
        let (Ok(before) | Err(before)) = before;
        ticket_in(before)
    }

    /// A sleep that was announced is over, or was not begun. `woken`: perhaps by a notification.
    pub(crate) fn leave(&self, ticket: u32, woken: bool) {
        let stays = unless_fault!(QueueLeavesWhenWoken, woken, false);
        if unless_fault!(QueueLeavesForAnother, stays, false) {
            return;
        }
        let leaving = |state| {
            let is_mine = unless_fault!(QueueLeavesForAnother, ticket_in(state) == ticket, true);
            let registered = registered_in(state).checked_sub(1)?;
            is_mine.then_some(state_of(ticket_in(state), registered))
        };
        // Relaxed: it hands nothing over. One who finds it too late makes a needless call.
        let _ = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, leaving);
    }

    /// Releases up to so many sleepers; whether that took a system call. A read-modify-write of the
    /// caller stands between the change that they wait for and this.
    #[inline]
    pub(crate) fn notify(&self, most: u32) -> bool {
        unless_fault!(QueueWakerUnordered, fence_after_update(), ());
        // Relaxed: ordered by the barrier.
        let state = self.state.load(Ordering::Relaxed);
        registered_in(state) >= unless_fault!(QueueSkipsSingleSleeper, 1, 2)
            && self.release(state, most)
    }

    #[cold]
    fn release(&self, mut state: u64, most: u32) -> bool {
        let count = loop {
            let registered = registered_in(state);
            let count = registered.min(most);
            if count == 0 {
                return false;
            }
            let taken = unless_fault!(QueueTakesTwoRegistrations, count, 2);
            let moved = unless_fault!(QueueTicketStays, 1, 0);
            let next = state_of(
                ticket_in(state).wrapping_add(moved),
                registered.saturating_sub(taken),
            );
            // Relaxed: the kernel compares the ticket, and orders that with the wake-up.
            match self.state.compare_exchange_weak(
                state,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break count,
                Err(now) => state = now,
            }
        };
        let all = unless_fault!(QueueNotifiesOneOfAll, u32::MAX, 1);
        // Of all: also those who did not sleep for their registration.
        let count = if most == u32::MAX { all } else { count };
        futex::wake_high(&self.state, count, u32::MAX, Sharing::Shared);
        true
    }
}
