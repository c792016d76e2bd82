//! Programs that must end by themselves.

use std::process::{Child, Output};
use std::sync::mpsc;

/// The output that a program has written to its pipes, and its exit status.
///
/// # Panics
/// If it has not ended after the [watchdog's time](crate::Watchdog::patience); it is then killed.
#[allow(unsafe_code)]
pub fn output_of(program: Child) -> Output {
    let pid = program.id();
    let (send, receive) = mpsc::channel();
    let waiter = std::thread::spawn(move || send.send(program.wait_with_output()));
    let output = receive.recv_timeout(crate::Watchdog::patience());
    if output.is_err() {
        // SAFETY: a child of this process, which the other thread has not reaped yet.
        unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
    }
    let _ = waiter.join();
    match output {
        Ok(output) => output.unwrap_or_else(|error| panic!("no output: {error}")),
        Err(_) => panic!("the program hangs"),
    }
}
