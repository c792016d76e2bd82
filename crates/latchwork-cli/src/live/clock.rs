//! How long a thread has slept.
//!
//! This is how long it has waited, unless it woke up and slept again for the same thing. A thread that sleeps with a
//! time limit usually does so, and a waiter of a robust lock does so each second. Unless the program is checked,
//! neither the kernel nor the program records since when it waits. So the time is shown as a lower bound; the time over
//! which repeated views have seen the wait is shown beside it (see `observer.rs`).
//!
//! The scheduler records when it last charged a thread for its time, by the clock of the processor on which the thread
//! ran. These clocks omit the time that interrupts and a hypervisor took, each its own, and drift apart by seconds. So
//! a thread of this program visits each processor concerned, just long enough to read its own record there. It does not
//! wait for a processor that is busy with more urgent work, and avoids isolated processors.

use super::thread::Thread;
use rustix::thread::CpuSet;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// The time limit for all processors together.
const READ_TIMEOUT: Duration = Duration::from_millis(50);

/// The readings of the processors' clocks, in milliseconds.
#[derive(Debug)]
pub(super) struct Clocks(HashMap<usize, f64>);

impl Clocks {
    /// Reads those clocks that can be read.
    pub(super) fn of(processors: BTreeSet<usize>) -> Self {
        let apart = set_apart();
        let (sender, answers) = mpsc::channel();
        let mut asked = 0;
        for processor in processors.difference(&apart).copied() {
            // A processor whose last reading has not finished is not asked again before it has.
            if !unfinished_reads().insert(processor) {
                continue;
            }
            let sender = sender.clone();
            let read = move || {
                let time = read_at(processor);
                unfinished_reads().remove(&processor);
                let _ = sender.send((processor, time));
            };
            match std::thread::Builder::new().spawn(read) {
                Ok(_) => asked += 1,
                Err(_) => _ = unfinished_reads().remove(&processor),
            }
        }
        let limit = Instant::now() + READ_TIMEOUT;
        let answer = |_| {
            let left = limit.saturating_duration_since(Instant::now());
            answers.recv_timeout(left).ok()
        };
        let readings = (0..asked).map_while(answer);
        Self(
            readings
                .filter_map(|(processor, time)| Some((processor, time?)))
                .collect(),
        )
    }

    /// How long ago a thread last ran.
    pub(super) fn since_it_ran(&self, pid: u32, thread: &Thread) -> Option<Duration> {
        let now = self.0.get(&thread.processor)?;
        let last = last_charged(&format!("/proc/{pid}/task/{}/sched", thread.tid))?;
        Duration::try_from_secs_f64((now - last).max(0.0) / 1e3).ok()
    }
}

/// Processors that a reading thread is on, or would be on if they had time for it.
fn unfinished_reads() -> MutexGuard<'static, BTreeSet<usize>> {
    static LOOKS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
    LOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The clock of a processor, read from the record of a thread that has just moved there.
fn read_at(processor: usize) -> Option<f64> {
    if processor >= CpuSet::MAX_CPU {
        return None;
    }
    let mut there = CpuSet::new();
    there.set(processor);
    rustix::thread::sched_setaffinity(None, &there).ok()?;
    last_charged("/proc/thread-self/sched")
}

/// When a thread was last charged, in milliseconds.
fn last_charged(path: &str) -> Option<f64> {
    let text = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text
        .lines()
        .find(|line| line.starts_with("se.exec_start"))?;
    let value: f64 = line.rsplit(':').next()?.trim().parse().ok()?;
    // A thread that was never charged has 0.
    (value.is_finite() && value > 0.0).then_some(value)
}

/// Processors that are isolated from ordinary work.
fn set_apart() -> BTreeSet<usize> {
    ["isolated", "nohz_full"]
        .into_iter()
        .filter_map(|name| fs::read_to_string(format!("/sys/devices/system/cpu/{name}")).ok())
        .flat_map(|list| processors(list.trim()))
        .collect()
}

/// `1-3,7` as numbers.
fn processors(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let last: usize = last.parse().ok()?;
        Some(first.parse().ok()?..=last.min(CpuSet::MAX_CPU))
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_and_bounded() {
        assert_eq!(processors("1-3,7"), [1, 2, 3, 7]);
        assert!(processors("(null)").is_empty());
        assert_eq!(processors("5-99999999999").last(), Some(&CpuSet::MAX_CPU));
    }
}
