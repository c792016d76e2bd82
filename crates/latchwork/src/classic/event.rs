//! The directives of RTEMS's event manager, and the same for system events.

use super::handle::{Classic, directive};
use super::status::{Id, Interval, NO_WAIT, Status, not_attached};
use crate::event::{EventSet, Events, ReceiveError, TryReceiveError};
use crate::region::{TaskId, events::Condition};

/// `RTEMS_EVENT_ALL`: all of the wanted events.
pub const EVENT_ALL: u32 = 0;
/// `RTEMS_EVENT_ANY`: at least one of them.
pub const EVENT_ANY: u32 = 2;
/// `RTEMS_PENDING_EVENTS`: the `event_in` that returns the pending events.
pub const PENDING_EVENTS: u32 = 0;
/// `RTEMS_ALL_EVENTS`
pub const ALL_EVENTS: u32 = !0;
/// `RTEMS_EVENT_SYSTEM_NETWORK_SBWAIT`; this and the following are system events.
pub const EVENT_SYSTEM_NETWORK_SBWAIT: u32 = EVENT_24;
/// `RTEMS_EVENT_SYSTEM_NETWORK_SOSLEEP`
pub const EVENT_SYSTEM_NETWORK_SOSLEEP: u32 = EVENT_25;
/// `RTEMS_EVENT_SYSTEM_NETWORK_CLOSE`
pub const EVENT_SYSTEM_NETWORK_CLOSE: u32 = EVENT_26;
/// `RTEMS_EVENT_SYSTEM_SERVER_RESUME`
pub const EVENT_SYSTEM_SERVER_RESUME: u32 = EVENT_29;
/// `RTEMS_EVENT_SYSTEM_SERVER`
pub const EVENT_SYSTEM_SERVER: u32 = EVENT_30;
/// `RTEMS_EVENT_SYSTEM_TRANSIENT`
pub const EVENT_SYSTEM_TRANSIENT: u32 = EventSet::TRANSIENT.bits();

macro_rules! events {
    ($($name:ident = $number:expr),* $(,)?) => {$(
        #[doc = concat!("`RTEMS_", stringify!($name), "`")]
        pub const $name: u32 = 1 << $number;
    )*};
}

events! {
    EVENT_0 = 0, EVENT_1 = 1, EVENT_2 = 2, EVENT_3 = 3, EVENT_4 = 4, EVENT_5 = 5, EVENT_6 = 6,
    EVENT_7 = 7, EVENT_8 = 8, EVENT_9 = 9, EVENT_10 = 10, EVENT_11 = 11, EVENT_12 = 12,
    EVENT_13 = 13, EVENT_14 = 14, EVENT_15 = 15, EVENT_16 = 16, EVENT_17 = 17, EVENT_18 = 18,
    EVENT_19 = 19, EVENT_20 = 20, EVENT_21 = 21, EVENT_22 = 22, EVENT_23 = 23, EVENT_24 = 24,
    EVENT_25 = 25, EVENT_26 = 26, EVENT_27 = 27, EVENT_28 = 28, EVENT_29 = 29, EVENT_30 = 30,
    EVENT_31 = 31,
}

impl<'r> Classic<'r> {
    /// `rtems_event_send`: adds events to those pending for a task.
    ///
    /// Returns [`Status::InvalidId`] if there is no such task; there are no other errors. Signal handlers may call it,
    /// too, with any id but [`SELF`](super::SELF), and with [`SELF`](super::SELF) if the thread is a task already; see
    /// [`crate::event`].
    pub fn event_send(&self, id: Id, event_in: u32) -> Status {
        self.send_to(Events::new(self.region), id, event_in)
    }

    /// `rtems_event_system_send`: as [`Self::event_send`], for system events.
    pub fn event_system_send(&self, id: Id, event_in: u32) -> Status {
        self.send_to(Events::system(self.region), id, event_in)
    }

    /// `rtems_event_receive`: takes events of the calling task, or waits for them.
    ///
    /// `option_set` is one of [`WAIT`](super::WAIT) and [`NO_WAIT`] and one of [`EVENT_ALL`] and [`EVENT_ANY`]. Checks
    /// in this order:
    ///
    /// | if | then | `event_out` |
    /// | --- | --- | --- |
    /// | there is no `event_out` | [`Status::InvalidAddress`] | – |
    /// | `event_in` is [`PENDING_EVENTS`] | [`Status::Successful`]; nothing is taken | the pending events |
    /// | the wanted events are pending | [`Status::Successful`]; they are taken | the events taken |
    /// | [`NO_WAIT`] | [`Status::Unsatisfied`]; nothing is taken | the wanted events that are pending |
    /// | they come before the time-out | [`Status::Successful`]; they are taken | the events taken |
    /// | they do not | [`Status::Timeout`]; nothing is taken | unchanged |
    pub fn event_receive(
        &self,
        event_in: u32,
        option_set: u32,
        timeout: Interval,
        event_out: Option<&mut u32>,
    ) -> Status {
        let events = Events::new(self.region);
        self.receive_from(events, event_in, option_set, timeout, event_out)
    }

    /// `rtems_event_system_receive`: as [`Self::event_receive`], for system events.
    pub fn event_system_receive(
        &self,
        event_in: u32,
        option_set: u32,
        timeout: Interval,
        event_out: Option<&mut u32>,
    ) -> Status {
        let events = Events::system(self.region);
        self.receive_from(events, event_in, option_set, timeout, event_out)
    }

    fn send_to(&self, events: Events<'r>, id: Id, event_in: u32) -> Status {
        let task = self.task_number(id).ok().and_then(TaskId::from_raw);
        let event_in = EventSet::from_bits_retain(event_in);
        match task.map(|task| events.send(task, event_in)) {
            Some(Ok(())) => Status::Successful,
            _ => Status::InvalidId,
        }
    }

    fn receive_from(
        &self,
        events: Events<'r>,
        event_in: u32,
        option_set: u32,
        timeout: Interval,
        event_out: Option<&mut u32>,
    ) -> Status {
        directive(|| {
            let event_out = event_out.ok_or(Status::InvalidAddress)?;
            let condition = if option_set & EVENT_ANY != 0 {
                Condition::any(event_in)
            } else {
                Condition::all(event_in)
            };
            let received = if event_in == PENDING_EVENTS {
                events.pending().map_err(ReceiveError::from)
            } else if option_set & NO_WAIT != 0 {
                match events.try_receive(condition) {
                    Err(TryReceiveError::Unsatisfied { present }) => {
                        *event_out = present.bits();
                        return Err(Status::Unsatisfied);
                    }
                    Err(TryReceiveError::Attach(error)) => Err(error.into()),
                    Ok(received) => Ok(received),
                }
            } else {
                events.receive(condition, self.deadline(timeout))
            };
            match received {
                Ok(received) => *event_out = received.bits(),
                Err(ReceiveError::TimedOut) => return Err(Status::Timeout),
                Err(ReceiveError::Attach(error)) => return Err(not_attached(error)),
            }
            Ok(())
        })
    }
}
