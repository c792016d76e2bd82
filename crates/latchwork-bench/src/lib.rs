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
mod scratch;
mod table;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub use args::{Args, Options, Verb};
pub use error::Error;
pub use load::{Load, ParseLoadError};

use measure::Case;
use peers::background::Spinners;
use plan::Plan;
use report::Report;
use result::{SCHEMA, ScenarioResult, Warning};
use scenarios::fine_grained::rtems;
use scenarios::{Prepared, Scenario};

/// Executes the command line: measures and prints, or lists.
///
/// All names are checked before anything is measured.
///
/// # Errors
/// See [`Error`]. A contestant that is absent or fails is not an error: a warning in the result
/// names it.
pub fn run(args: &Args) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match &args.verb {
        Some(Verb::List) => table::print_list(scenarios::ALL, &mut out).map_err(Error::Output),
        Some(Verb::Report { directory }) => rewrite_report(directory, &mut out),
        None => run_scenarios(&args.options, &mut out),
    }
}

fn run_scenarios(options: &Options, out: &mut impl Write) -> Result<(), Error> {
    let chosen = options
        .scenarios
        .iter()
        .map(|name| find(name))
        .collect::<Result<Vec<_>, _>>()?;
    let plan = scenarios::plan(options, &chosen)?;
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
        .map(|directory| Report::open(directory, &chosen))
        .transpose()?;
    for scenario in chosen {
        let result = measure_scenario(scenario, &plan);
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
    report.map_or(Ok(()), |report| name_report(&report, out))
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

fn measure_scenario(scenario: &'static dyn Scenario, plan: &Plan) -> ScenarioResult {
    let command = format!("latchwork bench {}{}", scenario.name(), plan.words);
    let run = machine::describe_run(command, plan.quick);
    let mut warnings = machine::warnings();
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
    let (mut rows, noticed) =
        measure::run_rounds(scenario.name(), cases, plan.rounds, &mut *plan.watch());
    drop((background, spinners));
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
