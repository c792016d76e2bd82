//! Whether the environment asks for healing. It is read together with the [mode](crate::mode), for the same reasons.

use super::gone;
use crate::probe::{self, Layout};
use core::sync::atomic::{AtomicU8, Ordering};
use latchwork_interpose::{say, symbol::environment};

const OFF: u8 = 0;
const REPORT: u8 = 1;
const END: u8 = 2;
static SETTING: AtomicU8 = AtomicU8::new(OFF);

/// Whether objects are healed; the caller has determined the mode.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    // Relaxed, here and below: the caller's call of `mode::get` orders it.
    SETTING.load(Ordering::Relaxed) != OFF
}

/// Whether a wait that no task can end is ended here.
pub(super) fn ends_waits() -> bool {
    SETTING.load(Ordering::Relaxed) == END
}

/// Reads the setting, at the start.
pub(crate) fn prepare() {
    let wanted = match environment(c"LATCHWORK_HEAL") {
        None => return,
        Some(b"report") => REPORT,
        Some(b"end") => END,
        Some(other) => {
            say::line(format_args!(
                "LATCHWORK_HEAL is {:?}, and not report or end: nothing is healed",
                core::str::from_utf8(other).unwrap_or("?")
            ));
            return;
        }
    };
    let problem = match probe::layout() {
        Layout::AsExpected => {
            gone::prepare();
            SETTING.store(wanted, Ordering::Relaxed);
            return;
        }
        Layout::NoClockLock => "this glibc has no pthread_mutex_clocklock or no sem_clockwait",
        Layout::OtherMutex => "this glibc lays its process-shared mutexes out in an unknown way",
        Layout::OtherSemaphore => "this glibc lays its semaphores out in an unknown way",
    };
    say::line(format_args!("{problem}: nothing is healed"));
}
