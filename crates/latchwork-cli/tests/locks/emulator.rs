//! As much of a terminal as is needed to know what it shows: two screens, the cursor, and what moves it.
//!
//! Both screens begin full of text that no program under test writes, and the second one keeps what was on it: a
//! program that relies on blank cells shows that text.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

type Cells = Vec<Vec<char>>;

/// What no program under test writes: Cyrillic letters.
pub fn is_old(letter: char) -> bool {
    ('\u{400}'..'\u{460}').contains(&letter)
}

/// A screen full of text, no two lines of which are the same.
pub fn old_text((width, height): (usize, usize), first: u32) -> Cells {
    let letter = |line: usize, column: usize| {
        let next = (line * 7 + column) as u32 % 32;
        char::from_u32(first + next).unwrap()
    };
    let line = |line| (0..width).map(|column| letter(line, column)).collect();
    (0..height).map(line).collect()
}

const SHELL: u32 = 0x430;
const OTHER: u32 = 0x410;

/// What a terminal shows.
pub struct Screen {
    size: (usize, usize),
    /// The screen that is shown.
    cells: Cells,
    /// The other screen.
    other: Cells,
    is_alternate: bool,
    /// The cursor: column and line.
    at: (usize, usize),
    saved: (usize, usize),
    pub hides_cursor: bool,
    /// Of a sequence or a character that has come in part.
    unread: Vec<u8>,
    /// How often it was emptied.
    pub cleared: usize,
    /// The switches between the screens, in their order.
    pub switches: Vec<&'static str>,
}

impl Screen {
    /// Full of a shell's text, with the cursor on the last line.
    pub fn new(size: (usize, usize)) -> Self {
        Self {
            size,
            cells: old_text(size, SHELL),
            other: old_text(size, OTHER),
            is_alternate: false,
            at: (2.min(size.0 - 1), size.1 - 1),
            saved: (0, 0),
            hides_cursor: false,
            unread: Vec::new(),
            cleared: 0,
            switches: Vec::new(),
        }
    }

    /// What a screen of this size shows after a shell's text and then this one, as a shell would write it.
    pub fn after(size: (usize, usize), text: &str) -> String {
        let mut screen = Self::new(size);
        screen.show(text.replace('\n', "\r\n").as_bytes());
        screen.text()
    }

    pub fn text(&self) -> String {
        let lines = self.cells.iter().map(|line| line.iter().collect());
        lines.collect::<Vec<String>>().join("\n")
    }

    /// Another size, and other text. (Of one beyond all bounds a part is shown.)
    pub fn resize(&mut self, (width, height): (usize, usize)) {
        self.size = (width.min(400), height.min(400));
        self.cells = old_text(self.size, OTHER);
        self.other = old_text(self.size, SHELL);
    }

    pub fn show(&mut self, bytes: &[u8]) {
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
                self.next_line();
                Some(1)
            }
            0..0x20 => Some(1),
            _ => {
                let character = bytes.utf8_chunks().next()?.valid().chars().next()?;
                self.write(character);
                Some(character.len_utf8())
            }
        }
    }

    fn write(&mut self, character: char) {
        if self.at.0 >= self.size.0 && !self.is_alternate {
            self.at.0 = 0;
            self.next_line();
        }
        let (column, line) = self.at;
        let cell = self.cells.get_mut(line);
        if let Some(cell) = cell.and_then(|line| line.get_mut(column)) {
            *cell = character;
        }
        let last = self.size.0.saturating_sub(usize::from(self.is_alternate));
        self.at.0 = (column + 1).min(last);
    }

    /// Down, and the text up if there is no line below.
    fn next_line(&mut self) {
        if self.at.1 + 1 < self.size.1 {
            self.at.1 += 1;
        } else if !self.is_alternate {
            self.cells.remove(0);
            self.cells.push(vec![' '; self.size.0]);
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
            (b'h' | b'l', "?1049") => self.switch(what == b'h'),
            (b'h' | b'l', "?25") => self.hides_cursor = what == b'l',
            // Colours, the cursor's looks, other modes.
            (b'm' | b'h' | b'l' | b'q', _) => {}
            other => panic!("not understood: {other:?}"),
        }
    }

    /// To the alternate screen, or back.
    fn switch(&mut self, to_alternate: bool) {
        self.switches.push(match to_alternate {
            true => "1049h",
            false => "1049l",
        });
        if to_alternate == self.is_alternate {
            return;
        }
        self.is_alternate = to_alternate;
        std::mem::swap(&mut self.cells, &mut self.other);
        match to_alternate {
            true => self.saved = self.at,
            false => self.at = self.saved,
        }
    }
}

/// A terminal of this size: the end that shows, and the one that a program has.
pub fn terminal(size: (usize, usize)) -> (File, OwnedFd) {
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
        // SAFETY: open; a program is to have three copies of its end, and nothing else.
        unsafe { libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    set_size(&slave, size);
    (master, slave)
}

pub fn set_size(terminal: &OwnedFd, (width, height): (usize, usize)) {
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

/// Fails unless the terminal edits lines and echoes, as a shell wants it.
pub fn assert_given_back(terminal: &OwnedFd) {
    // SAFETY: all zeros is a value; the call fills it.
    let mut modes: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: an open terminal, and a place for its modes.
    unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut modes) };
    let usual = libc::ICANON | libc::ECHO;
    assert_eq!(modes.c_lflag & usual, usual, "not given back");
}

/// Writes as the shell does that gets the terminal back.
pub fn write_prompt(terminal: &OwnedFd) {
    let mut shell = File::from(terminal.try_clone().unwrap());
    shell.write_all(PROMPT.as_bytes()).unwrap();
}

/// What no program under test writes.
pub const PROMPT: &str = "§ ";

#[test]
fn a_line_that_is_cleared_is_empty() {
    let mut screen = Screen::new((4, 2));
    screen.show(b"\x1b[2J\x1b[Hone\r\ntwo\x1b[1;2H\x1b[2K");
    assert_eq!(screen.text(), "    \ntwo ");
}

#[test]
fn the_other_screen_is_as_full_and_the_first_comes_back() {
    let mut screen = Screen::new((8, 3));
    let before = screen.text();
    screen.show(b"\x1b[?1049h");
    assert!(screen.text() != before && screen.text().contains(is_old));
    screen.show(b"\x1b[2J\x1b[Htext\x1b[?1049l");
    assert_eq!(screen.text(), before);
    screen.show("§".as_bytes());
    assert_eq!(screen.text(), Screen::after((8, 3), "§"));
    assert_eq!(screen.switches, ["1049h", "1049l"]);
}
