//! The gate: a queueing mutex in front of a lock's word, made of a priority-inheritance futex. Only the gate's owner
//! goes on to the word. The gate carries no data, so it orders no memory; a failure of the gate costs time only. And
//! the slow path of a lock with a gate. The argument is in [the parent](super).
#![allow(unsafe_code)]

use super::word::{InheritFault, NAP, Taken, Word};
use crate::atomic::{AtomicU32, Ordering, unless_fault};
use crate::backoff::{Budget, FIRST_POLLS, HAND_OVER, INHERIT_SLEEP, yield_if_brief};
use crate::mutex::throughput::is_not_in_process;
use crate::mutex::wait_mode::{end_of_nap, is_over};
use crate::mutex::{TID_MASK, WAITERS};
use crate::sharing::Sharing;
use crate::sys::futex::Sharing as Flag;
use crate::sys::futex_pi::{self, Pi};
use crate::time::Deadline;
use core::marker::PhantomData;
use core::time::Duration;

/// A gate; 0 is free.
#[derive(Clone, Copy)]
pub(in crate::mutex) struct PiGate<'a>(pub(in crate::mutex) &'a AtomicU32);

impl<'a> PiGate<'a> {
    /// Waits for the gate, for one nap at most. `None`: the caller goes on without it.
    pub(super) fn enter<S: Sharing>(
        self,
        me: u32,
        deadline: Option<Deadline>,
    ) -> Option<Entered<'a, S>> {
        if me == 0 {
            return None;
        }
        let before = match self.replace(0, me) {
            Ok(_) => return Some(self.entered(me)),
            Err(before) => before,
        };
        match futex_pi::lock_pi(self.0, S::FLAG, end_of_nap(NAP, deadline)) {
            Pi::Done => Some(self.entered(me)),
            // The owner died, and no task slept behind it, or the kernel would have made that task its heir.
            Pi::OwnerGone => {
                let taken = self.replace(before | WAITERS, me);
                taken.is_ok().then(|| self.entered(me))
            }
            // In the child of a fork, a thread of the parent may be the owner: it releases the parent's copy only.
            // Linux 6.18 refuses the wait with EPERM; a kernel that does not lets it time out.
            _ if S::FLAG == Flag::Private => {
                // Relaxed: as in `replace`.
                let seen = self.0.load(Ordering::Relaxed);
                let taken = is_not_in_process(seen & TID_MASK) && self.replace(seen, me).is_ok();
                taken.then(|| self.entered(me))
            }
            _ => None,
        }
    }

    fn replace(self, old: u32, new: u32) -> Result<u32, u32> {
        // Relaxed: the gate carries no data.
        self.0
            .compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
    }

    fn entered<S: Sharing>(self, me: u32) -> Entered<'a, S> {
        Entered {
            gate: self,
            me,
            sharing: PhantomData,
        }
    }
}

/// The ownership of the gate. Dropping it releases the gate.
pub(super) struct Entered<'a, S: Sharing> {
    gate: PiGate<'a>,
    me: u32,
    sharing: PhantomData<S>,
}

impl<S: Sharing> Drop for Entered<'_, S> {
    fn drop(&mut self) {
        // In a model a task dies by unwinding; a real death runs no destructor.
        #[cfg(loom)]
        if std::thread::panicking() {
            return;
        }
        if self.gate.replace(self.me, 0).is_ok() {
            return;
        }
        // If the gate belongs to another task by now, this does nothing.
        // SAFETY: the gate is part of a lock that this task holds or waits for, so its memory is alive.
        while unsafe { futex_pi::unlock_pi(core::ptr::from_ref(self.gate.0), S::FLAG) } == Pi::Again
        {
        }
    }
}

/// Yields of a task before it enters the gate, so that an owner that was preempted runs again before all waiters go to
/// sleep. With 36 tasks on 2 processors the slowest task then makes 0.6 to 0.7 of the average in a second; without the
/// yields, 0.3 to 0.4. (None in a model.)
const YIELDS: u32 = if cfg!(loom) { 0 } else { 16 };
/// Polls after each yield.
const POLLS_AFTER_YIELD: u32 = 50;
/// The longest time that a task spends on yields: tasks that run meanwhile may have more to do than to take this lock.
const MAX_YIELD_TIME: Duration = Duration::from_millis(1);

/// Waits until the task `me`, which did not find the word free, has it, or the deadline has passed.
pub(in crate::mutex) fn lock_slowly<S: Sharing, const ROBUST: bool>(
    word: Word<'_, ROBUST>,
    gate: PiGate<'_>,
    me: u32,
    deadline: Option<Deadline>,
) -> Taken {
    if word.poll(me, 0..FIRST_POLLS, 0)? {
        return Ok(true);
    }
    if futex_pi::is_real_time() {
        return word.sleep::<S>(deadline);
    }
    let budget = Budget::at(core::ptr::from_ref(word.0).addr(), INHERIT_SLEEP);
    // A newcomer polls also while a task sleeps on the word: the kernel passes the word on once, and then it is free.
    let taken = !budget.is_spent()
        && (word.poll(me, FIRST_POLLS..HAND_OVER, 0)? || yield_and_poll(word, me, deadline)?);
    if taken {
        return Ok(true);
    }
    budget.sleeps();
    wait_behind_gate::<S, ROBUST>(word, gate, me, deadline)
}

/// Lets other tasks of the same priority run, and polls the word in between.
fn yield_and_poll<const ROBUST: bool>(
    word: Word<'_, ROBUST>,
    me: u32,
    deadline: Option<Deadline>,
) -> Taken {
    let end = end_of_nap(MAX_YIELD_TIME, deadline);
    for _ in 0..YIELDS {
        if !yield_if_brief() {
            break;
        }
        if word.poll(me, 0..POLLS_AFTER_YIELD, 0)? {
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
) -> Taken {
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
