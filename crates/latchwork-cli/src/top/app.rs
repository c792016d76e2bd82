//! The user's choices, and how keys change them.

use super::history::History;
use super::panes::{self, Pane};
use super::sheet::Sheet;
use super::watch::View;
use crate::style::printable;
use crate::terminal::keys::moved;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::widgets::TableState;

/// The state of the screen.
pub(super) struct App {
    pub(super) pane: Pane,
    pub(super) filter: String,
    /// Whether the filter is being typed.
    pub(super) is_typing: bool,
    pub(super) shows_all: bool,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    /// A row that is shown in full, instead of the pane.
    pub(super) opened: Option<Opened>,
    pub(super) view: Option<View>,
    pub(super) history: History,
    choices: [Choice; Pane::ALL.len()],
    /// How many lines a page of the table has.
    pub(super) page: usize,
    /// The columns that are shown.
    pub(super) shown: Vec<usize>,
    is_done: bool,
}

/// A row as it was when it was opened.
pub(super) struct Opened {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
    /// How many lines, as drawn, are above the first visible one.
    pub(super) above: usize,
}

/// The choices for one pane.
#[derive(Default)]
pub(super) struct Choice {
    /// The column, and whether the highest values come first; `None` for the pane's default.
    pub(super) sort: Option<(usize, bool)>,
    pub(super) table: TableState,
}

impl App {
    pub(super) fn new(pane: Pane, filter: String, shows_all: bool) -> Self {
        Self {
            pane,
            filter,
            is_typing: false,
            shows_all,
            is_paused: false,
            shows_help: false,
            opened: None,
            view: None,
            history: History::default(),
            choices: Default::default(),
            page: 1,
            shown: Vec::new(),
            is_done: false,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Takes over a new view.
    pub(super) fn show(&mut self, view: View) {
        if !self.is_paused || self.view.is_none() {
            self.history.learn(&view);
            self.view = Some(view);
        }
    }

    pub(super) fn choice(&mut self) -> &mut Choice {
        &mut self.choices[self.pane as usize]
    }

    /// The column by which the pane is sorted, and whether the highest values come first.
    pub(super) fn order(&self) -> (usize, bool) {
        self.choices[self.pane as usize]
            .sort
            .unwrap_or(self.pane.order())
    }

    /// The content of the pane, filtered and sorted.
    pub(super) fn sheet(&self) -> Sheet {
        let mut sheet = match &self.view {
            Some(view) => panes::sheet(self.pane, view, &self.history, self.shows_all),
            None => Sheet::default(),
        };
        sheet.filter(&self.filter);
        let (column, descending) = self.order();
        sheet.sort(column, descending);
        sheet
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: KeyEvent) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => self.is_done = true,
            _ if self.is_typing => self.type_filter(key.code),
            _ if self.shows_help => self.shows_help = false,
            code if self.opened.is_some() => self.read_on(code),
            KeyCode::Char('q') => self.is_done = true,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.shows_help = true,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('a') => self.shows_all = !self.shows_all,
            KeyCode::Enter => self.open(),
            KeyCode::Char(' ' | 'p') => self.is_paused = !self.is_paused,
            KeyCode::Char('r') => {
                let (column, descending) = self.order();
                self.choice().sort = Some((column, !descending));
            }
            KeyCode::Char('s' | '>') => self.sort_by(1),
            KeyCode::Char('S' | '<') => self.sort_by(-1),
            KeyCode::Tab | KeyCode::Right => self.pane = self.pane.next(1),
            KeyCode::BackTab | KeyCode::Left => self.pane = self.pane.next(-1),
            KeyCode::Char(digit @ '1'..='6') => {
                self.pane = Pane::ALL[digit as usize - '1' as usize];
            }
            code => self.scroll(code),
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
    }

    /// Sorts by the next or previous visible column: the highest numbers first, texts from A.
    fn sort_by(&mut self, step: isize) {
        let count = self.shown.len() as isize;
        if count == 0 {
            return;
        }
        let (column, _) = self.order();
        let place = self.shown.iter().position(|shown| *shown == column);
        let next = (place.unwrap_or(0) as isize + step).rem_euclid(count) as usize;
        let column = self.shown[next];
        self.choice().sort = Some((column, self.pane.columns()[column].is_number));
    }

    /// Shows the chosen row in full, with the report that it belongs to.
    fn open(&mut self) {
        let sheet = self.sheet();
        let chosen = self.choice().table.selected().unwrap_or(0);
        let Some(row) = sheet
            .rows
            .get(chosen.min(sheet.rows.len().saturating_sub(1)))
        else {
            return;
        };
        let report = row.iter().find_map(|value| value.report);
        let report = report.and_then(|report| self.view.as_ref()?.picture.reports.get(report));
        let lines = match report {
            Some(report) => report.finding.text.lines().map(printable).collect(),
            None => {
                let values = sheet.columns.iter().zip(row);
                values
                    .filter(|(_, value)| !value.text.is_empty())
                    .map(|(column, value)| format!(" {:14} {}", column.title, value.text))
                    .collect()
            }
        };
        let title = row.iter().map(|value| value.text.as_str());
        let title: Vec<_> = title.filter(|text| !text.is_empty()).take(3).collect();
        self.opened = Some(Opened {
            title: title.join("  "),
            lines,
            above: 0,
        });
    }

    fn read_on(&mut self, code: KeyCode) {
        let page = self.page;
        match (code, &mut self.opened) {
            (KeyCode::Enter | KeyCode::Esc | KeyCode::Char('q'), opened) => *opened = None,
            (code, Some(opened)) => {
                opened.above = moved(code, opened.above, page).unwrap_or(opened.above);
            }
            _ => {}
        }
    }

    fn scroll(&mut self, code: KeyCode) {
        let page = self.page;
        let table = &mut self.choice().table;
        if let Some(next) = moved(code, table.selected().unwrap_or(0), page) {
            table.select(Some(next));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app() -> App {
        App::new(Pane::Locks, String::new(), false)
    }

    fn press(app: &mut App, keys: &str) {
        for key in keys.chars() {
            app.press(KeyEvent::from(KeyCode::Char(key)));
        }
    }

    #[test]
    fn keys_switch_panes_and_sort() {
        let mut app = app();
        press(&mut app, "1");
        assert_eq!(app.pane, Pane::Tasks);
        app.press(KeyEvent::from(KeyCode::BackTab));
        assert_eq!(app.pane, Pane::Findings);
        press(&mut app, "2");
        let (column, descending) = app.order();
        press(&mut app, "r");
        assert_eq!(app.order(), (column, !descending));
        app.shown = vec![0, column];
        press(&mut app, "s");
        assert_eq!(app.order(), (0, false));
        press(&mut app, "S");
        assert_eq!(app.order().0, column);
    }

    #[test]
    fn letters_of_a_filter_are_no_commands() {
        let mut app = app();
        press(&mut app, "/quit");
        assert!(!app.is_done());
        assert_eq!(app.filter, "quit");
        app.press(KeyEvent::from(KeyCode::Enter));
        press(&mut app, "q");
        assert!(app.is_done());
    }

    #[test]
    fn ctrl_c_ends_it_whatever_is_shown() {
        for keys in ["", "/", "?"] {
            let mut app = app();
            press(&mut app, keys);
            app.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
            assert!(app.is_done(), "{keys:?}");
        }
    }
}
