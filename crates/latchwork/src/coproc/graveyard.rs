//! Coprocs that will never be joined, and whose processes the kernel still keeps as zombies.
//!
//! There is one list per process, so that coprocs that outlive their runtime are reaped, too. Each spawn and each join
//! checks a few entries, and `reap_ended` checks all.
#![allow(unsafe_code)]

use super::record::Ref;
use crate::atomic::{AtomicPtr, Ordering};
use crate::mutex::Mutex;
use crate::sys::process;
use crate::task::process_id;
use crate::time::Deadline;
use core::ptr;
use std::collections::VecDeque;

/// A process to reap.
pub(super) struct Grave {
    pub(super) pid: u32,
    /// Freed when the process has been reaped.
    pub(super) record: Option<Ref>,
    /// The task has ended, so the process ends at once.
    pub(super) ending: bool,
    /// There is nothing to reap before this time.
    pub(super) lingers: Option<Deadline>,
}

struct Yard {
    process: u32,
    graves: Mutex<VecDeque<Grave>>,
}

static YARD: AtomicPtr<Yard> = AtomicPtr::new(ptr::null_mut());

/// The yard of this process. A yard that was copied by a fork is leaked: its graves are the parent's, and its lock may
/// have been copied while held.
fn yard() -> &'static Yard {
    let process = process_id();
    loop {
        // Acquire: pairs with the Release of the exchange below.
        let current = YARD.load(Ordering::Acquire);
        // SAFETY: a yard is made by `Box::into_raw` below, and a published one is never freed.
        if let Some(yard) = unsafe { current.as_ref() }
            && yard.process == process
        {
            return yard;
        }
        let new = Box::into_raw(Box::new(Yard {
            process,
            graves: Mutex::new(VecDeque::new()),
        }));
        if YARD
            .compare_exchange(current, new, Ordering::Release, Ordering::Relaxed)
            .is_err()
        {
            // SAFETY: `new` was made just now, and was not published.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

/// Leaves a process to be reaped later. A `pid` of 0 means that there is none.
pub(super) fn bury(grave: Grave) {
    if grave.pid == 0 {
        return grave.close();
    }
    yard().graves.lock().push_back(grave);
}

/// Leaves a coproc that its creator has given up, and its record, to be reaped and freed.
pub(super) fn give_up(record: Ref, ending: bool) {
    bury(Grave {
        pid: record.pid.load(Ordering::Relaxed),
        record: Some(record),
        ending,
        lingers: None,
    });
}

/// Checks a few graves.
pub(super) fn tend() {
    look_at(2);
}

/// Reaps the coprocs of this process that have ended and that will not be joined: those that are
/// [detached](super::Attributes::detached), and those whose handles were dropped, also before their end. Never waits.
///
/// Until then they are zombies. Each spawn and each join checks a few of them, so that only a program that does neither
/// for long needs this function.
pub fn reap_ended() {
    look_at(usize::MAX);
}

fn look_at(most: usize) {
    let mut graves = yard().graves.lock();
    for _ in 0..most.min(graves.len()) {
        if let Some(grave) = graves.pop_front() {
            if grave.is_due() && gone(grave.pid, false) {
                grave.close();
            } else {
                graves.push_back(grave);
            }
        }
    }
}

/// Checks all graves, and waits for the processes that end at once.
pub(super) fn tend_all() {
    let graves: Vec<Grave> = yard().graves.lock().drain(..).collect();
    for grave in graves {
        if gone(grave.pid, grave.ending) {
            grave.close();
        } else {
            bury(grave);
        }
    }
}

fn gone(pid: u32, block: bool) -> bool {
    !matches!(process::reap(pid, block), Ok(None))
}

impl Grave {
    fn is_due(&self) -> bool {
        self.lingers.is_none_or(Deadline::has_passed)
    }

    fn close(self) {
        if let Some(record) = self.record {
            // SAFETY: the process is gone, and the coproc's handle was dropped, so nothing uses the record.
            unsafe { record.free() };
        }
    }
}
