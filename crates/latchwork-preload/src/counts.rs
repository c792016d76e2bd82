//! What was replaced and what was left to glibc, said when the process ends.
#![allow(unsafe_code)]

use crate::memory::Mutex;
use crate::mode::{self, Mode};
use crate::say::{self, Text};
use core::fmt::Write;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Relaxed, for all here: numbers, and nothing that follows from them.
static REPLACED: AtomicU32 = AtomicU32::new(0);
static CONDS: AtomicU32 = AtomicU32::new(0);
/// Those that stay glibc's, by what they are; one may be several of these.
static KINDS: [(u32, &str, AtomicU32); 4] = [
    (Mutex::SHARED, "process-shared", AtomicU32::new(0)),
    (Mutex::ROBUST, "robust", AtomicU32::new(0)),
    (Mutex::INHERIT, "inheriting", AtomicU32::new(0)),
    (Mutex::PROTECT, "with a ceiling", AtomicU32::new(0)),
];
static PASSED: AtomicU32 = AtomicU32::new(0);
/// The process that says something.
static SPEAKER: AtomicU32 = AtomicU32::new(0);

/// Those that were seen, by address: so many, and what does not fit is not counted.
const SLOTS: usize = 1024;
static SEEN: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];
/// Slots that are looked at for one address.
const TRIES: usize = 16;

pub(crate) fn prepare() {
    // The process that `latchwork run` has become, and none that it starts.
    let speaker = crate::symbol::environment(c"LATCHWORK_SPEAKER")
        .and_then(|text| core::str::from_utf8(text).ok()?.parse().ok());
    SPEAKER.store(speaker.unwrap_or(0), Ordering::Relaxed);
}

pub(crate) fn replaced() {
    REPLACED.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn passed_cond() {
    CONDS.fetch_add(1, Ordering::Relaxed);
}

/// Counts a mutex that is left to glibc, the first time.
#[inline(never)]
pub(crate) fn passed(mutex: &Mutex) {
    if mode::get() == Mode::Glibc {
        return;
    }
    let address = ptr::from_ref(mutex).addr();
    let hash = (address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize) >> 40;
    for slot in (0..TRIES).map(|step| &SEEN[(hash + step) % SLOTS]) {
        let known = match slot.load(Ordering::Relaxed) {
            0 => slot
                .compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed)
                .map_or_else(|known| known, |_| 0),
            known => known,
        };
        if known == address {
            return;
        }
        if known == 0 {
            PASSED.fetch_add(1, Ordering::Relaxed);
            for (bit, _, count) in &KINDS {
                if mutex.kind() & bit != 0 {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
            return;
        }
    }
}

extern "C" fn at_exit() {
    // The program may have called nothing of this.
    let mode = mode::get();
    // SAFETY: takes nothing.
    let me = unsafe { libc::syscall(libc::SYS_getpid) as u32 };
    if SPEAKER.load(Ordering::Relaxed) != me {
        return;
    }
    let mut text = Text::<512>::new();
    // Writing to it fails at nothing.
    let _ = match mode {
        Mode::Glibc => write!(text, "latchwork: no mutex was replaced"),
        mode => write!(
            text,
            "latchwork: {} mutexes replaced by {}",
            REPLACED.load(Ordering::Relaxed),
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
    let conds = CONDS.load(Ordering::Relaxed);
    if conds > 0 {
        let _ = write!(
            text,
            "; {conds} process-shared condition variables left to glibc"
        );
    }
    let _ = text.write_str("\n");
    say::bytes(text.bytes());
}

/// Called by the dynamic linker when the process exits, after what the program has to do then.
// SAFETY: a section of pointers to such functions.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
