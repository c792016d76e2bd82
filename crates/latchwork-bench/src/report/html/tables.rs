//! Tables: the data of each plot, and the published figures beside ours.

use maud::{Markup, html};

use crate::published::{self, Document};
use crate::report::beside::{self, Machine};
use crate::report::pages;
use crate::result::{Row, ScenarioResult, Unit};
use crate::table::{self, short};

/// A unit in texts.
pub(super) fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Ns => "ns",
        Unit::Us => "µs",
        Unit::OpsPerSecond => "ops/s",
        Unit::Bytes => "bytes",
        Unit::Instructions => "instr.",
    }
}

/// Work for each unit of processor time, if it was measured, and its unit.
pub(super) fn work_per_cpu(row: &Row) -> Option<(f64, &'static str)> {
    let known = [
        ("ops_per_cpu_second", "ops/CPU s"),
        ("loops_per_cpu_percent", "loops/CPU %"),
    ];
    let mut found = known
        .iter()
        .filter_map(|(name, unit)| Some((*row.extra.get(*name)?, *unit)));
    found.next()
}

/// The rows of a plot, behind a line that opens them.
pub(super) fn of_rows<'a>(
    rows: impl Iterator<Item = &'a Row> + Clone,
    result: &ScenarioResult,
) -> Markup {
    let count = rows.clone().count();
    let works = rows.clone().find_map(work_per_cpu).map(|(_, name)| name);
    html! {
        details.data {
            summary { "Data: " (count) @if count == 1 { " row" } @else { " rows" } }
            div.wide {
                table {
                    thead { tr {
                        @for head in ["contestant", "parameters"] { th { (head) } }
                        @for head in ["median", "min", "max", "unit", "ratio", "min", "max"] { th.number { (head) } }
                        @if let Some(name) = works { th.number { (name) } }
                    } }
                    tbody { @for row in rows { (line(row, result, works.is_some())) } }
                }
            }
        }
    }
}

fn line(row: &Row, result: &ScenarioResult, works: bool) -> Markup {
    let is_disturbed = row.is_disturbed(result.rounds);
    let figure = row.figure;
    html! {
        tr.disturbed[is_disturbed] {
            td { @if is_disturbed { "! " } (row.contestant) }
            td { (row.params) }
            @for figure in [figure.median, figure.min, figure.max] { td.number { (short(figure)) } }
            td.number { (unit(row.unit)) }
            @match row.ratio {
                Some(ratio) => @for ratio in [ratio.median, ratio.min, ratio.max] { td.number { (format!("{ratio:.2}")) } },
                None => @for _ in 0..3 { td.number { "–" } },
            }
            @if works {
                td.number { @if let Some((work, _)) = work_per_cpu(row) { (short(work)) } }
            }
        }
    }
}

/// All rows of a result with all that was counted.
pub(super) fn complete(result: &ScenarioResult) -> Markup {
    let mut lines = table::cells(result).into_iter();
    let head = lines.next().unwrap_or_default();
    html! {
        details.data {
            summary { "Everything that was counted: " (result.rows.len()) " rows, " (head.len()) " columns" }
            div.wide {
                table {
                    thead { tr { @for cell in &head { th { (cell) } } } }
                    tbody { @for (line, row) in lines.zip(&result.rows) {
                        tr.disturbed[row.is_disturbed(result.rounds)] {
                            @for (index, cell) in line.iter().enumerate() { td.number[index > 0] { (cell) } }
                        }
                    } }
                }
            }
        }
    }
}

/// The documents whose experiments were repeated, each with its tables.
pub(super) fn published(results: &[ScenarioResult]) -> Markup {
    html! {
        @for document in published::ALL { (of_document(document, results)) }
    }
}

fn of_document(document: &Document, results: &[ScenarioResult]) -> Markup {
    let experiments = pages::experiments(document);
    html! {
        details.document open="open" id=(document.page.unwrap_or_default()) {
            summary { h3 { "“" (document.title) "”" } " " (document.author) ", " (document.occasion) }
            p { (inline(document.about)) }
            @for (scenario, experiment) in &experiments {
                @let result = pages::result_of(*scenario, results);
                h4 { (experiment.title) " " small { (experiment.place) } }
                p.note { (inline(experiment.there)) }
                @if result.is_none() {
                    p.none { "Not measured here: " code { "latchwork bench " (scenario.name()) } " measures it." }
                }
                @for table in &experiment.tables {
                    @if !table.title.is_empty() { h5 { (inline(table.title)) } }
                    div.wide {
                        table.published {
                            thead { tr {
                                th { (inline(table.head)) } th {}
                                @for column in &table.columns { th.number { (inline(column)) } }
                            } }
                            tbody {
                                @for row in beside::rows(table, result) { (published_line(&row)) }
                            }
                        }
                    }
                }
                details { summary { "What differs, and why" }
                    ul { @for differs in experiment.differs { li { (inline(differs)) } } }
                }
            }
            @if !document.left_out.is_empty() {
                details { summary { "Not repeated" }
                    ul { @for part in document.left_out {
                        li { (part.place) ": " (inline(part.what)) ". " (inline(part.why)) }
                    } }
                }
            }
        }
    }
}

fn published_line(row: &beside::TableRow) -> Markup {
    let is_here = matches!(row.machine, Machine::Ours(_));
    let machine = match row.machine {
        Machine::Theirs(name) => name.to_owned(),
        Machine::Ours("") => "here".to_owned(),
        Machine::Ours(label) => format!("here: {label}"),
    };
    html! {
        tr.here[is_here] {
            td { (inline(&row.label)) } td { (machine) }
            @for cell in &row.cells { td.number { (inline(cell)) } }
        }
    }
}

/// A text with Markdown's code marks, as HTML.
pub(super) fn inline(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}
