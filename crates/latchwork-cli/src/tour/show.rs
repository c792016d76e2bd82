//! The tour's output: live lines on a terminal, plain lines elsewhere.

use crate::style::{BAD, FAINT, GOOD, STRONG};
use anstyle::Style;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};

/// A worker's state, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Working,
    Killed,
    Done,
}

/// The lines that change while the tour runs: one for each worker, and one for the total.
pub(super) struct Show {
    live: Option<(MultiProgress, ProgressBar)>,
    workers: Vec<ProgressBar>,
}

/// With more workers than this, only the total is shown.
const SHOWN: usize = 16;

impl Show {
    pub(super) fn new(pieces: usize) -> Self {
        let live = io::stdout().is_terminal().then(|| {
            let lines = MultiProgress::with_draw_target(indicatif::ProgressDrawTarget::stdout());
            let whole = ProgressBar::new(pieces as u64)
                .with_style(bar("  {bar:40.green} {pos}/{len} pieces  {elapsed}"));
            (lines.clone(), lines.add(whole))
        });
        Self {
            live,
            workers: Vec::new(),
        }
    }

    /// A worker has started.
    pub(super) fn add(&mut self, name: &str, pid: u32) {
        let Some((lines, whole)) = &self.live else {
            return self.line(&format!("  {name} is process {pid}"));
        };
        let line = ProgressBar::new_spinner()
            .with_style(bar("  {prefix:16} {msg}"))
            .with_prefix(name.to_owned());
        let line = if self.workers.len() < SHOWN {
            lines.insert_before(whole, line)
        } else {
            line
        };
        line.set_message(format!("process {pid}"));
        self.workers.push(line);
    }

    pub(super) fn worker(&self, index: usize, pid: u32, pieces: u32, state: State) {
        let Some(line) = self.workers.get(index) else {
            return;
        };
        let (style, text) = match state {
            State::Working => (GOOD, "at work"),
            State::Killed => (BAD, "killed"),
            State::Done => (FAINT, "done"),
        };
        line.set_message(format!(
            "process {pid:<8} {pieces:>6} pieces  {style}{text}{style:#}"
        ));
    }

    pub(super) fn whole(&self, pieces: u64) {
        if let Some((_, whole)) = &self.live {
            whole.set_position(pieces);
        }
    }

    /// Prints a line about an event.
    pub(super) fn event(&self, style: Style, text: &str) {
        self.line(&format!("  {style}{text}{style:#}"));
    }

    fn line(&self, text: &str) {
        match &self.live {
            // The bars are redrawn below the line.
            Some((lines, _)) => drop(lines.println(text)),
            None => drop(writeln!(anstream::stdout(), "{text}")),
        }
    }

    /// Leaves the lines in their final state.
    pub(super) fn finish(self) {
        for worker in &self.workers {
            worker.abandon();
        }
        if let Some((_, whole)) = self.live {
            whole.abandon();
        }
    }
}

fn bar(template: &str) -> ProgressStyle {
    // A template that does not parse would be a fault of this program; the default style is used then.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A title between parts.
pub(super) fn title(out: &mut impl Write, text: &str) -> io::Result<()> {
    writeln!(out, "\n{STRONG}{text}{STRONG:#}")
}
