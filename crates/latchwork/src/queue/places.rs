//! Whether a queue that serves its receivers in order has room, by four counts. The numbers below are those of the
//! invariants in `spares.rs`, which says why they hold.
//!
//! *Checked by:* the tests here, in all states of small queues; `tests/loom_queue_places.rs`, with negative twins: no
//! cell for a broadcast, and senders that are not notified of a waiting receiver.

use crate::atomic::unless_fault;

/// Three of the four counts; the fourth, *waiting*, is a parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Places {
    /// Cells that are free.
    pub free: u32,
    /// Cells that waiting receivers have been given.
    pub given: u32,
    /// Cells beyond the capacity.
    pub spares: u32,
}

impl Places {
    /// Whether a message may be sent, by invariant 2.
    pub fn has_room(self, waiting: u32) -> bool {
        self.sendable(waiting) > 0
    }

    /// How many messages may be sent, by invariant 2.
    fn sendable(self, waiting: u32) -> u32 {
        (self.free + self.given + waiting).saturating_sub(self.spares)
    }

    /// Whether there is a cell for all that may be given, by invariant 3.
    #[cfg(not(loom))]
    pub(crate) fn suffice(self, waiting: u32) -> bool {
        self.free >= self.sendable(waiting) + u32::from(waiting > 0)
    }

    /// Whether one more receiver may wait, by invariant 3.
    pub fn may_wait(self, waiting: u32) -> bool {
        let sendable = self.sendable(waiting + 1);
        // The one cell more is for a broadcast.
        unless_fault!(
            QueueNoCellForBoard,
            self.free > sendable,
            self.free >= sendable
        )
    }

    /// The number of senders to wake for a receiver that begins to wait, which is one more place by invariant 2.
    #[inline]
    pub fn senders_to_wake() -> u32 {
        unless_fault!(QueueWaiterUnannounced, 1, 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Places;
    use std::collections::HashSet;

    /// The counts of a queue that serves in order, and the states of its tasks.
    #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
    struct State {
        places: Places,
        /// The numbers of messages being written, pending, and in hand.
        taken: [u32; 3],
        waiting: u32,
        /// The number of messages that were handed over.
        handed: u32,
        /// Boards, by the number of readers left: one, two, three.
        boards: [u32; 3],
    }

    const WRITING: usize = 0;
    const PENDING: usize = 1;
    const HELD: usize = 2;

    impl State {
        fn tasks(self) -> u32 {
            let readers = (1..).zip(self.boards).map(|(one, count)| one * count);
            self.waiting + self.handed + readers.sum::<u32>()
        }

        fn take_free(&mut self) {
            self.places.free = self.places.free.checked_sub(1).expect("a free cell");
        }

        /// The effect of `serve_waiters`.
        fn served(mut self) -> Self {
            while self.waiting > 0 && self.taken[PENDING] > 0 {
                self.waiting -= 1;
                self.taken[PENDING] -= 1;
                self.handed += 1;
                self.places.given += 1;
            }
            self
        }

        fn freed(mut self, taken: usize) -> Option<Self> {
            self.taken[taken] = self.taken[taken].checked_sub(1)?;
            self.places.free += 1;
            Some(self)
        }

        fn handed_ends(mut self) -> Option<Self> {
            self.handed = self.handed.checked_sub(1)?;
            self.places.given -= 1;
            Some(self)
        }

        /// One more receiver waits; it adds as many cells as that takes.
        fn joined(mut self, may_wait: MayWait) -> Self {
            while !may_wait(self.places, self.waiting) {
                self.places.spares += 1;
                self.places.free += 1;
            }
            self.waiting += 1;
            self
        }

        /// All next states, with at most this many tasks.
        fn next(self, tasks: u32, may_wait: MayWait) -> Vec<Self> {
            let mut all = Vec::new();
            if self.places.has_room(self.waiting) {
                for taken in [WRITING, PENDING] {
                    let mut sent = self;
                    sent.take_free();
                    sent.taken[taken] += 1;
                    all.push(sent.served());
                }
            }
            if self.taken[WRITING] > 0 {
                let mut committed = self;
                committed.taken[WRITING] -= 1;
                committed.taken[PENDING] += 1;
                all.push(committed.served());
            }
            if self.taken[PENDING] > 0 {
                let mut held = self;
                held.taken[PENDING] -= 1;
                held.taken[HELD] += 1;
                all.push(held);
            } else if self.tasks() < tasks {
                all.push(self.joined(may_wait));
            }
            if self.taken[PENDING] > 0 && self.tasks() < tasks {
                // A receiver copies its message without the lock.
                all.push(self.joined(may_wait).served());
            }
            if self.taken[HELD] > 0 {
                let mut back = self;
                back.taken[HELD] -= 1;
                back.taken[PENDING] += 1;
                all.push(back.served());
            }
            let taken = [WRITING, PENDING, HELD].into_iter();
            all.extend(taken.filter_map(|taken| self.freed(taken)));
            if self.waiting > 0 {
                let mut spoken = self;
                spoken.take_free();
                spoken.places.given += 1;
                spoken.boards[spoken.waiting as usize - 1] += 1;
                spoken.waiting = 0;
                all.push(spoken);
                all.push(Self {
                    waiting: self.waiting - 1,
                    ..self
                });
            }
            for readers in 0..3 {
                let mut read = self;
                if self.boards[readers] == 0 {
                    continue;
                }
                read.boards[readers] -= 1;
                if readers > 0 {
                    read.boards[readers - 1] += 1;
                } else {
                    read.places.given -= 1;
                    read.places.free += 1;
                }
                all.push(read);
            }
            if let Some(ended) = self.handed_ends() {
                let mut copied = ended;
                copied.places.free += 1;
                all.push(copied);
                for taken in [PENDING, HELD] {
                    let mut kept = ended;
                    kept.taken[taken] += 1;
                    all.push(kept.served());
                }
            }
            all
        }
    }

    type MayWait = fn(Places, u32) -> bool;

    /// Visits all states; returns the largest number of spare cells.
    fn explore(capacity: u32, tasks: u32, may_wait: MayWait) -> u32 {
        let places = Places {
            free: capacity + 2,
            given: 0,
            spares: 2,
        };
        let empty = State {
            places,
            ..State::default()
        };
        let (mut seen, mut next) = (HashSet::from([empty]), vec![empty]);
        let mut most = 0;
        while let Some(state) = next.pop() {
            let (places, taken) = (state.places, state.taken.iter().sum::<u32>());
            let cells = places.free + taken + places.given;
            assert_eq!(cells, capacity + places.spares);
            // No send is refused while there is a place, and none succeeds without one.
            let has_room = taken < capacity + state.waiting;
            assert_eq!(places.has_room(state.waiting), has_room);
            assert!(places.suffice(state.waiting), "too few cells");
            most = most.max(places.spares);
            let following = state.next(tasks, may_wait);
            next.extend(following.into_iter().filter(|state| seen.insert(*state)));
        }
        most
    }

    const SIZES: [(u32, u32); 6] = [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3)];

    #[test]
    fn whatever_may_be_given_has_a_cell_in_all_states() {
        for (capacity, tasks) in SIZES {
            let most = explore(capacity, tasks, Places::may_wait);
            assert!(
                most <= 2 + crate::queue::shape::max_chunk_cells(tasks as usize),
                "{capacity} messages, {tasks} tasks: {most} cells"
            );
        }
    }

    /// A negative twin: without the one cell more a broadcast has no cell.
    #[test]
    fn twin_without_a_cell_for_a_broadcast_is_found() {
        let greedy: MayWait = |places, waiting| {
            places.free >= (places.free + places.given + waiting + 1).saturating_sub(places.spares)
        };
        let explored = std::panic::catch_unwind(|| explore(2, 3, greedy));
        assert!(explored.is_err());
    }
}
