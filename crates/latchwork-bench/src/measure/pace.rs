//! How many iterations make a sample of the wanted length.

use std::io;
use std::time::{Duration, Instant};

/// The most doublings, whatever the clock says.
const MOST_DOUBLINGS: u32 = 40;

/// The length of a sample, as a number of iterations: determined at its first use, and raised if it proves too small.
pub(crate) struct Pace {
    target: Duration,
    iterations: u64,
}

impl Pace {
    pub(crate) fn new(target: Duration) -> Self {
        Self {
            target,
            iterations: 0,
        }
    }

    /// Nanoseconds per iteration of `timed`, which executes the given number and returns the elapsed time.
    pub(crate) fn ns<E>(
        &mut self,
        mut timed: impl FnMut(u64) -> Result<Duration, E>,
    ) -> Result<f64, E> {
        if self.iterations == 0 {
            self.iterations = iterations_for(self.target, &mut timed)?;
        }
        let mut elapsed = timed(self.iterations)?;
        // The calibration was interrupted and gave far too few: then the measurement would be that of the clock.
        for _ in 0..MOST_DOUBLINGS {
            if elapsed * 2 >= self.target {
                break;
            }
            self.iterations = self.iterations.saturating_mul(2);
            elapsed = timed(self.iterations)?;
        }
        Ok(elapsed.as_nanos() as f64 / self.iterations as f64)
    }

    /// Nanoseconds per call of `work`.
    pub(crate) fn ns_per_call(
        &mut self,
        mut work: impl FnMut() -> io::Result<()>,
    ) -> io::Result<f64> {
        self.ns(|iterations| time(iterations, &mut work))
    }
}

/// Kept out of line, so that the loop's code does not depend on what surrounds it.
#[inline(never)]
fn time(iterations: u64, work: &mut impl FnMut() -> io::Result<()>) -> io::Result<Duration> {
    let started = Instant::now();
    for _ in 0..iterations {
        work()?;
    }
    Ok(started.elapsed())
}

/// Determines how many iterations take about `target`. This also warms up caches and predictors. The shorter of two
/// trials counts, since the other may have been interrupted.
fn iterations_for<E>(
    target: Duration,
    timed: &mut impl FnMut(u64) -> Result<Duration, E>,
) -> Result<u64, E> {
    let mut iterations = 1_u64;
    loop {
        let mut elapsed = timed(iterations)?;
        if elapsed * 8 >= target {
            elapsed = elapsed.min(timed(iterations)?);
        }
        if elapsed * 8 >= target {
            let per_iteration = elapsed.as_nanos() as f64 / iterations as f64;
            return Ok((target.as_nanos() as f64 / per_iteration).max(1.0) as u64);
        }
        iterations *= 2;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn calibration_finds_the_iterations_that_fill_the_target() {
        let mut pace = Pace::new(Duration::from_millis(30));
        let ns = pace
            .ns(|iterations| Ok::<_, Infallible>(Duration::from_nanos(iterations * 20)))
            .unwrap();
        assert_eq!(ns, 20.0);
        assert_eq!(pace.iterations, 1_500_000);

        let mut slow = Pace::new(Duration::from_millis(30));
        slow.ns(|iterations| Ok::<_, Infallible>(Duration::from_secs(iterations)))
            .unwrap();
        assert_eq!(slow.iterations, 1);
    }

    /// One of the first calls is interrupted for a second, without an effect on the result.
    #[test]
    fn an_interruption_while_calibrating_leaves_no_tiny_sample() {
        for interrupted in 0..20 {
            let mut pace = Pace::new(Duration::from_millis(30));
            let (mut calls, mut last) = (0, 0);
            for round in 0..2 {
                let ns = pace.ns(|iterations| {
                    let stop = Duration::from_secs(u64::from(calls == interrupted));
                    (calls, last) = (calls + 1, iterations);
                    Ok::<_, Infallible>(Duration::from_nanos(iterations * 20) + stop)
                });
                assert!(calls > interrupted, "it is one of the first sample's calls");
                assert!(last >= 750_000, "{interrupted}: {last} in round {round}");
                assert_eq!(ns.unwrap(), 20.0, "{interrupted}, round {round}");
            }
        }
    }

    #[test]
    fn a_clock_that_does_not_advance_ends_calibration() {
        let mut pace = Pace::new(Duration::from_millis(30));
        pace.iterations = 1;
        let ns = pace.ns(|_| Ok::<_, Infallible>(Duration::ZERO)).unwrap();
        assert_eq!(ns, 0.0);
    }
}
