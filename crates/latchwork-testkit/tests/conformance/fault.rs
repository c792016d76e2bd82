//! Mistakes of the model.

/// A mistake that the drivers must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    AlwaysFifo,
    AnybodyReleases,
    NoInheritance,
    NoCeiling,
    NoCeilingCheck,
    NoRecursion,
    NoDeadlocks,
    DeleteOwned,
    DeleteStrandsWaiters,
    FlushCounts,
    CountsPastMaximum,
    KeepsPriorityAfterTimeout,
    SetsPriorityOfAny,
    OneCeilingForAllSchedulers,
    MovesWhenItObtains,
}
