//! The crowd: waiters that are woken directly, one or all of them. It serves shared condition variables, and
//! waiters of a private one with another mutex than the gathering's. The argument is in [the parent](super).

use super::Waited;
use crate::atomic::{AtomicU32, Ordering, const_unless_loom, unless_fault};
use crate::sleep::DeathWatch;
use crate::sys::futex::{self, Sharing, Wait};
use crate::task::Me;
use crate::time::Deadline;

#[repr(C)]
pub(super) struct Crowd {
    ticket: AtomicU32,
    waiters: AtomicU32,
}

impl Crowd {
    const_unless_loom! {
        pub(super) fn new() -> Self {
            Self { ticket: AtomicU32::new(0), waiters: AtomicU32::new(0) }
        }
    }

    pub(super) fn waiters(&self) -> u32 {
        // Relaxed: the mutex orders it; see the parent.
        self.waiters.load(Ordering::Relaxed)
    }

    #[cold]
    pub(super) fn wake(&self, count: u32, sharing: Sharing) {
        // Relaxed: the kernel orders its comparison with the wake-up.
        self.ticket
            .fetch_add(unless_fault!(CondvarTicketStays, 1, 0), Ordering::Relaxed);
        futex::wake(&raw const self.ticket, count, sharing);
    }

    /// Counts the caller in. The caller holds the mutex.
    pub(super) fn enter(&self, sharing: Sharing) -> CrowdWaiter<'_> {
        let watch = DeathWatch::begin(&self.ticket, sharing);
        self.waiters.fetch_add(1, Ordering::Relaxed);
        CrowdWaiter {
            crowd: self,
            watch,
            ticket: self.ticket.load(Ordering::Relaxed),
            task: stamp(),
        }
    }
}

/// The calling task's stamp, or 0 if the thread cannot have a task record.
fn stamp() -> u32 {
    Me::get().map_or(0, Me::stamp)
}

/// A counted waiter, until this is dropped.
pub(super) struct CrowdWaiter<'a> {
    crowd: &'a Crowd,
    watch: DeathWatch<'a>,
    ticket: u32,
    task: u32,
}

impl CrowdWaiter<'_> {
    pub(super) fn sleep(self, deadline: Option<Deadline>) -> Waited {
        let compared = unless_fault!(
            CondvarTicketReadLate,
            self.ticket,
            self.crowd.ticket.load(Ordering::Relaxed)
        );
        let ended = self.watch.sleep(compared, deadline);
        Waited::unless(ended == Wait::TimedOut)
    }
}

/// The system call of a sleep while the word holds `expected`, for a caller that makes it itself.
#[allow(missing_docs)]
#[cfg(all(feature = "foreign", not(loom)))]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub word: *const AtomicU32,
    /// `FUTEX_WAIT_BITSET` with all bits set, or `FUTEX_WAIT_REQUEUE_PI`.
    pub operation: i32,
    pub expected: u32,
    /// The word that the sleeper may be requeued to.
    pub target: *const AtomicU32,
    pub deadline: Option<Deadline>,
}

/// The sleep in steps, as [`GatheringWaiter`](super::gathering::GatheringWaiter) has it.
#[cfg(all(feature = "foreign", not(loom)))]
impl CrowdWaiter<'_> {
    pub(super) fn call(&self, deadline: Option<Deadline>, sharing: Sharing) -> Call {
        Call {
            word: &raw const self.crowd.ticket,
            operation: libc::FUTEX_WAIT_BITSET
                | match sharing {
                    Sharing::Private => libc::FUTEX_PRIVATE_FLAG,
                    Sharing::Shared => 0,
                },
            expected: self.ticket,
            target: core::ptr::null(),
            deadline,
        }
    }

    /// The watch, if the word lies in a region, whose other tasks are watched, too.
    pub(super) fn watch(&self) -> Option<(&DeathWatch<'_>, u32)> {
        self.watch
            .is_of_region()
            .then_some((&self.watch, self.ticket))
    }

    pub(super) fn is_notified(&self) -> bool {
        // Relaxed: the kernel read the ticket before it woke this task.
        self.crowd.ticket.load(Ordering::Relaxed) != self.ticket
    }
}

impl Drop for CrowdWaiter<'_> {
    fn drop(&mut self) {
        // A different task is the child of a signal handler that forked: the count belongs to its parent.
        if self.task == stamp() {
            self.crowd.waiters.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
