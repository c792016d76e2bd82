//! The tasks' operations: acquire locks, send events, send messages.

use std::io;
use std::pin::Pin;
use std::sync::OnceLock;

use latchwork::event::{EventSet, Events};
use latchwork::mutex::{KeptBoost, Mutex, WaitWake};
use latchwork::queue::{Queue, QueueOptions, SendError};
use latchwork::region::{Region, RegionOptions, TaskId};
use latchwork::sharing::Shared;

use super::tasks::{Tally, Work};
use crate::peers::queues::ShallowMq;
use crate::peers::{Lock, SharedPage, placed};

/// As in RTEMS's benchmark: the capacity of a queue, and the size of a message.
const PLACES: u32 = 3;
const BYTES: usize = 4;

/// A new region for so many tasks.
fn region(tasks: u32) -> io::Result<Region> {
    // Also for the task that makes the objects.
    let most = u16::try_from(tasks + 2).unwrap_or(u16::MAX);
    let options = RegionOptions::new().max_bytes(16 << 20).max_tasks(most);
    let region = options.label("bench fine-grained").create_anonymous();
    region.map_err(io::Error::other)
}

/// A lock that is held around each operation, in addition to the object's own locks.
pub(super) trait Under: Default + Sync + 'static {
    /// An operation begins. It ends when the result is dropped.
    fn begin(&self) -> impl Sized;
}

/// No lock.
#[derive(Default)]
pub(super) struct Free;

impl Under for Free {
    #[inline]
    fn begin(&self) -> impl Sized {}
}

/// One lock for all objects, as RTEMS had before; the base of its figures. An operation that sleeps would sleep with
/// this lock held, so it is only for operations that do not sleep.
#[repr(align(128))]
pub(super) struct OneLock(Mutex<(), WaitWake<Shared>>);

impl Default for OneLock {
    fn default() -> Self {
        Self(Mutex::shared(()))
    }
}

impl Under for OneLock {
    #[inline]
    fn begin(&self) -> impl Sized {
        self.0.lock()
    }
}

/// Increments the datum beside a lock: one lock for all tasks, or one for each.
pub(super) struct Locks<L, U> {
    locks: Vec<SharedPage<L>>,
    under: U,
}

impl<L: Lock, U: Under> Locks<L, U> {
    pub(super) fn new(count: u32, make: impl Fn() -> io::Result<L>) -> io::Result<Self> {
        let locks = (0..count).map(|_| make().and_then(placed));
        Ok(Self {
            locks: locks.collect::<io::Result<_>>()?,
            under: U::default(),
        })
    }
}

impl<L: Lock, U: Under> Work for Locks<L, U> {
    type Task<'a> = (Pin<&'a L>, Option<KeptBoost>);

    fn enter(&self, number: usize) -> io::Result<Self::Task<'_>> {
        let enlisted = L::enlist()?;
        let lock = self.locks[number % self.locks.len()].pin();
        lock.check()?;
        Ok((lock, enlisted))
    }

    #[inline]
    fn step(&self, (lock, _): &mut Self::Task<'_>, tally: &mut Tally) -> io::Result<()> {
        let begun = self.under.begin();
        let mut held = lock.lock();
        drop(begun);
        *held += 1;
        let begun = self.under.begin();
        drop(held);
        drop(begun);
        tally.operations += 1;
        Ok(())
    }
}

/// The receivers of what tasks send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    Self_,
    /// The first task, which only receives, unless it is the only one.
    First,
}

/// What a task does with events or messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Both,
    Sends,
    Receives,
}

impl To {
    fn first_serves(self, tasks: u32) -> bool {
        self == Self::First && tasks > 1
    }

    fn role(self, number: usize, tasks: u32) -> Role {
        match (self.first_serves(tasks), number) {
            (false, _) => Role::Both,
            (true, 0) => Role::Receives,
            (true, _) => Role::Sends,
        }
    }
}

/// Sends events and receives them.
pub(super) struct Signals<U> {
    region: Region,
    under: U,
    tasks: u32,
    to: To,
    first: OnceLock<TaskId>,
}

/// The events that are sent: each task has one of its own, as far as there are enough.
const ALL: EventSet = EventSet::all();

pub(super) struct Signalling<'a> {
    events: Events<'a>,
    me: TaskId,
    event: EventSet,
    role: Role,
}

impl<U: Under> Signals<U> {
    pub(super) fn new(tasks: u32, to: To) -> io::Result<Self> {
        Ok(Self {
            region: region(tasks)?,
            under: U::default(),
            tasks,
            to,
            first: OnceLock::new(),
        })
    }
}

impl<U: Under> Work for Signals<U> {
    type Task<'a> = Signalling<'a>;

    fn enter(&self, number: usize) -> io::Result<Signalling<'_>> {
        let me = self.region.task_id().map_err(io::Error::other)?;
        if number == 0 {
            self.first.get_or_init(|| me);
        }
        Ok(Signalling {
            events: Events::new(&self.region),
            me,
            event: EventSet::event(number as u32 % 32),
            role: self.to.role(number, self.tasks),
        })
    }

    #[inline]
    fn step(&self, task: &mut Signalling<'_>, tally: &mut Tally) -> io::Result<()> {
        if task.role != Role::Receives {
            let to = match task.role {
                Role::Sends => *self.first.get().ok_or(io::ErrorKind::NotFound)?,
                _ => task.me,
            };
            let begun = self.under.begin();
            let sent = task.events.send(to, task.event);
            drop(begun);
            sent.map_err(io::Error::other)?;
            tally.operations += 1;
        }
        if task.role != Role::Sends {
            let begun = self.under.begin();
            let received = task.events.receive_any(ALL);
            drop(begun);
            received.map_err(io::Error::other)?;
            tally.received += 1;
        }
        Ok(())
    }

    fn first_serves(&self) -> bool {
        self.to.first_serves(self.tasks)
    }

    fn release(&self) -> io::Result<()> {
        if let Some(first) = self.first.get() {
            // An error is ignored: if the receiver no longer waits, it may have ended.
            let _ = Events::new(&self.region).send(*first, ALL);
        }
        Ok(())
    }
}

/// The tasks' queues, by task number.
pub(super) trait Queues: Sized + Sync {
    type Handle<'a>: Handle
    where
        Self: 'a;

    fn new(tasks: u32) -> io::Result<Self>;

    fn handle(&self, number: usize) -> io::Result<Self::Handle<'_>>;
}

pub(super) trait Handle {
    /// Sends a message if there is room; returns whether there was.
    fn try_send(&self, message: &[u8; BYTES]) -> io::Result<bool>;

    /// Waits for a message.
    fn receive(&self, buffer: &mut [u8; BYTES]) -> io::Result<()>;
}

/// Latchwork's queues, in a region.
pub(super) struct OurQueues(Region);

impl Queues for OurQueues {
    type Handle<'a> = Queue<'a>;

    fn new(tasks: u32) -> io::Result<Self> {
        region(tasks).map(Self)
    }

    fn handle(&self, number: usize) -> io::Result<Queue<'_>> {
        let options = QueueOptions::new(PLACES, BYTES as u32);
        Queue::create(&self.0, &number.to_string(), &options).map_err(io::Error::other)
    }
}

impl Handle for Queue<'_> {
    #[inline]
    fn try_send(&self, message: &[u8; BYTES]) -> io::Result<bool> {
        match Queue::try_send(self, message) {
            Ok(()) => Ok(true),
            Err(SendError::Full) => Ok(false),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    #[inline]
    fn receive(&self, buffer: &mut [u8; BYTES]) -> io::Result<()> {
        let received = Queue::receive(self, buffer);
        received.map(drop).map_err(io::Error::other)
    }
}

/// The kernel's queues.
pub(super) struct PosixQueues(Vec<ShallowMq>);

impl Queues for PosixQueues {
    type Handle<'a> = &'a ShallowMq;

    fn new(tasks: u32) -> io::Result<Self> {
        let queues = (0..tasks).map(|_| ShallowMq::new(PLACES as usize, BYTES));
        queues.collect::<io::Result<_>>().map(Self)
    }

    fn handle(&self, number: usize) -> io::Result<&ShallowMq> {
        Ok(&self.0[number])
    }
}

impl Handle for &ShallowMq {
    fn try_send(&self, message: &[u8; BYTES]) -> io::Result<bool> {
        ShallowMq::try_send(self, message)
    }

    fn receive(&self, buffer: &mut [u8; BYTES]) -> io::Result<()> {
        ShallowMq::receive(self, buffer)
    }
}

/// Sends messages and receives them.
pub(super) struct Messages<Q, U> {
    queues: Q,
    under: U,
    tasks: u32,
    to: To,
}

impl<Q: Queues, U: Under> Messages<Q, U> {
    pub(super) fn new(tasks: u32, to: To) -> io::Result<Self> {
        Ok(Self {
            queues: Q::new(tasks)?,
            under: U::default(),
            tasks,
            to,
        })
    }
}

impl<Q: Queues, U: Under> Work for Messages<Q, U> {
    type Task<'a>
        = (Q::Handle<'a>, Role)
    where
        Q: 'a;

    fn enter(&self, number: usize) -> io::Result<Self::Task<'_>> {
        let role = self.to.role(number, self.tasks);
        let queue = if role == Role::Both { number } else { 0 };
        Ok((self.queues.handle(queue)?, role))
    }

    #[inline]
    fn step(&self, (queue, role): &mut Self::Task<'_>, tally: &mut Tally) -> io::Result<()> {
        if *role != Role::Receives {
            let begun = self.under.begin();
            let sent = queue.try_send(&[1; BYTES]);
            drop(begun);
            match sent? {
                true => tally.operations += 1,
                false => tally.refused += 1,
            }
        }
        if *role != Role::Sends {
            let begun = self.under.begin();
            let received = queue.receive(&mut [0; BYTES]);
            drop(begun);
            received?;
            tally.received += 1;
        }
        Ok(())
    }

    fn first_serves(&self) -> bool {
        self.to.first_serves(self.tasks)
    }

    fn release(&self) -> io::Result<()> {
        if self.first_serves() {
            // If it is full, no task waits for a message.
            self.queues.handle(0)?.try_send(&[0; BYTES])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tasks::{TaskSet, run};
    use super::*;

    /// The numbers of sent and received messages, of all tasks.
    fn counts(work: &impl Work, tasks: u32) -> (u64, u64) {
        let task_set = TaskSet {
            tasks,
            priority: None,
            window: Duration::from_millis(2),
        };
        let (tallies, _) = run(work, task_set).unwrap();
        let sum = |count: fn(&Tally) -> u64| tallies.iter().map(count).sum();
        (sum(|tally| tally.operations), sum(|tally| tally.received))
    }

    fn every_message_arrives<Q: Queues>() {
        let (sent, received) = counts(&Messages::<Q, Free>::new(2, To::Self_).unwrap(), 2);
        assert!(sent > 0 && sent == received);
        let (sent, received) = counts(&Messages::<Q, Free>::new(3, To::First).unwrap(), 3);
        // The last one may be what releases the receiver; some may be left when it has ended.
        let left = (sent + 1).checked_sub(received).unwrap();
        assert!(left <= u64::from(PLACES) + 1, "{sent}, {received}");
        let (sent, received) = counts(&Messages::<Q, Free>::new(1, To::First).unwrap(), 1);
        assert!(sent > 0 && sent == received);
    }

    #[test]
    fn every_message_to_our_queues_arrives() {
        every_message_arrives::<OurQueues>();
    }

    #[test]
    fn every_message_to_posix_queues_arrives() {
        every_message_arrives::<PosixQueues>();
    }

    #[test]
    fn an_event_is_received_once_for_each_sent_to_oneself_and_at_most_so_often_by_another() {
        let (sent, received) = counts(&Signals::<Free>::new(2, To::Self_).unwrap(), 2);
        assert!(sent > 0 && sent == received);
        let (sent, received) = counts(&Signals::<Free>::new(3, To::First).unwrap(), 3);
        assert!((1..=sent + 1).contains(&received), "{sent}, {received}");
    }

    #[test]
    fn operations_behind_one_lock_have_the_same_results() {
        let (sent, received) = counts(&Signals::<OneLock>::new(2, To::Self_).unwrap(), 2);
        assert!(sent > 0 && sent == received);
        let messages = Messages::<OurQueues, OneLock>::new(2, To::Self_).unwrap();
        let (sent, received) = counts(&messages, 2);
        assert!(sent > 0 && sent == received);
    }

    #[test]
    fn one_lock_lets_one_operation_in() {
        let lock = OneLock::default();
        let begun = lock.begin();
        assert!(lock.0.try_lock().is_none());
        drop(begun);
        assert!(lock.0.try_lock().is_some());
    }
}
