//! Between two looks at a lock that somebody else holds, and before the first.

use crate::atomic::spin_hint;
#[cfg(not(loom))]
use crate::sys::own_record::with_habits;

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

/// Spins before the first look, if that is worth it: 0.8 µs, or 20 to 50 of the shortest sections; where a spin takes
/// longest, some 2 µs. (Eight tasks at 4 mutexes, sections of one addition, 2 processors: 15 ns a section, with 20 spins
/// 19, without any 39; glibc's 29.)
#[cfg(not(loom))]
const REST: u32 = 40;
/// Of 256 first looks so many found the lock free if its sections are short: an average over some 16 of a thread's
/// latest, at whatever lock. Where a section takes 1 ns it is 90 to 190, and 245 after a rest; where it takes 300, 2
/// and 35.
#[cfg(not(loom))]
const SHORT: u32 = 96;

/// Passes some time before the first look at a lock that could not be taken, if the sections are short: to move such a
/// lock to another processor, with all that its section writes, takes longer than to use it some 20 times where it is.
#[inline]
pub fn rest() {
    #[cfg(not(loom))]
    if with_habits(|mine| mine.at_once.get()) >= SHORT {
        for _ in 0..REST {
            spin_hint();
        }
    }
}

/// Whether the first look found the lock free: its section ended between a try and that.
#[inline]
pub fn has_looked(at_once: bool) {
    #[cfg(loom)]
    let _ = at_once;
    #[cfg(not(loom))]
    with_habits(|mine| {
        let average = mine.at_once.get();
        let look = if at_once { 16 } else { 0 };
        mine.at_once.set(average - average / 16 + look);
    });
}
