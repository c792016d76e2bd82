//! A task's events: what is pending, and what the task waits for.
//!
//! A set of 32 events, each pending or not: what is sent again before it is received is received once.
//! Source of the semantics: RTEMS's event manager. Anybody sends; only the task whose set it is
//! receives.
//!
//! | part | meaning | changed by |
//! | --- | --- | --- |
//! | `word`, low half | the generation of the task whose set it is | the task, as it comes |
//! | `word`, high half | the events that are pending; what the task sleeps on | + senders, − the task |
//! | `wants` | the condition on which the task sleeps or is about to; 0 if it does not | the task |
//!
//! | `wants` | pending | who acts next |
//! | --- | --- | --- |
//! | 0 | any | nobody: a send is one compare-and-swap |
//! | a condition | does not meet it | a sender: the task sleeps, or is about to |
//! | a condition | meets it | the sender that made it so wakes the task; or the task has seen it |
//!
//! Invariants
//! 1. All changes of `word` but the task's first are by compare-and-swap, and a sender's succeeds only
//!    on the generation that it means: an event never reaches a successor in the slot. It is sent
//!    completely or not at all, wherever the sender is killed.
//! 2. Events leave the set by the task's hand only: all and only those that a receive returns.
//! 3. While the task sleeps, its condition is published; it was before the kernel compared the word with
//!    the value that the task had looked at.
//! 4. A sender looks at the condition after its send. It wakes the task if its events have made the
//!    condition true, which it was not before them.
//!
//! *No wake-up is lost.* The task publishes its condition, then the kernel compares the word; a sender
//! changes the word, then looks at the condition. Barriers between (the kernel's own, and a fence) let at
//! least one of them see the other's change. If the kernel sees the events the task does not sleep. Else
//! the sender sees the condition; the one whose events make it true wakes the task, which is asleep by
//! then or finds the word changed as the kernel compares. If the condition was true before a sender's
//! events, another sender made it so, to which the same applies. A condition that a late sender reads
//! stale costs a needless wake-up of the same task. A sender that is killed between its send and the
//! wake is covered if it is a task of the region: who sleeps there watches all life-words (`park.rs`).
//!
//! *Orderings:* a send is a Release, a receive an Acquire: what the sender wrote before, the receiver
//! sees. What one send published is not hidden by another, for all are read-modify-writes.
//!
//! *Progress:* a send is lock-free: its compare-and-swap fails only if another send or receive has
//! succeeded. No sender waits, allocates, or uses anything of its thread's.
//!
//! *Hostile events:* EINTR re-waits. A signal handler may send, also to the task that it interrupts
//! (the word changes, so the kernel refuses the sleep, or the sleep was interrupted), and may receive
//! without waiting; it must not wait, for that would replace the condition. The task's death is found
//! by its generation and life-word. The child of a fork is another task.
//!
//! *Cost:* one compare-and-swap each for a send that wakes nobody and a receive that finds its events;
//! word and condition share a cache line.
//!
//! *Checked by:* `tests/loom_event.rs` (one task, one and two senders, any and all, deadlines, spurious
//! wake-ups, a stale sender), each with a negative twin; deaths by `tests/kill_event.rs`.

use crate::atomic::{AtomicU64, Ordering, fence_after_update, spin_hint, unless_fault};
use crate::sys::futex::{self, Sharing};

/// Polls before a sleep, as in `queue/attempt.rs`: about as long as a sleep and wake-up takes. Senders
/// make no system call meanwhile.
const SPINS: u32 = 300;
const POLLS: bool = !cfg!(any(loom, feature = "giant-lock"));

/// What a task waits for.
#[derive(Clone, Copy)]
pub(crate) struct Condition {
    events: u32,
    all: bool,
}

const ANY: u64 = 1 << 32;
const ALL: u64 = 2 << 32;

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

    fn published(self) -> u64 {
        u64::from(self.events) | if self.all { ALL } else { ANY }
    }

    /// The condition that was published, if one is.
    fn read(published: u64) -> Option<Self> {
        (published != 0).then_some(Self {
            events: published as u32,
            all: published & ALL != 0,
        })
    }
}

/// The events in a word.
fn pending(word: u64) -> u32 {
    (word >> 32) as u32
}

fn generation(word: u64) -> u32 {
    word as u32
}

/// One set of events of one task.
#[repr(C)]
pub(crate) struct Set {
    word: AtomicU64,
    wants: AtomicU64,
}

#[cfg(loom)]
impl Default for Set {
    fn default() -> Self {
        Self {
            word: AtomicU64::new(0),
            wants: AtomicU64::new(0),
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
        // Relaxed: who sends to the task has its generation from it, and so comes after.
        self.wants.store(0, Ordering::Relaxed);
        // A swap, so that the word has nothing but read-modify-writes (loom orders stores loosely).
        self.word.swap(u64::from(generation), Ordering::Relaxed);
    }

    /// Adds events to those of the task of this generation; `None` if it is gone.
    #[inline]
    pub(crate) fn send(&self, to: u32, events: u32) -> Option<Wake<'_>> {
        let added = u64::from(events) << 32;
        // Relaxed: the compare-and-swap decides. By the way that the generation came, it was set before.
        let mut before = self.word.load(Ordering::Relaxed);
        loop {
            if unless_fault!(EventIgnoresGeneration, generation(before) != to, false) {
                return None;
            }
            // Release: pairs with the Acquire in `take` and `pending`.
            let release = unless_fault!(EventSendRelaxed, Ordering::Release, Ordering::Relaxed);
            match self.word.compare_exchange_weak(
                before,
                before | added,
                release,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => before = now,
            }
        }
        // Pairs with the barrier in the kernel's comparison, as the task goes to sleep.
        unless_fault!(EventSenderLooksUnordered, fence_after_update(), ());
        // Relaxed: ordered by the fence.
        let condition = Condition::read(self.wants.load(Ordering::Relaxed));
        let before = pending(before);
        let after = unless_fault!(EventsDoNotAddUp, before | events, events);
        let due = condition
            .is_some_and(|condition| condition.is_met_by(after) && !condition.is_met_by(before));
        Some(Wake(due.then_some(&self.word)))
    }

    /// The events that are pending. For the task.
    pub(crate) fn pending(&self) -> u32 {
        // Acquire: pairs with the Release in `send`.
        pending(self.word.load(Ordering::Acquire))
    }

    /// Takes the wanted events if they meet the condition; else returns the word as it was seen. For the
    /// task.
    #[inline]
    pub(crate) fn take(&self, condition: Condition) -> Result<u32, u64> {
        // Relaxed: the compare-and-swap decides.
        let mut now = self.word.load(Ordering::Relaxed);
        while condition.is_met_by(pending(now)) {
            let left = now & !(u64::from(condition.events) << 32);
            if unless_fault!(EventsClearedByStore, false, true) {
                self.word.store(left, Ordering::Relaxed);
                return Ok(pending(now) & condition.events);
            }
            // Acquire: pairs with the Release in `send`.
            match self
                .word
                .compare_exchange_weak(now, left, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Ok(pending(now) & condition.events),
                Err(other) => now = other,
            }
        }
        Err(now)
    }

    /// Of the wanted events those that were pending as the word was seen.
    pub(crate) fn present(condition: Condition, seen: u64) -> u32 {
        pending(seen) & condition.events
    }

    /// Takes the wanted events as soon as they meet the condition. `sleep` sleeps while the high half of
    /// the word is as given, or gives up. For the task.
    #[inline]
    pub(crate) fn receive<E>(
        &self,
        condition: Condition,
        sleep: impl FnMut(&AtomicU64, u64) -> Result<(), E>,
    ) -> Result<u32, E> {
        if let Ok(taken) = self.take(condition) {
            return Ok(taken);
        }
        if POLLS {
            for _ in 0..SPINS {
                // Relaxed: `take` looks again.
                if condition.is_met_by(pending(self.word.load(Ordering::Relaxed))) {
                    break;
                }
                spin_hint();
            }
        }
        self.receive_asleep(condition, sleep)
    }

    /// Which events the task waits for, whether for all of them, and which of them are pending; `None` if it does
    /// not wait. For who looks at a copy.
    #[cfg(not(loom))]
    pub(super) fn wanted(&self) -> Option<(u32, bool, u32)> {
        let condition = Condition::read(self.wants.load(Ordering::Relaxed))?;
        let present = Self::present(condition, self.word.load(Ordering::Relaxed));
        Some((condition.events, condition.all, present))
    }

    #[cfg(loom)]
    fn look(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    fn receive_asleep<E>(
        &self,
        condition: Condition,
        mut sleep: impl FnMut(&AtomicU64, u64) -> Result<(), E>,
    ) -> Result<u32, E> {
        // Relaxed, and below: the kernel has a barrier between this and its comparison.
        self.wants.store(condition.published(), Ordering::Relaxed);
        let received = loop {
            match self.take(condition) {
                Ok(taken) => break Ok(taken),
                Err(seen) => {
                    let known = unless_fault!(EventSleepsOnUnseen, seen, self.look());
                    if let Err(error) = sleep(&self.word, known) {
                        // What came in time is no failure.
                        break self.take(condition).map_err(|_| error);
                    }
                }
            }
        };
        self.wants.store(0, Ordering::Relaxed);
        received
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
