//! Counts of replaced objects and of those that were left to glibc, printed when the process ends.
#![allow(unsafe_code)]

use crate::heal::report;
use crate::memory::Mutex;
use crate::mode::{self, Mode};
use core::fmt::Write;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::mutex::foreign::write_code_location;
use latchwork_interpose::counts::{Seen, speaker};
use latchwork_interpose::mutexes::kind;
use latchwork_interpose::say::{self, Text};

/// In a cache line of its own, since data that each call reads may lie beside it.
#[repr(align(64))]
struct Apart(AtomicU32);

/// Relaxed, for all here: nothing else depends on the numbers.
static REPLACED: Apart = Apart(AtomicU32::new(0));
static CONDS: AtomicU32 = AtomicU32::new(0);
/// The mutexes that stay glibc's, by their attributes; a mutex may have several of these.
static KINDS: [(u32, &str, AtomicU32); 4] = [
    (kind::SHARED, "process-shared", AtomicU32::new(0)),
    (kind::ROBUST, "robust", AtomicU32::new(0)),
    (kind::INHERIT, "inheriting", AtomicU32::new(0)),
    (kind::PROTECT, "with a ceiling", AtomicU32::new(0)),
];
static PASSED: AtomicU32 = AtomicU32::new(0);
static SEEN: Seen = Seen::new();

pub(crate) fn replaced() {
    REPLACED.0.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn passed_cond() {
    CONDS.fetch_add(1, Ordering::Relaxed);
}

/// Counts a mutex that is left to glibc, at its first use.
#[inline(never)]
pub(crate) fn passed(mutex: &Mutex) {
    if mode::get() == Mode::Glibc {
        return;
    }
    if SEEN.is_new(ptr::from_ref(mutex).addr()) {
        PASSED.fetch_add(1, Ordering::Relaxed);
        for (bit, _, count) in &KINDS {
            if mutex.kind() & bit != 0 {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A thread waits for itself, or for a thread that has ended, as it would with glibc's mutex.
#[cold]
pub(crate) fn waits_in_vain(mutex: &Mutex, me: u32) {
    say::line(format_args!(
        "task {me} waits for the mutex at {:#x}, which only another thread can release: its owner waits for it, or has ended",
        ptr::from_ref(mutex).addr()
    ));
}

/// How many mutexes are reported at most that were released by another thread than their owner.
const MOST_SAID: u32 = 100;
static RELEASED: AtomicU32 = AtomicU32::new(0);

/// A thread releases an inheriting mutex that another thread owns.
#[cold]
pub(crate) fn released_by_other(mutex: &Mutex, me: u32, owner: u32, at: usize) {
    if RELEASED.fetch_add(1, Ordering::Relaxed) >= MOST_SAID {
        return;
    }
    let mut place = Text::<256>::new();
    // Writing to a `Text` cannot fail.
    let _ = match at {
        0 => place.write_str("in a wait for a condition"),
        at => place
            .write_str("at ")
            .and_then(|()| write_code_location(at, &mut place)),
    };
    say::line(format_args!(
        "task {me} releases the mutex at {:#x}, which task {owner} has taken, {}: it inherits no priority from now on",
        ptr::from_ref(mutex).addr(),
        str::from_utf8(place.bytes()).unwrap_or("?"),
    ));
}

extern "C" fn at_exit() {
    // The program may have called none of these functions.
    let mode = mode::get();
    if speaker().is_none() {
        return;
    }
    let mut text = Text::<512>::new();
    // Writing to a `Text` cannot fail.
    let _ = match mode {
        Mode::Glibc => text.write_str("latchwork: no mutex was replaced"),
        mode => write!(
            text,
            "latchwork: {} mutexes replaced by {}",
            REPLACED.0.load(Ordering::Relaxed),
            match mode {
                Mode::Throughput => "throughput locks",
                Mode::WaitWake => "wait-wake locks",
                _ => "inheriting locks",
            }
        ),
    };
    let passed = PASSED.load(Ordering::Relaxed);
    if passed > 0 {
        let _ = write!(text, "; {passed} left to glibc");
        let kinds = KINDS.iter().filter_map(|(_, name, count)| {
            let count = count.load(Ordering::Relaxed);
            (count > 0).then_some((count, name))
        });
        for (place, (count, name)) in kinds.enumerate() {
            let _ = write!(
                text,
                "{}{count} {name}",
                if place == 0 { " (" } else { ", " }
            );
        }
        if KINDS.iter().any(|kind| kind.2.load(Ordering::Relaxed) > 0) {
            let _ = text.write_str(")");
        }
    }
    let released = RELEASED.load(Ordering::Relaxed);
    if released > 0 {
        let _ = write!(
            text,
            "; {released} inherit nothing, since other threads have released them"
        );
    }
    let conds = CONDS.load(Ordering::Relaxed);
    if conds > 0 {
        let _ = write!(
            text,
            "; {conds} process-shared condition variables left to glibc"
        );
    }
    if let Some([mutexes, waits]) = report::totals() {
        let _ = write!(
            text,
            "; {mutexes} robust process-shared mutexes healed, {waits} waits reported"
        );
    }
    let _ = text.write_str("\n");
    say::bytes(text.bytes());
}

/// Called by the dynamic linker when the process exits, after the program's own exit handlers.
// SAFETY: `.fini_array` is a section of pointers to functions of this type.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
