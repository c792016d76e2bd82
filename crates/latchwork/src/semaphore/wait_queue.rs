//! The queue of the waiters, under the object's lock.
//!
//! A doubly-linked list through the records of the waiting tasks, in the order in which they are served. The links, the
//! ends and the count are a cache; the records are the truth. A living task whose record says that it waits for this
//! object is in its queue, and its position follows from priority and ticket.
//!
//! Invariants
//! 1. A record enters the queue (`object` and `WAITING`) and leaves it under the object's lock; or by its task's death,
//!    which changes nothing in the record until the slot has been swept and reused.
//! 2. The slot of a dead task is reused only after its death has been counted. So if a task finds the count of deaths
//!    unchanged since the queue was last repaired ([`Core::recovered`]), and meets only records of living tasks that
//!    wait here, all links that it met are right. The next task in the slot waits for the owner of the lock of the
//!    object that the dead task waited for; so a task that saw the dead one alive holds the lock until it has finished its
//!    writes to the record.
//! 3. A task that finds anything else (the lock of a dead owner, another count, a record that does not belong here)
//!    rebuilds all links. That reads the records only, and can be restarted at any time.

use super::{AttachError, Core, TaskTable, object::QUEUED, task_table::take_lock};
use crate::atomic::AtomicU32;
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::mutex::Acquired;
use crate::region::wait_record::{STATE, WAITING, WaitRecord};
use crate::sys::futex::{self, Sharing};

/// A wake-up for one task, to be carried out after the lock is released. The task may have gone by that time.
#[must_use]
pub(crate) struct Wake(*const AtomicU32);

impl Wake {
    pub(crate) fn carry_out(self) {
        futex::wake(self.0, 1, Sharing::Shared);
    }
}

/// The object, locked.
pub(crate) struct Locked<'a, T: TaskTable> {
    pub(crate) tasks: &'a T,
    pub(crate) core: &'a Core,
}

impl<'a, T: TaskTable> Locked<'a, T> {
    /// Takes the object's lock, and settles what dead tasks left.
    pub(crate) fn new(tasks: &'a T, core: &'a Core) -> Result<Self, AttachError> {
        let acquired = take_lock(&core.lock)?;
        let locked = Self { tasks, core };
        // Relaxed: under the lock.
        let deaths = tasks.deaths();
        if acquired != Acquired::Clean || core.recovered.load(Relaxed) != deaths {
            crate::atomic::unless_disabled!(SemaphoreRecovers, locked.recover(), ());
            core.recovered.store(deaths, Relaxed);
            // SAFETY: taken above.
            unsafe { core.lock.mark_raw_consistent() };
        }
        Ok(locked)
    }

    /// The record in a slot, if its task waits here and lives.
    pub(crate) fn waiter(&self, slot: u16) -> Option<&'a WaitRecord> {
        let record = self.tasks.record(slot)?;
        // Acquire: pairs with the Release of `WaitRecord::init`, and orders the reads below.
        let task = record.task.load(Acquire);
        (record.object.load(Acquire) == self.core.address()
            && record.word.load(Relaxed) & STATE == WAITING
            && self.tasks.is_alive(task))
        .then_some(record)
    }

    /// The record that a link points to.
    fn linked(&self, link: u32) -> Option<&'a WaitRecord> {
        self.waiter(link.checked_sub(1)? as u16)
    }

    /// The waiter that is served next.
    pub(crate) fn first(&self) -> Option<(u16, &'a WaitRecord)> {
        let first = || {
            let slot = self.core.first.load(Relaxed).checked_sub(1)? as u16;
            Some((slot, self.waiter(slot)?))
        };
        if self.is_empty() {
            return None;
        }
        first().or_else(|| {
            self.rebuild_links();
            first()
        })
    }

    /// Whether the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.core.first.load(Relaxed) == 0
    }

    /// Inserts a record at its position; the record says already that its task waits here.
    pub(crate) fn insert(&self, slot: u16) {
        if self.link(slot).is_none() {
            self.rebuild_links();
        }
    }

    /// Unlinks a record while its task still waits: once the task has been notified of the end, it may change the links
    /// itself.
    pub(crate) fn remove(&self, slot: u16) {
        while self.unlink(slot).is_none() {
            self.rebuild_links();
            if self.waiter(slot).is_none() {
                break;
            }
        }
    }

    /// Whether `one` is served before `other`, which arrived later.
    fn is_before(&self, one: &WaitRecord, other: &WaitRecord) -> bool {
        let by_priority = self.core.form().is_by_priority();
        let rank = |record: &WaitRecord| {
            let priority = by_priority.then(|| record.priority.load(Relaxed));
            (priority, record.ticket.load(Relaxed))
        };
        rank(one) <= rank(other)
    }

    /// Links a record; `None` if a link on the way is wrong.
    fn link(&self, slot: u16) -> Option<()> {
        let core = self.core;
        let record = self.tasks.record(slot)?;
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
        for place in self.links_between(before, after)? {
            place.store(link, Relaxed);
        }
        core.waiting.store(core.waiting.load(Relaxed) + 1, Relaxed);
        Some(())
    }

    /// The links, in both directions, to a record with these neighbours; `None` if a neighbour does not wait here.
    fn links_between(&self, before: u32, after: u32) -> Option<[&'a AtomicU32; 2]> {
        let towards = match before {
            0 => &self.core.first,
            before => &self.linked(before)?.next,
        };
        let back = match after {
            0 => &self.core.last,
            after => &self.linked(after)?.previous,
        };
        Some([towards, back])
    }

    fn unlink(&self, slot: u16) -> Option<()> {
        let core = self.core;
        let record = self.tasks.record(slot)?;
        let link = u32::from(slot) + 1;
        let (before, after) = (record.previous.load(Relaxed), record.next.load(Relaxed));
        let [towards, back] = self.links_between(before, after)?;
        if towards.load(Relaxed) != link || back.load(Relaxed) != link {
            return None;
        }
        towards.store(after, Relaxed);
        back.store(before, Relaxed);
        core.waiting.store(core.waiting.load(Relaxed) - 1, Relaxed);
        Some(())
    }

    /// Rebuilds the links of all waiters from their records alone.
    pub(crate) fn rebuild_links(&self) {
        self.core.first.store(0, Relaxed);
        self.core.last.store(0, Relaxed);
        self.core.waiting.store(0, Relaxed);
        for slot in 0..self.tasks.used() {
            // A record whose task died between the two checks is met again by a task that follows the links.
            if self.waiter(slot).is_some() && self.link(slot).is_none() {
                return self.rebuild_links();
            }
        }
    }

    /// Stores the result of a wait in the record of a task that has left the queue; returns its wake-up.
    pub(crate) fn end_wait(record: &WaitRecord, outcome: u32) -> Wake {
        let word = record.word.load(Relaxed);
        // Release: pairs with the Acquire of the waiter, which then sees all earlier writes.
        record.word.store(word & !STATE | outcome, Release);
        Wake(&record.word)
    }

    /// Ends all waits, in the order of the queue; returns their number.
    pub(crate) fn end_all_waits(&self, outcome: u32) -> u32 {
        let mut count = 0;
        while let Some((slot, record)) = self.first() {
            self.remove(slot);
            // Under the lock, so that tasks wake in the order of the queue; none of them needs the lock to go on.
            Self::end_wait(record, outcome).carry_out();
            count += 1;
        }
        self.update_queued_flag();
        count
    }

    /// Sets or clears `QUEUED` in the word, as the queue is.
    pub(crate) fn update_queued_flag(&self) {
        let bit = if self.is_empty() { 0 } else { QUEUED };
        let update = |word| (word & QUEUED != bit).then_some(word & !QUEUED | bit);
        // AcqRel: the word passes on what releases before this one have published.
        let _ = self.core.word.fetch_update(AcqRel, Relaxed, update);
    }

    /// A new ticket.
    pub(crate) fn ticket(&self) -> u64 {
        let ticket = self.core.tickets.load(Relaxed);
        self.core.tickets.store(ticket.wrapping_add(1), Relaxed);
        ticket
    }
}

impl<T: TaskTable> Drop for Locked<'_, T> {
    fn drop(&mut self) {
        // SAFETY: `new` has locked it, and only this value unlocks it.
        unsafe { self.core.lock.unlock_raw() };
    }
}
