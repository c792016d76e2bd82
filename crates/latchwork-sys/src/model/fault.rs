//! The faults that negative twins inject.

/// A fault, injected into one line of the code, that a model must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The wait-wake mutex is released without Release.
    UnlockRelaxed,
    /// The free wait-wake mutex is acquired without Acquire.
    LockRelaxed,
    /// A waiter of the wait-wake mutex acquires it as if no other task slept.
    RelockUncontended,
    /// The wait-wake mutex is released as if no task slept.
    UnlockWakesNobody,
    /// A notification of a condition variable does not advance the ticket.
    CondvarTicketStays,
    /// A notification of a condition variable wakes no waiter if one is counted.
    CondvarSkipsSingleWaiter,
    /// A waiter of a condition variable reads the ticket after it released the mutex.
    CondvarTicketReadLate,
    /// A waiter of a condition variable that may have been requeued to the mutex acquires it as a newcomer.
    CondvarRelockUncontended,
    /// A waiter that binds a condition variable to its mutex does not advance the ticket.
    CondvarBindsUnseen,
    /// A waiter of a condition variable is requeued to the mutex of another waiter.
    CondvarMixesMutexes,
    /// A waiter that was woken from a condition variable's relay does not wake the next one.
    CondvarRelayStops,
    /// A condition variable counts the waiters on the relay after it has woken the first of them.
    CondvarRelayCountsLate,
    /// A `notify_one` wakes only one of the waiters that have another mutex than the gathering's.
    CondvarWakesOneOfCrowd,
    /// A waiter of a condition variable returns a time-out although it was notified.
    CondvarTimesOutNotified,
    /// A queue's notification does not advance the ticket.
    QueueTicketStays,
    /// A sleeper of a queue that leaves removes a registration that may be another sleeper's.
    QueueLeavesForAnother,
    /// A sleeper of a queue that was woken removes its registration, although the wake-up may have been another's.
    QueueLeavesWhenWoken,
    /// A sleeper of a queue may check the queue before its registration is visible.
    QueueSleeperUnordered,
    /// A notifier of a queue may read the registrations before its change is visible.
    QueueWakerUnordered,
    /// A cell is put into a lane without Release.
    LaneRelaxed,
    /// A queue's notification wakes no sleeper if one is registered.
    QueueSkipsSingleSleeper,
    /// A queue's notification removes two registrations for one wake-up.
    QueueTakesTwoRegistrations,
    /// A receiver may wait at a queue although there is no cell for a broadcast.
    QueueNoCellForBoard,
    /// A receiver that begins to wait, and so makes room for a message, does not wake a sender that waits for room.
    QueueWaiterUnannounced,
    /// Events are sent without Release.
    EventSendRelaxed,
    /// A task sleeps for events without announcing that.
    EventSleepsUntold,
    /// A send adds to events that a task was already given.
    EventsMerge,
    /// A task sleeps on a value of its event word that it has not checked.
    EventSleepsOnUnseen,
    /// A sender compares only its own events with the task's condition, not all pending ones.
    EventsDoNotAddUp,
    /// Events are cleared by a store.
    EventsClearedByStore,
    /// A sender does not check the generation of the set that it sends to.
    EventIgnoresGeneration,
    /// A queue's notification of all wakes only one.
    QueueNotifiesOneOfAll,
    /// The sender of a ring publishes its message without Release.
    RingTailRelaxed,
    /// The receiver of a ring frees a place without Release.
    RingHeadRelaxed,
    /// A task that is about to sleep at a ring does not check it again after its announcement.
    RingLooksOnce,
    /// That check may overtake the announcement.
    RingSleeperUnordered,
    /// The check for a sleeper may overtake the message, or the freed place.
    RingWakerUnordered,
    /// A task that wakes a sleeper at a ring does not change the sleeper's word.
    RingWordStays,
    /// The sender of a ring does not check for watchers.
    RingForgetsWatchers,
    /// A task that deletes a ring wakes its sleepers before the ring is deleted.
    RingDeletesLate,
    /// The check for a deletion may overtake the store that gives up a side of a ring.
    RingGivesUpUnordered,
    /// A completer wakes no waiter if one is counted.
    CompleterSkipsSingleWaiter,
    /// A completion is published without Release.
    CompleteRelaxed,
    /// A completer reads the number of waiters after its token is visible.
    CompleterReadsAgain,
    /// A robust lock is not announced while it is acquired or released.
    RobustNotAnnounced,
    /// A thread that ends no longer announces a lock when it asks the keeper to take it.
    GiverSettlesEarly,
    /// The keeper does not announce a lock before it takes it.
    KeeperUnannounced,
    /// A robust lock's announcement ends before the wake-up that follows the release.
    RobustSettlesBeforeWake,
    /// A robust lock without waiters is released without Release.
    RobustUnlockRelaxed,
    /// A task that acquires a robust lock drops the mark that others may sleep.
    RobustTakerForgetsSleepers,
    /// A robust lock's unlock clears `WAITERS` and wakes no task.
    RobustUnlockForgetsSleepers,
    /// A task that sleeps for a robust lock checks the word only when it is woken.
    RobustSleepersNeverLook,
    /// The kernel does not pass on the wake-up of a dead task.
    KernelSwallowsWake,
    /// The state does not report the owner's death.
    RobustHidesDeath,
    /// A region lock without waiters is released without Release.
    RegionUnlockRelaxed,
    /// A waiter that has slept takes a region lock as if no other task slept.
    RegionTakerForgetsSleepers,
    /// In the last unlock of a lock that nobody is to have any more.
    RegionLastUnlockForgetsSleepers,
    /// A region lock with waiters is released as if no task slept.
    RegionUnlockForgetsSleepers,
    /// A sleeper at a region lock does not see deaths.
    RegionSleeperMissesDeaths,
    /// A waiter begins to watch for deaths after it has checked that the owner lives.
    RegionWatchBeginsLate,
    /// A task that takes a dead owner's region lock does not mark its data as torn.
    RegionHidesDeath,
    /// A waiter that has read a task's identity in a region lock may read that task's life as it was before.
    RegionReadsOldLife,
    /// A successor in the slot of a task that is gone is taken for that task.
    RegionIgnoresGenerations,
    /// The identity of the first task has the high half of a free word.
    RegionCountsSlotsFromZero,
    /// A waiter at the gate of a region's throughput lock does not ask whether the top waiter is gone.
    RegionGateKeptByDead,
    /// A sleep on the gate of a region's throughput lock has no end of its own.
    RegionGateSleepsForEver,
    /// A task that leaves the gate of a region's throughput lock wakes no sleeper.
    RegionGateWakesNobody,
    /// A task that has a region's throughput lock keeps the gate.
    RegionGateIsKept,
    /// A top waiter of a region's throughput lock that is overdue sets no request.
    RegionRequestIsLost,
    /// A hand-off of a region's throughput lock wakes no sleeper.
    RegionHandOffWakesNobody,
    /// A hand-off of a region's throughput lock removes the bit of those that sleep on the word.
    RegionHandOffForgetsSleepers,
    /// A newcomer takes a lock of a region that is reserved for the top waiter.
    RegionNewcomerTakesReserved,
    /// A newcomer takes a lock of a region from a dead owner although the top waiter has requested it.
    RegionNewcomerIgnoresRequest,
    /// A task that acquires a free robust lock through the kernel does not check the state.
    RobustTrustsWord,
    /// A robust lock that inherits priority is released as if no task slept.
    RobustInheritIgnoresSleepers,
    /// A free inheriting lock is acquired without Acquire.
    InheritLockRelaxed,
    /// An inheriting lock without sleepers is released without Release.
    InheritUnlockRelaxed,
    /// An inheriting lock is released as if no task slept.
    InheritUnlockIgnoresSleepers,
    /// A task that has acquired an inheriting lock, or gives up, keeps the lock's gate (the queueing mutex in
    /// front of it).
    InheritKeepsGate,
    /// The owner of a gate takes a wait-for cycle that goes through the gate for a cycle of its own.
    InheritBlamesGate,
    /// The task that inherits a dead owner's word acquires it as if it had been released.
    InheritHidesDeath,
    /// A throughput lock is acquired without Acquire.
    ThroughputLockRelaxed,
    /// A throughput lock is released without Release.
    ThroughputUnlockRelaxed,
    /// A task that acquires a reserved throughput lock drops the mark that others may sleep.
    ThroughputTakerForgetsSleepers,
    /// A throughput lock with sleepers is released without a wake-up.
    ThroughputUnlockWakesNobody,
    /// A throughput lock is reserved without a wake-up.
    ThroughputHandOffWakesNobody,
    /// A top waiter of a throughput lock that requests the lock sets `WAITERS` by a compare-and-swap.
    ThroughputRequestByCas,
    /// An unlock of a throughput lock may read the word with `WAITERS`, and not the request that came before it.
    ThroughputRequestUnordered,
    /// An unlock of a throughput lock reads the request once, and frees the word in any case after that.
    ThroughputRequestReadOnce,
    /// A top waiter of a throughput lock whose sleep the kernel has refused counts as one that has slept.
    ThroughputRefusedSleepCounts,
    /// A real-time task that finds the gate of a throughput lock free enters it as other tasks do.
    ThroughputRealTimeEntersGate,
    /// A task that has acquired a throughput lock, or given up, keeps its gate.
    ThroughputKeepsGate,
    /// The gate of a throughput lock is released without a wake-up.
    ThroughputGateWakesNobody,
    /// A reader enters without Acquire when no task waits.
    RwLockReadRelaxed,
    /// A reader leaves without Release.
    RwLockUnreadRelaxed,
    /// A writer that enters, or gives up, does not set the call for other writers.
    RwLockWriterForgetsOthers,
    /// The last writer that gives up does not call the readers that it kept out.
    RwLockQuitterForgetsReaders,
    /// A reader that enters after waiting does not call readers that may join it.
    RwLockEntrantForgetsReaders,
    /// A task that has counted itself as starving does not check again.
    RwLockChecksOnce,
    /// A release that may go to either kind of waiters sets no `VACANT_…` bit.
    RwLockHidesVacancy,
    /// A release wakes one kind of waiters only, even if there are none.
    RwLockWakesOneKind,
    /// A reader takes the ID of the writer inside for a number of readers.
    RwLockTakesIdForReaders,
    /// A reader of a robust reader/writer lock does not check the gate after it has acquired its seat.
    RobustRwLockChecksOnce,
    /// The reader checks the gate, but the check may overtake the seat.
    RobustRwLockReaderUnordered,
    /// A writer's check of the seats may overtake the gate.
    RobustRwLockWriterUnordered,
    /// A task waits for others although it has a seat.
    RobustRwLockForgetsOwnSeat,
    /// A writer does not record that it is inside.
    RobustRwLockForgetsWriting,
    /// A task that acquires the gate of a writer that died inside treats it as released.
    RobustRwLockHidesDeath,
    /// A task that acquires the gate of any dead owner assumes that the owner was inside.
    RobustRwLockReportsAllDeaths,
    /// A semaphore is obtained without Acquire when no task waits.
    SemaphoreObtainRelaxed,
    /// A semaphore is released without Release when no task waits.
    SemaphoreReleaseRelaxed,
    /// A semaphore is handed over without a wake-up.
    SemaphoreWakesNobody,
    /// A waiter of a semaphore returns a time-out although it was handed the semaphore.
    SemaphoreGivesUpGranted,
    /// A task queues for a semaphore that has become free meanwhile.
    SemaphoreQueuesUnannounced,
    /// A task may search for a wait-for cycle before its own wait is visible.
    SemaphoreEntersUnordered,
    /// A waiter uses the owner's priority while another task computes it.
    SemaphoreLooksPastBusy,
    /// A task that changes another's priority may check what that one waits for before the change.
    SemaphoreMovesUnordered,
    /// A task that computes a priority clears the mark of waiters after the computation, not before it.
    SemaphoreForgetsLate,
    /// A hand-over does not check that the new owner has the priority of the waiters left.
    SemaphoreHeirUnseen,
    /// A task's search for a cycle may overtake the publication of its own wait.
    CheckWaitUnordered,
    /// A waiting task may state which locks it holds only after the search.
    CheckHolderSaidLate,
}
