//! The slow path of a lock with a gate in front of its word. The argument is in [the parent](super).

use super::fault::InheritFault;
use super::gate::PiGate;
use super::word::Word;
use crate::atomic::unless_fault;
use crate::backoff::{Budget, FIRST_POLLS, HAND_OVER, yield_if_brief};
use crate::mutex::WAITERS;
use crate::mutex::nap::{end_of_nap, is_over};
use crate::sharing::Sharing;
use crate::sys::futex_pi;
use crate::time::Deadline;
use core::time::Duration;

/// Yields of a task before it enters the gate, so that an owner that was preempted runs again before all waiters go to
/// sleep. With 36 tasks on 2 processors the slowest task then makes 0.6 to 0.7 of the average in a second; without the
/// yields, 0.3 to 0.4. (None in a model.)
const YIELDS: u32 = if cfg!(loom) { 0 } else { 16 };
/// Polls after each yield.
const POLLS_AFTER_YIELD: u32 = 50;
/// The longest time that a task spends on yields: tasks that run meanwhile may have more to do than to take this lock.
const MAX_YIELD_TIME: Duration = Duration::from_millis(1);

/// Waits until the task `me`, which did not find the word free, has it, or the deadline has passed; returns whether it
/// has the word.
pub(in crate::mutex) fn lock_slowly<S: Sharing, const ROBUST: bool>(
    word: Word<'_, ROBUST>,
    gate: PiGate<'_>,
    me: u32,
    deadline: Option<Deadline>,
) -> Result<bool, InheritFault> {
    if word.poll(me, 0..FIRST_POLLS, 0)? {
        return Ok(true);
    }
    if futex_pi::is_real_time() {
        return word.sleep::<S>(deadline);
    }
    let budget = Budget::at(core::ptr::from_ref(word.0).addr(), HAND_OVER);
    let mut polls = 0;
    // A newcomer polls also while a task sleeps on the word: the kernel passes the word on once, and then it is free.
    let taken = !budget.is_spent()
        && (word.poll_counted(me, FIRST_POLLS..HAND_OVER, 0, &mut polls)?
            || yield_and_poll(word, me, deadline, &mut polls)?);
    budget.made(polls, taken);
    if taken {
        return Ok(true);
    }
    wait_behind_gate::<S, ROBUST>(word, gate, me, deadline)
}

/// Lets other tasks of the same priority run, and polls the word in between; returns whether it took the word.
fn yield_and_poll<const ROBUST: bool>(
    word: Word<'_, ROBUST>,
    me: u32,
    deadline: Option<Deadline>,
    polls: &mut u32,
) -> Result<bool, InheritFault> {
    let end = end_of_nap(MAX_YIELD_TIME, deadline);
    for _ in 0..YIELDS {
        yield_if_brief();
        if word.poll_counted(me, 0..POLLS_AFTER_YIELD, 0, polls)? {
            return Ok(true);
        }
        if is_over(end) {
            break;
        }
    }
    Ok(false)
}

/// Waits for the gate, then for the word.
fn wait_behind_gate<S: Sharing, const ROBUST: bool>(
    word: Word<'_, ROBUST>,
    gate: PiGate<'_>,
    me: u32,
    deadline: Option<Deadline>,
) -> Result<bool, InheritFault> {
    let Some(entered) = gate.enter::<S>(me, deadline) else {
        return word.sleep::<S>(deadline);
    };
    let waited = match word.poll(me, 0..HAND_OVER, WAITERS) {
        Ok(false) => word.sleep::<S>(deadline),
        ended => ended,
    };
    unless_fault!(InheritKeepsGate, drop(entered), core::mem::forget(entered));
    match waited {
        // The wait-for cycle may be that of another task, which waits at the gate. Without the gate, ask again.
        Err(InheritFault::Deadlock) => unless_fault!(
            InheritBlamesGate,
            word.sleep::<S>(deadline),
            Err(InheritFault::Deadlock)
        ),
        waited => waited,
    }
}
