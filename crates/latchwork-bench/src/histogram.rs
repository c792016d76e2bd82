//! Durations: recorded in a sample, and merged over the rounds.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};

use hdrhistogram::Histogram;

use crate::result::{Distribution, Unit};

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
}

/// Durations of a kind, such as waits.
pub(crate) struct Timed {
    pub(crate) durations: Durations,
    /// What they are, in the names of figures.
    pub(crate) of: &'static str,
    /// The unit of their percentiles.
    pub(crate) unit: Unit,
}

/// The durations of several samples. It takes less memory than [`Durations`], since there is one for each row.
pub(crate) struct Merged {
    of: &'static str,
    unit: Unit,
    counts: BTreeMap<u64, u64>,
}

impl Merged {
    /// Adds a sample's durations, which are of the same kind in each sample of a case, to those of earlier samples.
    pub(crate) fn add(merged: &mut Option<Self>, sample: &Timed) {
        let merged = merged.get_or_insert_with(|| Self {
            of: sample.of,
            unit: sample.unit,
            counts: BTreeMap::new(),
        });
        for range in sample.durations.0.iter_recorded() {
            let count = merged.counts.entry(range.value_iterated_to()).or_default();
            *count += range.count_at_value();
        }
    }

    /// The distribution, and its percentiles as figures of a row.
    pub(crate) fn results(&self) -> Option<(Distribution, Vec<(String, f64)>)> {
        let distribution = Distribution::new(self.of, &self.counts)?;
        let (of, unit) = (self.of, self.unit);
        let factor = if unit == Unit::Us { 1000.0 } else { 1.0 };
        let figure = |name: &str, nanoseconds: u64| {
            (format!("{of}_{name}_{unit}"), nanoseconds as f64 / factor)
        };
        let mut figures = vec![
            figure("p50", distribution.p50_ns),
            figure("p90", distribution.p90_ns),
            figure("p99", distribution.p99_ns),
            figure("p999", distribution.p999_ns),
            (
                format!("longest_{of}_us"),
                distribution.longest_ns as f64 / 1000.0,
            ),
        ];
        // Of fewer it would be the longest.
        if distribution.count > 10_000 {
            figures.push(figure("p9999", distribution.p9999_ns));
        }
        Some((distribution, figures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_samples_are_the_same_as_one() {
        let of = |steps: std::ops::Range<u64>| {
            let mut durations = Durations::new().unwrap();
            for step in steps {
                durations.add(step * step);
            }
            Timed {
                durations,
                of: "wait",
                unit: Unit::Us,
            }
        };
        let mut several = None;
        Merged::add(&mut several, &of(0..20_000));
        Merged::add(&mut several, &of(20_000..30_000));
        let mut one = None;
        Merged::add(&mut one, &of(0..30_000));
        let results = [several, one].map(|merged| merged.unwrap().results().unwrap());
        assert_eq!(results[0], results[1]);
        let (distribution, figures) = &results[0];
        let all = of(0..30_000).durations;
        assert_eq!(distribution.count, all.len());
        for (name, figure) in [
            ("wait_p50_us", all.percentile(50.0)),
            ("wait_p90_us", all.percentile(90.0)),
            ("wait_p99_us", all.percentile(99.0)),
            ("wait_p999_us", all.percentile(99.9)),
            ("wait_p9999_us", all.percentile(99.99)),
            ("longest_wait_us", all.longest()),
        ] {
            let named = figures.iter().find(|(known, _)| known == name).unwrap();
            assert_eq!(named.1, figure / 1000.0, "{name}");
        }
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
