//! The rules, by name.

use core::fmt;

/// A rule that locks and their users keep.
///
/// The first nine are those that Linux's debugging mutexes enforce; this checker enforces them for all locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// Only one task at a time holds it.
    OneHolder,
    /// Only the owner unlocks it.
    OwnerUnlocks,
    /// It is not unlocked twice.
    NoDoubleUnlock,
    /// Its owner does not lock it again.
    NoRecursion,
    /// It is initialised by the interface: not by zeroing memory, and not used after its destruction.
    InitialisedByInterface,
    /// It is not initialised, zeroed, or destroyed while it is held.
    NotRemadeWhileHeld,
    /// It is not copied or moved once it is in use.
    NotCopied,
    /// No task ends with a lock held.
    NoExitHolding,
    /// Memory that contains a held lock is not freed.
    NoFreeHolding,
    /// All tasks that wait for a condition at the same time use the same mutex.
    OneMutexPerCondition,
    /// A task that waits for a condition holds the mutex.
    WaitsWithMutex,
    /// No task uses a lock whose ceiling is below the task's priority.
    WithinCeiling,
    /// No object is deleted while a task owns it, or waits for it.
    NoDeleteInUse,
    /// No task waits for an event that no other task can signal.
    NoLoneWait,
    /// No wait-for cycle of tasks exists.
    NoDeadlock,
    /// Locks are taken in one order.
    OneOrder,
    /// A single task, too, takes locks in one order: a second task that took them in another could deadlock with it.
    OneTaskOrder,
    /// No task waits for a task of lower priority that does not run at the waiter's priority.
    NoInversion,
    /// No wait lasts too long.
    NoLongWait,
    /// No lock is held for too long.
    NoLongHold,
    /// It is initialised once, until it is destroyed.
    InitialisedOnce,
    /// No call fails because of how it was made.
    NoFailedCall,
    /// A task that notifies a condition holds the mutex that its waiters use: a hint.
    NotifiesWithMutex,
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
    /// All rules.
    pub const ALL: [Self; 23] = [
        Self::OneHolder,
        Self::OwnerUnlocks,
        Self::NoDoubleUnlock,
        Self::NoRecursion,
        Self::InitialisedByInterface,
        Self::NotRemadeWhileHeld,
        Self::NotCopied,
        Self::NoExitHolding,
        Self::NoFreeHolding,
        Self::OneMutexPerCondition,
        Self::WaitsWithMutex,
        Self::WithinCeiling,
        Self::NoDeleteInUse,
        Self::NoLoneWait,
        Self::NoDeadlock,
        Self::OneOrder,
        Self::OneTaskOrder,
        Self::NoInversion,
        Self::NoLongWait,
        Self::NoLongHold,
        Self::InitialisedOnce,
        Self::NoFailedCall,
        Self::NotifiesWithMutex,
    ];

    /// Its name, in reports and suppression files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneHolder => "one-holder",
            Self::OwnerUnlocks => "owner-unlocks",
            Self::NoDoubleUnlock => "no-double-unlock",
            Self::NoRecursion => "no-recursion",
            Self::InitialisedByInterface => "initialised-by-interface",
            Self::NotRemadeWhileHeld => "not-remade-while-held",
            Self::NotCopied => "not-copied",
            Self::NoExitHolding => "no-exit-holding",
            Self::NoFreeHolding => "no-free-holding",
            Self::OneMutexPerCondition => "one-mutex-per-condition",
            Self::WaitsWithMutex => "waits-with-mutex",
            Self::WithinCeiling => "within-ceiling",
            Self::NoDeleteInUse => "no-delete-in-use",
            Self::NoLoneWait => "no-lone-wait",
            Self::NoDeadlock => "no-deadlock",
            Self::OneOrder => "one-order",
            Self::OneTaskOrder => "one-task-order",
            Self::NoInversion => "no-inversion",
            Self::NoLongWait => "no-long-wait",
            Self::NoLongHold => "no-long-hold",
            Self::InitialisedOnce => "initialised-once",
            Self::NoFailedCall => "no-failed-call",
            Self::NotifiesWithMutex => "notifies-with-mutex",
        }
    }

    /// What it requires, in a sentence.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::OneHolder => "two tasks must not hold a lock at the same time",
            Self::OwnerUnlocks => "a task must not unlock a lock that another task owns",
            Self::NoDoubleUnlock => "a lock that no task holds must not be unlocked",
            Self::NoRecursion => "a task must not acquire a lock that it already holds",
            Self::InitialisedByInterface => {
                "a lock must be initialised by its initialiser or init function, and not used after destruction"
            }
            Self::NotRemadeWhileHeld => {
                "a lock that is held must not be initialised, overwritten or destroyed"
            }
            Self::NotCopied => "a lock must not be copied or moved once it was used",
            Self::NoExitHolding => "a task must not end with a lock held",
            Self::NoFreeHolding => "memory with a held lock in it must not be freed",
            Self::OneMutexPerCondition => {
                "all waiters of a condition variable must use the same mutex"
            }
            Self::WaitsWithMutex => {
                "a task must hold the mutex when it waits for a condition variable"
            }
            Self::WithinCeiling => "a task must not use a lock whose ceiling is below its priority",
            Self::NoDeleteInUse => {
                "an object must not be deleted while a task owns it or waits for it"
            }
            Self::NoLoneWait => "a task must not wait for an event that no other task can signal",
            Self::NoDeadlock => "tasks must not wait for each other in a cycle",
            Self::OneOrder => "locks must be taken in one order by all tasks",
            Self::OneTaskOrder => {
                "a task should take locks in one order, even while no other task takes them"
            }
            Self::NoInversion => {
                "a task should not wait for a lower-priority task that does not inherit the waiter's priority"
            }
            Self::NoLongWait => "a wait should not last that long",
            Self::NoLongHold => "a lock should not be held for that long",
            Self::InitialisedOnce => {
                "an object must not be initialised again before it is destroyed"
            }
            Self::NoFailedCall => "a call must be valid in the object's state",
            Self::NotifiesWithMutex => {
                "a condition variable should be notified by a task that holds the mutex of its waiters"
            }
        }
    }

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
