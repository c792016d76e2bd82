//! Yields: a waiter yields its processor to the owner, unless other tasks need the processor for themselves.

#[cfg(not(loom))]
use crate::atomic::spin_hint;
#[cfg(not(loom))]
use crate::sys::own_record::with_habits;

/// Yields that a thread omits after a long one. (4 tasks beside 4 programs that spin, 2 processors: throughput and
/// wait-wake locks did 0.6 to 0.8 of the work of std's with all yields, and 0.9 to 1.1 with long ones omitted.)
#[cfg(not(loom))]
const LEFT_OUT: u32 = 64;

/// Yields the processor, unless one of the thread's latest yields was a long one. Returns whether it did.
///
/// A yield is long if the kernel's clock tick came during it: then it went to tasks that need the processor for
/// themselves, and not just to an owner that is about to release a lock. A sleeper would have been woken earlier.
#[cold]
pub fn yield_if_brief() -> bool {
    #[cfg(loom)]
    return false;
    #[cfg(not(loom))]
    {
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
}

/// Polls of a task that is about to meet its peer, before it yields the processor: some 20 ns each.
#[cfg(not(loom))]
const MEETING: u32 = 20;

/// Polls for a short time. Returns whether `has_come` returned true.
#[cfg(not(loom))]
pub fn poll_briefly(has_come: impl Fn() -> bool) -> bool {
    (0..MEETING).any(|_| {
        spin_hint();
        has_come()
    })
}
