//! A walk through an operation, or to a place in it.

use crate::task::break_into;
use crate::{Place, Resume, Task};
use std::io;

/// More instructions than any operation has: a loop does not end when it is stepped.
pub const ENDLESS: u64 = 5_000_000;

/// A task that is stopped in an operation.
pub trait Stepped {
    /// Why a walk ended early: the operation did, or the task cannot be traced any more.
    type End: From<io::Error>;

    /// The task.
    fn task(&self) -> Task;

    /// Resumes the task, and waits for its next trap: the end of a step, or a breakpoint. Signals of its own are passed
    /// on to it. `at` says how far it is, for messages.
    ///
    /// # Errors
    /// If the operation ends before.
    fn go(&mut self, how: Resume, at: u64) -> Result<(), Self::End>;
}

/// Steps to the operation's end; `watch` is called with the address of each instruction before it is executed.
///
/// `None` if the operation executes more than [`ENDLESS`] instructions.
pub fn step_through<S: Stepped>(stepped: &mut S, watch: &mut dyn FnMut(u64)) -> Option<S::End> {
    for at in 0..ENDLESS {
        let step = |stepped: &mut S, watch: &mut dyn FnMut(u64)| {
            watch(stepped.task().address()?);
            stepped.go(Resume::Step, at)
        };
        if let Err(end) = step(stepped, watch) {
            return Some(end);
        }
    }
    None
}

/// Runs to a place by a breakpoint. Other tasks must not execute this code in the same memory meanwhile.
///
/// # Errors
/// If the operation ends before.
pub fn run_to<S: Stepped>(stepped: &mut S, place: Place) -> Result<(), S::End> {
    let Place {
        at,
        address,
        visit,
        round,
    } = place;
    let task = stepped.task();
    let original = task.code(address)?;
    let mut visits = u32::from(task.address()? == address);
    if visits <= visit {
        if visits == 1 {
            stepped.go(Resume::Step, at)?;
        }
        loop {
            task.set_code(address, break_into(original))?;
            if let Err(end) = stepped.go(Resume::Run, at) {
                // A task that runs, sleeps or has ended cannot be changed; it does not continue.
                let _ = task.set_code(address, original);
                return Err(end);
            }
            task.set_code(address, original)?;
            task.set_address(address)?;
            visits += 1;
            if visits > visit {
                break;
            }
            stepped.go(Resume::Step, at)?;
        }
    }
    for _ in 0..round {
        stepped.go(Resume::Step, at)?;
    }
    Ok(())
}

/// Steps to a place by the number of instructions before it, without a breakpoint.
///
/// # Errors
/// If the operation ends before.
pub fn step_to<S: Stepped>(stepped: &mut S, place: Place) -> Result<(), S::End> {
    for at in 0..place.at {
        stepped.go(Resume::Step, at)?;
    }
    Ok(())
}
