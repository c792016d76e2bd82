//! Backoff: what a waiter does between two looks at a lock that another task holds, and how long it polls.
//!
//! A poll costs the processor time that others could use. Three things that a thread learns bound it:
//! - A waiter yields its processor now and then, since the owner may need just that one. If a yield lasts for long,
//!   other tasks need the processor for themselves, and the thread leaves yields out for a while.
//! - If the latest waits for a lock have polled for longer than a sleep and a wake-up cost, the thread polls shortly
//!   there, and one such wait in 16 finds out whether that has changed ([`Polls`]).
//! - Where sections are so short that the lock's cache line takes longer to move than the section, a waiter rests
//!   before its first look ([`rest`]).
//!
//! What a thread learns is its own memory ([`Habits`](crate::sys::own_record::Habits)): a lock needs no room for it, and no
//! cache line moves. Models do not poll.

use crate::atomic::spin_hint;
#[cfg(not(loom))]
use crate::sys::own_record::{PLACES, with_habits};

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
/// The owner may be waiting for the very processor that the caller polls from. If the caller yields it, the lock
/// changes hands without a sleep and a wake-up.
#[inline]
pub(crate) fn pause(looks: u32) {
    #[cfg(not(loom))]
    if looks % NEXT == FIRST && yield_if_brief() {
        return;
    }
    let _ = looks;
    spin_hint();
}

/// How many yields a thread leaves out after a long one. (4 tasks beside 4 programs that spin, 2 processors: throughput
/// and wait-wake locks did 0.6 to 0.8 of what std's did with yields, 0.9 to 1.1 without.)
#[cfg(not(loom))]
const LEFT_OUT: u32 = 64;

/// Yields the processor, unless one of the thread's latest yields was a long one. Returns whether it did.
///
/// A yield is long if the kernel's tick came in it: it was to tasks that need the processor for themselves, and not just
/// to an owner that is about to release a lock. A sleeper would have been woken sooner.
#[cfg(not(loom))]
#[cold]
pub(crate) fn yield_if_brief() -> bool {
    use crate::sys::clock::coarse;
    let left_out = with_habits(|mine| mine.yields_left_out.get());
    if left_out > 0 {
        with_habits(|mine| mine.yields_left_out.set(left_out - 1));
        return false;
    }
    let began = coarse();
    crate::sys::thread::yield_cpu();
    if coarse() != began {
        with_habits(|mine| mine.yields_left_out.set(LEFT_OUT));
    }
    true
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

/// Microseconds of polls that cost more than a sleep: what a futex wait and its wake-up take of both processors, and
/// the time in which nobody has the lock.
#[cfg(not(loom))]
const SLEEP: u32 = 10;
/// One wait in so many polls for as long as it may where polls do not pay, to find out whether they do again.
#[cfg(not(loom))]
const PROBE: u8 = 16;
/// Looks of the others: half a microsecond.
#[cfg(not(loom))]
const FEW: u32 = 20;

/// How long one wait polls before it sleeps.
///
/// A thread keeps, for the lock, an average of the looks that its latest waits have made before they ended or slept.
/// If that takes longer than a sleep and a wake-up, the thread polls shortly: others can use the processor. Long
/// yields do not count, since others had the processor then.
pub(crate) struct Polls {
    #[cfg(not(loom))]
    place: usize,
    most: u32,
}

impl Polls {
    /// At most `most` looks for the lock, or the part of a lock, at this address.
    #[cfg_attr(loom, expect(unused_variables, reason = "models do not poll"))]
    pub(crate) fn at(address: usize, most: u32) -> Self {
        #[cfg(loom)]
        return Self { most: 0 };
        #[cfg(not(loom))]
        {
            let place = (address >> 2 ^ address >> 6 ^ address >> 12) % PLACES;
            let most = with_habits(|mine| {
                if u32::from(mine.looks[place].get()) / WEIGHT < looks_in(SLEEP) {
                    return most;
                }
                // Counted for each place: a thread that takes turns between locks probes all of them.
                let waits = mine.dear_waits[place].get().wrapping_add(1);
                mine.dear_waits[place].set(waits);
                if waits.is_multiple_of(PROBE) {
                    most
                } else {
                    most.min(FEW)
                }
            });
            Self { place, most }
        }
    }

    /// How many looks this wait may make.
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Whether polling has not paid lately, and this wait is no probe.
    pub(crate) fn is_short(&self) -> bool {
        #[cfg(loom)]
        return false;
        #[cfg(not(loom))]
        {
            self.most <= FEW
        }
    }

    /// The wait has made so many looks.
    #[cfg_attr(loom, expect(unused_variables, reason = "models do not poll"))]
    pub(crate) fn made(&self, looks: u32) {
        #[cfg(not(loom))]
        if !self.is_short() {
            with_habits(|mine| {
                let sum = u32::from(mine.looks[self.place].get());
                let sum = sum - sum / WEIGHT + looks.min(MOST_COUNTED);
                mine.looks[self.place].set(sum as u16);
            });
        }
    }
}

/// The average is over about so many waits.
#[cfg(not(loom))]
const WEIGHT: u32 = 8;
/// So that the sum has room.
#[cfg(not(loom))]
const MOST_COUNTED: u32 = u16::MAX as u32 / WEIGHT;

/// Looks that take so many microseconds on this machine.
#[cfg(not(loom))]
pub(crate) fn looks_in(microseconds: u32) -> u32 {
    use crate::atomic::{AtomicU32, Ordering};
    /// Looks in 16 microseconds; 0 before it was measured.
    static SPEED: AtomicU32 = AtomicU32::new(0);
    // Relaxed: a number by itself.
    let mut speed = SPEED.load(Ordering::Relaxed);
    if speed == 0 {
        speed = measure();
        SPEED.store(speed, Ordering::Relaxed);
    }
    (microseconds * speed / 16).max(1)
}

/// How many looks 16 microseconds have. A processor's pause takes 4 to 60 ns. Some microseconds, once a process.
#[cfg(not(loom))]
#[cold]
fn measure() -> u32 {
    use crate::sys::clock::monotonic_by_call;
    const HINTS: u64 = 64;
    // Of several, the one that was interrupted least.
    let shortest = (0..3).map(|_| {
        let began = monotonic_by_call();
        for _ in 0..HINTS {
            spin_hint();
        }
        monotonic_by_call().saturating_sub(began)
    });
    let nanoseconds = shortest.min().unwrap_or(0).clamp(HINTS, HINTS * 250);
    (16_000 * HINTS / nanoseconds) as u32
}
