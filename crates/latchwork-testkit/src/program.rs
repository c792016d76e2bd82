//! Programs that must end by themselves.

use crate::Patience;
use std::process::{Child, Output};
use std::sync::mpsc::{self, Receiver};

/// The output that a program has written to its pipes, and its exit status.
///
/// # Panics
/// If it has not ended when the [`Patience`] is over; it is then killed.
#[allow(unsafe_code)]
pub fn output_of(program: Child) -> Output {
    let pid = program.id();
    let (send, receive) = mpsc::channel();
    let waiter = std::thread::spawn(move || send.send(program.wait_with_output()));
    let output = receive_patiently(&receive);
    if output.is_none() {
        // SAFETY: a child of this process, which the other thread has not reaped yet.
        unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
    }
    let _ = waiter.join();
    match output {
        Some(output) => output.unwrap_or_else(|error| panic!("no output: {error}")),
        None => panic!("the program hangs"),
    }
}

/// What another thread sends, if it sends something before the [`Patience`] is over.
pub fn receive_patiently<T>(receiver: &Receiver<T>) -> Option<T> {
    let mut patience = Patience::new();
    loop {
        match receiver.recv_timeout(Patience::between_looks()) {
            Err(mpsc::RecvTimeoutError::Timeout) if !patience.is_over() => {}
            received => return received.ok(),
        }
    }
}
