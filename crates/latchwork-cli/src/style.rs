//! The appearance of text for people: colours by meaning, aligned tables, sizes in units.
//!
//! Colours are always written; the stream removes them where they do not belong (a file, a pipe, `NO_COLOR`).

use anstyle::{AnsiColor, Style};
use std::fmt::Write as _;
use std::io::{self, Write};

/// As it should be.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Worth attention.
pub(crate) const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
/// Wrong, or forbidden.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Names and titles.
pub(crate) const STRONG: Style = Style::new().bold();
/// Secondary information.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// Everything else.
pub(crate) const PLAIN: Style = Style::new();

/// A piece of a line.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn new(style: Style, text: impl AsRef<str>) -> Self {
        Self {
            text: printable(text.as_ref()),
            style,
        }
    }

    pub(crate) fn plain(text: impl ToString) -> Self {
        Self::new(PLAIN, text.to_string())
    }

    /// The value, or a dash.
    pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> Self {
        value.map_or_else(|| Self::new(FAINT, "-"), Self::plain)
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { text, style } = self;
        write!(formatter, "{style}{text}{style:#}")
    }
}

/// Whether a terminal may obey this character, or show others in another order because of it.
pub(crate) fn controls_terminals(character: char) -> bool {
    let reorders = matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || reorders
}

/// Replaces such characters, since names come from unknown programs and must not control the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|character| {
            if controls_terminals(character) {
                '\u{fffd}'
            } else {
                character
            }
        })
        .collect()
}

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of cells under a header, aligned.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Align>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Without any title there is no header.
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        let header: Vec<_> = columns
            .iter()
            .map(|(title, _)| Cell::new(FAINT, title))
            .collect();
        let titled = columns.iter().any(|(title, _)| !title.is_empty());
        Self {
            columns: columns.iter().map(|(_, align)| *align).collect(),
            rows: if titled { vec![header] } else { vec![] },
        }
    }

    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    /// Writes each row as a line, indented by two spaces.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].text.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.columns.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            let mut pending = 2;
            for ((cell, align), width) in row.iter().zip(&self.columns).zip(&widths) {
                let room = width - cell.text.chars().count();
                let (before, after) = if *align == Align::Right {
                    (room, 0)
                } else {
                    (0, room)
                };
                if !cell.text.is_empty() {
                    // Spaces are written only before text, so that no line ends with spaces.
                    let _ = write!(line, "{:1$}{cell}", "", pending + before);
                    pending = 0;
                } else {
                    pending += before;
                }
                pending += after + 2;
            }
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

/// A number of bytes in a suitable unit.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (count.max(1).ilog2() / 10).min(4) as usize;
    let whole = count as f64 / (1u64 << (10 * unit)) as f64;
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{whole:.1} {}", UNITS[unit])
    }
}

/// A number with its noun.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(table: &Table) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        table.write(&mut out).unwrap();
        String::from_utf8(out.into_inner()).unwrap()
    }

    #[test]
    fn columns_are_aligned_whatever_their_style() {
        let mut table = Table::new(&[
            ("N", Align::Right),
            ("NAME", Align::Left),
            ("", Align::Left),
        ]);
        table.push(vec![Cell::plain(7), Cell::new(BAD, "ä"), Cell::plain("x")]);
        table.push(vec![
            Cell::plain(123),
            Cell::new(GOOD, "longer"),
            Cell::plain(""),
        ]);
        assert_eq!(
            text(&table),
            "    N  NAME\n    7  ä       x\n  123  longer\n"
        );
    }

    #[test]
    fn a_hostile_name_cannot_control_the_terminal() {
        assert_eq!(
            Cell::plain("a\x1b[31mb\nc\u{9b}").text,
            "a\u{fffd}[31mb\u{fffd}c\u{fffd}"
        );
    }

    #[test]
    fn sizes_have_the_unit_that_suits_them() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1024), bytes(1 << 40)],
            ["0 B", "1023 B", "1.0 KiB", "1.0 TiB"]
        );
    }
}
