//! The word on which tasks sleep at a queue: one for the receivers of an empty queue, one for the senders of a full
//! one, one for the watchers.
//!
//! The word has 64 bits, in two halves.
//!
//! | half | meaning | changed by |
//! | --- | --- | --- |
//! | ticket (high) | the value that sleepers compare; changes with each notification | +1 by a notifier |
//! | registered (low) | at least the number of tasks that sleep, or are about to | +1 by a sleeper; −n by a notifier, in the step that advances the ticket; −1 by a task that leaves while the ticket is its own, and that was not woken |
//!
//! Sleepers and notifiers need not hold the same lock, or any.
//!
//! Invariants
//! 1. A task that is about to sleep registers, which gives it its ticket, and then checks once more the condition that
//!    it waits for.
//! 2. A notifier first changes the condition. Then, in one step, it takes as many registrations as it is going to wake
//!    tasks, and advances the ticket; then it wakes.
//! 3. The registrations are never fewer than the tasks that sleep, or are about to, with the current or an older
//!    ticket, less those that notifiers are about to wake. They may be more: a killed task leaves its registration
//!    behind; so does a task that is woken for another cause (a task's death), and a task that leaves by itself
//!    (deadline, signal) after a notification meant for another. Each of these costs a later notifier one needless
//!    system call.
//! 4. A wake-up may come late, and wake a task that has begun to sleep since (the kernel wakes the highest priority
//!    first) instead of one whose registration its notifier has taken. So a woken task leaves its own registration in
//!    place even if its ticket is the current one: the registration stands for the other task, which still sleeps.
//!
//! *No wake-up is lost.* A full barrier (a read-modify-write and what `fence_after_update` adds) stands between the
//! sleeper's registration and its check, and another between the notifier's change and its read of the registrations;
//! the notifier's is the unlock of the queue's lock. So if the sleeper does not see the change, the notifier sees the
//! registration, and takes it or an equivalent one. It advances the ticket in the same step. If the sleeper is asleep,
//! the kernel wakes it or an equivalent one; if it is about to sleep, the kernel refuses its old ticket. Invariant 3
//! holds for two reasons. A notification ends at least as many sleeps as it takes registrations: the kernel wakes that
//! many sleeping tasks; if fewer are asleep, it wakes those and refuses all that are about to sleep. And while a task's
//! ticket is the current one, no notifier has taken a registration since it registered; so a task that leaves with the
//! current ticket, not woken, takes its own. A notification of all (a deletion, a broadcast) wakes all, and leaves no
//! registration. If a notifier, or a woken task, dies before it did its part, the region ends the sleeps of all
//! tasks there (see `region/park.rs`).
//!
//! *Orderings:* all by the barriers.
//!
//! *Elision:* while no task is registered, a notification is one load, of a line that is written only around sleeps.
//!
//! *Checked by:* `tests/loom_queue.rs` (one and two senders and receivers, capacity 1 and 2, spurious wake-ups,
//! deadlines), with negative twins: the ticket does not advance; a leaving task takes another's registration, or its
//! own when it was woken; a single sleeper is skipped; a notification takes two registrations; a notification of all
//! wakes one; either barrier is left out.

use crate::atomic::{AtomicU64, Ordering, fence_after_update, unless_fault};
use crate::sys::futex::{self, Sharing};

#[repr(C)]
pub(crate) struct Sleepers {
    state: AtomicU64,
}

impl Default for Sleepers {
    fn default() -> Self {
        let state = AtomicU64::new(0);
        Self { state }
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
    /// Nobody sleeps: the registrations are of tasks that have ended.
    #[cfg(not(loom))]
    pub(super) fn clear(&self) {
        // Relaxed: no task uses it.
        let ticket = u64::from(ticket_in(self.state.load(Ordering::Relaxed))) << 32;
        self.state.store(ticket, Ordering::Relaxed);
    }

    /// The offset of the word that is slept on.
    #[cfg(not(loom))]
    pub(super) const WORD: usize = if cfg!(target_endian = "little") { 4 } else { 0 };

    /// The word to sleep on. It is for waits only: it is half of an atomic.
    #[cfg(not(loom))]
    #[allow(unsafe_code, reason = "half of a word, for a wait")]
    pub(crate) fn word(&self) -> &crate::atomic::AtomicU32 {
        // SAFETY: its callers, in `attempt.rs`, `receive.rs` and `watch.rs`, sleep on the half, and do not access it.
        unsafe { futex::high_word(&self.state) }
    }

    /// Whether no notification has come since a sleeper got this ticket.
    #[cfg(not(loom))]
    pub(super) fn has_ticket(&self, ticket: u32) -> bool {
        // Acquire: pairs with the barriers of a notifier that has exited since.
        ticket_in(self.state.load(Ordering::Acquire)) == ticket
    }

    /// Sleeps until the ticket advances. Also returns whether a notification woke it.
    #[cfg(loom)]
    pub(crate) fn sleep(
        &self,
        ticket: u32,
        deadline: Option<crate::time::Deadline>,
    ) -> (futex::Wait, bool) {
        let expected = state_of(ticket, 0);
        futex::wait_high(&self.state, expected, u32::MAX, Sharing::Shared, deadline)
    }

    /// Announces a sleep; returns the value to sleep on. The caller must check its condition once more after this, and
    /// [leave](Self::leave) in any case.
    pub(crate) fn register(&self) -> u32 {
        // Relaxed: ordered by the barrier. Saturating: registrations of killed tasks must not wrap it.
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

    /// Ends an announced sleep, whether or not it was begun. `woken`: a notification may have woken the task.
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
        // Relaxed: it hands nothing over. A notifier that still sees the registration makes a needless system call.
        let _ = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, leaving);
    }

    /// Wakes at most `most` sleepers; returns whether that took a system call. Between the change of the condition and
    /// this call the caller must have a read-modify-write.
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
        // Of all: also tasks that sleep though their registration was taken.
        let count = if most == u32::MAX { all } else { count };
        futex::wake_high(&self.state, count, u32::MAX, Sharing::Shared);
        true
    }
}
