//! `latchwork top` on a terminal: what is on its screen after keys, and how it ends.
#![allow(unsafe_code)]

use super::common::{Named, command};
use super::roles::Actor;
use latchwork_testkit::{Seed, Watchdog};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// As much of a terminal as is needed to know what it shows.
struct Screen {
    width: usize,
    cells: Vec<Vec<char>>,
    at: (usize, usize),
    /// Of a sequence or a character that has come in part.
    unread: Vec<u8>,
    /// How often it was emptied.
    cleared: usize,
}

impl Screen {
    fn new((width, height): (usize, usize)) -> Self {
        Self {
            width,
            cells: vec![vec![' '; width]; height],
            at: (0, 0),
            unread: Vec::new(),
            cleared: 0,
        }
    }

    fn text(&self) -> String {
        let lines = self.cells.iter().map(|line| line.iter().collect());
        lines.collect::<Vec<String>>().join("\n")
    }

    /// (Of one beyond all bounds a part is shown.)
    fn resize(&mut self, (width, height): (usize, usize)) {
        self.width = width.min(400);
        self.cells = vec![vec![' '; self.width]; height.min(400)];
    }

    fn show(&mut self, bytes: &[u8]) {
        self.unread.extend(bytes);
        let unread = std::mem::take(&mut self.unread);
        let mut rest = &unread[..];
        while let Some(length) = self.step(rest) {
            rest = &rest[length..];
        }
        self.unread = rest.to_vec();
    }

    /// What the first bytes mean; how many they are.
    fn step(&mut self, bytes: &[u8]) -> Option<usize> {
        match *bytes.first()? {
            0x1b if *bytes.get(1)? == b'[' => {
                let end = bytes.iter().skip(2).position(|byte| *byte >= 0x40)? + 2;
                let arguments = str::from_utf8(&bytes[2..end]).unwrap();
                self.obey(bytes[end], arguments);
                Some(end + 1)
            }
            0x1b => Some(2),
            b'\r' => {
                self.at.0 = 0;
                Some(1)
            }
            b'\n' => {
                self.at.1 += 1;
                Some(1)
            }
            0..0x20 => Some(1),
            _ => {
                let character = bytes.utf8_chunks().next()?.valid().chars().next()?;
                let (column, line) = self.at;
                if let Some(cell) = self
                    .cells
                    .get_mut(line)
                    .and_then(|line| line.get_mut(column))
                {
                    *cell = character;
                }
                self.at.0 = (column + 1).min(self.width.saturating_sub(1));
                Some(character.len_utf8())
            }
        }
    }

    fn obey(&mut self, what: u8, arguments: &str) {
        let mut numbers = arguments
            .split(';')
            .map(|number| number.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        match (what, arguments) {
            (b'H' | b'f', _) => {
                let (line, column) = (next().max(1), next().max(1));
                self.at = (column - 1, line - 1);
            }
            (b'J', "2" | "3") => {
                self.cells.iter_mut().for_each(|line| line.fill(' '));
                self.cleared += 1;
            }
            // From here to the end.
            (b'J', "") => {
                let (column, line) = self.at;
                let mut lines = self.cells.iter_mut().skip(line);
                if let Some(line) = lines.next() {
                    line.iter_mut().skip(column).for_each(|cell| *cell = ' ');
                }
                lines.for_each(|line| line.fill(' '));
            }
            (b'J', _) => panic!("part of the screen: {arguments:?}"),
            // What draws does so if the terminal has other lines by then, and the same columns.
            (b'K', "2") => {
                if let Some(line) = self.cells.get_mut(self.at.1) {
                    line.fill(' ');
                }
            }
            // Colours, the cursor's looks, modes.
            (b'm' | b'h' | b'l' | b'q', _) => {}
            other => panic!("not understood: {other:?}"),
        }
    }
}

/// `latchwork top` on a terminal of its own, of which this is the other end.
struct Terminal {
    top: Child,
    master: Arc<File>,
    /// The command's end, to see how it was left.
    slave: OwnedFd,
    screen: Arc<(Mutex<Screen>, Condvar)>,
    /// Who reads, until the pipe is closed.
    reader: (PipeWriter, JoinHandle<()>),
    watchdog: Watchdog,
}

/// Who is told that the terminal is gone.
#[derive(Clone, Copy, PartialEq)]
enum Control {
    /// The command, by a signal.
    Signal,
    /// Nobody.
    None,
}

impl Terminal {
    fn open(size: (usize, usize), control: Control, args: &[&str]) -> Self {
        let (mut master, mut slave) = (0, 0);
        let none = std::ptr::null_mut;
        // SAFETY: two places for descriptors; the rest is left out.
        let made = unsafe {
            libc::openpty(
                &raw mut master,
                &raw mut slave,
                none(),
                none().cast(),
                none().cast(),
            )
        };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: made just now.
        let (master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        for end in [master.as_raw_fd(), slave.as_raw_fd()] {
            // SAFETY: open; the command is to have three copies of its end, and nothing else.
            unsafe { libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        set_size(&slave, size);
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut command = command();
        command
            .arg("top")
            .args(args)
            .stdin(end())
            .stdout(end())
            .stderr(end());
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        // SAFETY: system calls.
        unsafe {
            command.pre_exec(move || {
                libc::setsid();
                if control == Control::Signal {
                    libc::ioctl(0, libc::TIOCSCTTY, 0);
                }
                Ok(())
            });
        }
        let top = command.spawn().unwrap();
        let screen = Arc::new((Mutex::new(Screen::new(size)), Condvar::new()));
        let master = Arc::new(master);
        let (stop, is_stopped) = std::io::pipe().unwrap();
        let (shown, from) = (Arc::clone(&screen), Arc::clone(&master));
        let reader = std::thread::spawn(move || read(&from, &stop, &shown));
        Self {
            top,
            master,
            slave,
            screen,
            reader: (is_stopped, reader),
            watchdog: Watchdog::start("the screen never shows it".into()),
        }
    }

    fn press(&self, keys: &[u8]) {
        (&*self.master).write_all(keys).unwrap();
    }

    /// The screen, as soon as it is as it should be.
    fn until(&self, is_there: impl Fn(&str) -> bool) -> String {
        let mut screen = self.screen.0.lock().unwrap();
        loop {
            let text = screen.text();
            if is_there(&text) {
                self.watchdog.progress();
                return text;
            }
            screen = self.screen.1.wait(screen).unwrap();
        }
    }

    fn until_shown(&self, part: &str) -> String {
        self.until(|text| text.contains(part))
    }

    /// Has another size, as soon as that was seen.
    fn resize(&self, size: (usize, usize)) {
        let mut screen = self.screen.0.lock().unwrap();
        let before = screen.cleared;
        screen.resize(size);
        set_size(&self.slave, size);
        while screen.cleared == before {
            screen = self.screen.1.wait(screen).unwrap();
        }
        self.watchdog.progress();
    }

    /// Its end, with the terminal as it was before.
    fn end(mut self) -> ExitStatus {
        let status = self.top.wait().unwrap();
        // SAFETY: all zeros is a value; the call fills it.
        let mut modes: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: an open terminal, and a place for its modes.
        unsafe { libc::tcgetattr(self.slave.as_raw_fd(), &raw mut modes) };
        let usual = libc::ICANON | libc::ECHO;
        assert_eq!(modes.c_lflag & usual, usual, "not given back");
        status
    }

    /// The end of the terminal, and then its own.
    fn vanish(self) -> ExitStatus {
        let Self {
            mut top,
            master,
            reader: (stop, reader),
            watchdog,
            ..
        } = self;
        drop(stop);
        reader.join().unwrap();
        drop(Arc::into_inner(master).expect("the last one"));
        let status = top.wait().unwrap();
        drop(watchdog);
        status
    }
}

/// Wakes who waits for a change when there will be none: what is read was not understood.
struct Last<'a>(&'a Condvar);

impl Drop for Last<'_> {
    fn drop(&mut self) {
        self.0.notify_all();
    }
}

/// Shows what the command writes, until it or the pipe ends.
fn read(from: &File, stop: &PipeReader, (screen, changed): &(Mutex<Screen>, Condvar)) {
    use rustix::event::{PollFd, PollFlags, poll};
    let _last = Last(changed);
    let mut bytes = [0; 4096];
    loop {
        let mut both = [
            PollFd::new(from, PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        let _ = poll(&mut both, None);
        if !both[1].revents().is_empty() {
            return;
        }
        // An error when all at the other end have gone, which we are not.
        let mut from = from;
        let count = from.read(&mut bytes).unwrap_or(0);
        screen.lock().unwrap().show(&bytes[..count]);
        changed.notify_all();
    }
}

#[test]
fn a_line_that_is_cleared_is_empty() {
    let mut screen = Screen::new((4, 2));
    screen.show(b"one\r\ntwo\x1b[1;2H\x1b[2K");
    assert_eq!(screen.text(), "    \ntwo ");
}

fn set_size(terminal: &OwnedFd, (width, height): (usize, usize)) {
    let size = libc::winsize {
        ws_row: height as u16,
        ws_col: width as u16,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: an open terminal, and its size.
    let set = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    assert_eq!(set, 0);
}

/// The title of the column by which the table is sorted, and the arrow.
fn sorted_by(text: &str) -> Option<(String, char)> {
    let header = text.lines().nth(2)?;
    let words = header.split_whitespace();
    words.rev().find_map(|word| {
        let arrow = word.chars().last().filter(|last| "↓↑".contains(*last))?;
        Some((word.trim_end_matches(arrow).to_owned(), arrow))
    })
}

#[test]
fn keys_choose_sort_and_filter_what_the_terminal_shows() {
    let named = Named::new("screen");
    let _actor = Actor::role("crowd", &named.0);
    for size in [(80, 24), (200, 50)] {
        let args = ["--interval", "0.2", "--filter", &named.0];
        let terminal = Terminal::open(size, Control::Signal, &args);
        // The tasks all wait by then.
        terminal.until(|text| text.contains("task 40") && text.contains("cycle"));
        let sorted = terminal.until(|text| sorted_by(text).is_some());
        let (first, _) = sorted_by(&sorted).unwrap();
        terminal.press(b"s");
        let next = terminal.until(|text| sorted_by(text).is_some_and(|(by, _)| by != first));
        let (by, arrow) = sorted_by(&next).unwrap();
        terminal.press(b"r");
        terminal.until(|text| {
            sorted_by(text).is_some_and(|(now, turned)| now == by && turned != arrow)
        });
        terminal.press(b"S");
        terminal.until(|text| sorted_by(text).is_some_and(|(now, _)| now == first));

        terminal.press(b"\x1b");
        terminal.until(|text| !text.contains("only “"));
        terminal.press(b"1/task 61\r");
        let tasks =
            terminal.until(|text| text.contains("only “task 61”") && text.contains("1 row"));
        assert!(
            tasks.contains("task 61") && !tasks.contains("task 60"),
            "{tasks}"
        );
        terminal.press(b"\x1b[Z");
        terminal.until_shown("Nothing contains that text");
        terminal.press(b"2?");
        terminal.until_shown("any key goes back");
        terminal.press(b"x ");
        terminal.until(|text| !text.contains("any key goes back") && text.contains("stand"));
        terminal.press("/ä\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f".as_bytes());
        terminal.until(|text| {
            text.lines()
                .last()
                .is_some_and(|line| line.trim_end() == "show only:")
        });
        terminal.press(b"q\r");
        terminal.until_shown("only “q”");
        terminal.press(b"q");
        assert!(terminal.end().success());
    }
}

/// The number of the first line that contains this.
fn line_with(text: &str, part: &str) -> Option<usize> {
    text.lines().position(|line| line.contains(part))
}

#[test]
fn findings_of_checked_programs_are_listed_newest_first_and_opened() {
    let actor = Actor::role("reported", "");
    let pid = actor.pid().to_string();
    for size in [(80, 24), (200, 50)] {
        let args = ["--interval", "0.2", "--pane", "findings", "--filter", &pid];
        let terminal = Terminal::open(size, Control::Signal, &args);
        let list = terminal.until(|text| {
            text.contains("order right -> left -> right") && text.contains(") unlocks what ")
        });
        assert!(
            line_with(&list, "misuse") < line_with(&list, "wrong order"),
            "{list}"
        );
        // No row goes from under the keys.
        terminal.press(b" ");
        terminal.until_shown("  stand");
        terminal.press(b"\r");
        terminal.until(|text| {
            text.contains("== latchwork: MISUSE [no-double-unlock]")
                && text.contains("no?[31mthing")
        });
        // Its end, however long it is.
        terminal.press(b"G");
        terminal.until_shown("to suppress: no-double-unlock");
        terminal.press(b"g");
        terminal.until_shown("== latchwork: MISUSE");
        terminal.press(b"\x1b");
        terminal.until(|text| text.contains("AGO") && !text.contains("== latchwork"));
        terminal.press(b"j\r");
        terminal.until(|text| {
            text.contains("== latchwork: POTENTIAL DEADLOCK [one-order]")
                && text.contains("order right -> left -> right")
        });
        terminal.press(b"\x1b[F");
        terminal.until_shown("to suppress: one-order");
        // What ends the program otherwise ends the reading.
        terminal.press(b"q");
        terminal.until_shown("AGO");
        // A row of any pane.
        terminal.press(b"\x1b1a");
        terminal.until_shown("TID");
        terminal.press(b"\r");
        terminal.until_shown("│ NAME ");
        terminal.press(b"\r");
        terminal.until(|text| !text.contains("│ NAME "));
        terminal.press(b"q");
        assert!(terminal.end().success());
    }
    assert!(actor.finish());
}

#[test]
fn a_terminal_of_any_size_that_changes_is_drawn_on() {
    let args = ["--interval", "0.05", "--all"];
    let terminal = Terminal::open((80, 24), Control::Signal, &args);
    terminal.until_shown("pause");
    let mut random = Seed::announced().rng(0);
    for round in 0..40 {
        let size = match round % 4 {
            0 => (1, 1),
            1 => (random.usize(2..20), random.usize(1..6)),
            // Another one than the next: of none that is the same anybody is told.
            2 => (random.usize(81..400), random.usize(1..120)),
            _ => (80, 24),
        };
        terminal.resize(size);
        let pane = b"123456?x"[round % 8];
        terminal.press(&[pane]);
        if size == (80, 24) {
            terminal.until(|text| text.contains("Locks") || text.contains("goes back"));
        }
    }
    // As large as one can claim to be: of that a part is drawn on.
    terminal.resize((65_535, 65_535));
    terminal.resize((80, 24));
    terminal.until(|text| text.contains("Locks") || text.contains("goes back"));
    terminal.press(b"q");
    // It may be the key that ends the help.
    terminal.press(b"q");
    assert!(terminal.end().success());
}

#[test]
fn who_is_told_to_end_gives_the_terminal_back() {
    // In the middle of a character, and of a key.
    for typed in [&b""[..], b"\xc3", b"\x1b[", b"/abc"] {
        let terminal = Terminal::open((80, 24), Control::Signal, &[]);
        terminal.until_shown("pause");
        terminal.press(typed);
        terminal.until_shown(if typed == b"/abc" {
            "show only: abc"
        } else {
            "pause"
        });
        let pid = rustix::process::Pid::from_child(&terminal.top);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(terminal.end().success());
    }
}

#[test]
fn it_ends_when_the_terminal_is_gone() {
    let mut random = Seed::announced().rng(1);
    for round in 0..12 {
        let control = [Control::Signal, Control::None][round % 2];
        let terminal = Terminal::open((80, 24), control, &["--interval", "0.05"]);
        terminal.until_shown("pause");
        terminal.press([&b""[..], b"\xc3", b"\x1b["][round / 2 % 3]);
        std::thread::sleep(std::time::Duration::from_micros(random.u64(0..150_000)));
        let status = terminal.vanish();
        assert!(status.code().is_some(), "{status}");
    }
}
