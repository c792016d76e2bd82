//! Results and the list of contestants as text for people.

use std::fmt;
use std::io::{self, Write};
use std::ops::Range;

use crate::result::{Params, Row, ScenarioResult};
use crate::scenarios::Scenario;

/// Prints a scenario's result.
pub(crate) fn print_result(result: &ScenarioResult, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", result.scenario)?;
    writeln!(out, "  {}", headline(result))?;
    writeln!(out, "  {}", meaning(result))?;
    writeln!(out)?;
    print_rows(result, out)?;
    for warning in &result.warnings {
        writeln!(out, "  ! {}", warning.text())?;
    }
    writeln!(out)
}

/// The longest line of a table of results, if one further figure beside the parameters is not longer.
const WIDTH: usize = 120;

/// Prints the rows as tables that fit into a terminal: the figures, and then further ones, as many side by side as there
/// is room for. What is the same in all rows stands above. Published figures are in the report only.
fn print_rows(result: &ScenarioResult, out: &mut impl Write) -> io::Result<()> {
    let lines = cells(result);
    let Some((head, rows)) = lines.split_first() else {
        return Ok(());
    };
    let further = 1 + parameters(result).len() + FIGURES;
    let is_common = |column: usize| {
        rows.len() > 1 && column < further && {
            let first = &rows[0][column];
            !first.is_empty() && rows.iter().all(|row| row[column] == *first)
        }
    };
    let common: Vec<String> = (1..further)
        .filter(|column| is_common(*column))
        .map(|column| format!("{} {}", head[column], rows[0][column]))
        .collect();
    if !common.is_empty() {
        writeln!(out, "  all rows: {}", common.join(", "))?;
    }
    let varies = |columns: Range<usize>| columns.filter(|column| !is_common(*column));
    let key: Vec<usize> = varies(0..further - FIGURES).collect();
    let figures = key
        .iter()
        .copied()
        .chain(varies(further - FIGURES..further));
    print_columns(&chosen(&lines, figures), 1, out)?;
    let width = |column: usize| {
        let width = |line: &Vec<String>| line[column].chars().count() + 2;
        lines.iter().map(width).max().unwrap_or(0)
    };
    let room = WIDTH.saturating_sub(key.iter().map(|column| width(*column)).sum());
    let extras: Vec<usize> = (further..head.len())
        .filter(|column| !head[*column].starts_with("published "))
        .collect();
    let mut left = extras.as_slice();
    while !left.is_empty() {
        let mut taken = 0;
        let fitting = left.iter().take_while(|column| {
            taken += width(**column);
            taken <= room
        });
        let (now, later) = left.split_at(fitting.count().max(1));
        left = later;
        writeln!(out)?;
        let columns = key.iter().chain(now).copied();
        print_columns(&chosen(&lines, columns), 1, out)?;
    }
    Ok(())
}

/// These columns of each line.
fn chosen(lines: &[Vec<String>], columns: impl Iterator<Item = usize> + Clone) -> Vec<Vec<String>> {
    let of_line = |line: &Vec<String>| columns.clone().map(|column| line[column].clone()).collect();
    lines.iter().map(of_line).collect()
}

/// One line for people: the machine, and the scheduling class of the process that measured.
pub(crate) fn headline(result: &ScenarioResult) -> String {
    let machine = &result.machine;
    let is_virtual = result.run.as_ref().is_some_and(|run| run.virtual_machine);
    let class = result.run.as_ref().map(|run| format!(", {}", run.class));
    format!(
        "{}, {} CPUs{}, Linux {}, {}{}",
        machine.cpu,
        machine.cpus,
        if is_virtual { ", virtual machine" } else { "" },
        machine.kernel,
        machine.libc,
        class.unwrap_or_default()
    )
}

/// The meaning of the columns of figures.
pub(crate) fn meaning(result: &ScenarioResult) -> String {
    format!(
        "{} round{}, median and range; ratio to '{}' in the same round",
        result.rounds,
        if result.rounds == 1 { "" } else { "s" },
        result.base
    )
}

/// The table: a header, then a line for each row, all of the same length.
pub(crate) fn cells(result: &ScenarioResult) -> Vec<Vec<String>> {
    let named = parameters(result);
    let mut extras: Vec<&String> = result
        .rows
        .iter()
        .flat_map(|row| row.extra.keys())
        .collect();
    // By words, so that p99 stands before p999.
    extras.sort_by_cached_key(|name| name.replace('_', " "));
    extras.dedup();

    let mut head = vec!["contestant".to_owned()];
    head.extend(named.iter().map(|(name, _)| (*name).to_owned()));
    head.extend(["unit", "median", "range", "ratio", "its range"].map(str::to_owned));
    head.extend(extras.iter().map(|name| name.replace('_', " ")));
    let mut lines = vec![head];
    for row in &result.rows {
        let mut line = vec![row.contestant.clone()];
        line.extend(
            named
                .iter()
                .map(|(_, value)| value(&row.params).unwrap_or_default()),
        );
        line.extend(figures(row, row.is_disturbed(result.rounds)));
        line.extend(extras.iter().map(|name| {
            row.extra
                .get(*name)
                .map_or(String::new(), |value| short(*value))
        }));
        lines.push(line);
    }
    lines
}

/// The parameters that rows of a result have.
fn parameters(result: &ScenarioResult) -> Vec<Param> {
    PARAMS
        .iter()
        .filter(|(_, value)| result.rows.iter().any(|row| value(&row.params).is_some()))
        .copied()
        .collect()
}

/// Prints the scenarios and whether their contestants are available here.
pub(crate) fn print_list(scenarios: &[&dyn Scenario], out: &mut impl Write) -> io::Result<()> {
    for scenario in scenarios {
        writeln!(out, "{}: {}", scenario.name(), scenario.about())?;
        let source = scenario.source().map(|source| source.to_string());
        writeln!(out, "  {}", origin(source.as_deref()))?;
        let lines: Vec<Vec<String>> = scenario
            .contestants()
            .iter()
            .map(|contestant| {
                let base = if contestant.name == scenario.base() {
                    " (base)"
                } else {
                    ""
                };
                let state = match &contestant.absent {
                    None => "ready".to_owned(),
                    Some(absent) => format!("absent: {absent}"),
                };
                vec![format!("{}{base}", contestant.name), state]
            })
            .collect();
        print_columns(&lines, usize::MAX, out)?;
        writeln!(out)?;
    }
    Ok(())
}

/// Which published experiment a scenario repeats, as text.
pub(crate) fn origin(source: Option<&str>) -> String {
    match source {
        Some(source) => format!("repeats {source}"),
        None => "repeats no published experiment".to_owned(),
    }
}

impl Params {
    /// Whether these parameters include the `given` ones.
    pub(crate) fn has(&self, given: &Self) -> bool {
        let includes =
            |(_, value): &Param| value(given).is_none_or(|given| value(self) == Some(given));
        PARAMS.iter().all(includes)
    }
}

/// A parameter: its name, and its value where it applies.
pub(crate) type Param = (&'static str, fn(&Params) -> Option<String>);

pub(crate) const PARAMS: &[Param] = &[
    ("case", |params| params.case.map(|value| value.to_string())),
    ("mode", |params| params.mode.map(|value| value.to_string())),
    ("parent MiB", |params| {
        params.parent_mib.map(|value| value.to_string())
    }),
    ("size", |params| params.size.map(|value| value.to_string())),
    ("tasks", |params| {
        params.tasks.map(|value| value.to_string())
    }),
    ("objects", |params| {
        params.objects.map(|value| value.to_string())
    }),
    ("regions", |params| {
        params.regions.map(|value| value.to_string())
    }),
    ("load", |params| params.load.map(|value| value.to_string())),
    ("sleeps/1024", |params| {
        params.sleeps.map(|value| value.to_string())
    }),
    ("read %", |params| {
        params.read_pct.map(|value| value.to_string())
    }),
    ("kind", |params| params.kind.map(|value| value.to_string())),
    ("placement", |params| {
        params.placement.map(|value| value.to_string())
    }),
    ("sched", |params| {
        params.sched.map(|value| value.to_string())
    }),
    ("check", |params| {
        params.check.map(|value| value.to_string())
    }),
    ("beside", |params| {
        params.beside.map(|value| value.to_string())
    }),
    ("quota %", |params| {
        params.quota_pct.map(|value| value.to_string())
    }),
];

/// Columns of every row's figure: unit, median, range, ratio, and its range.
const FIGURES: usize = 5;

fn figures(row: &Row, is_disturbed: bool) -> [String; FIGURES] {
    let mark = if is_disturbed { "! " } else { "" };
    let range = |min: f64, max: f64| format!("{} – {}", short(min), short(max));
    let (ratio, its_range) = row.ratio.map_or((String::new(), String::new()), |ratio| {
        (
            format!("{:.2}", ratio.median),
            format!("{:.2} – {:.2}", ratio.min, ratio.max),
        )
    });
    [
        row.unit.to_string(),
        format!("{mark}{}", short(row.figure.median)),
        range(row.figure.min, row.figure.max),
        ratio,
        its_range,
    ]
}

impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = PARAMS
            .iter()
            .filter_map(|(name, value)| Some((name, value(self)?)));
        for (index, (name, value)) in given.enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {value}")?;
        }
        Ok(())
    }
}

/// About four significant digits: more would be noise.
pub(crate) fn short(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// Prints `lines` as columns, the first `left` of which are left-aligned.
pub(crate) fn print_columns(
    lines: &[Vec<String>],
    left: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let columns = lines.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let width = |line: &Vec<String>| line[column].chars().count();
            lines.iter().map(width).max().unwrap_or(0)
        })
        .collect();
    for line in lines {
        let mut text = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            text += &if column < left {
                format!("  {cell:<width$}")
            } else {
                format!("  {cell:>width$}")
            };
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_figures_are_in_the_order_of_their_words() {
        use crate::report::tests::{result, row};

        let mut row = row("std", 1.0, None);
        for name in ["wait_p999_ns", "wait_p50_ns", "wait_p99_ns", "sleeps"] {
            row.extra.insert(name.to_owned(), 1.0);
        }
        let cells = cells(&result("std", vec![row]));
        let last = &cells[0][cells[0].len() - 4..];
        assert_eq!(
            last,
            ["sleeps", "wait p50 ns", "wait p99 ns", "wait p999 ns"]
        );
    }

    #[test]
    fn tables_fit_into_a_terminal() {
        use crate::report::tests::{result, row};

        let rows = ["std", "parking_lot"].map(|contestant| {
            let mut row = row(contestant, 1.0, None);
            for number in 0..30 {
                row.extra.insert(format!("figure_{number}"), 1.0);
            }
            row.extra.insert("published_figure".to_owned(), 1.0);
            row
        });
        let mut out = Vec::new();
        print_rows(&result("std", rows.to_vec()), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(text.starts_with("  all rows: "), "{text}");
        for number in 0..30 {
            assert!(text.contains(&format!("figure {number}")), "{text}");
        }
        assert!(!text.contains("published"), "{text}");
        // Each contestant stands in each table.
        assert_eq!(
            text.matches("parking_lot").count(),
            text.matches("contestant").count()
        );
    }

    #[test]
    fn figures_are_short_at_every_size() {
        assert_eq!(short(123_456.7), "123457");
        assert_eq!(short(12.345), "12.3");
        assert_eq!(short(1.234), "1.23");
        assert_eq!(short(-0.5), "-0.50");
    }

    #[test]
    fn columns_line_up_by_characters() {
        let lines = [["µs", "1"], ["longer", "10"]].map(|line| line.map(str::to_owned).to_vec());
        let mut out = Vec::new();
        print_columns(&lines, 1, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "  µs       1\n  longer  10\n"
        );
    }
}
