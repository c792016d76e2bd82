//! The terminal: taken over, and given back however this ends: in good order, by a panic, by a signal.

use super::keys;
use ratatui::backend::Backend;
use ratatui::crossterm::event::KeyEvent;
use ratatui::layout::Rect;
use ratatui::{DefaultTerminal, TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// For a key, before the screen is drawn again: new views and signals are seen as late.
const PATIENCE: Duration = Duration::from_millis(100);

/// Runs `body` on the whole screen; it is to end when what it is given says so.
pub(super) fn session(
    body: impl FnOnce(&mut DefaultTerminal, &dyn Fn() -> bool) -> io::Result<()>,
) -> io::Result<()> {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(io::Error::other("there is no terminal: try --once"));
    }
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    // A panic gives the terminal back, too, before it says what happened.
    let viewport = Viewport::Fixed(screen()?);
    let mut terminal = ratatui::try_init_with_options(TerminalOptions { viewport })?;
    // Relaxed: the flag is all there is to know.
    let result = body(&mut terminal, &|| ended.load(Ordering::Relaxed));
    let restored = terminal.show_cursor().and(ratatui::try_restore());
    if restored.is_err() {
        // It would complain of the cursor again, on the terminal that is gone, and panic since it cannot.
        std::mem::forget(terminal);
    }
    result.and(restored)
}

/// Columns and lines that are drawn on: a terminal can claim to have billions of characters.
pub(super) const MOST: u16 = 1000;

/// As much of the terminal as is drawn on.
fn screen() -> io::Result<Rect> {
    let (width, height) = ratatui::crossterm::terminal::size()?;
    Ok(Rect::new(0, 0, width.min(MOST), height.min(MOST)))
}

/// Goes along with a change of the terminal's size.
pub(super) fn fit(terminal: &mut DefaultTerminal) -> io::Result<()> {
    let screen = screen()?;
    if screen != terminal.get_frame().area() {
        terminal.backend_mut().clear()?;
        terminal.resize(screen)?;
    }
    Ok(())
}

/// The keys of the terminal, read by `keys.rs`: the library that draws would, at a terminal that is gone, or gives a
/// part of a character, look for the rest for ever.
#[derive(Default)]
pub(super) struct Keyboard {
    /// Of a key that has come in part.
    unread: Vec<u8>,
}

impl Keyboard {
    /// Passes on the keys that are pressed, and waits a moment for the first one.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn keys(&mut self, mut press: impl FnMut(KeyEvent)) -> io::Result<()> {
        let stdin = io::stdin();
        let mut look = [PollFd::new(&stdin, PollFlags::IN)];
        let patience = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
        match poll(&mut look, Some(&patience)) {
            // By one of our signals.
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(0) => {
                // What has not come by now is not of that key.
                self.unread.clear();
                return Ok(());
            }
            Ok(_) => {}
        }
        let mut bytes = [0; 256];
        let count = match rustix::io::read(&stdin, &mut bytes) {
            Ok(0) => return Err(io::Error::other("the terminal is gone")),
            Err(Errno::INTR | Errno::AGAIN) => 0,
            result => result?,
        };
        self.unread.extend(&bytes[..count]);
        while let Some((key, length)) = keys::first(&self.unread) {
            self.unread.drain(..length);
            key.into_iter().for_each(&mut press);
        }
        Ok(())
    }
}
