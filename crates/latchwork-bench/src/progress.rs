//! What a terminal shows of a run: a progress bar with the time that is left, each row as soon as it has a figure, and
//! how long all scenarios will take.
//!
//! Standard output has the tables alone, each at the end of its scenario; all of this is on standard error, and only if
//! that is a terminal.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::args::Options;
use crate::measure::Case;
use crate::report;
use crate::scenarios::Scenario;
use crate::table::short;

/// A quick scenario takes at most so long on two CPUs.
const QUICK: Duration = Duration::from_secs(45);

/// The place of a scenario among those of a run, both from 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    number: usize,
    of: usize,
}

impl Turn {
    pub(crate) const ONLY: Self = Self { number: 1, of: 1 };
}

/// Counts samples. It has no ticker thread, which would disturb the measurement.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(scenario: &'static str, turn: Turn, samples: usize) -> Self {
        // indicatif draws nothing where standard error is not a terminal.
        let prefix = match turn {
            Turn { of: 1, .. } => scenario.to_owned(),
            Turn { number, of } => format!("{number}/{of} {scenario}"),
        };
        let bar = ProgressBar::new(samples as u64).with_prefix(prefix);
        let style =
            ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len}, {eta} left; {wide_msg}");
        Self(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    pub(crate) fn begin(&self, contestant: &'static str) {
        self.0.set_message(contestant);
    }

    /// The first figure of a row: the table follows at the end of the scenario.
    pub(crate) fn first(&self, case: &Case, figure: f64, disturbed: bool) {
        let mark = if disturbed { "! " } else { "" };
        let line = format!(
            "  {}, {}: {mark}{} {}",
            case.contestant,
            case.params,
            short(figure),
            case.unit
        );
        self.0.println(line);
    }

    pub(crate) fn end(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// How long the scenarios of a run take: as long as in the report that the run replaces, or as those that have ended.
pub(crate) struct Timetable {
    scenarios: Vec<&'static str>,
    /// How long each took in an earlier run with the same options.
    known: Vec<Option<Duration>>,
    is_quick: bool,
    taken: Vec<Duration>,
    begun: Instant,
}

impl Timetable {
    pub(crate) fn new(chosen: &[&'static dyn Scenario], options: &Options) -> Self {
        let earlier = options
            .report
            .as_deref()
            .and_then(|directory| report::read_results(directory).ok());
        let words = options.words();
        let known = |scenario: &&'static dyn Scenario| {
            let command = format!("latchwork bench {}{words}", scenario.name());
            let mut results = earlier.iter().flatten().map(|(_, result)| result);
            let run = results
                .find(|result| result.scenario == scenario.name())?
                .run
                .as_ref()?;
            let seconds = run.seconds.filter(|_| run.command == command)?;
            Some(Duration::from_secs(seconds))
        };
        Self {
            scenarios: chosen.iter().map(|scenario| scenario.name()).collect(),
            known: chosen.iter().map(known).collect(),
            is_quick: options.quick,
            taken: Vec::new(),
            begun: Instant::now(),
        }
    }

    /// The next scenario begins.
    pub(crate) fn next(&mut self) -> Turn {
        self.begun = Instant::now();
        let turn = Turn {
            number: self.taken.len() + 1,
            of: self.scenarios.len(),
        };
        if turn.of > 1 && io::stderr().is_terminal() {
            let name = self.scenarios.get(self.taken.len()).unwrap_or(&"");
            eprintln!("{}/{} {name}: {}", turn.number, turn.of, self.left());
        }
        turn
    }

    /// The scenario has ended.
    pub(crate) fn end(&mut self) {
        self.taken.push(self.begun.elapsed());
    }

    /// The time that is left for this scenario and those after it.
    fn left(&self) -> String {
        let ahead = &self.known[self.taken.len().min(self.known.len())..];
        let known: Duration = ahead.iter().flatten().sum();
        let unknown =
            u32::try_from(ahead.iter().filter(|known| known.is_none()).count()).unwrap_or(u32::MAX);
        let done = u32::try_from(self.taken.len()).unwrap_or(u32::MAX);
        let minutes = |time: Duration| match time.as_secs() {
            seconds @ 0..=99 => format!("{seconds} s"),
            seconds => format!("{} min", seconds.div_ceil(60)),
        };
        match (unknown, done) {
            (0, _) => format!("about {} left", minutes(known)),
            _ if self.is_quick => format!(
                "at most {} left on two CPUs",
                minutes(known + QUICK * unknown)
            ),
            (_, 0) => {
                format!("{unknown} scenarios have not been measured here before: minutes each")
            }
            _ => {
                let mean = self.taken.iter().sum::<Duration>() / done;
                format!("about {} left", minutes(known + mean * unknown))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timetable(known: &[Option<u64>], taken: &[u64], is_quick: bool) -> Timetable {
        Timetable {
            scenarios: vec!["heap"; known.len()],
            known: known
                .iter()
                .map(|seconds| seconds.map(Duration::from_secs))
                .collect(),
            is_quick,
            taken: taken.iter().copied().map(Duration::from_secs).collect(),
            begun: Instant::now(),
        }
    }

    #[test]
    fn the_time_left_is_that_of_earlier_runs_or_of_the_others() {
        for (known, taken, is_quick, said) in [
            (&[Some(30), Some(50)][..], &[][..], false, "about 80 s left"),
            (&[Some(30), Some(170)], &[30], false, "about 3 min left"),
            (&[None, None], &[], true, "at most 90 s left on two CPUs"),
            (&[None, None, None], &[60], false, "about 2 min left"),
            (
                &[None, Some(60)],
                &[],
                false,
                "1 scenarios have not been measured here before: minutes each",
            ),
        ] {
            assert_eq!(timetable(known, taken, is_quick).left(), said);
        }
    }
}
