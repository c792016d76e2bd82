//! How a figure is measured: calibrated samples, taken in interleaved rounds, and their statistics.
//!
//! Each case takes one sample in each round. The cases of one group (contestants with the same parameters) run one
//! after another, so that a disturbance of the machine affects all of them and the ratio within a round stays
//! meaningful. A different case of the group begins in each round, so that no case profits from its position.
//!
//! A sample during which other programs had the CPUs is repeated, a few times, and the least disturbed one is kept. If
//! half of a row's rounds or more stay disturbed, the row is marked, has no ratio, and is not drawn.

mod case;
mod pace;
mod repeat;

use std::collections::BTreeMap;

use crate::disturbance::{TOLERATED, Watch};
use crate::histogram::Merged;
use crate::progress::{Progress, Turn};
use crate::result::{Params, Row, Spread, Warning};

pub(crate) use case::{Case, EACH, Sample, Sampler};
pub(crate) use pace::Pace;
use repeat::{DISTURBED_ROUNDS, disturbances, is_disturbed, take};

/// A row is noisy if its largest figure is so many times its smallest. The token ring's authors saw
/// 10–15 %, so a variation below a half is normal.
const NOISY: f64 = 1.5;

/// Measures all cases `rounds` times; a case that fails once is named in a warning and left out.
pub(crate) fn run_rounds(
    (scenario, turn): (&'static str, Turn),
    mut cases: Vec<Case>,
    rounds: u32,
    watch: &mut dyn Watch,
) -> (Vec<Row>, Vec<Warning>) {
    let mut groups: Vec<(Params, Vec<usize>)> = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        match groups.iter_mut().find(|(params, _)| *params == case.group) {
            Some((_, members)) => members.push(index),
            None => groups.push((case.group.clone(), vec![index])),
        }
    }

    let progress = Progress::new(scenario, turn, cases.len() * rounds as usize);
    let mut warnings = Vec::new();
    let mut taken: Vec<Vec<Sample>> = cases.iter().map(|_| Vec::new()).collect();
    let mut merged: Vec<Option<Merged>> = cases.iter().map(|_| None).collect();
    let mut failed = vec![false; cases.len()];
    // A limit on repeated samples, for a disturbance that lasts.
    let mut spare = cases.len() * rounds as usize / 2;
    let mut disturbed = vec![0_u32; cases.len()];
    for round in 0..rounds as usize {
        for (_, members) in &groups {
            for turn in 0..members.len() {
                let index = members[(round + turn) % members.len()];
                if failed[index] {
                    continue;
                }
                progress.begin(cases[index].contestant);
                match take(&mut cases[index], watch, &mut spare) {
                    Ok((mut sample, share)) => {
                        if let Some(timed) = sample.timed.take() {
                            Merged::add(&mut merged[index], &timed);
                        }
                        if round == 0 {
                            progress.first(&cases[index], sample.figure, share > TOLERATED);
                        }
                        taken[index].push(sample);
                        disturbed[index] += u32::from(share > TOLERATED);
                    }
                    Err(error) => {
                        failed[index] = true;
                        warnings.push(Warning::Failed {
                            text: format!(
                                "{} failed ({}): {error}",
                                cases[index].contestant, cases[index].params
                            ),
                        });
                    }
                }
                progress.end();
            }
        }
    }
    drop(progress);

    let mut rows = Vec::new();
    for (_, members) in &groups {
        let base = members
            .iter()
            .find(|index| cases[**index].is_base && !failed[**index]);
        let is_sound = |index: &usize| !is_disturbed(disturbed[*index], rounds);
        let sound_base = base.filter(|base| is_sound(base));
        for index in members.iter().filter(|index| !failed[**index]) {
            let base = sound_base.filter(|_| is_sound(index));
            let base = base.map(|base| &taken[*base]);
            let mut row = row(&cases[*index], &taken[*index], base);
            let results = merged[*index].as_ref().and_then(Merged::results);
            if let Some((distribution, figures)) = results {
                row.extra.extend(figures);
                row.durations = Some(distribution);
            }
            if disturbed[*index] > 0 {
                let count = f64::from(disturbed[*index]);
                row.extra.insert(DISTURBED_ROUNDS.to_owned(), count);
            }
            rows.push(row);
        }
    }
    warnings.extend(noise(&rows));
    warnings.extend(disturbances(&rows, rounds));
    (rows, warnings)
}

fn row(case: &Case, samples: &[Sample], base: Option<&Vec<Sample>>) -> Row {
    let figures: Vec<f64> = samples.iter().map(|sample| sample.figure).collect();
    let ratio = base.and_then(|base| {
        let ratios: Vec<f64> = figures
            .iter()
            .zip(base)
            .map(|(figure, base)| figure / base.figure)
            .collect();
        // If a subtracted overhead leaves a net time of zero, no ratio is computed.
        let sound = base.iter().all(|base| base.figure > 0.0);
        sound.then(|| Spread::of(&ratios, 4))
    });
    let mut extra: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let counted = samples.iter().flat_map(|sample| &sample.extra);
    for (name, value) in counted.chain(&case.further) {
        if *name == EACH {
            continue;
        }
        extra.entry((*name).to_owned()).or_default().push(*value);
    }
    Row {
        contestant: case.contestant.to_owned(),
        params: case.params.clone(),
        unit: case.unit,
        better: case.unit.better(),
        figure: Spread::of(&figures, 3),
        ratio,
        extra: extra
            .into_iter()
            .map(|(name, values)| {
                let spread = Spread::of(&values, 3);
                let longest = name.starts_with("longest_");
                let figure = if longest { spread.max } else { spread.median };
                (name, figure)
            })
            .collect(),
        each: each_in_the_middle(samples),
        durations: None,
    }
}

/// The tasks' own figures in the round whose figure is the median.
fn each_in_the_middle(samples: &[Sample]) -> Vec<f64> {
    let mut sorted: Vec<&Sample> = samples.iter().collect();
    sorted.sort_by(|one, other| one.figure.total_cmp(&other.figure));
    let Some(middle) = sorted.get(sorted.len().saturating_sub(1) / 2) else {
        return Vec::new();
    };
    let each = middle.extra.iter().filter(|(name, _)| *name == EACH);
    each.map(|(_, figure)| Spread::of(&[*figure], 3).median)
        .collect()
}

impl Spread {
    /// Median, smallest and largest of `values`, rounded to `decimals`.
    ///
    /// # Panics
    /// If `values` is empty.
    pub(crate) fn of(values: &[f64], decimals: i32) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        let scale = 10_f64.powi(decimals);
        // Adding zero turns a rounded -0 into 0.
        let rounded = |value: f64| (value * scale).round() / scale + 0.0;
        Self {
            median: rounded(median),
            min: rounded(sorted[0]),
            max: rounded(sorted[sorted.len() - 1]),
        }
    }
}

/// One warning for all noisy rows, which names the noisiest.
fn noise(rows: &[Row]) -> Option<Warning> {
    // Small figures that are differences (net times around zero) have no meaningful factor.
    let factor = |row: &Row| {
        if row.figure.min > 0.0 {
            row.figure.max / row.figure.min
        } else if row.figure.min == row.figure.max {
            1.0
        } else {
            f64::INFINITY
        }
    };
    let noisy: Vec<&Row> = rows.iter().filter(|row| factor(row) > NOISY).collect();
    let worst = noisy
        .iter()
        .max_by(|one, other| factor(one).total_cmp(&factor(other)))?;
    Some(Warning::Noisy {
        text: format!(
            "in {} of {} rows the rounds lie more than {NOISY} times apart (worst: {}, {}: {} to {} \
             {}); read the ranges, not the medians alone, or end other programs and raise --rounds",
            noisy.len(),
            rows.len(),
            worst.contestant,
            worst.params,
            worst.figure.min,
            worst.figure.max,
            worst.unit,
        ),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;
    use std::io;
    use std::rc::Rc;

    use super::*;
    use crate::disturbance::Blind;
    use crate::histogram::{Durations, Timed};
    use crate::result::Unit;

    /// The name of a scenario, and that it is the only one.
    pub(crate) const TEST: (&str, Turn) = ("test", Turn::ONLY);

    pub(crate) fn case(
        contestant: &'static str,
        tasks: u32,
        is_base: bool,
        sampler: Sampler,
    ) -> Case {
        let params = Params {
            tasks: Some(tasks),
            ..Params::default()
        };
        Case {
            contestant,
            group: params.clone(),
            params,
            is_base,
            unit: Unit::Ns,
            further: Vec::new(),
            sampler,
        }
    }

    #[test]
    fn spread_is_median_and_range() {
        let odd = Spread::of(&[3.0, 1.0, 2.00049], 3);
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        let even = Spread::of(&[4.0, 1.0, 2.0, 3.0], 3);
        assert_eq!(even.median, 2.5);
        let negative = Spread::of(&[-0.0001], 3);
        assert!(negative.median.is_sign_positive());
    }

    #[test]
    fn ratios_compare_within_a_round() {
        // The whole machine slows down tenfold in the second round: the ratio does not change.
        let slowdown = [1.0, 10.0, 1.0];
        let sampler = |factor: f64| -> Sampler {
            let mut round = 0;
            Box::new(move || {
                round += 1;
                Ok(Sample::from(slowdown[round - 1] * factor))
            })
        };
        let cases = vec![
            case("base", 1, true, sampler(10.0)),
            case("rival", 1, false, sampler(5.0)),
        ];
        let (rows, warnings) = run_rounds(TEST, cases, 3, &mut Blind);
        let ratio = rows[1].ratio.unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (0.5, 0.5, 0.5));
        assert_eq!(rows[1].figure.max, 50.0);
        assert!(matches!(warnings.as_slice(), [Warning::Noisy { .. }]));
    }

    #[test]
    fn each_tasks_figure_is_of_the_median_round() {
        let mut rounds = vec![(4.0, [2.0, 2.0]), (1.0, [0.0, 1.0]), (3.0, [1.0, 2.0])];
        let sampler: Sampler = Box::new(move || {
            let (figure, each) = rounds.remove(0);
            let extra = each.map(|figure| (EACH, figure)).to_vec();
            Ok(Sample::new(figure, extra))
        });
        let (rows, _) = run_rounds(TEST, vec![case("a", 2, true, sampler)], 3, &mut Blind);
        assert_eq!(rows[0].each, [1.0, 2.0]);
        assert!(rows[0].extra.is_empty());
    }

    #[test]
    fn a_tail_of_two_rounds_is_in_the_merged_durations() {
        // In the second and the fourth of five rounds, 2 of 100 waits take a hundred milliseconds.
        let mut round = 0;
        let sampler: Sampler = Box::new(move || {
            round += 1;
            let mut durations = Durations::new()?;
            let tail = if round % 2 == 0 { 2 } else { 0 };
            (tail..100).for_each(|_| durations.add(1_000));
            (0..tail).for_each(|_| durations.add(100_000_000));
            Ok(Sample {
                timed: Some(Timed {
                    durations,
                    of: "wait",
                    unit: Unit::Us,
                }),
                ..Sample::from(1.0)
            })
        });
        let (rows, _) = run_rounds(TEST, vec![case("a", 2, true, sampler)], 5, &mut Blind);
        let merged = rows[0].durations.as_ref().unwrap();
        assert_eq!(
            (merged.count, merged.p50_ns, merged.p99_ns),
            (500, 1000, 1000)
        );
        assert!(merged.p999_ns >= 100_000_000, "{merged:?}");
        assert!(merged.longest_ns >= 100_000_000, "{merged:?}");
        let tail: u64 = merged
            .bins
            .iter()
            .filter(|bin| bin.above_ns > 1_000_000)
            .map(|bin| bin.count)
            .sum();
        assert_eq!(tail, 4);
        for name in ["wait_p999_us", "longest_wait_us"] {
            assert!(rows[0].extra[name] >= 100_000.0, "{name}: {rows:?}");
        }
        assert_eq!(rows[0].extra["wait_p50_us"], 1.0);
        // The figure remains one of each round.
        assert_eq!(rows[0].figure.median, 1.0);
    }

    #[test]
    fn the_order_rotates_within_a_group() {
        let log = Rc::new(RefCell::new(Vec::new()));
        let logged = |name: &'static str| -> Sampler {
            let log = Rc::clone(&log);
            Box::new(move || {
                log.borrow_mut().push(name);
                Ok(Sample::from(1.0))
            })
        };
        let cases = vec![
            case("a", 1, true, logged("a1")),
            case("a", 2, true, logged("a2")),
            case("b", 1, false, logged("b1")),
            case("b", 2, false, logged("b2")),
        ];
        let (rows, _) = run_rounds(TEST, cases, 2, &mut Blind);
        assert_eq!(
            *log.borrow(),
            ["a1", "b1", "a2", "b2", "b1", "a1", "b2", "a2"]
        );
        assert_eq!(rows.len(), 4);
    }

    #[test]
    fn a_failing_case_is_named_and_the_others_go_on() {
        let mut rounds_left = 1;
        let failing: Sampler = Box::new(move || {
            if rounds_left == 0 {
                return Err(io::Error::other("out of luck"));
            }
            rounds_left -= 1;
            Ok(Sample::from(1.0))
        });
        let cases = vec![
            case("base", 1, true, failing),
            case("rival", 1, false, Box::new(|| Ok(Sample::from(1.0)))),
        ];
        let (rows, warnings) = run_rounds(TEST, cases, 3, &mut Blind);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].ratio, None);
        assert_eq!(warnings[0].text(), "base failed (tasks 1): out of luck");
    }
}
