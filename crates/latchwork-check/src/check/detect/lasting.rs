//! Whether a deadlock lasts, and whether a wait for an event does: see [`is_unsignallable`].
//!
//! A deadlock lasts if no task can release what its members hold.
//!
//! A lock that checks its releaser can be released only by its owner, which waits. Any running task may release other
//! locks ([`Traits::ANYONE`]), though this breaks a rule. A deadlock over such locks certainly lasts only if no running
//! task is left: the locks lie in memory of this process alone, and each of its threads sleeps in a wait without a
//! deadline, for a lock that is held, or for the end of another thread. (Signal handlers are not considered.)
//!
//! *No deadlock that may end is reported as lasting:* the kernel knows how many threads there are, and that each of them
//! sleeps; the waits are read twice. A thread between the end of its wait and the publication of that end runs. A
//! thread that waits for the end of another thread sleeps only as long as that one exists.

use crate::atomic::{Ordering, fence};
use crate::check::detect::cycle::WaitGraph;
use crate::check::detect::visible_tasks::{TaskRef, VisibleTasks};
use crate::hook::{Kind, Lock, Traits};
use crate::region;
use crate::sys::{introspect, process, thread};

/// Whether a deadlock of tasks that hold these locks lasts.
pub(crate) fn lasts(visible: &VisibleTasks, locks: impl Iterator<Item = Lock>) -> bool {
    let is_open = |lock: &Lock| lock.traits.contains(Traits::ANYONE);
    let is_common =
        |lock: Lock| lock.is_shared() || introspect::is_shared_memory(lock.address() as u64);
    let mut open = locks.filter(is_open).peekable();
    open.peek().is_none() || (!open.any(is_common) && no_task_runs(visible))
}

/// See the head of this file.
fn no_task_runs(visible: &VisibleTasks) -> bool {
    let first = waits(visible);
    // Acquire: the first reading comes before the second.
    fence(Ordering::Acquire);
    first.is_some_and(|(count, _)| process::threads() == Some(count)) && waits(visible) == first
}

/// How many threads wait, and a number that changes with each of their waits; `None` if a thread does not wait, or
/// waits with a deadline.
fn waits(visible: &VisibleTasks) -> Option<(u32, u64)> {
    let mut all = visible.threads();
    all.try_fold((0, 0_u64), |(count, epochs), who| {
        let epoch = who.record.wanted.waits()?;
        is_stuck(visible, who).then(|| (count + 1, epochs.rotate_left(9) ^ u64::from(epoch)))
    })
}

fn is_stuck(visible: &VisibleTasks, who: TaskRef<'static>) -> bool {
    let view = who.record.view();
    let wants = view.wants.filter(|wants| !wants.timed);
    let Some(wants) = wants.filter(|_| view.also.is_none()) else {
        return false;
    };
    let waits_for_others = match wants.lock.kind {
        Kind::Join => true,
        kind if kind.has_owner() => {
            let waits_for_itself = who.held(wants.lock.address() as u64).is_some();
            waits_for_itself || visible.any_that_blocks(who, wants.lock, wants.mode, |_| true)
        }
        _ => false,
    };
    let is_me = who.thread == thread::thread_id();
    let state = || introspect::thread_state(thread::process_id(), who.thread);
    let sleeps = || matches!(state(), Some('S' | 'D'));
    waits_for_others && (is_me || wants.lock.kind == Kind::Spin || sleeps())
}

/// Whether a wait without a deadline is for an event that no other task can signal.
///
/// An object without an owner may be signalled by any task that can reach it, and usually the checker cannot know all
/// of them. It can in one case: a process of one thread and without children waits at a semaphore or a queue of an
/// anonymous region that it has created itself, and in which there is no other task. A signal handler must not use what
/// the interrupted code is using, and other processes have the region's file only if it was sent to them, before any of
/// them became a task.
///
/// Another thread may have signalled the object and exited before this check. If the result is `true`, the caller must
/// check the object again.
pub(crate) fn is_unsignallable(object: Lock) -> bool {
    matches!(object.kind, Kind::Semaphore | Kind::Queue)
        && region::has_only_own_task(object.address())
        && process::is_single_threaded_and_childless()
}
