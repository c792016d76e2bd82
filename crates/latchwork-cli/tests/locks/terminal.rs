//! The command on a terminal of its own: keys that are pressed, and the screen that it draws.
#![allow(unsafe_code)]

use super::emulator::{PROMPT, Screen, assert_given_back, set_size, terminal, write_prompt};
use crate::common::command;
use latchwork_testkit::Watchdog;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// The command on a terminal of its own, of which this is the other end.
pub struct Terminal {
    pub command: Child,
    pub master: Arc<File>,
    /// The command's end, to see how it was left.
    pub slave: OwnedFd,
    pub screen: Arc<(Mutex<Screen>, Condvar)>,
    /// The reading thread, until the pipe is closed.
    reader: (PipeWriter, JoinHandle<()>),
    watchdog: Watchdog,
    /// `None` after a change: how a terminal then rearranges its text is not specified.
    first_size: Option<(usize, usize)>,
}

/// Whether the command is notified when the terminal is closed.
#[derive(Clone, Copy, PartialEq)]
pub enum Control {
    /// The command, by a signal.
    Signal,
    None,
}

impl Terminal {
    pub fn open(size: (usize, usize), control: Control, args: &[&str]) -> Self {
        Self::start(size, control, &[&["top"], args].concat(), None)
    }

    /// The repeated report on the locks of a process.
    pub fn watch(size: (usize, usize), pid: u32) -> Self {
        let args = ["locks", "--watch=0.1", "--pid", &pid.to_string()];
        Self::start(size, Control::Signal, &args, None)
    }

    /// Without its standard input, or output.
    pub fn without(size: (usize, usize), missing: usize) -> Self {
        Self::start(size, Control::None, &["top"], Some(missing))
    }

    fn start(
        size: (usize, usize),
        control: Control,
        args: &[&str],
        missing: Option<usize>,
    ) -> Self {
        let (master, slave) = terminal(size);
        let end = |number| match missing == Some(number) {
            true => Stdio::null(),
            false => Stdio::from(slave.try_clone().unwrap()),
        };
        let mut command = command();
        command.args(args);
        command.stdin(end(0)).stdout(end(1)).stderr(end(2));
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
        let child = command.spawn().unwrap();
        let screen = Arc::new((Mutex::new(Screen::new(size)), Condvar::new()));
        let master = Arc::new(master);
        let (stop, is_stopped) = std::io::pipe().unwrap();
        let (shown, from) = (Arc::clone(&screen), Arc::clone(&master));
        let reader = std::thread::spawn(move || read(&from, &stop, &shown));
        Self {
            command: child,
            master,
            slave,
            screen,
            reader: (is_stopped, reader),
            watchdog: Watchdog::start("the screen never shows it".into()),
            first_size: Some(size),
        }
    }

    pub fn press(&self, keys: &[u8]) {
        (&*self.master).write_all(keys).unwrap();
    }

    /// The screen, as soon as `is_there` returns true.
    pub fn until_screen(&self, is_there: impl Fn(&Screen) -> bool) -> MutexGuard<'_, Screen> {
        let mut screen = self.screen.0.lock().unwrap();
        while !is_there(&screen) {
            screen = self.screen.1.wait(screen).unwrap();
        }
        self.watchdog.progress();
        screen
    }

    /// Its text, as soon as `is_there` returns true.
    pub fn until(&self, is_there: impl Fn(&str) -> bool) -> String {
        self.until_screen(|screen| is_there(&screen.text())).text()
    }

    pub fn until_shown(&self, part: &str) -> String {
        self.until(|text| text.contains(part))
    }

    /// A complete frame: its last line, which is drawn last, changes and changes back.
    pub fn whole_frame(&self, filter: &str) -> String {
        self.press(b"/");
        self.until(|text| last_line(text).starts_with("show only: "));
        self.press(b"\r");
        self.until(|text| last_line(text) == key_line(filter, text))
    }

    /// Changes the size, and waits until the command has redrawn.
    pub fn resize(&mut self, size: (usize, usize)) {
        self.first_size = None;
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
    pub fn end(self) -> ExitStatus {
        self.end_after("")
    }

    /// Its end, with the terminal as it was before, except for its last output.
    pub fn end_after(mut self, last_words: &str) -> ExitStatus {
        let status = self.command.wait().unwrap();
        self.assert_given_back(last_words);
        status
    }

    /// Fails unless the whole screen is what a shell's text and then this would leave, and the next text comes
    /// behind that.
    pub fn assert_given_back(&self, last_words: &str) {
        assert_given_back(&self.slave);
        write_prompt(&self.slave);
        let screen = self.until_screen(|screen| screen.text().contains(PROMPT));
        assert!(!screen.hides_cursor());
        if let Some(size) = self.first_size {
            let expected = Screen::after(size, &format!("{last_words}{PROMPT}"));
            assert_eq!(screen.text(), expected.text());
            assert_eq!(screen.state(), expected.state());
        }
        for switch in screen.switches.chunks(2) {
            assert_eq!(switch, ["1049h", "1049l"]);
        }
    }

    /// The end of the terminal, and then its own.
    pub fn vanish(self) -> ExitStatus {
        let Self {
            mut command,
            master,
            reader: (stop, reader),
            watchdog,
            ..
        } = self;
        drop(stop);
        reader.join().unwrap();
        drop(Arc::into_inner(master).expect("the last one"));
        let status = command.wait().unwrap();
        drop(watchdog);
        status
    }
}

/// Wakes the waiter for a change when the reader has ended, or panicked on unknown output.
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
        // An error once the other end is closed, while this end is open.
        let mut from = from;
        let count = from.read(&mut bytes).unwrap_or(0);
        screen.lock().unwrap().show(&bytes[..count]);
        changed.notify_all();
    }
}

pub fn last_line(text: &str) -> &str {
    text.lines().last().unwrap().trim_end()
}

/// The last line of a frame with such a filter, and of the width of this one.
pub fn key_line(filter: &str, text: &str) -> String {
    let filter = match filter {
        "" => String::new(),
        filter => format!("only “{filter}”  "),
    };
    let keys =
        "q quit  ? help  Tab pane  s sort  r reverse  / filter  Enter open  Space pause  a all";
    let width = text.lines().next().unwrap().chars().count();
    let line: String = filter.chars().chain(keys.chars()).take(width).collect();
    line.trim_end().to_owned()
}

/// The lines between the header and the last line, up to the first empty one.
pub fn rows(text: &str) -> impl Iterator<Item = &str> {
    let below = text.lines().count() - 1;
    let lines = text.lines().take(below).skip(3);
    lines.take_while(|line| !line.trim().is_empty())
}

/// The title of the column by which the table is sorted, and the arrow.
pub fn sorted_by(text: &str) -> Option<(String, char)> {
    let header = text.lines().nth(2)?;
    let words = header.split_whitespace();
    words.rev().find_map(|word| {
        let arrow = word.chars().last().filter(|last| "↓↑".contains(*last))?;
        Some((word.trim_end_matches(arrow).to_owned(), arrow))
    })
}
