//! Counting and simple binary semaphores: a count without an owner.
//!
//! | operation | the store or compare-and-swap that commits it | a kill before it; a kill after it |
//! | --- | --- | --- |
//! | obtain, count > 0 | the count goes down | nothing happened; obtained |
//! | release, no task waits | the count goes up | nothing happened; released |
//! | release, a task waits | the first waiter's word: `GRANTED` | the links are repaired; the waiter's sleep ends after the death |
//!
//! A unit that a task had when it died is lost, as in RTEMS: no record says that the task had it. A unit that was
//! handed to a waiter which dies before its obtain returns counts as obtained.

use super::object::{LOW, ONE, QUEUED, is_of};
use super::wait::{AdaptiveSpin, acknowledge, wait};
use super::{Access, Core, Locked, Refusal, ReleaseError, TaskTable, WaitLimit};
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::atomic::unless_fault;
use crate::region::wait_record::GRANTED;

/// Takes a unit if there is one and no task waits.
///
/// The first attempt guesses that the count is 1. A read before the exchange would have to wait for the previous
/// exchange, and costs a third of the time of an uncontended pair. A wrong guess returns the count.
#[inline(always)]
pub(crate) fn obtain_free(core: &Core, key: u64) -> bool {
    // Acquire: pairs with the releases, each of which is a link in the chain of exchanges.
    let order = unless_fault!(SemaphoreObtainRelaxed, Acquire, Relaxed);
    let exchange = |word, by| core.word.compare_exchange(word, by, order, Relaxed);
    match exchange(key | ONE, key) {
        Ok(_) => true,
        Err(word) => word & LOW == key && word >= ONE && exchange(word, word - ONE).is_ok(),
    }
}

/// Adds a unit if there is room and no task waits.
#[inline(always)]
pub(crate) fn release_free(core: &Core, key: u64, max: u32) -> bool {
    // AcqRel: what was released before passes on to the task that obtains a unit.
    let order = unless_fault!(SemaphoreReleaseRelaxed, AcqRel, Relaxed);
    let exchange = |word, by| core.word.compare_exchange(word, by, order, Relaxed);
    match exchange(key, key | ONE) {
        Ok(_) => true,
        Err(word) => {
            let has_room = word & LOW == key && word >> 32 < u64::from(max);
            has_room && exchange(word, word + ONE).is_ok()
        }
    }
}

/// The slow path of an obtain: there was no unit at once.
#[cold]
pub(crate) fn obtain<T: TaskTable>(
    access: &Access<'_, T>,
    limit: WaitLimit,
) -> Result<(), Refusal> {
    let (tasks, core, key, caller) = access.parts();
    let mut spin = AdaptiveSpin::new(core, limit);
    loop {
        let word = core.word.load(Relaxed);
        if !is_of(word, key) {
            return Err(Refusal::NoObject);
        }
        // Waiters come first.
        if word & QUEUED == 0 && word >= ONE {
            if obtain_free(core, key) {
                spin.finish(true);
                return Ok(());
            }
            // Another task was faster. (Or the word has flags that no such word has, in a file that was written into: the
            // exchange would fail for ever, and the one under the lock removes them.)
            if word & LOW == key {
                continue;
            }
            break;
        }
        match limit {
            WaitLimit::Try => return Err(Refusal::WouldBlock),
            WaitLimit::Until(_) => {
                if !spin.poll_again(caller.polls_before_queue(), word & QUEUED != 0) {
                    break;
                }
            }
        }
    }
    spin.finish(false);
    let locked = Locked::new(tasks, core)?;
    loop {
        let word = core.word.load(Relaxed);
        if !is_of(word, key) {
            return Err(Refusal::NoObject);
        }
        if word >= ONE && locked.first().is_none() {
            // `QUEUED` may be of a dead task.
            if core.replace(word, (word - ONE) & !LOW | key) {
                return Ok(());
            }
            continue;
        }
        let WaitLimit::Until(deadline) = limit else {
            return Err(Refusal::WouldBlock);
        };
        if unless_fault!(SemaphoreQueuesUnannounced, locked.set_queued(word), true) {
            locked.enqueue(caller);
            let settled = core.recovered.load(Relaxed);
            drop(locked);
            wait(access, settled, deadline)?;
            acknowledge(caller);
            return Ok(());
        }
    }
}

/// The slow path of a release: there was no room at once, or a task waits.
#[cold]
pub(crate) fn release<T: TaskTable>(access: &Access<'_, T>, max: u32) -> Result<(), ReleaseError> {
    let (tasks, core, key, _) = access.parts();
    let locked = Locked::new(tasks, core)?;
    loop {
        let word = core.word.load(Relaxed);
        if !is_of(word, key) {
            return Err(ReleaseError::Deleted);
        }
        if let Some((slot, record)) = locked.first() {
            locked.remove(slot);
            let wake = Locked::<T>::end_wait(record, GRANTED);
            // Last: until then the flag sends all tasks to the lock, where deaths are detected.
            locked.update_queued_flag();
            drop(locked);
            unless_fault!(SemaphoreWakesNobody, wake.carry_out(), ());
            return Ok(());
        }
        let full = word >> 32 >= u64::from(max);
        if full && max > 1 {
            return Err(ReleaseError::Overflow);
        }
        // A simple binary semaphore stays at 1, without an error; the exchange still publishes what was done before.
        let more = if full { word } else { word + ONE };
        if core.replace(word, more & !QUEUED) {
            return Ok(());
        }
    }
}
