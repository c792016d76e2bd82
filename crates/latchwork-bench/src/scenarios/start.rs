//! A barrier at which tasks meet before they begin.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// A barrier for threads, or for processes that share its memory.
#[derive(Default)]
pub(super) struct Start {
    here: AtomicUsize,
    /// Whether one of the tasks will not come.
    broken: AtomicBool,
}

impl Start {
    /// One task cannot begin, so no task will.
    pub(super) fn give_up(&self) {
        // Relaxed, in all of this: nothing else is handed over.
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Waits until so many tasks are here. It sleeps, since a real-time task would otherwise keep the CPU from those
    /// that are still to come.
    pub(super) fn wait_for(&self, tasks: usize) -> io::Result<()> {
        self.here.fetch_add(1, Ordering::Relaxed);
        self.see(tasks, || false)
    }

    /// Waits, without taking part, until so many tasks are here. If one is `lost` before, no task begins.
    pub(super) fn see(&self, tasks: usize, lost: impl Fn() -> bool) -> io::Result<()> {
        while self.here.load(Ordering::Relaxed) < tasks {
            if lost() {
                self.give_up();
            }
            if self.broken.load(Ordering::Relaxed) {
                return Err(io::Error::other("another task could not begin"));
            }
            thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }
}
