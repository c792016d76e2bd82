//! What a waiter can know of the owner: whether it runs, and whether it still lives.
//!
//! | question | how it is answered | cost |
//! | --- | --- | --- |
//! | runs? | the owner's CPU clock is read twice: a thread whose clock has not advanced does not run | 280 ns each time |
//! | lives? | by the kernel, and by `/proc` in case another task has got its ID since | some µs, in a slow path |
//!
//! A thread's CPU clock can be read within its process only. Another method for threads of other processes (for
//! instance a word that the owner itself writes) would go into [`OwnerMonitor::check`], and no caller would change.

#[cfg(not(loom))]
use crate::sys::running;

/// Checks of an owner of which it is unknown whether it runs, before the top waiter sleeps: as many polls as a newcomer's.
const CHECKS_IF_UNKNOWN: u32 = 2;

/// The owner and its CPU clock, as of the latest check, and how many checks could not read the clock.
#[derive(Default)]
pub(super) struct OwnerMonitor {
    seen: (u32, u64),
    unknown: u32,
}

impl OwnerMonitor {
    /// Whether to go on polling: the owner `tid` has had a processor since the check before, or that is unknown. The first
    /// check of an owner answers "yes": only a second reading of its clock shows whether the clock advances. (In a model
    /// waiters do not poll for an owner that runs.)
    #[cfg_attr(loom, expect(unused_variables))]
    pub(super) fn check(&mut self, tid: u32) -> bool {
        #[cfg(loom)]
        return false;
        #[cfg(not(loom))]
        if let Some(time) = running::cpu_time(tid) {
            core::mem::replace(&mut self.seen, (tid, time)) != (tid, time)
        } else {
            self.unknown += 1;
            self.unknown < CHECKS_IF_UNKNOWN
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
