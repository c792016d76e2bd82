//! Receiving: a small message is copied in one step under the lock. A larger one, or one that is received in place, is
//! in flight until the receiver has finished it.
#![allow(unsafe_code)]

use super::locked::{Locked, SMALL, Side};
use super::message::{Bytes, Flight};
use super::{
    Discipline, Message, Messages, Queue, Rank, ReceiveError, Wait, error::Failure, lane::Index,
    places::Places, waiters::Given, wake::Wake,
};
use crate::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crate::hook::{Kind, Misuse, Site, Waiting};
use crate::region::wait_record::{BUSY, LOWEST, recorded};
use crate::region::{self, Inbox, Parked, Task};
use crate::{atomic::fence_after_update, backoff::ExponentialBackoff, time::Deadline};
use core::{ptr::NonNull, time::Duration};

/// A receiver's decision about the message that it gets.
pub(super) enum Verdict {
    /// It has copied the message.
    Copied,
    /// It copies the message without the lock.
    Copy,
    /// It keeps the message in flight.
    Hold,
    /// It takes the message's block; if the message is no block, it keeps the message in flight.
    Claim,
    /// It does not take the message.
    Refuse,
}

/// What a receiver got.
pub(super) enum Received<'r> {
    Copied,
    /// This many cells, linked to each other, are in flight with the task.
    Held(Index, u32, Task<'r>),
    /// The message's block is the task's own.
    Block(NonNull<[u8]>),
    /// The task must copy the cell that its inbox names: a board, or a message.
    Given(Index, Task<'r>),
    Refused,
}

impl<'r> Queue<'r> {
    /// Receives a message into `buffer`, waiting while the queue is empty; returns its length.
    ///
    /// # Errors
    /// [`ReceiveError::Deleted`], [`ReceiveError::BufferTooSmall`]; [`ReceiveError::Storage`] if other receivers wait
    /// or have not read what they were given, and the region has no memory for one more message;
    /// [`ReceiveError::Attach`].
    #[track_caller]
    pub fn receive(&self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        self.receive_unranked(buffer, Wait::Forever)
    }

    /// Receives a message into `buffer` if there is one at this moment; returns its length.
    ///
    /// # Errors
    /// As for [`Self::receive`], and [`ReceiveError::Empty`].
    #[track_caller]
    pub fn try_receive(&self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        self.receive_unranked(buffer, Wait::Not)
    }

    /// Receives a message into `buffer`, waiting for one until `deadline`; returns its length.
    ///
    /// # Errors
    /// As for [`Self::receive`], and [`ReceiveError::TimedOut`].
    #[track_caller]
    pub fn receive_until(
        &self,
        buffer: &mut [u8],
        deadline: Deadline,
    ) -> Result<usize, ReceiveError> {
        self.receive_unranked(buffer, Wait::Until(deadline))
    }

    /// Receives a message into `buffer`, waiting for one for at most `timeout`; returns its length.
    ///
    /// # Errors
    /// As for [`Self::receive_until`].
    #[track_caller]
    pub fn receive_for(&self, buffer: &mut [u8], timeout: Duration) -> Result<usize, ReceiveError> {
        self.receive_unranked(buffer, Wait::at_most(timeout))
    }

    /// Takes a message in place, waiting while the queue is empty. It stays in flight, and is delivered again if this
    /// task dies, until the [`Message`] is dropped.
    ///
    /// # Errors
    /// [`ReceiveError::Deleted`], [`ReceiveError::Storage`] as for [`Self::receive`], [`ReceiveError::Attach`].
    #[track_caller]
    pub fn receive_held(&self) -> Result<Message<'r>, ReceiveError> {
        self.receive_held_within(Wait::Forever)
    }

    /// Takes a message in place if there is one at this moment.
    ///
    /// # Errors
    /// As for [`Self::receive_held`], and [`ReceiveError::Empty`].
    #[track_caller]
    pub fn try_receive_held(&self) -> Result<Message<'r>, ReceiveError> {
        self.receive_held_within(Wait::Not)
    }

    /// Takes a message in place, waiting for one until `deadline`.
    ///
    /// # Errors
    /// As for [`Self::receive_held`], and [`ReceiveError::TimedOut`].
    #[track_caller]
    pub fn receive_held_until(&self, deadline: Deadline) -> Result<Message<'r>, ReceiveError> {
        self.receive_held_within(Wait::Until(deadline))
    }

    #[doc(hidden)]
    #[track_caller]
    pub fn receive_held_within(&self, wait: Wait) -> Result<Message<'r>, ReceiveError> {
        let received = self.take(wait, 1, |_, _| Verdict::Hold)?;
        Ok(Message(self.hold(received)?))
    }

    /// What [`Self::take`] returned: messages in flight, or a copy of what the inbox names.
    fn hold(&self, received: Received<'r>) -> Result<Flight<'r>, ReceiveError> {
        let (bytes, count, task) = match received {
            Received::Held(first, count, task) => {
                task.slot.message_taken();
                (Bytes::Cells(first), count, task)
            }
            Received::Given(index, task) => {
                let copy = self.cells.message(index).into();
                self.end_given(index, task)?;
                (Bytes::Copy(copy), 1, task)
            }
            Received::Copied | Received::Refused | Received::Block(_) => {
                unreachable!("it was to be held")
            }
        };
        Ok(Flight::new(*self, bytes, count, task.owner()))
    }

    /// Takes a message as a box of the caller's own; see [`Message::into_block`], also for the caller's death.
    ///
    /// # Errors
    /// [`ReceiveError::Deleted`], [`ReceiveError::Empty`], [`ReceiveError::TimedOut`]; [`ReceiveError::Storage`] as for
    /// [`Queue::receive`], or for the copy, and then the message is back in its position; [`ReceiveError::Attach`].
    pub fn receive_block(&self, wait: Wait) -> Result<region::Box<'r, [u8]>, ReceiveError> {
        let message = match self.take(wait, 1, |_, _| Verdict::Claim)? {
            Received::Block(block) => {
                self.after_flight();
                let inner = self.inner();
                // SAFETY: `claim_block` has made the block this task's own.
                return Ok(unsafe { region::Box::of_block(block.cast(), block.len(), inner) });
            }
            received => Message(self.hold(received)?),
        };
        // If it is a block, it could not be claimed.
        message.into_copy().map_err(|(message, error)| {
            message.give_back();
            ReceiveError::Storage(error)
        })
    }

    /// Takes up to `most` messages in place, under one lock and with one wake-up: as many as there are, waiting for the
    /// first. They stay in flight, and are delivered again if this task dies, until the [`Messages`] are dropped.
    ///
    /// # Errors
    /// [`ReceiveError::Deleted`], [`ReceiveError::Empty`], [`ReceiveError::TimedOut`], [`ReceiveError::Storage`] as for
    /// [`Self::receive`], [`ReceiveError::Attach`].
    #[track_caller]
    pub fn receive_batch(&self, most: u32, wait: Wait) -> Result<Messages<'r>, ReceiveError> {
        let received = self.take(wait, most.max(1), |_, _| Verdict::Hold)?;
        Ok(Messages(self.hold(received)?))
    }

    #[track_caller]
    fn receive_unranked(&self, buffer: &mut [u8], wait: Wait) -> Result<usize, ReceiveError> {
        let received = self.receive_and_read(buffer, wait, |_| ());
        received.map(|(length, ())| length)
    }

    /// As the other forms, for any [`Wait`]; also returns the rank, which is `None` for a broadcast message.
    #[doc(hidden)]
    #[track_caller]
    pub fn receive_within(
        &self,
        buffer: &mut [u8],
        wait: Wait,
    ) -> Result<(usize, Option<Rank>), ReceiveError> {
        self.receive_and_read(buffer, wait, |sent| {
            sent.map(|index| self.cells.rank(index))
        })
    }

    /// Receives into `buffer`. `read` reads more of the message, under the lock and by its cell; a broadcast message has none.
    ///
    /// Inlined, and so are [`Self::take`] and [`Locked::take_first`]: with calls that copy their results, a stream of short
    /// messages takes 1.1 times as long on an AMD processor; and 1.3 times if each receive reads the rank, too.
    #[track_caller]
    #[inline(always)]
    fn receive_and_read<R: Default>(
        &self,
        buffer: &mut [u8],
        wait: Wait,
        read: impl Fn(Option<Index>) -> R,
    ) -> Result<(usize, R), ReceiveError> {
        let (mut length, mut more) = (0, R::default());
        let room = buffer.len();
        let received = self.take(wait, 1, |message, sent| {
            (length, more) = (message.len(), read(sent));
            if length > room {
                return Verdict::Refuse;
            }
            if length > SMALL {
                return Verdict::Copy;
            }
            buffer[..length].copy_from_slice(message);
            Verdict::Copied
        })?;
        match received {
            Received::Copied => {}
            Received::Block(_) => unreachable!("it was not to be claimed"),
            Received::Refused => {
                self.after_flight();
                let (bytes, buffer) = (length, room);
                return Err(ReceiveError::BufferTooSmall { bytes, buffer });
            }
            Received::Held(index, _, task) => {
                buffer[..length].copy_from_slice(self.cells.message(index));
                let locked = self.lock_now(Side::Receivers, task)?;
                locked.cells.release(index, task);
                locked.unlock(Wake::senders(1));
            }
            Received::Given(index, task) => {
                buffer[..length].copy_from_slice(self.cells.message(index));
                self.end_given(index, task)?;
            }
        }
        self.after_flight();
        Ok((length, more))
    }

    fn end_given(&self, index: Index, task: Task<'_>) -> Result<(), ReceiveError> {
        let locked = self.lock_now(Side::Receivers, task)?;
        locked.cells.end_given(index, task);
        locked.unlock(Wake::NONE);
        self.after_flight();
        Ok(())
    }

    /// The loop of all receivers: checks for a message under the lock, until `decide` has decided about one. A round
    /// checks the inbox, if the task waits, and then the queue. If both are empty, the task joins the waiters,
    /// registers at the sleepers, checks again, and sleeps. It polls once: before it joins, or after that where
    /// receivers are served in order.
    #[track_caller]
    #[inline(always)]
    pub(super) fn take(
        &self,
        wait: Wait,
        most: u32,
        mut decide: impl FnMut(&[u8], Option<Index>) -> Verdict,
    ) -> Result<Received<'r>, Failure> {
        let inner = self.inner();
        let task = inner.task()?;
        let inbox = &task.slot.inbox;
        let turns = Some(&task.slot.takes_turns);
        let receivers = &self.cells.core.fixed.receivers;
        let in_order = self.cells.serves_in_order();
        self.cells.prefetch_for_free();
        let (mut may_poll, mut waits, mut late) = (true, false, false);
        let mut may_grow = in_order;
        let site = Site::caller();
        loop {
            // Read before the queue is checked: see `park`.
            let deaths = inner.deaths();
            let locked = self.lock(Side::Receivers, task, deaths)?;
            let cells = locked.cells;
            if waits && let Some(given) = cells.given_to(task) {
                return Ok(locked.accept(given, task, &mut decide));
            }
            if let Err(deleted) = self.check_life() {
                if waits {
                    cells.leave_waiters(inbox);
                } else if may_poll {
                    self.report().misused(Misuse::AfterEnd, site);
                }
                return Err(deleted);
            }
            if let Some(first) = cells.peek() {
                if waits {
                    cells.leave_waiters(inbox);
                } else if may_grow && cells.message(first).len() > SMALL && !cells.may_wait() {
                    may_grow = false;
                    locked.unlock(Wake::NONE);
                    // If this fails, the message keeps its place while it is copied.
                    let _ = self.add_spares(task);
                    continue;
                }
                return Ok(locked.take_first(first, most, task, &mut decide));
            }
            if wait == Wait::Not {
                locked.unlock(Wake::NONE);
                self.check_for_deaths(deaths)?;
                continue;
            }
            if late {
                cells.leave_waiters(inbox);
                return Err(Failure::TimedOut);
            }
            if core::mem::take(&mut may_poll) && !in_order {
                locked.unlock(Wake::NONE);
                ExponentialBackoff::Shared
                    .poll(self.max_message(), turns, || self.cells.may_have_messages());
                continue;
            }
            let mut wake = Wake::NONE;
            if !waits {
                if !cells.may_wait() {
                    locked.unlock(Wake::NONE);
                    self.add_spares(task)?;
                    continue;
                }
                waits = true;
                cells.join_waiters(inbox, 0);
                self.store_urgency(task);
                if in_order {
                    // A waiting receiver is a place for one message.
                    wake = Wake::senders(Places::senders_to_wake());
                }
            }
            let ticket = receivers.register();
            // Checks once more: senders send under another lock.
            let there = cells.peek().is_some();
            locked.unlock(wake);
            let come = there
                || in_order
                    && core::mem::take(&mut may_poll)
                    && ExponentialBackoff::None
                        .poll(self.max_message(), turns, || inbox.given.load(Relaxed) != 0);
            let mut woken = false;
            if !come {
                let mut words = [(receivers.word(), ticket), (&inbox.given, 0)];
                if in_order {
                    // Without `futex_waitv` a task sleeps on the first word.
                    words.reverse();
                }
                let (object, deadline) = (self.cells.address(), wait.deadline());
                let waiting = Waiting::begin_at(Kind::Queue, object, deadline.is_some(), site);
                // Acquire: pairs with the stores of a task that has exited since.
                waiting.report_if_alone(|| {
                    receivers.has_ticket(ticket) && inbox.given.load(Acquire) == 0
                });
                let (parked, by_another) = inner.park_cancellable(task, &words, deaths, deadline);
                late = parked == Parked::TimedOut;
                // In order, each receiver sleeps on a word of its own, for wake-ups that are meant for it alone.
                woken = by_another && !in_order;
            }
            receivers.leave(ticket, woken);
        }
    }

    /// In an order by priority: stores the receiver's urgency, the higher of the task's priority in the region and the
    /// thread's real-time priority in the kernel.
    fn store_urgency(&self, task: Task<'_>) {
        if self.cells.discipline() != Discipline::Priority {
            return;
        }
        let real_time = crate::sys::scheduling::own_priority().map_or(LOWEST, recorded);
        let urgency = || {
            // Relaxed: the value of any moment will do.
            let own = task.slot.wait.standing.effective.load(Relaxed) & !BUSY;
            Inbox::urgency_of(own.min(real_time))
        };
        loop {
            let now = urgency();
            task.slot.inbox.urgency.swap(now, SeqCst);
            fence_after_update();
            // A task that changes the priority after this check stores the new urgency here itself, after the store
            // above.
            if urgency() == now {
                return;
            }
        }
    }
}

impl<'r> Locked<'r> {
    /// Takes the first of the ready messages, and up to `most` in all if they are to be in flight.
    #[inline(always)]
    fn take_first(
        self,
        first: Index,
        most: u32,
        task: Task<'r>,
        decide: &mut impl FnMut(&[u8], Option<Index>) -> Verdict,
    ) -> Received<'r> {
        let cells = self.cells;
        let verdict = decide(cells.message(first), Some(first));
        if let Verdict::Claim = verdict
            && let Some(block) = cells.claim_block(first, task)
        {
            cells.pop_ready();
            self.unlock(Wake::senders(1));
            return Received::Block(block);
        }
        match verdict {
            Verdict::Copied => {
                cells.pop_ready();
                cells.release(first, task);
                self.unlock(Wake::senders(1));
                Received::Copied
            }
            Verdict::Copy if cells.serves_in_order() && cells.hand_over_to_self(first, task) => {
                self.unlock(Wake::senders(1));
                Received::Given(first, task)
            }
            Verdict::Copy | Verdict::Hold | Verdict::Claim => {
                let mut count = 0;
                let mut last: Option<Index> = None;
                while count < most
                    && let Some(index) = cells.begin_receive(task.owner())
                {
                    cells.cell(index).next.store(0, Relaxed);
                    if let Some(last) = last.replace(index) {
                        cells.cell(last).next.store(index.name(), Relaxed);
                    }
                    count += 1;
                }
                Received::Held(first, count, task)
            }
            Verdict::Refuse => {
                // Another receiver's buffer may be large enough: pass the wake-up on. (Of those that are served in order, none
                // waits while a message is there, and each is woken for what it is given.)
                let in_order = cells.serves_in_order();
                self.unlock(if in_order {
                    Wake::NONE
                } else {
                    Wake::receivers(1)
                });
                Received::Refused
            }
        }
    }

    /// Takes what the task was given while it waited.
    fn accept(
        self,
        given: Given,
        task: Task<'r>,
        decide: &mut impl FnMut(&[u8], Option<Index>) -> Verdict,
    ) -> Received<'r> {
        let cells = self.cells;
        let (index, sent) = match given {
            Given::Message(index) => (index, Some(index)),
            Given::Board(index) => (index, None),
        };
        let verdict = match (given, decide(cells.message(index), sent)) {
            (_, Verdict::Copy) | (Given::Board(_), Verdict::Hold | Verdict::Claim) => {
                return Received::Given(index, task);
            }
            (Given::Board(_), verdict) => {
                cells.end_given(index, task);
                return match verdict {
                    Verdict::Copied => Received::Copied,
                    _ => Received::Refused,
                };
            }
            (Given::Message(_), verdict) => verdict,
        };
        cells.leave_waiters(&task.slot.inbox);
        if let Verdict::Claim = verdict
            && let Some(block) = cells.claim_block(index, task)
        {
            return Received::Block(block);
        }
        match verdict {
            Verdict::Copied => {
                cells.release(index, task);
                Received::Copied
            }
            Verdict::Copy | Verdict::Hold | Verdict::Claim => {
                cells.cell(index).next.store(0, Relaxed);
                Received::Held(index, 1, task)
            }
            Verdict::Refuse => {
                cells.give_back(index, task);
                self.unlock(cells.announce(1));
                Received::Refused
            }
        }
    }
}
