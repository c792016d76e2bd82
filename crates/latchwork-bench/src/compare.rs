//! Two runs compared: which rows have become better or worse beyond the spread of their rounds.
//!
//! A row of the first run is compared with the row of the same scenario, contestant and parameters in the second. What
//! is compared is the ratio to the base in the same round, which does not contain the machine's drift; of a row without
//! a ratio, or whose base is one of Latchwork's own (it would hide what both have lost), it is the figure.
//!
//! *The rule.* A row is worse if the ranges of its rounds do not overlap, the second one lies on the worse side, and the
//! medians differ by more than the tolerance (5 % unless given): of two runs of five rounds of the same program, the
//! ranges of one row in 126 do not overlap by chance alone. Rows that other programs disturbed are not compared. The
//! comparison fails if a row of Latchwork's own is worse; rows of others are only counted, since they are not ours to
//! repair. Results of different machines are compared by ratios alone.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::Error;
use crate::result::{Better, Kind, Row, ScenarioResult, Spread};
use crate::table::{print_columns, short};

/// The outcome of a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Rows of ours.
    pub(crate) worse: usize,
    pub(crate) better: usize,
    pub(crate) others: usize,
    pub(crate) within: usize,
    pub(crate) disturbed: usize,
    /// Rows that have nothing in common that can be compared.
    pub(crate) unlike: usize,
    pub(crate) only_first: usize,
    pub(crate) only_second: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Worse,
    Better,
    Within,
}

/// What is compared of two rows.
struct Pair {
    is_ratio: bool,
    first: Spread,
    second: Spread,
    better: Better,
}

/// Compares two files, and prints what is beyond the spread.
pub(crate) fn files(
    first: &Path,
    second: &Path,
    tolerance: f64,
    out: &mut impl Write,
) -> Result<Counts, Error> {
    let [one, other] = [read(first)?, read(second)?];
    compare(&one, &other, tolerance, out).map_err(Error::Output)
}

fn read(path: &Path) -> Result<Vec<ScenarioResult>, Error> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| Error::Read {
        path: path.to_owned(),
        source,
    };
    let text = fs::read_to_string(path).map_err(|error| failed(error.into()))?;
    let results = ScenarioResult::read_all(&text).map_err(|error| failed(error.into()))?;
    match results.is_empty() {
        true => Err(failed("it has no results".into())),
        false => Ok(results),
    }
}

/// Compares two runs, the earlier one first.
pub(crate) fn compare(
    first: &[ScenarioResult],
    second: &[ScenarioResult],
    tolerance: f64,
    out: &mut impl Write,
) -> io::Result<Counts> {
    let mut counts = Counts::default();
    let mut lines = vec![
        [
            "",
            "scenario",
            "contestant",
            "parameters",
            "of",
            "first",
            "second",
            "change",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    let mut common = 0;
    for earlier in first {
        let Some(later) = of(second, &earlier.scenario) else {
            writeln!(out, "  ! {}: only in the first file", earlier.scenario)?;
            continue;
        };
        common += 1;
        notes(earlier, later, out)?;
        for row in &earlier.rows {
            let Some(now) = same(later, row) else {
                counts.only_first += 1;
                continue;
            };
            if row.is_disturbed(earlier.rounds) || now.is_disturbed(later.rounds) {
                counts.disturbed += 1;
                continue;
            }
            let Some(pair) = Pair::new((row, earlier), (now, later)) else {
                counts.unlike += 1;
                continue;
            };
            let change = pair.change(tolerance);
            let count = match (change, is_ours(row)) {
                (Change::Within, _) => &mut counts.within,
                (_, false) => &mut counts.others,
                (Change::Worse, true) => &mut counts.worse,
                (Change::Better, true) => &mut counts.better,
            };
            *count += 1;
            if change != Change::Within {
                lines.push(pair.line(change, row, &earlier.scenario));
            }
        }
        let is_new = |row: &&Row| same(earlier, row).is_none();
        counts.only_second += later.rows.iter().filter(is_new).count();
    }
    for later in second
        .iter()
        .filter(|later| of(first, &later.scenario).is_none())
    {
        writeln!(out, "  ! {}: only in the second file", later.scenario)?;
    }
    if common == 0 {
        writeln!(
            out,
            "  ! the files have no scenario in common: nothing was compared"
        )?;
    }
    if lines.len() > 1 {
        print_columns(&lines, 5, out)?;
        writeln!(out)?;
    }
    print_counts(counts, tolerance, out)?;
    Ok(counts)
}

/// The last result of a scenario, as in a report.
fn of<'a>(results: &'a [ScenarioResult], scenario: &str) -> Option<&'a ScenarioResult> {
    results.iter().rfind(|result| result.scenario == scenario)
}

fn same<'a>(result: &'a ScenarioResult, row: &Row) -> Option<&'a Row> {
    let is_it = |other: &&Row| {
        other.contestant == row.contestant && other.params == row.params && other.unit == row.unit
    };
    result.rows.iter().find(is_it)
}

fn is_ours(row: &Row) -> bool {
    row.contestant.starts_with("latchwork") || row.params.kind == Some(Kind::Coprocs)
}

/// What makes the two results unlike.
fn notes(first: &ScenarioResult, second: &ScenarioResult, out: &mut impl Write) -> io::Result<()> {
    let name = &first.scenario;
    if first.machine != second.machine {
        writeln!(
            out,
            "  ! {name}: the machines differ: only ratios are compared"
        )?;
    }
    if first.base != second.base {
        writeln!(
            out,
            "  ! {name}: the bases differ ('{}', '{}'): only figures are compared",
            first.base, second.base
        )?;
    }
    let is_quick = |result: &ScenarioResult| result.run.as_ref().is_some_and(|run| run.quick);
    if is_quick(first) != is_quick(second) {
        writeln!(
            out,
            "  ! {name}: one of the runs was a quick one, with shorter samples"
        )?;
    }
    Ok(())
}

impl Pair {
    fn new(
        (row, earlier): (&Row, &ScenarioResult),
        (now, later): (&Row, &ScenarioResult),
    ) -> Option<Self> {
        let base_is_ours = earlier.base.starts_with("latchwork");
        let better = row.better;
        if let (Some(first), Some(second)) = (row.ratio, now.ratio)
            && earlier.base == later.base
            && !base_is_ours
        {
            return Some(Self {
                is_ratio: true,
                first,
                second,
                better,
            });
        }
        (earlier.machine == later.machine).then_some(Self {
            is_ratio: false,
            first: row.figure,
            second: now.figure,
            better,
        })
    }

    /// The second median divided by the first.
    fn factor(&self) -> f64 {
        match self.first.median == self.second.median {
            true => 1.0,
            false => self.second.median / self.first.median,
        }
    }

    fn change(&self, tolerance: f64) -> Change {
        let (first, second) = (self.first, self.second);
        let share = (self.factor() - 1.0).abs();
        // Not a number, if a net time was zero.
        if share.is_nan() || share <= tolerance {
            return Change::Within;
        }
        let grown = second.min > first.max;
        let shrunk = second.max < first.min;
        match (self.better, grown, shrunk) {
            (_, false, false) => Change::Within,
            (Better::Lower, true, _) | (Better::Higher, false, _) => Change::Worse,
            (Better::Lower, false, _) | (Better::Higher, true, _) => Change::Better,
        }
    }

    fn line(&self, change: Change, row: &Row, scenario: &str) -> Vec<String> {
        let (word, mark) = match (change, is_ours(row)) {
            (Change::Worse, true) => ("WORSE", ""),
            (Change::Worse, false) => ("worse", ", not ours"),
            (_, true) => ("better", ""),
            (_, false) => ("better", ", not ours"),
        };
        let spread = |spread: Spread| match self.is_ratio {
            true => format!(
                "{:.2} ({:.2} – {:.2})",
                spread.median, spread.min, spread.max
            ),
            false => format!(
                "{} ({} – {})",
                short(spread.median),
                short(spread.min),
                short(spread.max)
            ),
        };
        let of = match self.is_ratio {
            true => "ratio".to_owned(),
            false => row.unit.to_string(),
        };
        let change = format!("{:+.0} %", (self.factor() - 1.0) * 100.0);
        vec![
            format!("{word}{mark}"),
            scenario.to_owned(),
            row.contestant.clone(),
            row.params.to_string(),
            of,
            spread(self.first),
            spread(self.second),
            change,
        ]
    }
}

fn print_counts(counts: Counts, tolerance: f64, out: &mut impl Write) -> io::Result<()> {
    let Counts {
        worse,
        better,
        others,
        within,
        disturbed,
        unlike,
        only_first,
        only_second,
    } = counts;
    writeln!(
        out,
        "{worse} rows of Latchwork are worse and {better} better, beyond the spread and by more than {:.3} %; {others} rows of \
         others changed as much; {within} rows did not",
        tolerance * 100.0
    )?;
    let left_out = [
        (disturbed, "disturbed by other programs"),
        (unlike, "of different machines, without ratios"),
        (only_first, "only in the first file"),
        (only_second, "only in the second file"),
    ];
    for (count, why) in left_out.iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "not compared: {count} rows, {why}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{result, row};

    const TOLERANCE: f64 = 0.05;

    fn run(first: Vec<Row>, second: Vec<Row>) -> (Counts, String) {
        runs(&result("std", first), &result("std", second))
    }

    fn runs(first: &ScenarioResult, second: &ScenarioResult) -> (Counts, String) {
        let mut out = Vec::new();
        let one = std::slice::from_ref(first);
        let counts = compare(one, std::slice::from_ref(second), TOLERANCE, &mut out).unwrap();
        (counts, String::from_utf8(out).unwrap())
    }

    /// A row with these rounds, without a ratio.
    fn spread(contestant: &str, min: f64, median: f64, max: f64) -> Row {
        let mut row = row(contestant, median, None);
        row.figure = Spread { median, min, max };
        row
    }

    #[test]
    fn a_row_is_worse_only_beyond_both_the_spread_and_the_tolerance() {
        let before = spread("latchwork heap", 95.0, 100.0, 105.0);
        for (now, worse, better) in [
            // Overlapping ranges, whatever the medians.
            ((104.0, 150.0, 200.0), 0, 0),
            ((50.0, 60.0, 96.0), 0, 0),
            ((106.0, 130.0, 140.0), 1, 0),
            ((70.0, 80.0, 94.0), 0, 1),
            ((95.0, 100.0, 105.0), 0, 0),
        ] {
            let now = spread("latchwork heap", now.0, now.1, now.2);
            let (counts, text) = run(vec![before.clone()], vec![now]);
            assert_eq!((counts.worse, counts.better), (worse, better), "{text}");
            assert_eq!(counts.within, 1 - worse - better);
            assert_eq!(text.contains("WORSE"), worse == 1, "{text}");
        }
        // Narrow ranges that do not overlap, but hardly differ.
        let narrow = |median: f64| spread("latchwork heap", median, median, median);
        assert_eq!(run(vec![narrow(100.0)], vec![narrow(104.9)]).0.within, 1);
        assert_eq!(run(vec![narrow(100.0)], vec![narrow(105.1)]).0.worse, 1);
    }

    #[test]
    fn of_rates_less_is_worse() {
        let rate = |figure: f64| {
            let mut row = spread("latchwork heap", figure, figure, figure);
            row.better = Better::Higher;
            row
        };
        assert_eq!(run(vec![rate(100.0)], vec![rate(50.0)]).0.worse, 1);
        assert_eq!(run(vec![rate(100.0)], vec![rate(150.0)]).0.better, 1);
    }

    #[test]
    fn ratios_count_where_the_base_is_of_others() {
        // The machine was twice as slow: the ratios are the same.
        let first = vec![
            row("std", 10.0, Some(1.0)),
            row("latchwork heap", 20.0, Some(2.0)),
        ];
        let second = vec![
            row("std", 20.0, Some(1.0)),
            row("latchwork heap", 40.0, Some(2.0)),
        ];
        let counts = run(first.clone(), second.clone()).0;
        assert_eq!((counts.worse, counts.others, counts.within), (0, 0, 2));
        // Ratios to one of ours say nothing about it.
        let of_ours = |rows| result("latchwork heap", rows);
        assert_eq!(runs(&of_ours(first), &of_ours(second)).0.worse, 1);
    }

    #[test]
    fn rows_of_others_do_not_fail_the_comparison() {
        let (counts, text) = run(vec![row("std", 10.0, None)], vec![row("std", 20.0, None)]);
        assert_eq!((counts.worse, counts.others), (0, 1));
        assert!(
            text.contains("worse, not ours") && !text.contains("WORSE"),
            "{text}"
        );
    }

    #[test]
    fn what_cannot_be_compared_is_counted() {
        let mut disturbed = row("latchwork heap", 99.0, None);
        disturbed.extra.insert("disturbed_rounds".into(), 5.0);
        let (counts, text) = run(
            vec![row("latchwork heap", 10.0, None), row("gone", 1.0, None)],
            vec![disturbed, row("new", 1.0, None)],
        );
        assert_eq!(
            (counts.disturbed, counts.only_first, counts.only_second),
            (1, 1, 1)
        );
        assert_eq!(counts.worse, 0);
        assert!(text.contains("not compared: 1 rows, disturbed"), "{text}");

        let mut elsewhere = result("std", vec![row("latchwork heap", 99.0, None)]);
        elsewhere.machine.cpus = 64;
        let (counts, text) = runs(
            &result("std", vec![row("latchwork heap", 10.0, None)]),
            &elsewhere,
        );
        assert_eq!((counts.unlike, counts.worse), (1, 0));
        assert!(text.contains("the machines differ"), "{text}");

        let mut other = result("std", vec![row("latchwork heap", 99.0, None)]);
        other.scenario = "spawn".into();
        let (counts, text) = runs(
            &result("std", vec![row("latchwork heap", 10.0, None)]),
            &other,
        );
        assert_eq!(counts, Counts::default());
        assert!(text.contains("no scenario in common"), "{text}");
    }
}
