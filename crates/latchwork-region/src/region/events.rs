//! A task's events: the pending events, the condition that the task waits for, and the events that it was given.
//!
//! A set has 32 events, each pending or not: an event that is sent again while it is pending is received once. The
//! semantics are those of RTEMS's event manager. Any task sends; only the task that owns the set receives. A send
//! that satisfies the task takes the wanted events at that moment, whenever the task runs: later events stay pending,
//! even the same ones.
//!
//! The set is one value of 128 bits, which changes by compare-and-swap (`atomic/pair.rs`).
//!
//! | part | bits | meaning | changed by |
//! | --- | --- | --- | --- |
//! | `generation` | 30 | that of the task that owns the set | the task, when it begins |
//! | `all`, `wanted` | 33 | the condition that the task waits for; `wanted` is 0 if it does not wait | the task |
//! | `sleeps` | 1 | the task sleeps, or is about to | the task |
//! | `pending` | 32 | the pending events | + senders, − the task, − the sender that satisfies it |
//! | `given` | 32 | the events with which a send has satisfied the task; the task sleeps on this part | + that sender, − the task |
//!
//! | `wanted` | `given` | who acts next |
//! | --- | --- | --- |
//! | 0 | 0 | no task: a send adds to the pending events |
//! | a condition | 0 | a sender: the pending events do not meet the condition |
//! | a condition | not 0 | the task, which takes the given events. A send adds to the pending events |
//!
//! Invariants
//! 1. All changes but the task's first are by compare-and-swap, and a sender's succeeds only on the generation and
//!    the condition that it has read. An event never reaches a successor in the slot (within 2³⁰ successors), and is
//!    sent completely or not at all, wherever the sender is killed.
//! 2. While a condition is published and nothing is given, the pending events do not meet it: the task publishes it
//!    in the same step that finds this, and the send that would meet it gives the events instead.
//! 3. The given events meet the condition, and one send gave all of them; nothing is added to them.
//! 4. Only the task removes events from the set: exactly those that a receive returns.
//! 5. The task sleeps only while `sleeps` is set and nothing is given.
//!
//! *No wake-up is lost.* The task sleeps on `given`, which the kernel compares with 0. The one send that gives makes
//! it nonzero, and wakes the task if `sleeps` was set in the state that it replaced. If `sleeps` was not set, the
//! task's own step that would set it fails, and the task reads the given events. If a sender that is a task of the
//! region is killed between its send and the wake, the sleeper still wakes: its sleep ends after a death (`park.rs`).
//!
//! *A deadline* that passes, or another end of the sleep: the task withdraws its condition by a compare-and-swap,
//! which returns the events that were given before it. So a receive either times out or has its events, never both.
//!
//! *Torn loads:* the two words are loaded one after the other. A compare-and-swap that expects a mixture of two
//! states fails. The one decision that the task makes without a compare-and-swap, that a condition is not met,
//! depends only on the second word: only the task changes the first one.
//!
//! *Orderings:* a send is a Release, a receive an Acquire: the receiver sees the sender's earlier stores. One send
//! does not hide the stores that another one published, since all are read-modify-writes.
//!
//! *Progress:* a send is lock-free: its compare-and-swap fails only if another step has succeeded. A sender neither
//! waits nor allocates, and uses no thread-local data.
//!
//! *Signals, death, fork:* the task waits again after EINTR. A signal handler may send, also to the task that it
//! interrupts (which sees the given events before it sleeps, or when the sleep is interrupted). A handler may receive
//! pending events without waiting; it must not wait, since that would replace the condition. If a receive was given
//! events and never returned (a handler jumped out of it), the next receive finds them pending again. A sender
//! detects the task's death by the generation and the life-word. The child of a fork is another task.
//!
//! *Cost:* one compare-and-swap each for a send and for a receive that finds its events; a receive that waits takes
//! two, and one more if it sleeps. The whole set lies on one cache line.
//!
//! *Checked by:* `tests/loom_event.rs` (one task, one and two senders, any and all, deadlines, spurious wake-ups, a
//! stale sender, repeated events), each with a negative twin; owner deaths by `tests/kill_event.rs`.

use crate::atomic::{AtomicPair, AtomicU8, AtomicU64, Ordering, unless_fault};
use crate::backoff::ExponentialBackoff;
use crate::sys::futex::{self, Sharing};

/// The condition that a task waits for; by default none.
#[derive(Clone, Copy, Default)]
pub struct Condition {
    pub events: u32,
    all: bool,
}

impl Condition {
    /// At least one of `events`.
    pub fn any(events: u32) -> Self {
        Self { events, all: false }
    }

    /// All of `events`.
    pub fn all(events: u32) -> Self {
        Self { events, all: true }
    }

    fn is_met_by(self, pending: u32) -> bool {
        let present = pending & self.events;
        if self.all {
            present == self.events
        } else {
            present != 0
        }
    }
}

/// The contents of a set at one moment.
#[derive(Clone, Copy, Default)]
struct State {
    generation: u32,
    sleeps: bool,
    condition: Condition,
    pending: u32,
    given: u32,
}

const ALL: u64 = 1;
const SLEEPS: u64 = 2;
/// The shift of the generation, and its mask.
const FLAGS: u32 = 2;
const GENERATION: u32 = u32::MAX >> FLAGS;

impl State {
    fn empty(generation: u32) -> Self {
        Self {
            generation: generation & GENERATION,
            ..Self::default()
        }
    }

    #[inline]
    fn unpack([first, second]: [u64; 2]) -> Self {
        Self {
            generation: first as u32 >> FLAGS,
            sleeps: first & SLEEPS != 0,
            condition: Condition {
                events: (first >> 32) as u32,
                all: first & ALL != 0,
            },
            pending: pending(second),
            given: given(second),
        }
    }

    #[inline]
    fn pack(self) -> [u64; 2] {
        let all = if self.condition.all { ALL } else { 0 };
        let sleeps = if self.sleeps { SLEEPS } else { 0 };
        let tag = u64::from(self.generation << FLAGS) | all | sleeps;
        [
            u64::from(self.condition.events) << 32 | tag,
            u64::from(self.given) << 32 | u64::from(self.pending),
        ]
    }

    /// The state after these events were sent.
    #[inline]
    fn with(self, events: u32) -> Self {
        let pending = self.pending | events;
        let met_by = unless_fault!(EventsDoNotAddUp, pending, events);
        let is_met = self.given == 0 && self.condition.is_met_by(met_by);
        let gives = unless_fault!(EventsMerge, is_met, is_met || self.given != 0);
        if self.condition.events == 0 || !gives {
            return Self { pending, ..self };
        }
        let taken = pending & self.condition.events;
        Self {
            pending: pending & !taken,
            given: self.given | taken,
            ..self
        }
    }

    /// The state without its condition and its given events.
    fn ended(self) -> Self {
        Self {
            generation: self.generation,
            pending: self.pending,
            ..Self::default()
        }
    }
}

/// The pending events, from the second word.
fn pending(second: u64) -> u32 {
    second as u32
}

/// The given events, from the second word.
fn given(second: u64) -> u32 {
    (second >> 32) as u32
}

/// One set of events of one task.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub struct Set {
    words: AtomicPair,
}

/// A wake-up that the sender must carry out.
#[must_use]
pub struct Wake<'a>(pub(crate) Option<&'a AtomicU64>);

impl Wake<'_> {
    /// Makes the system call, if one is needed. Preserves `errno`.
    #[inline]
    pub fn carry_out(self) {
        if let Some(word) = self.0 {
            futex::wake_high(word, 1, u32::MAX, Sharing::Shared);
        }
    }
}

impl Set {
    /// Empties the set for a new task, before its first use.
    pub fn begin(&self, generation: u32) {
        // A sender to this task got its generation from the task, and so comes later. The generation is stored first:
        // a sender to the previous task finds it changed, or its events are overwritten.
        crate::atomic::unless_disabled!(
            EventsBeginEmpty,
            self.words.store(State::empty(generation).pack()),
            ()
        );
    }

    #[inline]
    fn load(&self) -> State {
        State::unpack(self.words.load())
    }

    /// Replaces a state; `false` if it has changed.
    #[inline]
    fn change(&self, from: State, to: State, order: Ordering) -> bool {
        self.words.compare_exchange(from.pack(), to.pack(), order)
    }

    /// The same for the owning task, which receives.
    #[inline]
    fn take_step(&self, from: State, to: State) -> bool {
        #[cfg(loom)]
        if unless_fault!(EventsClearedByStore, false, true) {
            self.words.store_blindly(to.pack());
            return true;
        }
        // Acquire: pairs with the Release in `send`.
        self.change(from, to, Ordering::Acquire)
    }

    /// Adds events to those of the task of this generation; `None` if that task is gone.
    #[inline]
    pub fn send(&self, to: u32, events: u32) -> Option<Wake<'_>> {
        loop {
            // The generation was set before the sender got it.
            let before = self.load();
            if unless_fault!(EventIgnoresGeneration, before.generation, to & GENERATION)
                != to & GENERATION
            {
                return None;
            }
            let after = before.with(events);
            // Release: pairs with the Acquire in `take_step` and `pending`.
            let release = unless_fault!(EventSendRelaxed, Ordering::Release, Ordering::Relaxed);
            if self.change(before, after, release) {
                let due = before.sleeps && before.given == 0 && after.given != 0;
                return Some(Wake(due.then(|| self.words.sleep_word())));
            }
        }
    }

    /// The pending events. For the owning task.
    pub fn pending(&self) -> u32 {
        // Acquire: pairs with the Release in `send`.
        pending(self.words.load_second(Ordering::Acquire))
    }

    /// Takes the wanted events if they meet the condition; otherwise returns those of them that are pending. For the
    /// owning task.
    #[inline]
    pub fn take(&self, condition: Condition) -> Result<u32, u32> {
        loop {
            let now = self.load();
            let present = now.pending & condition.events;
            if !condition.is_met_by(present) {
                return Err(present);
            }
            let pending = now.pending & !present;
            if self.take_step(now, State { pending, ..now }) {
                return Ok(present);
            }
        }
    }

    /// Takes the wanted events as soon as they meet the condition. `sleep` sleeps while the high half of the word has
    /// the given value, or returns an error to end the wait. `turns`: see [`ExponentialBackoff::poll`]. For the owning task.
    #[inline]
    pub fn receive<E>(
        &self,
        condition: Condition,
        turns: Option<&AtomicU8>,
        sleep: impl FnMut(&AtomicU64, u64) -> Result<(), E>,
    ) -> Result<u32, E> {
        loop {
            let now = self.load();
            let all_there = now.pending | now.given;
            let present = all_there & condition.events;
            if condition.is_met_by(present) {
                let pending = all_there & !present;
                let ended = now.ended();
                if self.take_step(now, State { pending, ..ended }) {
                    return Ok(present);
                }
                continue;
            }
            let waiting = State {
                condition,
                pending: all_there,
                ..now.ended()
            };
            if self.take_step(now, waiting) {
                return self.receive_given(turns, sleep);
            }
        }
    }

    /// The events that the task waits for, whether for all of them, and which of them are pending; `None` if it does
    /// not wait. For inspection of a copy.
    pub(crate) fn wanted(&self) -> Option<(u32, bool, u32)> {
        let now = self.load();
        let Condition { events, all } = now.condition;
        let waits = events != 0 && now.given == 0;
        waits.then_some((events, all, now.pending & events))
    }

    /// Waits until a send has met the published condition.
    fn receive_given<E>(
        &self,
        turns: Option<&AtomicU8>,
        mut sleep: impl FnMut(&AtomicU64, u64) -> Result<(), E>,
    ) -> Result<u32, E> {
        // Relaxed: `end_wait` reads the state again.
        let has_some = || given(self.words.load_second(Ordering::Relaxed)) != 0;
        ExponentialBackoff::None.poll(0, turns, has_some);
        let mut known = self.load();
        while known.given == 0 {
            let asleep = State {
                sleeps: true,
                ..known
            };
            if unless_fault!(EventSleepsUntold, !known.sleeps, false)
                && !self.change(known, asleep, Ordering::Relaxed)
            {
                known = self.load();
                continue;
            }
            let seen = unless_fault!(EventSleepsOnUnseen, asleep, self.load());
            let value = AtomicPair::asleep_value(seen.pack());
            if let Err(error) = sleep(self.words.sleep_word(), value) {
                // Events that came in time take precedence over the error.
                let given = self.end_wait();
                return if given == 0 { Err(error) } else { Ok(given) };
            }
            known = self.load();
        }
        Ok(self.end_wait())
    }

    /// Withdraws the condition, and takes the events that met it, if any.
    fn end_wait(&self) -> u32 {
        loop {
            let now = self.load();
            if self.take_step(now, now.ended()) {
                return now.given;
            }
        }
    }
}

/// Both sets of a task, on a cache line of their own.
#[repr(C, align(64))]
pub struct EventSets {
    /// The application's events.
    pub user: Set,
    /// System events, of the layers below the application.
    pub system: Set,
}
