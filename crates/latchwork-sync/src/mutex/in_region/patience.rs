//! How a wait for a region lock sleeps, and how long it sleeps beside one owner before it asks whether the owner's thread exists.

use crate::mutex::WaitMode;
#[cfg(not(loom))]
use crate::mutex::wait_mode::is_over;
use crate::sys::futex::Wait;
#[cfg(not(loom))]
use crate::time::Deadline;
#[cfg(not(loom))]
use core::time::Duration;

/// How long a waiter sleeps beside one owner before it asks whether the owner's thread exists.
#[cfg(not(loom))]
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// How a task is going to sleep.
#[cfg_attr(
    loom,
    allow(dead_code, reason = "in a model each sleep ends when a task dies")
)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sleep {
    /// For a nap of a few milliseconds, which watches no task.
    Nap,
    /// For a longer one: the lock changes owners.
    NapAmongMany,
    /// Until a task of the region dies, and for at most [`PATIENCE`]: one owner has had the lock for a whole nap.
    Watch,
}

/// When a waiter asks whether the owner's thread exists, since the kernel does not mark each death: after each [`PATIENCE`] for
/// which it has slept, however often it was woken meanwhile, and before it gives up, because its time is over or because of a
/// signal.
#[derive(Default)]
pub(super) struct Patience {
    #[cfg(not(loom))]
    ends: Option<Deadline>,
}

impl Patience {
    /// Whether to ask now, after a sleep that `ended` beside the same owner.
    #[cfg(not(loom))]
    pub(super) fn is_over(&mut self, how: Sleep, ended: Wait, wait_mode: WaitMode) -> bool {
        let gives_up = match ended {
            Wait::TimedOut => is_over(wait_mode.deadline()),
            Wait::Interrupted => wait_mode.is_interruptible(),
            Wait::Again => false,
        };
        if gives_up {
            return true;
        }
        // A nap that a release has ended is not worth a look at the clock.
        if how != Sleep::Watch && ended == Wait::Again {
            return false;
        }
        let end = *self.ends.get_or_insert_with(|| Deadline::after(PATIENCE));
        let has_passed = end.has_passed();
        if has_passed {
            self.ends = Some(Deadline::after(PATIENCE));
        }
        has_passed
    }

    /// In a model each death is marked.
    #[cfg(loom)]
    pub(super) fn is_over(&mut self, _: Sleep, _: Wait, _: WaitMode) -> bool {
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Signals and deaths that end each sleep early do not keep a waiter from asking.
    #[test]
    fn patience_ends_after_a_second_of_short_sleeps() {
        let mut patience = Patience::default();
        let begin = std::time::Instant::now();
        let mut is_over = |how, ended| patience.is_over(how, ended, WaitMode::FOREVER);
        while !is_over(Sleep::Watch, Wait::Again) && !is_over(Sleep::Nap, Wait::Interrupted) {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(begin.elapsed() >= PATIENCE);
        let mut patience = Patience::default();
        let over = WaitMode::until(Some(Deadline::now()));
        assert!(patience.is_over(Sleep::Nap, Wait::TimedOut, over));
        let interruptible = WaitMode::interruptible(None);
        assert!(patience.is_over(Sleep::Nap, Wait::Interrupted, interruptible));
    }

    /// The next second begins when a question is due, and not with the sleep after it.
    #[test]
    fn a_waiter_asks_after_each_second() {
        let mut patience = Patience::default();
        let mut is_over = || patience.is_over(Sleep::Watch, Wait::TimedOut, WaitMode::FOREVER);
        // The first second begins.
        is_over();
        for _ in 0..2 {
            std::thread::sleep(PATIENCE);
            assert!(is_over());
        }
    }
}
