//! Where findings go.
#![allow(unsafe_code)]

use super::board::board;
use super::finding::{Confidence, Finding};
use super::json::Json;
use super::kept::Kept;
use super::rule::Rule;
use super::settings;
use super::words;
use crate::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use crate::sys::{board as memory, look};
use core::fmt::{self, Write};

/// What standard error was when the checker began.
static ERRORS: Kept = Kept::new();
/// Room for a finding, and for its text, which is written in one piece.
const BYTES: usize = size_of::<Finding>().next_multiple_of(64) + TEXT;
const TEXT: usize = 32 << 10;

static REPORTER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// The findings that were reported, by ID: each is reported once. In memory that the process shares with all that it
/// forks; its own if there is none.
static REPORTED: AtomicPtr<Reported> = AtomicPtr::new(core::ptr::null_mut());

type Reported = [AtomicU64; 1024];

static WITHOUT_MEMORY: Reported = [const { AtomicU64::new(0) }; 1024];

/// Has findings be reported once by this process and all that it forks from now on.
pub(super) fn prepare() {
    let none = core::ptr::null_mut();
    // Relaxed: nothing but this is looked at before there is one.
    if !REPORTED.load(Ordering::Relaxed).is_null() {
        return;
    }
    if let Ok(memory) = memory::shared_arena(size_of::<Reported>()) {
        let table = memory.cast().as_ptr();
        // Release: pairs with the Acquire in `reported`.
        let first = REPORTED.compare_exchange(none, table, Ordering::Release, Ordering::Relaxed);
        if first.is_err() {
            // SAFETY: nobody knows it.
            unsafe { memory::leave_arena(memory, size_of::<Reported>()) };
        }
    }
}

fn reported() -> &'static Reported {
    // Acquire: pairs with `prepare`.
    let table = REPORTED.load(Ordering::Acquire);
    // SAFETY: null, or zeroed memory of that size, which stays.
    unsafe { table.as_ref() }.unwrap_or(&WITHOUT_MEMORY)
}

/// Has `reporter` called with each finding that is not suppressed, before it is written anywhere; `None` ends
/// that.
///
/// It is called by the thread that broke the rule, within its lock call: it must not unwind, and what it locks
/// is not checked.
pub fn set_reporter(reporter: Option<fn(&Finding)>) {
    let reporter = reporter.map_or(core::ptr::null_mut(), |reporter| reporter as *mut ());
    // Release: pairs with the Acquire in `report`.
    REPORTER.store(reporter, Ordering::Release);
}

/// Reports each finding anew, should it come again: for tests.
#[doc(hidden)]
pub fn forget_reported() {
    for place in reported() {
        // Relaxed: tests take their turns.
        place.store(0, Ordering::Relaxed);
    }
    super::order::forget_shapes();
}

/// Makes a finding of a rule, and reports it.
pub(super) fn report(rule: Rule, confidence: Confidence, fill: impl FnOnce(&mut Finding)) {
    if settings::is_left_out(rule) {
        return;
    }
    let Ok(room) = memory::arena(BYTES) else {
        return complain(format_args!("no memory to report a breach of {rule}"));
    };
    let finding = room.cast::<Finding>().as_ptr();
    // Never whole on the stack, which may be a small one.
    // SAFETY: a fresh arena, large enough and aligned to a page, which is this function's alone. Zeros are a value of
    // each of its fields: texts and lists that are empty, numbers; or stored before anybody reads them.
    let finding = unsafe {
        (&raw mut (*finding).rule).write(rule);
        (&raw mut (*finding).confidence).write(confidence);
        (&raw mut (*finding).released).write(None);
        &mut *finding
    };
    fill(finding);
    finding.id = words::id_of(finding);
    if !settings::is_suppressed(finding.id) && is_new(finding.id) {
        words::add_stack(finding);
        // SAFETY: the rest of the arena.
        let text = unsafe {
            let text = room.add(BYTES - TEXT);
            core::slice::from_raw_parts_mut(text.as_ptr(), TEXT)
        };
        deliver(finding, text);
    }
    // SAFETY: nothing refers to it any more.
    unsafe { memory::leave_arena(room, BYTES) };
}

fn is_new(id: u64) -> bool {
    let all = reported();
    for step in 0..all.len() as u64 {
        let place = &all[(id.wrapping_add(step) % all.len() as u64) as usize];
        // Relaxed: an ID stands for itself.
        match place.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(known) if known == id => return false,
            Err(_) => {}
        }
    }
    true
}

fn deliver(finding: &Finding, text: &mut [u8]) {
    if let Some(board) = board() {
        let counts = &board.header().findings;
        if let Some(count) = counts.get(finding.severity() as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        board.keep(finding, render(text, format_args!("{finding}")));
    }
    // Acquire: pairs with `set_reporter`.
    let reporter = REPORTER.load(Ordering::Acquire);
    if !reporter.is_null() {
        // SAFETY: only `set_reporter` stores here, and only functions of this type.
        let reporter: fn(&Finding) = unsafe { core::mem::transmute(reporter) };
        reporter(finding);
    }
    if let Some(descriptor) = settings::json() {
        write_json(descriptor, text, finding);
    }
    let fatal = settings::has(settings::FATAL);
    if fatal || !settings::has(settings::QUIET) {
        write_report(text, finding);
    }
    if fatal {
        let (verdict, rule) = (finding.verdict(), finding.rule);
        write_errors(
            text,
            format_args!("latchwork: LATCHWORK_CHECK=fatal: {verdict} [{rule}]\n"),
        );
        std::process::abort();
    }
}

struct Buffer<'a> {
    room: &'a mut [u8],
    length: usize,
}

impl Write for Buffer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let text = crate::text::whole_characters(text, self.room.len() - self.length);
        self.room[self.length..][..text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

/// As much of a text as there is room for.
fn render<'r>(room: &'r mut [u8], text: fmt::Arguments<'_>) -> &'r str {
    let mut buffer = Buffer { room, length: 0 };
    let _ = fmt::write(&mut buffer, text);
    // Whole characters only were put in.
    str::from_utf8(&buffer.room[..buffer.length]).unwrap_or_default()
}

fn write(descriptor: u32, room: &mut [u8], text: fmt::Arguments<'_>) {
    look::write(descriptor, render(room, text).as_bytes());
}

/// Says once that a finding could not be written: whoever reads the file misses it.
fn write_json(descriptor: u32, room: &mut [u8], finding: &Finding) {
    /// The file ends in the middle of a line.
    static IS_CUT: AtomicBool = AtomicBool::new(false);
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    // Relaxed, all of it: two threads at the same time may end the line both, or none.
    let end = if IS_CUT.load(Ordering::Relaxed) {
        "\n"
    } else {
        ""
    };
    let line = render(room, format_args!("{end}{}\n", Json(finding))).as_bytes();
    if settings::convey(line, true, descriptor) {
        return IS_CUT.store(false, Ordering::Relaxed);
    }
    let written = look::write(descriptor, line);
    let is_whole = written == line.len();
    if written > 0 {
        IS_CUT.store(!is_whole, Ordering::Relaxed);
    }
    if !is_whole && !IS_TOLD.swap(true, Ordering::Relaxed) {
        complain(format_args!(
            "LATCHWORK_CHECK: a finding could not be written to the file for findings"
        ));
    }
}

/// The program's.
const STANDARD_ERROR: u32 = 2;

/// Has reports go to what standard error is now, whatever the program makes of that descriptor later.
pub(super) fn keep_errors() {
    if !ERRORS.is_set() {
        ERRORS.keep(look::duplicate(STANDARD_ERROR).unwrap_or(STANDARD_ERROR));
    }
}

/// Where text goes.
fn errors() -> Option<u32> {
    keep_errors();
    // The program may have closed the duplicate, and left its own.
    let own = || Some(STANDARD_ERROR).filter(|number| ERRORS.is_at(*number));
    ERRORS.get().or_else(own)
}

fn write_report(room: &mut [u8], finding: &Finding) {
    if let Some(descriptor) = errors() {
        let text = render(room, format_args!("{finding}")).as_bytes();
        if !settings::convey(text, false, descriptor) {
            look::write(descriptor, text);
        }
    }
}

fn write_errors(room: &mut [u8], text: fmt::Arguments<'_>) {
    if let Some(descriptor) = errors() {
        write(descriptor, room, text);
    }
}

/// Says on standard error what could not be done.
pub(super) fn complain(text: fmt::Arguments<'_>) {
    let mut room = [0; 256];
    write_errors(&mut room, format_args!("latchwork: {text}\n"));
}
