//! A walk through an operation, or to a place in it.

use crate::sequence::exits;
use crate::task::break_into;
use crate::vdso::Vdso;
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

    /// Whether no other task executes code in the same memory, where a breakpoint would stop it, too.
    fn is_alone(&self) -> bool {
        true
    }

    /// Resumes the task, and waits for its next trap: the end of a step, or a breakpoint. Signals of its own are passed
    /// on to it. `at` says how far it is, for messages.
    ///
    /// # Errors
    /// If the operation ends before.
    fn go(&mut self, how: Resume, at: u64) -> Result<(), Self::End>;
}

/// Executes one instruction, or one part that cannot be stepped; and with an instruction that calls the vDSO, that call.
/// Returns the address of the next one.
fn advance<S: Stepped>(stepped: &mut S, vdso: &Vdso, at: u64) -> Result<u64, S::End> {
    step(stepped, at)?;
    let task = stepped.task();
    let address = task.address()?;
    let Some(back) = vdso.return_from(task, address)? else {
        return Ok(address);
    };
    if !stepped.is_alone() {
        while vdso.has(task, task.address()?) {
            stepped.go(Resume::Step, at)?;
        }
        return Ok(task.address()?);
    }
    let original = task.code(back)?;
    task.set_code(back, break_into(original))?;
    let ended = stepped.go(Resume::Run, at);
    // A task that has ended cannot be changed.
    let removed = task.set_code(back, original);
    ended?;
    removed?;
    task.leave_breakpoint(back)?;
    Ok(back)
}

/// Executes one instruction, or one sequence that cannot be stepped.
fn step<S: Stepped>(stepped: &mut S, at: u64) -> Result<(), S::End> {
    let task = stepped.task();
    let exits = if cfg!(target_arch = "aarch64") {
        // What cannot be read is no sequence.
        exits(task.address()?, |address| {
            task.code(address).map_or(0, |code| code as u32)
        })
    } else {
        Vec::new()
    };
    if exits.is_empty() {
        return stepped.go(Resume::Step, at);
    }
    // Exits may be neighbours, whose words overlap: removed in reverse order, each leaves what it found.
    let mut originals = Vec::new();
    for exit in exits {
        let original = task.code(exit)?;
        originals.push((exit, original));
        task.set_code(exit, break_into(original))?;
    }
    let ended = stepped.go(Resume::Run, at);
    for (exit, original) in originals.into_iter().rev() {
        // A task that has ended cannot be changed.
        let removed = task.set_code(exit, original);
        if ended.is_ok() {
            removed?;
        }
    }
    ended
}

/// Steps to the operation's end; `watch` is called with the address of each instruction before it is executed.
///
/// `None` if the operation executes more than [`ENDLESS`] instructions.
pub fn step_through<S: Stepped>(stepped: &mut S, watch: &mut dyn FnMut(u64)) -> Option<S::End> {
    let vdso = Vdso::default();
    let mut address = match stepped.task().address() {
        Ok(address) => address,
        Err(error) => return Some(error.into()),
    };
    for at in 0..ENDLESS {
        watch(address);
        match advance(stepped, &vdso, at) {
            Ok(next) => address = next,
            Err(end) => return Some(end),
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
    let (task, vdso) = (stepped.task(), Vdso::default());
    let original = task.code(address)?;
    let mut visits = u32::from(task.address()? == address);
    if visits <= visit {
        if visits == 1 {
            advance(stepped, &vdso, at)?;
        }
        loop {
            task.set_code(address, break_into(original))?;
            if let Err(end) = stepped.go(Resume::Run, at) {
                // A task that runs, sleeps or has ended cannot be changed; it does not continue.
                let _ = task.set_code(address, original);
                return Err(end);
            }
            task.set_code(address, original)?;
            task.leave_breakpoint(address)?;
            visits += 1;
            if visits > visit {
                break;
            }
            advance(stepped, &vdso, at)?;
        }
    }
    for _ in 0..round {
        advance(stepped, &vdso, at)?;
    }
    Ok(())
}

/// Steps to a place by the number of instructions before it, without a breakpoint.
///
/// # Errors
/// If the operation ends before.
pub fn step_to<S: Stepped>(stepped: &mut S, place: Place) -> Result<(), S::End> {
    let vdso = Vdso::default();
    for at in 0..place.at {
        advance(stepped, &vdso, at)?;
    }
    Ok(())
}
