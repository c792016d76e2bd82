//! A finding as text for people.

use crate::check::record::rule::{Rule, Severity};
use crate::check::report::finding::{Confidence, Finding, LockText, Released, TaskText, Use};
use crate::hook::Mode;
use core::fmt::{self, Write};

impl fmt::Display for Finding {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verdict, rule, id) = (self.verdict(), self.rule, self.id);
        writeln!(to, "== latchwork: {verdict} [{rule}] {id:016x}")?;
        writeln!(to, "   {}", self.summary)?;
        let sure = match self.confidence {
            Confidence::Seen => "observed",
            Confidence::Follows => "follows from observed events",
            Confidence::Assumed => {
                "observed; lasts unless a task releases a lock that another task holds"
            }
            Confidence::Suspected => "suspected: possible if a second task does the same",
        };
        writeln!(to, "   rule: {} ({sure})", rule.text())?;
        for (number, task) in self.tasks.iter().enumerate() {
            task.write(number + 1, rule, to)?;
        }
        self.write_locks(to)?;
        if let Some(released) = &self.released {
            let Released {
                thread, name, at, ..
            } = released;
            let by = if name.is_empty() {
                "a task that has ended"
            } else {
                &**name
            };
            let how = if released.by_guard {
                ", when it dropped its guard; lock call:"
            } else {
                ","
            };
            writeln!(to, "   released last by {by} ({thread}){how} {at}")?;
        }
        if matches!(rule, Rule::OneOrder | Rule::OneTaskOrder) {
            self.write_interleaving(to)?;
        }
        if !self.note.is_empty() {
            writeln!(to, "   note: {}", self.note)?;
        }
        for (depth, place) in self.stack.iter().enumerate() {
            let what = if depth == 0 { "stack:" } else { "" };
            writeln!(to, "   {what:6} {place}")?;
        }
        writeln!(to, "   to suppress: {rule} {id:016x}")
    }
}

impl TaskText {
    fn write(&self, number: usize, rule: Rule, to: &mut impl Write) -> fmt::Result {
        write!(to, "   task {number}: {}", Identity(self))?;
        if self.priority != 0 {
            write!(to, ", priority {}", self.priority)?;
        }
        if self.recorded != 0 {
            write!(to, ", recorded priority {}", self.recorded)?;
        }
        if !self.does.is_empty() {
            write!(to, ", {}", self.does)?;
        }
        writeln!(to)?;
        if let Some(held) = &self.holds {
            write_use("holds", held, to)?;
        }
        if let Some(wanted) = &self.wants {
            write_use("wants", wanted, to)?;
        }
        if let Some(used) = &self.uses {
            write_use(verb(rule), used, to)?;
        }
        Ok(())
    }
}

/// A task's name, process and thread, for display.
pub(crate) struct Identity<'a>(pub(crate) &'a TaskText);

impl fmt::Display for Identity<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(task) = self;
        let name = if task.name.is_empty() {
            "?"
        } else {
            &*task.name
        };
        match (task.process, task.thread) {
            (process, thread) if process == thread || process == 0 => {
                write!(to, "{name} ({thread})")
            }
            (process, thread) => write!(to, "{name} ({process}/{thread})"),
        }
    }
}

/// The verb for what a task does with a lock that it uses against a rule.
const fn verb(rule: Rule) -> &'static str {
    match rule {
        Rule::OwnerUnlocks | Rule::NoDoubleUnlock => "unlocks",
        Rule::NoLongHold => "releases",
        Rule::InitialisedOnce => "initialises",
        Rule::NotifiesWithMutex => "notifies",
        Rule::NoFreeHolding => "frees",
        Rule::NoDeleteInUse => "deletes",
        _ => "uses",
    }
}

fn write_use(what: &str, of: &Use, to: &mut impl Write) -> fmt::Result {
    let mode = match of.mode {
        Mode::Exclusive => "",
        Mode::Shared => " to read",
    };
    let (kind, name, at) = (of.lock.kind.name(), &of.lock.name, &of.at);
    write!(to, "      {what} {kind} {name}{mode}, {at}")?;
    if of.nanoseconds != 0 {
        let milliseconds = of.nanoseconds / 1_000_000;
        let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
        write!(to, ", for {seconds}.{rest:03} s")?;
    }
    writeln!(to)
}

impl Finding {
    /// What each task holds and wants, in order.
    fn uses(&self) -> impl Iterator<Item = &Use> + Clone {
        self.tasks
            .iter()
            .flat_map(|task| task.holds.iter().chain(&task.wants).chain(&task.uses))
    }

    fn write_locks(&self, to: &mut impl Write) -> fmt::Result {
        for (index, of) in self.uses().enumerate() {
            let LockText {
                name,
                address,
                made_at,
                ..
            } = &of.lock;
            let is_it = |lock: &LockText| lock.address == *address && *lock.name == **name;
            if !self.uses().take(index).any(|before| is_it(&before.lock)) {
                writeln!(to, "   lock {name} at {address:#x}, created {made_at}")?;
            }
        }
        Ok(())
    }

    /// Writes how the deadlock would come about: all take their first lock, then all want their second.
    fn write_interleaving(&self, to: &mut impl Write) -> fmt::Result {
        const WIDTH: usize = 34;
        debug_assert!(self.severity() == Severity::Potential);
        let columns = if self.tasks.len() == 2 { WIDTH } else { 4 };
        writeln!(to, "   how it would come about:")?;
        for wants in [false, true] {
            for (number, task) in self.tasks.iter().enumerate() {
                let of = if wants { &task.wants } else { &task.holds };
                let Some(of) = of else { continue };
                let verb = if wants { "waits for" } else { "locks" };
                let (indent, number, name) = (number * columns, number + 1, &of.lock.name);
                writeln!(to, "     {:indent$}task {number}: {verb} {name}", "")?;
            }
        }
        Ok(())
    }
}
