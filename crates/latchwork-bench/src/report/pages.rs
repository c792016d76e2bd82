//! The page of a document: each of its experiments that scenarios repeat, with the published figures, ours, and what
//! differs; and what is not repeated.

#[cfg(test)]
mod tests;

use std::fmt::Write;

use super::beside::{self, Machine};
use super::links::{chart_of, escape, panels_of, results_of};
use super::panels;
use crate::disturbance::is_measurable;
use crate::published::{self, Document, Experiment, Table};
use crate::result::{Row, ScenarioResult};
use crate::scenarios::{self, Scenario};
use crate::table::headline;

/// The documents whose experiments these results repeat.
pub(super) fn documents(results: &[ScenarioResult]) -> Vec<&'static Document> {
    let is_measured = |document: &&Document| {
        let experiments = experiments(document);
        experiments
            .iter()
            .any(|(scenario, _)| result_of(*scenario, results).is_some())
    };
    published::ALL.iter().copied().filter(is_measured).collect()
}

/// The experiments of a document that scenarios repeat, in its order.
pub(super) fn experiments(document: &Document) -> Vec<(&'static dyn Scenario, Experiment)> {
    let is_of = |scenario: &&&dyn Scenario| {
        let source = scenario.source();
        source.is_some_and(|source| source.document.title == document.title)
    };
    let mut all: Vec<(&'static dyn Scenario, Experiment)> = Vec::new();
    for scenario in scenarios::ALL.iter().filter(is_of) {
        all.extend(
            scenario
                .experiments()
                .into_iter()
                .map(|one| (*scenario, one)),
        );
    }
    all.sort_by_key(|(_, experiment)| experiment.order);
    all
}

pub(super) fn result_of<'a>(
    scenario: &dyn Scenario,
    results: &'a [ScenarioResult],
) -> Option<&'a ScenarioResult> {
    results
        .iter()
        .find(|result| result.scenario == scenario.name())
}

/// The page, as Markdown.
pub(super) fn page(document: &Document, results: &[ScenarioResult]) -> String {
    let Document {
        title,
        author,
        occasion,
        about,
        ..
    } = document;
    let mut text = format!(
        "# {title}\n\n{author}, {occasion}. {about}\n\n\
         `latchwork bench` made this page of the results (JSON) beside it; all rows are in the [report](report.md). In \
         each table, published figures stand above ours. A figure of ours is the median of the rounds, with the \
         smallest and the largest in brackets; \"here\" names the machine below each heading. × is a figure divided \
         by that of the first column in the same row. Compare these factors, not the figures: the machines differ. \
         `!` marks a figure if other programs had more than a tenth of the processors in half of its rounds or more: \
         it has no factor. Rows of processes and of coprocs are never marked, since the time of such tasks cannot be \
         told from that of other programs.\n"
    );
    let experiments = experiments(document);
    for (index, (scenario, experiment)) in experiments.iter().enumerate() {
        let mut earlier = experiments[..index].iter();
        let first = earlier.find(|(other, _)| other.name() == scenario.name());
        let result = result_of(*scenario, results);
        text += &section(
            *scenario,
            experiment,
            result,
            first.map(|(_, first)| first.title),
        );
    }
    text += "\n## Not repeated\n\n";
    for part in document.left_out {
        let _ = writeln!(text, "- {}: {}. {}", part.place, part.what, part.why);
    }
    text
}

/// The section of an experiment; `first` is the title of the section that describes the run, if another one does.
fn section(
    scenario: &dyn Scenario,
    experiment: &Experiment,
    result: Option<&ScenarioResult>,
    first: Option<&str>,
) -> String {
    let mut text = format!(
        "\n## {}\n\n*There* ({}): {}\n\n",
        experiment.title, experiment.place, experiment.there
    );
    text += &match (result, first) {
        (None, _) => format!(
            "*Here*: not measured in this run; `latchwork bench {}` does.\n",
            scenario.name()
        ),
        (Some(_), Some(first)) => format!("*Here*: the run of \"{first}\".\n"),
        (Some(result), None) => run(scenario, result),
    };
    text += &hosts(experiment);
    for table in &experiment.tables {
        text += &in_markdown(table, result);
    }
    text += "\nWhat differs, and why:\n\n";
    for differs in experiment.differs {
        let _ = writeln!(text, "- {differs}");
    }
    if let (Some(result), None) = (result, first) {
        let name = scenario.name();
        let _ = write!(
            text,
            "\n![{name}: medians and ranges]({})\n",
            chart_of(name)
        );
        let has_durations = result.rows.iter().any(|row| row.durations.is_some());
        if panels::are_there(result) {
            let panels = panels_of(name);
            let _ = write!(text, "\n![{name}: histograms of durations]({panels})\n");
        } else if has_durations {
            text += "\nThere are no histograms: other programs disturbed the rows that they would show.\n";
        }
    }
    text
}

/// How our figures were measured.
fn run(scenario: &dyn Scenario, result: &ScenarioResult) -> String {
    let mut text = format!(
        "*Here* (`{}`): {}. {}. {} rounds; the [results]({}).",
        scenario.name(),
        escape(scenario.about()),
        escape(&headline(result)),
        result.rounds,
        results_of(scenario.name())
    );
    if let Some(run) = &result.run {
        let _ = write!(
            text,
            " Measured on {} by Latchwork {}, with `{}`.",
            run.date, run.version, run.command
        );
        if run.quick {
            text += " It was a quick run: fewer cases, and short samples.";
        }
    }
    let seen = result
        .rows
        .iter()
        .filter(|row| is_measurable(&row.params))
        .count();
    let touched = |row: &&Row| row.extra.contains_key("disturbed_rounds");
    let touched = result.rows.iter().filter(touched).count();
    let is_marked = |row: &&Row| row.is_disturbed(result.rounds);
    let marked = result.rows.iter().filter(is_marked).count();
    let _ = match (seen, touched) {
        (0, _) => write!(
            text,
            " Whether other programs disturbed it cannot be told of these rows."
        ),
        (_, 0) => write!(
            text,
            " No other program was seen to disturb the {seen} rows of which that can be told."
        ),
        _ => write!(
            text,
            " Of {seen} rows of which that can be told, other programs disturbed {touched} in some round, and {marked} \
             in half of the rounds or more."
        ),
    };
    text += "\n";
    if !result.warnings.is_empty() {
        text += "\nThe run's own warnings:\n\n";
    }
    for warning in &result.warnings {
        let _ = writeln!(text, "- {}", escape(warning.text()));
    }
    text
}

/// The machines of the published figures.
fn hosts(experiment: &Experiment) -> String {
    let lines = experiment.tables.iter().flat_map(|table| &table.lines);
    let mut hosts: Vec<(&str, &str)> = Vec::new();
    for theirs in lines.flat_map(|line| &line.theirs) {
        let host = (theirs.host.short, theirs.host.name);
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    let mut text = String::from("\nPublished figures are of:\n\n");
    for (short, name) in hosts {
        let _ = writeln!(text, "- **{short}**: {name}");
    }
    text
}

/// A table: for each line a row for each machine, those of the published figures first.
pub(super) fn in_markdown(table: &Table, result: Option<&ScenarioResult>) -> String {
    let mut text = match table.title {
        "" => "\n".to_owned(),
        title => format!("\n### {title}\n\n"),
    };
    let _ = writeln!(text, "| {} | | {} |", table.head, table.columns.join(" | "));
    let _ = writeln!(
        text,
        "| --- | --- |{}",
        " ---: |".repeat(table.columns.len())
    );
    for row in beside::rows(table, result) {
        let machine = match row.machine {
            Machine::Theirs(name) => name.to_owned(),
            Machine::Ours("") => "**here**".to_owned(),
            Machine::Ours(label) => format!("**here**: {label}"),
        };
        let (label, cells) = (row.label, row.cells.join(" | "));
        let _ = writeln!(text, "| {label} | {machine} | {cells} |");
    }
    text
}
