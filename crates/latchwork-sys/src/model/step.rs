//! The steps of a model's tasks, and how many are left to a task until it dies.
//!
//! A step is an access to an atomic, a change of the robust list, or a futex call: anything that other tasks
//! can observe. A kill at any instruction is equivalent to a kill before one of these steps.

use std::cell::Cell;
use std::panic::resume_unwind;

/// The number of tasks that a model may have, including task 0.
pub(super) const TASKS: usize = 4;

loom::thread_local! {
    static CURRENT: Cell<usize> = Cell::new(0);
}

std::thread_local! {
    /// The steps of each task until it dies; `None`: it does not. One set for each test.
    static LIVES: [Cell<Option<usize>>; TASKS] = const { [const { Cell::new(None) }; TASKS] };
}

/// The panic of a task that dies.
pub(super) struct Death;

/// The calling task's number; 0 unless [`become_task`] has set another one.
pub(super) fn number() -> usize {
    CURRENT.with(Cell::get)
}

/// Gives the calling thread this number.
pub(super) fn become_task(number: usize) {
    CURRENT.with(|current| current.set(number));
}

/// Sets the steps of the calling task until it dies.
pub(super) fn set_life(steps: Option<usize>) {
    LIVES.with(|lives| lives[number()].set(steps));
}

/// The point before a step: a mortal task that has used up its steps dies here.
pub fn step() {
    LIVES.with(|lives| {
        let life = &lives[number()];
        match life.get() {
            None => {}
            Some(0) => {
                life.set(None);
                resume_unwind(Box::new(Death));
            }
            Some(steps) => life.set(Some(steps - 1)),
        }
    });
}

/// The calling task dies.
pub fn die() -> ! {
    LIVES.with(|lives| lives[number()].set(None));
    resume_unwind(Box::new(Death))
}
