//! A task's events: what is pending, what the task waits for, and what it was given.
//!
//! A set of 32 events, each pending or not: what is sent again while it is pending is received once.
//! Source of the semantics: RTEMS's event manager. Anybody sends; only the task whose set it is
//! receives. A send that satisfies the task takes the wanted events at that moment, whenever the task
//! runs: what is sent later stays pending, the same events too.
//!
//! The set is one value of 128 bits, which changes by compare-and-swap (`atomic/pair.rs`).
//!
//! | part | bits | meaning | changed by |
//! | --- | --- | --- | --- |
//! | `generation` | 30 | of the task whose set it is | the task, as it comes |
//! | `all`, `wanted` | 33 | the condition on which the task waits; `wanted` is 0 if it does not | the task |
//! | `sleeps` | 1 | the task sleeps, or is about to | the task |
//! | `pending` | 32 | the events that are pending | + senders, − the task, − the sender that satisfies it |
//! | `given` | 32 | what a send has satisfied the task with; what the task sleeps on | + that sender, − the task |
//!
//! | `wanted` | `given` | who acts next |
//! | --- | --- | --- |
//! | 0 | 0 | nobody: a send adds to what is pending |
//! | a condition | 0 | a sender: what is pending does not meet the condition |
//! | a condition | not 0 | the task, which takes what it was given. A send adds to what is pending |
//!
//! Invariants
//! 1. All changes but the task's first are by compare-and-swap, and a sender's succeeds only on the
//!    generation and the condition that it has seen. An event never reaches a successor in the slot (until 2³⁰
//!    have had it), and is sent completely or not at all, wherever the sender is killed.
//! 2. While a condition is published and nothing is given, what is pending does not meet it: the task
//!    publishes it in the step that finds that, and the send that would meet it gives instead.
//! 3. What is given meets the condition, and one send gave it; nothing is added to it.
//! 4. Events leave the set by the task's hand only: all and only those that a receive returns.
//! 5. The task sleeps only while `sleeps` is set and nothing is given.
//!
//! *No wake-up is lost.* The task sleeps on `given`, which the kernel compares with 0. The one send that gives
//! makes it something else, and wakes the task if `sleeps` was set in the same step. If it was not, the task's
//! own step that would set it fails, and it finds what it was given. A sender that is killed between its
//! send and the wake is covered if it is a task of the region: who sleeps there watches all life-words (`park.rs`).
//!
//! *A deadline* that passes, or another end of the sleep: the task withdraws its condition by a
//! compare-and-swap, which returns what it was given by then. So a receive times out, or has its events, never both.
//!
//! *Torn loads:* the two words are loaded one after the other. A compare-and-swap that expects a mixture of two
//! states fails. What the task decides without one, that a condition is not met, it decides by the second
//! word alone: the first one is its own.
//!
//! *Orderings:* a send is a Release, a receive an Acquire: what the sender wrote before, the receiver
//! sees. What one send published is not hidden by another, for all are read-modify-writes.
//!
//! *Progress:* a send is lock-free: its compare-and-swap fails only if another step has succeeded. No
//! sender waits, allocates, or uses anything of its thread's.
//!
//! *Hostile events:* EINTR re-waits. A signal handler may send, also to the task that it interrupts
//! (which finds itself given something before it sleeps, or as the sleep is interrupted), and may receive
//! without waiting, of what is pending; it must not wait, for that would replace the condition. What a
//! receive was given that never returned (a handler has jumped out of it) is pending again for the next one. The
//! task's death is found by its generation and life-word. The child of a fork is another task.
//!
//! *Cost:* one compare-and-swap each for a send and for a receive that finds its events; a receive that
//! waits takes two, and one more if it sleeps. All lies on one cache line.
//!
//! *Checked by:* `tests/loom_event.rs` (one task, one and two senders, any and all, deadlines, spurious
//! wake-ups, a stale sender, repeated events), each with a negative twin; deaths by `tests/kill_event.rs`.

use crate::atomic::{AtomicPair, AtomicU64, Ordering, spin_hint, unless_fault};
use crate::sys::futex::{self, Sharing};

/// Polls before a sleep, as in `queue/attempt.rs`: about as long as a sleep and wake-up takes. Senders
/// make no system call meanwhile.
const SPINS: u32 = 300;
const POLLS: bool = !cfg!(loom);

/// What a task waits for.
#[derive(Clone, Copy)]
pub(crate) struct Condition {
    events: u32,
    all: bool,
}

impl Condition {
    /// One of `events` at least.
    pub(crate) fn any(events: u32) -> Self {
        Self { events, all: false }
    }

    /// Every one of `events`.
    pub(crate) fn all(events: u32) -> Self {
        Self { events, all: true }
    }

    pub(crate) fn events(self) -> u32 {
        self.events
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

/// What a set holds at one moment.
#[derive(Clone, Copy)]
struct State {
    generation: u32,
    sleeps: bool,
    condition: Condition,
    pending: u32,
    given: u32,
}

const NO_CONDITION: Condition = Condition {
    events: 0,
    all: false,
};
const ALL: u64 = 1;
const SLEEPS: u64 = 2;
/// Where the generation begins, and its bits.
const FLAGS: u32 = 2;
const GENERATION: u32 = u32::MAX >> FLAGS;

impl State {
    fn empty(generation: u32) -> Self {
        Self {
            generation: generation & GENERATION,
            sleeps: false,
            condition: NO_CONDITION,
            pending: 0,
            given: 0,
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

    /// With these events sent.
    #[inline]
    fn with(self, events: u32) -> Self {
        let pending = self.pending | events;
        let met_by = unless_fault!(EventsDoNotAddUp, pending, events);
        let waits = self.condition.events != 0;
        if waits && self.given == 0 && self.condition.is_met_by(met_by) {
            let given = pending & self.condition.events;
            let pending = pending & !given;
            return Self {
                pending,
                given,
                ..self
            };
        }
        #[cfg(loom)]
        if waits && self.given != 0 && crate::model::has(crate::model::Fault::EventsMerge) {
            let given = self.given | pending & self.condition.events;
            let pending = pending & !given;
            return Self {
                pending,
                given,
                ..self
            };
        }
        Self { pending, ..self }
    }

    /// Without a condition, and what the task was given.
    fn ended(self) -> Self {
        Self {
            sleeps: false,
            condition: NO_CONDITION,
            given: 0,
            ..self
        }
    }
}

/// The events that are pending, in the second word.
fn pending(second: u64) -> u32 {
    second as u32
}

/// Those that the task was given.
fn given(second: u64) -> u32 {
    (second >> 32) as u32
}

/// One set of events of one task.
#[repr(C)]
pub(crate) struct Set {
    words: AtomicPair,
}

#[cfg(loom)]
impl Default for Set {
    fn default() -> Self {
        Self {
            words: AtomicPair::new(),
        }
    }
}

/// A wake-up that is due.
#[must_use]
pub(crate) struct Wake<'a>(Option<&'a AtomicU64>);

impl Wake<'_> {
    #[cfg(loom)]
    pub(crate) fn is_needed(&self) -> bool {
        self.0.is_some()
    }

    /// Makes the system call, if one is needed. Leaves `errno` alone.
    pub(crate) fn carry_out(self) {
        if let Some(word) = self.0 {
            futex::wake_high(word, 1, u32::MAX, Sharing::Shared);
        }
    }
}

impl Set {
    /// Empties the set for a new task, whose first use of it this is.
    pub(crate) fn begin(&self, generation: u32) {
        // Who sends to the task has its generation from it, and so comes after. The generation goes first: a sender
        // to the task before finds it changed, or its events are stored over.
        self.words.store(State::empty(generation).pack());
    }

    #[inline]
    fn look(&self) -> State {
        State::unpack(self.words.load())
    }

    /// Replaces a state; `false` if it has changed.
    #[inline]
    fn change(&self, from: State, to: State, order: Ordering) -> bool {
        self.words.compare_exchange(from.pack(), to.pack(), order)
    }

    /// The same for the task, which receives.
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

    /// Adds events to those of the task of this generation; `None` if it is gone.
    #[inline]
    pub(crate) fn send(&self, to: u32, events: u32) -> Option<Wake<'_>> {
        loop {
            // By the way that the generation came, it was set before.
            let before = self.look();
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

    /// The events that are pending. For the task.
    pub(crate) fn pending(&self) -> u32 {
        // Acquire: pairs with the Release in `send`.
        pending(self.words.load_second(Ordering::Acquire))
    }

    /// Takes the wanted events if they meet the condition; else returns those of them that are pending. For the
    /// task.
    #[inline]
    pub(crate) fn take(&self, condition: Condition) -> Result<u32, u32> {
        loop {
            let now = self.look();
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

    /// Takes the wanted events as soon as they meet the condition. `sleep` sleeps while the high half of
    /// the word is as given, or gives up. For the task.
    #[inline]
    pub(crate) fn receive<E>(
        &self,
        condition: Condition,
        sleep: impl FnMut(&AtomicU64, u64) -> Result<(), E>,
    ) -> Result<u32, E> {
        loop {
            let now = self.look();
            let all_there = now.pending | now.given;
            let present = all_there & condition.events;
            if condition.is_met_by(present) {
                let pending = all_there & !present;
                if self.take_step(
                    now,
                    State {
                        pending,
                        ..now.ended()
                    },
                ) {
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
                break;
            }
        }
        self.receive_given(sleep)
    }

    /// Which events the task waits for, whether for all of them, and which of them are pending; `None` if it does
    /// not wait. For who looks at a copy.
    #[cfg(not(loom))]
    pub(super) fn wanted(&self) -> Option<(u32, bool, u32)> {
        let now = self.look();
        let Condition { events, all } = now.condition;
        let waits = events != 0 && now.given == 0;
        waits.then_some((events, all, now.pending & events))
    }

    #[cfg(loom)]
    pub(crate) fn is_awaited(&self) -> bool {
        let now = self.look();
        now.condition.events != 0 && now.given == 0
    }

    /// Waits until a send has met the condition that was published.
    fn receive_given<E>(
        &self,
        mut sleep: impl FnMut(&AtomicU64, u64) -> Result<(), E>,
    ) -> Result<u32, E> {
        // Relaxed: `end_wait` looks again.
        let has_some = || given(self.words.load_second(Ordering::Relaxed)) != 0;
        if POLLS {
            for _ in 0..SPINS {
                if has_some() {
                    break;
                }
                spin_hint();
            }
        }
        let mut known = self.look();
        while known.given == 0 {
            let asleep = State {
                sleeps: true,
                ..known
            };
            if unless_fault!(EventSleepsUntold, !known.sleeps, false)
                && !self.change(known, asleep, Ordering::Relaxed)
            {
                known = self.look();
                continue;
            }
            let seen = unless_fault!(EventSleepsOnUnseen, asleep, self.look());
            if let Err(error) = sleep(
                self.words.sleep_word(),
                AtomicPair::asleep_value(seen.pack()),
            ) {
                // What came in time is no failure.
                let given = self.end_wait();
                return if given == 0 { Err(error) } else { Ok(given) };
            }
            known = self.look();
        }
        Ok(self.end_wait())
    }

    /// Withdraws the condition, and takes what met it, if anything has.
    fn end_wait(&self) -> u32 {
        loop {
            let now = self.look();
            if self.take_step(now, now.ended()) {
                return now.given;
            }
        }
    }
}

/// Both sets of a task, on a cache line that nothing else is on.
#[repr(C, align(64))]
pub(crate) struct EventSets {
    /// The application's.
    pub(crate) user: Set,
    /// Those of the layers below it.
    pub(crate) system: Set,
}

#[cfg(not(loom))]
impl EventSets {
    /// A new task has none.
    pub(super) fn begin(&self, generation: u32) {
        self.user.begin(generation);
        self.system.begin(generation);
    }
}
