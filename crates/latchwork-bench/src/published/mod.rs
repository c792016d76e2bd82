//! Figures that talks and mailing lists published, beside the rows in which a scenario measures the same.
//!
//! A scenario that repeats a published experiment describes it as an [`Experiment`]: what was measured there, tables of
//! the published figures, for each figure the row of ours that corresponds to it, and what differs. The figures then
//! stand beside ours in the results ([`beside`]), and on the page of the document ([`crate::report`]).

mod documents;

use std::collections::BTreeMap;

pub(crate) use documents::{
    ALL, COPROC, CYCLICTEST, Document, GENERIC_MUTEX, NPTL, RTEMS, Source, TP_FUTEX,
};

use crate::result::{Params, Row, Unit};

/// A published experiment that a scenario repeats.
pub(crate) struct Experiment {
    /// Where it stands in the document, such as "page 10".
    pub(crate) place: &'static str,
    /// Its position among the experiments of the document.
    pub(crate) order: u32,
    pub(crate) title: &'static str,
    /// What was measured there.
    pub(crate) there: &'static str,
    pub(crate) tables: Vec<Table>,
    /// What differs here, and why.
    pub(crate) differs: &'static [&'static str],
}

/// Published figures and ours.
pub(crate) struct Table {
    /// Empty if the experiment's title says it.
    pub(crate) title: &'static str,
    /// What the labels of the lines are.
    pub(crate) head: &'static str,
    /// The columns. Ratios refer to the first.
    pub(crate) columns: Vec<&'static str>,
    pub(crate) lines: Vec<Line>,
}

/// One figure for each column, from each machine.
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) measure: Measure,
    /// Whether ratios of these figures mean something.
    pub(crate) has_ratios: bool,
    pub(crate) theirs: Vec<Theirs>,
    pub(crate) ours: Vec<Ours>,
}

/// Which figure of a row a line shows, and its unit.
#[derive(Clone, Copy)]
pub(crate) enum Measure {
    /// The row's own, in this unit.
    Figure(Unit),
    /// A further one: its name in the results, and its unit as text.
    Extra(&'static str, &'static str),
}

/// The figures that were published of one machine.
pub(crate) struct Theirs {
    pub(crate) host: &'static Host,
    /// The parameters that a row must have besides those of [`Select`], so that the figure stands beside it.
    pub(crate) at: Params,
    /// One for each column.
    pub(crate) figures: Vec<Option<Published>>,
}

/// A machine that figures were published of.
pub(crate) struct Host {
    /// Its name in the results.
    pub(crate) key: &'static str,
    /// Its name in tables.
    pub(crate) short: &'static str,
    /// What is known of it.
    pub(crate) name: &'static str,
}

/// What was published.
#[derive(Clone, Copy)]
pub(crate) enum Published {
    /// A figure.
    Is(f64),
    /// Only a factor: of the first column's figure, from … to ….
    Times(f64, f64),
    /// Only a judgement.
    Word(&'static str),
}

/// Rows of ours, one for each column.
pub(crate) struct Ours {
    /// How they differ from the other rows of the line.
    pub(crate) label: &'static str,
    pub(crate) cells: Vec<Option<Select>>,
}

/// A row of the scenario: the first one of this contestant with these parameters.
pub(crate) struct Select {
    pub(crate) contestant: &'static str,
    pub(crate) params: Params,
}

impl Select {
    pub(crate) fn is(&self, row: &Row) -> bool {
        row.contestant == self.contestant && row.params.has(&self.params)
    }
}

/// A row with these parameters.
pub(crate) fn row(contestant: &'static str, params: Params) -> Option<Select> {
    Some(Select { contestant, params })
}

/// Rows that differ by the contestant only.
pub(crate) fn rows<const N: usize>(
    contestants: [&'static str; N],
    params: &Params,
) -> Vec<Option<Select>> {
    let of = |contestant| row(contestant, params.clone());
    contestants.map(of).into()
}

/// A figure for each column.
pub(crate) fn figures<const N: usize>(figures: [f64; N]) -> Vec<Option<Published>> {
    figures.map(|figure| Some(Published::Is(figure))).into()
}

impl Theirs {
    pub(crate) fn new(host: &'static Host, figures: Vec<Option<Published>>) -> Self {
        Self {
            host,
            at: Params::default(),
            figures,
        }
    }
}

impl Line {
    /// A line of the rows' own figures, with ratios.
    pub(crate) fn new(
        label: impl Into<String>,
        unit: Unit,
        theirs: Vec<Theirs>,
        ours: Vec<Ours>,
    ) -> Self {
        Self {
            label: label.into(),
            measure: Measure::Figure(unit),
            has_ratios: true,
            theirs,
            ours,
        }
    }
}

impl Measure {
    /// The last part of a published figure's name in the results.
    fn suffix(self, row: &Row) -> Option<String> {
        match self {
            Self::Figure(unit) => Some(unit.to_string()),
            Self::Extra(name, _) => row.extra.contains_key(name).then(|| name.to_owned()),
        }
    }

    pub(crate) fn unit(self) -> String {
        match self {
            Self::Figure(Unit::Us) => "µs".to_owned(),
            Self::Figure(unit) => unit.to_string(),
            Self::Extra(_, unit) => unit.to_owned(),
        }
    }
}

/// The published figures that correspond to a row, by the names that they have in `extra`: `published_`, the machine,
/// and the unit or the name of the figure.
pub(crate) fn beside(experiments: &[Experiment], row: &Row) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let tables = experiments.iter().flat_map(|one| &one.tables);
    for line in tables.flat_map(|table| &table.lines) {
        let Some(suffix) = line.measure.suffix(row) else {
            continue;
        };
        let is_here = |index: usize| {
            let mut cells = line
                .ours
                .iter()
                .filter_map(|ours| ours.cells.get(index)?.as_ref());
            cells.any(|cell| cell.is(row))
        };
        for theirs in line
            .theirs
            .iter()
            .filter(|theirs| row.params.has(&theirs.at))
        {
            for (index, figure) in theirs.figures.iter().enumerate() {
                if let Some(Published::Is(figure)) = figure
                    && is_here(index)
                {
                    // Short decimals survive conversion to text and back unchanged.
                    let figure = (figure * 1e6).round() / 1e6;
                    found.insert(format!("published_{}_{suffix}", theirs.host.key), figure);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::row as a_row;
    use crate::scenarios;

    #[test]
    fn a_figure_stands_beside_the_rows_that_correspond_to_it() {
        static HOST: Host = Host {
            key: "box",
            short: "box",
            name: "a box",
        };
        let with_tasks = |tasks| Params {
            tasks: Some(tasks),
            ..Params::default()
        };
        let line = |measure| Line {
            measure,
            theirs: vec![Theirs {
                at: with_tasks(4),
                ..Theirs::new(&HOST, figures([1.5, 2.5]))
            }],
            ours: vec![Ours {
                label: "",
                cells: rows(["a", "b"], &Params::default()),
            }],
            ..Line::new("", Unit::Us, Vec::new(), Vec::new())
        };
        let experiment = |measure| Experiment {
            place: "page 1",
            order: 1,
            title: "",
            there: "",
            tables: vec![Table {
                title: "",
                head: "",
                columns: vec!["a", "b"],
                lines: vec![line(measure)],
            }],
            differs: &[],
        };
        let us = [experiment(Measure::Figure(Unit::Us))];
        let mut row = a_row("b", 1.0, None);
        assert!(beside(&us, &row).is_empty());
        row.params = with_tasks(4);
        let one = |name: &str, figure| BTreeMap::from([(name.to_owned(), figure)]);
        assert_eq!(beside(&us, &row), one("published_box_us", 2.5));
        // A further figure, if the row has it.
        let sleeps = [experiment(Measure::Extra("sleeps", "%"))];
        assert!(beside(&sleeps, &row).is_empty());
        row.extra.insert("sleeps".into(), 1.0);
        assert_eq!(beside(&sleeps, &row), one("published_box_sleeps", 2.5));
        row.contestant = "c".into();
        assert!(beside(&us, &row).is_empty());
    }

    #[test]
    fn every_experiment_has_a_document_a_place_and_reasons() {
        for scenario in scenarios::ALL {
            let source = scenario.source();
            let experiments = scenario.experiments();
            let has_page = source
                .as_ref()
                .is_some_and(|source| source.document.page.is_some());
            assert_eq!(has_page, !experiments.is_empty(), "{}", scenario.name());
            assert!(
                source.is_none_or(|source| source.place.len() > 2),
                "{}",
                scenario.name()
            );
            for experiment in experiments {
                let name = format!("{}, {}", scenario.name(), experiment.title);
                assert!(
                    !experiment.place.is_empty() && !experiment.there.is_empty(),
                    "{name}"
                );
                assert!(
                    !experiment.differs.is_empty() && !experiment.tables.is_empty(),
                    "{name}"
                );
                for table in &experiment.tables {
                    let columns = table.columns.len();
                    for line in &table.lines {
                        let name = format!("{name}, {}, {}", table.title, line.label);
                        assert!(
                            line.theirs.iter().all(|one| one.figures.len() == columns),
                            "{name}"
                        );
                        assert!(
                            line.ours.iter().all(|one| one.cells.len() == columns),
                            "{name}"
                        );
                        assert!(!line.ours.is_empty(), "{name}");
                    }
                }
            }
        }
    }

    #[test]
    fn each_row_that_an_experiment_names_is_of_a_contestant() {
        for scenario in scenarios::ALL {
            let known = scenario.contestants();
            for experiment in scenario.experiments() {
                let lines = experiment.tables.iter().flat_map(|table| &table.lines);
                let ours = lines.flat_map(|line| &line.ours);
                for select in ours.flat_map(|ours| ours.cells.iter().flatten()) {
                    let is_known = known.iter().any(|one| one.name == select.contestant);
                    assert!(is_known, "{}: {}", scenario.name(), select.contestant);
                }
            }
        }
    }
}
