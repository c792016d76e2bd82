//! Where the child stops, and where it was killed.
#![allow(unsafe_code)]

/// Marks, in the child, where the operation begins and ends.
#[derive(Debug)]
pub struct Span(pub(super) ());

impl Span {
    /// Runs the operation that is to be stepped through.
    pub fn run<T>(self, operation: impl FnOnce() -> T) -> T {
        stop_here();
        let result = operation();
        stop_here();
        result
    }
}

fn stop_here() {
    // SAFETY: a signal to the own thread, at which the tracer takes over.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Where the child was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Before this instruction of the operation.
    Instruction(u64),
    /// Asleep in a system call, after so many instructions.
    Asleep(u64),
    /// Killed after so many instructions; and then the task that recovered from this death, after so many of its own.
    Twice(u64, u64),
    /// Not killed: the operation ended.
    Finished,
}

impl Point {
    /// How many tasks were killed.
    #[must_use]
    pub fn kills(self) -> u64 {
        match self {
            Self::Finished => 0,
            Self::Instruction(_) | Self::Asleep(_) => 1,
            Self::Twice(..) => 2,
        }
    }
}
