//! The durations of a row, of all rounds together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The durations that the samples of a row recorded, merged over all rounds, so that a long one counts even if it
/// occurred in one round only. They have a precision of three digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// What the durations are, such as `wait` or `interval`.
    pub of: String,
    /// How many there are.
    pub count: u64,
    /// The median, in nanoseconds.
    pub p50_ns: u64,
    /// The duration that 90 % do not exceed, in nanoseconds.
    pub p90_ns: u64,
    /// The duration that 99 % do not exceed, in nanoseconds.
    pub p99_ns: u64,
    /// The duration that 99.9 % do not exceed, in nanoseconds.
    pub p999_ns: u64,
    /// The duration that 99.99 % do not exceed, in nanoseconds.
    pub p9999_ns: u64,
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
    /// The histogram: ten bins for each power of ten, the shortest durations first; empty bins are omitted.
    pub bins: Vec<Bin>,
}

/// The durations between two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// The durations are longer than this, in nanoseconds; in the first bin of all, 0 is included.
    pub above_ns: u64,
    /// They are at most so long, in nanoseconds.
    pub up_to_ns: u64,
    /// How many there are.
    pub count: u64,
}

/// The bounds within a power of ten: preferred numbers, evenly spaced on a logarithmic axis.
const BOUNDS: [u64; 10] = [100, 125, 160, 200, 250, 315, 400, 500, 630, 800];

impl Bin {
    /// The empty bin of a duration.
    fn of(nanoseconds: u64) -> Self {
        let mut bin = Self {
            above_ns: 0,
            up_to_ns: 0,
            count: 0,
        };
        // From 10 ns on.
        let mut power = 1;
        loop {
            for bound in BOUNDS {
                bin.above_ns = bin.up_to_ns;
                bin.up_to_ns = bound.saturating_mul(power) / 10;
                if nanoseconds <= bin.up_to_ns || bin.up_to_ns >= u64::MAX / 10 {
                    return bin;
                }
            }
            power *= 10;
        }
    }
}

impl Distribution {
    /// The distribution of durations in nanoseconds, each with its count; `None` if there are none.
    pub(crate) fn new(of: &str, durations: &BTreeMap<u64, u64>) -> Option<Self> {
        let count: u64 = durations.values().sum();
        let (&longest_ns, _) = durations.last_key_value()?;
        let mut bins: Vec<Bin> = Vec::new();
        for (&nanoseconds, &count) in durations {
            let bin = Bin::of(nanoseconds);
            match bins.last_mut() {
                Some(last) if last.up_to_ns == bin.up_to_ns => last.count += count,
                _ => bins.push(Bin { count, ..bin }),
            }
        }
        // The shortest duration that so many of 10,000 do not exceed.
        let share = |of_10_000: u64| {
            let rank = (u128::from(count) * u128::from(of_10_000)).div_ceil(10_000);
            let mut below = 0;
            let mut sorted = durations.iter();
            let reached = sorted.find(|(_, count)| {
                below += u128::from(**count);
                below >= rank
            });
            reached.map_or(longest_ns, |(nanoseconds, _)| *nanoseconds)
        };
        Some(Self {
            of: of.to_owned(),
            count,
            p50_ns: share(5_000),
            p90_ns: share(9_000),
            p99_ns: share(9_900),
            p999_ns: share(9_990),
            p9999_ns: share(9_999),
            longest_ns,
            bins,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_one_bin() {
        let durations = [0, 1, 9, 10, 11, 100, 101, 125, 126, 1_000_000, u64::MAX];
        let all = BTreeMap::from(durations.map(|nanoseconds| (nanoseconds, 3)));
        let distribution = Distribution::new("wait", &all).unwrap();
        let count: u64 = distribution.bins.iter().map(|bin| bin.count).sum();
        assert_eq!((count, distribution.count), (33, 33));
        let of = |nanoseconds| {
            let bin = Bin::of(nanoseconds);
            (bin.above_ns, bin.up_to_ns)
        };
        assert_eq!(of(0), (0, 10));
        assert_eq!(of(10), (0, 10));
        assert_eq!(of(11), (10, 12));
        assert_eq!(of(100), (80, 100));
        assert_eq!(of(101), (100, 125));
        assert_eq!(of(126), (125, 160));
        assert_eq!(of(1_000_000), (800_000, 1_000_000));
        for bin in &distribution.bins {
            assert!(bin.above_ns < bin.up_to_ns, "{bin:?}");
        }
    }

    #[test]
    fn percentiles_are_durations_that_occurred() {
        let mut durations = BTreeMap::from([(20, 9_989), (300, 10), (5_000_000, 1)]);
        let of = |durations: &BTreeMap<u64, u64>| Distribution::new("wait", durations).unwrap();
        let distribution = of(&durations);
        assert_eq!((distribution.p50_ns, distribution.p99_ns), (20, 20));
        assert_eq!((distribution.p999_ns, distribution.p9999_ns), (300, 300));
        assert_eq!(distribution.longest_ns, 5_000_000);
        durations.insert(300, 2_000);
        assert_eq!(of(&durations).p90_ns, 300);
        assert_eq!(of(&BTreeMap::from([(7, 1)])).p50_ns, 7);
        assert_eq!(Distribution::new("wait", &BTreeMap::new()), None);
    }
}
