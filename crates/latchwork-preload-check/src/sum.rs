//! The summary that is printed when the process ends.
#![allow(unsafe_code)]

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use latchwork::check::totals;
use latchwork_interpose::counts::{Seen, speaker};
use latchwork_interpose::say::{self, Text};
use latchwork_interpose::symbol::environment;

/// Relaxed, for all here: nothing else depends on the numbers.
static SHARED: AtomicU32 = AtomicU32::new(0);
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// The process-shared objects that were counted.
static SEEN: Seen = Seen::new();

pub(crate) fn prepare() {
    let json = environment(c"LATCHWORK_SUMMARY") == Some(b"json");
    AS_JSON.store(json, Ordering::Relaxed);
}

/// A process-shared object was used, which is not checked.
#[cold]
#[inline(never)]
pub(crate) fn shared(address: usize) {
    if SEEN.is_new(address) {
        SHARED.fetch_add(1, Ordering::Relaxed);
    }
}

/// A duration, displayed in a suitable unit.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(nanoseconds) = *self;
        match nanoseconds {
            0..1_000_000 => write!(to, "{} µs", nanoseconds / 1_000),
            1_000_000..10_000_000_000 => write!(to, "{} ms", nanoseconds / 1_000_000),
            _ => write!(to, "{} s", nanoseconds / 1_000_000_000),
        }
    }
}

extern "C" fn at_exit() {
    let Some(me) = speaker() else { return };
    let totals = totals();
    let shared = SHARED.load(Ordering::Relaxed);
    let mut text = Text::<512>::new();
    // Writing to a `Text` cannot fail.
    let _ = if AS_JSON.load(Ordering::Relaxed) {
        writeln!(
            text,
            "{{\"schema\":\"latchwork-check-summary-1\",\"pid\":{me},\"locks\":{},\"unchecked\":{},\"shared\":{shared},\
             \"waits\":{},\"longest_wait_ns\":{},\"longest_hold_ns\":{},\"findings\":{}}}",
            totals.locks,
            totals.unchecked,
            totals.waits,
            totals.longest_wait,
            totals.longest_hold,
            totals.findings
        )
    } else {
        writeln!(
            text,
            "latchwork: {} locks checked; {} process-shared locks and {} others, for which there was no room, not \
             checked; {} waits, the longest {}; longest hold {}; {} findings",
            totals.locks,
            shared,
            totals.unchecked,
            totals.waits,
            Time(totals.longest_wait),
            Time(totals.longest_hold),
            totals.findings
        )
    };
    say::bytes(text.bytes());
}

// SAFETY: `.fini_array` is a section of pointers to functions of this type.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
