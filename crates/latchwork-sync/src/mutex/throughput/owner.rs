//! What a waiter can know of the owner: whether it runs, and whether it still lives.
//!
//! | question | how it is answered | cost |
//! | --- | --- | --- |
//! | runs? | the owner's CPU clock is read twice: a thread whose clock has not advanced does not run | 280 ns each time |
//! | lives? | by the kernel, and by `/proc` in case another task has got its ID since | some µs, in a slow path |
//!
//! A thread's CPU clock can be read within its process only. For the threads of other processes the answer is
//! [`Runs::Unknown`], which bounds the polls. Another method (for instance a word that the owner itself writes) would
//! go into [`OwnerMonitor::check`], and no caller would change.

/// Whether a task has had a processor since the check before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    Yes,
    No,
    Unknown,
}

/// The owner, and its CPU clock, as of the latest check.
#[derive(Default)]
pub(super) struct OwnerMonitor {
    tid: u32,
    time: u64,
}

impl OwnerMonitor {
    /// Checks whether the owner `tid` runs. The first check of an owner answers "yes": only a second reading of its
    /// clock shows whether the clock advances.
    #[cfg(not(loom))]
    pub(super) fn check(&mut self, tid: u32) -> Runs {
        let Some(time) = crate::sys::running::cpu_time(tid) else {
            return Runs::Unknown;
        };
        let before = (self.tid, self.time);
        (self.tid, self.time) = (tid, time);
        if before == (tid, time) {
            Runs::No
        } else {
            Runs::Yes
        }
    }

    /// In a model waiters do not poll for an owner that runs.
    #[cfg(loom)]
    pub(super) fn check(&mut self, tid: u32) -> Runs {
        *self = Self { tid, time: 0 };
        Runs::No
    }
}

/// Whether no task has this ID. That is so from soon after the task has ended until the ID is used again. Some 100 ns;
/// cannot fail.
#[cfg(not(loom))]
pub(super) fn no_such_task(tid: u32) -> bool {
    crate::sys::running::no_such_task(tid)
}

/// Whether this process has no thread of this ID. Some 280 ns.
#[cfg(not(loom))]
pub(in crate::mutex) fn is_not_in_process(tid: u32) -> bool {
    crate::sys::running::cpu_time(tid).is_none()
}

/// In a model all tasks are of one process.
#[cfg(loom)]
pub(in crate::mutex) fn is_not_in_process(_: u32) -> bool {
    false
}

/// In a model the kernel finds every lock on its dead owner's list.
#[cfg(loom)]
pub(super) fn no_such_task(_: u32) -> bool {
    false
}

/// Whether the task whose ID a word had at the time `seen` (nanoseconds since boot) is dead. Without a robust list the
/// kernel reports no owner death, so this is the way to detect one. Needs no privilege. An ID of another PID namespace
/// gives a wrong answer, and an ID that was used again before `seen` gives the answer "no".
#[cfg(not(loom))]
pub(super) fn has_ended(tid: u32, seen: u64) -> bool {
    crate::sys::running::has_ended(tid, seen)
}
