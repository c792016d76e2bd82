//! Samples that other programs disturbed: repeated, or marked.

use std::io;

use super::case::{Case, Sample};
use crate::disturbance::{self, Watch};
use crate::result::{Row, Warning};

/// How many times a disturbed sample is repeated.
const REPEATS: u32 = 3;

/// Takes a sample, and repeats it if other programs disturb it. Returns the least disturbed one, and the other
/// programs' share.
pub(crate) fn take(
    case: &mut Case,
    watch: &mut dyn Watch,
    spare: &mut usize,
) -> io::Result<(Sample, f64)> {
    let is_measurable = disturbance::is_measurable(&case.params);
    let mut sample = || {
        watch.begin();
        let sample = (case.sampler)()?;
        Ok::<_, io::Error>((sample, if is_measurable { watch.end() } else { 0.0 }))
    };
    let mut best = sample()?;
    for _ in 0..REPEATS {
        if best.1 <= disturbance::TOLERATED || *spare == 0 {
            break;
        }
        *spare -= 1;
        let again = sample()?;
        if again.1 < best.1 {
            best = again;
        }
    }
    Ok(best)
}

/// In a row's `extra`: the number of rounds in which other programs had the CPUs, even after repeating.
pub(crate) const DISTURBED_ROUNDS: &str = "disturbed_rounds";

/// Whether the median itself may be a disturbed sample.
pub(crate) fn is_disturbed(disturbed: u32, rounds: u32) -> bool {
    disturbed > 0 && disturbed * 2 >= rounds
}

impl Row {
    /// Whether other programs had the CPUs in at least half of `rounds` rounds: the figures are then those of a busy
    /// machine, which a chart does not show.
    pub fn is_disturbed(&self, rounds: u32) -> bool {
        let disturbed = self.extra.get(DISTURBED_ROUNDS);
        disturbed.is_some_and(|disturbed| is_disturbed(*disturbed as u32, rounds))
    }
}

/// One warning for all marked rows.
pub(crate) fn disturbances(rows: &[Row], rounds: u32) -> Option<Warning> {
    let marked = rows.iter().filter(|row| row.is_disturbed(rounds)).count();
    (marked > 0).then(|| Warning::Load {
        text: format!(
            "in {marked} of {} rows other programs had more than {:.0} % of the CPUs in half of the rounds or more, \
             also when these were repeated: they are marked with !, have no ratio and are not drawn; end other programs",
            rows.len(),
            disturbance::TOLERATED * 100.0
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::measure::tests::{TEST, case};
    use crate::measure::{Sampler, run_rounds};

    /// Returns given disturbances, one for each sample.
    struct Scripted(Vec<f64>);

    impl Watch for Scripted {
        fn begin(&mut self) {}

        fn end(&mut self) -> f64 {
            if self.0.is_empty() {
                0.0
            } else {
                self.0.remove(0)
            }
        }
    }

    /// Figures that count up from 1.
    fn counting() -> Sampler {
        let mut taken = 0.0;
        Box::new(move || {
            taken += 1.0;
            Ok(Sample::from(taken))
        })
    }

    #[test]
    fn a_disturbed_round_is_repeated() {
        // The second round is disturbed twice.
        let mut watch = Scripted(vec![0.0, 0.5, 0.3, 0.05]);
        let cases = vec![case("a", 1, true, counting())];
        let (rows, warnings) = run_rounds(TEST, cases, 4, &mut watch);
        let figure = rows[0].figure;
        assert_eq!((figure.min, figure.median, figure.max), (1.0, 4.5, 6.0));
        assert!(
            rows[0].ratio.is_some() && rows[0].extra.is_empty(),
            "{rows:?}"
        );
        let is_load = |warning: &Warning| matches!(warning, Warning::Load { .. });
        assert!(!warnings.iter().any(is_load), "{warnings:?}");
    }

    #[test]
    fn the_least_disturbed_sample_of_a_round_is_used() {
        let mut watch = Scripted(vec![0.9, 0.8, 0.2, 0.7]);
        let cases = vec![case("a", 1, true, counting())];
        let (rows, _) = run_rounds(TEST, cases, 6, &mut watch);
        assert_eq!(rows[0].figure.min, 3.0);
        assert_eq!(rows[0].extra[DISTURBED_ROUNDS], 1.0);
        assert!(!rows[0].is_disturbed(6) && rows[0].ratio.is_some());
    }

    #[test]
    fn rows_that_stay_disturbed_are_marked_and_compared_with_nothing() {
        // The base is always disturbed; the repetitions are limited.
        for disturbed in ["base", "rival"] {
            let calls = Rc::new(RefCell::new(0));
            let counted = |name: &'static str| -> Sampler {
                let calls = Rc::clone(&calls);
                Box::new(move || {
                    *calls.borrow_mut() += 1;
                    Ok(Sample::from(if name == disturbed { 0.05 } else { 1.0 }))
                })
            };
            struct Of(Rc<RefCell<bool>>);
            impl Watch for Of {
                fn begin(&mut self) {
                    *self.0.borrow_mut() = false;
                }
                fn end(&mut self) -> f64 {
                    if *self.0.borrow() { 0.9 } else { 0.0 }
                }
            }
            let bad = Rc::new(RefCell::new(false));
            let marked = |name: &'static str| -> Sampler {
                let (mut sampler, bad) = (counted(name), Rc::clone(&bad));
                Box::new(move || {
                    *bad.borrow_mut() = name == disturbed;
                    sampler()
                })
            };
            let cases = vec![
                case("base", 1, true, marked("base")),
                case("rival", 1, false, marked("rival")),
            ];
            let (rows, warnings) = run_rounds(TEST, cases, 5, &mut Of(bad));
            assert_eq!(*calls.borrow(), 10 + 5, "{disturbed}");
            for row in &rows {
                assert_eq!(row.is_disturbed(5), row.contestant == disturbed, "{row:?}");
            }
            let rival = rows.iter().find(|row| row.contestant == "rival").unwrap();
            assert_eq!(rival.ratio, None, "{disturbed}");
            let text = warnings.last().unwrap().text();
            assert!(text.starts_with("in 1 of 2 rows other programs"), "{text}");
        }
    }
}
