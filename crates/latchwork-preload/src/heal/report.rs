//! What is said on standard error.

use super::setting;
use crate::memory::Mutex;
use crate::thread;
use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork_interpose::counts::Seen;
use latchwork_interpose::say;

/// What the summary at the end says. Relaxed: nothing else depends on the numbers.
static HEALED: AtomicU32 = AtomicU32::new(0);
static REPORTED: AtomicU32 = AtomicU32::new(0);
static SEEN: Seen = Seen::new();

/// The number of robust mutexes that were healed, and that of waits that were reported; `None` if nothing is healed.
pub(crate) fn totals() -> Option<[u32; 2]> {
    setting::is_on().then(|| [&HEALED, &REPORTED].map(|count| count.load(Ordering::Relaxed)))
}

pub(super) fn count_healed(mutex: &Mutex) {
    if SEEN.is_new(ptr::from_ref(mutex).addr()) {
        HEALED.fetch_add(1, Ordering::Relaxed);
    }
}

/// A line for a wait that no task will end, or will be ended here.
#[cold]
pub(super) fn wait(what: fmt::Arguments<'_>) {
    REPORTED.fetch_add(1, Ordering::Relaxed);
    let ended = if setting::ends_waits() {
        "; the wait ends with EOWNERDEAD"
    } else {
        ""
    };
    let me = thread::ask();
    say::line(format_args!("task {me} waits for the {what}{ended}"));
}
