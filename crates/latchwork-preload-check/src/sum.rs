//! What is said when the process ends.
#![allow(unsafe_code)]

use crate::say::{self, Text};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use latchwork::check::totals;
use latchwork::time::Deadline;

/// Relaxed, for all here: numbers, and nothing that follows from them.
static WAITS: AtomicU64 = AtomicU64::new(0);
static LONGEST: AtomicU64 = AtomicU64::new(0);
static SHARED: AtomicU32 = AtomicU32::new(0);
static SPEAKER: AtomicU32 = AtomicU32::new(0);
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Addresses of what processes share: so many, and what does not fit is not counted.
const SLOTS: usize = 1024;
static SEEN: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];
/// Slots that are looked at for one address.
const TRIES: usize = 16;

pub(crate) fn prepare() {
    // The process that `latchwork run` has become, and none that it starts.
    let speaker = crate::symbol::environment(c"LATCHWORK_SPEAKER")
        .and_then(|text| core::str::from_utf8(text).ok()?.parse().ok());
    SPEAKER.store(speaker.unwrap_or(0), Ordering::Relaxed);
    let json = crate::symbol::environment(c"LATCHWORK_SUMMARY") == Some(b"json");
    AS_JSON.store(json, Ordering::Relaxed);
}

/// A wait for a lock is over.
pub(crate) fn waited(began: Deadline) {
    let lasted = Deadline::now().as_nanoseconds() - began.as_nanoseconds();
    WAITS.fetch_add(1, Ordering::Relaxed);
    LONGEST.fetch_max(lasted, Ordering::Relaxed);
}

/// Something that processes share was used, and is not checked.
#[cold]
#[inline(never)]
pub(crate) fn shared(address: usize) {
    let hash = (address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize) >> 40;
    for slot in (0..TRIES).map(|step| &SEEN[(hash + step) % SLOTS]) {
        let known = match slot.load(Ordering::Relaxed) {
            0 => slot
                .compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed)
                .map_or_else(|known| known, |_| 0),
            known => known,
        };
        if known == 0 {
            SHARED.fetch_add(1, Ordering::Relaxed);
        }
        if known == 0 || known == address {
            return;
        }
    }
}

/// A time, in the unit that suits it.
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
    // SAFETY: takes nothing.
    let me = unsafe { libc::syscall(libc::SYS_getpid) as u32 };
    if SPEAKER.load(Ordering::Relaxed) != me {
        return;
    }
    let totals = totals();
    let waits = WAITS.load(Ordering::Relaxed);
    let longest = LONGEST.load(Ordering::Relaxed);
    let shared = SHARED.load(Ordering::Relaxed);
    let mut text = Text::<512>::new();
    // Writing to it fails at nothing.
    let _ = if AS_JSON.load(Ordering::Relaxed) {
        writeln!(
            text,
            "{{\"schema\":\"latchwork-check-summary-1\",\"pid\":{me},\"locks\":{},\"unchecked\":{},\"shared\":{shared},\
             \"waits\":{waits},\"longest_wait_ns\":{longest},\"longest_hold_ns\":{},\"findings\":{}}}",
            totals.locks, totals.unchecked, totals.longest_hold, totals.findings
        )
    } else {
        writeln!(
            text,
            "latchwork: {} locks checked, {} process-shared and {} for want of room passed through; {waits} waits, \
             the longest {}; longest hold {}; {} findings",
            totals.locks,
            shared,
            totals.unchecked,
            Time(longest),
            Time(totals.longest_hold),
            totals.findings
        )
    };
    say::bytes(text.bytes());
}

// SAFETY: a section of pointers to such functions.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
