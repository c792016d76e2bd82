//! A histogram of durations, and the summary of it in a result.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};

use hdrhistogram::Histogram;

/// The bounds that results name, in nanoseconds; longer durations count to the last.
const BOUNDS: [(&str, u64); 22] = [
    ("histogram_100_ns", 100),
    ("histogram_200_ns", 200),
    ("histogram_500_ns", 500),
    ("histogram_1_us", 1_000),
    ("histogram_2_us", 2_000),
    ("histogram_5_us", 5_000),
    ("histogram_10_us", 10_000),
    ("histogram_20_us", 20_000),
    ("histogram_50_us", 50_000),
    ("histogram_100_us", 100_000),
    ("histogram_200_us", 200_000),
    ("histogram_500_us", 500_000),
    ("histogram_1_ms", 1_000_000),
    ("histogram_2_ms", 2_000_000),
    ("histogram_5_ms", 5_000_000),
    ("histogram_10_ms", 10_000_000),
    ("histogram_20_ms", 20_000_000),
    ("histogram_50_ms", 50_000_000),
    ("histogram_100_ms", 100_000_000),
    ("histogram_200_ms", 200_000_000),
    ("histogram_500_ms", 500_000_000),
    ("histogram_1_s", u64::MAX),
];

/// The longest duration that is distinguished from longer ones: 60 s.
const LONGEST: u64 = 60_000_000_000;

/// Durations in nanoseconds, with a precision of three digits.
pub(crate) struct Durations(Histogram<u64>);

impl Durations {
    pub(crate) fn new() -> io::Result<Self> {
        let empty = Histogram::new_with_bounds(1, LONGEST, 3).map_err(io::Error::other)?;
        Ok(Self(empty))
    }

    #[inline]
    pub(crate) fn add(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds);
    }

    pub(crate) fn merge(&mut self, other: &Self) -> io::Result<()> {
        self.0.add(&other.0).map_err(io::Error::other)
    }

    /// Writes the durations, for [`merge_from`](Self::merge_from), which another process may call.
    pub(crate) fn write_to(&self, to: impl Write) -> io::Result<()> {
        let mut to = BufWriter::new(to);
        for range in self.0.iter_recorded() {
            to.write_all(&range.value_iterated_to().to_ne_bytes())?;
            to.write_all(&range.count_at_value().to_ne_bytes())?;
        }
        to.flush()
    }

    /// Adds the written durations, up to the end of `from`.
    pub(crate) fn merge_from(&mut self, from: impl Read) -> io::Result<()> {
        let mut from = BufReader::new(from);
        let mut pair = [[0; 8]; 2];
        while !from.fill_buf()?.is_empty() {
            from.read_exact(pair.as_flattened_mut())?;
            let [nanoseconds, count] = pair.map(u64::from_ne_bytes);
            self.0.saturating_record_n(nanoseconds, count);
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    /// The duration in nanoseconds that `per_cent` per cent of all do not exceed.
    pub(crate) fn percentile(&self, per_cent: f64) -> f64 {
        self.0.value_at_percentile(per_cent) as f64
    }

    /// The longest, in nanoseconds.
    pub(crate) fn longest(&self) -> f64 {
        self.0.max() as f64
    }

    /// The count in each range, by the ranges' names in results.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let mut below = 0;
        BOUNDS.into_iter().map(move |(name, bound)| {
            let count = self.0.count_between(below, bound.min(LONGEST));
            below = bound.saturating_add(1);
            (name, count as f64)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_one_range() {
        let mut durations = Durations::new().unwrap();
        // Far from the bounds, where a precision of three digits might change the range.
        for nanoseconds in [0, 50, 150, 1_500_000, 900_000_000, u64::MAX] {
            durations.add(nanoseconds);
        }
        let of = |name| durations.ranges().find(|range| range.0 == name).unwrap().1;
        assert_eq!(of("histogram_100_ns"), 2.0);
        assert_eq!(of("histogram_200_ns"), 1.0);
        assert_eq!(of("histogram_2_ms"), 1.0);
        assert_eq!(of("histogram_1_s"), 2.0);
        let all: f64 = durations.ranges().map(|(_, count)| count).sum();
        assert_eq!(all, durations.len() as f64);
    }

    #[test]
    fn results_survive_writing_and_reading() {
        let mut durations = Durations::new().unwrap();
        for step in 0..50_000 {
            durations.add(step * step);
        }
        durations.add(u64::MAX);
        let mut written = Vec::new();
        durations.write_to(&mut written).unwrap();
        let mut read = Durations::new().unwrap();
        read.merge_from(&written[..]).unwrap();
        assert_eq!(read.0, durations.0);

        written.pop();
        assert!(read.merge_from(&written[..]).is_err());
    }
}
