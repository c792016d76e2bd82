//! Ends a test that hangs, and says what everybody was doing.

use crate::{child, leftover};
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Aborts the process when there was no [progress](Self::progress) for a long time.
///
/// Its patience says nothing about speed: it is far beyond what a test needs on a busy machine.
#[derive(Debug)]
pub struct Watchdog {
    progress: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches from now on until it is dropped.
    ///
    /// # Panics
    /// If no thread can be started.
    #[must_use]
    pub fn start(message: String) -> Self {
        let seconds = std::env::var("LATCHWORK_WATCHDOG")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(120);
        let patience = Duration::from_secs(seconds);
        let (progress, signs) = channel();
        let watch = move || {
            loop {
                match signs.recv_timeout(patience) {
                    // However many signs there were: only silence counts.
                    Ok(()) => while signs.try_recv().is_ok() {},
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => bite(&message, seconds),
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(watch)
            .expect("a thread for the watchdog");
        Self {
            progress: Some(progress),
            thread: Some(thread),
        }
    }

    /// The test is not hanging.
    pub fn progress(&self) {
        if let Some(progress) = &self.progress {
            let _ = progress.send(());
        }
    }
}

fn bite(message: &str, seconds: u64) -> ! {
    let mut out = format!("\nWATCHDOG: no progress for {seconds} s: {message}\n");
    let me = std::process::id();
    let tasks = std::fs::read_dir(format!("/proc/{me}/task"))
        .into_iter()
        .flatten()
        .flatten();
    for task in tasks {
        out += &describe("thread", &task.path().to_string_lossy());
    }
    for pid in child::living() {
        out += &describe("child", &format!("/proc/{pid}"));
    }
    let _ = std::io::stderr().write_all(out.as_bytes());
    if std::env::var_os("LATCHWORK_WATCHDOG_HOLD").is_some() {
        // For a debugger.
        loop {
            std::thread::park();
        }
    }
    child::kill_all();
    leftover::remove_all();
    std::process::abort()
}

/// State, what it sleeps in, and the system call (for a futex: its address) of a task.
fn describe(kind: &str, directory: &str) -> String {
    let read =
        |file: &str| std::fs::read_to_string(format!("{directory}/{file}")).unwrap_or_default();
    let stat = read("stat");
    let state: String = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .trim_start()
        .chars()
        .take(1)
        .collect();
    format!(
        "  {kind} {directory} ({}) state {state}, in {}, syscall {}\n",
        read("comm").trim(),
        read("wchan").trim(),
        read("syscall").trim()
    )
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.progress = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
