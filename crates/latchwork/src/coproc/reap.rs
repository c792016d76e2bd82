//! Coprocs that will never be joined, and whose processes the kernel still keeps as zombies.
//!
//! There is one list per process, so that coprocs that outlive their runtime are reaped, too. Each spawn and each join
//! checks a few entries, and `reap_ended` checks all.
#![allow(unsafe_code)]

use super::record::Ref;
use crate::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::mutex::Mutex;
use crate::sys::futex::{self, Sharing};
use crate::sys::process;
use crate::sys::process_mark::ProcessMark;
use crate::time::Deadline;
use core::ptr;
use core::time::Duration;
use std::collections::VecDeque;

/// How long a joiner naps at a time that cannot become a task of the region.
const NAP: Duration = Duration::from_millis(10);

/// A process to reap.
pub(super) struct Unreaped {
    pub(super) pid: u32,
    /// Freed when the process has been reaped.
    pub(super) record: Option<Ref>,
    /// The task has ended, so the process ends at once.
    pub(super) ending: bool,
    /// There is nothing to reap before this time.
    pub(super) not_before: Option<Deadline>,
}

struct ReapList {
    made_by: ProcessMark,
    entries: Mutex<VecDeque<Unreaped>>,
}

static REAP_LIST: AtomicPtr<ReapList> = AtomicPtr::new(ptr::null_mut());

/// The list of this process. A list that was copied by a fork is leaked: its entries are the parent's, and its lock may
/// have been copied while held. None if there is no memory; but there is some in a process that has made a runtime.
fn reap_list() -> Option<&'static ReapList> {
    let made_by = ProcessMark::own().ok()?;
    loop {
        // Acquire: pairs with the Release of the exchange below.
        let current = REAP_LIST.load(Ordering::Acquire);
        // SAFETY: a list is made by `Box::into_raw` below, and a published one is never freed.
        if let Some(list) = unsafe { current.as_ref() }
            && list.made_by == made_by
        {
            return Some(list);
        }
        let new = Box::into_raw(Box::new(ReapList {
            made_by,
            entries: Mutex::new(VecDeque::new()),
        }));
        if REAP_LIST
            .compare_exchange(current, new, Ordering::Release, Ordering::Relaxed)
            .is_err()
        {
            // SAFETY: `new` was made just now, and was not published.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

/// Leaves a process to be reaped later. A `pid` of 0 means that there is none.
pub(super) fn reap_later(entry: Unreaped) {
    if entry.pid == 0 {
        return entry.close();
    }
    if let Some(list) = reap_list() {
        list.entries.lock().push_back(entry);
    }
}

/// Leaves a coproc that its creator has given up, and its record, to be reaped and freed.
pub(super) fn abandon(record: Ref, ending: bool) {
    reap_later(Unreaped {
        pid: record.pid.load(Ordering::Relaxed),
        record: Some(record),
        ending,
        not_before: None,
    });
}

/// Checks a few entries.
pub(super) fn reap_some() {
    check_entries(2);
}

/// Reaps the coprocs of this process that have ended and that will not be joined: those that are
/// [detached](super::Attributes::detached), and those whose handles were dropped, also before their end. Never waits.
///
/// Until then they are zombies. Each spawn and each join checks a few of them, so that only a program that does neither
/// for long needs this function.
pub fn reap_ended() {
    check_entries(usize::MAX);
}

fn check_entries(most: usize) {
    let Some(list) = reap_list() else { return };
    let mut entries = list.entries.lock();
    for _ in 0..most.min(entries.len()) {
        if let Some(entry) = entries.pop_front() {
            let is_due = entry.not_before.is_none_or(Deadline::has_passed);
            if is_due && try_reap(entry.pid, false) {
                entry.close();
            } else {
                entries.push_back(entry);
            }
        }
    }
}

/// Checks all entries, and waits for the processes that end at once.
pub(super) fn reap_all() {
    let Some(list) = reap_list() else { return };
    let entries: Vec<Unreaped> = list.entries.lock().drain(..).collect();
    for entry in entries {
        if try_reap(entry.pid, entry.ending) {
            entry.close();
        } else {
            reap_later(entry);
        }
    }
}

fn try_reap(pid: u32, block: bool) -> bool {
    !matches!(process::reap(pid, block), Ok(None))
}

impl Unreaped {
    fn close(self) {
        if let Some(record) = self.record {
            // SAFETY: the process is gone, and the coproc's handle was dropped, so nothing uses the record.
            unsafe { record.free() };
        }
    }
}

/// Sleeps on a task's life-word, for a thread that cannot become a task, and so cannot watch the region's.
pub(super) fn nap_beside((word, value): (&AtomicU32, u32), deadline: Option<Deadline>) {
    let nap = Deadline::after(NAP);
    let until = deadline.map_or(nap, |deadline| deadline.min(nap));
    if futex::wait(word, value, Sharing::Shared, Some(until)) != futex::Wait::TimedOut {
        // The wake-up may be the kernel's only one for the task's death: a task of the region must get it.
        futex::wake(word, 1, Sharing::Shared);
    }
}
