//! Access for the loom models in `tests/loom_*.rs` to internal items.
//!
//! Exists under `--cfg loom` only.
#![allow(unsafe_code)]

mod semaphore;

pub use latchwork_check::model::Tasks;
pub use latchwork_region::model::Events;
pub use latchwork_sync::model::{Adoption, RobustLock, RobustReadWrite, Taken};
pub use latchwork_sys::model::{
    Fault, HandsOff, SOON, Scene, WakeOrder, as_task, die, has, requests, scene, somebody_died,
    step, take_requests,
};
pub use semaphore::{SemaphoreKind, Semaphores, Waited};

use crate::sys::futex;
use crate::time::Deadline;

/// `queue/sleepers.rs`, with the futex in place of `region/park.rs`.
#[derive(Default)]
pub struct Sleepers(crate::queue::sleepers::Sleepers);

impl Sleepers {
    /// Announces a sleep; returns the ticket. The caller has to check its condition once more.
    pub fn register(&self) -> u32 {
        self.0.register()
    }

    /// Releases at most `most` sleepers, after the change and an unlock; returns whether that took a system
    /// call.
    pub fn notify(&self, most: u32) -> bool {
        self.0.notify(most)
    }

    /// Sleeps until the ticket moves. Returns false at the deadline, and whether a notification woke the
    /// caller.
    pub fn sleep(&self, ticket: u32, deadline: Option<Deadline>) -> (bool, bool) {
        let (ended, woken) = self.0.sleep(ticket, deadline);
        (ended != futex::Wait::TimedOut, woken)
    }

    /// Ends the sleep, or withdraws its announcement.
    pub fn leave(&self, ticket: u32, woken: bool) {
        self.0.leave(ticket, woken);
    }
}

/// `queue/places.rs`.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// Cells that are free.
    pub free: u32,
    /// Cells that waiting receivers have been given.
    pub given: u32,
    /// Cells beyond the capacity.
    pub spares: u32,
}

impl Places {
    fn real(self) -> crate::queue::places::Places {
        crate::queue::places::Places {
            free: self.free,
            given: self.given,
            spares: self.spares,
        }
    }

    /// Whether a message may be sent.
    pub fn has_room(self, waiting: u32) -> bool {
        self.real().has_room(waiting)
    }

    /// Whether one more receiver may wait.
    pub fn may_wait(self, waiting: u32) -> bool {
        self.real().may_wait(waiting)
    }

    /// How many senders are woken for a receiver that begins to wait.
    pub fn senders_to_wake() -> u32 {
        crate::queue::places::Places::senders_to_wake()
    }
}

/// `queue/lane.rs`, with two places.
pub struct Lane([crate::atomic::AtomicU64; 2]);

impl Default for Lane {
    fn default() -> Self {
        Self([0, 0].map(crate::atomic::AtomicU64::new))
    }
}

impl Lane {
    /// Puts a cell at the giver's position.
    pub fn put(&self, position: u32, cell: u32) {
        let entry = crate::queue::lane::Entry {
            index: crate::queue::lane::Index(cell),
            ranked: false,
        };
        crate::queue::lane::Lane::new(&self.0).put(position, entry);
    }

    /// The cell at the taker's position, if one was put there.
    pub fn look(&self, position: u32) -> Option<u32> {
        let entry = crate::queue::lane::Lane::new(&self.0).get(position)?;
        Some(entry.index.0)
    }
}

/// One of the two users of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The sender.
    Sender,
    /// The receiver.
    Receiver,
}

impl Side {
    fn real(self) -> crate::queue::ring::Side {
        match self {
            Self::Sender => crate::queue::ring::Side::Sender,
            Self::Receiver => crate::queue::ring::Side::Receiver,
        }
    }
}

/// `queue/ring.rs`, with the futex in place of `region/park.rs`.
#[derive(Default)]
pub struct Ring(crate::queue::ring::Ring);

impl Ring {
    /// The position of a side.
    pub fn index(&self, side: Side) -> u32 {
        self.0.index(side.real())
    }

    /// Advances a side to `index`; returns whether the other side had to be woken.
    pub fn advance(&self, side: Side, index: u32) -> bool {
        self.0.advance(side.real(), index)
    }

    /// Deletes the ring.
    pub fn delete(&self) {
        assert!(self.0.begin_life_after(0));
    }

    /// The loop of a watcher: waits until the sender has reached `index`, or the ring was deleted.
    pub fn watch(&self, index: u32) {
        loop {
            let ticket = self.0.watchers().register();
            let over = self.index(Side::Sender) >= index || self.0.life() != 0;
            if !over {
                self.0.watchers().sleep(ticket, None);
            }
            self.0.watchers().leave(ticket, false);
            if over {
                return;
            }
        }
    }

    /// The loop of a side that waits until `ready` accepts the other side's position. Returns that position, or
    /// `None` at the deadline and when the ring was deleted.
    pub fn wait(
        &self,
        side: Side,
        deadline: Option<Deadline>,
        ready: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let (me, other) = (side.real(), side.real().other());
        let mut timed_out = false;
        loop {
            let index = self.0.index(other);
            if ready(index) {
                return Some(index);
            }
            if timed_out || self.0.life() != 0 {
                return None;
            }
            self.0.announce_sleep(me);
            let looks = !has(Fault::RingLooksOnce);
            if !(looks && (ready(self.0.index(other)) || self.0.life() != 0)) {
                let word = self.0.sleep_word(me);
                timed_out =
                    futex::wait(word, 1, futex::Sharing::Shared, deadline) == futex::Wait::TimedOut;
            }
            self.0.end_sleep(me);
        }
    }
}
