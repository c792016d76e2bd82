//! Counts for the summary line at the end, and which process prints it.

use crate::symbol::environment;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The process that prints messages.
static SPEAKER: AtomicU32 = AtomicU32::new(0);

/// Determines which process prints messages: the one that `latchwork run` has become, and none that it starts.
pub fn prepare() {
    let speaker = environment(c"LATCHWORK_SPEAKER")
        .and_then(|text| core::str::from_utf8(text).ok()?.parse().ok());
    // Relaxed, for all here: nothing else depends on the numbers.
    SPEAKER.store(speaker.unwrap_or(0), Ordering::Relaxed);
}

/// The calling process's ID, if it is the one that prints messages.
#[must_use]
pub fn speaker() -> Option<u32> {
    #[allow(unsafe_code)]
    // SAFETY: `getpid` takes no arguments and cannot fail.
    let me = unsafe { libc::syscall(libc::SYS_getpid) as u32 };
    (SPEAKER.load(Ordering::Relaxed) == me).then_some(me)
}

/// How many addresses are recorded.
const SLOTS: usize = 1024;
/// How many slots are probed for one address.
const TRIES: usize = 16;

/// A set of objects, by address. An object that finds no slot is not counted.
#[derive(Debug)]
pub struct Seen([AtomicUsize; SLOTS]);

impl Seen {
    /// An empty set.
    #[expect(clippy::new_without_default, reason = "for statics")]
    #[must_use]
    pub const fn new() -> Self {
        Self([const { AtomicUsize::new(0) }; SLOTS])
    }

    /// Whether an object is seen for the first time.
    pub fn is_new(&self, address: usize) -> bool {
        let hash = (address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize) >> 40;
        let slots = (0..TRIES).map(|step| &self.0[(hash + step) % SLOTS]);
        for slot in slots {
            let mut known = slot.load(Ordering::Relaxed);
            if known == 0 {
                match slot.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => return true,
                    Err(other) => known = other,
                }
            }
            if known == address {
                return false;
            }
        }
        false
    }
}
