//! Programs that tests start.

use crate::Patience;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
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

/// Writes a program. A process of its own does: if this one did, a program that another test starts at that moment would
/// have the file open for writing, and the kernel would not execute it.
///
/// # Panics
/// If the file cannot be written.
pub fn write_program(path: &Path, contents: &[u8]) {
    let mut shell = Command::new("sh")
        .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut input = shell.stdin.take().expect("a pipe");
    input.write_all(contents).expect("the shell reads it");
    drop(input);
    assert!(shell.wait().expect("the shell ends").success());
}
