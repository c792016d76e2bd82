//! Access for the loom models in `tests/loom_*.rs` to internal items.
//!
//! Exists under `--cfg loom` only.

mod semaphore;

pub use crate::queue::{places::Places, ring::Side};
pub use latchwork_check::model::Tasks;
pub use latchwork_region::model::Events;
pub use latchwork_sync::model::{Adoption, RegionLock, RobustLock, RobustReadWrite, Taken};
pub use latchwork_sys::model::{
    Fault, HandsOff, SOON, Scene, WakeOrder, as_task, die, has, requests, scene, somebody_died,
    step, take_requests,
};
pub use semaphore::{SemaphoreKind, Semaphores, Waited};

pub use crate::atomic::AtomicU64;
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

    /// Releases at most `most` sleepers, after the change and an unlock; returns whether that took a system call.
    pub fn notify(&self, most: u32) -> bool {
        self.0.notify(most)
    }

    /// Sleeps until the ticket moves. Returns false at the deadline, and whether a notification woke the caller.
    pub fn sleep(&self, ticket: u32, deadline: Option<Deadline>) -> (bool, bool) {
        let (ended, woken) = self.0.sleep(ticket, deadline);
        (ended != futex::Wait::TimedOut, woken)
    }

    /// Ends the sleep, or withdraws its announcement.
    pub fn leave(&self, ticket: u32, woken: bool) {
        self.0.leave(ticket, woken);
    }
}

/// `queue/lane.rs`, with two places.
pub struct Lane([AtomicU64; 2]);

impl Default for Lane {
    fn default() -> Self {
        Self([0, 0].map(AtomicU64::new))
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

/// `queue/ring.rs`, with the futex in place of `region/park.rs`.
#[derive(Default)]
pub struct Ring(crate::queue::ring::Ring);

impl Ring {
    /// The position of a side.
    pub fn index(&self, side: Side) -> u32 {
        self.0.index(side)
    }

    /// Advances a side to `index`; returns whether the other side had to be woken.
    pub fn advance(&self, side: Side, index: u32) -> bool {
        self.0.advance(side, index)
    }

    /// Deletes the ring.
    pub fn delete(&self) {
        assert!(self.0.begin_life_after(0));
    }

    /// Gives up a side, by its claim word; returns whether the ring was deleted.
    pub fn give_up(&self, claim: &AtomicU64) -> bool {
        self.0.give_up(claim, 0)
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
        let other = side.other();
        let mut timed_out = false;
        loop {
            let index = self.0.index(other);
            if ready(index) {
                return Some(index);
            }
            if timed_out || self.0.life() != 0 {
                return None;
            }
            self.0.announce_sleep(side);
            let looks = !has(Fault::RingLooksOnce);
            if !(looks && (ready(self.0.index(other)) || self.0.life() != 0)) {
                let word = self.0.sleep_word(side);
                timed_out =
                    futex::wait(word, 1, futex::Sharing::Shared, deadline) == futex::Wait::TimedOut;
            }
            self.0.end_sleep(side);
        }
    }
}
