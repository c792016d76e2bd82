//! Waiting receivers: how they wait, which is served first, and what they are given.
//!
//! A receiver that finds no message writes into its inbox that it waits at this queue, under the receivers' lock, and
//! sleeps. The queue's [`Discipline`] decides about a new message:
//!
//! - *Racing:* one sleeper is woken, and the first task that takes the lock gets the message. No message waits for a
//!   particular task to be scheduled.
//! - *In order:* the message is handed to the first of the waiters: its inbox names the cell, and the cell is marked as
//!   being read by it. No receiver overtakes. A message that was handed over is neither pending nor flushed, and takes
//!   no place. The same holds for a long message that a receiver which has not waited copies without the lock: its own
//!   inbox names the cell until then.
//!
//! A broadcast names one cell, a *board*, in the inboxes of all receivers that wait at that moment and have been given
//! nothing. One store makes it visible to all of them: the cell's state, `BOARD`. The last reader frees the cell, which
//! is a spare one.
//!
//! Before it waits, a receiver makes sure that there is a cell for whatever it may be given (`spares.rs`); so a task
//! that sends or broadcasts to it needs nothing but the locks.
//!
//! *One result:* a receiver decides under the lock, with a last check of its inbox. So a wait whose deadline passes
//! ends with what the task was given, or with the time-out, and never with both.

use super::cell::{BOARD, FREE};
use super::head::{count_down, count_up};
use super::{Discipline, lane::Index, layout::Cells, wake::Wake};
use crate::atomic::{Ordering::Relaxed, compiler_fence};
use crate::region::heap::Owner;
use crate::region::{Inbox, Task};

/// What the inbox of a waiting task names.
pub(super) enum Given {
    /// A message that is in flight with the task.
    Message(Index),
    /// A message that other tasks read, too.
    Board(Index),
}

impl<'r> Cells<'r> {
    pub(super) fn discipline(self) -> Discipline {
        Discipline::of_code(self.core.discipline())
    }

    pub(super) fn serves_in_order(self) -> bool {
        self.core.discipline() != 0
    }

    /// The number of receivers that wait and have been given nothing.
    pub(super) fn waiting(self) -> u32 {
        self.core.receiving.waiting.load(Relaxed)
    }

    /// Makes the task a waiter.
    pub(super) fn join_waiters(self, inbox: &Inbox, urgency: u32) {
        let arrival = self.core.receiving.next_arrival.load(Relaxed);
        (self.core.receiving.next_arrival).store(arrival.saturating_add(1), Relaxed);
        inbox.arrival.store(arrival, Relaxed);
        inbox.urgency.store(urgency, Relaxed);
        inbox.given.store(0, Relaxed);
        compiler_fence(crate::atomic::Ordering::SeqCst);
        inbox.queue.store(self.address(), Relaxed);
        count_up(&self.core.receiving.waiting);
    }

    /// What a waiting task has been given.
    pub(super) fn given_to(self, task: Task<'_>) -> Option<Given> {
        let index = Index::named(task.slot.inbox.given.load(Relaxed))?;
        match self.cell(index).kind() {
            BOARD => Some(Given::Board(index)),
            _ => (self.is_read_by(index, task.owner())).then_some(Given::Message(index)),
        }
    }

    /// Ends the task's wait; it has been given nothing, or a message in flight.
    pub(super) fn leave_waiters(self, inbox: &Inbox) {
        if inbox.queue.load(Relaxed) == self.address() {
            count_down(match inbox.given.load(Relaxed) {
                0 => &self.core.receiving.waiting,
                _ => &self.core.fixed.given,
            });
        }
        inbox.reset();
    }

    /// Ends the task's wait after it has read what it was given. (That makes no room: the cell took no place.)
    pub(super) fn end_given(self, index: Index, task: Task<'_>) {
        let inbox = &task.slot.inbox;
        if self.cell(index).kind() != BOARD {
            self.release(index, task);
            return self.leave_waiters(inbox);
        }
        inbox.reset();
        let readers = &self.cell(index).readers;
        let left = readers.load(Relaxed).saturating_sub(1);
        readers.store(left, Relaxed);
        if left == 0 {
            self.set(index, FREE);
            count_down(&self.core.fixed.given);
            self.put_spare(index);
        }
    }

    /// Gives the first message to the calling task, which has not waited: it is going to copy it without the lock, and
    /// the message takes no place meanwhile. Returns `false` if there is no spare cell for that.
    pub(super) fn hand_over_to_self(self, index: Index, task: Task<'_>) -> bool {
        if !self.may_wait() {
            return false;
        }
        self.join_waiters(&task.slot.inbox, 0);
        self.hand_over(index, task.owner(), &task.slot.inbox);
        true
    }

    /// For a deleted queue: removes the waiters that have been given nothing. They get nothing of what comes, in this
    /// queue or in one that is created in its head before they have noticed.
    pub(super) fn dismiss_waiters(self) {
        for (_, inbox) in self.unserved() {
            inbox.queue.store(0, Relaxed);
        }
        self.core.receiving.waiting.store(0, Relaxed);
    }

    fn give(self, inbox: &Inbox, index: Index) {
        inbox.given.store(index.name(), Relaxed);
        count_down(&self.core.receiving.waiting);
    }

    /// Hands the first of the ready messages to a waiting task.
    fn hand_over(self, index: Index, owner: Owner, inbox: &Inbox) {
        self.give(inbox, index);
        self.deliver(index, owner);
        count_up(&self.core.fixed.given);
        self.pop_ready();
    }

    /// The number of living waiters that have been given nothing.
    pub(super) fn count_unserved(self) -> u32 {
        self.unserved().count() as u32
    }

    fn unserved(self) -> impl Iterator<Item = (Owner, &'r Inbox)> {
        self.inner
            .waiters(self.address())
            .filter(|(_, inbox)| inbox.given.load(Relaxed) == 0)
    }

    /// Hands ready messages to the waiters, in their order.
    pub(super) fn serve_waiters(self) -> Wake<'r> {
        let mut wake = Wake::NONE;
        while self.waiting() > 0
            && let Some(index) = self.peek()
        {
            let by_priority = self.discipline() == Discipline::Priority;
            let first = self.unserved().min_by_key(|(_, inbox)| {
                let urgency = inbox.urgency.load(Relaxed);
                let below = if by_priority { u32::MAX - urgency } else { 0 };
                (below, inbox.arrival.load(Relaxed))
            });
            // The tasks that were counted have died: their deaths will be settled.
            let Some((owner, inbox)) = first else { break };
            self.hand_over(index, owner, inbox);
            wake = wake.and_one_on(&inbox.given);
        }
        wake
    }

    /// The commit point of a broadcast: puts a message on a board, the caller's spare cell, for all waiters; returns
    /// their number. The store of `BOARD` makes it visible to all of them. Under both locks.
    pub(super) fn post_board(self, index: Index, length: usize) -> (u32, Wake<'r>) {
        let mut readers = 0;
        for (_, inbox) in self.unserved() {
            self.give(inbox, index);
            readers += 1;
        }
        // The tasks that were counted have died.
        if readers == 0 {
            self.put_spare(index);
            return (0, Wake::NONE);
        }
        let cell = self.cell(index);
        cell.length.store(length, Relaxed);
        cell.readers.store(readers, Relaxed);
        self.set(index, BOARD);
        count_up(&self.core.fixed.given);
        (readers, Wake::receivers(u32::MAX))
    }
}
