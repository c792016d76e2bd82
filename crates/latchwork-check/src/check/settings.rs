//! What the checker does with its findings: set by the variable `LATCHWORK_CHECK`, or by calls.
//!
//! The variable is a list, separated by commas. (A program that runs with more privileges than its caller ignores it.)
//!
//! | word | meaning |
//! | --- | --- |
//! | `off` | nothing is checked |
//! | `fatal` | the first finding that is not suppressed aborts the program, after its report |
//! | `refuse` | an interposed call that would complete a wait-for cycle fails with `EDEADLK` |
//! | `quiet` | no text on standard error |
//! | `json=PATH` | findings are appended to a file, one JSON object a line |
//! | `suppress=PATH` | a file of suppression lines, in the form in which reports end |
//! | `without=RULE` | breaches of this rule are not reported; may be given several times |
//! | `order=PATH` | the lock order is appended to a file when the program ends in good order |
//! | `exit` | locks that are held when the process ends are reported, too |
//! | `long=MS` | longer waits are reported; default 10,000, 0 for none |
//! | `long-hold=MS` | longer holds are reported at the release, with the precision of a kernel tick; default 0, for none |
//! | `hints` | uses that are allowed but may be faults are reported, too: `notifies-with-mutex` |
//! | `inversion=MS` | how long a task may wait for one of lower priority; default 1 |
#![allow(unsafe_code)]

use super::kept::Kept;
use super::rule::Rule;
use crate::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::sys::helper::{self, Helper};
use crate::sys::{board as memory, introspect as look};
use core::ffi::CStr;
use core::ptr;
use core::time::Duration;
use std::os::fd::{BorrowedFd, IntoRawFd};

/// Nothing is checked.
pub(super) const OFF: u32 = 1;
/// See the head of this file, here and below.
pub(super) const FATAL: u32 = 2;
pub(super) const REFUSE: u32 = 4;
pub(super) const QUIET: u32 = 8;
pub(super) const EXIT: u32 = 16;
pub(super) const HINTS: u32 = 32;

/// The variable has been read.
const READ: u32 = 1 << 31;

static FLAGS: AtomicU32 = AtomicU32::new(0);
/// The rules that are not reported, a bit for each.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
static LONG_WAIT: AtomicU64 = AtomicU64::new(10_000_000_000);
static LONG_HOLD: AtomicU64 = AtomicU64::new(0);
static INVERSION: AtomicU64 = AtomicU64::new(1_000_000);
static JSON: Kept = Kept::new();
/// Suppressed IDs, in an arena; those that do not fit are dropped.
static SUPPRESSED: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
static SUPPRESSIONS: AtomicU32 = AtomicU32::new(0);
const MOST_SUPPRESSIONS: usize = 4096;

static JSON_PATH: Path = Path::none();
static HELPER_PATH: Path = Path::none();
static HELPER: Helper = Helper::new();
static ORDER: Path = Path::none();

/// A path that was given, in an arena; a relative path is stored after the directory in which the program began.
struct Path {
    text: AtomicPtr<u8>,
    length: AtomicU32,
}

impl Path {
    const BYTES: usize = 4096;

    const fn none() -> Self {
        Self {
            text: AtomicPtr::new(ptr::null_mut()),
            length: AtomicU32::new(0),
        }
    }

    /// Stores the path. Returns whether there was room for it.
    fn keep(&self, path: &str) -> bool {
        let Ok(memory) = memory::arena(Self::BYTES) else {
            return false;
        };
        // SAFETY: a fresh arena of that size, known only to this function until its address is stored.
        let room = unsafe { core::slice::from_raw_parts_mut(memory.as_ptr(), Self::BYTES) };
        let directory = match path.starts_with('/') {
            true => 0,
            false => look::write_directory(room),
        };
        let Some(rest) = room[directory..].get_mut(..path.len()) else {
            return false;
        };
        rest.copy_from_slice(path.as_bytes());
        let length = directory + path.len();
        self.length.store(length as u32, Ordering::Relaxed);
        // Release: pairs with the Acquire in `get`.
        self.text.store(memory.as_ptr(), Ordering::Release);
        true
    }

    /// The path with its terminating zero.
    fn as_c_str(&self) -> Option<&'static CStr> {
        let memory = self.text.load(Ordering::Acquire);
        if memory.is_null() {
            return None;
        }
        // SAFETY: the arena has that size and stays mapped; the bytes that were not written are zero.
        let room = unsafe { core::slice::from_raw_parts(memory, Self::BYTES) };
        CStr::from_bytes_until_nul(room).ok()
    }

    fn get(&self) -> Option<&'static str> {
        let memory = self.text.load(Ordering::Acquire);
        if memory.is_null() {
            return None;
        }
        let length = self.length.load(Ordering::Relaxed) as usize;
        // SAFETY: `keep` wrote that many bytes before it stored the address; the arena stays mapped.
        let bytes = unsafe { core::slice::from_raw_parts(memory, length) };
        str::from_utf8(bytes).ok()
    }
}

/// Whether a flag is set. Relaxed, here and below: settings are made before they are used.
#[inline]
pub(super) fn has(flag: u32) -> bool {
    FLAGS.load(Ordering::Relaxed) & flag != 0
}

/// Reads the variable, once.
pub(super) fn read() {
    if FLAGS.fetch_or(READ, Ordering::Relaxed) & READ == 0 {
        look::with_variable(c"LATCHWORK_CHECK", |list| {
            list.split(',').map(str::trim).for_each(apply);
        });
        if !has(OFF) {
            super::sink::prepare();
            look::with_variable(c"LATCHWORK_HELPER", |path| HELPER_PATH.keep(path));
            if let Some(path) = HELPER_PATH.as_c_str() {
                HELPER.choose(path);
            }
        }
        if has(EXIT) {
            crate::sys::process::at_exit(super::ended::process_ends);
        }
        if !has(OFF) && (has(FATAL) || !has(QUIET)) {
            super::sink::keep_errors();
        }
    }
}

fn set(flag: u32, on: bool) {
    if on {
        FLAGS.fetch_or(flag, Ordering::Relaxed);
    } else {
        FLAGS.fetch_and(!flag, Ordering::Relaxed);
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
            if !JSON_PATH.keep(value) || open_json().is_none() {
                super::sink::complain(format_args!(
                    "LATCHWORK_CHECK: cannot append findings to {value}"
                ));
            }
        }
        "suppress" => suppress_file(value),
        "without" => match Rule::ALL.iter().find(|rule| rule.name() == value) {
            Some(rule) => leave_out(*rule),
            None => super::sink::complain(format_args!("LATCHWORK_CHECK: unknown rule {value:?}")),
        },
        "order" => keep_order_path(value),
        "long" => set_milliseconds(&LONG_WAIT, value),
        "long-hold" => set_milliseconds(&LONG_HOLD, value),
        "inversion" => set_milliseconds(&INVERSION, value),
        _ => super::sink::complain(format_args!("LATCHWORK_CHECK: unknown word {word:?}")),
    }
}

fn set_milliseconds(limit: &AtomicU64, value: &str) {
    match value.parse::<u64>() {
        Ok(milliseconds) => {
            limit.store(milliseconds.saturating_mul(1_000_000), Ordering::Relaxed);
        }
        Err(_) => super::sink::complain(format_args!(
            "LATCHWORK_CHECK: {value:?} is no number of milliseconds"
        )),
    }
}

fn suppress_file(path: &str) {
    const BYTES: usize = 1 << 18;
    let Ok(memory) = memory::arena(BYTES) else {
        return;
    };
    // SAFETY: an arena of that size, known only to this function.
    let buffer = unsafe { core::slice::from_raw_parts_mut(memory.as_ptr(), BYTES) };
    match look::read_beginning(format_args!("{path}"), buffer) {
        Some(text) => {
            if text.len() == BYTES {
                super::sink::complain(format_args!(
                    "LATCHWORK_CHECK: of {path} the first {BYTES} bytes are read"
                ));
            }
            let lines = text.split(|byte| *byte == b'\n');
            lines.filter_map(id_of_line).for_each(suppress);
        }
        None => super::sink::complain(format_args!(
            "LATCHWORK_CHECK: cannot read suppressions from {path}"
        )),
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

/// Breaches of this rule are not reported from now on.
pub fn leave_out(rule: Rule) {
    LEFT_OUT.fetch_or(1 << rule as u32, Ordering::Relaxed);
}

pub(super) fn is_left_out(rule: Rule) -> bool {
    LEFT_OUT.load(Ordering::Relaxed) & 1 << rule as u32 != 0
}

/// Findings with this ID are not reported from now on.
///
/// The ID is the last number of the last line of a report. At most 4,096 are kept.
pub fn suppress(id: u64) {
    if SUPPRESSED.load(Ordering::Acquire).is_null() {
        let Ok(memory) = memory::arena(MOST_SUPPRESSIONS * 8) else {
            return;
        };
        // Release: pairs with the Acquire above. (If two threads do this at the same time, one page leaks.)
        SUPPRESSED.store(memory.as_ptr().cast(), Ordering::Release);
    }
    let place = SUPPRESSIONS.fetch_add(1, Ordering::Relaxed) as usize;
    if let Some(place) = suppressed().get(place) {
        place.store(id, Ordering::Relaxed);
    }
}

fn suppressed() -> &'static [AtomicU64] {
    let memory = SUPPRESSED.load(Ordering::Acquire);
    if memory.is_null() {
        return &[];
    }
    // SAFETY: an arena of that many words, which stays mapped.
    unsafe { core::slice::from_raw_parts(memory, MOST_SUPPRESSIONS) }
}

pub(super) fn is_suppressed(id: u64) -> bool {
    let count = SUPPRESSIONS.load(Ordering::Relaxed) as usize;
    let all = suppressed().iter().take(count);
    all.into_iter()
        .any(|suppressed| suppressed.load(Ordering::Relaxed) == id)
}

fn keep_order_path(path: &str) {
    if ORDER.keep(path) {
        crate::sys::process::at_exit(super::order_file::save_at_exit);
    } else {
        super::sink::complain(format_args!(
            "LATCHWORK_CHECK: the path for the lock order is too long"
        ));
    }
}

/// The file to which the lock order is appended.
pub(super) fn order_path() -> Option<&'static str> {
    ORDER.get()
}

fn open_json() -> Option<u32> {
    let file = look::append_to(JSON_PATH.get()?)?;
    let descriptor = file.into_raw_fd().cast_unsigned();
    JSON.keep(descriptor);
    Some(descriptor)
}

/// The descriptor for JSON. It is reopened if the program has closed it, even if its number names another file now.
pub(super) fn json() -> Option<u32> {
    if !JSON.is_set() {
        return None;
    }
    let descriptor = JSON.get().or_else(open_json);
    if descriptor.is_none() {
        JSON.forget();
        super::sink::complain(format_args!(
            "LATCHWORK_CHECK: the file for findings was closed, and cannot be opened again: they are written there no more"
        ));
    }
    descriptor
}

/// Makes the helper program write a report to a descriptor, with names that this process cannot look up. Returns
/// whether it did.
pub(super) fn convey(report: &[u8], json: bool, to: BorrowedFd<'_>) -> bool {
    let arguments = [c"symbolise", c"--json"];
    let arguments = &arguments[..1 + usize::from(json)];
    HELPER_PATH
        .as_c_str()
        .is_some_and(|path| helper::convey(&HELPER, path, arguments, report, to))
}

/// Waits longer than this many nanoseconds are reported; 0 for none.
pub(super) fn long_wait() -> u64 {
    LONG_WAIT.load(Ordering::Relaxed)
}

/// Holds longer than this many nanoseconds are reported; 0 for none.
#[inline]
pub(super) fn long_hold() -> u64 {
    LONG_HOLD.load(Ordering::Relaxed)
}

/// How many nanoseconds a task may wait for one of lower priority.
pub(super) fn inversion() -> u64 {
    INVERSION.load(Ordering::Relaxed)
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
    fn lines_of_suppressions_may_have_comments_in_any_encoding() {
        assert_eq!(id_of_line(b"one-order 00ff # by M\xfcller\r"), Some(0xff));
        assert_eq!(id_of_line(b"  10\r"), Some(16));
        for none in [&b""[..], b"# 12", b"one-order", b"\xff 12"] {
            assert_eq!(id_of_line(none), None);
        }
    }
}
