//! A terminal for programs under test: a pseudo-terminal, and the crate `vt100` for what it shows.
//!
//! Both of its screens begin full of text that no program under test writes: a program that relies on blank cells
//! shows that text.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::Write;
use std::num::NonZeroU16;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What no program under test writes: Cyrillic letters.
pub fn is_old(letter: char) -> bool {
    ('\u{400}'..'\u{460}').contains(&letter)
}

/// Writes a screen full of text, no two lines of which are the same.
fn old_text((width, height): (usize, usize), first: u32) -> String {
    let letter = |line: usize, column: usize| {
        let next = (line * 7 + column) as u32 % 32;
        char::from_u32(first + next).unwrap()
    };
    let line = |line| {
        let text: String = (0..width).map(|column| letter(line, column)).collect();
        format!("\x1b[{}H{text}", line + 1)
    };
    (0..height).map(line).collect()
}

const SHELL: u32 = 0x430;
const OTHER: u32 = 0x410;

/// Fails when a program writes what the emulator has no meaning for: what it shows then proves nothing.
struct Strict;

impl vt100::Callbacks for Strict {
    fn unhandled_escape(
        &mut self,
        _: &mut vt100::Screen,
        first: Option<u8>,
        second: Option<u8>,
        last: u8,
    ) {
        panic!("not understood: ESC {first:?} {second:?} {last}");
    }

    fn unhandled_csi(
        &mut self,
        _: &mut vt100::Screen,
        first: Option<u8>,
        second: Option<u8>,
        arguments: &[&[u16]],
        last: char,
    ) {
        // A colour of underlines.
        assert!(
            last == 'm',
            "not understood: CSI {first:?} {second:?} {arguments:?} {last}"
        );
    }
}

/// What a terminal shows.
pub struct Screen {
    size: (usize, usize),
    parser: vt100::Parser<Strict>,
    /// The bytes that it got.
    shown: Vec<u8>,
    /// How often it was emptied.
    pub cleared: usize,
    /// The switches between the screens, in their order.
    pub switches: Vec<&'static str>,
}

fn length(length: usize) -> NonZeroU16 {
    u16::try_from(length).unwrap().try_into().unwrap()
}

impl Screen {
    /// Full of a shell's text, with the cursor on the last line.
    pub fn new(size: (usize, usize)) -> Self {
        let (columns, lines) = (length(size.0), length(size.1));
        let mut parser = vt100::Parser::new_with_callbacks(lines, columns, 0, Strict);
        let text = old_text(size, SHELL);
        parser.process(format!("{text}\x1b[{lines};3H").as_bytes());
        Self {
            size,
            parser,
            shown: Vec::new(),
            cleared: 0,
            switches: Vec::new(),
        }
    }

    /// A screen of this size after a shell's text and then this one, as a shell would write it.
    pub fn after(size: (usize, usize), text: &str) -> Self {
        let mut screen = Self::new(size);
        screen.show(text.replace('\n', "\r\n").as_bytes());
        screen
    }

    /// Its lines, all of the same length.
    pub fn text(&self) -> String {
        let width = self.size.0;
        let lines = self.parser.screen().rows(0, width as u16);
        let lines = lines.map(|line| format!("{line:width$}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// All that a terminal has: text, colours, the cursor, and what keys and the mouse send.
    pub fn state(&self) -> String {
        self.parser.screen().state_formatted()
    }

    pub fn hides_cursor(&self) -> bool {
        self.parser.screen().hide_cursor()
    }

    /// Another size, and other text. (Of one beyond all bounds a part is shown.)
    pub fn resize(&mut self, (width, height): (usize, usize)) {
        self.size = (width.min(400), height.min(400));
        self.parser
            .set_size(length(self.size.1), length(self.size.0));
        self.fill();
    }

    /// Other text, with the cursor where it is.
    fn fill(&mut self) {
        let text = old_text(self.size, OTHER);
        let (line, column) = self.parser.screen().cursor_position();
        let text = format!("{text}\x1b[{};{}H", line + 1, column + 1);
        self.parser.process(text.as_bytes());
    }

    pub fn show(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.parser.process(&[*byte]);
            self.shown.push(*byte);
            if self.shown.ends_with(b"\x1b[2J") {
                self.cleared += 1;
            } else if self.shown.ends_with(b"\x1b[?1049h") {
                self.switches.push("1049h");
                // Some terminals show what was on that screen before.
                self.fill();
            } else if self.shown.ends_with(b"\x1b[?1049l") {
                self.switches.push("1049l");
            }
        }
    }
}

/// A terminal of this size: the end that shows, and the one that a program has.
pub fn terminal(size: (usize, usize)) -> (File, OwnedFd) {
    // Closed on exec from the first moment on, also in programs that other tests start: one that had the first end would
    // keep the terminal open.
    const FLAGS: i32 = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    let mut name = [0; 64];
    // SAFETY: descriptors that were made just now, and a place for a name.
    let (master, slave) = unsafe {
        let master = libc::posix_openpt(FLAGS);
        assert!(master >= 0, "{}", std::io::Error::last_os_error());
        libc::grantpt(master);
        libc::unlockpt(master);
        libc::ptsname_r(master, name.as_mut_ptr(), name.len());
        (master, libc::open(name.as_ptr(), FLAGS))
    };
    assert!(slave >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: made just now.
    let (master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
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
pub const PROMPT: &str = "§";

#[test]
fn a_line_that_is_cleared_is_empty() {
    let mut screen = Screen::new((4, 2));
    screen.show(b"\x1b[2J\x1b[Hone\r\ntwo\x1b[1;2H\x1b[2K");
    assert_eq!(screen.text(), "    \ntwo ");
    assert_eq!(screen.cleared, 1);
}

#[test]
fn the_other_screen_is_as_full_and_the_first_comes_back() {
    let mut screen = Screen::new((8, 3));
    let before = (screen.text(), screen.state());
    assert!(before.0.lines().all(|line| line.chars().all(is_old)));
    for _ in 0..2 {
        screen.show(b"\x1b[?1049h");
        assert!(screen.text() != before.0);
        assert_eq!(screen.text().chars().filter(|it| is_old(*it)).count(), 24);
        screen.show(b"\x1b[2J\x1b[H\x1b[31mtext\x1b[?1049l");
        assert_eq!((screen.text(), screen.state()), before);
    }
    screen.show(b"\x1b[?25l");
    assert_ne!(screen.state(), before.1);
    screen.show("\x1b[?25h§".as_bytes());
    assert_eq!(screen.state(), Screen::after((8, 3), "§").state());
    assert_eq!(screen.switches, ["1049h", "1049l"].repeat(2));
}

#[test]
fn a_screen_of_another_size_is_as_full() {
    let mut screen = Screen::new((8, 3));
    screen.show(b"\x1b[?1049h\x1b[2J");
    for (width, height) in [(1, 1), (9, 4), (3, 7), (7, 2)] {
        screen.resize((width, height));
        let text = screen.text();
        let lengths: Vec<_> = text.lines().map(|line| line.chars().count()).collect();
        assert!(lengths == vec![width; height], "{text}");
        assert!(text.lines().all(|line| line.chars().all(is_old)), "{text}");
        screen.show(b"\x1b[2J");
    }
    assert_eq!(screen.cleared, 5);
}
