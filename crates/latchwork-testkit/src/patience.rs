//! How long a test waits before it reports a hang.

use std::fs::File;
use std::io::Read as _;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A time-out that runs more slowly on a busy machine.
///
/// With `n` runnable tasks for each processor, a second counts as `1 / n` of one, but at least as a tenth. So a test gets
/// about the same processor time whatever else runs. The number is that of the whole system, and
/// [`is_over`](Self::is_over) reads it from `/proc/loadavg`, at most once a second; without that file, time counts in full.
#[derive(Debug)]
pub struct Patience {
    left: Duration,
    looked: Instant,
}

impl Patience {
    /// As long as `LATCHWORK_WATCHDOG` says, in seconds, or 120 s.
    #[must_use]
    pub fn new() -> Self {
        Self {
            left: Self::whole(),
            looked: Instant::now(),
        }
    }

    pub(crate) fn whole() -> Duration {
        // Read once: the environment's lock must be free when another thread forks.
        static WHOLE: OnceLock<Duration> = OnceLock::new();
        *WHOLE.get_or_init(|| {
            let text = std::env::var("LATCHWORK_WATCHDOG").ok();
            let seconds = text.and_then(|text| text.parse().ok()).unwrap_or(120);
            Duration::from_secs(seconds)
        })
    }

    /// The interval between two calls of [`is_over`](Self::is_over).
    pub(crate) fn between_looks() -> Duration {
        Duration::from_secs(1).min(Self::whole() / 8)
    }

    /// Counts the time since the last look, and returns whether none is left.
    ///
    /// A call counts at most two intervals: a process that was stopped, or got no processor, could make no progress.
    pub fn is_over(&mut self) -> bool {
        let now = Instant::now();
        let passed = now - self.looked;
        if passed >= Self::between_looks() {
            self.looked = now;
            self.count(passed, crowd());
        }
        self.left.is_zero()
    }

    fn count(&mut self, passed: Duration, crowd: f64) {
        let passed = passed.min(2 * Self::between_looks());
        self.left = self.left.saturating_sub(passed.div_f64(crowd));
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::new()
    }
}

/// How many tasks can run, in the whole system, for each processor of this process.
fn crowd() -> f64 {
    // Without an allocation: the calling thread may run beside a raw clone, whose child inherits the allocator's locks.
    let mut text = [0; 64];
    let read = File::open("/proc/loadavg").and_then(|mut file| file.read(&mut text));
    let text = str::from_utf8(&text[..read.unwrap_or(0)]).unwrap_or_default();
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    let processors = || std::thread::available_parallelism().map_or(1, |count| count.get());
    crowd_of(text, *PROCESSORS.get_or_init(processors))
}

fn crowd_of(load: &str, processors: usize) -> f64 {
    // The fourth field is "runnable/all".
    let field = load.split(' ').nth(3).unwrap_or_default();
    let runnable = field.split('/').next().and_then(|text| text.parse().ok());
    (runnable.unwrap_or(1.0) / processors as f64).clamp(1.0, 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_more_slowly_beside_others_and_never_faster() {
        let beside = |runnable: u32| crowd_of(&format!("6.31 3.73 4.10 {runnable}/96 264\n"), 2);
        assert_eq!([0, 1, 2].map(beside), [1.0; 3]);
        assert_eq!([3, 10].map(beside), [1.5, 5.0]);
        assert_eq!([20, 4000].map(beside), [10.0; 2]);
        assert_eq!(
            ["", "nothing", "0 0 0 x/y 1"].map(|text| crowd_of(text, 2)),
            [1.0; 3]
        );
    }

    #[test]
    fn a_process_that_was_stopped_is_not_taken_for_one_that_hangs() {
        let interval = Patience::between_looks();
        let mut patience = Patience {
            left: interval * 3,
            looked: Instant::now(),
        };
        patience.count(interval * 100, 1.0);
        assert_eq!(patience.left, interval);
    }

    #[test]
    fn patience_ends() {
        let mut patience = Patience {
            left: Duration::from_millis(1),
            looked: Instant::now(),
        };
        while !patience.is_over() {
            std::thread::yield_now();
        }
        assert!(patience.is_over());
    }
}
