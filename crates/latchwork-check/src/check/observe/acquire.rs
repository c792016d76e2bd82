//! The calling task requests, waits for and acquires a lock: the slow path, which records everything in general terms
//! and checks all rules. The fast path is in `fast_path.rs`.
//!
//! A request publishes the wait and then searches for a wait-for cycle, so of several tasks that complete a cycle at
//! the same time at least one finds it (`detect/cycle.rs`). The lock order is noted at the request, since a task that
//! waits has requested the lock, whether it gets it or not.

use super::ended_threads;
use super::lookup::{join_region, know};
use crate::atomic::Ordering;
use crate::check::detect::visible_tasks::VisibleTasks;
use crate::check::detect::wait::{Due, queue_behind_writers};
use crate::check::detect::{cross_process, cycle, order};
use crate::check::record::holder::Holder;
use crate::check::record::own::{HeldEntry, Own};
use crate::check::record::rule::Rule;
use crate::check::record::totals;
use crate::check::record::wait::Wait;
use crate::check::report::findings;
use crate::hook::record::{TIMED, TRIED, pack};
use crate::hook::{How, Lock, Mode, Site, Traits, Verdict};

pub(crate) fn wants(own: &Own, lock: Lock, mode: Mode, timed: bool, site: Site) -> Verdict {
    let mut verdict = Verdict::Go;
    own.on_own_stack(|| verdict = publish(own, lock, mode, timed, site));
    verdict
}

/// Publishes the wait, and searches for a cycle.
fn publish(own: &Own, lock: Lock, mode: Mode, timed: bool, site: Site) -> Verdict {
    join_region(lock);
    ended_threads::is_wanted(lock);
    let entry = know(own, lock, site);
    let what = pack(lock, mode) | if timed { TIMED } else { 0 };
    own.begin_wait(lock, what, site);
    if lock.kind.has_owner()
        && !lock.traits.contains(Traits::RECURSIVE)
        && let Some((place, mine)) = own.find(lock.address())
        && (mode == Mode::Exclusive || mine.lock().1 == Mode::Exclusive)
        && !was_released_by_another(own, lock, place, &mine)
    {
        findings::recursion(own, lock, mode, timed, &mine, site);
        return verdict(timed);
    }
    let Some(visible) = VisibleTasks::new(own).map(|visible| visible.with_wanted(lock)) else {
        return Verdict::Go;
    };
    let Some(me) = visible.me(own) else {
        return Verdict::Go;
    };
    let look = cycle::find_cycle(&visible, me);
    if let Some(other) = look.blocker {
        let name = u64::from(other.process.id()) << 32 | u64::from(other.thread);
        own.publish(|record| record.wanted.waits_for.store(name, Ordering::Relaxed));
    }
    own.wait
        .set(Some(Wait::begin(own, lock, mode, site, look.blocker)));
    let wrong_order = order::note(own, lock, entry, mode, How::Locked, site);
    match look.cycle {
        Some(cycle) => {
            findings::deadlock(&visible, &cycle);
            verdict(cycle.ends())
        }
        None => {
            // A task that completes the cycle at this moment reports it itself, as a deadlock.
            if let Some(cycle) = wrong_order
                && cycle::find_cycle(&visible, me).cycle.is_none()
            {
                findings::wrong_order(own, &cycle);
            }
            Verdict::Go
        }
    }
}

/// Whether another task has released what the calling task held. If so, the task's record does not say any more that it holds
/// the lock.
#[cold]
fn was_released_by_another(own: &Own, lock: Lock, place: usize, mine: &HeldEntry) -> bool {
    let is_released = lock.traits.contains(Traits::ANYONE)
        && mine.lock().1 == Mode::Exclusive
        && mine
            .entry
            .is_some_and(|entry| !Holder::of(lock, entry).is(own));
    if is_released {
        own.pop(place);
    }
    is_released
}

/// What to do about a wait that completes a cycle, which may end at a deadline.
const fn verdict(ends: bool) -> Verdict {
    if ends { Verdict::Go } else { Verdict::Deadlock }
}

/// The wait of the calling task goes on, and has lasted until the time that [`Wait::next`] named.
pub(crate) fn still_waits(own: &Own) {
    if let Some(mut wait) = own.wait.get() {
        let due = wait.due(own);
        report(own, &wait, due);
        own.wait.set(Some(wait));
    }
}

/// Reports what is due in a wait.
fn report(own: &Own, wait: &Wait, due: Due) {
    let searches = due.searches_processes || due.queues_behind_writers;
    if searches || due.is_long || due.inversion.is_some() {
        own.on_own_stack(|| report_due(own, wait, due));
    }
}

fn report_due(own: &Own, wait: &Wait, due: Due) {
    if let Some(blocker) = due.inversion {
        findings::inversion(own, wait, &blocker, due.lasted);
    }
    if due.searches_processes {
        cross_process::search(own, findings::deadlock_across_processes);
    }
    if due.queues_behind_writers {
        queue_behind_writers(own, wait.lock, wait.mode);
        search_again(own);
    }
    if due.is_long {
        findings::long_wait(own, wait, due.lasted);
    }
}

/// Searches for a cycle again, since the wait of the calling task has changed.
fn search_again(own: &Own) {
    if let Some(visible) = VisibleTasks::new(own)
        && let Some(me) = visible.me(own)
        && let Some(cycle) = cycle::find_cycle(&visible, me).cycle
    {
        findings::deadlock(&visible, &cycle);
    }
}

/// The calling task has acquired a lock. This is the slow path, which covers every case.
pub(crate) fn taken(own: &Own, lock: Lock, mode: Mode, how: How, site: Site) {
    if own.wanted.get() == lock.address() {
        end_wait(own);
    } else {
        join_region(lock);
    }
    let entry = know(own, lock, site);
    let again = lock.traits.contains(Traits::RECURSIVE) || mode == Mode::Shared;
    if again && let Some((place, _)) = own.find(lock.address()) {
        return own.change(place, |mine| mine.depth += 1);
    }
    if let Some(cycle) = order::note(own, lock, entry, mode, how, site) {
        findings::wrong_order(own, &cycle);
    }
    let node = entry.map_or(0, |entry| entry.node.load(Ordering::Relaxed));
    let mut mine = HeldEntry::new(lock, mode, site, node, entry);
    if how == How::Tried {
        mine.what |= TRIED;
    }
    own.push(mine);
    if let Some(entry) = entry
        && mode == Mode::Exclusive
    {
        let holder = Holder::of(lock, entry);
        let is_first = holder.allows(own);
        holder.set(own);
        if !is_first {
            two_holders(own, lock, site);
        }
    }
}

/// The holder that the lock names has not released it, or has ended.
#[cold]
fn two_holders(own: &Own, lock: Lock, site: Site) {
    let other = VisibleTasks::holder(own, lock);
    // A robust lock itself reports the death of its owner to the next one.
    if other.is_some() && !lock.traits.contains(Traits::ROBUST) {
        let what = format_args!("acquired a lock that another task holds:");
        findings::misuse(own, Rule::OneHolder, lock, site, other, what);
    }
}

/// The wait of the calling task is over, with or without the lock.
pub(crate) fn end_wait(own: &Own) {
    if let Some(mut wait) = own.wait.take() {
        let due = wait.ends(own);
        let lasted = due.lasted;
        report(own, &wait, due);
        totals::waited_for(lasted);
    }
    own.end_wait();
}
