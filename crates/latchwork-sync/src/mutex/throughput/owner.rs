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

#[cfg(not(loom))]
use crate::sys::running;

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
    /// clock shows whether the clock advances. (In a model waiters do not poll for an owner that runs.)
    #[cfg_attr(loom, expect(unused_variables))]
    pub(super) fn check(&mut self, tid: u32) -> Runs {
        #[cfg(loom)]
        return Runs::No;
        #[cfg(not(loom))]
        {
            let Some(time) = running::cpu_time(tid) else {
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
    }
}

/// Whether no task has this ID. That is so from soon after the task has ended until the ID is used again. Some 100 ns;
/// cannot fail. (In a model the kernel finds every lock on its dead owner's list.)
#[cfg_attr(loom, expect(unused_variables))]
pub(super) fn no_such_task(tid: u32) -> bool {
    #[cfg(loom)]
    return false;
    #[cfg(not(loom))]
    running::no_such_task(tid)
}

/// Whether this process has no thread of this ID. Some 280 ns. (In a model all tasks are of one process.)
#[cfg_attr(loom, expect(unused_variables))]
pub(in crate::mutex) fn is_not_in_process(tid: u32) -> bool {
    #[cfg(loom)]
    return false;
    #[cfg(not(loom))]
    running::cpu_time(tid).is_none()
}
