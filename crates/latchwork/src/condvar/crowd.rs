//! Waiters who are woken, one or all of them: for condition variables that processes share, and for who
//! comes with another mutex than the others. The argument stands in [the parent](super).

use super::Waited;
use crate::atomic::{AtomicU32, Ordering, const_unless_loom, unless_fault};
use crate::sleep::Watch;
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
        // Relaxed: ordered by the mutex, see the parent.
        self.waiters.load(Ordering::Relaxed)
    }

    #[cold]
    pub(super) fn wake(&self, count: u32, sharing: Sharing) {
        // Relaxed: the kernel orders its comparison with the wake.
        self.ticket
            .fetch_add(unless_fault!(CondvarTicketStays, 1, 0), Ordering::Relaxed);
        futex::wake(&raw const self.ticket, count, sharing);
    }

    /// Counts the caller in. Under the mutex.
    pub(super) fn enter(&self, sharing: Sharing) -> Stay<'_> {
        let watch = Watch::begin(&self.ticket, sharing);
        self.waiters.fetch_add(1, Ordering::Relaxed);
        Stay {
            crowd: self,
            watch,
            ticket: self.ticket.load(Ordering::Relaxed),
            task: task_id(),
        }
    }
}

/// 0 if it cannot be kept.
fn task_id() -> u32 {
    Me::get().map_or(0, Me::tid)
}

/// A waiter that is counted, until this is dropped.
pub(super) struct Stay<'a> {
    crowd: &'a Crowd,
    watch: Watch<'a>,
    ticket: u32,
    task: u32,
}

impl Stay<'_> {
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

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        // Another task: the child of a signal handler that forked. The count is its parent's.
        if self.task == task_id() {
            self.crowd.waiters.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
