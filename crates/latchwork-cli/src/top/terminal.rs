//! The terminal: taken over, and given back however this ends: in good order, by a panic, by a signal.

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
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
    let mut terminal = ratatui::try_init()?;
    // Relaxed: the flag is all there is to know.
    let result = body(&mut terminal, &|| ended.load(Ordering::Relaxed));
    let restored = ratatui::try_restore();
    result.and(restored)
}

/// Passes on the keys that are pressed, and waits a moment for the first one.
pub(super) fn keys(mut press: impl FnMut(KeyEvent)) -> io::Result<()> {
    let mut patience = PATIENCE;
    loop {
        // What was read and not passed on yet does not make the terminal ready.
        if !event::poll(Duration::ZERO)? {
            if patience.is_zero() || !is_ready(patience)? {
                return Ok(());
            }
            patience = Duration::ZERO;
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            press(key);
        }
        patience = Duration::ZERO;
    }
}

/// Whether there is something to read; false after the patience, or by one of our signals.
///
/// # Errors
/// The terminal is gone. (Asked for a key then, the library that reads them looks for one for ever.)
fn is_ready(patience: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut look = [PollFd::new(&stdin, PollFlags::IN)];
    let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
    match poll(&mut look, Some(&patience)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let seen = look[0].revents();
    if seen.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        return Err(io::Error::other("the terminal is gone"));
    }
    Ok(seen.contains(PollFlags::IN))
}
