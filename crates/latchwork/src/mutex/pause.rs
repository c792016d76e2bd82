//! Between two looks at a lock that somebody else holds.

use crate::atomic::spin_hint;

/// Looks before the processor is offered to others: 0.7 µs. A hand-over between two processors takes
/// a fifth of that, and an offer that nobody takes a third, so that who waits on another processor does
/// not come to it. (After 20 looks, half of a chain of such hand-overs did, each for the other's sake.)
#[cfg(not(loom))]
const FIRST: u32 = 30;
/// Looks from one offer to the next.
#[cfg(not(loom))]
const NEXT: u32 = 100;

/// Passes the time after a number of looks in a row.
///
/// The holder may be waiting for the very processor that the caller looks from: offered to it, the lock
/// changes hands without a sleep and a wake-up. A look that is not the caller's last may so last as long
/// as a turn of the others on this processor.
#[inline]
pub(crate) fn pause(looks: u32) {
    #[cfg(not(loom))]
    if looks % NEXT == FIRST {
        return crate::sys::thread::yield_cpu();
    }
    let _ = looks;
    spin_hint();
}
