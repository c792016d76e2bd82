//! Rows and columns: sorted, filtered, fitted to a width.

use crate::style::printable;
use ratatui::style::Style;
use std::cmp::Ordering;

/// A column of a pane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// The minimum width.
    pub(super) width: u16,
    /// Its share of the remaining width; 0 for none.
    pub(super) grows: u16,
    /// If there is too little room, columns of the highest rank are dropped first. Rank 0 is never dropped.
    pub(super) rank: u8,
    pub(super) is_number: bool,
}

impl Column {
    pub(super) const fn text(title: &'static str, width: u16, grows: u16, rank: u8) -> Self {
        Self {
            title,
            width,
            grows,
            rank,
            is_number: false,
        }
    }

    pub(super) const fn number(title: &'static str, width: u16, rank: u8) -> Self {
        Self {
            title,
            width,
            grows: 0,
            rank,
            is_number: true,
        }
    }
}

/// The content of a cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Value {
    pub(super) text: String,
    /// The number by which it is sorted, if not by its text.
    number: Option<f64>,
    pub(super) style: Style,
    /// The index of the picture's report that its row shows.
    pub(super) report: Option<usize>,
}

impl Value {
    pub(super) fn text(text: impl AsRef<str>) -> Self {
        Self {
            text: printable(text.as_ref()),
            ..Self::default()
        }
    }

    pub(super) fn number(number: f64, text: impl AsRef<str>) -> Self {
        Self {
            number: Some(number),
            ..Self::text(text)
        }
    }

    pub(super) fn count(count: impl Into<u64>) -> Self {
        let count = count.into();
        Self::number(count as f64, count.to_string())
    }

    /// As [`Self::count`], but empty for 0.
    pub(super) fn some_count(count: usize) -> Self {
        match count {
            0 => Self::number(0.0, ""),
            count => Self::count(count as u64),
        }
    }

    pub(super) fn styled(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    pub(super) fn of_report(mut self, report: usize) -> Self {
        self.report = Some(report);
        self
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self.number, other.number) {
            (Some(one), Some(two)) => one.total_cmp(&two),
            // Cells without a number come last if the highest values come first.
            (Some(_), None) => Ordering::Greater,
            (None, Some(_)) => Ordering::Less,
            (None, None) => self.text.cmp(&other.text),
        }
    }
}

/// The content of a pane.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Vec<Value>>,
}

impl Sheet {
    /// Keeps the rows that contain a text, ignoring case.
    pub(super) fn filter(&mut self, wanted: &str) {
        let wanted = wanted.to_lowercase();
        if !wanted.is_empty() {
            self.rows.retain(|row| {
                row.iter()
                    .any(|value| value.text.to_lowercase().contains(&wanted))
            });
        }
    }

    /// Sorts by a column; equal rows keep their order.
    pub(super) fn sort(&mut self, column: usize, descending: bool) {
        self.rows.sort_by(|one, two| {
            let order = match (one.get(column), two.get(column)) {
                (Some(one), Some(two)) => one.compare(two),
                _ => Ordering::Equal,
            };
            if descending { order.reverse() } else { order }
        });
    }

    /// The columns that fit a width, and the width of each. Empty columns are dropped, unless they have rank 0.
    pub(super) fn fit(&self, width: u16) -> Vec<(usize, u16)> {
        let content: Vec<u16> = (0..self.columns.len())
            .map(|index| {
                let lengths = self.rows.iter().map(|row| row[index].text.chars().count());
                lengths.max().unwrap_or(0).try_into().unwrap_or(u16::MAX)
            })
            .collect();
        let mut shown: Vec<(usize, u16)> = (0..self.columns.len())
            .filter(|index| content[*index] > 0 || self.columns[*index].rank == 0)
            .map(|index| (index, self.columns[index].width))
            .collect();
        let needed = |shown: &[(usize, u16)]| {
            let widths = shown.iter().map(|(_, width)| u32::from(*width));
            widths.sum::<u32>() + shown.len().saturating_sub(1) as u32
        };
        while needed(&shown) > u32::from(width) {
            let rank = |(index, _): &(usize, u16)| self.columns[*index].rank;
            let last = shown
                .iter()
                .enumerate()
                .filter(|(_, column)| rank(column) > 0)
                .max_by_key(|(_, column)| rank(column));
            match last {
                Some((place, _)) => shown.remove(place),
                None => break,
            };
        }
        // The remaining width goes to the columns that need it, one character at a time.
        let mut left = u32::from(width).saturating_sub(needed(&shown));
        let mut is_wanted = true;
        while left > 0 && is_wanted {
            is_wanted = false;
            for (index, width) in &mut shown {
                let more = u32::from(self.columns[*index].grows)
                    .min(content[*index].saturating_sub(*width).into())
                    .min(left);
                *width += more as u16;
                left -= more;
                is_wanted |= more > 0;
            }
        }
        shown
    }
}

/// A text in lines of at most a width; lines after the first are indented further.
pub(super) fn wrapped(text: &str, width: u16) -> Vec<String> {
    let width = usize::from(width.max(1));
    let before = text.chars().take_while(|space| *space == ' ').count() + 3;
    let before = if before < width / 2 { before } else { 0 };
    let mut lines = Vec::new();
    let mut rest = text;
    loop {
        let indent = if lines.is_empty() { 0 } else { before };
        let end = rest.char_indices().nth(width - indent);
        let Some((end, _)) = end else {
            lines.push(format!("{:indent$}{rest}", ""));
            return lines;
        };
        // Breaks at a space, if there is one in the second half.
        let at = rest[..end].rfind(' ').filter(|at| *at > end / 2);
        let (line, more) = match at {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => rest.split_at(end),
        };
        lines.push(format!("{:indent$}{line}", ""));
        rest = more;
    }
}

/// A text cut off at a width, with a mark if something is missing.
pub(super) fn cut(text: &str, width: u16) -> String {
    let width = usize::from(width);
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let Some(room) = width.checked_sub(1) else {
        return String::new();
    };
    text.chars().take(room).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column::text("NAME", 10, 1, 0),
        Column::number("PID", 7, 0),
        Column::text("WHERE", 20, 2, 1),
        Column::number("CPU", 5, 2),
    ];

    fn sheet() -> Sheet {
        let row = |name: &str, pid: u32| {
            let place = Value::text("in a place with a name of 35 letters");
            vec![
                Value::text(name),
                Value::count(pid),
                place,
                Value::default(),
            ]
        };
        Sheet {
            columns: COLUMNS,
            rows: vec![row("b", 9), row("A", 10), row("c", 1)],
        }
    }

    #[test]
    fn columns_go_by_rank_and_grow_as_far_as_they_need() {
        assert_eq!(sheet().fit(5), [(0, 10), (1, 7)]);
        assert_eq!(sheet().fit(42), [(0, 10), (1, 7), (2, 23)]);
        assert_eq!(sheet().fit(200), [(0, 10), (1, 7), (2, 36)]);
        let mut sheet = sheet();
        sheet.rows[0][3] = Value::count(7u64);
        assert_eq!(sheet.fit(200), [(0, 10), (1, 7), (2, 36), (3, 5)]);
    }

    #[test]
    fn numbers_are_sorted_as_numbers_and_text_is_found_in_any_case() {
        let names = |sheet: &Sheet| -> Vec<String> {
            sheet.rows.iter().map(|row| row[0].text.clone()).collect()
        };
        let mut by_pid = sheet();
        by_pid.sort(1, true);
        assert_eq!(names(&by_pid), ["A", "b", "c"]);
        let mut found = sheet();
        found.filter("B");
        assert_eq!(names(&found), ["b"]);
    }

    #[test]
    fn a_text_is_wrapped_at_spaces_and_loses_nothing() {
        assert_eq!(
            wrapped(" holds a lock, and more", 12),
            [" holds a", "    lock,", "    and more"]
        );
        assert_eq!(wrapped("äöüß", 3), ["äöü", "ß"]);
        for text in ["", "x", "                              x"] {
            for width in [0, 1, 7, 80] {
                let letters: String = wrapped(text, width).concat();
                assert_eq!(letters.trim(), text.trim(), "{width}");
            }
        }
    }

    #[test]
    fn a_text_is_cut_by_characters() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
        assert_eq!(cut("x", 0), "");
    }
}
