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

use super::circle;
use super::far;
use super::field::{Here, Who};
use super::found::{self, Blocker};
use super::own::Own;
use super::settings;
use crate::atomic::{AtomicBool, Ordering, fence_after_update};
use crate::hook::record::pack;
use crate::hook::{Kind, Lock, Mode, Site, Traits};
use crate::region::{self, wait_record};
use crate::sys::{clock, introspect as look};
use core::cmp::Reverse;

/// Whether some task of this process has, or had, a real-time priority.
static REAL_TIME: AtomicBool = AtomicBool::new(false);

/// The priority of a task, as far as known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// The kernel's real-time priority; 0 for none.
    pub(super) kernel: u32,
    /// Its region's, in which 1 is the highest.
    pub(super) recorded: Reverse<u32>,
}

impl Rank {
    /// Above all others.
    const UNKNOWN: Self = Self {
        kernel: u32::MAX,
        recorded: Reverse(0),
    };

    fn of(thread: u32) -> Option<Self> {
        let kernel = look::priority_of(thread)?;
        let recorded = region::recorded_priority(thread);
        Some(Self {
            kernel: kernel.into(),
            recorded: Reverse(recorded.unwrap_or_else(|| wait_record::recorded(kernel))),
        })
    }
}

/// A wait that goes on.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    lock: Lock,
    mode: Mode,
    site: Site,
    began: u64,
    blocker: Option<Blocker>,
    told_inversion: bool,
    told_long: bool,
    /// Whether other processes are still to be searched: see `far.rs`.
    looks_far: bool,
    /// Whether it waits to read where readers come first: writers then block it only after a while.
    may_stand_behind_writers: bool,
}

/// Records that a task with this priority exists.
pub(super) fn saw_priority(priority: u32) {
    // Relaxed, here and below: a hint; a task that waits for long reads the priorities anyway.
    if priority > 0 && !REAL_TIME.load(Ordering::Relaxed) {
        REAL_TIME.store(true, Ordering::Relaxed);
    }
}

impl Wait {
    /// Begins now. `blocker` is one of the tasks that it waits for.
    pub(super) fn begin(
        own: &Own,
        lock: Lock,
        mode: Mode,
        site: Site,
        blocker: Option<Who<'_>>,
    ) -> Self {
        let blocker = blocker.and_then(|who| {
            let held = who.held(lock.address() as u64)?;
            Some(Blocker {
                process: who.process,
                thread: who.thread,
                mine: Rank::UNKNOWN,
                theirs: Rank::UNKNOWN,
                lock,
                mode: held.mode,
                site: held.site,
                since: held.since,
            })
        });
        let mut wait = Self {
            lock,
            mode,
            site,
            began: own.wait_began.get(),
            blocker,
            told_inversion: false,
            told_long: false,
            looks_far: lock.is_shared() && !region::contains(lock.address()),
            may_stand_behind_writers: mode == Mode::Shared
                && lock.kind == Kind::RwLock
                && !lock.traits.contains(Traits::WRITERS_FIRST),
        };
        let has_priority = || {
            region::own_recorded_priority().is_some_and(|priority| priority < wait_record::LOWEST)
        };
        if REAL_TIME.load(Ordering::Relaxed) || has_priority() {
            wait.look_at_priorities(own);
        }
        wait
    }

    /// Reads both priorities, and notes them if they are in the wrong order. Returns whether they are, or were.
    fn look_at_priorities(&mut self, own: &Own) -> bool {
        let Some(blocker) = &mut self.blocker else {
            return false;
        };
        let Some(mine) = Rank::of(own.thread.get()) else {
            return blocker.is_below();
        };
        let theirs = Rank::of(blocker.thread).unwrap_or(Rank::UNKNOWN);
        own.publish(|record| record.priority.store(mine.kernel, Ordering::Relaxed));
        saw_priority(mine.kernel);
        if mine > theirs {
            (blocker.mine, blocker.theirs) = (mine, theirs);
        }
        blocker.is_below()
    }

    /// The next time at which something may have to be reported, in nanoseconds on CLOCK_MONOTONIC; `None` if never.
    pub(super) fn next(&self) -> Option<u64> {
        let lends = self.lock.traits.contains(Traits::LENDS);
        let inverted = !self.told_inversion
            && !lends
            && self.blocker.is_some_and(|blocker| blocker.is_below());
        let inversion = inverted.then(settings::inversion);
        let long = (!self.told_long).then(settings::long_wait);
        let looks_again = self.looks_far || self.may_stand_behind_writers;
        let far = looks_again.then_some(far::AFTER);
        let limits = [inversion, long, far].into_iter().flatten();
        let next = limits.filter(|limit| *limit > 0).min()?;
        Some(self.began.saturating_add(next))
    }

    /// Reports what is due at its end. Returns how long it has lasted, in nanoseconds.
    pub(super) fn ends(&mut self, own: &Own) -> u64 {
        self.looks_far = false;
        self.may_stand_behind_writers = false;
        self.look(own)
    }

    /// Reports what is due by now. Returns how long it has lasted so far, in nanoseconds.
    pub(super) fn look(&mut self, own: &Own) -> u64 {
        let Self {
            lock, mode, site, ..
        } = *self;
        let lasted = clock::monotonic().saturating_sub(self.began);
        let lends = lock.traits.contains(Traits::LENDS);
        let limit = settings::inversion();
        if !self.told_inversion
            && !lends
            && limit > 0
            && lasted >= limit
            && self.look_at_priorities(own)
            && let Some(blocker) = self.blocker
        {
            self.told_inversion = true;
            found::inversion(own, lock, mode, site, &blocker, lasted);
        }
        if self.looks_far && lasted >= far::AFTER {
            self.looks_far = false;
            far::look(own);
        }
        if self.may_stand_behind_writers && lasted >= far::AFTER {
            self.may_stand_behind_writers = false;
            stand_behind_writers(own, lock, mode);
        }
        let limit = settings::long_wait();
        if !self.told_long && limit > 0 && lasted >= limit {
            self.told_long = true;
            found::long_wait(own, lock, mode, site, self.blocker.as_ref(), lasted);
        }
        lasted
    }
}

/// A reader has waited for so long, where readers come first, and cannot enter: if no writer is inside, the reason is
/// that a writer has starved. So waiting writers block it from now on, and other tasks must be able to see that; a task
/// that reads already waits for itself by this.
fn stand_behind_writers(own: &Own, lock: Lock, mode: Mode) {
    let lock = lock.with(lock.traits.union(Traits::WRITERS_FIRST));
    own.publish(|record| {
        // Relaxed: a task that misses the change has searched before this task does.
        let what = &record.wanted.what;
        what.fetch_or(pack(lock, mode), Ordering::Relaxed);
    });
    fence_after_update();
    let Some(here) = Here::new(own) else { return };
    if let Some(me) = here.me(own)
        && let Some(circle) = circle::look(&&here, me).circle
    {
        found::deadlock(&here, &circle);
    }
}
