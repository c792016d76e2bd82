//! The report of a run: a directory with a text for people, and a chart and the results of each scenario; for a scenario
//! that records durations also histograms of them; for each document whose experiments were repeated a page that
//! compares its figures with these; a page of the main figures; and one page of HTML with all of it.
//!
//! It is rewritten after each scenario, and contains the scenarios of this run. Other files in the directory, results
//! of other scenarios included, are not changed. A report can also be made of the results in a directory, which are
//! those of one run or of several ([`read_results`]).

mod beside;
mod chart;
mod figures;
mod html;
mod layout;
mod links;
mod pages;
mod panels;
#[cfg(test)]
pub(crate) mod tests;

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::result::ScenarioResult;
use crate::scenarios::{self, Scenario};
use crate::table;

use links::{chart_of, escape, page_of, panels_of, results_of};

/// The text, which links to the other files.
const TEXT: &str = "report.md";

/// The page that needs no other file.
const PAGE: &str = "report.html";

/// A report that is being written.
pub(crate) struct Report {
    directory: PathBuf,
    /// The scenarios by name, with the text's section on each.
    sections: Vec<(String, String)>,
    /// What the pages are made of.
    results: Vec<ScenarioResult>,
}

/// The results of scenarios in the directory of a report, in the order of `list`.
///
/// # Errors
/// There are none, or a file cannot be read.
pub(crate) fn read_results(
    directory: &Path,
) -> Result<Vec<(&'static dyn Scenario, ScenarioResult)>, Error> {
    let mut found = Vec::new();
    for scenario in scenarios::ALL {
        let path = directory.join(results_of(scenario.name()));
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            text => text.map_err(unreadable(&path))?,
        };
        let results = ScenarioResult::read_all(&text).map_err(unreadable(&path))?;
        let is_its = |result: &ScenarioResult| result.scenario == scenario.name();
        let result = results.into_iter().rfind(is_its);
        let missing = || unreadable(&path)(format!("it has no result of {}", scenario.name()));
        found.push((*scenario, result.ok_or_else(missing)?));
    }
    match found.is_empty() {
        true => Err(Error::NoResults {
            directory: directory.to_owned(),
        }),
        false => Ok(found),
    }
}

fn unreadable<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    path: &Path,
) -> impl Fn(E) -> Error {
    move |source| Error::Read {
        path: path.to_owned(),
        source: source.into(),
    }
}

impl Report {
    /// Creates the directory if necessary, and checks that the report on these scenarios can be written into it: now,
    /// so that a wrong path does not lose the results.
    pub(crate) fn open(directory: &Path, scenarios: &[&dyn Scenario]) -> Result<Self, Error> {
        make_directory(directory).map_err(failed(directory))?;
        let report = Self {
            directory: directory.to_owned(),
            sections: Vec::new(),
            results: Vec::new(),
        };
        let names = scenarios.iter().map(|scenario| scenario.name());
        let files = names.flat_map(|name| [chart_of(name), panels_of(name), results_of(name)]);
        let documents = scenarios
            .iter()
            .filter_map(|scenario| Some(scenario.source()?.document));
        let pages = documents.filter_map(page_of);
        for file in files
            .chain(pages)
            .chain([TEXT, PAGE, figures::FILE].map(str::to_owned))
        {
            let path = report.directory.join(file);
            check_writable(&path).map_err(failed(&path))?;
        }
        Ok(report)
    }

    /// The text's path.
    #[cfg(test)]
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(TEXT)
    }

    /// The path of the page.
    pub(crate) fn page(&self) -> PathBuf {
        self.directory.join(PAGE)
    }

    /// Writes the files of a scenario, the text with it, and the page of its document. A second result of the same
    /// scenario replaces the first.
    pub(crate) fn add(
        &mut self,
        scenario: &'static dyn Scenario,
        result: ScenarioResult,
    ) -> Result<(), Error> {
        let source = scenario.source();
        let name = source.as_ref().map(|source| source.to_string());
        self.results
            .retain(|earlier| earlier.scenario != result.scenario);
        self.results.push(result.clone());
        self.describe(scenario.about(), name.as_deref(), &result)?;
        self.write(PAGE, &html::page(&self.results))?;
        if let Some(figures) = figures::page(&self.results) {
            self.write(figures::FILE, &figures)?;
        }
        let document = source.map(|source| source.document);
        match document.and_then(|document| Some((document, page_of(document)?))) {
            Some((document, page)) => self.write(&page, &pages::page(document, &self.results)),
            None => Ok(()),
        }
    }

    /// Writes the files of a scenario, and the text with it.
    fn describe(
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
        let mut text = "# Benchmark report\n".to_owned();
        for document in pages::documents(&self.results) {
            if let Some(page) = page_of(document) {
                text += &format!(
                    "\n- Beside published figures: [{}]({page})",
                    escape(document.title)
                );
            }
        }
        text += "\n";
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
    let run = result.run.as_ref().map(|run| {
        let (command, version) = (escape(&run.command), &run.version);
        format!(
            "Measured on {} by Latchwork {version}: {command}\n\n",
            run.date
        )
    });
    let mut text = format!(
        "\n## {name}\n\n{}.\n\nIt {}.\n\n{}.\n{}. [Results as JSON]({})\n\n{}![{name}: medians and \
         ranges]({})\n\n",
        escape(about),
        escape(&table::origin(source)),
        escape(&table::headline(result)),
        escape(&table::meaning(result)),
        results_of(&result.scenario),
        run.unwrap_or_default(),
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
