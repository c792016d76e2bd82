//! What a report says, as one value: text and JSON are made of it.

use super::few::{Few, Text};
use super::rule::{Rule, Severity};
use crate::hook::{Kind, Mode};

/// Tasks of one finding: a longer circle is cut off.
pub const TASKS: usize = 16;

/// A place in a program, in words: `src/main.rs:12:9`, or a module and an offset.
pub type PlaceText = Text<128>;

/// A lock, as a report names it.
#[derive(Clone, Copy, Debug)]
pub struct LockText {
    /// Its name: given, its symbol's, its region object's, or where it was initialised.
    pub name: Text<64>,
    /// What it is.
    pub kind: Kind,
    /// Its address, in the process of the task beside which it is named.
    pub address: u64,
    /// Where it was initialised, or first used.
    pub made_at: PlaceText,
}

/// What a task does with a lock.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// The lock.
    pub lock: LockText,
    /// How.
    pub mode: Mode,
    /// Where it was taken, or asked for.
    pub at: PlaceText,
    /// For how long so far, in nanoseconds; 0 if that is not known.
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
    /// The priority that its region has recorded for it, 1 being the highest, where that has decided; else 0.
    pub recorded: u32,
    /// What it holds that matters here.
    pub holds: Option<Use>,
    /// What it waits for, or asked for.
    pub wants: Option<Use>,
    /// What it does something else with that a rule forbids: it releases it, say.
    pub uses: Option<Use>,
    /// What it is doing, if it is the holder of what others wait for: `runs`, `sleeps in futex`, …
    pub does: Text<48>,
}

/// The last time that a task of this process released a lock that it held alone.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Released {
    /// The task's thread.
    pub thread: u32,
    /// Its name; empty if it is gone.
    pub name: Text<16>,
    /// Where; or, by the end of a guard, where what the guard held had been taken.
    pub at: PlaceText,
    /// The end of a guard, of which no place is known.
    pub by_guard: bool,
}

/// How sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Confidence {
    /// It was seen.
    Seen,
    /// It follows from what was seen, in another order of events.
    Follows,
    /// It was seen, and lasts unless a task releases what another one holds, which locks of this kind allow.
    Assumed,
    /// It would follow if another task did the same as the one that was seen. Perhaps none ever does.
    Suspected,
}

/// Something that a rule forbids.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// How sure it is.
    pub confidence: Confidence,
    /// The same for the same places and names, in every run.
    pub id: u64,
    /// What happened, in a line.
    pub summary: Text<384>,
    /// The tasks that matter, and only those: of a circle, each waits for what the next one holds.
    pub tasks: Few<TaskText, TASKS>,
    /// Who released the lock before, where one was released that the task does not hold.
    pub released: Option<Released>,
    /// Why it was not taken for harmless, or what else to know.
    pub note: Text<256>,
    /// The calling task's stack, innermost first, as far as it is not this library's: module, offset and, if the module's
    /// file tells, the function.
    pub stack: Few<PlaceText, 12>,
}

impl Finding {
    /// What kind of finding it is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.rule.severity()
    }

    /// What a report begins with.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        verdict(self.rule, self.confidence)
    }
}

pub(super) fn verdict(rule: Rule, confidence: Confidence) -> &'static str {
    match (rule, confidence) {
        (Rule::NoLongHold, _) => "LONG HOLD",
        (Rule::NotifiesWithMutex, _) => "HINT",
        (Rule::NoDeadlock | Rule::NoRecursion, Confidence::Follows) => "DEADLOCK UNTIL A DEADLINE",
        (_, Confidence::Assumed) | (Rule::NoLoneWait, Confidence::Follows) => "DEADLOCK",
        (Rule::OneTaskOrder, _) => "POTENTIAL DEADLOCK, ONE TASK SO FAR",
        _ => rule.severity().verdict(),
    }
}
