//! Receivers that wait: who they are, who is served first, and what they are given.
//!
//! A receiver that finds nothing writes into its inbox that it waits at this queue, under the receivers' lock, and
//! sleeps. What becomes of a new message is the queue's [`Discipline`]:
//!
//! - *Racing:* one sleeper is woken, and whoever comes first takes the message. Nothing waits for a
//!   task to get its processor.
//! - *In order:* the message is handed to the first of those who wait: its cell is marked as being read by
//!   it, and named in its inbox. Nobody overtakes, and a message that has gone to a task that waits is
//!   neither pending nor flushed.
//!
//! A broadcast names one cell, a *board*, in the inboxes of all who wait at that moment and have been
//! given nothing, and becomes true for all of them by one store: the cell's state. The last one that
//! has copied it frees it.
//!
//! *One result:* a receiver decides under the lock, with a last look at its inbox. So a wait whose
//! deadline passes ends with what the task was given, or with the time-out, and never with both.

use super::cells::{BOARD, Cells, FREE, Index};
use super::wake::Wake;
use crate::atomic::{Ordering::Relaxed, compiler_fence};
use crate::region::heap::Owner;
use crate::region::{Inbox, Task};

/// Who of several receivers that wait gets a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// Whoever comes first, be it a task that has not waited.
    #[default]
    Racing,
    /// Who has waited longest.
    Fifo,
    /// Who has the highest priority; of several, who has waited longest. It is the task's
    /// [priority](crate::region::TaskId::current_priority) in the region, whose changes move it while it waits, or
    /// the real-time priority of the moment at which the wait begins, if that is higher.
    Priority,
}

impl Discipline {
    pub(super) fn code(self) -> u32 {
        self as u32
    }

    pub(super) fn of_code(code: u32) -> Self {
        [Self::Racing, Self::Fifo, Self::Priority]
            .into_iter()
            .find(|discipline| discipline.code() == code)
            .unwrap_or_default()
    }
}

/// What stands in the inbox of a task that waits.
pub(super) enum Given {
    /// A message that is in flight with it.
    Message(Index),
    /// A message that others read, too.
    Board(Index),
}

impl<'r> Cells<'r> {
    pub(super) fn discipline(self) -> Discipline {
        Discipline::of_code(self.core.discipline())
    }

    pub(super) fn serves_in_order(self) -> bool {
        self.core.discipline() != 0
    }

    pub(super) fn nobody_waits(self) -> bool {
        self.waiting() == 0
    }

    /// Receivers that wait.
    pub(super) fn waiting(self) -> u32 {
        self.core.receiving.waiting.load(Relaxed)
    }

    /// The task waits from now on.
    pub(super) fn join_waiters(self, inbox: &Inbox, urgency: u32) {
        let arrival = self.core.receiving.next_arrival.load(Relaxed);
        let next = arrival.saturating_add(1);
        self.core.receiving.next_arrival.store(next, Relaxed);
        inbox.arrival.store(arrival, Relaxed);
        inbox.urgency.store(urgency, Relaxed);
        inbox.given.store(0, Relaxed);
        compiler_fence(crate::atomic::Ordering::SeqCst);
        inbox.queue.store(self.address(), Relaxed);
        let waiting = &self.core.receiving.waiting;
        waiting.store(waiting.load(Relaxed) + 1, Relaxed);
    }

    /// What a task that waits has been given.
    pub(super) fn given_to(self, task: Task<'_>) -> Option<Given> {
        let index = Index::named(task.slot.inbox.given.load(Relaxed))?;
        if self.cell(index).kind() == BOARD {
            Some(Given::Board(index))
        } else {
            self.is_read_by(index, task.owner())
                .then_some(Given::Message(index))
        }
    }

    /// The task waits no more, and has been given nothing but a message in flight.
    pub(super) fn leave_waiters(self, inbox: &Inbox) {
        let is_counted = inbox.queue.load(Relaxed) == self.address();
        if is_counted && inbox.given.load(Relaxed) == 0 {
            let waiting = self.core.receiving.waiting.load(Relaxed);
            self.core
                .receiving
                .waiting
                .store(waiting.saturating_sub(1), Relaxed);
        }
        inbox.reset();
    }

    /// The task has read a board, and waits no more; whether that made room.
    fn leave_board(self, index: Index, inbox: &Inbox) -> bool {
        inbox.reset();
        let readers = &self.cell(index).readers;
        let left = readers.load(Relaxed).saturating_sub(1);
        readers.store(left, Relaxed);
        if left > 0 {
            return false;
        }
        // First: senders that find the cell must leave one for the next board.
        let boards = &self.core.fixed.boards;
        boards.store(boards.load(Relaxed).saturating_sub(1), Relaxed);
        self.set(index, FREE);
        self.push_free(index);
        true
    }

    /// [`Self::leave_board`], and whom that wakes.
    pub(super) fn end_board(self, index: Index, task: Task<'_>) -> Wake<'r> {
        if self.leave_board(index, &task.slot.inbox) {
            Wake::senders(1)
        } else {
            Wake::NONE
        }
    }

    /// The queue is deleted: who waits and has been given nothing gets nothing of what comes, in this queue or in
    /// one that is made of it before the task has noticed.
    pub(super) fn dismiss_waiters(self) {
        for (_, inbox) in self.unserved() {
            inbox.queue.store(0, Relaxed);
        }
        self.core.receiving.waiting.store(0, Relaxed);
    }

    fn give(self, inbox: &Inbox, index: Index) {
        inbox.given.store(index.name(), Relaxed);
        let waiting = self.core.receiving.waiting.load(Relaxed);
        self.core
            .receiving
            .waiting
            .store(waiting.saturating_sub(1), Relaxed);
    }

    fn unserved(self) -> impl Iterator<Item = (Owner, &'r Inbox)> {
        self.inner
            .waiters(self.address())
            .filter(|(_, inbox)| inbox.given.load(Relaxed) == 0)
    }

    /// Hands ready messages to those who wait, in their order.
    pub(super) fn hand_out(self) -> Wake<'r> {
        let mut wake = Wake::NONE;
        while self.core.receiving.waiting.load(Relaxed) > 0
            && let Some(index) = self.peek()
        {
            let by_priority = self.discipline() == Discipline::Priority;
            let first = self.unserved().min_by_key(|(_, inbox)| {
                let urgency = inbox.urgency.load(Relaxed);
                let below = if by_priority { u32::MAX - urgency } else { 0 };
                (below, inbox.arrival.load(Relaxed))
            });
            // Those who were counted have died: their deaths will be settled.
            let Some((owner, inbox)) = first else { break };
            self.give(inbox, index);
            self.deliver(index, owner);
            self.pop_ready();
            wake = wake.and_one_on(&inbox.given);
        }
        wake
    }

    /// Puts a message up for all who wait, in a cell of the caller's; how many they are. Under both locks.
    pub(super) fn put_up(self, index: Index, length: usize) -> (u32, Wake<'r>) {
        let mut readers = 0;
        for (_, inbox) in self.unserved() {
            self.give(inbox, index);
            readers += 1;
        }
        // A sender: who wrote the message without the lock has kept a place from them.
        if readers == 0 {
            self.give_up(index);
            return (0, Wake::senders(1));
        }
        let cell = self.cell(index);
        cell.set_length(length);
        cell.readers.store(readers, Relaxed);
        self.set(index, BOARD);
        let boards = &self.core.fixed.boards;
        boards.store(boards.load(Relaxed) + 1, Relaxed);
        (readers, Wake::receivers(u32::MAX).and_senders(1))
    }
}
