//! Counting and simple binary semaphores: a count, and nobody who owns it.
//!
//! | step | one store or compare-and-swap commits it | a kill before it, a kill after it |
//! | --- | --- | --- |
//! | obtain, count > 0 | the count goes down | nothing happened; obtained |
//! | release, nobody waits | the count goes up | nothing happened; released |
//! | release, somebody waits | the first waiter's word: `GRANTED` | links are put right; the waiter is woken by the death |
//!
//! A unit that a task had when it died is gone with it, as in RTEMS: nobody knows that the task had it. One
//! that was handed to a waiter who dies before it returned from its obtain counts as obtained.

use super::ground::Ground;
use super::object::{Core, DELETED, LOW, ONE, QUEUED, is_of, key_of};
use super::wait::{Approach, Me, Patience, acknowledge, wait};
use super::wait_queue::Locked;
use super::{Refusal, ReleaseRefusal, Wake};
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::atomic::unless_fault;
use crate::region::wait_record::GRANTED;

/// Takes a unit if there is one and nobody waits.
///
/// Guesses that there is one only: a look before the exchange would have to wait for the exchange before it,
/// and costs a third of a free pair. Who guesses wrong has seen the count by that.
#[inline(always)]
pub(crate) fn obtain_free(core: &Core, key: u64) -> bool {
    // Acquire: pairs with the releases, each of which is a link in the chain of exchanges.
    let order = unless_fault!(SemaphoreObtainRelaxed, Acquire, Relaxed);
    match core.word.compare_exchange(key | ONE, key, order, Relaxed) {
        Ok(_) => true,
        Err(word) => {
            word & LOW == key
                && word >= ONE
                && core
                    .word
                    .compare_exchange(word, word - ONE, order, Relaxed)
                    .is_ok()
        }
    }
}

/// Adds a unit if there is room and nobody waits.
#[inline(always)]
pub(crate) fn release_free(core: &Core, key: u64, most: u32) -> bool {
    // AcqRel: what was released before goes with it to whoever obtains a unit.
    let order = unless_fault!(SemaphoreReleaseRelaxed, AcqRel, Relaxed);
    match core.word.compare_exchange(key, key | ONE, order, Relaxed) {
        Ok(_) => true,
        Err(word) => {
            word & LOW == key
                && word >> 32 < u64::from(most)
                && core
                    .word
                    .compare_exchange(word, word + ONE, order, Relaxed)
                    .is_ok()
        }
    }
}

/// An obtain that did not find a unit at once.
#[cold]
pub(crate) fn obtain<G: Ground>(
    ground: &G,
    core: &Core,
    key: u64,
    me: Me<'_>,
    patience: Patience,
) -> Result<(), Refusal> {
    let mut approach = Approach::new(core, patience);
    loop {
        let word = core.word.load(Relaxed);
        if !is_of(word, key) {
            return Err(Refusal::NoObject);
        }
        // Who waits comes first.
        if word & QUEUED == 0 && word >= ONE {
            if obtain_free(core, key) {
                approach.ends(true);
                return Ok(());
            }
            continue;
        }
        match patience {
            Patience::Try => return Err(Refusal::WouldBlock),
            Patience::Until(_) if approach.goes_on(me.polls_before_queue()) => {}
            Patience::Until(_) => break,
        }
    }
    approach.ends(false);
    let locked = Locked::new(ground, core)?;
    loop {
        let word = core.word.load(Relaxed);
        if !is_of(word, key) {
            return Err(Refusal::NoObject);
        }
        if word >= ONE && locked.first().is_none() {
            // The flag may be a dead task's.
            if core
                .word
                .compare_exchange(word, (word - ONE) & !QUEUED, AcqRel, Relaxed)
                .is_ok()
            {
                return Ok(());
            }
            continue;
        }
        let Patience::Until(deadline) = patience else {
            return Err(Refusal::WouldBlock);
        };
        if unless_fault!(SemaphoreQueuesUnannounced, locked.announce(word), true) {
            locked.enter(me);
            let seen = core.recovered.load(Relaxed);
            locked.unlock(Wake::NONE);
            wait(ground, core, me, seen, deadline)?;
            acknowledge(me);
            return Ok(());
        }
    }
}

/// A release that did not find room at once, or somebody waiting.
#[cold]
pub(crate) fn release<G: Ground>(
    ground: &G,
    core: &Core,
    key: u64,
    most: u32,
) -> Result<(), ReleaseRefusal> {
    let locked = Locked::new(ground, core)?;
    loop {
        let word = core.word.load(Relaxed);
        if !is_of(word, key) {
            return Err(ReleaseRefusal::Deleted);
        }
        if let Some((slot, record)) = locked.first() {
            locked.remove(slot);
            let wake = Locked::<G>::end_wait(record, GRANTED);
            // Last: until then the flag sends everybody to the lock, where the dead are noticed.
            locked.note_emptiness();
            locked.unlock(unless_fault!(SemaphoreWakesNobody, wake, Wake::NONE));
            return Ok(());
        }
        let full = word >> 32 >= u64::from(most);
        if full && most > 1 {
            return Err(ReleaseRefusal::Overflow);
        }
        // At most 1: silently, but what was before is passed on all the same.
        let more = if full { word } else { word + ONE };
        if core
            .word
            .compare_exchange(word, more & !QUEUED, AcqRel, Relaxed)
            .is_ok()
        {
            return Ok(());
        }
    }
}

/// Ends the object; those who wait are told. `false` if it is none.
pub(crate) fn delete<G: Ground>(
    ground: &G,
    core: &Core,
    key: u64,
) -> Result<bool, crate::task::TaskError> {
    let locked = Locked::new(ground, core)?;
    loop {
        let word = core.word.load(Relaxed);
        if !is_of(word, key) {
            return Ok(false);
        }
        // From here on it is deleted, should this task die: see `recover`.
        let deleted = key_of(word) | DELETED | word & QUEUED;
        if core
            .word
            .compare_exchange(word, deleted, AcqRel, Relaxed)
            .is_ok()
        {
            locked.end_all(crate::region::wait_record::DELETED);
            return Ok(true);
        }
    }
}
