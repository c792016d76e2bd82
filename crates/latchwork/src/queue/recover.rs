//! Settles what dead tasks left in a queue, and rebuilds all derived state.

use super::cell::{BLOCK, BOARD, Cell, FREE, KIND, READING, READY, WRITING, owner_in};
use super::shape::{FREE_LANE, MESSAGE_LANE};
use super::{head::count_up, lane::Index, layout::Cells, rank::number};
use crate::{atomic::Ordering::Relaxed, region::Task};

impl Cells<'_> {
    /// Messages that dead tasks were writing vanish, messages that they were reading are ready again, and messages that
    /// they had been given go to other receivers. Idempotent. Under both locks.
    ///
    /// Leaves alone what belongs to a dead task that is not settled yet, and then returns `false`: into a message that it was
    /// writing, the kernel may still write for another thread of its process. Unless `at_once`.
    pub(super) fn recover(self, task: Task<'_>, at_once: bool) -> bool {
        let mut complete = true;
        if !self.core.has_body() {
            return complete;
        }
        self.count_spares();
        for index in self.all() {
            let cell = self.cell(index);
            let state = cell.state.load(Relaxed);
            let owner = owner_in(state);
            let mut dead = owner.is_none_or(|owner| !self.inner.is_alive(owner));
            if dead && !at_once && owner.is_some_and(|owner| !self.inner.has_ended(owner)) {
                (dead, complete) = (false, false);
            }
            self.forget_unsound_block(cell, state);
            let has_block = cell.block.load(Relaxed) != 0;
            match state & KIND {
                FREE if has_block => self.discard_block(index, task),
                FREE | BOARD => {}
                // Only a corrupted file has such a cell.
                _ if !self.is_for_messages(index) => self.set(index, FREE),
                WRITING
                    if crate::atomic::unless_disabled!(QueueFreesUnsentMessage, dead, false) =>
                {
                    self.set(index, FREE)
                }
                READY | READING if state & BLOCK != 0 && !has_block => self.set(index, FREE),
                READING if crate::atomic::unless_disabled!(QueuePutsMessageBack, dead, false) => {
                    let _: bool = self.put_back(index, task);
                }
                WRITING | READY | READING => {}
                _ => self.set(index, FREE),
            }
        }
        crate::atomic::unless_disabled!(QueueRebuildsLanes, self.rebuild(), ());
        complete
    }

    /// Clears a word that does not point to a block of the message's length. Only a program that wrote into the file
    /// while no process had the region leaves such a word: `cells.rs`, invariant 5.
    fn forget_unsound_block(self, cell: &Cell, state: u64) {
        let block = cell.block.load(Relaxed);
        let bytes = match (state & KIND, state & BLOCK) {
            (FREE, _) => Some(0),
            (READY | READING, BLOCK) => Some(cell.length.load(Relaxed)),
            _ => None,
        };
        if block != 0 && !bytes.is_some_and(|bytes| self.inner.has_block_at(block, bytes)) {
            cell.block.store(0, Relaxed);
        }
    }

    /// The address by which inboxes name the queue.
    pub(super) fn address(self) -> usize {
        core::ptr::from_ref(self.core).addr()
    }

    /// Derives rings, lanes and counts from cells and inboxes.
    pub(super) fn rebuild(self) {
        crate::atomic::unless_disabled!(QueueCountsWaiters, self.count_waiters(), ());
        self.lane(MESSAGE_LANE).clear();
        self.lane(FREE_LANE).clear();
        self.clear_positions(0);
        let mut last = 0;
        for index in self.all() {
            let cell = self.cell(index);
            match cell.kind() {
                FREE if self.is_for_messages(index) => self.stash(index),
                FREE | BOARD | WRITING => {}
                kind => {
                    last = last.max(number(cell.key()));
                    if kind == READY {
                        self.push_ready(index);
                    }
                }
            }
        }
        self.sort_ready();
        let next = &self.core.sending.next_number;
        next.store(next.load(Relaxed).max(last.saturating_add(1)), Relaxed);
    }

    /// Whether a cell may hold messages, and not boards only.
    fn is_for_messages(self, index: Index) -> bool {
        self.serves_in_order() || index.0 < self.core.capacity()
    }

    /// Counts the inboxes without a cell, the readers of each board, and the cells that inboxes name. Empties an inbox
    /// that names a cell which was not given to it.
    fn count_waiters(self) {
        let boards = || self.all().filter(|index| self.cell(*index).kind() == BOARD);
        boards().for_each(|index| self.cell(index).readers.store(0, Relaxed));
        let (mut waiting, mut given, mut last) = (0, 0, 0);
        for (owner, inbox) in self.inner.waiters(self.address()) {
            last = last.max(inbox.arrival.load(Relaxed));
            match Index::named(inbox.given.load(Relaxed)) {
                Some(index) if self.cell(index).kind() == BOARD => {
                    count_up(&self.cell(index).readers);
                }
                Some(index) if self.is_read_by(index, owner) => given += 1,
                _ => {
                    inbox.given.store(0, Relaxed);
                    waiting += 1;
                }
            }
        }
        boards()
            .filter(|index| self.cell(*index).readers.load(Relaxed) == 0)
            .for_each(|index| self.set(index, FREE));
        given += boards().count() as u32;
        self.core.fixed.given.store(given, Relaxed);
        self.core.receiving.waiting.store(waiting, Relaxed);
        let next = &self.core.receiving.next_arrival;
        next.store(next.load(Relaxed).max(last.saturating_add(1)), Relaxed);
    }

    /// The number of cells in each state: free, being written, ready, being read, boards.
    pub(super) fn count_by_state(self) -> [u32; 5] {
        let mut count_by_state = [0; 5];
        for index in self.all() {
            count_by_state[self.cell(index).kind() as usize] += 1;
        }
        count_by_state
    }

    /// The number of cells that inboxes name.
    fn named(self) -> u32 {
        let handed = self.inner.waiters(self.address()).filter(|(owner, inbox)| {
            let index = Index::named(inbox.given.load(Relaxed));
            index.is_some_and(|index| self.is_read_by(index, *owner))
        });
        self.count_by_state()[BOARD as usize] + handed.count() as u32
    }

    /// Whether rings and lanes agree with the cells.
    pub(super) fn is_consistent(self) -> bool {
        self.refill();
        self.take_all_from_lane();
        let (sending, receiving) = (&self.core.sending, &self.core.receiving);
        let count_by_state = self.count_by_state();
        let free = self
            .all()
            .filter(|index| self.is_for_messages(*index) && self.cell(*index).kind() == FREE);
        free.count() as u32 == sending.stash_count.load(Relaxed)
            && count_by_state[READY as usize] == receiving.ready_count.load(Relaxed)
            && self.has_spares()
            && self.named() == self.core.fixed.given.load(Relaxed)
            && sending.sent.load(Relaxed) == receiving.taken.load(Relaxed)
            && sending.fetched.load(Relaxed) == receiving.freed.load(Relaxed)
            && self.ready_is_sorted()
            && self.all().all(|index| {
                let cell = self.cell(index);
                self.is_block(index) == (cell.block.load(Relaxed) != 0)
            })
    }
}
