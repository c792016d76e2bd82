//! Waiters of one process with one mutex, who are released without being woken all at once. The argument
//! stands in [the parent](super).
#![allow(unsafe_code)]

use super::Waited;
use crate::atomic::{AtomicU32, AtomicU64, Ordering, const_unless_loom, unless_fault};
use crate::mutex::{Arrival, By, Queue, Sleeps, end_of_nap, is_over};
use crate::sys::futex::{self, Sharing, Wait};
use crate::sys::futex_pi::{self, Pi};
use crate::time::Deadline;
use core::ptr;
use core::time::Duration;

const FLAG: Sharing = Sharing::Private;

/// The number of waiters stands in this many low bits of the state, the binding above.
const COUNT_BITS: u32 = 14;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// Where the kernel maps programs, unless it is asked for more.
const ADDRESS_BITS: u32 = 48;
/// So many are woken by a notification of all, and each wakes the next one. A wake-up takes some µs, in
/// which the mutex of short sections would be free: with two on their way it has less of that. Who finds
/// it held sleeps again, once. (In a model with few waiters, one.)
const HEADS: u32 = if cfg!(loom) { 1 } else { 2 };
/// So long a task sleeps that the kernel may refuse to send on, before it looks for itself.
const NAP: Duration = Duration::from_secs(10);
/// Beside the count in the ticket: whether all have been notified ever.
const SENT: u32 = 1;
const NEXT: u32 = 2;

/// How those who are released get to their mutex.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Each is woken by the one before it.
    Relay,
    /// They sleep for it, on its word.
    Word,
    /// They sleep for it, on its word, until the kernel has made them its owner.
    Owner,
}

/// A mutex, by the address of its lock or of the word that is slept on, and the way to it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Binding(u64);

impl Binding {
    /// `None`: an address that does not fit.
    fn new(lock: *const (), queue: Queue<'_>) -> Option<Self> {
        let (address, way) = match queue.0 {
            Sleeps::Elsewhere => (lock, Way::Relay),
            Sleeps::On(word) => (ptr::from_ref(word).cast(), Way::Word),
            Sleeps::Owning(word) => (ptr::from_ref(word).cast(), Way::Owner),
        };
        // A model follows the pointer; the kernel needs the number alone.
        let address = address.expose_provenance() as u64;
        (address >> ADDRESS_BITS == 0).then_some(Self(address << 2 | way as u64))
    }

    fn of(state: u64) -> Self {
        Self(state >> COUNT_BITS)
    }

    fn way(self) -> Way {
        match self.0 & 3 {
            0 => Way::Relay,
            1 => Way::Word,
            _ => Way::Owner,
        }
    }

    fn word(self) -> *const AtomicU32 {
        ptr::with_exposed_provenance((self.0 >> 2) as usize)
    }
}

#[repr(C)]
pub(super) struct Gathering {
    state: AtomicU64,
    ticket: AtomicU32,
    relay: AtomicU32,
}

impl Gathering {
    const_unless_loom! {
        pub(super) fn new() -> Self {
            Self { state: AtomicU64::new(0), ticket: AtomicU32::new(0), relay: AtomicU32::new(0) }
        }
    }

    pub(super) fn waiters(&self) -> u32 {
        // Relaxed: ordered by the mutex, see the parent.
        (self.state.load(Ordering::Relaxed) & COUNT) as u32
    }

    /// Counts the caller in, unless others wait with another mutex. Under the mutex.
    pub(super) fn enter<'a>(&'a self, lock: *const (), queue: Queue<'a>) -> Option<Seat<'a>> {
        let mine = Binding::new(lock, queue)?;
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let count = state & COUNT;
            let is_taken = unless_fault!(CondvarMixesMutexes, Binding::of(state) != mine, false);
            if count == COUNT || count != 0 && is_taken {
                return None;
            }
            let next = mine.0 << COUNT_BITS | (count + 1);
            // Acquire: pairs with the Release of those who have left: they are in no queue any more.
            match self
                .state
                .compare_exchange(state, next, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        if Binding::of(state) != mine {
            // A notifier that has the former binding in hand does not find this waiter.
            // Release: pairs with the Acquire in `notify`, which shows it the new one.
            self.ticket.fetch_add(
                unless_fault!(CondvarBindsUnseen, NEXT, 0),
                Ordering::Release,
            );
        }
        Some(Seat {
            gathering: self,
            queue,
            // Relaxed: the kernel compares it.
            ticket: self.ticket.load(Ordering::Relaxed),
        })
    }

    /// Releases one waiter, or all.
    #[cold]
    pub(super) fn notify(&self, all: bool) {
        let step = unless_fault!(CondvarTicketStays, NEXT, 0);
        let sent = unless_fault!(CondvarTicketStays, u32::from(all) * SENT, 0);
        let next = |ticket: u32| ticket.wrapping_add(step) | sent;
        // Acquire: pairs with the Release in `enter`. A binding that is younger than the one that is read
        // below has moved the ticket since.
        let moved = self
            .ticket
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |ticket| {
                Some(next(ticket))
            });
        let (Ok(before) | Err(before)) = moved;
        let mut ticket = next(before);
        while !self.release(ticket, all) {
            // Somebody else has notified, or a waiter has come with another mutex: both are progress.
            ticket = self.ticket.load(Ordering::Acquire);
        }
    }

    /// Releases one waiter, or all; false if the ticket has moved on.
    fn release(&self, ticket: u32, all: bool) -> bool {
        // Relaxed: after the ticket, see `notify`.
        let state = self.state.load(Ordering::Relaxed);
        let binding = Binding::of(state);
        if state & COUNT == 0 {
            return true;
        }
        match binding.way() {
            Way::Owner => self.send_to_own(ticket, binding.word(), all),
            _ if !all => {
                futex::wake(&raw const self.ticket, 1, FLAG);
                true
            }
            Way::Word => {
                futex::wake_and_send_on(&self.ticket, ticket, HEADS, binding.word(), FLAG).is_some()
            }
            Way::Relay => self.send_to_relay(ticket),
        }
    }

    fn send_to_own(&self, ticket: u32, word: *const AtomicU32, all: bool) -> bool {
        let others = if all { u32::MAX } else { 0 };
        // SAFETY: while the ticket is this one, all who sleep are bound to this word.
        let sent = unsafe { futex_pi::cmp_requeue_pi(&self.ticket, ticket, word, others, FLAG) };
        // Another error is for one of them, and the kernel stops there: that one and those behind it look
        // at the ticket when their nap ends.
        sent != Err(Pi::Again)
    }

    fn send_to_relay(&self, ticket: u32) -> bool {
        let Some(sent) =
            futex::wake_and_send_on(&self.ticket, ticket, 0, &raw const self.relay, FLAG)
        else {
            return false;
        };
        // Counted while they sleep there: who goes on by mistake wakes one of them, which goes on, too.
        // Relaxed: the kernel's locks order it before what they do when they are woken.
        unless_fault!(
            CondvarRelayCountsLate,
            {
                self.relay.fetch_add(sent as u32, Ordering::Relaxed);
                (0..HEADS).for_each(|_| self.pass_on());
            },
            {
                futex::wake(&raw const self.relay, 1, FLAG);
                self.relay
                    .fetch_add((sent as u32).saturating_sub(1), Ordering::Relaxed);
            }
        );
        true
    }

    /// Wakes the next on the relay.
    fn pass_on(&self) {
        // Relaxed: as where it is counted.
        while self
            .relay
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .is_ok()
        {
            // One that gave up is counted still.
            if futex::wake(&raw const self.relay, 1, FLAG) > 0 {
                return;
            }
        }
    }
}

/// A waiter that is counted, until this is dropped.
pub(super) struct Seat<'a> {
    gathering: &'a Gathering,
    queue: Queue<'a>,
    ticket: u32,
}

impl<'a> Seat<'a> {
    /// Sleeps until it is released; how it ended, how to take the mutex, and what to drop when it was
    /// taken, or refused.
    pub(super) fn sleep(self, deadline: Option<Deadline>) -> (Waited, Arrival, Turn<'a>) {
        let gathering = self.gathering;
        let compared = unless_fault!(
            CondvarTicketReadLate,
            self.ticket,
            gathering.ticket.load(Ordering::Relaxed)
        );
        let (timed_out, by) = match self.queue.0 {
            Sleeps::Owning(word) => self.sleep_to_own(word, deadline),
            slept => {
                let ended = futex::wait(&gathering.ticket, compared, FLAG, deadline);
                // Relaxed: who sends a waiter on has set it before, and the kernel's locks order that.
                let sent = gathering.ticket.load(Ordering::Relaxed) & SENT != 0;
                let may_share = sent && matches!(slept, Sleeps::On(_));
                let by = if may_share { By::Sent } else { By::Itself };
                (ended == Wait::TimedOut, by)
            }
        };
        let on_relay = matches!(self.queue.0, Sleeps::Elsewhere);
        let turn = Turn(on_relay.then_some(gathering));
        (Waited::unless(timed_out), Arrival(by), turn)
    }

    fn sleep_to_own(&self, word: &AtomicU32, deadline: Option<Deadline>) -> (bool, By) {
        let ticket = &self.gathering.ticket;
        loop {
            let nap = end_of_nap(NAP, deadline);
            match futex_pi::wait_requeue_pi(ticket, self.ticket, word, FLAG, nap) {
                Pi::Done => return (false, By::Kernel),
                Pi::TimedOut => {}
                // Taking the mutex tells what is wrong, if anything is.
                _ => return (false, By::Itself),
            }
            // Relaxed: the kernel has looked at it before it sent this task on.
            let is_notified = ticket.load(Ordering::Relaxed) != self.ticket;
            if is_notified || is_over(deadline) {
                let timed_out = unless_fault!(CondvarTimesOutNotified, !is_notified, true);
                return (timed_out, By::Itself);
            }
        }
    }
}

/// The sleep by itself, for a caller that makes the call to the kernel in another way: see
/// [`steps`](super::steps).
#[cfg(all(feature = "foreign", not(loom)))]
impl<'a> Seat<'a> {
    pub(super) fn call(&self, deadline: Option<Deadline>) -> super::steps::Call {
        let (operation, target, deadline) = match self.queue.0 {
            Sleeps::Owning(word) => (
                libc::FUTEX_WAIT_REQUEUE_PI,
                ptr::from_ref(word),
                end_of_nap(NAP, deadline),
            ),
            _ => (libc::FUTEX_WAIT_BITSET, ptr::null(), deadline),
        };
        super::steps::Call {
            word: &raw const self.gathering.ticket,
            operation: operation | libc::FUTEX_PRIVATE_FLAG,
            expected: self.ticket,
            target,
            deadline,
        }
    }

    /// Whether a sleep that ended with this error, or 0, is to be slept on.
    pub(super) fn goes_on(&self, error: i32, deadline: Option<Deadline>) -> bool {
        matches!(self.queue.0, Sleeps::Owning(_))
            && error == libc::ETIMEDOUT
            && !self.is_notified()
            && !is_over(deadline)
    }

    pub(super) fn is_notified(&self) -> bool {
        // Relaxed: as in `sleep_to_own`.
        self.gathering.ticket.load(Ordering::Relaxed) != self.ticket
    }

    /// As [`Self::sleep`], after the sleep. `owned`: the kernel has made this task the mutex's owner.
    pub(super) fn rise(self, owned: bool) -> (Arrival, Turn<'a>) {
        let gathering = self.gathering;
        // Relaxed: as in `sleep`.
        let sent = gathering.ticket.load(Ordering::Relaxed) & SENT != 0;
        let by = match self.queue.0 {
            Sleeps::Owning(_) if owned => By::Kernel,
            Sleeps::On(_) if sent => By::Sent,
            _ => By::Itself,
        };
        let on_relay = matches!(self.queue.0, Sleeps::Elsewhere);
        (Arrival(by), Turn(on_relay.then_some(gathering)))
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `enter`.
        self.gathering.state.fetch_sub(1, Ordering::Release);
    }
}

/// Of one that was woken: when this is dropped, those who were released with it come next.
pub(super) struct Turn<'a>(Option<&'a Gathering>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Relaxed: see `send_to_relay`.
        if let Some(gathering) = self.0
            && unless_fault!(
                CondvarRelayStops,
                gathering.relay.load(Ordering::Relaxed),
                0
            ) != 0
        {
            gathering.pass_on();
        }
    }
}
