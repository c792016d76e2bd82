//! When and how a result was measured.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// When and how a result was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The day on which the measurement began, in UTC: `2026-01-31`.
    pub date: String,
    /// The command that measures the scenario in the same way.
    pub command: String,
    /// The version of Latchwork.
    pub version: String,
    /// The scheduling class of the process that measured.
    pub class: String,
    /// Whether `--quick` was given: fewer cases, and shorter samples.
    pub quick: bool,
    /// Whether the machine is a virtual one, as far as the processor says so (on x86, the flag `hypervisor`).
    pub virtual_machine: bool,
    /// How long the measurement took, in seconds; absent in results of versions that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// The present day, in UTC, as year, month and day.
pub(crate) fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    date(since.map_or(0, |since| since.as_secs()) / 86_400)
}

/// The date of a day, counted from 1970-01-01.
fn date(days: u64) -> String {
    let by = |year: u64, number: u64| year.is_multiple_of(number);
    let is_leap = |year| by(year, 4) && (!by(year, 100) || by(year, 400));
    let (mut year, mut left) = (1970, days);
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_with_leap_years() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (789, "1972-02-29"),
            (11_016, "2000-02-29"),
            (11_322, "2000-12-31"),
            (11_323, "2001-01-01"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(date(days), expected);
        }
    }
}
