//! How long a test waits before it takes a hang for certain.

use std::time::{Duration, Instant};

/// Time that passes more slowly while more tasks want to run than there are processors.
///
/// Beside `n` tasks a processor that can run, a second counts as `1 / n` of one, at least as a tenth: what a test needs in
/// processor time does not depend on what else the machine does. The number is that of the whole system, in
/// `/proc/loadavg`, at the moment of each [look](Self::is_over); without that file, each second counts.
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
        let text = std::env::var("LATCHWORK_WATCHDOG").ok();
        let seconds = text.and_then(|text| text.parse().ok()).unwrap_or(120);
        Duration::from_secs(seconds)
    }

    /// How often to look: each look stands for the time since the one before.
    pub(crate) fn between_looks() -> Duration {
        Duration::from_secs(1).min(Self::whole() / 8)
    }

    /// Counts the time since the last look, and returns whether none is left.
    ///
    /// A look counts at most two seconds: a process that was stopped, or had no processor for long, was not waiting.
    pub fn is_over(&mut self) -> bool {
        let now = Instant::now();
        let passed = (now - self.looked).min(2 * Self::between_looks());
        self.looked = now;
        self.left = self.left.saturating_sub(passed.div_f64(crowd()));
        self.left.is_zero()
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::new()
    }
}

/// How many tasks can run, in the whole system, for each processor of this process.
fn crowd() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    crowd_of(&text, processors)
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
        let left = Patience::between_looks() * 3;
        let looked = Instant::now() - left;
        assert!(!Patience { left, looked }.is_over());
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
