//! `latchwork top`, and `locks --watch`, on a terminal: what is on its screen after keys, and how it ends.

#[path = "emulator.rs"]
mod emulator;
#[path = "terminal.rs"]
mod terminal;

use super::actor::Actor;
use super::common::Named;
use emulator::{Screen, assert_given_back, is_old};
use latchwork_testkit::Seed;
use terminal::{Control, Terminal, key_line, last_line, rows, sorted_by};

#[test]
fn keys_choose_sort_and_filter_what_the_terminal_shows() {
    let named = Named::new("screen");
    let _actor = Actor::role("crowd", &named.0);
    for size in [(80, 24), (200, 50)] {
        let args = ["--interval", "0.2", "--filter", &named.0];
        let terminal = Terminal::open(size, Control::Signal, &args);
        // All tasks wait then.
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
        terminal.until_shown("No row contains that text");
        terminal.press(b"2?");
        terminal.until_shown("any key goes back");
        terminal.press(b"x ");
        terminal.until(|text| !text.contains("any key goes back") && text.contains("  paused"));
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
            line_with(&list, "misuse") < line_with(&list, "potential"),
            "{list}"
        );
        // The rows stay in place while keys are pressed.
        terminal.press(b" ");
        terminal.until_shown("  paused");
        terminal.press(b"\r");
        terminal.until(|text| {
            text.contains("== latchwork: MISUSE [no-double-unlock]")
                && text.contains("no?[31mthing")
        });
        // The end of the report.
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
        // The key that normally ends the program closes the report.
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
            // Not the same size twice: the kernel reports only a change.
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
        // All tasks wait then.
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
fn a_termination_signal_restores_the_terminal() {
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
fn it_ends_when_the_terminal_is_closed() {
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
fn a_watch_of_locks_has_a_screen_of_its_own_and_restores_the_shells() {
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
fn content_beyond_the_screen_is_reached_by_keys() {
    let named = Named::new("scrolled");
    let actor = Actor::role("crowd", &named.0);
    let mut terminal = Terminal::watch((80, 10), actor.pid());
    // What is above all else, once the tasks wait for each other.
    let is_top = |text: &str| text.starts_with("DEADLOCK") && text.contains("0 lines above");
    drop(terminal.until(is_top));
    // A view of a busy machine may have fewer lines, which all fit, just then.
    terminal.press(b"j");
    terminal.until_shown(" 1 lines above");
    terminal.press(b"G");
    terminal.until_shown(" 0 below");
    terminal.resize((100, 10));
    terminal.until_shown(" 0 below");
    terminal.press(b"g");
    drop(terminal.until(is_top));
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
fn a_watch_ends_with_the_watched_process_and_reports_it_on_the_shells_screen() {
    let actor = Actor::role("own", "");
    let pid = actor.pid();
    let terminal = Terminal::watch((80, 24), pid);
    terminal.until_shown("q: end");
    assert!(actor.finish());
    let message = format!("latchwork: locks: there is no process {pid}\n");
    assert_eq!(terminal.end_after(&message).code(), Some(1));
}
