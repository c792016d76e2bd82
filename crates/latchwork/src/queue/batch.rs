//! Several messages under one lock and with one wake-up.

use super::error::SendError;
use super::handle::Queue;
use super::lane::Index;
use super::locked::SMALL;
use super::wait::Wait;
use super::wake::Wake;
use crate::atomic::Ordering::Relaxed;
use crate::hook::Site;

/// The most bytes that are copied under the lock: copying them takes about as long as taking the lock twice more.
const BYTES_UNDER_LOCK: usize = 2 * SMALL;

impl Queue<'_> {
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
        if bytes <= BYTES_UNDER_LOCK {
            return Ok(self.attempt(wait, |cells, _| {
                let mut count = 0;
                for message in messages {
                    let Some(index) = cells.next_free() else {
                        break;
                    };
                    cells.fill(index, message);
                    cells.commit(index, message.len(), self.rank, 0);
                    count += 1;
                }
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
        let locked = self.lock_now(self.senders(), task)?;
        if let Err(deleted) = self.check_life() {
            chain().for_each(|(index, _)| locked.cells.abandon(index));
            drop(locked);
            self.after_flight();
            return Err(deleted.into());
        }
        let mut count = 0;
        for (index, message) in chain() {
            locked.cells.commit(index, message.len(), self.rank, 0);
            count += 1;
        }
        let wake = locked.cells.announce(count as u32);
        locked.unlock(wake);
        Ok(count)
    }
}
