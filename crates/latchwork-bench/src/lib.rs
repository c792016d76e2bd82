//! The experiments of Latchwork: scenarios, their contestants, and results as typed JSON.
//!
//! A scenario measures one kind of work. Its contestants are Latchwork's own primitives, their rivals on the machine,
//! and physical floors. All of them run interleaved in one process, in at least five rounds. The meaningful result is
//! the ratio to the scenario's base within the same round; the figure itself depends on the machine.
//!
//! [`Args`] is the command line of `latchwork bench`, [`run`] executes it, and [`result::ScenarioResult`] is the
//! output.
//!
//! # Examples
//! ```no_run
//! use latchwork_bench::{Options, measure};
//!
//! let options = Options { quick: true, ..Options::default() };
//! let result = measure("call-overhead", &options)?;
//! for row in &result.rows {
//!     println!("{}: {} {}", row.contestant, row.figure.median, row.unit);
//! }
//! # Ok::<(), latchwork_bench::Error>(())
//! ```

mod args;
mod compare;
mod contestant;
mod disturbance;
mod error;
mod histogram;
mod load;
mod machine;
mod measure;
mod peers;
mod plan;
mod progress;
mod published;
mod report;
pub mod result;
mod scenarios;
mod table;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub use args::{Args, Options, Verb};
pub use error::Error;
pub use load::{Load, ParseLoadError};

use measure::Case;
use peers::background::Spinners;
use plan::Plan;
use progress::{Timetable, Turn};
use report::Report;
use result::{SCHEMA, ScenarioResult, Warning};
use scenarios::fine_grained::rtems;
use scenarios::{Prepared, Scenario};

/// How a command ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It has done what it should.
    Well,
    /// A comparison has found rows of this library that are worse.
    Regressed,
}

/// Executes the command line: measures and prints, lists, or compares.
///
/// All names are checked before anything is measured.
///
/// # Errors
/// See [`Error`]. A contestant that is absent or fails is not an error: a warning in the result
/// names it. Nor is a scenario that cannot run.
pub fn run(args: &Args) -> Result<Ended, Error> {
    let mut out = io::stdout().lock();
    let done = match &args.verb {
        Some(Verb::Compare {
            first,
            second,
            tolerance,
        }) => {
            let tolerance = f64::from(*tolerance) / 100.0;
            let counts = compare::files(first, second, tolerance, &mut out)?;
            return Ok(match counts.worse {
                0 => Ended::Well,
                _ => Ended::Regressed,
            });
        }
        Some(Verb::List) => table::print_list(scenarios::ALL, &mut out).map_err(Error::Output),
        Some(Verb::Report { directory }) => rewrite_report(directory, &mut out),
        None => run_scenarios(&args.options, &mut out),
    };
    done.map(|()| Ended::Well)
}

fn run_scenarios(options: &Options, out: &mut impl Write) -> Result<(), Error> {
    let (chosen, options) = &chosen(options)?;
    let plan = scenarios::plan(options, chosen)?;
    let is_of_rtems = |scenario: &&dyn Scenario| rtems::is_about(scenario.name());
    if options.rtems_json.is_some() && !chosen.iter().any(is_of_rtems) {
        return Err(Error::NothingOfRtems);
    }
    // Before measuring, so that a wrong path does not lose the results.
    let mut json = Output::create(options.json.as_ref())?;
    let mut rtems_json = Output::create(options.rtems_json.as_ref())?;
    let mut report = options
        .report
        .as_deref()
        .map(|directory| Report::open(directory, chosen))
        .transpose()?;
    let mut timetable = Timetable::new(chosen, options);
    let mut not_run = Vec::new();
    for scenario in chosen.iter().copied() {
        let turn = timetable.next();
        let result = measure_in_turn(scenario, &plan, turn);
        timetable.end();
        not_run.extend(why_without_rows(&result));
        table::print_result(&result, out).map_err(Error::Output)?;
        if let Some(file) = &mut json {
            file.write(&(result.to_json() + "\n"))?;
        }
        if let Some(file) = &mut rtems_json
            && rtems::is_about(&result.scenario)
        {
            file.write(&rtems::json(&result))?;
        }
        // After every scenario, so that a later failure does not lose the results.
        if let Some(report) = &mut report {
            report.add(scenario, result)?;
        }
    }
    for (scenario, reason) in not_run {
        writeln!(out, "could not run: {scenario}: {reason}").map_err(Error::Output)?;
    }
    report.map_or(Ok(()), |report| name_report(&report, out))
}

/// The chosen scenarios, each once, and the options with what follows from the words for several.
fn chosen(options: &Options) -> Result<(Vec<&'static dyn Scenario>, Options), Error> {
    let mut options = options.clone();
    let mut chosen: Vec<&'static dyn Scenario> = Vec::new();
    for word in &options.scenarios {
        let named: Vec<&'static dyn Scenario> = match word.as_str() {
            args::ALL => scenarios::ALL.to_vec(),
            args::SCALE => scenarios::that_scale(),
            name => vec![find(name)?],
        };
        for scenario in named {
            if !chosen.iter().any(|other| other.name() == scenario.name()) {
                chosen.push(scenario);
            }
        }
    }
    if options.tasks.is_empty() && options.scenarios.iter().any(|word| word == args::SCALE) {
        options.tasks = scenarios::task_counts(machine::cpus().len());
    }
    chosen.sort_by_key(|scenario| scenario.changes_the_process());
    Ok((chosen, options))
}

/// The name of a scenario that has no rows, and why.
fn why_without_rows(result: &ScenarioResult) -> Option<(String, String)> {
    let why = || {
        let warnings = result.warnings.iter();
        let mut reasons = warnings.filter(|warning| {
            matches!(
                warning,
                Warning::Failed { .. } | Warning::Skipped { .. } | Warning::Memory { .. }
            )
        });
        reasons.next().map_or_else(
            || "it has no case".to_owned(),
            |warning| warning.text().to_owned(),
        )
    };
    result
        .rows
        .is_empty()
        .then(|| (result.scenario.clone(), why()))
}

fn name_report(report: &Report, out: &mut impl Write) -> Result<(), Error> {
    writeln!(out, "report: {}", report.page().display()).map_err(Error::Output)
}

/// Writes the report in `directory` again, from the results there.
fn rewrite_report(directory: &Path, out: &mut impl Write) -> Result<(), Error> {
    let results = report::read_results(directory)?;
    let found: Vec<&dyn Scenario> = results.iter().map(|(scenario, _)| *scenario).collect();
    let mut report = Report::open(directory, &found)?;
    for (scenario, result) in results {
        report.add(scenario, result)?;
    }
    name_report(&report, out)
}

/// A file that results are written to.
struct Output<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Output<'a> {
    /// Creates the file, empty; `None` without a path.
    fn create(path: Option<&'a PathBuf>) -> Result<Option<Self>, Error> {
        let open = |path: &'a PathBuf| {
            let file = File::create(path).map_err(|source| failed(path, source))?;
            Ok(Self { path, file })
        };
        path.map(open).transpose()
    }

    fn write(&mut self, text: &str) -> Result<(), Error> {
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|source| failed(self.path, source))
    }
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::Write {
        path: path.to_owned(),
        source,
    }
}

/// Measures one scenario, without printing or writing anything. The scenarios, the file and the directory in `options`
/// are ignored.
///
/// # Errors
/// As [`run`].
pub fn measure(scenario: &str, options: &Options) -> Result<ScenarioResult, Error> {
    let scenario = find(scenario)?;
    let plan = scenarios::plan(options, &[scenario])?;
    Ok(measure_scenario(scenario, &plan))
}

fn find(name: &str) -> Result<&'static dyn Scenario, Error> {
    scenarios::ALL
        .iter()
        .copied()
        .find(|scenario| scenario.name() == name)
        .ok_or_else(|| Error::UnknownScenario {
            name: name.to_owned(),
            known: scenarios::ALL
                .iter()
                .map(|scenario| scenario.name())
                .collect(),
        })
}

/// Starts the programs that the plan wants beside the cases, and records their number, unless the cases have such
/// programs of their own.
fn spin_beside(cases: &mut [Case], plan: &Plan, warnings: &mut Vec<Warning>) -> Option<Spinners> {
    let count = plan.beside?;
    let has_own = |case: &Case| case.params.beside.is_some() || case.params.quota_pct.is_some();
    if cases.iter().any(has_own) {
        return None;
    }
    match Spinners::start(count) {
        Ok(spinners) => {
            for case in cases {
                case.params.beside = Some(count);
                case.group.beside = Some(count);
            }
            Some(spinners)
        }
        Err(error) => {
            warnings.push(Warning::Skipped {
                text: format!("{count} programs beside skipped: {error}"),
            });
            None
        }
    }
}

/// Measures a scenario, as one of several: a panic ends this one alone.
fn measure_in_turn(scenario: &'static dyn Scenario, plan: &Plan, turn: Turn) -> ScenarioResult {
    let measured = panic::catch_unwind(AssertUnwindSafe(|| measure_at(scenario, plan, turn)));
    measured.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        ScenarioResult {
            schema: SCHEMA,
            scenario: scenario.name().to_owned(),
            machine: machine::describe(),
            run: None,
            rounds: plan.rounds,
            base: scenario.base().to_owned(),
            rows: Vec::new(),
            warnings: vec![Warning::Failed {
                text: format!(
                    "{} panicked: {}",
                    scenario.name(),
                    text.unwrap_or("no message")
                ),
            }],
        }
    })
}

fn measure_scenario(scenario: &'static dyn Scenario, plan: &Plan) -> ScenarioResult {
    measure_at(scenario, plan, Turn::ONLY)
}

fn measure_at(scenario: &'static dyn Scenario, plan: &Plan, turn: Turn) -> ScenarioResult {
    let begun = Instant::now();
    let command = format!("latchwork bench {}{}", scenario.name(), plan.words);
    let mut run = machine::describe_run(command, plan.quick);
    let mut warnings = machine::warnings();
    warnings.extend(disturbance::at_start(plan.watch().idle()));
    for contestant in scenario.contestants() {
        if let Some(absent) = &contestant.absent
            && plan.wants(scenario.base(), contestant.name)
        {
            warnings.push(Warning::Skipped {
                text: format!("{} skipped: {absent}", contestant.name),
            });
        }
    }
    let Prepared {
        mut cases,
        warnings: left_out,
        background,
    } = scenario.prepare(plan);
    warnings.extend(left_out);
    let spinners = spin_beside(&mut cases, plan, &mut warnings);
    let (mut rows, noticed) = measure::run_rounds(
        (scenario.name(), turn),
        cases,
        plan.rounds,
        &mut *plan.watch(),
    );
    drop((background, spinners));
    run.seconds = Some(begun.elapsed().as_secs());
    warnings.extend(noticed);
    let experiments = scenario.experiments();
    for row in &mut rows {
        let published = published::beside(&experiments, row);
        row.extra.extend(published);
    }
    ScenarioResult {
        schema: SCHEMA,
        scenario: scenario.name().to_owned(),
        machine: machine::describe(),
        run: Some(run),
        rounds: plan.rounds,
        base: scenario.base().to_owned(),
        rows,
        warnings,
    }
}
