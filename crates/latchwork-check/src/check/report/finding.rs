//! The contents of a report, as one value from which text and JSON are made.

use crate::check::record::bounded::{BoundedList, Text};
use crate::check::record::layout::{ASSUMED, FOLLOWS, SUSPECTED};
use crate::check::record::rule::{Rule, Severity};
use crate::hook::{Kind, Mode};

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
    pub(crate) const fn new(process: u32, thread: u32, name: Text<16>) -> Self {
        Self {
            process,
            thread,
            name,
            priority: 0,
            recorded: 0,
            holds: None,
            wants: None,
            uses: None,
            does: Text::EMPTY,
        }
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
    /// It would follow if another task did the same as the observed one. Perhaps none ever does.
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
        (Rule::NoDeadlock | Rule::NoRecursion, Confidence::Follows) => "DEADLOCK UNTIL A DEADLINE",
        (_, Confidence::Assumed) | (Rule::NoLoneWait, Confidence::Follows) => "DEADLOCK",
        (Rule::OneTaskOrder, _) => "POTENTIAL DEADLOCK, ONE TASK SO FAR",
        _ => rule.severity().verdict(),
    }
}
