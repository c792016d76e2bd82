//! The report of a run: a directory with a text for people, and a chart and the results of each scenario; for a scenario
//! that records durations also histograms of them.
//!
//! It is rewritten after each scenario, and contains the scenarios of this run. Other files in the directory, results
//! of other scenarios included, are not changed.

mod chart;
mod layout;
mod panels;
#[cfg(test)]
pub(crate) mod tests;

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::machine;
use crate::result::ScenarioResult;
use crate::scenarios::Scenario;
use crate::table;

/// The text, which links to the other files.
const TEXT: &str = "report.md";

/// A report that is being written.
pub(crate) struct Report {
    directory: PathBuf,
    /// The scenarios by name, with the text's section on each.
    sections: Vec<(String, String)>,
}

impl Report {
    /// Creates the directory if necessary, and checks that the report on these scenarios can be written into it: now,
    /// so that a wrong path does not lose the results.
    pub(crate) fn open(directory: &Path, scenarios: &[&dyn Scenario]) -> Result<Self, Error> {
        make_directory(directory).map_err(failed(directory))?;
        let report = Self {
            directory: directory.to_owned(),
            sections: Vec::new(),
        };
        let names = scenarios.iter().map(|scenario| scenario.name());
        let files = names.flat_map(|name| [chart_of(name), panels_of(name), results_of(name)]);
        for file in files.chain([TEXT.to_owned()]) {
            let path = report.directory.join(file);
            check_writable(&path).map_err(failed(&path))?;
        }
        Ok(report)
    }

    /// The text's path.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(TEXT)
    }

    /// Writes the files of a scenario, and the text with it. A second result of the same scenario replaces the first.
    pub(crate) fn add(
        &mut self,
        about: &str,
        source: Option<&str>,
        result: &ScenarioResult,
    ) -> Result<(), Error> {
        let name = &result.scenario;
        self.write(&results_of(name), &(result.to_json() + "\n"))?;
        let chart = chart::draw(result).map_err(failed(&self.directory.join(chart_of(name))))?;
        self.write(&chart_of(name), &chart)?;
        let panels = panels::draw(result).map_err(failed(&self.directory.join(panels_of(name))))?;
        match &panels {
            Some(panels) => self.write(&panels_of(name), panels)?,
            // One of an earlier run would not belong to these results.
            None => self.remove(&panels_of(name))?,
        }
        self.sections.retain(|(earlier, _)| earlier != name);
        self.sections.push((
            name.clone(),
            section(about, source, result, panels.is_some()),
        ));
        let mut text = format!(
            "# Benchmark report\n\nMeasured by Latchwork {}.\n",
            env!("CARGO_PKG_VERSION")
        );
        text.extend(self.sections.iter().map(|(_, section)| section.as_str()));
        self.write(TEXT, &text)
    }

    /// Removes a file, if there is one.
    fn remove(&self, file: &str) -> Result<(), Error> {
        let path = self.directory.join(file);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&path)(error)),
            _ => Ok(()),
        }
    }

    fn write(&self, file: &str, content: &str) -> Result<(), Error> {
        let path = self.directory.join(file);
        fs::write(&path, content).map_err(failed(&path))
    }
}

fn chart_of(scenario: &str) -> String {
    format!("{scenario}.svg")
}

/// The histograms of durations, for a scenario that records durations.
fn panels_of(scenario: &str) -> String {
    format!("{scenario}-durations.svg")
}

fn results_of(scenario: &str) -> String {
    format!("{scenario}.json")
}

fn failed(path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::Write {
        path: path.to_owned(),
        source,
    }
}

fn make_directory(directory: &Path) -> io::Result<()> {
    match fs::create_dir_all(directory) {
        // The system's message, "File exists", would not say that a directory is needed.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            "it is not a directory, which a report needs",
        )),
        made => made,
    }
}

/// Keeps the content of an existing file, and leaves no new file behind.
fn check_writable(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    match options.clone().create_new(true).open(path) {
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path).map(drop),
        Err(error) => Err(error),
    }
}

/// The text's section on a scenario.
fn section(about: &str, source: Option<&str>, result: &ScenarioResult, has_panels: bool) -> String {
    let name = escape(&result.scenario);
    let mut text = format!(
        "\n## {name}\n\n{}.\n\nIt {}.\n\n{}.\n{}. [Results as JSON]({})\n\n![{name}: medians and \
         ranges]({})\n\n",
        escape(about),
        escape(&table::origin(source)),
        escape(&machine::headline(&result.machine)),
        escape(&table::meaning(result)),
        results_of(&result.scenario),
        chart_of(&result.scenario),
    );
    if has_panels {
        text += &format!(
            "![{name}: histograms of durations]({})\n\nThe durations of all rounds, on logarithmic axes: of the base \
             where its longest is shortest, of the base where it is longest, and of the best contestant there; the \
             line marks the longest.\n\n",
            panels_of(&result.scenario)
        );
    }
    let cells = table::cells(result);
    for (index, line) in cells.iter().enumerate() {
        let line: Vec<String> = line.iter().map(|cell| escape(cell)).collect();
        text += &format!("| {} |\n", line.join(" | "));
        if index == 0 {
            // Names left-aligned, the rest right-aligned.
            text += &format!("| --- |{}\n", " ---: |".repeat(line.len() - 1));
        }
    }
    if !result.warnings.is_empty() {
        text += "\nWarnings:\n\n";
    }
    for warning in &result.warnings {
        text += &format!("- {}\n", escape(warning.text()));
    }
    text
}

/// The text as Markdown that shows it unchanged, in one line.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '|' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '#' | '~' | '&' => {
                escaped.push('\\');
                escaped.push(character);
            }
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}
