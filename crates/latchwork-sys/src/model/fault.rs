//! The mistakes that negative twins are built with.

/// A mistake, built into one line of the code, that a model must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The wait-wake mutex is released without Release.
    UnlockRelaxed,
    /// The wait-wake mutex is taken without Acquire, where nobody holds it.
    LockRelaxed,
    /// A waiter of the wait-wake mutex takes it as if nobody else slept.
    RelockUncontended,
    /// The wait-wake mutex is released as if nobody slept.
    UnlockWakesNobody,
    /// A notification of a condition variable does not move the ticket on.
    CondvarTicketStays,
    /// A notification of a condition variable wakes nobody if one waiter is counted.
    CondvarSkipsSingleWaiter,
    /// A waiter of a condition variable reads the ticket after it released the mutex.
    CondvarTicketReadLate,
    /// A waiter of a condition variable that may have been sent to a mutex takes it as a newcomer.
    CondvarRelockUncontended,
    /// A waiter that binds a condition variable to its mutex does not move the ticket on.
    CondvarBindsUnseen,
    /// A waiter of a condition variable is sent to the mutex of another waiter.
    CondvarMixesMutexes,
    /// A waiter of a condition variable that is woken by another one wakes nobody in turn.
    CondvarRelayStops,
    /// A condition variable counts those on the relay after it has woken the first of them.
    CondvarRelayCountsLate,
    /// A notification of one wakes one of those whose mutex is not that of the others.
    CondvarWakesOneOfCrowd,
    /// A waiter of a condition variable whose time is over says so, though it was notified.
    CondvarTimesOutNotified,
    /// A queue's notification does not move the ticket on.
    QueueTicketStays,
    /// A sleeper of a queue that leaves takes a registration with it that may be another's.
    QueueLeavesForAnother,
    /// A sleeper of a queue that was woken takes its registration with it, though the wake-up may be another's.
    QueueLeavesWhenWoken,
    /// A sleeper of a queue may look at the queue before it is seen to be registered.
    QueueSleeperUnordered,
    /// A notifier of a queue may look at the registrations before its change is seen.
    QueueWakerUnordered,
    /// A cell is put into a lane without Release.
    LaneRelaxed,
    /// A queue's notification wakes nobody if one sleeper is registered.
    QueueSkipsSingleSleeper,
    /// A queue's notification takes two registrations for one wake-up.
    QueueTakesTwoRegistrations,
    /// A receiver may wait at a queue although there is no cell for a broadcast.
    QueueNoCellForBoard,
    /// A receiver that begins to wait, and is a place for a message, does not wake a sender that waits for one.
    QueueWaiterUnannounced,
    /// Events are sent without Release.
    EventSendRelaxed,
    /// A task goes to sleep without saying so.
    EventSleepsUntold,
    /// A send adds to what a task was given already.
    EventsMerge,
    /// A task goes to sleep on a value of its events that it has not looked at.
    EventSleepsOnUnseen,
    /// A sender looks only at its own events to see whether the task has all that it waits for.
    EventsDoNotAddUp,
    /// Events are cleared by a store.
    EventsClearedByStore,
    /// A sender does not look whose set it sends to.
    EventIgnoresGeneration,
    /// A queue's notification of all wakes one.
    QueueNotifiesOneOfAll,
    /// The sender of a ring publishes its message without Release.
    RingTailRelaxed,
    /// The receiver of a ring gives a place back without Release.
    RingHeadRelaxed,
    /// Who is about to sleep at a ring does not look again when it has said so.
    RingLooksOnce,
    /// That look may overtake what it said.
    RingSleeperUnordered,
    /// The look for a sleeper may overtake the message, or the room.
    RingWakerUnordered,
    /// Who wakes at a ring leaves the sleeper's word as it is.
    RingWordStays,
    /// The sender of a ring does not look for those who watch.
    RingForgetsWatchers,
    /// Who deletes a ring wakes those who sleep before it is deleted.
    RingDeletesLate,
    /// A completer wakes nobody if one waiter is counted.
    CompleterSkipsSingleWaiter,
    /// A completion is announced without Release.
    CompleteRelaxed,
    /// A completer looks at its waiters when its token can be seen.
    CompleterLooksAgain,
    /// A robust lock is not announced while it is taken or released.
    RobustNotAnnounced,
    /// A robust lock's announcement ends before the wake-up that follows the release.
    RobustSettlesBeforeWake,
    /// A robust lock for which nobody waits is released without Release.
    RobustUnlockRelaxed,
    /// Who takes a robust lock forgets that others may sleep.
    RobustTakerForgetsSleepers,
    /// A robust lock's unlock clears `WAITERS` and wakes nobody.
    RobustUnlockForgetsSleepers,
    /// A task that sleeps for a robust lock checks the word only when it is woken.
    RobustSleepersNeverLook,
    /// The kernel does not pass on the wake-up of a dead task.
    KernelSwallowsWake,
    /// The state does not tell of the death.
    RobustHidesDeath,
    /// Who takes a free robust lock of the kernel's does not look at the state.
    RobustTrustsWord,
    /// A robust lock that inherits priority is released as if nobody slept.
    RobustInheritIgnoresSleepers,
    /// A robust throughput lock whose holder asks the kernel to wake nobody.
    RobustThroughputWakesNobody,
    /// An inheriting lock is taken without Acquire, where nobody holds it.
    InheritLockRelaxed,
    /// An inheriting lock for which nobody sleeps is released without Release.
    InheritUnlockRelaxed,
    /// An inheriting lock is released as if nobody slept.
    InheritUnlockIgnoresSleepers,
    /// Who has taken an inheriting lock, or gives up, keeps its gate.
    InheritKeepsGate,
    /// The owner of a gate takes a circle of waits for its own that goes through the gate.
    InheritBlamesGate,
    /// The heir of a dead owner's word takes it as if it was released.
    InheritHidesDeath,
    /// A throughput lock is taken without Acquire.
    ThroughputLockRelaxed,
    /// A throughput lock is released without Release.
    ThroughputUnlockRelaxed,
    /// Who takes a reserved throughput lock forgets that others may sleep.
    ThroughputTakerForgetsSleepers,
    /// A throughput lock for which somebody sleeps is released without waking anybody.
    ThroughputUnlockWakesNobody,
    /// A throughput lock is reserved without waking anybody.
    ThroughputHandOffWakesNobody,
    /// Who has got, or given up, a throughput lock keeps its gate.
    ThroughputKeepsGate,
    /// The gate of a throughput lock is left without waking anybody.
    ThroughputGateWakesNobody,
    /// A reader enters without Acquire, where nobody waits.
    RwLockReadRelaxed,
    /// A reader leaves without Release.
    RwLockUnreadRelaxed,
    /// A writer that enters, or gives up, does not have the others called.
    RwLockWriterForgetsOthers,
    /// The last writer that gives up does not call the readers that it kept out.
    RwLockQuitterForgetsReaders,
    /// A reader that enters after waiting does not call those who may join it.
    RwLockEntrantForgetsReaders,
    /// Who has counted itself as starving does not look again.
    RwLockLooksOnce,
    /// A release that may be for either kind of waiters does not show that the lock is free.
    RwLockHidesVacancy,
    /// A release wakes one kind of waiters only, whether or not there are any.
    RwLockWakesOneKind,
    /// A reader of a robust reader/writer lock does not look at the gate when it has its seat.
    RobustRwLockLooksOnce,
    /// It looks, but the look may overtake the seat.
    RobustRwLockReaderUnordered,
    /// A writer's look at the seats may overtake the gate.
    RobustRwLockWriterUnordered,
    /// A task waits for others although it sits in a seat.
    RobustRwLockForgetsOwnSeat,
    /// A writer does not leave word that it is inside.
    RobustRwLockForgetsWriting,
    /// Who gets the gate of a writer that died inside takes it as if it was released.
    RobustRwLockHidesDeath,
    /// Who gets the gate of any dead task believes that it was inside.
    RobustRwLockTellsAllDeaths,
    /// A semaphore is obtained without Acquire, where nobody waits.
    SemaphoreObtainRelaxed,
    /// A semaphore is released without Release, where nobody waits.
    SemaphoreReleaseRelaxed,
    /// A semaphore is handed over without waking anybody.
    SemaphoreWakesNobody,
    /// A waiter of a semaphore whose time is over says so, though it was handed the semaphore.
    SemaphoreGivesUpGranted,
    /// A task queues for a semaphore although it has become free meanwhile.
    SemaphoreQueuesUnannounced,
    /// A task may look for a circle of waits before it is to be seen waiting itself.
    SemaphoreEntersUnordered,
    /// A waiter believes the owner's priority while that is being worked out.
    SemaphoreLooksPastBusy,
    /// Who changes a task's priority may look at what it waits for before the change.
    SemaphoreMovesUnordered,
    /// Who works a priority out says last, not first, that it knows of nobody who waits.
    SemaphoreForgetsLate,
    /// Who hands over does not look whether the new owner has the priority of those who still wait.
    SemaphoreHeirUnseen,
    /// A task's look round may overtake the word that it waits.
    CheckWaitUnordered,
    /// A task that waits may say only then which locks it holds.
    CheckHolderSaidLate,
}
