//! `latchwork top`, and `locks --watch`, on a terminal: what is on its screen after keys, and how it ends.
#![allow(unsafe_code)]

#[path = "emulator.rs"]
mod emulator;

use super::common::{Named, command};
use super::roles::Actor;
use emulator::{PROMPT, Screen, assert_given_back, is_old, set_size, terminal, write_prompt};
use latchwork_testkit::{Seed, Watchdog};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// The command on a terminal of its own, of which this is the other end.
struct Terminal {
    command: Child,
    master: Arc<File>,
    /// The command's end, to see how it was left.
    slave: OwnedFd,
    screen: Arc<(Mutex<Screen>, Condvar)>,
    /// Who reads, until the pipe is closed.
    reader: (PipeWriter, JoinHandle<()>),
    watchdog: Watchdog,
    /// Unless it was changed: terminals do with their text what they like, then.
    first_size: Option<(usize, usize)>,
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
        Self::start(size, control, &[&["top"], args].concat(), None)
    }

    /// The locks of a process, looked at again and again.
    fn watch(size: (usize, usize), pid: u32) -> Self {
        let args = ["locks", "--watch=0.1", "--pid", &pid.to_string()];
        Self::start(size, Control::Signal, &args, None)
    }

    /// Without its standard input, or output.
    fn without(size: (usize, usize), missing: usize) -> Self {
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

    fn press(&self, keys: &[u8]) {
        (&*self.master).write_all(keys).unwrap();
    }

    /// The screen, as soon as it is as it should be.
    fn until_screen(&self, is_there: impl Fn(&Screen) -> bool) -> MutexGuard<'_, Screen> {
        let mut screen = self.screen.0.lock().unwrap();
        while !is_there(&screen) {
            screen = self.screen.1.wait(screen).unwrap();
        }
        self.watchdog.progress();
        screen
    }

    /// Its text, as soon as it is as it should be.
    fn until(&self, is_there: impl Fn(&str) -> bool) -> String {
        self.until_screen(|screen| is_there(&screen.text())).text()
    }

    fn until_shown(&self, part: &str) -> String {
        self.until(|text| text.contains(part))
    }

    /// All of a frame that stands still: its last line, which is drawn last, changes and changes back.
    fn whole_frame(&self, filter: &str) -> String {
        self.press(b"/");
        self.until(|text| last_line(text).starts_with("show only: "));
        self.press(b"\r");
        self.until(|text| last_line(text) == key_line(filter, text))
    }

    /// Has another size, as soon as that was seen.
    fn resize(&mut self, size: (usize, usize)) {
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
    fn end(self) -> ExitStatus {
        self.end_after("")
    }

    /// Its end, with the terminal as it was before, but for what it says then.
    fn end_after(mut self, last_words: &str) -> ExitStatus {
        let status = self.command.wait().unwrap();
        self.assert_given_back(last_words);
        status
    }

    /// Fails unless the whole screen is what a shell's text and then this would leave, and the next text comes
    /// behind that.
    fn assert_given_back(&self, last_words: &str) {
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
    fn vanish(self) -> ExitStatus {
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

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap().trim_end()
}

/// The last line of a frame with such a filter, and of the width of this one.
fn key_line(filter: &str, text: &str) -> String {
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

/// The lines between the header and the last line, as far as something stands there.
fn rows(text: &str) -> impl Iterator<Item = &str> {
    let below = text.lines().count() - 1;
    let lines = text.lines().take(below).skip(3);
    lines.take_while(|line| !line.trim().is_empty())
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
        // Other tests may have such a task, too.
        terminal.until(|text| {
            let mut rows = rows(text).peekable();
            text.contains("only “task 61”")
                && rows.peek().is_some()
                && rows.all(|row| row.starts_with("task 61 "))
        });
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
            text.contains("order right -> left -> right") && text.contains(") unlocks a ")
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

/// From the first line to the last, with nothing of what was shown before.
fn is_drawn(text: &str) -> bool {
    text.starts_with("latchwork top  ")
        && last_line(text) == key_line("", text)
        && !text.contains(is_old)
}

#[test]
fn a_terminal_of_any_size_that_changes_is_drawn_on() {
    let args = ["--interval", "0.05", "--all"];
    let mut terminal = Terminal::open((80, 24), Control::Signal, &args);
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
            terminal.until(is_drawn);
        }
    }
    // As large as one can claim to be: of that a part is drawn on.
    terminal.resize((65_535, 65_535));
    terminal.resize((80, 24));
    terminal.until(is_drawn);
    terminal.press(b"q");
    // It may be the key that ends the help.
    terminal.press(b"q");
    assert!(terminal.end().success());
}

/// The frames of a view that stands still are the same from whatever they are drawn.
#[test]
fn a_terminal_full_of_text_shows_the_frame_alone_and_then_its_text_again() {
    let named = Named::new("full");
    let _actor = Actor::role("crowd", &named.0);
    for size in [(80, 24), (200, 50), (40, 5)] {
        let args = ["--interval", "0.2", "--filter", &named.0];
        let mut terminal = Terminal::open(size, Control::Signal, &args);
        let frame = terminal.until_shown("only “");
        assert!(!frame.contains(is_old), "{frame}");
        // The tasks all wait by then.
        terminal.until(|text| text.contains("  1 deadlock  "));
        terminal.press(b" ");
        let panes = ["1", "2", "3", "4", "5", "6"].map(|pane| {
            terminal.press(pane.as_bytes());
            (pane, terminal.whole_frame(&named.0))
        });
        for (pane, frame) in panes.iter().rev() {
            assert!(!frame.contains(is_old), "{pane}: {frame}");
            terminal.press(pane.as_bytes());
            terminal.until(|text| text == frame);
        }
        let (_, frame) = &panes[0];
        terminal.press(b"?");
        let help = terminal.until_shown("goes back");
        assert!(!help.contains(is_old), "{help}");
        terminal.press(b"x");
        terminal.until(|text| text == frame);
        terminal.press(b"\x1b");
        let all = terminal.until(|text| !text.contains("only “"));
        assert!(!all.contains(is_old), "{all}");
        terminal.press(format!("/{}\r", named.0).as_bytes());
        terminal.until(|text| text == frame);
        // In whatever order the sizes come.
        let other_size = (size.0 - 1, size.1 + 1);
        terminal.resize(other_size);
        let other_frame = terminal.whole_frame(&named.0);
        assert!(!other_frame.contains(is_old), "{other_frame}");
        terminal.resize(size);
        terminal.until(|text| text == frame);
        terminal.resize(other_size);
        terminal.until(|text| text == other_frame);
        terminal.resize((1, 1));
        terminal.resize(size);
        terminal.until(|text| text == frame);
        terminal.press(b"q");
        assert!(terminal.end().success());
    }
}

#[test]
fn the_shell_has_its_text_while_the_program_is_suspended_and_after_it_ends() {
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    for by_key in [true, false] {
        let terminal = Terminal::open((80, 24), Control::Signal, &["--interval", "0.05"]);
        let pid = Pid::from_child(&terminal.command);
        for _ in 0..3 {
            terminal.until_shown("pause");
            match by_key {
                true => terminal.press(b"\x1a"),
                false => kill_process(pid, Signal::TSTP).unwrap(),
            }
            let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
            assert!(status.stopped(), "{status:?}");
            let before = Screen::after((80, 24), "");
            drop(terminal.until_screen(|screen| screen.state() == before.state()));
            assert_given_back(&terminal.slave);
            kill_process(pid, Signal::CONT).unwrap();
            let frame = terminal.until_shown("pause");
            assert!(!frame.contains(is_old), "{frame}");
        }
        terminal.press(b"q");
        assert!(terminal.end().success());
    }
}

#[test]
fn without_a_terminal_nothing_is_drawn() {
    let message = "latchwork: top: there is no terminal: try --once\n";
    let output = super::common::run(&["top"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), message);
    assert!(output.stdout.is_empty());
    // It has one, but for standard input, or but for standard output.
    for missing in [0, 1] {
        let terminal = Terminal::without((80, 24), missing);
        assert_eq!(terminal.end_after(message).code(), Some(1));
    }
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
        let pid = rustix::process::Pid::from_child(&terminal.command);
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

#[test]
fn a_watch_of_locks_has_a_screen_of_its_own_and_gives_it_back() {
    use rustix::process::{Pid, Signal, kill_process};
    let actor = Actor::role("own", "");
    for size in [(80, 24), (200, 50)] {
        for end in ["q", "\x03", "a signal"] {
            let terminal = Terminal::watch(size, actor.pid());
            // All of the screen is its own.
            let frame = terminal.until_shown("q: end");
            assert!(frame.contains("LOCK") && !frame.contains(is_old), "{frame}");
            match end {
                "a signal" => {
                    let pid = Pid::from_child(&terminal.command);
                    kill_process(pid, Signal::TERM).unwrap();
                }
                key => terminal.press(key.as_bytes()),
            }
            assert!(terminal.end().success());
        }
    }
}

#[test]
fn what_a_screen_has_no_room_for_is_reached_by_keys() {
    let named = Named::new("scrolled");
    let actor = Actor::role("crowd", &named.0);
    let mut terminal = Terminal::watch((80, 10), actor.pid());
    let top = terminal.until(|text| text.contains("0 lines above"));
    terminal.press(b"jj");
    terminal.until_shown("2 lines above");
    terminal.press(b"G");
    terminal.until_shown(" 0 below");
    terminal.resize((100, 10));
    terminal.until_shown(" 0 below");
    terminal.press(b"g");
    let again = terminal.until_shown("0 lines above");
    let first = |text: &str| text.lines().next().map(|line| line.trim_end().to_owned());
    assert!(
        again.starts_with(first(&top).unwrap().get(..10).unwrap()),
        "{top}\n{again}"
    );
    terminal.press(b"q");
    assert!(terminal.end().success());
}

#[test]
fn a_watch_is_suspended_as_any_program_is() {
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    let actor = Actor::role("own", "");
    let terminal = Terminal::watch((80, 24), actor.pid());
    let pid = Pid::from_child(&terminal.command);
    for _ in 0..2 {
        terminal.until_shown("q: end");
        terminal.press(b"\x1a");
        let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
        let before = Screen::after((80, 24), "");
        drop(terminal.until_screen(|screen| screen.state() == before.state()));
        assert_given_back(&terminal.slave);
        kill_process(pid, Signal::CONT).unwrap();
    }
    terminal.until_shown("q: end");
    terminal.press(b"q");
    assert!(terminal.end().success());
}

/// It says so where it can be read.
#[test]
fn a_watch_ends_with_what_is_watched_and_says_so_on_the_shells_screen() {
    let actor = Actor::role("own", "");
    let pid = actor.pid();
    let terminal = Terminal::watch((80, 24), pid);
    terminal.until_shown("q: end");
    assert!(actor.finish());
    let message = format!("latchwork: locks: there is no process {pid}\n");
    assert_eq!(terminal.end_after(&message).code(), Some(1));
}
