//! How cells pass between the two sides: the cells that each side keeps, and when it empties the other's lane.

use super::lane::{Entry, Index};
use super::shape::{FREE_LANE, MESSAGE_LANE, STASH};
use super::{cell::Cell, layout::Cells};
use crate::atomic::{
    Ordering::{Acquire, Relaxed, Release},
    prefetch_to_write,
};

/// The number of messages taken from the lane at once: enough to repay the cache misses.
const AT_ONCE: u32 = 32;
/// Cells of at most this many bytes (the header, and a message of 1,024 bytes) are prefetched whole; of a longer cell
/// only the first line is: long messages stream in faster without that.
const PREFETCHED_WHOLE: usize = size_of::<Cell>().next_multiple_of(64) + 1024;

impl Cells<'_> {
    /// Returns a free cell to the senders. For receivers.
    pub(super) fn push_free(self, index: Index) {
        if self.serves_in_order() {
            // Both sides share one lock.
            return self.stash(index);
        }
        let side = &self.core.receiving;
        let position = side.freed.load(Relaxed);
        let ranked = false;
        self.lane(FREE_LANE).put(position, Entry { index, ranked });
        side.freed.store(position.wrapping_add(1), Relaxed);
    }

    /// Adds a free cell to those that the senders have. For senders.
    pub(super) fn stash(self, index: Index) {
        let side = &self.core.sending;
        let count = side.stash_count.load(Relaxed);
        let place = self.wrapped(side.stash_first.load(Relaxed), count);
        self.ring(STASH)[place].store(index.0, Relaxed);
        side.stash_count.store(count + 1, Relaxed);
    }

    /// Takes all free cells out of the lane. For senders.
    pub(super) fn refill(self) {
        let side = &self.core.sending;
        let mut position = side.fetched.load(Relaxed);
        let lane = self.lane(FREE_LANE);
        while let Some(Entry { index, .. }) = lane.get(position) {
            self.stash(index);
            position = position.wrapping_add(1);
            side.fetched.store(position, Relaxed);
        }
    }

    /// Takes any free cell. For senders.
    pub(super) fn take_free(self) -> Option<Index> {
        let side = &self.core.sending;
        let count = side.stash_count.load(Relaxed).checked_sub(1)?;
        let first = side.stash_first.load(Relaxed);
        let ring = self.ring(STASH);
        let index = Index(ring[first as usize].load(Relaxed));
        let next = self.wrapped(first, 1);
        side.stash_first.store(next as u32, Relaxed);
        side.stash_count.store(count, Relaxed);
        if count > 0 {
            self.prefetch(Index(ring[next].load(Relaxed)));
        }
        Some(index)
    }

    /// The place in a ring of cells that is `offset` places behind `first`.
    pub(super) fn wrapped(self, first: u32, offset: u32) -> usize {
        let place = u64::from(first) + u64::from(offset);
        let length = self.ring_length() as u64;
        place.checked_sub(length).unwrap_or(place) as usize
    }

    /// Prefetches the lines of a cell that the caller is about to change.
    pub(super) fn prefetch(self, index: Index) {
        let cell = core::ptr::from_ref(self.cell(index)).cast::<u8>();
        let whole = Some(self.stride()).filter(|stride| *stride <= PREFETCHED_WHOLE);
        for offset in (0..whole.unwrap_or(64)).step_by(64) {
            prefetch_to_write(cell.wrapping_add(offset));
        }
    }

    /// Prefetches the lane's line that a send is about to write. Without the lock.
    #[inline]
    pub(super) fn prefetch_for_send(self) {
        let position = self.core.sending.sent.load(Relaxed);
        prefetch_to_write(self.prefetch_address(MESSAGE_LANE, position));
    }

    /// Prefetches the lane's line that freeing a cell is about to write. Without the lock.
    #[inline]
    pub(super) fn prefetch_for_free(self) {
        let position = self.core.receiving.freed.load(Relaxed);
        prefetch_to_write(self.prefetch_address(FREE_LANE, position));
    }

    /// Whether there is room for a message. For senders.
    pub(super) fn has_room(self) -> bool {
        if self.serves_in_order() {
            let places = self.places();
            // Some of the receivers that were counted may have died.
            return places.has_room(0)
                || places.has_room(self.waiting()) && places.has_room(self.count_unserved());
        }
        let known = &self.core.sending.stash_count;
        if known.load(Relaxed) == 0 {
            self.refill();
        }
        known.load(Relaxed) > 0
    }

    /// Whether there is probably room for a message; without the lock.
    pub(super) fn may_have_room(self) -> bool {
        if self.serves_in_order() {
            return self.places().has_room(self.waiting());
        }
        let position = self.core.sending.fetched.load(Relaxed);
        self.core.sending.stash_count.load(Relaxed) > 0 || self.has_entry(FREE_LANE, position)
    }

    /// Whether there are probably messages; without the lock.
    pub(super) fn may_have_messages(self) -> bool {
        let side = &self.core.receiving;
        side.ready_count.load(Relaxed) > 0 || self.has_entry(MESSAGE_LANE, side.taken.load(Relaxed))
    }

    fn has_entry(self, lane: usize, position: u32) -> bool {
        let entry = self.unlocked_lane(lane).map(|lane| lane.get(position));
        entry.flatten().is_some()
    }

    /// The number of ready messages, those in the lane included. Without the lock: exact while no task sends or
    /// receives, and never 0 while a message lies there that no task has touched.
    pub(super) fn pending(self) -> u32 {
        let side = &self.core.receiving;
        // Acquire: pairs with the Release in `take_from_lane`: a message that is no longer counted in the lane is
        // counted in `ready_count`.
        let taken = side.taken.load(Acquire);
        let on_lane = self.core.sending.sent.load(Acquire).wrapping_sub(taken);
        // A message that was taken before its sender counted it makes this -1.
        let on_lane = on_lane.wrapping_add(1).saturating_sub(1);
        let ready = side.ready_count.load(Relaxed);
        // The two counts were read at different moments, so the sum needs a bound.
        (ready.saturating_add(on_lane)).min(self.ring_length() as u32)
    }

    /// The number of ready messages, and of those that are neither ready nor done with. Under all locks.
    pub(super) fn ready_and_in_flight(self) -> (u32, u32) {
        if !self.core.has_body() {
            return (0, 0);
        }
        self.refill();
        self.take_all_from_lane();
        let fixed = &self.core.fixed;
        let free = self.core.sending.stash_count.load(Relaxed);
        let ready = self.core.receiving.ready_count.load(Relaxed);
        // In a racing queue the senders do not have the free spare cells.
        let (spares, given) = (&fixed.spares, &fixed.given);
        let others = if self.serves_in_order() {
            spares
        } else {
            given
        };
        let cells = self.core.capacity() + others.load(Relaxed);
        (ready, cells.saturating_sub(free + ready))
    }

    /// Moves up to `most` messages from the lane to the ready ring. For receivers.
    fn take_from_lane(self, most: u32) {
        let side = &self.core.receiving;
        let mut position = side.taken.load(Relaxed);
        let lane = self.lane(MESSAGE_LANE);
        for _ in 0..most {
            let Some(Entry { index, ranked }) = lane.get(position) else {
                break;
            };
            if ranked {
                self.insert_ready(index);
            } else {
                // By invariant 6 of `cells.rs` it belongs behind all others.
                self.push_ready(index);
            }
            position = position.wrapping_add(1);
            // Release: pairs with the Acquire in `pending`.
            side.taken.store(position, Release);
        }
    }

    /// Moves all messages that were sent before this moment to the ready ring. For receivers.
    pub(super) fn take_all_from_lane(self) {
        self.take_from_lane(self.core.capacity());
    }

    /// Takes the next message: the one that [`Self::peek`] returned, if it returned one. For receivers.
    pub(super) fn next_ready(self) -> Option<Index> {
        // Not through [`Self::peek`], which might return another message this time.
        if self.core.receiving.ready_count.load(Relaxed) == 0 {
            self.take_from_lane(AT_ONCE);
        }
        self.pop_ready()
    }

    /// The first message, which stays in the queue. For receivers.
    pub(super) fn peek(self) -> Option<Index> {
        let side = &self.core.receiving;
        // Acquire: pairs with the Release in `commit`.
        let ranked = self.core.fixed.ranked.load(Acquire);
        if ranked != side.ranked_seen.load(Relaxed) {
            self.take_all_from_lane();
            side.ranked_seen.store(ranked, Relaxed);
        } else if side.ready_count.load(Relaxed) == 0 {
            self.take_from_lane(AT_ONCE);
        }
        self.first_ready()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Relaxed;
    use crate::queue::{Queue, QueueOptions};
    use crate::region::RegionOptions;

    fn received(queue: Queue<'_>) -> u8 {
        let mut byte = [0];
        assert_eq!(queue.try_receive(&mut byte).ok(), Some(1));
        byte[0]
    }

    /// Moves all positions of an empty queue to `short` before they wrap.
    fn nearly_wrapped(queue: Queue<'_>, short: u32) {
        let core = queue.cells.core;
        let (sending, receiving) = (&core.sending, &core.receiving);
        for position in [
            &sending.sent,
            &receiving.taken,
            &sending.fetched,
            &receiving.freed,
        ] {
            assert_eq!(position.load(Relaxed), 0);
            position.store(0u32.wrapping_sub(short), Relaxed);
        }
    }

    #[test]
    fn ranks_and_counts_hold_while_positions_wrap() {
        let region = RegionOptions::new()
            .max_bytes(4 << 20)
            .create_anonymous()
            .unwrap();
        for capacity in 1..=5 {
            for short in 0..10 {
                let name = format!("{capacity}, {short}");
                let queue = Queue::create(&region, &name, &QueueOptions::new(capacity, 1)).unwrap();
                nearly_wrapped(queue, short);
                for round in 0..10 {
                    for number in 1..capacity as u8 {
                        queue.send(&[number]).unwrap();
                    }
                    // The receivers have taken all messages, and have no reason to read the lane again.
                    if capacity > 1 {
                        queue.receive_held().unwrap().give_back();
                    }
                    queue.urgent().send(&[0]).unwrap();
                    assert!(queue.try_send(&[9]).is_err(), "{name}, round {round}");
                    assert_eq!(queue.len(), capacity, "{name}, round {round}");
                    for number in 0..capacity as u8 {
                        assert_eq!(received(queue), number, "{name}, round {round}");
                    }
                    assert!(queue.is_empty() && queue.is_consistent().unwrap());
                }
            }
        }
    }
}
