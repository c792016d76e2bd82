//! Polls that lie further and further apart: of a line that a peer is at work on, which each poll takes from it.

use crate::atomic::{AtomicU8, Ordering::Relaxed, spin_hint};

/// Pauses before a sleep: some 10 µs on a processor that nobody else wants. A sleep and a wake-up on another processor cost
/// the two sides about as much.
const PAUSES: u32 = 300;
/// Bytes of the longest message for a pause more: before the peer has an answer it copies one message out, and another one
/// in, at about this speed.
const BYTES_A_PAUSE: u32 = 128;
/// However long messages are.
const MOST_PAUSES: u32 = 4 * PAUSES;
/// Pauses before the processor is yielded to others, of whom one may be the peer. Sooner than for a lock, whose owner is
/// about to release it. (On two processors a yield costs a few pauses.)
const FIRST_YIELD: u32 = 10;
/// Pauses from one yield to the next.
const NEXT_YIELD: u32 = 100;

/// The most pauses from one poll to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Widening {
    /// Of a line that nobody else is at work on.
    None = 1,
    /// Of a line that others are at work on.
    Shared = 8,
    /// Of a lock while somebody holds it.
    Held = 16,
}

impl Widening {
    /// Polls until `ready` says so, or a sleep would have cost less.
    ///
    /// `bytes` of a message may be copied meanwhile. `turns` is what the task has learned of its peers, if it waits for them:
    /// 1 if its last wait ended with a yield. A task that takes turns with a peer on one processor yields that at once.
    pub(crate) fn poll(
        self,
        bytes: u32,
        turns: Option<&AtomicU8>,
        mut ready: impl FnMut() -> bool,
    ) -> bool {
        let enough = MOST_PAUSES.min(PAUSES + bytes / BYTES_A_PAUSE);
        // Relaxed, here and below: a guess of the task's own.
        let takes_turns = turns.is_some_and(|turns| turns.load(Relaxed) != 0);
        let (mut pauses, mut next) = (if takes_turns { FIRST_YIELD } else { 0 }, 1);
        let mut yielded = takes_turns;
        loop {
            if ready() {
                if let Some(turns) = turns
                    && yielded != takes_turns
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
                if pauses % NEXT_YIELD == FIRST_YIELD + 1 {
                    crate::sys::thread::yield_cpu();
                    yielded = true;
                    break;
                }
                spin_hint();
            }
            next = (self as u32).min(2 * next);
        }
    }
}
