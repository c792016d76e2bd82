//! Writing of findings: to the reporter, to standard error and to the JSON file.
#![allow(unsafe_code)]

use crate::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use crate::check::record::board::board;
use crate::check::record::rule::Rule;
use crate::check::record::settings;
use crate::check::record::standard_error::{complain, errors, render, write_errors};
use crate::check::report::finding::{Confidence, Finding};
use crate::check::report::json::Json;
use crate::check::report::words;
use crate::sys::cancellation::Undisturbed;
use crate::sys::{board as memory, introspect, own_stack};
use std::os::fd::{AsFd, BorrowedFd};

/// Room for a finding and its text, which is written in one piece.
/// The arena of a report: its stack, the finding, and the text.
const BYTES: usize = STACK + size_of::<Finding>().next_multiple_of(64) + TEXT;
/// Pages that are not used need no memory.
const STACK: usize = 256 << 10;
const TEXT: usize = 32 << 10;

static REPORTER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// The IDs of the findings that were reported: each is reported once. The table is shared with all processes that this
/// one forks; if there is no memory for that, each process has its own.
static REPORTED: AtomicPtr<Reported> = AtomicPtr::new(core::ptr::null_mut());

type Reported = [AtomicU64; 1024];

static WITHOUT_MEMORY: Reported = [const { AtomicU64::new(0) }; 1024];

/// Makes this process and all that it forks from now on report each finding once.
pub(crate) fn prepare() {
    let none = core::ptr::null_mut();
    // Relaxed: only the address is compared with null here.
    if !REPORTED.load(Ordering::Relaxed).is_null() {
        return;
    }
    if let Ok(memory) = memory::shared_arena(size_of::<Reported>()) {
        let table = memory.cast().as_ptr();
        // Release: pairs with the Acquire in `reported`.
        let first = REPORTED.compare_exchange(none, table, Ordering::Release, Ordering::Relaxed);
        if first.is_err() {
            // SAFETY: the memory was not published.
            unsafe { memory::leave_arena(memory, size_of::<Reported>()) };
        }
    }
}

fn reported() -> &'static Reported {
    // Acquire: pairs with `prepare`.
    let table = REPORTED.load(Ordering::Acquire);
    // SAFETY: null, or zeroed memory of that size, which stays mapped.
    unsafe { table.as_ref() }.unwrap_or(&WITHOUT_MEMORY)
}

/// Calls `reporter` with each finding that is not suppressed, before it is written anywhere. `None` removes the
/// reporter.
///
/// The thread that broke the rule calls it, within its lock call: the reporter must not unwind, and locks that it takes
/// are not checked.
pub fn set_reporter(reporter: Option<fn(&Finding)>) {
    let reporter = reporter.map_or(core::ptr::null_mut(), |reporter| reporter as *mut ());
    // Release: pairs with the Acquire in `report`.
    REPORTER.store(reporter, Ordering::Release);
}

/// Forgets which findings were reported, so that they are reported again: for tests.
#[doc(hidden)]
pub fn forget_reported() {
    for place in reported() {
        // Relaxed: tests run one after the other.
        place.store(0, Ordering::Relaxed);
    }
    crate::check::detect::order::forget_shapes();
}

/// Makes a finding of a rule, and reports it.
pub(crate) fn report(rule: Rule, confidence: Confidence, fill: impl FnOnce(&mut Finding)) {
    if settings::is_left_out(rule) {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    let Ok(room) = memory::arena(BYTES) else {
        return complain(format_args!("no memory to report a breach of {rule}"));
    };
    // SAFETY: within the arena.
    let finding = unsafe { room.add(STACK) }.cast::<Finding>().as_ptr();
    // The finding is never built on the stack, which may be small.
    // SAFETY: a fresh arena, large enough and aligned to a page, known only to this function. Zero is a valid value of
    // each field (empty texts and lists, numbers), or the field is stored before it is read.
    let finding = unsafe {
        (&raw mut (*finding).rule).write(rule);
        (&raw mut (*finding).confidence).write(confidence);
        (&raw mut (*finding).released).write(None);
        &mut *finding
    };
    let make = || {
        fill(finding);
        finding.id = words::id_of(finding);
        if !settings::is_suppressed(finding.id) && is_new(finding.id) {
            words::add_stack(finding);
            // SAFETY: the rest of the arena, which nothing else refers to.
            let text = unsafe {
                let text = room.add(BYTES - TEXT);
                core::slice::from_raw_parts_mut(text.as_ptr(), TEXT)
            };
            deliver(finding, text);
        }
    };
    // The stack of the thread may be small, and be the program's own memory, without a page that guards its end.
    // SAFETY: the beginning of the arena, which nothing else refers to.
    unsafe {
        own_stack::guard(room);
        own_stack::on(room, STACK, make);
    }
    // SAFETY: nothing refers to the arena any more.
    unsafe { memory::leave_arena(room, BYTES) };
}

fn is_new(id: u64) -> bool {
    let all = reported();
    for step in 0..all.len() as u64 {
        let place = &all[(id.wrapping_add(step) % all.len() as u64) as usize];
        // Relaxed: an ID is complete by itself.
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
        let rule = finding.rule as u32 | finding.confidence.flag();
        let text = render(text, format_args!("{finding}"));
        board.keep(rule, finding.id, &finding.summary, text);
    }
    // Acquire: pairs with `set_reporter`.
    let reporter = REPORTER.load(Ordering::Acquire);
    if !reporter.is_null() {
        // SAFETY: only `set_reporter` stores here, and only functions of this type.
        let reporter: fn(&Finding) = unsafe { core::mem::transmute(reporter) };
        reporter(finding);
    }
    if let Some(file) = settings::json() {
        write_json(file.as_fd(), text, finding);
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

/// Reports once that a finding could not be written, since readers of the file miss it.
fn write_json(descriptor: BorrowedFd<'_>, room: &mut [u8], finding: &Finding) {
    /// The file ends in the middle of a line.
    static IS_CUT: AtomicBool = AtomicBool::new(false);
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    // Relaxed, throughout: if two threads write at the same time, both may end the line, or neither.
    let end = if IS_CUT.load(Ordering::Relaxed) {
        "\n"
    } else {
        ""
    };
    let line = render(room, format_args!("{end}{}\n", Json(finding))).as_bytes();
    if settings::convey(line, true, descriptor) {
        return IS_CUT.store(false, Ordering::Relaxed);
    }
    let written = introspect::write(descriptor, line);
    let is_whole = written == line.len();
    if written > 0 {
        IS_CUT.store(!is_whole, Ordering::Relaxed);
    }
    if !is_whole && !IS_REPORTED.swap(true, Ordering::Relaxed) {
        complain(format_args!(
            "LATCHWORK_CHECK: a finding could not be written to the file for findings"
        ));
    }
}

fn write_report(room: &mut [u8], finding: &Finding) {
    if let Some(file) = errors() {
        let text = render(room, format_args!("{finding}")).as_bytes();
        if !settings::convey(text, false, file.as_fd()) {
            introspect::write(file, text);
        }
    }
}
