//! What a waiter can know of the task that has the lock: whether it runs, and whether it still lives.
//!
//! | question | asked of | cost |
//! | --- | --- | --- |
//! | runs? | its thread's CPU clock, twice: one that has not moved does not run | 280 ns a look |
//! | lives? | the kernel, and `/proc` for what has taken its ID since | some µs, in a slow path |
//!
//! CPU clocks are known within a process only. Elsewhere [`Runs::Unknown`] bounds the polls. Another way
//! of knowing (the owner's own word for it) has its place in [`Watch::look`], and nothing outside changes.

/// Whether a task had a processor since the look before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    Yes,
    No,
    Unknown,
}

/// What was seen of an owner.
#[derive(Default)]
pub(super) struct Watch {
    tid: u32,
    time: u64,
}

impl Watch {
    /// Looks at the owner. The first look at one's clock says that it runs: a second one will tell.
    #[cfg(not(loom))]
    pub(super) fn look(&mut self, tid: u32) -> Runs {
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

    /// In a model nobody is waited for awake.
    #[cfg(loom)]
    pub(super) fn look(&mut self, tid: u32) -> Runs {
        *self = Self { tid, time: 0 };
        Runs::No
    }
}

/// Whether no task has this ID, as is the case soon after its owner has ended and as long as the ID is
/// not used again. Some 100 ns; cannot fail.
#[cfg(not(loom))]
pub(super) fn is_nobody(tid: u32) -> bool {
    crate::sys::running::is_nobody(tid)
}

/// Whether this process has no thread of this ID. Some 280 ns.
#[cfg(not(loom))]
pub(in crate::mutex) fn is_outside(tid: u32) -> bool {
    crate::sys::running::cpu_time(tid).is_none()
}

/// In a model all tasks are of one process.
#[cfg(loom)]
pub(in crate::mutex) fn is_outside(_: u32) -> bool {
    false
}

/// In a model the kernel finds all locks on its lists.
#[cfg(loom)]
pub(super) fn is_nobody(_: u32) -> bool {
    false
}

/// Whether the task whose ID a word had at the time `seen` (nanoseconds since boot) is dead. Without a
/// robust list nobody is told of a death; this is how one finds it. Needs no privilege; an ID of another
/// PID namespace gives a wrong answer, and an ID that was used again before `seen` the answer "no".
#[cfg(not(loom))]
pub(super) fn is_gone(tid: u32, seen: u64) -> bool {
    crate::sys::running::has_ended(tid, seen)
}
