//! The queue of those who wait, under the object's lock.
//!
//! A doubly-linked list through the records of the waiting tasks, in the order in which they are served.
//! The links, the ends and the count are a cache. The truth is in the records: who says of itself that it
//! waits for this object, and lives, stands in its queue, and where it stands follows from priority and
//! ticket.
//!
//! Invariants
//! 1. A record enters the queue (`object` and `WAITING`) and leaves it under the object's lock; or by its
//!    task's death, which changes nothing in the record until the slot has been swept and taken anew.
//! 2. The slot of a dead task is taken anew only after its death has been counted. So who finds the count
//!    of deaths as it was when the queue was last put in order ([`Core::recovered`]) and meets only
//!    records of living tasks that wait here has met no other links. And the next task in the slot goes once
//!    through the lock of what the dead one waited for: who saw that one alive has the lock until it has
//!    written what it writes to the record.
//! 3. Whoever finds anything else (the lock of a dead task, another count, a record that does not belong
//!    here) links all anew. That reads the records and nothing else, and can be done again from the
//!    beginning at any time.

use super::Wake;
use super::ground::Ground;
use super::object::{Core, QUEUED};
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::mutex::{Acquired, RawError};
use crate::region::wait_record::{STATE, WAITING, WaitRecord};
use crate::task::TaskError;

/// The object, locked.
pub(crate) struct Locked<'a, G: Ground> {
    pub(crate) ground: &'a G,
    pub(crate) core: &'a Core,
}

impl<'a, G: Ground> Locked<'a, G> {
    /// Takes the object's lock, and puts right what the dead have left.
    pub(crate) fn new(ground: &'a G, core: &'a Core) -> Result<Self, TaskError> {
        // SAFETY: a core stays where it is, and is never anything else.
        let acquired = unsafe { core.lock.lock_raw(None) };
        let locked = match acquired {
            Ok(_) => Self { ground, core },
            Err(RawError::Unavailable(error)) => return Err(error),
            Err(_) => crate::fatal(format_args!(
                "a semaphore was used by a signal handler that interrupted its use"
            )),
        };
        // Relaxed: under the lock.
        let deaths = ground.deaths();
        if acquired != Ok(Acquired::Clean) || core.recovered.load(Relaxed) != deaths {
            locked.recover();
            core.recovered.store(deaths, Relaxed);
            core.lock.mark_consistent();
        }
        Ok(locked)
    }

    /// Releases the lock, then wakes somebody.
    pub(crate) fn unlock(self, wake: Wake) {
        drop(self);
        wake.carry_out();
    }

    /// The record in a slot, if its task waits here and lives.
    fn member(&self, slot: u16) -> Option<&'a WaitRecord> {
        let record = self.ground.record(slot)?;
        // Acquire: pairs with the Release of `settle_in`, and orders the looks.
        let task = record.task.load(Acquire);
        (record.object.load(Acquire) == self.core.address()
            && record.word.load(Relaxed) & STATE == WAITING
            && self.ground.is_alive(task))
        .then_some(record)
    }

    /// The record that a link leads to.
    fn linked(&self, link: u32) -> Option<&'a WaitRecord> {
        self.member(link.checked_sub(1)? as u16)
    }

    /// Who is served next.
    pub(crate) fn first(&self) -> Option<(u16, &'a WaitRecord)> {
        let first = || {
            let link = self.core.first.load(Relaxed);
            Some((link.checked_sub(1)? as u16, self.linked(link)?))
        };
        if self.core.first.load(Relaxed) == 0 {
            return None;
        }
        first().or_else(|| {
            self.link_anew();
            first()
        })
    }

    /// Who waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.core.first.load(Relaxed) == 0
    }

    /// Puts a record that says already that its task waits here where it belongs.
    pub(crate) fn insert(&self, slot: u16) {
        if self.link(slot).is_none() {
            self.link_anew();
        }
    }

    /// Takes a record out of the links, while its task still waits: once it is told that it does not, the
    /// links are its own to change.
    pub(crate) fn remove(&self, slot: u16) {
        while self.unlink(slot).is_none() {
            self.link_anew();
            if self.member(slot).is_none() {
                break;
            }
        }
    }

    /// Whether `one` is served before `other`, who came later.
    fn is_before(&self, one: &WaitRecord, other: &WaitRecord) -> bool {
        let priority = |record: &WaitRecord| {
            if self.core.form().is_by_priority() {
                record.priority.load(Relaxed)
            } else {
                0
            }
        };
        let ticket = |record: &WaitRecord| record.ticket.load(Relaxed);
        (priority(one), ticket(one)) <= (priority(other), ticket(other))
    }

    /// `None` if there is a link that leads elsewhere.
    fn link(&self, slot: u16) -> Option<()> {
        let core = self.core;
        let record = self.ground.record(slot)?;
        let mut before = core.last.load(Relaxed);
        let mut after = 0;
        while before != 0 {
            let other = self.linked(before)?;
            if self.is_before(other, record) {
                break;
            }
            after = before;
            before = other.previous.load(Relaxed);
        }
        let link = u32::from(slot) + 1;
        record.previous.store(before, Relaxed);
        record.next.store(after, Relaxed);
        match before {
            0 => &core.first,
            before => &self.linked(before)?.next,
        }
        .store(link, Relaxed);
        match after {
            0 => &core.last,
            after => &self.linked(after)?.previous,
        }
        .store(link, Relaxed);
        core.waiting.store(core.waiting.load(Relaxed) + 1, Relaxed);
        Some(())
    }

    fn unlink(&self, slot: u16) -> Option<()> {
        let core = self.core;
        let record = self.ground.record(slot)?;
        let link = u32::from(slot) + 1;
        let (before, after) = (record.previous.load(Relaxed), record.next.load(Relaxed));
        let towards = match before {
            0 => &core.first,
            before => &self.linked(before)?.next,
        };
        let back = match after {
            0 => &core.last,
            after => &self.linked(after)?.previous,
        };
        if towards.load(Relaxed) != link || back.load(Relaxed) != link {
            return None;
        }
        towards.store(after, Relaxed);
        back.store(before, Relaxed);
        core.waiting.store(core.waiting.load(Relaxed) - 1, Relaxed);
        Some(())
    }

    /// Links all who wait, from their records alone.
    pub(crate) fn link_anew(&self) {
        self.core.first.store(0, Relaxed);
        self.core.last.store(0, Relaxed);
        self.core.waiting.store(0, Relaxed);
        for slot in 0..self.ground.used() {
            // One that has died since is met again by who needs the links.
            if self.member(slot).is_some() && self.link(slot).is_none() {
                return self.link_anew();
            }
        }
    }

    /// The record in a slot, if its task waits here.
    pub(crate) fn waiter(&self, slot: u16) -> Option<&'a WaitRecord> {
        self.member(slot)
    }

    /// Tells a task that stands in the queue no more how its wait ended.
    pub(crate) fn end_wait(record: &WaitRecord, outcome: u32) -> Wake {
        let word = record.word.load(Relaxed);
        // Release: pairs with the Acquire of the waiter: it sees all that was before.
        record.word.store(word & !STATE | outcome, Release);
        Wake::of(&record.word)
    }

    /// Ends the waits of all, in the order of the queue.
    pub(crate) fn end_all(&self, outcome: u32) -> u32 {
        let mut count = 0;
        while let Some((slot, record)) = self.first() {
            self.remove(slot);
            let wake = Self::end_wait(record, outcome);
            // Under the lock: the order is that of the queue, and nobody needs the lock to go on.
            wake.carry_out();
            count += 1;
        }
        self.note_emptiness();
        count
    }

    /// Says in the word whether anybody waits.
    pub(crate) fn note_emptiness(&self) {
        let bit = if self.is_empty() { 0 } else { QUEUED };
        let mut word = self.core.word.load(Relaxed);
        while word & QUEUED != bit {
            // AcqRel: the word passes on what releases before this one have published.
            match self
                .core
                .word
                .compare_exchange(word, word & !QUEUED | bit, AcqRel, Relaxed)
            {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
    }

    /// A new ticket.
    pub(crate) fn ticket(&self) -> u64 {
        let ticket = self.core.tickets.load(Relaxed);
        self.core.tickets.store(ticket.wrapping_add(1), Relaxed);
        ticket
    }
}

impl<G: Ground> Drop for Locked<'_, G> {
    fn drop(&mut self) {
        // SAFETY: locked by `new`.
        unsafe { self.core.lock.unlock_raw() };
    }
}
