//! How a figure is measured: calibrated samples, taken in interleaved rounds, and their statistics.
//!
//! Each case takes one sample in each round. The cases of one group (contestants with the same parameters) run one
//! after another, so that a disturbance of the machine affects all of them and the ratio within a round stays
//! meaningful. A different case of the group begins in each round, so that no case profits from its position.
//!
//! A sample during which other programs had the CPUs is repeated, a few times, and the least disturbed one is kept. If
//! half of a row's rounds or more stay disturbed, the row is marked, has no ratio, and is not drawn.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use crate::disturbance::{TOLERATED, Watch};
use crate::progress::Progress;
use crate::repeat::{DISTURBED_ROUNDS, disturbances, is_disturbed, take};
use crate::result::{Params, Row, Spread, Unit, Warning};

/// A row is noisy if its largest figure is so many times its smallest. The token ring's authors saw
/// 10–15 %, so a variation below a half is normal.
const NOISY: f64 = 1.5;

/// One sample: the figure, and what else was counted.
pub(crate) struct Sample {
    pub(crate) figure: f64,
    /// By name; a figure that is called [`EACH`] occurs once for each task.
    pub(crate) extra: Vec<(&'static str, f64)>,
}

/// The name of a task's own figure.
pub(crate) const EACH: &str = "each";

impl From<f64> for Sample {
    fn from(figure: f64) -> Self {
        Self {
            figure,
            extra: Vec::new(),
        }
    }
}

/// Takes one sample. Boxed once for each sample, not for each iteration: the loop inside is compiled for its
/// contestant.
pub(crate) type Sampler = Box<dyn FnMut() -> io::Result<Sample>>;

/// A contestant under one set of parameters.
pub(crate) struct Case {
    pub(crate) contestant: &'static str,
    pub(crate) params: Params,
    /// The parameters that a contestant shares with the base of its ratio.
    pub(crate) group: Params,
    pub(crate) is_base: bool,
    pub(crate) unit: Unit,
    /// Further figures for the row, such as published ones.
    pub(crate) beside: Vec<(&'static str, f64)>,
    pub(crate) sampler: Sampler,
}

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

/// Measures all cases `rounds` times; a case that fails once is named in a warning and left out.
pub(crate) fn run_rounds(
    scenario: &'static str,
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

    let progress = Progress::new(scenario, cases.len() * rounds as usize);
    let mut warnings = Vec::new();
    let mut taken: Vec<Vec<Sample>> = cases.iter().map(|_| Vec::new()).collect();
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
                    Ok((sample, share)) => {
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
    for (name, value) in counted.chain(&case.beside) {
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
    use std::convert::Infallible;
    use std::rc::Rc;

    use super::*;
    use crate::disturbance::Blind;

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
            beside: Vec::new(),
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
        let (rows, warnings) = run_rounds("test", cases, 3, &mut Blind);
        let ratio = rows[1].ratio.unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (0.5, 0.5, 0.5));
        assert_eq!(rows[1].figure.max, 50.0);
        assert!(matches!(warnings.as_slice(), [Warning::Noisy { .. }]));
    }

    #[test]
    fn what_each_task_did_is_of_the_round_in_the_middle() {
        let mut rounds = vec![(4.0, [2.0, 2.0]), (1.0, [0.0, 1.0]), (3.0, [1.0, 2.0])];
        let sampler: Sampler = Box::new(move || {
            let (figure, each) = rounds.remove(0);
            let extra = each.map(|figure| (EACH, figure)).to_vec();
            Ok(Sample { figure, extra })
        });
        let (rows, _) = run_rounds("test", vec![case("a", 2, true, sampler)], 3, &mut Blind);
        assert_eq!(rows[0].each, [1.0, 2.0]);
        assert!(rows[0].extra.is_empty());
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
        let (rows, _) = run_rounds("test", cases, 2, &mut Blind);
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
        let (rows, warnings) = run_rounds("test", cases, 3, &mut Blind);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].ratio, None);
        assert_eq!(warnings[0].text(), "base failed (tasks 1): out of luck");
    }

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
    fn a_clock_that_stands_still_is_no_endless_loop() {
        let mut pace = Pace::new(Duration::from_millis(30));
        pace.iterations = 1;
        let ns = pace.ns(|_| Ok::<_, Infallible>(Duration::ZERO)).unwrap();
        assert_eq!(ns, 0.0);
    }
}
