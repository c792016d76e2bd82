//! Access for the loom models in `tests/loom_*.rs` to internal items.
//!
//! Exists under `--cfg loom` only. A model first chooses, by a [`Scene`], how the modelled kernel behaves and
//! which [`Fault`] is injected into the code. A model with a fault is a *negative twin* and must fail.
#![allow(unsafe_code)]

mod check;
#[path = "../region/events.rs"]
pub(crate) mod events;
mod fault;
pub(crate) mod mortal;
mod semaphore;

pub use check::Tasks;
pub use fault::Fault;
pub use mortal::{as_task, somebody_died, step};
pub use semaphore::{SemaphoreKind, Semaphores, Waited};

use crate::mutex::{RobustProtocol, WaitWake};
use crate::sharing::Shared;
use crate::sys::futex;
use crate::time::Deadline;
use std::cell::Cell;

/// Which waiter a wake-up chooses when several wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakeOrder {
    /// First come, first woken.
    #[default]
    Oldest,
    /// Last come, first woken.
    Newest,
}

/// The settings of one model: the modelled kernel's choices, and a fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scene {
    /// The number of waits, from the first, that return spuriously.
    pub spurious: usize,
    /// Which waiter a wake-up chooses.
    pub wake_order: WakeOrder,
    /// Whether the first waiter of a throughput lock has always waited past the threshold, or never has.
    pub hands_off: bool,
    /// Whether sleeps with a time-out at the gate of a throughput lock may end at any moment, or never do.
    pub naps_end: bool,
    /// Whether waiters of a reader/writer lock may starve at any moment, or never do.
    pub starving: bool,
    /// The injected fault.
    pub fault: Option<Fault>,
}

// Loom runs all threads of a model on the one that calls it; a test is a thread of its own.
std::thread_local! {
    static SCENE: Cell<Scene> = const { Cell::new(Scene { spurious: 0, wake_order: WakeOrder::Oldest, hands_off: false, naps_end: false, starving: false, fault: None }) };
}

impl Scene {
    /// Explores `body` in this scene, with at most `preemptions` preemptions in an execution.
    pub fn explore(self, preemptions: Option<usize>, body: impl Fn() + Sync + Send + 'static) {
        SCENE.set(self);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(preemptions);
        builder.max_branches = 10_000;
        builder.check(body);
        SCENE.set(Self::default());
    }

    /// Runs the test `name` of this program again, in a process of its own, where it `explores` the scene. That
    /// process must end with a panic that contains `expected`.
    ///
    /// (In a process of its own since loom aborts after a deadlock: its objects cannot be dropped.)
    ///
    /// # Panics
    /// If the model finds nothing, or something else.
    pub fn must_fail(self, name: &str, expected: &str, explores: impl FnOnce(Self)) {
        const ALONE: &str = "LATCHWORK_TWIN";
        if std::env::var_os(ALONE).is_some_and(|alone| alone == name) {
            return explores(self);
        }
        let program = std::env::current_exe().expect("this program has a path");
        let output = std::process::Command::new(program)
            .args(["--exact", name, "--nocapture"])
            .env(ALONE, name)
            .env("RUST_BACKTRACE", "0")
            .output()
            .expect("this program can be run");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "nobody noticed {:?}", self.fault);
        assert!(
            text.contains(expected),
            "{:?} was found in another way:\n{text}",
            self.fault
        );
    }
}

/// Declares a test that [must fail](Scene::must_fail): its name, the fault, the expected text of the panic, the
/// bound on preemptions, the model.
#[macro_export]
macro_rules! negative_twin {
    ($name:ident, $fault:ident, $expected:expr, $preemptions:expr, $body:expr) => {
        #[test]
        fn $name() {
            let scene = $crate::model::Scene {
                fault: Some($crate::model::Fault::$fault),
                ..Default::default()
            };
            scene.must_fail(stringify!($name), $expected, |scene| {
                scene.explore($preemptions, $body)
            });
        }
    };
}

pub(crate) fn scene() -> Scene {
    SCENE.get()
}

pub(crate) fn has(fault: Fault) -> bool {
    SCENE.get().fault == Some(fault)
}

/// A deadline; in a model each may pass at any moment.
pub const SOON: Deadline = Deadline::from_nanoseconds(0);

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
        let entry = crate::queue::lane::Lane::new(&self.0).look(position)?;
        Some(entry.index.0)
    }
}

/// `region/events.rs`, with the futex in place of `region/park.rs`.
#[derive(Default)]
pub struct Events(events::Set);

impl Events {
    /// A new task's empty set.
    pub fn begin(&self, generation: u32) {
        self.0.begin(generation);
    }

    /// Sends; returns whether that took a system call, or `None` if the task is gone.
    pub fn send(&self, to: u32, events: u32) -> Option<bool> {
        let wake = self.0.send(to, events)?;
        let needed = wake.is_needed();
        wake.carry_out();
        Some(needed)
    }

    /// Whether the task waits for events and was given none.
    pub fn is_awaited(&self) -> bool {
        self.0.is_awaited()
    }

    /// The task's pending events.
    pub fn pending(&self) -> u32 {
        self.0.pending()
    }

    /// Receives at least one of `events`, or `all` of them; `None` at the deadline.
    pub fn receive(&self, events: u32, all: bool, deadline: Option<Deadline>) -> Option<u32> {
        let condition = if all {
            events::Condition::all(events)
        } else {
            events::Condition::any(events)
        };
        let sleep = |word: &crate::atomic::AtomicU64, seen| match futex::wait_high(
            word,
            seen,
            u32::MAX,
            futex::Sharing::Shared,
            deadline,
        ) {
            (futex::Wait::TimedOut, _) => Err(()),
            _ => Ok(()),
        };
        self.0.receive(condition, sleep).ok()
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
            self.0.lie_down(me);
            let looks = !has(Fault::RingLooksOnce);
            if !(looks && (ready(self.0.index(other)) || self.0.life() != 0)) {
                let word = self.0.sleep_word(me);
                timed_out =
                    futex::wait(word, 1, futex::Sharing::Shared, deadline) == futex::Wait::TimedOut;
            }
            self.0.rise(me);
        }
    }
}

/// The result of acquiring a robust lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The data is whole.
    Clean,
    /// The last owner died.
    OwnerDied,
    /// Not acquired: the lock was given up.
    NotRecoverable,
    /// Not acquired: the deadline passed.
    TimedOut,
    /// Not acquired: the task would wait for itself.
    Deadlock,
}

impl<F: core::fmt::Debug> From<crate::mutex::RawError<F>> for Taken {
    fn from(error: crate::mutex::RawError<F>) -> Self {
        match error {
            crate::mutex::RawError::NotRecoverable => Self::NotRecoverable,
            crate::mutex::RawError::TimedOut => Self::TimedOut,
            crate::mutex::RawError::Deadlock => Self::Deadlock,
            error => panic!("{error:?}"),
        }
    }
}

/// A robust lock without data and guards, for a death that runs no destructor.
#[derive(Default)]
pub struct RobustLock<P: RobustProtocol + Default = WaitWake<Shared>>(crate::mutex::Robust<P>);

impl<P: RobustProtocol + Default> RobustLock<P> {
    /// Acquires the lock.
    ///
    /// # Panics
    /// If the result has no counterpart in [`Taken`].
    pub fn lock(&self, deadline: Option<Deadline>) -> Taken {
        use crate::mutex::Acquired;
        // SAFETY: models keep their locks until all tasks have ended.
        match unsafe { self.0.lock_raw(deadline) } {
            Ok(Acquired::Clean) => Taken::Clean,
            Ok(Acquired::OwnerDied) => Taken::OwnerDied,
            Err(error) => error.into(),
        }
    }

    /// Declares the data whole.
    pub fn mark_consistent(&self) {
        self.0.mark_consistent();
    }

    /// Releases the lock; if the data was not repaired, the lock is given up.
    ///
    /// # Safety
    /// The calling task holds it.
    pub unsafe fn unlock(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.0.unlock_raw() };
    }
}

/// A robust reader/writer lock without data and guards, for a death that runs no destructor.
pub struct RobustReadWrite<const READERS: usize>(crate::rwlock::RawRobust<READERS>);

impl<const READERS: usize> Default for RobustReadWrite<READERS> {
    fn default() -> Self {
        Self(crate::rwlock::RawRobust::new())
    }
}

impl<const READERS: usize> RobustReadWrite<READERS> {
    /// Acquires the lock to read, with a seat, or to write if a writer died inside.
    ///
    /// # Errors
    /// Why it was not acquired for reading.
    ///
    /// # Panics
    /// If the result has no counterpart in [`Taken`].
    pub fn read(&self, deadline: Option<Deadline>) -> Result<usize, Taken> {
        use crate::mutex::Patience;
        use crate::rwlock::Entered;
        // SAFETY: models keep their locks until all tasks have ended.
        let entered = unsafe {
            match self.0.read_free() {
                Some((seat, _)) => Ok(Entered::Reading(seat)),
                None => self.0.read(Patience::until(deadline)),
            }
        };
        match entered {
            Ok(Entered::Reading(seat)) => Ok(seat),
            Ok(Entered::Torn) => Err(Taken::OwnerDied),
            Err(error) => Err(error.into()),
        }
    }

    /// Acquires the lock to write.
    ///
    /// # Panics
    /// As for [`Self::read`].
    pub fn write(&self, deadline: Option<Deadline>) -> Taken {
        use crate::mutex::{Acquired, Patience};
        // SAFETY: models keep their locks until all tasks have ended.
        match unsafe { self.0.write(Patience::until(deadline)) } {
            Ok(Acquired::Clean) => Taken::Clean,
            Ok(Acquired::OwnerDied) => Taken::OwnerDied,
            Err(error) => error.into(),
        }
    }

    /// Declares the data whole.
    pub fn mark_consistent(&self) {
        self.0.gate().mark_consistent();
    }

    /// Releases a seat.
    ///
    /// # Safety
    /// The calling task has the seat.
    pub unsafe fn unlock_read(&self, seat: usize) {
        // SAFETY: by the caller's contract.
        unsafe { self.0.unlock_read(seat, crate::task::Me::whoever().tid()) };
    }

    /// Releases the lock after writing.
    ///
    /// # Safety
    /// The calling task holds it to write.
    pub unsafe fn unlock_write(&self) {
        // SAFETY: by the caller's contract.
        unsafe { self.0.unlock_write(crate::task::Me::whoever().tid()) };
    }

    /// Becomes a reader; returns its seat.
    ///
    /// # Safety
    /// As for [`Self::unlock_write`].
    pub unsafe fn downgrade(&self) -> usize {
        // SAFETY: by the caller's contract.
        unsafe { self.0.downgrade(crate::task::Me::whoever().tid()) }
    }
}

/// The parts of `region` that the locks refer to.
pub mod region {
    /// Stands in for the trait in `region/shareable.rs`.
    ///
    /// # Safety
    /// None here.
    pub unsafe trait TornSafe {}

    pub(crate) use crate::wait_record;

    /// Stands in for the type in `region/park.rs`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Parked {
        Again,
        TimedOut,
    }
}
