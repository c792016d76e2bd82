//! The gathering: waiters of one process with the same mutex, which are released without waking all of them at
//! once. The argument is in [the parent](super).
#![allow(unsafe_code)]

use super::Waited;
use crate::atomic::{AtomicU32, AtomicU64, Ordering, const_unless_loom, unless_fault};
use crate::mutex::{Relock, RelockAs, SleepPlace, SleepWord, end_of_nap, is_over};
use crate::sys::futex::{self, Sharing, Wait};
use crate::sys::futex_pi::{self, Pi};
use crate::time::Deadline;
use core::ptr;
use core::time::Duration;

const FLAG: Sharing = Sharing::Private;

/// The low bits of the state that hold the number of waiters; the binding lies above.
const COUNT_BITS: u32 = 14;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// User addresses have at most so many bits, unless a program asks the kernel for more.
const ADDRESS_BITS: u32 = 48;
/// `notify_all` wakes so many waiters, and each of them wakes the next one. A wake-up takes some µs, in which
/// the mutex of a short critical section would be free; two waiters under way shorten that. A waiter that finds
/// the mutex held sleeps again, once. (In a model, which has few waiters: one.)
const WOKEN_AT_ONCE: u32 = if cfg!(loom) { 1 } else { 2 };
/// The longest sleep of a task whose requeue the kernel may refuse; then the task checks the ticket itself.
const NAP: Duration = Duration::from_secs(10);
/// Bit of the ticket, beside the count: there has been a `notify_all`.
const REQUEUED: u32 = 1;
const NEXT: u32 = 2;

/// How released waiters get to their mutex.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Each is woken by the waiter before it.
    Relay,
    /// They sleep for the mutex, on its word.
    Word,
    /// They sleep on the mutex's word until the kernel has made them its owner.
    Owner,
}

/// A mutex, by the address of its lock or of the word that its waiters sleep on, and how waiters get to it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Binding(u64);

impl Binding {
    /// `None`: the address does not fit.
    fn new(lock: *const (), queue: SleepPlace<'_>) -> Option<Self> {
        let (address, way) = match queue.0 {
            SleepWord::None => (lock, Way::Relay),
            SleepWord::Plain(word) => (ptr::from_ref(word).cast(), Way::Word),
            SleepWord::Pi(word) => (ptr::from_ref(word).cast(), Way::Owner),
        };
        // A model follows the pointer; the kernel needs only the number.
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
        // Relaxed: the mutex orders it; see the parent.
        (self.state.load(Ordering::Relaxed) & COUNT) as u32
    }

    /// Counts the caller in, unless others wait with another mutex. The caller holds the mutex.
    pub(super) fn enter<'a>(
        &'a self,
        lock: *const (),
        queue: SleepPlace<'a>,
    ) -> Option<GatheringWaiter<'a>> {
        let mine = Binding::new(lock, queue)?;
        let entered = |state: u64| {
            let count = state & COUNT;
            let is_taken = unless_fault!(CondvarMixesMutexes, Binding::of(state) != mine, false);
            let is_refused = count == COUNT || count != 0 && is_taken;
            (!is_refused).then_some(mine.0 << COUNT_BITS | (count + 1))
        };
        // Acquire: pairs with the Release of waiters that have left: they are in no queue any more.
        let entered = self
            .state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, entered);
        let state = entered.ok()?;
        if Binding::of(state) != mine {
            // A notifier that still uses the former binding must not find this waiter. Release: pairs with the
            // Acquire in `notify`, so that the notifier reads the new binding.
            self.ticket.fetch_add(
                unless_fault!(CondvarBindsUnseen, NEXT, 0),
                Ordering::Release,
            );
        }
        Some(GatheringWaiter {
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
        let sent = unless_fault!(CondvarTicketStays, u32::from(all) * REQUEUED, 0);
        let next = |ticket: u32| ticket.wrapping_add(step) | sent;
        // Acquire: pairs with the Release in `enter`. A binding set after the one that `release` reads below
        // has advanced the ticket since.
        let moved = self
            .ticket
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |ticket| {
                Some(next(ticket))
            });
        let (Ok(before) | Err(before)) = moved;
        let mut ticket = next(before);
        while !self.release(ticket, all) {
            // Another task has notified, or a waiter has come with another mutex: both are progress.
            ticket = self.ticket.load(Ordering::Acquire);
        }
    }

    /// Releases one waiter, or all; returns false if the ticket has moved.
    fn release(&self, ticket: u32, all: bool) -> bool {
        // Relaxed: ordered after the ticket's load, which is an Acquire (see `notify`).
        let state = self.state.load(Ordering::Relaxed);
        let binding = Binding::of(state);
        if state & COUNT == 0 {
            return true;
        }
        match binding.way() {
            Way::Owner => self.requeue_to_owned(ticket, binding.word(), all),
            _ if !all => {
                futex::wake(&raw const self.ticket, 1, FLAG);
                true
            }
            Way::Word => {
                futex::wake_and_requeue(&self.ticket, ticket, WOKEN_AT_ONCE, binding.word(), FLAG)
                    .is_some()
            }
            Way::Relay => self.requeue_to_relay(ticket),
        }
    }

    fn requeue_to_owned(&self, ticket: u32, word: *const AtomicU32, all: bool) -> bool {
        let others = if all { u32::MAX } else { 0 };
        // SAFETY: while the ticket has this value, all sleepers are bound to this word.
        let sent = unsafe { futex_pi::cmp_requeue_pi(&self.ticket, ticket, word, others, FLAG) };
        // Any other error concerns one waiter, and the kernel stops there: that waiter and those behind it
        // check the ticket when their sleep of `NAP` ends.
        sent != Err(Pi::Again)
    }

    fn requeue_to_relay(&self, ticket: u32) -> bool {
        let Some(sent) =
            futex::wake_and_requeue(&self.ticket, ticket, 0, &raw const self.relay, FLAG)
        else {
            return false;
        };
        // Counted while they sleep on the relay: a waiter that wakes up without a wake-up of ours passes one
        // on, so one more is awake, which is harmless. Relaxed: the kernel's locks order it before what the
        // sleepers do once woken.
        unless_fault!(
            CondvarRelayCountsLate,
            {
                self.relay.fetch_add(sent as u32, Ordering::Relaxed);
                (0..WOKEN_AT_ONCE).for_each(|_| self.pass_on());
            },
            {
                futex::wake(&raw const self.relay, 1, FLAG);
                self.relay
                    .fetch_add((sent as u32).saturating_sub(1), Ordering::Relaxed);
            }
        );
        true
    }

    /// Wakes the next sleeper on the relay.
    fn pass_on(&self) {
        // Relaxed: the kernel's locks order it, as in `requeue_to_relay`.
        while self
            .relay
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .is_ok()
        {
            // A wake-up without effect was for a waiter that gave up and is still counted.
            if futex::wake(&raw const self.relay, 1, FLAG) > 0 {
                return;
            }
        }
    }
}

/// A counted waiter, until this is dropped.
pub(super) struct GatheringWaiter<'a> {
    gathering: &'a Gathering,
    queue: SleepPlace<'a>,
    ticket: u32,
}

impl<'a> GatheringWaiter<'a> {
    /// Sleeps until released. The `Turn` is to be dropped once the mutex is acquired or refused.
    pub(super) fn sleep(self, deadline: Option<Deadline>) -> (Waited, Relock, Turn<'a>) {
        let ticket = &self.gathering.ticket;
        let compared = unless_fault!(
            CondvarTicketReadLate,
            self.ticket,
            ticket.load(Ordering::Relaxed)
        );
        let (timed_out, owned) = match self.queue.0 {
            SleepWord::Pi(word) => self.sleep_to_own(word, deadline),
            _ => (
                futex::wait(ticket, compared, FLAG, deadline) == Wait::TimedOut,
                false,
            ),
        };
        let (by, turn) = self.end_sleep(owned);
        (Waited::unless(timed_out), by, turn)
    }

    /// What [`Self::sleep`] does after the system call. `owned`: the kernel has made this task the mutex's owner.
    pub(super) fn end_sleep(self, owned: bool) -> (Relock, Turn<'a>) {
        let gathering = self.gathering;
        // Relaxed: the notifier set it before it requeued this waiter, and the kernel's locks order that.
        let is_sent = || gathering.ticket.load(Ordering::Relaxed) & REQUEUED != 0;
        let by = match self.queue.0 {
            SleepWord::Pi(_) if owned => RelockAs::Owner,
            SleepWord::Plain(_) if is_sent() => RelockAs::Requeued,
            _ => RelockAs::Newcomer,
        };
        let on_relay = matches!(self.queue.0, SleepWord::None);
        (Relock(by), Turn(on_relay.then_some(gathering)))
    }

    pub(super) fn is_notified(&self) -> bool {
        // Relaxed: the kernel read the ticket before it requeued this task.
        self.gathering.ticket.load(Ordering::Relaxed) != self.ticket
    }

    /// Returns whether the deadline has passed, and whether the kernel has made this task the mutex's owner.
    fn sleep_to_own(&self, word: &AtomicU32, deadline: Option<Deadline>) -> (bool, bool) {
        loop {
            let nap = end_of_nap(NAP, deadline);
            match futex_pi::wait_requeue_pi(&self.gathering.ticket, self.ticket, word, FLAG, nap) {
                Pi::Done => return (false, true),
                Pi::TimedOut => {}
                // Acquiring the mutex reports what is wrong, if anything is.
                _ => return (false, false),
            }
            let is_notified = self.is_notified();
            if is_notified || is_over(deadline) {
                let timed_out = unless_fault!(CondvarTimesOutNotified, !is_notified, true);
                return (timed_out, false);
            }
        }
    }
}

/// The sleep in steps, for a caller that makes the system call itself: see [`steps`](super::steps).
#[cfg(all(feature = "foreign", not(loom)))]
impl<'a> GatheringWaiter<'a> {
    pub(super) fn call(&self, deadline: Option<Deadline>) -> super::crowd::Call {
        let (operation, target, deadline) = match self.queue.0 {
            SleepWord::Pi(word) => (
                libc::FUTEX_WAIT_REQUEUE_PI,
                ptr::from_ref(word),
                end_of_nap(NAP, deadline),
            ),
            _ => (libc::FUTEX_WAIT_BITSET, ptr::null(), deadline),
        };
        super::crowd::Call {
            word: &raw const self.gathering.ticket,
            operation: operation | libc::FUTEX_PRIVATE_FLAG,
            expected: self.ticket,
            target,
            deadline,
        }
    }

    /// Whether the caller has to sleep again after this error, or 0.
    pub(super) fn must_sleep_again(&self, error: i32, deadline: Option<Deadline>) -> bool {
        matches!(self.queue.0, SleepWord::Pi(_))
            && error == libc::ETIMEDOUT
            && !self.is_notified()
            && !is_over(deadline)
    }
}

impl Drop for GatheringWaiter<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `enter`.
        self.gathering.state.fetch_sub(1, Ordering::Release);
    }
}

/// The turn of a waiter that was woken from the relay: dropping it wakes the next one.
pub(super) struct Turn<'a>(Option<&'a Gathering>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Relaxed: see `requeue_to_relay`.
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
