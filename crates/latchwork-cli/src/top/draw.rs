//! The screen: a summary, the panes' titles, the pane, and a line about keys.

use super::app::App;
use super::panes::{BAD, DOUBTFUL, Pane};
use super::sheet::{Sheet, cut, wrapped};
use crate::style;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table};

const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
// Visible without colours, too.
const HEADER: Style = Style::new()
    .fg(Color::Cyan)
    .add_modifier(Modifier::BOLD.union(Modifier::UNDERLINED));
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

const HELP: &[(&str, &str)] = &[
    ("1 … 6, Tab", "switch panes"),
    ("s", "sort by the next column"),
    ("S", "sort by the previous column"),
    ("r", "reverse the order"),
    ("/", "show only the rows that contain a text; Esc: all rows"),
    ("a", "switch: all rows, or those about locks or regions"),
    ("↑ ↓ PgUp PgDn g G", "move"),
    ("Enter", "show the selected row in full; Esc: back"),
    ("Space", "pause or resume"),
    ("q", "quit"),
    ("Ctrl-Z", "suspend"),
    ("", ""),
    ("~", "before a time: the time is an estimate"),
    ("FIFO:5^80", "own priority 5, inherited priority 80"),
];

pub(super) fn screen(frame: &mut Frame<'_>, app: &mut App) {
    let [summary, tabs, table, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let sheet = app.sheet();
    frame.render_widget(Paragraph::new(summary_line(app, summary.width)), summary);
    frame.render_widget(Paragraph::new(tab_line(app, &sheet)), tabs);
    if app.opened.is_some() {
        open_row(frame, app, table);
    } else {
        pane(frame, app, &sheet, table);
    }
    frame.render_widget(Paragraph::new(key_line(app)), keys);
    if app.shows_help {
        help(frame);
    }
}

/// The most important counts come first: a count that does not fit is omitted, with all that follow.
fn summary_line(app: &App, width: u16) -> Line<'static> {
    let Some(view) = &app.view else {
        return Line::from("latchwork top: reading …");
    };
    let picture = &view.picture;
    let count = |holds: &dyn Fn(&crate::live::Lock) -> bool| {
        picture.locks.iter().filter(|lock| holds(lock)).count()
    };
    let contended = count(&|lock| lock.kind.is_lock() && !lock.waiters.is_empty());
    let waiting = count_waiting(picture);
    let number = |count: usize, what: &str, style: Style| {
        let (number, noun) = match count {
            0 => (FAINT, FAINT),
            _ => (style, Style::new()),
        };
        vec![
            Span::styled(count.to_string(), number),
            Span::styled(format!(" {what}{}", plural(what, count)), noun),
        ]
    };
    let inversions = count(&|lock| lock.flags.inversion);
    let cost = format!("a sample takes {} ms", view.cost.as_millis());
    let parts = vec![
        vec![Span::styled("latchwork top", TITLE)],
        number(picture.cycles.len(), "deadlock", BAD),
        number(inversions, "inversion", BAD),
        number(waiting, "waiting", DOUBTFUL),
        number(contended, "contended", DOUBTFUL),
        number(picture.regions.len(), "region", TITLE),
        number(picture.locks.len(), "lock", TITLE),
        number(picture.tasks.len(), "thread", TITLE),
        number(picture.hidden_processes, "hidden", DOUBTFUL),
        vec![Span::styled(cost, FAINT)],
    ];
    whole(parts, usize::from(width))
}

/// As many of the parts as fit, two columns apart.
fn whole(parts: Vec<Vec<Span<'static>>>, width: usize) -> Line<'static> {
    let mut line = Line::default();
    for part in parts {
        let gap = if line.spans.is_empty() { 0 } else { 2 };
        let more: usize = part.iter().map(Span::width).sum();
        if line.width() + gap + more > width {
            break;
        }
        line.push_span(Span::raw(" ".repeat(gap)));
        line.extend(part);
    }
    line
}

/// For the nouns of the summary.
fn plural(what: &str, count: usize) -> &'static str {
    let is_noun = !matches!(what, "waiting" | "contended" | "hidden");
    if is_noun && count != 1 { "s" } else { "" }
}

/// How many tasks wait for others.
fn count_waiting(picture: &crate::live::Picture) -> usize {
    let waits = |task: &&crate::live::Task| {
        task.waits_for
            .iter()
            .any(|lock| picture.locks[*lock].kind.is_lock())
    };
    picture.tasks.iter().filter(waits).count()
}

fn tab_line(app: &App, sheet: &Sheet) -> Line<'static> {
    let mut spans = Vec::new();
    for (index, pane) in Pane::ALL.into_iter().enumerate() {
        let text = format!(" {} {} ", index + 1, pane.title());
        let reported = app
            .view
            .as_ref()
            .map_or(0, |view| view.picture.reports.len());
        let style = match pane {
            pane if pane == app.pane => CHOSEN,
            Pane::Findings if reported > 0 => BAD,
            _ => FAINT,
        };
        spans.push(Span::styled(text, style));
    }
    let rows = style::count(sheet.rows.len(), "row", "rows");
    spans.push(Span::raw(format!("  {rows}")));
    if app.is_paused {
        spans.push(Span::styled("  paused", DOUBTFUL));
    }
    Line::from(spans)
}

fn pane(frame: &mut Frame<'_>, app: &mut App, sheet: &Sheet, area: Rect) {
    if sheet.rows.is_empty() {
        let text = match (&app.view, app.filter.is_empty()) {
            (None, _) => "",
            (Some(_), true) => "Nothing to show.",
            (Some(_), false) => "No row contains that text.",
        };
        let middle = Paragraph::new(text)
            .style(FAINT)
            .alignment(Alignment::Center);
        let [_, line] =
            Layout::vertical([Constraint::Percentage(40), Constraint::Min(0)]).areas(area);
        frame.render_widget(middle, line);
        return;
    }
    let (sorted, descending) = app.order();
    let fitted = sheet.fit(area.width);
    app.shown = fitted.iter().map(|(index, _)| *index).collect();
    let cell = |text: String, index: usize| {
        let line = Line::from(text);
        Cell::from(if sheet.columns[index].is_number {
            line.alignment(Alignment::Right)
        } else {
            line
        })
    };
    let header = fitted.iter().map(|(index, width)| {
        let title = sheet.columns[*index].title;
        let mark = match (*index == sorted, descending) {
            (false, _) => "",
            (true, true) => "↓",
            (true, false) => "↑",
        };
        cell(cut(&format!("{title}{mark}"), *width), *index)
    });
    let header = Row::new(header).style(HEADER);
    let rows = sheet.rows.iter().map(|row| {
        Row::new(fitted.iter().map(|(index, width)| {
            let value = &row[*index];
            cell(cut(&value.text, *width), *index).style(value.style)
        }))
    });
    let widths = fitted.iter().map(|(_, width)| Constraint::Length(*width));
    let table = Table::new(rows, widths)
        .header(header)
        .column_spacing(1)
        .row_highlight_style(CHOSEN);
    app.page = usize::from(area.height.saturating_sub(1));
    let last = sheet.rows.len() - 1;
    let state = &mut app.choice().table;
    if let Some(chosen) = state.selected() {
        state.select(Some(chosen.min(last)));
    }
    frame.render_stateful_widget(table, area, state);
}

fn key_line(app: &App) -> Line<'static> {
    if app.is_typing {
        return Line::from(vec![
            Span::styled("show only: ", TITLE),
            Span::raw(app.filter.clone()),
            Span::styled(" ", CHOSEN),
        ]);
    }
    if app.opened.is_some() {
        return keys_line(&[("Esc", "back"), ("↑ ↓ PgUp PgDn g G", "move")]);
    }
    let keys = [
        ("q", "quit"),
        ("?", "help"),
        ("Tab", "pane"),
        ("s", "sort"),
        ("r", "reverse"),
        ("/", "filter"),
        ("Enter", "open"),
        ("Space", "pause"),
        ("a", "all"),
    ];
    let mut spans = Vec::new();
    // The filter comes first, since the end of the line may be cut off.
    if !app.filter.is_empty() {
        spans.push(Span::styled(format!("only “{}”  ", app.filter), DOUBTFUL));
    }
    spans.extend(keys_line(&keys));
    Line::from(spans)
}

fn keys_line(keys: &[(&'static str, &str)]) -> Line<'static> {
    let spans = keys.iter().flat_map(|(key, what)| {
        let what = Span::styled(format!(" {what}  "), FAINT);
        [Span::styled(*key, TITLE), what]
    });
    spans.collect()
}

/// Shows a row in full, in as many lines as it needs.
fn open_row(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let Some(opened) = &mut app.opened else {
        return;
    };
    let block = Block::bordered().title(format!(" {} ", opened.title));
    let inner = block.inner(area);
    let lines = opened
        .lines
        .iter()
        .flat_map(|line| wrapped(line, inner.width));
    let lines: Vec<_> = lines.map(Line::from).collect();
    app.page = usize::from(inner.height);
    opened.above = opened.above.min(lines.len().saturating_sub(app.page));
    let shown = lines.into_iter().skip(opened.above).take(app.page);
    let text = Paragraph::new(shown.collect::<Vec<_>>()).block(block);
    frame.render_widget(text, area);
}

fn help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let height = (HELP.len() as u16 + 2).min(area.height);
    let width = 74.min(area.width);
    let middle = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    let lines = HELP.iter().map(|(key, what)| {
        Line::from(vec![
            Span::styled(format!(" {key:18} "), TITLE),
            Span::raw(*what),
        ])
    });
    let text = Paragraph::new(lines.collect::<Vec<_>>())
        .block(Block::bordered().title(" keys; any key goes back "));
    frame.render_widget(Clear, middle);
    frame.render_widget(text, middle);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Picture;
    use crate::top::watch::View;
    use std::time::{Duration, Instant};

    #[test]
    fn the_summary_has_whole_words_at_any_width() {
        let mut app = App::new(Pane::Locks, String::new(), false);
        let (processes, taken_at) = (Default::default(), Instant::now());
        app.show(View {
            picture: Picture::default(),
            processes,
            taken_at,
            cost: Duration::from_millis(40),
        });
        let all = summary_line(&app, u16::MAX).to_string();
        assert!(
            all.contains("0 threads  0 hidden  a sample takes 40 ms"),
            "{all}"
        );
        for width in 13..120 {
            let line = summary_line(&app, width);
            assert!(line.width() <= usize::from(width), "{line}");
            let text = line.to_string();
            let rest = all.strip_prefix(text.as_str());
            assert!(
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("  ")),
                "{width}: {text:?} of {all:?}"
            );
        }
    }

    /// Each text of the picture has the width that it claims, and lies within the picture.
    #[test]
    fn the_picture_of_the_manual_cuts_no_word_of_the_summary() {
        let picture = include_str!("../../../../docs/top.svg");
        let line = picture.lines().filter(|line| line.contains("y=\"21.0\""));
        let texts: Vec<&str> = line
            .filter_map(|line| line.split_once('>')?.1.strip_suffix("</text>"))
            .collect();
        let words = texts.join(" ");
        assert!(words.starts_with("latchwork top 1 deadlock"), "{words}");
        let last = texts.last().unwrap();
        assert!(["regions", "locks", "threads"].contains(last), "{words}");
    }
}
