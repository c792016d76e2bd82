//! The construction of findings, one function for each kind.

use crate::atomic::{Ordering, fence};
use crate::check::detect::cycle::{Link, WaitCycle};
use crate::check::detect::lasting::lasts;
use crate::check::detect::order;
use crate::check::detect::visible_tasks::{Member, TaskRef, VisibleTasks};
use crate::check::record::bounded::Text;
use crate::check::record::order_graph::graph::End;
use crate::check::record::own::{HeldEntry, Own};
use crate::check::record::process::ProcessId;
use crate::check::record::rule::Rule;
use crate::check::record::wait::{Blocker, Wait};
use crate::check::report::finding::{Confidence, Finding, Identity, TASKS, TaskText, Use};
use crate::check::report::sink::report;
use crate::check::report::words;
use crate::hook::record::{load_name, name_of};
use crate::hook::{Held, Lock, Mode, RecordedSite, Site, Traits};
use core::fmt::{self, Write};

/// What a task did to an object: the words before the object's name, and those after it,
/// with the space or the comma before them.
#[derive(Clone, Copy)]
pub(crate) struct Deed<'a> {
    before: fmt::Arguments<'a>,
    after: Option<fmt::Arguments<'a>>,
}

impl<'a> Deed<'a> {
    pub(crate) const fn around(before: fmt::Arguments<'a>, after: fmt::Arguments<'a>) -> Self {
        Self {
            before,
            after: Some(after),
        }
    }
}

impl<'a> From<fmt::Arguments<'a>> for Deed<'a> {
    fn from(before: fmt::Arguments<'a>) -> Self {
        Self {
            before,
            after: None,
        }
    }
}

/// A task's priority, for display.
struct Priority<'a>(&'a TaskText);

impl fmt::Display for Priority<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.recorded {
            0 => write!(to, "priority {}", self.0.priority),
            recorded => write!(to, "priority {recorded}"),
        }
    }
}

/// A lock that the calling task holds, as a use.
fn use_of_mine(own: &Own, mine: &HeldEntry) -> Use {
    let (lock, mode) = mine.lock();
    let process = ProcessId::here(own.identity().0);
    words::use_of(process, lock, mode, mine.site, mine.since)
}

/// The calling task, with a lock that it requests.
fn me_at(own: &Own, lock: Lock, mode: Mode, site: Site) -> TaskText {
    let me = words::me(own);
    TaskText {
        wants: Some(words::use_of(me.process_id(), lock, mode, site, 0)),
        ..me
    }
}

/// The calling task, with a lock that it uses in another way, and may hold.
fn me_using(own: &Own, lock: Lock, site: Site) -> TaskText {
    let me = words::me(own);
    let mine = own.find(lock.address());
    TaskText {
        uses: Some(words::use_of(
            me.process_id(),
            lock,
            Mode::Exclusive,
            site,
            0,
        )),
        holds: mine.map(|(_, mine)| use_of_mine(own, &mine)),
        ..me
    }
}

/// Another task, with a lock that it holds.
fn holder(who: TaskRef<'_>, lock: Lock) -> TaskText {
    let held = who.held(lock.address() as u64);
    TaskText {
        holds: held.map(|held| words::use_of_held(who.process, &held)),
        does: words::doing(who.process, who.thread),
        ..words::task(who)
    }
}

/// The calling task broke a rule of use; `other` holds the lock, if any task does.
pub(crate) fn misuse<'a>(
    own: &Own,
    rule: Rule,
    lock: Lock,
    site: Site,
    other: Option<TaskRef<'_>>,
    what: impl Into<Deed<'a>>,
) {
    own.broken.set(lock.address());
    let what = what.into();
    report(rule, Confidence::Seen, |finding| {
        let me = me_using(own, lock, site);
        summarise(finding, &me, what);
        if matches!(rule, Rule::OwnerUnlocks | Rule::NoDoubleUnlock) {
            finding.released = words::released(lock);
        }
        finding.tasks.push(me);
        if let Some(other) = other {
            finding.tasks.push(holder(other, lock));
        }
    });
}

/// A call of the calling task failed because of how it was made.
pub(crate) fn failed_call(own: &Own, lock: Lock, call: &str, error: &str, site: Site) {
    report(Rule::NoFailedCall, Confidence::Seen, |finding| {
        let me = me_using(own, lock, site);
        let (before, after) = (
            format_args!("called {call} on"),
            format_args!(", and got {error}"),
        );
        summarise(finding, &me, Deed::around(before, after));
        finding.tasks.push(me);
    });
}

/// The calling task releases a lock that it has held for too long.
pub(crate) fn long_hold(own: &Own, mine: &HeldEntry, site: Site, nanoseconds: u64) {
    report(Rule::NoLongHold, Confidence::Seen, |finding| {
        let (lock, mode) = mine.lock();
        let mut me = me_at(own, lock, mode, site);
        me.uses = me.wants.take();
        let mut held = use_of_mine(own, mine);
        held.nanoseconds = nanoseconds;
        me.holds = Some(held);
        let milliseconds = nanoseconds / 1_000_000;
        let after = format_args!(" after a hold of {milliseconds} ms");
        summarise(finding, &me, Deed::around(format_args!("releases"), after));
        finding.tasks.push(me);
    });
}

/// A task, or the process, has ended with a lock held that was taken at `taken`; `at` is the place where it ended, if
/// known.
pub(crate) fn ends_holding(
    mut who: TaskText,
    lock: Lock,
    mode: Mode,
    taken: RecordedSite,
    at: Site,
    what: Deed<'_>,
) {
    report(Rule::NoExitHolding, Confidence::Seen, |finding| {
        who.holds = Some(words::use_of(who.process_id(), lock, mode, taken, 0));
        who.wants = None;
        summarise(finding, &who, what);
        if at != Site::UNKNOWN {
            let place = words::place(who.process_id(), at);
            finding.note = Text::new(format_args!("place where the task ends: {place}"));
        }
        finding.tasks.push(who);
    });
}

fn summarise<'a>(finding: &mut Finding, me: &TaskText, what: impl Into<Deed<'a>>) {
    let Deed { before, after } = what.into();
    let _ = write!(finding.summary, "{} {before}", Identity(me));
    let of = me.wants.as_ref().or(me.uses.as_ref());
    if let Some(Use { lock, at, .. }) = of.or(me.holds.as_ref()) {
        let (kind, name) = (lock.kind.name(), &lock.name);
        let _ = write!(finding.summary, " {kind} {name} ({at})");
        if let Some(after) = after {
            let _ = write!(finding.summary, "{after}");
        }
    }
}

/// The calling task wants a lock that it holds.
pub(crate) fn recursion(
    own: &Own,
    lock: Lock,
    mode: Mode,
    timed: bool,
    mine: &HeldEntry,
    site: Site,
) {
    own.broken.set(lock.address());
    let holds =
        || VisibleTasks::new(own).is_some_and(|visible| lasts(&visible, core::iter::once(lock)));
    report(Rule::NoRecursion, confidence_in(timed, holds), |finding| {
        let mut me = me_at(own, lock, mode, site);
        me.holds = Some(use_of_mine(own, mine));
        let (before, after) = match (mine.lock().1, mode) {
            (Mode::Shared, Mode::Exclusive) => {
                ("holds", " for reading, and requests it for writing")
            }
            _ => ("requests", ", which it holds already"),
        };
        let (before, after) = (format_args!("{before}"), format_args!("{after}"));
        summarise(finding, &me, Deed::around(before, after));
        let held = own.locks().count();
        let end = if timed {
            ". Its wait ends at a deadline"
        } else {
            ""
        };
        finding.note = Text::new(format_args!(
            "the task waits for itself, and holds {held} lock(s) in all{end}"
        ));
        finding.tasks.push(me);
        add_others_of_mine(own, lock, finding);
    });
}

/// The calling task waits for an event that only it could signal.
pub(crate) fn unsignallable_wait(own: &Own, object: Lock, site: Site) {
    report(Rule::NoLoneWait, Confidence::Follows, |finding| {
        let me = me_at(own, object, Mode::Exclusive, site);
        let after = format_args!(", although no other task exists");
        summarise(finding, &me, Deed::around(format_args!("waits for"), after));
        finding.note = Text::new(format_args!(
            "there is no other thread, child process or task of the region that could end this wait"
        ));
        finding.tasks.push(me);
        add_others_of_mine(own, object, finding);
    });
}

/// Adds the other locks that the calling task holds, as far as there is room.
fn add_others_of_mine(own: &Own, but: Lock, finding: &mut Finding) {
    let others = own.locks().filter(|mine| mine.address != but.address());
    for (index, mine) in others.enumerate() {
        let of = use_of_mine(own, &mine);
        let before = if index > 0 { "," } else { ". It also holds" };
        let _ = write!(finding.note, "{before} {} ({})", of.lock.name, of.at);
    }
}

/// The confidence in a cycle of waits. `ends`: a wait ends at a deadline.
fn confidence_in(ends: bool, lasts: impl FnOnce() -> bool) -> Confidence {
    if ends {
        Confidence::Follows
    } else if lasts() {
        Confidence::Seen
    } else {
        Confidence::Assumed
    }
}

/// Tasks wait for each other.
///
/// Nothing is reported if one of them has moved on since the cycle was found: its call was refused and has reported the
/// cycle, or its deadline has passed. All data in the report were read while they all waited.
pub(crate) fn deadlock(field: &VisibleTasks, cycle: &WaitCycle<TaskRef<'static>>) {
    let mut members = [None; TASKS];
    let mut previous = cycle.links().last().map(|link| link.task.record.view());
    for (member, Link { task: who, .. }) in members.iter_mut().zip(cycle.links()) {
        let view = who.record.view();
        let wants = view.wants;
        let needed = previous.replace(view).and_then(|before| before.needs());
        let holds = needed.and_then(|needed| who.held(needed));
        *member = Some(Member { who, wants, holds });
    }
    fence(Ordering::Acquire);
    if cycle.all_wait(field) {
        let members = members.iter().flatten().copied();
        let locks = members.clone().filter_map(|member| member.holds);
        let is_open = |held: Held| held.lock.traits.contains(Traits::ANYONE);
        // Threads of another process are not looked at: one of them may release such a lock.
        let may_be_released = members
            .clone()
            .any(|member| !field.is_local(member.who) && member.holds.is_some_and(is_open));
        let lasts = || !may_be_released && lasts(field, locks.map(|held| held.lock));
        report_cycle(members, cycle.ends(), confidence_in(cycle.ends(), lasts));
    }
}

/// The same for tasks of several processes, any of which may release locks that any task may release.
pub(crate) fn deadlock_across_processes(members: &[Member<'_>], ends: bool) {
    let mut locks = members.iter().filter_map(|member| member.holds);
    let lasts = || !locks.any(|held| held.lock.traits.contains(Traits::ANYONE));
    report_cycle(members.iter().copied(), ends, confidence_in(ends, lasts));
}

/// The same for tasks in the state in which they were read. `ends`: a wait ends at a deadline.
fn report_cycle<'f>(
    members: impl Iterator<Item = Member<'f>>,
    ends: bool,
    confidence_in: Confidence,
) {
    report(Rule::NoDeadlock, confidence_in, |finding| {
        for Member { who, wants, holds } in members.take(TASKS) {
            let of_held = |held: Held| words::use_of_held(who.process, &held);
            let task = TaskText {
                wants: wants.map(of_held),
                holds: holds.map(of_held),
                ..words::task(who)
            };
            finding.tasks.push(task);
        }
        let Finding { tasks, summary, .. } = finding;
        for task in tasks.iter() {
            if let Some(wants) = &task.wants {
                let _ = write!(summary, "{} wants {} -> ", Identity(task), wants.lock.name);
            }
        }
        if let Some(first) = tasks.get(0) {
            let _ = write!(summary, "{}", Identity(first));
        }
        let count = tasks.len();
        let end = if ends {
            "; one of these waits ends at a deadline"
        } else {
            ""
        };
        finding.note = Text::new(format_args!(
            "each of these {count} tasks waits for a lock that the next task holds, and the last task waits for the \
             first{end}"
        ));
    });
}

/// Locks were taken in more than one order.
pub(crate) fn wrong_order(own: &Own, cycle: &order::OrderCycle) {
    let (rule, confidence) = match (cycle.is_of_one_task, cycle.is_of_same_locks) {
        (true, _) => (Rule::OneTaskOrder, Confidence::Suspected),
        (false, false) => (Rule::OneOrder, Confidence::Suspected),
        (false, true) => (Rule::OneOrder, Confidence::Follows),
    };
    report(rule, confidence, |finding| {
        let process = ProcessId::here(own.identity().0);
        for (edge, task) in cycle.edges().take(TASKS) {
            let thread = edge.thread_of(task);
            let of = |end: &End| {
                let (lock, mode, site) = end.load();
                Some(words::use_of(process, lock, mode, site, 0))
            };
            let name = match edge.is_by(task) {
                true => words::clean(name_of(&load_name(&edge.name))),
                false => words::thread_name(process, thread),
            };
            let task = TaskText {
                holds: of(&edge.held),
                wants: of(&edge.wanted),
                ..TaskText::new(process, thread, name)
            };
            finding.tasks.push(task);
        }
        let Finding { tasks, summary, .. } = finding;
        let _ = summary.write_str("order ");
        let holds = tasks.iter().filter_map(|task| task.holds.as_ref());
        for (index, holds) in holds.clone().chain(holds.take(1)).enumerate() {
            let arrow = if index > 0 { " -> " } else { "" };
            let _ = write!(summary, "{arrow}{}", holds.lock.name);
        }
        let count = tasks.len();
        finding.note = match (cycle.is_of_one_task, cycle.is_of_same_locks) {
            (true, _) => Text::new(format_args!(
                "so far, one task has taken these locks in {count} contradictory orders. A second task could take them in \
                 one order while the first takes them in another: the tasks hold no further lock that excludes this, \
                 and the locks are not all taken for reading"
            )),
            (false, false) => Text::new(format_args!(
                "{count} different tasks have taken locks that were made in these places in contradictory orders, but \
                 not always the same locks. They hold no further lock that excludes a deadlock"
            )),
            (false, true) => Text::new(format_args!(
                "{count} different tasks have taken these locks in contradictory orders. The tasks can do so at the same \
                 time: they hold no further lock that excludes this, and the locks are not all taken for reading"
            )),
        };
    });
}

/// The calling task waits, or has waited, for a task of lower priority.
pub(crate) fn inversion(own: &Own, wait: &Wait, blocker: &Blocker, nanoseconds: u64) {
    report(Rule::NoInversion, Confidence::Seen, |finding| {
        let mut me = waiting(own, wait, nanoseconds);
        let mut other = task_text(blocker);
        // The priorities that decided are reported: the recorded ones only if the kernel's are equal.
        if blocker.mine.kernel == blocker.theirs.kernel {
            me.recorded = blocker.mine.recorded.0;
            other.recorded = blocker.theirs.recorded.0;
        }
        me.priority = blocker.mine.kernel;
        let [mine, its] = [&me, &other].map(Identity);
        let [high, low] = [&me, &other].map(Priority);
        let _ = write!(finding.summary, "{mine}, {high}, waits for {its}, {low}");
        if me.recorded != 0 {
            let _ = finding
                .summary
                .write_str(" (priorities as Latchwork records them: 1 is the highest)");
        }
        let microseconds = nanoseconds / 1000;
        finding.note = Text::new(format_args!(
            "the wait has lasted for {microseconds} µs so far. The lock has neither priority inheritance nor a ceiling"
        ));
        finding.tasks.push(me);
        finding.tasks.push(other);
    });
}

/// The calling task waits, or has waited, for too long.
pub(crate) fn long_wait(own: &Own, wait: &Wait, nanoseconds: u64) {
    report(Rule::NoLongWait, Confidence::Seen, |finding| {
        let me = waiting(own, wait, nanoseconds);
        let milliseconds = nanoseconds / 1_000_000;
        let what = format_args!("has waited {milliseconds} ms for");
        summarise(finding, &me, what);
        finding.tasks.push(me);
        if let Some(blocker) = &wait.blocker {
            finding.tasks.push(task_text(blocker));
        }
    });
}

/// The calling task, in a wait that has lasted so long.
fn waiting(own: &Own, wait: &Wait, nanoseconds: u64) -> TaskText {
    let mut me = me_at(own, wait.lock, wait.mode, wait.site);
    if let Some(wants) = &mut me.wants {
        wants.nanoseconds = nanoseconds;
    }
    me
}

/// A blocking task, in a report.
fn task_text(blocker: &Blocker) -> TaskText {
    let (process, thread) = (blocker.process, blocker.thread);
    let mut name = words::thread_name(process, thread);
    if name.is_empty() {
        name = words::clean(&blocker.name);
    }
    let is_below = blocker.is_below();
    TaskText {
        priority: if is_below { blocker.theirs.kernel } else { 0 },
        holds: Some(words::use_of_held(process, &blocker.held)),
        does: words::doing(process, thread),
        ..TaskText::new(process, thread, name)
    }
}
