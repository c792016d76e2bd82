//! What the checker does with its findings: configured by the variable `LATCHWORK_CHECK`, or by calls.
//!
//! The head of [`check`](crate::check) has the words of the variable. (A program that runs with more privileges than its
//! caller ignores it.)

use crate::atomic::{AtomicU64, Ordering};
use crate::check::observe::ended_threads;
use crate::check::record::rule::Rule;
use crate::check::record::settings::{
    self, EXIT, FATAL, FLAGS, HINTS, INVERSION, LONG_HOLD, LONG_WAIT, OFF, QUIET, READ, REFUSE,
    has, leave_out, set, suppress,
};
use crate::check::record::standard_error::{self, complain};
use crate::check::report::{order_file, sink};
use crate::sys::cancellation::Undisturbed;
use crate::sys::{board as memory, introspect, process};
use core::fmt;
use core::time::Duration;

/// Reads the variable, once.
pub(crate) fn read() {
    if FLAGS.fetch_or(READ, Ordering::Relaxed) & READ == 0 {
        let _undisturbed = Undisturbed::begin();
        introspect::with_variable(c"LATCHWORK_CHECK", |list| {
            list.split(',').map(str::trim).for_each(apply);
        });
        if !has(OFF) {
            sink::prepare();
            introspect::with_variable(c"LATCHWORK_HELPER", settings::choose_helper);
        }
        if has(EXIT) {
            process::at_exit(ended_threads::process_ends);
        }
        if !has(OFF) && (has(FATAL) || !has(QUIET)) {
            standard_error::keep();
        }
    }
}

fn apply(word: &str) {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    match name {
        "" | "on" | "report" => {}
        "off" => set(OFF, true),
        "fatal" => set(FATAL, true),
        "refuse" => set(REFUSE, true),
        "quiet" => set(QUIET, true),
        "exit" => set(EXIT, true),
        "hints" => set(HINTS, true),
        "json" => {
            if !settings::append_json_to(value) {
                refuse(format_args!("cannot append findings to {value}"));
            }
        }
        "suppress" => suppress_file(value),
        "without" => match Rule::ALL.iter().find(|rule| rule.name() == value) {
            Some(rule) => leave_out(*rule),
            None => refuse(format_args!("unknown rule {value:?}")),
        },
        "order" => match settings::ORDER.keep(value) {
            true => process::at_exit(order_file::save_at_exit),
            false => refuse(format_args!("the path for the lock order is too long")),
        },
        "long" => set_milliseconds(&LONG_WAIT, value),
        "long-hold" => set_milliseconds(&LONG_HOLD, value),
        "inversion" => set_milliseconds(&INVERSION, value),
        _ => refuse(format_args!("unknown setting {word:?}")),
    }
}

/// Writes what is wrong in the variable.
fn refuse(why: fmt::Arguments<'_>) {
    complain(format_args!("LATCHWORK_CHECK: {why}"));
}

fn set_milliseconds(limit: &AtomicU64, value: &str) {
    match value.parse::<u64>() {
        Ok(milliseconds) => {
            limit.store(milliseconds.saturating_mul(1_000_000), Ordering::Relaxed);
        }
        Err(_) => refuse(format_args!("{value:?} is not a number of milliseconds")),
    }
}

fn suppress_file(path: &str) {
    const BYTES: usize = 1 << 18;
    let Ok(memory) = memory::arena(BYTES) else {
        return;
    };
    // SAFETY: an arena of that size, known only to this function.
    let buffer = unsafe { core::slice::from_raw_parts_mut(memory.as_ptr(), BYTES) };
    match introspect::read_beginning(format_args!("{path}"), buffer) {
        Some(text) => {
            if text.len() == BYTES {
                refuse(format_args!(
                    "only the first {BYTES} bytes of {path} are read"
                ));
            }
            let lines = text.split(|byte| *byte == b'\n');
            lines.filter_map(id_of_line).for_each(suppress);
        }
        None => refuse(format_args!("cannot read suppressions from {path}")),
    }
    // SAFETY: the arena has that size, and its buffer is not used any more.
    unsafe { memory::leave_arena(memory, BYTES) };
}

/// `rule id`, with an optional comment behind `#`.
fn id_of_line(line: &[u8]) -> Option<u64> {
    let line = str::from_utf8(line.split(|byte| *byte == b'#').next()?).ok()?;
    let id = line.split_ascii_whitespace().next_back()?;
    u64::from_str_radix(id, 16).ok()
}

/// Switches checking on or off, for threads that have not used a checked lock yet. Meant for the start of a program.
pub fn set_on(on: bool) {
    read();
    set(OFF, !on);
}

/// Whether checking is on.
#[must_use]
pub fn is_on() -> bool {
    read();
    !has(OFF)
}

/// Whether the first finding aborts the program, after its report. By default the program goes on.
pub fn set_fatal(fatal: bool) {
    read();
    set(FATAL, fatal);
}

/// Whether interposed calls that would complete a wait-for cycle fail instead of waiting.
#[must_use]
pub fn refuses() -> bool {
    read();
    has(REFUSE)
}

/// Whether reports go to standard error as text. By default they do.
pub fn set_text(text: bool) {
    read();
    set(QUIET, !text);
}

/// Waits longer than `limit` are reported; none if it is zero. By default 10 s.
pub fn set_long_wait(limit: Duration) {
    read();
    LONG_WAIT.store(nanoseconds(limit), Ordering::Relaxed);
}

/// Holds longer than `limit` are reported, at the release; none if it is zero, which is the default.
pub fn set_long_hold(limit: Duration) {
    read();
    LONG_HOLD.store(nanoseconds(limit), Ordering::Relaxed);
}

/// How long a task may wait for one of lower priority that does not run at the waiter's. By default 1 ms.
pub fn set_inversion(limit: Duration) {
    read();
    INVERSION.store(nanoseconds(limit), Ordering::Relaxed);
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::id_of_line;

    #[test]
    fn suppressions_may_have_comments_in_any_encoding() {
        assert_eq!(id_of_line(b"one-order 00ff # by M\xfcller\r"), Some(0xff));
        assert_eq!(id_of_line(b"  10\r"), Some(16));
        for none in [&b""[..], b"# 12", b"one-order", b"\xff 12"] {
            assert_eq!(id_of_line(none), None);
        }
    }
}
