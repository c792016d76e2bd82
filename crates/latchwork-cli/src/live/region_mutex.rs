//! The mutexes of a region whose words name their owner as a task of the region (`mutex::InRegion`). Their sleepers
//! sleep on the high half of the word; those of the throughput form also on that of the gate, which follows the word.

use super::gather::{Gathering, Located, Subject};
use super::memory::Memory;
use super::picture::{Key, Location};
use super::sleep::Sleep;
use super::word::{self, Classified, Kind, Role, State};
use latchwork::region::inspect::{Contents, TaskState};

/// Bits of the high half: a task may sleep; an owner died, and nobody has repaired the data; a waiter wants the lock
/// handed off.
const WAITERS: u32 = 1;
const INCONSISTENT: u32 = 2;
const REQUEST: u32 = 8;
/// A bit of the gate's high half: a task may sleep there.
const GATE_WAITERS: u32 = 0x100;
/// The gate's place behind the word.
const GATE: u64 = 8;
const FLAGS: u32 = 0xFFFF;

/// The mutex on which a thread sleeps, in a region with these contents. It is recognised by its owner: a task of the
/// region, in the slot and of the generation that the word names.
fn mutex_of(sleep: &Sleep, memory: &Memory, contents: &Contents) -> Option<Classified> {
    let half = size_of::<u32>() as u64;
    let flags = sleep.expected & FLAGS;
    let base = match flags {
        GATE_WAITERS => sleep.address.checked_sub(GATE + half)?,
        _ if flags & !(INCONSISTENT | REQUEST) == WAITERS => sleep.address.checked_sub(half)?,
        _ => return None,
    };
    if base % 8 != 0 {
        return None;
    }
    let (generation, high) = (memory.u32(base)?, memory.u32(base + half)?);
    // Slots are counted from 1 there.
    let slot = ((high >> 16) as u16).checked_sub(1)?;
    let owner = contents.task(slot, generation)?;
    let is_dead = owner.state == TaskState::Unswept;
    Some(Classified {
        base,
        kind: Kind::InRegion,
        state: if is_dead {
            State::OwnerDied
        } else {
            State::Held
        },
        // As `owner_in` reads it.
        owner: (!is_dead).then_some(owner.slot.into()),
        role: Role::Exclusive,
    })
}

impl Gathering {
    /// The object on whose word a thread sleeps.
    pub(super) fn classify(
        &self,
        subject: &Subject,
        sleep: &Sleep,
        located: &Located,
    ) -> Classified {
        let is_private = matches!(located.key, Key::Private { .. });
        let known = |tid: u32| self.thread_of(subject, is_private, tid).is_some();
        let contents = match located.place {
            Location::Region { region, .. } => self.picture.regions[region].contents.as_ref().ok(),
            _ => None,
        };
        contents
            .and_then(|contents| mutex_of(sleep, &subject.memory, contents))
            .unwrap_or_else(|| {
                // What lies in front of the word, or behind it, may be no part of a lock.
                let part = self.maps_of(subject.pid).piece(sleep.address);
                word::classify(sleep, &subject.memory.within(part), &known)
            })
    }

    /// The owner of a lock, if it is one of the threads that were read; else its ID in its own PID namespace.
    pub(super) fn owner_in(
        &self,
        subject: &Subject,
        located: &Located,
        found: &Classified,
    ) -> Option<Result<usize, u32>> {
        let owner = found.owner?;
        let is_private = matches!(located.key, Key::Private { .. });
        if found.kind != Kind::InRegion {
            // None: the ID has been reused by a thread of another process.
            return Some(self.thread_of(subject, is_private, owner).ok_or(owner));
        }
        let Location::Region { region, .. } = located.place else {
            return None;
        };
        let report = &self.picture.regions[region];
        let tasks = &report.contents.as_ref().ok()?.tasks;
        let place = tasks.binary_search_by_key(&owner, |task| task.slot.into());
        let task = &tasks[place.ok()?];
        let thread = self.thread_of_task(report.file, task);
        Some(thread.ok().flatten().ok_or(task.own_thread))
    }

    /// The words that a thread sleeps on, without those of a region's tables, on which tasks sleep for each other's
    /// death.
    pub(super) fn beside_tables(&self, subject: &Subject, mut words: Vec<Sleep>) -> Vec<Sleep> {
        if words.len() > 1 {
            words.retain(|word| self.locate(subject, word.address, word.private).is_some());
        }
        words
    }

    /// The task that a word names, if it can own the lock: for a private word, a thread of the same process.
    pub(super) fn thread_of(&self, subject: &Subject, is_private: bool, tid: u32) -> Option<usize> {
        let task = self.threads.get(&(subject.namespace, tid)).copied();
        task.filter(|task| !is_private || self.picture.tasks[*task].pid == subject.pid)
    }
}
