//! Coprocs that will never be joined, and whose processes the kernel still keeps as zombies.
//!
//! There is one list per process, so that coprocs that outlive their runtime are reaped, too. Each spawn and each join
//! checks a few entries, and `reap_ended` checks all.
#![allow(unsafe_code)]

use super::record::{self, Ref};
use crate::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::mutex::Mutex;
use crate::sys::futex::{self, Sharing};
use crate::sys::process;
use crate::sys::process_identity::ProcessIdentity;
use crate::sys::process_mark::ProcessMark;
use crate::sys::thread;
use crate::time::Deadline;
use core::ptr;
use core::time::Duration;
use std::collections::VecDeque;

/// How long a joiner naps at a time that cannot become a task of the region.
const NAP: Duration = Duration::from_millis(10);

/// How long the end of a runtime waits for the processes that end at once. One may be stopped, or in a frozen control group.
const ENDING: Duration = Duration::from_secs(1);

/// How often to check a process whose end cannot be waited for, since no descriptor is free.
pub(super) const NO_DESCRIPTOR_CHECK: Duration = Duration::from_millis(1);

/// A process to reap.
pub(super) struct Unreaped {
    pub(super) pid: u32,
    pub(super) identity: ProcessIdentity,
    /// Freed when the process has been reaped; `None` if it was freed when the function had ended.
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
        identity: record.identity(),
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
            if is_due && entry.try_reap() {
                entry.close();
            } else {
                entries.push_back(entry);
            }
        }
    }
}

/// Checks all entries, and waits for the processes that end at once, for [`ENDING`] in all. Those that have not ended then are
/// killed if they have run no function; the others are reaped later.
pub(super) fn reap_all() {
    let Some(list) = reap_list() else { return };
    let entries: Vec<Unreaped> = list.entries.lock().drain(..).collect();
    let until = Deadline::after(ENDING);
    for entry in entries {
        let has_ended = || entry.ending && entry.reap_until(until);
        if entry.try_reap() || has_ended() || entry.kill_unused() {
            entry.close();
        } else {
            reap_later(entry);
        }
    }
}

impl Unreaped {
    /// Reaps it if it has ended; returns whether it is gone.
    fn try_reap(&self) -> bool {
        let reaped = match &self.record {
            Some(record) => record.reap(self.pid),
            // Its function has ended.
            None => self.identity.reap_clone(self.pid),
        };
        !matches!(reaped, Ok(None))
    }

    /// Reaps it if it ends before a deadline; returns whether it is gone.
    fn reap_until(&self, until: Deadline) -> bool {
        loop {
            if self.try_reap() {
                return true;
            }
            if until.has_passed() {
                return self.try_reap();
            }
            let waited = process::open_process(self.pid)
                .and_then(|process| process::wait_for_end(process, Some(until)));
            if waited.is_err() {
                thread::sleep_until(Deadline::after(NO_DESCRIPTOR_CHECK).min(until));
            }
        }
    }

    /// Kills a process that has not run its function, and never will; returns whether it is gone.
    fn kill_unused(&self) -> bool {
        let is_unused = |record: &Ref| matches!(record.state(), record::CLOSED | record::FAILED);
        let killed = self.ending
            && self.record.as_ref().is_some_and(is_unused)
            && process::kill_child(self.pid).is_ok();
        killed && self.reap_until(Deadline::after(ENDING))
    }

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
