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
use crate::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use crate::sys::clock::ticks;
#[cfg(not(loom))]
use crate::sys::own_record::{Crowd, PLACES, with_habits};

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

/// Microseconds that a waiter rests for where tasks take locks from each other all the time.
pub(crate) const REST: u32 = 1;
/// Microseconds between two collisions of a thread, on average, up to which it is so.
///
/// On an AMD EPYC, two tasks, nothing in the section: 0.9 to 2.2 with nothing between sections, and two or three times as
/// much is done with rests; 5 to 8 with 270 ns between sections, and a tenth less is done with rests.
#[cfg(not(loom))]
const SOON: u32 = 3;
/// Collisions over which a thread counts.
#[cfg(not(loom))]
const COUNTED: u32 = 256;
/// So many of them find the lock free at the first look, at least, if sections are short: 40 to 80 do where a section takes
/// 1 ns, and 2 where it takes 270.
#[cfg(not(loom))]
const SHORT: u32 = 24;
/// Collisions with rests, before the thread counts again.
#[cfg(not(loom))]
const RESTED: u32 = 4096;

/// To be called before a wait for a lock that could not be taken.
///
/// To move a lock, and all that its section writes, to another processor takes longer than to use it many times where it
/// is. If sections are short, and the thread collides with others all the time, the tasks do little else than move the
/// lock: then this passes some microseconds ([`REST`], as a rule), in which another task has it for itself.
#[inline]
pub fn rest_if_crowded(microseconds: u32, looks_free: impl Fn() -> bool) {
    #[cfg(loom)]
    let _ = (microseconds, looks_free);
    #[cfg(not(loom))]
    with_habits(|mine| {
        let left = mine.crowd.left.get();
        mine.crowd.left.set(left.wrapping_sub(1));
        if mine.crowd.rests.get() {
            for _ in 0..looks_in(microseconds) {
                spin_hint();
            }
        } else if looks_free() {
            mine.crowd.free.set(mine.crowd.free.get() + 1);
        }
        if left == 0 {
            count_again(&mine.crowd);
        }
    });
}

/// The thread has counted for long enough, or rested.
#[cfg(not(loom))]
#[cold]
fn count_again(crowd: &Crowd) {
    let now = ticks();
    let passed = now.wrapping_sub(crowd.began.get());
    let rests = !crowd.rests.get()
        && crowd.free.get() >= SHORT
        && passed < u64::from(COUNTED) * ticks_in(SOON);
    crowd.rests.set(rests);
    crowd.left.set(if rests { RESTED } else { COUNTED } - 1);
    crowd.free.set(0);
    crowd.began.set(now);
}

/// Microseconds of polls that cost more than a sleep: what a futex wait and its wake-up take of both processors, and
/// the time in which nobody has the lock.
#[cfg(not(loom))]
const SLEEP: u32 = 10;
/// One wait in so many polls for as long as it may where polls do not pay, to find out whether they do again.
#[cfg(not(loom))]
const PROBE: u8 = 16;
/// Looks with which every wait begins. Nothing is learned of them: where a lock is handed over at once, what a waiter does
/// beside them is time in which nobody has the lock.
pub(crate) const FIRST_LOOKS: u32 = if cfg!(loom) { 0 } else { 20 };

/// How long one wait goes on polling after its [`FIRST_LOOKS`], before it sleeps.
///
/// A thread keeps, for the lock, an average of the looks that its latest such waits have made before they ended or slept.
/// If that takes longer than a sleep and a wake-up, the thread sleeps at once: others can use the processor. Long yields do
/// not count, since others had the processor then.
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
                if waits.is_multiple_of(PROBE) { most } else { 0 }
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
            self.most == 0
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
    (microseconds * SPEED.looks() / 16).max(1)
}

/// Ticks of the processor's counter in so many microseconds.
#[cfg(not(loom))]
fn ticks_in(microseconds: u32) -> u64 {
    SPEED.looks();
    // Relaxed: a number by itself.
    u64::from(microseconds) * u64::from(SPEED.ticks.load(Ordering::Relaxed)) / 16
}

/// This machine: what it does in 16 microseconds; zeros before that was measured.
#[cfg(not(loom))]
struct Speed {
    looks: AtomicU32,
    ticks: AtomicU32,
}

#[cfg(not(loom))]
static SPEED: Speed = Speed {
    looks: AtomicU32::new(0),
    ticks: AtomicU32::new(0),
};

#[cfg(not(loom))]
impl Speed {
    fn looks(&self) -> u32 {
        // Relaxed: a number by itself.
        let looks = self.looks.load(Ordering::Relaxed);
        if looks == 0 { self.measure() } else { looks }
    }

    /// A processor's pause takes 4 to 60 ns. Some microseconds, once a process.
    #[cold]
    fn measure(&self) -> u32 {
        use crate::sys::clock::monotonic_by_call;
        const HINTS: u64 = 256;
        // Of several, the one that was interrupted least.
        let measured = (0..3).map(|_| {
            let began = (monotonic_by_call(), ticks());
            for _ in 0..HINTS {
                spin_hint();
            }
            let ticks = ticks().wrapping_sub(began.1);
            (monotonic_by_call().saturating_sub(began.0), ticks)
        });
        let (nanoseconds, ticks) = measured.min().unwrap_or_default();
        let nanoseconds = nanoseconds.clamp(HINTS, HINTS * 250);
        let looks = (16_000 * HINTS / nanoseconds) as u32;
        self.ticks
            .store((16_000 * ticks / nanoseconds) as u32, Ordering::Relaxed);
        self.looks.store(looks, Ordering::Relaxed);
        looks
    }
}
