//! Condition variables: tokens that are put in, and taken out.

use crate::control::{GIVING, TAKING, at};
use crate::locks::{Game, Waits, reckon_lock};
use crate::task::{Step, Task, Verb};
use crate::witness::{Count, Halves, Witness};
use core::sync::atomic::Ordering::SeqCst;
use latchwork::condvar::Condvar;
use latchwork::region::Shareable;
use latchwork::sharing::Sharing;

/// Tokens that have room.
const ROOM: u64 = 2;

/// Tokens under a mutex, and two condition variables.
#[derive(Shareable)]
#[repr(C)]
pub struct Store<L, C> {
    tokens: L,
    some: C,
    room: C,
    /// Each so many changes one is not told of, as it must be; 0: none.
    silence: u64,
    witness: Witness,
}

impl<L: Waits, S: Sharing> Store<L, Condvar<S>> {
    pub fn new() -> Self {
        Self::that_forgets(0)
    }

    /// A broken one.
    pub fn that_forgets(silence: u64) -> Self {
        Self {
            tokens: L::make(),
            some: Condvar::new_in(),
            room: Condvar::new_in(),
            silence,
            witness: Witness::new(),
        }
    }

    fn notify(&self, gives: bool, all: bool) {
        let changed = if gives { &self.some } else { &self.room };
        if self.silence != 0
            && self
                .witness
                .counted(Count::Done)
                .is_multiple_of(self.silence)
        {
            return;
        }
        if all {
            changed.notify_all();
        } else {
            changed.notify_one();
        }
    }
}

fn is_possible(halves: &Halves, gives: bool) -> bool {
    let tokens = halves.left.load(SeqCst);
    if gives { tokens < ROOM } else { tokens > 0 }
}

impl<L: Waits, S: Sharing> Game for Store<L, Condvar<S>>
where
    Condvar<S>: Send + Sync,
{
    fn play(&self, task: &mut Task<'_>, step: &Step, inside: &mut dyn FnMut(&mut Task<'_>)) {
        let (witness, control) = (&self.witness, task.control);
        let repair = |halves: &Halves| witness.repair(control, halves);
        let (verb, gives) = (step.verb(), step.gives());
        let mut guard = match self.tokens.take(verb, &repair) {
            Ok(guard) => guard,
            Err(ended) => return witness.count(ended.count()),
        };
        let deadline = match verb {
            Verb::Wait => None,
            Verb::Try if !is_possible(&guard, gives) => return witness.count(Count::Refused),
            Verb::Try => None,
            Verb::Until(deadline) => Some(deadline),
            Verb::Interruptible(deadline) => deadline,
        };
        let doing = task.doing(at(step.place, if gives { GIVING } else { TAKING }));
        let (changed, mut is_over) = (if gives { &self.room } else { &self.some }, false);
        while !is_possible(&guard, gives) {
            if is_over {
                task.doing(doing);
                return witness.count(Count::TimedOut);
            }
            if control.stop.load(SeqCst) {
                task.doing(doing);
                return;
            }
            (guard, is_over) = L::wait(changed, guard, deadline, &repair);
        }
        witness.change(task, step.place, &guard, gives, inside);
        witness.count(Count::Done);
        // Under the mutex, or after it.
        if step.goes_on() {
            self.notify(gives, step.for_all());
            drop(guard);
        } else {
            drop(guard);
            self.notify(gives, step.for_all());
        }
        task.doing(doing);
    }

    fn witness(&self) -> &Witness {
        &self.witness
    }

    fn feed(&self, driver: &mut Task<'_>, place: usize, givers: usize, takers: usize) {
        let control = driver.control;
        let repair = |halves: &Halves| self.witness.repair(control, halves);
        for (waiters, gives) in [(takers, true), (givers, false)] {
            // Those for whom there is something were told of it already. The driver does not wait: the owner may be a task
            // that hardly runs, and there are others to feed.
            let Ok(guard) = self.tokens.take(Verb::Try, &repair) else {
                continue;
            };
            if waiters > 0 && !is_possible(&guard, !gives) {
                self.witness
                    .change(driver, place, &guard, gives, &mut |_| ());
                drop(guard);
                self.notify(gives, false);
            }
        }
    }

    fn reckon(&self, driver: &mut Task<'_>, _: usize, kills: u64) {
        reckon_lock(&self.tokens, &self.witness, driver.control, kills);
    }

    fn rouse(&self) {
        self.some.notify_all();
        self.room.notify_all();
    }
}
