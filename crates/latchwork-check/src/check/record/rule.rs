//! The rules, by name.

use core::fmt;

/// Defines the rules: each by what it is for, its name, and what it requires.
macro_rules! rules {
    ($($(#[$meta:meta])* $Rule:ident = $name:literal, $text:literal;)*) => {
        /// A rule that locks and their users keep.
        ///
        /// The first nine are those that Linux's debugging mutexes enforce; this checker enforces them for all locks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Rule {
            $($(#[$meta])* $Rule,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: [Self; 23] = [$(Self::$Rule,)*];

            /// Its name, in reports and suppression files.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Rule => $name,)*
                }
            }

            /// What it requires, in a sentence.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$Rule => $text,)*
                }
            }
        }
    };
}

rules! {
    /// Only one task at a time holds it.
    OneHolder = "one-holder", "two tasks must not hold a lock at the same time";
    /// Only the owner unlocks it.
    OwnerUnlocks = "owner-unlocks", "a task must not unlock a lock that another task owns";
    /// It is not unlocked twice.
    NoDoubleUnlock = "no-double-unlock", "a lock that no task holds must not be unlocked";
    /// Its owner does not lock it again.
    NoRecursion = "no-recursion", "a task must not acquire a lock that it already holds";
    /// It is initialised by the interface: not by zeroing memory, and not used after its destruction.
    InitialisedByInterface = "initialised-by-interface",
        "a checked lock must not be used before its initialiser or initialisation function has made it, or after its \
         destruction";
    /// It is not initialised, zeroed, or destroyed while it is held.
    NotRemadeWhileHeld = "not-remade-while-held",
        "a lock that is held must not be initialised, overwritten or destroyed";
    /// It is not copied or moved once it is in use.
    NotCopied = "not-copied", "a checked lock must not be copied or moved after its first use";
    /// No task ends with a lock held.
    NoExitHolding = "no-exit-holding", "a task must not end while it holds a lock";
    /// Memory that contains a held lock is not freed.
    NoFreeHolding = "no-free-holding", "memory that contains a held lock must not be freed";
    /// All tasks that wait for a condition at the same time use the same mutex.
    OneMutexPerCondition = "one-mutex-per-condition", "all tasks that wait at the same time for a condition variable of one process must use the same mutex";
    /// A task that waits for a condition holds the mutex.
    WaitsWithMutex = "waits-with-mutex", "a task must hold the mutex when it waits for a condition variable";
    /// No task uses a lock whose ceiling is below the task's priority.
    WithinCeiling = "within-ceiling", "a task must not use a lock whose ceiling is below the task's priority";
    /// No object is deleted while a task owns it, or waits for it.
    NoDeleteInUse = "no-delete-in-use", "an object must not be deleted while a task owns it or waits for it";
    /// No task waits for an event that no other task can signal.
    NoLoneWait = "no-lone-wait", "a task must not wait for an event that no other task can signal";
    /// No wait-for cycle of tasks exists.
    NoDeadlock = "no-deadlock", "tasks must not wait for each other in a cycle";
    /// Locks are taken in one order.
    OneOrder = "one-order", "locks must be taken in one order by all tasks";
    /// A single task, too, takes locks in one order: a second task that took them in another could deadlock with it.
    OneTaskOrder = "one-task-order", "a task should take locks in one order, even while no other task takes them";
    /// No task waits for a task of lower priority that does not run at the waiter's priority.
    NoInversion = "no-inversion",
        "a task should not wait for a lower-priority task that does not inherit the waiter's priority";
    /// No wait lasts too long.
    NoLongWait = "no-long-wait", "a wait should not last longer than the limit";
    /// No lock is held for too long.
    NoLongHold = "no-long-hold", "a lock should not be held for longer than the limit";
    /// It is initialised once, until it is destroyed.
    InitialisedOnce = "initialised-once", "an object must not be initialised again before it is destroyed";
    /// No call fails because of how it was made.
    NoFailedCall = "no-failed-call", "a call must have valid arguments, and the state of the object must allow it";
    /// A task that notifies a condition holds the mutex that its waiters use: a hint.
    NotifiesWithMutex = "notifies-with-mutex",
        "a condition variable should be notified by a task that holds the mutex of its waiters";
}

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Tasks wait for each other, now and permanently.
    Deadlock,
    /// Tasks would wait for each other, in another order of events.
    Potential,
    /// A wait has lasted too long.
    LongWait,
    /// A task waits for a task of lower priority.
    Inversion,
    /// A rule of use was broken.
    Misuse,
}

impl Rule {
    /// The severity of a breach.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::NoDeadlock | Self::NoRecursion | Self::NoLoneWait => Severity::Deadlock,
            Self::OneOrder | Self::OneTaskOrder => Severity::Potential,
            Self::NoInversion => Severity::Inversion,
            Self::NoLongWait | Self::NoLongHold => Severity::LongWait,
            _ => Severity::Misuse,
        }
    }
}

impl Severity {
    /// The first words of a report.
    #[must_use]
    pub const fn verdict(self) -> &'static str {
        match self {
            Self::Deadlock => "DEADLOCK NOW",
            Self::Potential => "POTENTIAL DEADLOCK",
            Self::LongWait => "LONG WAIT",
            Self::Inversion => "PRIORITY INVERSION",
            Self::Misuse => "MISUSE",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
