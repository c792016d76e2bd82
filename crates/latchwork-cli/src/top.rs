//! `latchwork top`: the live view on a full screen.
//!
//! | file | contents |
//! | --- | --- |
//! | `watch.rs` | takes views of the system repeatedly, in a thread of its own |
//! | `app.rs` | the user's choices, and how keys change them |
//! | `history.rs` | values that need more than one view |
//! | `sheet.rs` | rows and columns: sorted, filtered, fitted to a width |
//! | `panes.rs` | the contents of the panes |
//! | `draw.rs` | the screen |
//!
//! The terminal, which is restored at any end, and its keys are in `terminal.rs`, beside this file.

mod app;
mod draw;
mod history;
mod panes;
mod sheet;
mod watch;

use crate::failure::Failure;
use crate::live::Picture;
use crate::terminal::{self, Keyboard, keys};
use app::App;
use panes::Pane;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use watch::Watch;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds between samples
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::locks::seconds)]
    interval: Duration,
    /// Show this pane first
    #[arg(long, value_enum, default_value_t = Pane::Locks)]
    pane: Pane,
    /// Show only rows that contain this text
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    filter: String,
    /// Show all tasks and all waits, not only those that concern locks or regions
    #[arg(long)]
    all: bool,
    /// Print one frame as text and exit
    #[arg(long)]
    once: bool,
    /// Width and height of the frame, in columns and lines (with --once)
    #[arg(long, value_name = "WIDTHxHEIGHT", default_value = "80x24", value_parser = size)]
    size: (u16, u16),
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let parsed = text.split_once('x').and_then(|(width, height)| {
        let size: (u16, u16) = (width.parse().ok()?, height.parse().ok()?);
        let fits = |size: &u16| (1..=terminal::MOST).contains(size);
        (fits(&size.0) && fits(&size.1)).then_some(size)
    });
    parsed.ok_or_else(|| "two numbers up to 1000, as in 80x24".into())
}

/// Runs until a key or a signal ends it.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<ExitCode, Failure> {
    let mut app = App::new(args.pane, args.filter.clone(), args.all);
    if args.once {
        app.show(watch::take_view(
            &mut Default::default(),
            &mut Default::default(),
        ));
        write!(out, "{}", frame(&mut app, args.size)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !terminal::is_there() {
        return Err(Failure::NoTerminal);
    }
    let watch = Watch::start(args.interval)?;
    let mut keyboard = Keyboard::default();
    terminal::session(|session| {
        while !app.is_done() && !session.is_ended() {
            while let Some(view) = watch.next()? {
                app.show(view);
            }
            session.draw(|frame| draw::screen(frame, &mut app))?;
            keyboard.keys(terminal::PATIENCE, |key| match keys::suspends(&key) {
                true => terminal::suspend(),
                false => app.press(key),
            })?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// One pane of a picture, by its number modulo 6, and its first row in full.
pub(crate) fn screens(picture: Picture, begun: Instant, pane: u8) -> Vec<String> {
    let mut app = App::new(Pane::Locks, String::new(), true);
    app.show(watch::view_of(picture, begun));
    app.press(KeyCode::Char(char::from(b'1' + pane % 6)).into());
    let mut screens = Vec::new();
    for key in [KeyCode::Enter, KeyCode::Esc] {
        screens.extend(frame(&mut app, (80, 24)));
        app.press(key.into());
    }
    screens
}

/// A screen as text, without colours.
fn frame(app: &mut App, (width, height): (u16, u16)) -> io::Result<String> {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| draw::screen(frame, app));
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for line in buffer.content().chunks(usize::from(width)) {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        text += line.trim_end();
        text.push('\n');
    }
    Ok(text)
}
