//! The contents of a report, as one value from which JSON is made, and as text for people.

use crate::check::record::bounded::{BoundedList, Text};
use crate::check::record::layout::{ASSUMED, FOLLOWS, SUSPECTED};
use crate::check::record::process::ProcessId;
use crate::check::record::rule::{Rule, Severity};
use crate::hook::{Kind, Mode};
use core::fmt::{self, Write};

/// The most tasks in one finding: a longer cycle is cut off.
pub const TASKS: usize = 16;

/// A place in a program, as text: `src/main.rs:12:9`, or a module and an offset.
pub type PlaceText = Text<128>;

/// A lock, as a report names it.
#[derive(Clone, Copy, Debug)]
pub struct LockText {
    /// Its name: the given one, its symbol's, its region object's, or the place where it was initialised.
    pub name: Text<64>,
    /// Its kind.
    pub kind: Kind,
    /// Its address, in the process of the task that is named with it.
    pub address: u64,
    /// Where it was initialised, or first used.
    pub made_at: PlaceText,
}

/// One use of a lock by a task.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// The lock.
    pub lock: LockText,
    /// The mode.
    pub mode: Mode,
    /// Where it was taken, or requested.
    pub at: PlaceText,
    /// How long so far, in nanoseconds; 0 if unknown.
    pub nanoseconds: u64,
}

/// A task of a finding.
#[derive(Clone, Copy, Debug)]
pub struct TaskText {
    /// Its process.
    pub process: u32,
    /// Its thread.
    pub thread: u32,
    /// Its PID namespace, if it is another one than that of the task that reports. The IDs of its process and its thread
    /// are those that they have there.
    pub pid_namespace: Option<u32>,
    /// Its name.
    pub name: Text<16>,
    /// Its real-time priority; 0: none.
    pub priority: u32,
    /// The priority that its region has recorded for it, where 1 is the highest, if that decided the finding; else 0.
    pub recorded: u32,
    /// The held lock that matters here.
    pub holds: Option<Use>,
    /// The lock that it waits for, or requested.
    pub wants: Option<Use>,
    /// The lock that it uses in another way that a rule forbids: a release, say.
    pub uses: Option<Use>,
    /// Its state, if it is the holder of a lock that others wait for: `runs`, `sleeps in futex`, …
    pub does: Text<48>,
}

impl TaskText {
    /// A task of which no more is known.
    pub(crate) const fn new(process: ProcessId, thread: u32, name: Text<16>) -> Self {
        Self {
            process: process.id(),
            thread,
            pid_namespace: process.elsewhere(),
            name,
            priority: 0,
            recorded: 0,
            holds: None,
            wants: None,
            uses: None,
            does: Text::EMPTY,
        }
    }

    pub(crate) const fn process_id(&self) -> ProcessId {
        ProcessId::of(self.process, self.pid_namespace)
    }
}

/// The last time that a task of this process released a lock that it held alone.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Released {
    /// The task's thread.
    pub thread: u32,
    /// Its name; empty if it has ended.
    pub name: Text<16>,
    /// Where it was released; or, if a guard's drop released it, where that guard had taken it.
    pub at: PlaceText,
    /// Whether a guard's drop released it; the place of the drop is unknown.
    pub by_guard: bool,
}

/// How certain it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Confidence {
    /// It was observed.
    Seen,
    /// It follows from observed events, in another order.
    Follows,
    /// It was observed, and lasts unless a task releases a lock that another one holds, which locks of this kind allow.
    Assumed,
    /// It would follow if another task did the same as the observed one, or if two locks that were made in one place were the
    /// same one. Perhaps that never happens.
    Suspected,
}

impl Confidence {
    /// The flag in [`Report::rule`](crate::check::layout::Report::rule).
    pub(crate) const fn flag(self) -> u32 {
        match self {
            Self::Seen => 0,
            Self::Follows => FOLLOWS,
            Self::Assumed => ASSUMED,
            Self::Suspected => SUSPECTED,
        }
    }

    /// The rule's number and the confidence that a report on a board contains.
    pub(crate) const fn of_report(rule: u32) -> (usize, Self) {
        const FLAGS: u32 = FOLLOWS | SUSPECTED | ASSUMED;
        let confidence = match rule & FLAGS {
            0 => Self::Seen,
            FOLLOWS => Self::Follows,
            SUSPECTED => Self::Suspected,
            _ => Self::Assumed,
        };
        ((rule & !FLAGS) as usize, confidence)
    }
}

/// A breach of a rule.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// How certain it is.
    pub confidence: Confidence,
    /// An ID that is the same for the same places and names, in every run.
    pub id: u64,
    /// What happened, in one line.
    pub summary: Text<384>,
    /// The tasks that matter, and only those: in a cycle, each waits for what the next one holds.
    pub tasks: BoundedList<TaskText, TASKS>,
    /// The task that released the lock before, if the finding is a release of a lock that the task does not hold.
    pub released: Option<Released>,
    /// Why it was not taken for harmless, or what else to know.
    pub note: Text<256>,
    /// The calling task's stack, innermost frame first, without this library's frames: module, offset and, if the
    /// module's file names it, the function.
    pub stack: BoundedList<PlaceText, 12>,
}

impl Finding {
    /// The severity of the breached rule.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.rule.severity()
    }

    /// The first words of the report.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        verdict(self.rule, self.confidence)
    }
}

pub(crate) fn verdict(rule: Rule, confidence: Confidence) -> &'static str {
    match (rule, confidence) {
        (Rule::NoLongHold, _) => "LONG HOLD",
        (Rule::NotifiesWithMutex, _) => "HINT",
        (Rule::NoDeadlock | Rule::NoRecursion, Confidence::Follows) => {
            "DEADLOCK THAT ENDS AT A DEADLINE"
        }
        (_, Confidence::Assumed) | (Rule::NoLoneWait, Confidence::Follows) => "DEADLOCK",
        (Rule::OneTaskOrder, _) => "POTENTIAL DEADLOCK, ONE TASK SO FAR",
        _ => rule.severity().verdict(),
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verdict, rule, id) = (self.verdict(), self.rule, self.id);
        writeln!(to, "== latchwork: {verdict} [{rule}] {id:016x}")?;
        writeln!(to, "   {}", self.summary)?;
        let sure = match self.confidence {
            Confidence::Seen => "the breach was observed",
            Confidence::Follows => "the breach follows from observed events",
            Confidence::Assumed => {
                "the breach was observed; the deadlock ends only if a task releases a lock that another task holds"
            }
            Confidence::Suspected if rule == Rule::OneOrder => {
                "a deadlock is suspected: it is possible if the locks that were made in one place can be the same lock"
            }
            Confidence::Suspected => {
                "a deadlock is suspected: it is possible if a second task takes these locks, too"
            }
        };
        writeln!(to, "   rule: {} ({sure})", rule.text())?;
        for (number, task) in self.tasks.iter().enumerate() {
            task.write(number + 1, rule, to)?;
        }
        self.write_locks(to)?;
        if let Some(released) = &self.released {
            let (thread, name, at) = (released.thread, &released.name, &released.at);
            let by = if name.is_empty() {
                "a task that has ended"
            } else {
                &**name
            };
            let how = if released.by_guard {
                ", which dropped a guard; place where that guard was acquired:"
            } else {
                ","
            };
            writeln!(to, "   last released by {by} ({thread}){how} {at}")?;
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
            write!(
                to,
                ", recorded in its region with priority {} (1 is the highest)",
                self.recorded
            )?;
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
                write!(to, "{name} ({thread}")?;
            }
            (process, thread) => write!(to, "{name} ({process}/{thread}")?,
        }
        match task.pid_namespace {
            Some(namespace) => write!(to, " in PID namespace {namespace})"),
            None => to.write_char(')'),
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
            let lock = &of.lock;
            let (name, address, made_at) = (&lock.name, lock.address, &lock.made_at);
            let is_it = |lock: &LockText| lock.address == address && *lock.name == **name;
            if !self.uses().take(index).any(|before| is_it(&before.lock)) {
                write!(to, "   lock {name} at {address:#x}")?;
                if !made_at.is_empty() {
                    write!(to, ", initialised or first used: {made_at}")?;
                }
                writeln!(to)?;
            }
        }
        Ok(())
    }

    /// Writes how the deadlock would come about: all take their first lock, then all want their second.
    fn write_interleaving(&self, to: &mut impl Write) -> fmt::Result {
        const WIDTH: usize = 34;
        debug_assert!(self.severity() == Severity::Potential);
        let columns = if self.tasks.len() == 2 { WIDTH } else { 4 };
        writeln!(to, "   how the deadlock would come about:")?;
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
