//! Long waits, and waits for a task of lower priority.
//!
//! Priorities are read when a wait begins, if the waiter has a real-time priority or any task is known to have one, and
//! again when the wait has lasted for the limit: so a change of either task's priority meanwhile is seen. Reading a
//! priority from the kernel costs a system call, which short waits of ordinary tasks do not pay.
//!
//! The kernel's priorities decide which task runs. If those of two tasks are equal, the kernel does not know an order
//! that their region may have recorded for them (for tasks that are not mirrored, or that share the lowest real-time
//! priority); then the recorded priorities decide. A thread that is a task of no region counts with the priority that
//! it would get when it became one.

use super::cross_process;
use super::visible_tasks::TaskRef;
use crate::atomic::{Ordering, fence_after_update};
use crate::check::record::bounded::Text;
use crate::check::record::own::Own;
use crate::check::record::settings::{INVERSION, LONG_WAIT, limit};
use crate::check::record::wait::{Blocker, REAL_TIME, Rank, Wait, note_priority};
use crate::hook::record::pack;
use crate::hook::{Kind, Lock, Mode, Site, Traits};
use crate::region::{self, wait_record};
use crate::sys::clock;
use core::mem::take;

/// What is due in a wait that goes on, or that ends. The order of the fields is that of the reports.
pub(crate) struct Due {
    /// How long the wait has lasted, in nanoseconds.
    pub(crate) lasted: u64,
    /// The task of lower priority that has blocked the caller for the limit.
    pub(crate) inversion: Option<Blocker>,
    /// Other processes are to be searched for a cycle.
    pub(crate) searches_processes: bool,
    /// A reader is to stand behind waiting writers, and to search again.
    pub(crate) queues_behind_writers: bool,
    /// The wait has lasted for the limit.
    pub(crate) is_long: bool,
}

impl Wait {
    /// Begins now. `blocker` is one of the tasks that it waits for.
    pub(crate) fn begin(
        own: &Own,
        lock: Lock,
        mode: Mode,
        site: Site,
        blocker: Option<TaskRef<'_>>,
    ) -> Self {
        let blocker = blocker.and_then(|who| {
            let mut held = who.held(lock.address() as u64)?;
            held.lock = lock;
            Some(Blocker {
                process: who.process,
                thread: who.thread,
                name: match who.process.visible() {
                    Some(_) => Text::EMPTY,
                    None => Text::new(format_args!("{}", who.record.view().name())),
                },
                mine: Rank::UNKNOWN,
                theirs: Rank::UNKNOWN,
                held,
            })
        });
        let mut wait = Self {
            lock,
            mode,
            site,
            began: own.wait_began.get(),
            blocker,
            may_be_inverted: !lock.traits.contains(Traits::LENDS),
            may_be_long: true,
            searches_processes: lock.is_shared() && !region::contains(lock.address()),
            may_queue_behind_writers: mode == Mode::Shared
                && lock.kind == Kind::RwLock
                && !lock.traits.contains(Traits::WRITERS_FIRST),
        };
        let has_priority = || {
            region::own_recorded_priority().is_some_and(|priority| priority < wait_record::LOWEST)
        };
        if REAL_TIME.load(Ordering::Relaxed) || has_priority() {
            wait.compare_priorities(own);
        }
        wait
    }

    /// Reads both priorities, and notes them if they are in the wrong order. Returns whether they are, or were.
    fn compare_priorities(&mut self, own: &Own) -> bool {
        let Some(blocker) = &mut self.blocker else {
            return false;
        };
        let Some(mine) = Rank::of(own.thread.get()) else {
            return blocker.is_below();
        };
        // The kernel tells no priority of a task of another PID namespace.
        let is_visible = blocker.process.visible().is_some();
        let theirs = is_visible.then(|| Rank::of(blocker.thread)).flatten();
        let theirs = theirs.unwrap_or(Rank::UNKNOWN);
        own.publish(|record| record.priority.store(mine.kernel, Ordering::Relaxed));
        note_priority(mine.kernel);
        if mine > theirs {
            (blocker.mine, blocker.theirs) = (mine, theirs);
        }
        blocker.is_below()
    }

    /// The next time at which something may have to be reported, in nanoseconds on CLOCK_MONOTONIC; `None` if never.
    pub(crate) fn next(&self) -> Option<u64> {
        let is_below = || self.blocker.is_some_and(|blocker| blocker.is_below());
        let inversion = (self.may_be_inverted && is_below()).then(|| limit(&INVERSION));
        let long = self.may_be_long.then(|| limit(&LONG_WAIT));
        let searches_again = self.searches_processes || self.may_queue_behind_writers;
        let far = searches_again.then_some(cross_process::AFTER);
        let limits = [inversion, long, far].into_iter().flatten();
        let next = limits.filter(|limit| *limit > 0).min()?;
        Some(self.began.saturating_add(next))
    }

    /// What is due at its end.
    pub(crate) fn ends(&mut self, own: &Own) -> Due {
        self.searches_processes = false;
        self.may_queue_behind_writers = false;
        self.due(own)
    }

    /// What is due by now; it is due once.
    pub(crate) fn due(&mut self, own: &Own) -> Due {
        let lasted = clock::monotonic().saturating_sub(self.began);
        let has_lasted = |limit: u64| limit > 0 && lasted >= limit;
        let is_inverted =
            self.may_be_inverted && has_lasted(limit(&INVERSION)) && self.compare_priorities(own);
        let inversion = self.blocker.filter(|_| is_inverted);
        self.may_be_inverted &= inversion.is_none();
        let is_far = has_lasted(cross_process::AFTER);
        Due {
            lasted,
            inversion,
            searches_processes: is_far && take(&mut self.searches_processes),
            queues_behind_writers: is_far && take(&mut self.may_queue_behind_writers),
            is_long: has_lasted(limit(&LONG_WAIT)) && take(&mut self.may_be_long),
        }
    }
}

/// A reader has waited for so long, where readers come first, and cannot enter: if no writer is inside, the reason is
/// that a writer has starved. So waiting writers block it from now on, and other tasks must be able to see that; a task
/// that reads already waits for itself by this. The caller searches for a cycle next.
pub(crate) fn queue_behind_writers(own: &Own, lock: Lock, mode: Mode) {
    let lock = lock.with(lock.traits.union(Traits::WRITERS_FIRST));
    own.publish(|record| {
        // Relaxed: a task that misses the change has searched before this task does.
        let what = &record.wanted.what;
        what.fetch_or(pack(lock, mode), Ordering::Relaxed);
    });
    fence_after_update();
}
