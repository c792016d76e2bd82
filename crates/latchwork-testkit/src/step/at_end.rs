//! A thread that is held at its end.
#![allow(unsafe_code)]

use latchwork_step::Task;
use std::io::Error;

/// A thread of another process that stops when it is about to end: before the kernel walks its robust list.
///
/// If its process is killed, the other threads end meanwhile. This one ends when the value is dropped.
#[derive(Debug)]
pub struct AtEnd(Task);

impl AtEnd {
    /// The calling thread traces the thread from now on; `None` if that is forbidden.
    #[must_use]
    pub fn hold(thread: u32) -> Option<Self> {
        seize(thread as i32, libc::PTRACE_O_TRACEEXIT).map(Self)
    }

    /// Waits until it has stopped.
    ///
    /// # Panics
    /// If it ends without a stop.
    pub fn wait(&self) {
        let mut status = 0;
        // SAFETY: waits for a task that this thread traces, and writes a local variable.
        let waited = unsafe { libc::waitpid(self.0.0, &raw mut status, libc::__WALL) };
        assert_eq!(waited, self.0.0, "waitpid: {}", Error::last_os_error());
        let stop = libc::SIGTRAP | libc::PTRACE_EVENT_EXIT << 8;
        assert_eq!(status >> 8, stop, "a thread that was to stop at its end");
    }
}

/// Lets it end.
impl Drop for AtEnd {
    fn drop(&mut self) {
        let _ = self.0.detach();
    }
}

/// The calling thread traces the task from now on, which runs on; `None` if that is forbidden.
pub(super) fn seize(task: i32, options: i32) -> Option<Task> {
    // SAFETY: changes nothing in this process; the last two arguments are an unused address and the options.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, task, 0_usize, options as usize) };
    if seized != 0 {
        println!("skipped: ptrace: {}", Error::last_os_error());
    }
    (seized == 0).then_some(Task(task))
}
