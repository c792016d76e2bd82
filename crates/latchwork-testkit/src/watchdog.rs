//! Ends a test that hangs, and prints what each task was doing.

use crate::{Patience, child, leftover};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// Aborts the process when there was no [progress](Self::progress) until the [`Patience`] was over.
///
/// The time-out says nothing about speed: it is far beyond what a test needs.
///
/// A sign of progress is a single addition, which never blocks. A channel would not do: in some tests the callers have
/// real-time priorities, and could wait in it for ever for a sender of lower priority that they keep from the
/// processor.
#[derive(Debug)]
pub struct Watchdog {
    signs: Arc<Signs>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Signs {
    has_begun: AtomicBool,
    progress: AtomicU64,
    is_over: AtomicBool,
}

impl Watchdog {
    /// Watches until it is dropped.
    ///
    /// # Panics
    /// If no thread can be started.
    #[must_use]
    pub fn start(message: String) -> Self {
        let signs = Arc::new(Signs::default());
        let seen = Arc::clone(&signs);
        let mut patience = Patience::new();
        let watch = move || {
            seen.has_begun.store(true, Relaxed);
            let mut last = 0;
            // Relaxed, here and below: nothing else depends on a sign, and `unpark` ends the sleep.
            while !seen.is_over.load(Relaxed) {
                std::thread::park_timeout(Patience::between_looks());
                let progress = seen.progress.load(Relaxed);
                if progress != last {
                    (last, patience) = (progress, Patience::new());
                } else if patience.is_over() && !seen.is_over.load(Relaxed) {
                    bite(&message);
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(watch)
            .expect("a thread for the watchdog");
        // A thread that starts has a lock of std's for a moment. In a child forked meanwhile no thread could start.
        let mut start = Patience::new();
        while !signs.has_begun.load(Relaxed) {
            assert!(
                !start.is_over(),
                "a thread does not start: this child was forked while another started"
            );
            std::thread::sleep(Duration::from_micros(20));
        }
        Self {
            signs,
            thread: Some(thread),
        }
    }

    /// Reports that the test does not hang.
    pub fn progress(&self) {
        self.signs.progress.fetch_add(1, Relaxed);
    }
}

fn bite(message: &str) -> ! {
    let seconds = Patience::whole().as_secs();
    let mut out = format!(
        "\nWATCHDOG: no progress for {seconds} s, or longer on a busy machine: {message}\n"
    );
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
        // Waits for a debugger.
        loop {
            std::thread::park();
        }
    }
    child::kill_all();
    leftover::remove_all();
    std::process::abort()
}

/// The state of a task, what it sleeps in, and its system call (for a futex, its address).
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
        self.signs.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
