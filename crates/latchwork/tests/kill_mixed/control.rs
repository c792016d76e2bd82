//! What the driver and the tasks know of each other, in the region.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use latchwork::region::Shareable;

/// Places for tasks; the last one is the driver's.
pub const SEATS: usize = 12;
pub const DRIVER: usize = SEATS - 1;

/// What a task waits for, beyond a lock, in the upper half of [`Seat::doing`].
pub const GIVING: u64 = 1 << 32;
pub const TAKING: u64 = 2 << 32;

/// That a task is at a place, and what it waits for there, if for anything.
pub const fn at(place: usize, waits: u64) -> u64 {
    (place as u64 + 1) | waits
}

#[derive(Shareable)]
#[repr(C)]
pub struct Control {
    /// All are to rest: the number of the halt; 0: all are to work.
    pub halt: AtomicU64,
    pub stop: AtomicBool,
    /// Whether tasks may have real-time priorities.
    pub priorities: AtomicBool,
    /// Tasks leave their priorities and processors as the driver made them.
    pub calm: AtomicBool,
    /// One bit for each place that is used in this round.
    pub focus: AtomicU64,
    pub seats: [Seat; SEATS],
}

/// What is known of a task.
#[derive(Shareable)]
#[repr(C)]
pub struct Seat {
    pub process: AtomicU32,
    /// 0 until the task can be sent signals.
    pub thread: AtomicU32,
    /// The place that it is at, counted from 1, and what it waits for there; 0: at none.
    pub doing: AtomicU64,
    pub progress: AtomicU64,
    /// The halt in which it rests.
    pub resting: AtomicU64,
    /// How many incarnations of it were sent to their deaths, before they were.
    pub doomed: AtomicU64,
    /// Signals that its process handled.
    pub handled: AtomicU64,
}

impl Seat {
    const fn new() -> Self {
        Self {
            process: AtomicU32::new(0),
            thread: AtomicU32::new(0),
            doing: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            resting: AtomicU64::new(0),
            doomed: AtomicU64::new(0),
            handled: AtomicU64::new(0),
        }
    }
}

/// A task: its seat and its incarnation in one number, which is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(pub u64);

impl Id {
    pub const fn new(seat: usize, incarnation: u64) -> Self {
        Self((incarnation << 8) | (seat as u64 + 1))
    }
}

impl Control {
    pub fn new(priorities: bool) -> Self {
        Self {
            halt: AtomicU64::new(1),
            stop: AtomicBool::new(false),
            priorities: AtomicBool::new(priorities),
            calm: AtomicBool::new(true),
            focus: AtomicU64::new(u64::MAX),
            seats: [const { Seat::new() }; SEATS],
        }
    }

    /// Whether this task, which stands somewhere as an [`Id`], was sent to its death.
    pub fn is_doomed(&self, id: u64) -> bool {
        let seat = (id & 0xff) as usize;
        (1..=SEATS).contains(&seat) && self.seats[seat - 1].doomed.load(SeqCst) > id >> 8
    }
}

/// What a task is told as it begins.
#[derive(Clone, Copy, Shareable)]
#[repr(C)]
pub struct Ticket {
    pub seat: u32,
    /// Whether it will be killed. It then keeps to what is robust.
    pub mortal: u32,
    pub incarnation: u64,
    /// Of its decisions.
    pub seed: u64,
}

impl Ticket {
    pub fn id(&self) -> Id {
        Id::new(self.seat as usize, self.incarnation)
    }
}
