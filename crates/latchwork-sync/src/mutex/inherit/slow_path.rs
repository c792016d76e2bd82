//! The slow path of a lock with a gate in front of its word. The argument is in [the parent](super).

use super::fault::InheritFault;
use super::gate::PiGate;
use super::word::Word;
use crate::atomic::unless_fault;
#[cfg(not(loom))]
use crate::backoff::yield_if_brief;
use crate::backoff::{Budget, FIRST_POLLS, HAND_OVER};
use crate::mutex::WAITERS;
use crate::sharing::Sharing;
use crate::sys::futex_pi;
use crate::time::Deadline;
use core::marker::PhantomData;

/// Yields of a task before it enters the gate, so that an owner that was preempted runs again before all waiters go to
/// sleep. With 36 tasks on 2 processors the slowest task then makes 0.6 to 0.7 of the average in a second; without the
/// yields, 0.3 to 0.4.
#[cfg(not(loom))]
const YIELDS: u32 = 16;
/// Polls after each yield.
#[cfg(not(loom))]
const POLLS_AFTER_YIELD: u32 = 50;
/// The longest time that a task spends on yields: tasks that run meanwhile may have more to do than to take this lock.
#[cfg(not(loom))]
const MAX_YIELD_TIME: core::time::Duration = core::time::Duration::from_millis(1);

/// The slow path of a task that did not find the word free.
pub(in crate::mutex) struct SlowPath<'a, S: Sharing, const ROBUST: bool> {
    word: &'a Word<ROBUST>,
    gate: &'a PiGate,
    sharing: PhantomData<S>,
}

impl<'a, S: Sharing, const ROBUST: bool> SlowPath<'a, S, ROBUST> {
    pub(in crate::mutex) fn new(word: &'a Word<ROBUST>, gate: &'a PiGate) -> Self {
        Self {
            word,
            gate,
            sharing: PhantomData,
        }
    }

    /// Waits until the task `me` has the word, or the deadline has passed; returns whether it has the word.
    pub(in crate::mutex) fn lock(
        &self,
        me: u32,
        deadline: Option<Deadline>,
    ) -> Result<bool, InheritFault> {
        if self.word.poll(me, 0..FIRST_POLLS, 0)? {
            return Ok(true);
        }
        if futex_pi::is_real_time() {
            return self.word.sleep::<S>(deadline);
        }
        let budget = Budget::at(core::ptr::from_ref(self.word).addr(), HAND_OVER);
        let mut polls = 0;
        // A newcomer polls also while a task sleeps on the word: the kernel passes the word on once, and then it is
        // free.
        let taken = !budget.is_spent()
            && (self
                .word
                .poll_counted(me, FIRST_POLLS..HAND_OVER, 0, &mut polls)?
                || self.yield_and_poll(me, deadline, &mut polls)?);
        budget.made(polls, taken);
        if taken {
            return Ok(true);
        }
        self.wait_behind_gate(me, deadline)
    }

    /// Lets other tasks of the same priority run, and polls the word in between; returns whether it took the word.
    /// (Left out of the models: they have no clock.)
    #[cfg(not(loom))]
    fn yield_and_poll(
        &self,
        me: u32,
        deadline: Option<Deadline>,
        polls: &mut u32,
    ) -> Result<bool, InheritFault> {
        let end = Deadline::after(MAX_YIELD_TIME);
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        for _ in 0..YIELDS {
            yield_if_brief();
            if self.word.poll_counted(me, 0..POLLS_AFTER_YIELD, 0, polls)? {
                return Ok(true);
            }
            if end.has_passed() {
                break;
            }
        }
        Ok(false)
    }

    #[cfg(loom)]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps)]
    fn yield_and_poll(
        &self,
        _: u32,
        _: Option<Deadline>,
        _: &mut u32,
    ) -> Result<bool, InheritFault> {
        Ok(false)
    }

    /// Waits for the gate, then for the word.
    fn wait_behind_gate(&self, me: u32, deadline: Option<Deadline>) -> Result<bool, InheritFault> {
        let Some(entered) = self.gate.enter::<S>(me, deadline) else {
            return self.word.sleep::<S>(deadline);
        };
        let waited = match self.word.poll(me, 0..HAND_OVER, WAITERS) {
            Ok(false) => self.word.sleep::<S>(deadline),
            ended => ended,
        };
        unless_fault!(InheritKeepsGate, drop(entered), core::mem::forget(entered));
        match waited {
            // The wait-for cycle may be that of another task, which waits at the gate. Without the gate, ask again.
            Err(InheritFault::Deadlock) => unless_fault!(
                InheritBlamesGate,
                self.word.sleep::<S>(deadline),
                Err(InheritFault::Deadlock)
            ),
            waited => waited,
        }
    }
}
