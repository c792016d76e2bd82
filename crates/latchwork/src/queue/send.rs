//! Sending: a small message is sent in one step under the lock; a larger one is copied outside it. Each way ends with
//! `Cells::commit` (`cells.rs`), which makes the message visible, and `Cells::announce`, which wakes receivers.

use super::{Queue, SendError, Wait, lane::Index, locked::SMALL, wake::Wake};
use crate::{atomic::Ordering::Relaxed, hook::Site, region::Task, time::Deadline};
use core::time::Duration;

/// The most bytes of a batch that are copied under the lock: copying them takes about as long as taking the lock twice
/// more.
const BATCH_UNDER_LOCK: usize = 2 * SMALL;

impl Queue<'_> {
    /// Sends a message, waiting while the queue is full.
    ///
    /// # Errors
    /// [`SendError::Deleted`], [`SendError::TooLong`], [`SendError::Attach`].
    #[track_caller]
    pub fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.send_within(message, Wait::Forever)
    }

    /// Sends a message if there is room at this moment.
    ///
    /// # Errors
    /// [`SendError::Deleted`], [`SendError::TooLong`], [`SendError::Full`], [`SendError::Attach`].
    #[track_caller]
    pub fn try_send(&self, message: &[u8]) -> Result<(), SendError> {
        self.send_within(message, Wait::Not)
    }

    /// Sends a message, waiting for room until `deadline`.
    ///
    /// # Errors
    /// [`SendError::Deleted`], [`SendError::TooLong`], [`SendError::TimedOut`], [`SendError::Attach`].
    #[track_caller]
    pub fn send_until(&self, message: &[u8], deadline: Deadline) -> Result<(), SendError> {
        self.send_within(message, Wait::Until(deadline))
    }

    /// Sends a message, waiting for room for at most `timeout`.
    ///
    /// # Errors
    /// As for [`Self::send_until`].
    #[track_caller]
    pub fn send_for(&self, message: &[u8], timeout: Duration) -> Result<(), SendError> {
        self.send_within(message, Wait::at_most(timeout))
    }

    /// Checks that need no lock, in RTEMS's order.
    #[track_caller]
    pub(super) fn check_message(&self, bytes: usize) -> Result<(), SendError> {
        self.check_use(Site::caller())?;
        let max_message = self.max_message() as usize;
        if bytes > max_message {
            // Only if the size was that of the handle's queue.
            self.check_life()?;
            return Err(SendError::TooLong { bytes, max_message });
        }
        Ok(())
    }

    /// Commits cells that were written outside the lock, each with the length of its message; returns their number.
    fn commit(
        &self,
        task: Task<'_>,
        written: impl Iterator<Item = (Index, usize)>,
    ) -> Result<usize, SendError> {
        let locked = self.lock_now(self.senders(), task)?;
        if let Err(deleted) = self.check_life() {
            written.for_each(|(index, _)| locked.cells.abandon(index));
            drop(locked);
            self.after_flight();
            return Err(deleted.into());
        }
        let mut count = 0;
        for (index, length) in written {
            locked.cells.commit(index, length, self.rank, 0);
            count += 1;
        }
        let wake = locked.cells.announce(count as u32);
        locked.unlock(wake);
        Ok(count)
    }

    #[doc(hidden)]
    #[track_caller]
    pub fn send_within(&self, message: &[u8], wait: Wait) -> Result<(), SendError> {
        self.check_message(message.len())?;
        if message.len() <= SMALL {
            return Ok(self.attempt(wait, |cells, _| {
                let index = cells.next_free()?;
                cells.fill(index, message);
                cells.commit(index, message.len(), self.rank, 0);
                Some(((), cells.announce(1)))
            })?);
        }
        let (index, task) = self.attempt(wait, |cells, task| {
            let index = cells.begin_send(task.owner())?;
            Some(((index, task), Wake::NONE))
        })?;
        self.cells.fill(index, message);
        self.commit(task, core::iter::once((index, message.len())))
            .map(drop)
    }

    /// Sends the first of `messages`, as many as there is room for, and waits for room for one; returns how many it
    /// sent. No other message comes between them, except by rank.
    ///
    /// If the sender is killed, the first few of them have been sent, or none.
    ///
    /// # Errors
    /// [`SendError::Deleted`]; [`SendError::TooLong`] if any of them is; [`SendError::Full`],
    /// [`SendError::TimedOut`], [`SendError::Attach`].
    #[track_caller]
    pub fn send_batch(&self, messages: &[&[u8]], wait: Wait) -> Result<usize, SendError> {
        self.check_use(Site::caller())?;
        let mut bytes = 0;
        for message in messages {
            self.check_message(message.len())?;
            bytes += message.len();
        }
        if messages.is_empty() {
            return Ok(0);
        }
        if bytes <= BATCH_UNDER_LOCK {
            return Ok(self.attempt(wait, |cells, _| {
                let sent = messages.iter().map_while(|message| {
                    let index = cells.next_free()?;
                    cells.fill(index, message);
                    cells.commit(index, message.len(), self.rank, 0);
                    Some(())
                });
                let count = sent.count();
                (count > 0).then(|| (count, cells.announce(count as u32)))
            })?);
        }
        let (first, task) = self.attempt(wait, |cells, task| {
            let first = cells.begin_send(task.owner())?;
            let mut last = first;
            for _ in 1..messages.len() {
                let Some(index) = cells.begin_send(task.owner()) else {
                    break;
                };
                cells.cell(last).next.store(index.name(), Relaxed);
                last = index;
            }
            cells.cell(last).next.store(0, Relaxed);
            Some(((first, task), Wake::NONE))
        })?;
        let chain = || {
            let next = |index: &Index| Index::named(self.cells.cell(*index).next.load(Relaxed));
            core::iter::successors(Some(first), next).zip(messages)
        };
        chain().for_each(|(index, message)| self.cells.fill(index, message));
        self.commit(task, chain().map(|(index, message)| (index, message.len())))
    }

    /// Gives a message to every receiver that waits at this moment, and returns their number. The queue stores nothing:
    /// a later receiver does not get the message, and it is not delivered again if a receiver dies with it. A receiver
    /// waits from the moment at which it has found the queue empty and polled for some microseconds, until it is given
    /// a message.
    ///
    /// A broadcast needs no place in the queue, and takes none from others, however many earlier broadcasts are still
    /// unread: each waiting receiver has made sure of a cell for what it may be given.
    ///
    /// If the sender is killed, all of the receivers are given the message, or none. The message is copied under the
    /// queue's locks, whatever its length.
    ///
    /// # Errors
    /// [`SendError::Deleted`], [`SendError::TooLong`], [`SendError::Attach`].
    #[track_caller]
    pub fn broadcast(&self, message: &[u8]) -> Result<u32, SendError> {
        self.check_message(message.len())?;
        let task = self.inner().task()?;
        let locked = self.lock_now(self.live_locks(), task)?;
        self.check_life()?;
        let cells = locked.cells;
        if cells.waiting() == 0 {
            return Ok(0);
        }
        // A spare cell exists while a receiver waits: see `spares.rs`.
        let index = cells.take_spare().ok_or(SendError::Full)?;
        cells.fill(index, message);
        let (readers, wake) = cells.post_board(index, message.len());
        locked.unlock(wake);
        Ok(readers)
    }
}
