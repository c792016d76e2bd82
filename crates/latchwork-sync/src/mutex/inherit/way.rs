//! The slow path of a lock with a gate in front of its word. The argument is in [the parent](super).

use super::fault::InheritFault;
use super::gate::Gate;
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

/// Yields of a task before it goes to the gate, so that an owner that was preempted runs again before all waiters go to
/// sleep. With 36 tasks on 2 processors the slowest task then makes 0.6 to 0.7 of the average in a second; without the
/// yields, 0.3 to 0.4.
#[cfg(not(loom))]
const YIELDS: u32 = 16;
/// Polls after each yield.
#[cfg(not(loom))]
const POLLS_AFTER: u32 = 50;
/// The longest time of yields: tasks that run meanwhile may have more to do than to take this lock.
#[cfg(not(loom))]
const GIVING_WAY: core::time::Duration = core::time::Duration::from_millis(1);

/// The slow path of a task that did not find the word free.
pub(in crate::mutex) struct Way<'a, S: Sharing, const ROBUST: bool> {
    word: &'a Word<ROBUST>,
    gate: &'a Gate,
    sharing: PhantomData<S>,
}

impl<'a, S: Sharing, const ROBUST: bool> Way<'a, S, ROBUST> {
    pub(in crate::mutex) fn new(word: &'a Word<ROBUST>, gate: &'a Gate) -> Self {
        Self {
            word,
            gate,
            sharing: PhantomData,
        }
    }

    /// Waits until the task `me` has the word, or the deadline has passed; returns whether it has the word.
    pub(in crate::mutex) fn go(
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
        let mut looks = 0;
        // A newcomer polls also while a task sleeps on the word: the kernel passes the word on once, and then it is
        // free.
        let taken = !budget.is_spent()
            && (self
                .word
                .poll_counted(me, FIRST_POLLS..HAND_OVER, 0, &mut looks)?
                || self.give_way(me, deadline, &mut looks)?);
        budget.made(looks, taken);
        if taken {
            return Ok(true);
        }
        self.wait_in_turn(me, deadline)
    }

    /// Lets other tasks of the same priority run, and polls the word in between; returns whether it took the word.
    /// (Left out of the models: they have no clock.)
    #[cfg(not(loom))]
    fn give_way(
        &self,
        me: u32,
        deadline: Option<Deadline>,
        looks: &mut u32,
    ) -> Result<bool, InheritFault> {
        let end = Deadline::after(GIVING_WAY);
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        for _ in 0..YIELDS {
            yield_if_brief();
            if self.word.poll_counted(me, 0..POLLS_AFTER, 0, looks)? {
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
    fn give_way(&self, _: u32, _: Option<Deadline>, _: &mut u32) -> Result<bool, InheritFault> {
        Ok(false)
    }

    /// Waits for the gate, then for the word.
    fn wait_in_turn(&self, me: u32, deadline: Option<Deadline>) -> Result<bool, InheritFault> {
        let Some(passed) = self.gate.pass::<S>(me, deadline) else {
            return self.word.sleep::<S>(deadline);
        };
        let waited = match self.word.poll(me, 0..HAND_OVER, WAITERS) {
            Ok(false) => self.word.sleep::<S>(deadline),
            ended => ended,
        };
        unless_fault!(InheritKeepsGate, drop(passed), core::mem::forget(passed));
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
