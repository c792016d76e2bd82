//! The terminal: taken over, and given back however this ends: in good order, by a panic, by a signal.

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
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
    ratatui::try_restore()?;
    result
}

/// Passes on the keys that are pressed, and waits a moment for the first one.
pub(super) fn keys(mut press: impl FnMut(KeyEvent)) -> io::Result<()> {
    let mut patience = PATIENCE;
    loop {
        match event::poll(patience) {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            // By one of our signals.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            press(key);
        }
        patience = Duration::ZERO;
    }
}
