//! Exponential backoff: polls at growing distances, for a cache line that a peer is writing.

use super::{Then, yield_or_sleep};
use crate::atomic::{AtomicU8, Ordering::Relaxed, spin_hint};

/// Pauses before a sleep: some 10 µs on a processor that no other task needs. A sleep and a wake-up on another
/// processor cost the two sides about as much.
const PAUSES: u32 = 300;
/// Bytes of the longest message for which one more pause is added: before the peer has an answer it copies one message
/// out, and another one in, at about this speed.
const BYTES_A_PAUSE: u32 = 128;
/// The most pauses of a wait, for messages of any length.
const MOST_PAUSES: u32 = 4 * PAUSES;
/// Pauses before the first yield of a task that waits for a peer, which may be one of the tasks that then run: more than the
/// answer of a peer on another processor takes. (With 10, two tasks on two processors yielded at each message, since
/// the answer came during the yield: a round trip took 1.2 µs instead of 0.5, and one by events 1.0 instead of 0.2.)
const FIRST_YIELD: u32 = 30;
/// Of so many waits of a task that yields at once, one does not: it finds out whether the peer is on another processor by
/// now.
const TRIAL: u8 = 64;
/// Pauses before the first yield of a task that waits for a lock: its owner is about to release it, unless it was
/// preempted. (4 tasks that send and receive on 2 processors: with a yield after 10 pauses, 99 of 100 receives took at
/// most 5 to 9 µs, and with this number 1 µs; as many messages passed.)
const FIRST_YIELD_TO_OWNER: u32 = 50;
/// Pauses from one yield to the next.
const NEXT_YIELD: u32 = 100;

/// Exponential backoff, by the most pauses from one poll to the next.
#[derive(Clone, Copy, Debug)]
pub enum ExponentialBackoff {
    /// For a cache line that no other task writes.
    None = 1,
    /// For a cache line that other tasks write.
    Shared = 8,
    /// For a lock while a task holds it.
    Held = 16,
}

impl ExponentialBackoff {
    /// Polls until `ready` returns true, or a sleep would have cost less, or the wait is to [sleep](Then::Sleep) where it would
    /// yield. Returns whether `ready` returned true.
    ///
    /// A peer may copy `bytes` of a message meanwhile. `turns` is what the task has learned about its peers, if it
    /// waits for them: 1 if its last wait ended with a yield. A task that shares a processor with a peer yields at
    /// once, mostly.
    pub fn poll(
        self,
        bytes: u32,
        turns: Option<&AtomicU8>,
        mut ready: impl FnMut() -> bool,
    ) -> bool {
        // Models do not poll.
        if cfg!(loom) {
            return false;
        }
        let enough = MOST_PAUSES.min(PAUSES + bytes / BYTES_A_PAUSE);
        // Relaxed, here and below: only a guess, kept by this task.
        let took_turns = turns.is_some_and(|turns| turns.load(Relaxed) != 0);
        let takes_turns = took_turns && !is_trial();
        let first_yield = match self {
            Self::Held => FIRST_YIELD_TO_OWNER,
            Self::None | Self::Shared => FIRST_YIELD,
        };
        let (mut pauses, mut next) = (if takes_turns { first_yield } else { 0 }, 1);
        let mut yielded = takes_turns;
        loop {
            if ready() {
                // Without a pause it has learned nothing.
                if let Some(turns) = turns
                    && yielded != took_turns
                    && pauses > 0
                {
                    turns.store(u8::from(yielded), Relaxed);
                }
                return true;
            }
            if pauses >= enough {
                return false;
            }
            yielded = false;
            for _ in 0..next {
                pauses += 1;
                if pauses % NEXT_YIELD == first_yield + 1 {
                    let then = yield_or_sleep(pauses < NEXT_YIELD);
                    if then == Then::Sleep {
                        return false;
                    }
                    yielded = then == Then::Yielded;
                    break;
                }
                spin_hint();
            }
            next = (self as u32).min(2 * next);
        }
    }
}

/// Whether the thread's wait is a trial: one of [`TRIAL`].
fn is_trial() -> bool {
    #[cfg(not(loom))]
    return crate::sys::own_record::with_habits(|mine| {
        let waits = mine.turns.get() % TRIAL + 1;
        mine.turns.set(waits);
        waits == TRIAL
    });
    #[cfg(loom)]
    return false;
}
