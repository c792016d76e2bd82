//! The list of the locks that a thread holds, and its publication: in the thread's record on the board, which has room
//! for [`HELD`] locks, behind that record for the further ones, and in each region that the thread is a task of.

use super::{FORKED, HeldEntry, MAX_HELD, Own};
use crate::atomic::Ordering;
use crate::hook::{HELD, TaskRecord};
use crate::region;
use crate::sys::thread;
use crate::task::Me;
use core::cell::Cell;

impl Own {
    /// Applies a change to each published copy.
    #[inline(always)]
    pub(crate) fn publish(&self, change: impl Fn(&TaskRecord)) {
        change(self.record());
        if Me::current_or_none().first_attachment().is_some() {
            self.publish_in_regions(change);
        }
    }

    #[inline(never)]
    fn publish_in_regions(&self, change: impl Fn(&TaskRecord)) {
        for attachment in Me::current_or_none().attachments() {
            let record = region::check_record(&attachment);
            // Relaxed: this thread wrote it.
            if record.thread.load(Ordering::Relaxed) != self.thread.get() {
                self.begin_copy(record);
            }
            change(record);
        }
    }

    /// The thread has become a task of a further region: publishes its state there, too.
    #[cold]
    fn begin_copy(&self, copy: &TaskRecord) {
        let priority = self.record().priority.load(Ordering::Relaxed);
        copy.begin(
            self.process.get(),
            self.thread.get(),
            priority,
            &thread::name(),
        );
        for (place, mine) in self.held().enumerate().take(HELD) {
            publish_at(copy, place, place + 1, &mine);
        }
    }

    /// All entries, empty ones included.
    pub(crate) fn held(
        &self,
    ) -> impl DoubleEndedIterator<Item = HeldEntry> + ExactSizeIterator + Clone {
        self.held[..self.count.get()].iter().map(Cell::get)
    }

    /// The locks that the thread holds.
    pub(crate) fn locks(&self) -> impl DoubleEndedIterator<Item = HeldEntry> + Clone {
        self.held().filter(|mine| mine.address != 0)
    }

    /// Whether it holds nothing.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.count.get() == 0
    }

    /// The entry of a lock that the thread holds; the latest one, if it holds it more than once.
    #[inline]
    pub(crate) fn find(&self, address: usize) -> Option<(usize, HeldEntry)> {
        let place = self.place_of(address)?;
        Some((place, self.held[place].get()))
    }

    /// The index of that entry. Most locks are released in reverse order, so the search begins at the end.
    #[inline(always)]
    pub(crate) fn place_of(&self, address: usize) -> Option<usize> {
        let last = self.count.get().checked_sub(1)?;
        if self.held.get(last)?.get().address == address {
            return Some(last);
        }
        self.place_of_earlier(address)
    }

    #[inline(never)]
    fn place_of_earlier(&self, address: usize) -> Option<usize> {
        let held = &self.held[..self.count.get()];
        held.iter().rposition(|mine| mine.get().address == address)
    }

    /// The thread has taken a lock.
    #[inline]
    pub(crate) fn push(&self, mine: HeldEntry) {
        let place = self.count.get();
        if place == MAX_HELD {
            return self.push_into_gap(mine);
        }
        self.held[place].set(mine);
        self.count.set(place + 1);
        self.put(place, &mine);
    }

    #[cold]
    fn push_into_gap(&self, mine: HeldEntry) {
        match self.held.iter().position(|place| place.get().address == 0) {
            Some(place) => {
                self.held[place].set(mine);
                self.gaps.set(self.gaps.get() - 1);
                self.put(place, &mine);
            }
            None => self.unrecorded.set(self.unrecorded.get() + 1),
        }
    }

    /// Publishes an entry.
    #[inline]
    fn put(&self, place: usize, mine: &HeldEntry) {
        if place < HELD {
            publish_at(self.record(), place, self.count.get(), mine);
            self.put_in_regions(place);
        } else {
            self.put_more(place - HELD, mine);
        }
    }

    /// Publishes an entry in the regions, where other processes read it.
    #[inline(always)]
    pub(crate) fn put_in_regions(&self, place: usize) {
        if Me::current_or_none().first_attachment().is_some() {
            self.put_in_each_region(place);
        }
    }

    #[inline(never)]
    fn put_in_each_region(&self, place: usize) {
        let mine = self.held[place].get();
        let count = self.count.get();
        self.publish_in_regions(|record| publish_at(record, place, count, &mine));
    }

    #[cold]
    fn put_more(&self, place: usize, mine: &HeldEntry) {
        let more = &self.place().more[place];
        mine.write(more);
        let count = &self.place().more_count;
        count.store((self.count.get() - HELD) as u32, Ordering::Release);
    }

    /// The thread is about to release the lock of an entry.
    #[inline(always)]
    pub(crate) fn pop(&self, place: usize) {
        // SAFETY: the cell is this thread's own, and nothing refers to its contents. (`Cell::set` would write the whole
        // entry.)
        unsafe { (*self.held[place].as_ptr()).address = 0 };
        let is_last = place + 1 == self.count.get() && self.gaps.get() == 0;
        let count = if is_last {
            place
        } else {
            self.pop_beside_gaps()
        };
        self.count.set(count);
        if place < HELD {
            self.publish(|record| record.pop(place, count));
        } else {
            self.pop_more(place - HELD);
        }
    }

    /// An entry was emptied. Returns how many entries are in use without it.
    #[inline(never)]
    fn pop_beside_gaps(&self) -> usize {
        let held = &self.held[..self.count.get()];
        let last = held.iter().rposition(|mine| mine.get().address != 0);
        let count = last.map_or(0, |last| last + 1);
        let gaps = held[..count].iter().filter(|mine| mine.get().address == 0);
        self.gaps.set(gaps.count() as u32);
        count
    }

    #[cold]
    fn pop_more(&self, place: usize) {
        let board = self.place();
        board.more[place].lock.store(0, Ordering::Relaxed);
        let left = self.count.get().saturating_sub(HELD) as u32;
        board.more_count.store(left, Ordering::Relaxed);
    }

    /// A lock that a fork handler took before the fork may be reinitialised in the child, where it cannot be released
    /// by the rules: the parent's thread holds it. Forgets such a lock.
    pub(crate) fn leave_to_parent(&self, address: usize) {
        if let Some((place, mine)) = self.find(address)
            && mine.what & FORKED != 0
        {
            self.pop(place);
        }
    }

    /// Changes the depth of a recursive lock, or the place where it was taken.
    #[inline(never)]
    pub(crate) fn change(&self, place: usize, change: impl FnOnce(&mut HeldEntry)) {
        let mut mine = self.held[place].get();
        change(&mut mine);
        self.held[place].set(mine);
        self.put(place, &mine);
    }
}

#[inline]
fn publish_at(record: &TaskRecord, place: usize, count: usize, mine: &HeldEntry) {
    record.push(place, count, |entry| mine.write(entry));
}
