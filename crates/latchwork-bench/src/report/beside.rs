//! A table of published figures and ours, as rows of text: the pages in Markdown and the page in HTML show the same.

use crate::published::{Line, Measure, Published, Select, Table};
use crate::report::layout::scale;
use crate::result::{Row, ScenarioResult, Unit};
use crate::table::short;

/// The figures of one machine in a line of a table.
pub(super) struct TableRow {
    /// The line's label and unit; empty if the row above has the same.
    pub(super) label: String,
    pub(super) machine: Machine,
    /// One for each column.
    pub(super) cells: Vec<String>,
}

/// Whose figures a row has.
#[derive(Clone, Copy)]
pub(super) enum Machine {
    /// Published ones of this machine.
    Theirs(&'static str),
    /// Measured ones, and how they differ from the other rows of the line.
    Ours(&'static str),
}

/// The rows of a table: for each line those of the published figures first.
pub(super) fn rows(table: &Table, result: Option<&ScenarioResult>) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for line in &table.lines {
        let unit = line.measure.unit();
        let mut label = match line.label.is_empty() {
            true => unit,
            false => format!("{}, {unit}", line.label),
        };
        let mut add = |machine, cells| {
            // The rows below belong to the same line.
            let label = core::mem::take(&mut label);
            rows.push(TableRow {
                label,
                machine,
                cells,
            });
        };
        for theirs in &line.theirs {
            let cells = published_cells(&theirs.figures, line.has_ratios);
            add(Machine::Theirs(theirs.host.short), cells);
        }
        let Some(result) = result else {
            continue;
        };
        for ours in &line.ours {
            let cells = our_cells(&ours.cells, line, result);
            // The first column alone is nothing to compare.
            let compared = &cells[1.min(cells.len() - 1)..];
            if compared.iter().any(|cell| cell != NONE) {
                add(Machine::Ours(ours.label), cells);
            }
        }
    }
    rows
}

/// The cell of a figure that there is not.
const NONE: &str = "–";

fn published_cells(figures: &[Option<Published>], has_ratios: bool) -> Vec<String> {
    let base = match figures.first() {
        Some(Some(Published::Is(base))) if has_ratios => Some(*base),
        _ => None,
    };
    let cell = |(index, figure): (usize, &Option<Published>)| match figure {
        None => NONE.to_owned(),
        Some(Published::Word(word)) => (*word).to_owned(),
        Some(Published::Times(from, to)) if from == to => format!("× {}", exact(*from)),
        Some(Published::Times(from, to)) => format!("× {} – {}", exact(*from), exact(*to)),
        Some(Published::Is(figure)) => exact(*figure) + &times(*figure, base.filter(|_| index > 0)),
    };
    figures.iter().enumerate().map(cell).collect()
}

fn our_cells(cells: &[Option<Select>], line: &Line, result: &ScenarioResult) -> Vec<String> {
    let found: Vec<Option<Ours<'_>>> = cells
        .iter()
        .map(|cell| Ours::find(cell.as_ref()?, line.measure, result))
        .collect();
    let base = found.first().and_then(Option::as_ref);
    let base = base.filter(|base| line.has_ratios && !base.is_disturbed);
    let cell = |(index, ours): (usize, &Option<Ours<'_>>)| {
        let Some(ours) = ours else {
            return NONE.to_owned();
        };
        let base = base.filter(|_| index > 0 && !ours.is_disturbed);
        let mark = if ours.is_disturbed { "! " } else { "" };
        let factor = times(ours.figure, base.map(|base| base.figure));
        format!("{mark}{}{}{factor}", about(ours.figure), ours.range())
    };
    found.iter().enumerate().map(cell).collect()
}

/// A figure of ours.
struct Ours<'a> {
    figure: f64,
    /// For a row's own figure, the row, and the factor to the line's unit.
    row: Option<(&'a Row, f64)>,
    is_disturbed: bool,
}

impl<'a> Ours<'a> {
    fn find(select: &Select, measure: Measure, result: &'a ScenarioResult) -> Option<Self> {
        let row = result.rows.iter().find(|row| select.is(row))?;
        let is_disturbed = row.is_disturbed(result.rounds);
        Some(match measure {
            Measure::Figure(unit) => {
                let scale = scale(row.unit, unit);
                Self {
                    figure: row.figure.median * scale,
                    row: Some((row, scale)),
                    is_disturbed,
                }
            }
            Measure::Extra(name, _) => Self {
                figure: *row.extra.get(name)?,
                row: None,
                is_disturbed,
            },
        })
    }

    /// The smallest and the largest figure, unless all rounds had the same.
    fn range(&self) -> String {
        match self.row {
            Some((row, scale)) if row.figure.min < row.figure.max && !is_exact(row.unit) => {
                format!(
                    " ({} – {})",
                    about(row.figure.min * scale),
                    about(row.figure.max * scale)
                )
            }
            _ => String::new(),
        }
    }
}

/// Whether figures of this unit have no spread.
fn is_exact(unit: Unit) -> bool {
    matches!(unit, Unit::Bytes | Unit::Instructions)
}

/// The factor to a base, if there is one.
fn times(figure: f64, base: Option<f64>) -> String {
    match base {
        Some(base) if base > 0.0 => format!(", × {}", short(figure / base)),
        _ => String::new(),
    }
}

/// A published figure, with as many digits as were published, or about as many.
pub(super) fn exact(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 1000.0 => return in_thousands(value),
        size if size >= 0.1 => 2,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A figure of ours.
pub(super) fn about(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => in_thousands(value),
        size if size < 0.1 => exact(value),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        _ => short(value),
    }
}

/// A number without decimals, with a comma before each three digits.
fn in_thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 {
        format!("-{text}")
    } else {
        text
    }
}
