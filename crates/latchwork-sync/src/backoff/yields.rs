//! Yields: a waiter yields its processor to the owner, unless other tasks need the processor for themselves.

#[cfg(not(loom))]
use crate::atomic::spin_hint;
#[cfg(not(loom))]
use crate::sys::own_record::with_habits;

/// Number of yields that a thread skips after a long one. (4 tasks beside 4 programs that spin, 2 processors:
/// throughput and wait-wake locks did 0.6 to 0.8 of the work of std's with all yields, and 0.9 to 1.1 with these yields
/// skipped.)
#[cfg(not(loom))]
const SKIPPED_YIELDS: u32 = 64;

/// Yields the processor, unless one of the thread's latest yields was a long one. Returns whether it did.
///
/// A yield is long if the kernel's clock tick came during it. The processor then went to tasks that need it for
/// themselves, and not just to an owner that is about to release a lock. A sleep would have ended earlier.
#[cold]
pub fn yield_if_brief() -> bool {
    #[cfg(loom)]
    return false;
    #[cfg(not(loom))]
    {
        use crate::sys::clock::coarse;
        let skipped = with_habits(|mine| mine.yields_left_out.get());
        if skipped > 0 {
            with_habits(|mine| mine.yields_left_out.set(skipped - 1));
            return false;
        }
        let began = coarse();
        crate::sys::thread::yield_cpu();
        if coarse() != began {
            with_habits(|mine| mine.yields_left_out.set(SKIPPED_YIELDS));
        }
        true
    }
}

/// Polls of a task whose peer is expected soon, before the task yields the processor: some 20 ns each.
#[cfg(not(loom))]
const POLLS_BEFORE_YIELD: u32 = 20;

/// Polls for a short time. Returns whether `is_ready` returned true.
#[cfg(not(loom))]
pub fn poll_briefly(is_ready: impl Fn() -> bool) -> bool {
    (0..POLLS_BEFORE_YIELD).any(|_| {
        spin_hint();
        is_ready()
    })
}
