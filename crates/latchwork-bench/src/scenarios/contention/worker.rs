//! What one of the contending tasks does: its critical sections, and the measurement of its waits.

use std::fs::File;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::histogram::Durations;

/// The work of one task besides locking.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// Pauses in a critical section.
    pub(crate) load: u32,
    /// How many of 1,024 sections sleep for a microsecond instead.
    pub(crate) sleeps: u32,
}

/// A task's state between critical sections.
pub(crate) struct Worker<W> {
    work: Work,
    dice: u32,
    pub(super) slept: u64,
    pub(super) timer: W,
}

impl<W: WaitTimer> Worker<W> {
    pub(super) fn new(work: Work, number: u32, timer: W) -> Self {
        Self {
            work,
            dice: number.wrapping_mul(0x9e37_79b9) | 1,
            slept: 0,
            timer,
        }
    }

    /// A random number below `sides`, which is at most 65,536; a new one in each section.
    #[inline]
    pub(crate) fn roll(&mut self, sides: u32) -> u32 {
        self.dice = self
            .dice
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        // The upper bits, since the lower ones have short periods.
        ((self.dice >> 16) * sides) >> 16
    }

    /// Calls `lock`, and measures how long it takes.
    #[inline]
    pub(crate) fn wait<T>(&mut self, lock: impl FnOnce() -> T) -> T {
        self.timer.time(lock)
    }

    /// The work of a critical section.
    #[inline]
    pub(crate) fn section(&mut self) {
        if self.work.sleeps > 0 && self.roll(1024) < self.work.sleeps {
            self.slept += 1;
            thread::sleep(Duration::from_micros(1));
        } else {
            pause(self.work.load);
        }
    }
}

#[inline]
pub(super) fn pause(times: u32) {
    for _ in 0..times {
        std::hint::spin_loop();
    }
}

/// Measures how long a task waits, or does not.
pub(crate) trait WaitTimer {
    fn time<T>(&mut self, wait: impl FnOnce() -> T) -> T;

    /// Passes the result to the measuring process, at the task's end.
    fn leave(self) -> io::Result<()>;
}

/// Measures nothing.
pub(super) struct Untimed;

impl WaitTimer for Untimed {
    #[inline]
    fn time<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        wait()
    }

    fn leave(self) -> io::Result<()> {
        Ok(())
    }
}

/// Measures how long waits take.
pub(super) struct Stopwatch<'a> {
    pub(super) waits: Durations,
    /// A file without a name, which a forked task shares.
    pub(super) log: &'a File,
}

impl WaitTimer for Stopwatch<'_> {
    #[inline]
    fn time<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = wait();
        self.waits.add(begun.elapsed().as_nanos() as u64);
        result
    }

    fn leave(self) -> io::Result<()> {
        self.waits.write_to(self.log)
    }
}

/// What all tasks do under a lock.
pub(crate) trait Turn: Sync {
    /// Whether the lock is Latchwork's.
    const OURS: bool = false;

    /// Checks, in each task, whether it can take turns.
    fn begin(&self) -> io::Result<()> {
        Ok(())
    }

    /// Waits for the lock, does a section's work, unlocks.
    fn turn<W: WaitTimer>(&self, worker: &mut Worker<W>);
}
