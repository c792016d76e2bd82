//! What is counted for the line at the end, and which process says it.

use crate::symbol::environment;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The process that says something.
static SPEAKER: AtomicU32 = AtomicU32::new(0);

/// Finds out which process is to say something: that which `latchwork run` has become, and none that it starts.
pub fn prepare() {
    let speaker = environment(c"LATCHWORK_SPEAKER")
        .and_then(|text| core::str::from_utf8(text).ok()?.parse().ok());
    // Relaxed, for all here: numbers, and nothing that follows from them.
    SPEAKER.store(speaker.unwrap_or(0), Ordering::Relaxed);
}

/// The calling process, if it is to say something.
#[must_use]
pub fn speaker() -> Option<u32> {
    #[allow(unsafe_code)]
    // SAFETY: takes nothing.
    let me = unsafe { libc::syscall(libc::SYS_getpid) as u32 };
    (SPEAKER.load(Ordering::Relaxed) == me).then_some(me)
}

/// Addresses that were seen.
const SLOTS: usize = 1024;
/// Slots that are looked at for one address.
const TRIES: usize = 16;

/// Objects, by address: so many, and what does not fit is not counted.
#[derive(Debug)]
pub struct Seen([AtomicUsize; SLOTS]);

impl Seen {
    /// None yet.
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
