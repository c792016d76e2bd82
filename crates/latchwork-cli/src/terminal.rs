//! The terminal: taken over, and restored at any end: in good order, by a panic, by a signal.
//!
//! | moment | what the terminal shows |
//! | --- | --- |
//! | `take_over` | the alternate screen, cleared: it may hold another program's text |
//! | a frame | all of it, or nothing: a frame is written by one call, if this program still has the screen |
//! | `give_back` | the screen as it was, with its text and its cursor |
//!
//! A panic of any thread restores the terminal before its message is printed. A frame of another thread cannot follow:
//! `OURS` is locked while a frame is written.

pub(crate) mod keys;

use console::truncate_str;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::crossterm::cursor::{Hide, MoveTo, Show};
use ratatui::crossterm::event::KeyEvent;
use ratatui::crossterm::queue;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long to wait for a key before the screen is drawn again; new views and signals are noticed with this delay.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// Whether this program has the screen.
static OURS: Mutex<bool> = Mutex::new(false);

fn ours() -> MutexGuard<'static, bool> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes to the terminal directly. The standard library's stream does not do: the main thread holds its lock, for
/// which a panicking thread would wait, and it keeps unwritten output for later.
fn write(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), bytes) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                poll(
                    &mut [PollFd::new(&rustix::stdio::stdout(), PollFlags::OUT)],
                    None,
                )?;
            }
            result => bytes = &bytes[result?..],
        }
    }
    Ok(())
}

fn take_over() -> io::Result<()> {
    let mut ours = ours();
    enable_raw_mode()?;
    *ours = true;
    let mut commands = Vec::new();
    queue!(commands, EnterAlternateScreen, Clear(ClearType::All))?;
    write(&commands)
}

/// Does nothing if this program does not have the screen.
fn give_back() -> io::Result<()> {
    let mut ours = ours();
    if !std::mem::replace(&mut *ours, false) {
        return Ok(());
    }
    let mut commands = Vec::new();
    queue!(commands, Show, LeaveAlternateScreen)?;
    write(&commands).and(disable_raw_mode())
}

/// A frame that is being drawn.
#[derive(Default)]
struct Canvas(Vec<u8>);

impl Write for Canvas {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let frame = std::mem::take(&mut self.0);
        if *ours() { write(&frame) } else { Ok(()) }
    }
}

/// The whole screen, and the signals that end or suspend its use.
pub(crate) struct Session {
    terminal: Terminal<CrosstermBackend<Canvas>>,
    ended: Arc<AtomicBool>,
    suspended: Arc<AtomicBool>,
    resized: Arc<AtomicBool>,
    /// The text that was shown last, to draw it again.
    shown: Vec<u8>,
}

/// Whether there is a terminal to draw on and to read keys from.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Runs `body` on the whole screen; `body` must return when [`Session::is_ended`] says so.
pub(crate) fn session(body: impl FnOnce(&mut Session) -> io::Result<()>) -> io::Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    let suspended = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTSTP, Arc::clone(&suspended))?;
    let resized = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGWINCH, Arc::clone(&resized))?;
    let viewport = Viewport::Fixed(screen()?);
    let backend = CrosstermBackend::new(Canvas::default());
    let terminal = Terminal::with_options(backend, TerminalOptions { viewport })?;
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let _ = give_back();
        before(panic);
    }));
    let result = take_over().and_then(|()| {
        body(&mut Session {
            terminal,
            ended,
            suspended,
            resized,
            shown: Vec::new(),
        })
    });
    let restored = give_back();
    result.and(restored)
}

impl Session {
    /// Whether a signal has ended the session.
    pub(crate) fn is_ended(&self) -> bool {
        // Relaxed, here and below: nothing else depends on the flag.
        self.ended.load(Ordering::Relaxed)
    }

    /// Draws a frame; before that, stops the program if a signal requests it.
    ///
    /// # Errors
    /// The terminal was closed.
    pub(crate) fn draw(&mut self, frame: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.prepare()?;
        self.terminal.draw(frame)?;
        Ok(())
    }

    /// Shows lines of text, which may have colours, beginning with the line that has `above` lines before it, and below
    /// them a line about the keys; before that, stops the program as [`Self::draw`] does. Returns how many lines are
    /// above, and how many fit. Lines that are too long are cut off.
    ///
    /// # Errors
    /// The terminal was closed.
    pub(crate) fn show(&mut self, text: &str, above: usize) -> io::Result<(usize, usize)> {
        if self.prepare()? {
            self.shown.clear();
        }
        let height = usize::from(self.terminal.get_frame().area().height);
        let page = height.saturating_sub(1).max(1);
        let lines = text.lines().count();
        let above = above.min(lines.saturating_sub(page));
        let below = lines.saturating_sub(above + page);
        let footer = match above + below {
            0 => "q: end".to_owned(),
            _ => format!("q: end   ↑ ↓ PgUp PgDn: {above} lines above, {below} below"),
        };
        let mut frame = Vec::new();
        let width = usize::from(self.terminal.get_frame().area().width);
        queue!(frame, Hide)?;
        let shown = text.lines().skip(above).take(page);
        for (row, line) in shown.chain([&*footer]).take(height).enumerate() {
            let row = u16::try_from(row).unwrap_or(u16::MAX);
            queue!(frame, MoveTo(0, row), Clear(ClearType::CurrentLine))?;
            write!(frame, "{}\x1b[0m", truncate_str(line, width, ""))?;
        }
        if lines - above < page {
            let rows = u16::try_from(lines - above + 1).unwrap_or(u16::MAX);
            queue!(frame, MoveTo(0, rows), Clear(ClearType::FromCursorDown))?;
        }
        if frame != self.shown && *ours() {
            write(&frame)?;
            self.shown = frame;
        }
        Ok((above, page))
    }

    /// Prepares a frame: stops the program if a signal requests it, and reads the terminal's size. Returns whether the
    /// screen was cleared.
    fn prepare(&mut self) -> io::Result<bool> {
        if self.suspended.swap(false, Ordering::Relaxed) {
            give_back()?;
            kill_process(getpid(), Signal::STOP)?;
            take_over()?;
            self.resized.store(true, Ordering::Relaxed);
        }
        self.fit()
    }

    /// Adapts to a change of the terminal's size, even one that was undone: the terminal may have cut off or moved what
    /// it showed.
    fn fit(&mut self) -> io::Result<bool> {
        let resized = self.resized.swap(false, Ordering::Relaxed);
        let screen = screen()?;
        let is_other = resized || screen != self.terminal.get_frame().area();
        if is_other {
            self.terminal.backend_mut().clear()?;
            self.terminal.resize(screen)?;
        }
        Ok(is_other)
    }
}

/// Stops the program, as the terminal's key for it does.
pub(crate) fn suspend() {
    let _ = kill_process(getpid(), Signal::TSTP);
}

/// The most columns and lines that are drawn: a terminal can claim to have billions of characters.
pub(crate) const MOST: u16 = 1000;

/// The part of the terminal that is drawn.
fn screen() -> io::Result<Rect> {
    let (width, height) = ratatui::crossterm::terminal::size()?;
    Ok(Rect::new(0, 0, width.min(MOST), height.min(MOST)))
}

/// The terminal's keys, parsed by `keys.rs`. The drawing library's reader does not do: at a terminal that is gone, or
/// that sends part of a character, it would wait for the rest for ever.
#[derive(Default)]
pub(crate) struct Keyboard {
    /// The bytes of a key that has arrived in part.
    unread: Vec<u8>,
}

impl Keyboard {
    /// Passes on the keys that are pressed. Waits for the first one, for a limited time.
    ///
    /// # Errors
    /// The terminal was closed.
    pub(crate) fn keys(
        &mut self,
        timeout: Duration,
        mut press: impl FnMut(KeyEvent),
    ) -> io::Result<()> {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&timeout)) {
            // Interrupted by a signal of this program.
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(0) => {
                // Bytes that are missing now do not belong to that key.
                self.unread.clear();
                return Ok(());
            }
            Ok(_) => {}
        }
        let mut bytes = [0; 256];
        let count = match rustix::io::read(&stdin, &mut bytes) {
            Ok(0) => return Err(io::Error::other("the terminal was closed")),
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

#[cfg(test)]
#[path = "../tests/locks/emulator.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod emulator;

#[cfg(test)]
mod tests {
    use super::emulator::{PROMPT, Screen, assert_given_back, terminal, write_prompt};
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};
    use std::thread;

    const ROLE: &str = "LATCHWORK_TEST_PANIC";

    /// Not a test: the program that runs on a terminal of its own, and panics.
    #[test]
    fn panics_on_a_terminal() {
        let Ok(role) = std::env::var(ROLE) else {
            return;
        };
        let draw = |session: &mut Session, what: &str| {
            session.draw(|frame| {
                frame.render_widget(what, frame.area());
                assert!(what != "torn", "by intent");
            })
        };
        session(|session| {
            draw(session, "drawn")?;
            match &*role {
                "between frames" => panic!("by intent"),
                "in a frame" => draw(session, "torn")?,
                _ => {
                    let other = thread::spawn(|| panic!("by intent"));
                    let mut frames = 0;
                    while !other.is_finished() || frames < 100 {
                        frames += 1;
                        draw(session, &frames.to_string())?;
                    }
                }
            }
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn a_panic_of_any_thread_restores_the_terminal_before_it_is_reported() {
        for role in ["between frames", "in a frame", "in another thread"] {
            let size = (100, 40);
            let (mut master, slave) = terminal(size);
            let end = || Stdio::from(slave.try_clone().unwrap());
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "terminal::tests::panics_on_a_terminal"]);
            child
                .arg("--nocapture")
                .env(ROLE, role)
                .env("RUST_BACKTRACE", "0");
            child.stdin(end()).stdout(end()).stderr(end());
            let mut child = child.spawn().unwrap();
            let reader = thread::spawn(move || {
                let mut screen = Screen::new(size);
                while !screen.text().contains(PROMPT) {
                    let mut bytes = [0; 4096];
                    let count = master.read(&mut bytes).unwrap();
                    screen.show(&bytes[..count]);
                }
                screen
            });
            let status = child.wait().unwrap();
            assert_given_back(&slave);
            write_prompt(&slave);
            let screen = reader.join().unwrap();
            let text = screen.text();
            assert_eq!(status.success(), role == "in another thread", "{text}");
            assert_eq!(screen.switches, ["1049h", "1049l"], "{role}");
            assert!(!screen.hides_cursor(), "{role}");
            assert!(text.contains("by intent"), "{role}: {text}");
            assert!(!text.contains("drawn"), "{role}: {text}");
            let is_number = |line: &str| line.trim().parse::<u32>().is_ok();
            assert!(!text.lines().any(is_number), "{role}: {text}");
        }
    }
}
