//! Events: 32 bits for each task. Any task sends them, and the task receives any of them or all.
//!
//! A send adds to the pending events of a task; a receive waits until one or all of the wanted events are pending, and
//! takes those. Events are not counted: an event that is sent twice while it is pending is received once. A send that
//! satisfies a waiting task takes the events for it at that moment: later events stay pending, whenever the task runs.
//! The semantics are those of RTEMS's event manager (whose directives [`Classic`](crate::classic::Classic) has).
//!
//! Each task has two independent sets: the application's events, and [system](Events::system) events, for libraries
//! that make a task wait and must not disturb its own events.
//!
//! ```
//! use latchwork::event::{EventSet, Events};
//! use latchwork::region::RegionOptions;
//! use std::thread;
//!
//! const READY: EventSet = EventSet::event(0);
//! const STOP: EventSet = EventSet::event(1);
//!
//! let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
//! let events = Events::new(&region);
//! let me = region.task_id()?;
//! thread::scope(|scope| {
//!     scope.spawn(|| events.send(me, READY).unwrap());
//!     let received = events.receive_any(READY | STOP).unwrap();
//!     assert_eq!(received, READY);
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *Senders:* any thread of a process that has the region, even one that is no task of it, and from signal handlers,
//! too. A send reads the region's memory, changes one word, and makes at most one system call, for the wake-up. A
//! handler needs an [`Events`] and a [`TaskId`] that were made before, and a handle on the region that stays; `errno`
//! is preserved. But only *tasks* are watched: if a sender that is no task is killed between its send and its wake-up,
//! the receiver sleeps until a later send satisfies its condition again. A sender that may be killed
//! [joins](Region::join).
//!
//! *Receivers:* only the task itself; the calling thread becomes a task if it is none. A signal handler may receive
//! without waiting (`try_…`, `pending`) if its thread is a task already; it must not wait.
//!
//! *Death and fork:* a task's events are lost with it, and a later send to it fails; the next task in its slot begins
//! with none. The child of a fork is a task of its own. `region/events.rs` says what a send guarantees when several
//! tasks die, why no wake-up is lost, and what it costs.

use crate::hook::{Kind, Site, Waiting};
use crate::region::events::{Condition, Set};
use crate::region::{AttachError, Inner, Parked, Region, TaskId};
use crate::{sys::futex, time::Deadline};
use core::{fmt, time::Duration};
use std::sync::Arc;

bitflags::bitflags! {
    /// A set of events, numbered 0 to 31.
    ///
    /// ```
    /// use latchwork::event::EventSet;
    ///
    /// let set = EventSet::event(3) | EventSet::event(31);
    /// assert_eq!(set.bits(), 0x8000_0008);
    /// assert!(EventSet::all().contains(set));
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct EventSet: u32 {
        /// RTEMS's transient event: a system event for short waits within one call.
        const TRANSIENT = 1 << 31;
        const _ = !0;
    }
}

impl EventSet {
    /// The event of this number.
    ///
    /// # Panics
    /// If it is above 31; at compile time in a constant.
    #[must_use]
    pub const fn event(number: u32) -> Self {
        assert!(number < 32, "events are numbered 0 to 31");
        Self::from_bits_retain(1 << number)
    }
}

/// The task has left or died, or never was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no task of the region: it has left, or died, or never was")]
pub struct InvalidTask(pub TaskId);

/// The reason why no events were received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The deadline has passed. Nothing was taken.
    #[error("timed out waiting for the events")]
    TimedOut,
    /// The calling thread cannot become a task of the region.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// The reason why no events were received at once.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TryReceiveError {
    /// The condition is not met. Nothing was taken.
    #[error("the wanted events are not pending")]
    Unsatisfied {
        /// Those of the wanted events that are pending; they stay pending.
        present: EventSet,
    },
    /// The calling thread cannot become a task of the region.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// The events of a region's tasks: a handle for sending to any of them, and for receiving one's own.
///
/// The [module](self) has an example, and the rules for signal handlers, death and fork.
#[derive(Clone, Copy)]
pub struct Events<'r> {
    region: &'r Region,
    is_system: bool,
}

impl<'r> Events<'r> {
    /// The application's events.
    #[must_use]
    pub fn new(region: &'r Region) -> Self {
        let is_system = false;
        Self { region, is_system }
    }

    /// The system events, a second, independent set of each task.
    #[must_use]
    pub fn system(region: &'r Region) -> Self {
        let is_system = true;
        Self { region, is_system }
    }

    /// Adds `events` to the pending events of a task, and wakes it if that satisfies its wait.
    ///
    /// Never waits. For threads, processes and signal handlers (see the [module](self)); the sender's earlier writes
    /// are visible to the task that receives these events.
    ///
    /// # Errors
    /// [`InvalidTask`], and nothing else.
    pub fn send(&self, task: TaskId, events: EventSet) -> Result<(), InvalidTask> {
        let inner = self.inner();
        let owner = task.owner().filter(|owner| inner.is_alive(*owner));
        let wake = owner.and_then(|owner| {
            let set = self.set_of(owner.slot());
            set.send(owner.generation(), events.bits())
        });
        wake.ok_or(InvalidTask(task))?.carry_out();
        Ok(())
    }

    /// The pending events of the calling task. Takes nothing.
    ///
    /// # Errors
    /// If the thread cannot become a task of the region.
    pub fn pending(&self) -> Result<EventSet, AttachError> {
        Ok(EventSet::from_bits_retain(self.own()?.pending()))
    }

    /// Waits until at least one of `events` is pending, and takes those that are.
    ///
    /// For an empty set the call returns at once.
    ///
    /// # Errors
    /// [`ReceiveError::Attach`].
    #[track_caller]
    pub fn receive_any(&self, events: EventSet) -> Result<EventSet, ReceiveError> {
        self.receive(Condition::any(events.bits()), None)
    }

    /// Waits until all of `events` are pending, and takes them.
    ///
    /// # Errors
    /// [`ReceiveError::Attach`].
    #[track_caller]
    pub fn receive_all(&self, events: EventSet) -> Result<EventSet, ReceiveError> {
        self.receive(Condition::all(events.bits()), None)
    }

    /// As [`Self::receive_any`], until `deadline`.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`], [`ReceiveError::Attach`].
    #[track_caller]
    pub fn receive_any_until(
        &self,
        events: EventSet,
        deadline: Deadline,
    ) -> Result<EventSet, ReceiveError> {
        self.receive(Condition::any(events.bits()), Some(deadline))
    }

    /// As [`Self::receive_all`], until `deadline`.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`], [`ReceiveError::Attach`].
    #[track_caller]
    pub fn receive_all_until(
        &self,
        events: EventSet,
        deadline: Deadline,
    ) -> Result<EventSet, ReceiveError> {
        self.receive(Condition::all(events.bits()), Some(deadline))
    }

    /// As [`Self::receive_any`], for at most `timeout`.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`], [`ReceiveError::Attach`].
    #[track_caller]
    pub fn receive_any_for(
        &self,
        events: EventSet,
        timeout: Duration,
    ) -> Result<EventSet, ReceiveError> {
        self.receive_any_until(events, Deadline::after(timeout))
    }

    /// As [`Self::receive_all`], for at most `timeout`.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`], [`ReceiveError::Attach`].
    #[track_caller]
    pub fn receive_all_for(
        &self,
        events: EventSet,
        timeout: Duration,
    ) -> Result<EventSet, ReceiveError> {
        self.receive_all_until(events, Deadline::after(timeout))
    }

    /// As [`Self::receive_any`], if one is pending at this moment.
    ///
    /// # Errors
    /// [`TryReceiveError::Unsatisfied`], [`TryReceiveError::Attach`].
    pub fn try_receive_any(&self, events: EventSet) -> Result<EventSet, TryReceiveError> {
        self.try_receive(Condition::any(events.bits()))
    }

    /// As [`Self::receive_all`], if all are pending at this moment.
    ///
    /// # Errors
    /// [`TryReceiveError::Unsatisfied`], [`TryReceiveError::Attach`].
    pub fn try_receive_all(&self, events: EventSet) -> Result<EventSet, TryReceiveError> {
        self.try_receive(Condition::all(events.bits()))
    }

    pub(crate) fn try_receive(&self, condition: Condition) -> Result<EventSet, TryReceiveError> {
        let own = self.own()?;
        if condition.events == 0 {
            return Ok(EventSet::empty());
        }
        let taken = own.take(condition).map(EventSet::from_bits_retain);
        taken.map_err(|present| {
            let present = EventSet::from_bits_retain(present);
            TryReceiveError::Unsatisfied { present }
        })
    }

    #[track_caller]
    pub(crate) fn receive(
        &self,
        condition: Condition,
        deadline: Option<Deadline>,
    ) -> Result<EventSet, ReceiveError> {
        let inner = self.inner();
        let task = inner.task()?;
        if condition.events == 0 {
            return Ok(EventSet::empty());
        }
        let set = self.set_of(task.owner().slot());
        let site = Site::caller();
        let turns = Some(&task.slot.takes_turns);
        let taken = set.receive(condition, turns, |word, seen| {
            #[allow(unsafe_code, reason = "half of a word, for a wait")]
            // SAFETY: the half is slept on, and not accessed.
            let half = unsafe { futex::high_word(word) };
            let object = core::ptr::from_ref(word).addr();
            let _waiting = Waiting::begin_at(Kind::Events, object, deadline.is_some(), site);
            // Deaths before this read are of no interest: the word shows all that a dead sender could have changed.
            let words = [(half, (seen >> 32) as u32)];
            match inner.park_cancellable(task, &words, inner.deaths(), deadline) {
                (Parked::Again, _) => Ok(()),
                (Parked::TimedOut, _) => Err(ReceiveError::TimedOut),
            }
        })?;
        Ok(EventSet::from_bits_retain(taken))
    }

    /// The calling task's set.
    fn own(&self) -> Result<&'r Set, AttachError> {
        Ok(self.set_of(self.inner().task()?.owner().slot()))
    }

    /// The events of a slot, in the set of this handle.
    fn set_of(&self, slot: u16) -> &'r Set {
        let sets = &self.inner().slots()[usize::from(slot)].events;
        if self.is_system {
            &sets.system
        } else {
            &sets.user
        }
    }

    fn inner(&self) -> &'r Arc<Inner> {
        self.region.inner()
    }
}

impl fmt::Debug for Events<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Events")
            .field("region", &self.region.label())
            .field("is_system", &self.is_system)
            .finish()
    }
}
