//! Named objects: how the tasks of a region find each other's data.
//!
//! A flat directory of entries behind one robust lock, the directory's lock; lookups and inserts are rare.
//!
//! | state | meaning | entered by |
//! | --- | --- | --- |
//! | 0 `FREE` | no object | initially; removal; recovery of a claim |
//! | 1 `CLAIMED` | being filled in under the lock | insert |
//! | 2 `READY` | an object | insert, its last store (Release) |
//! | 3 `REMOVING` | being dropped and freed under the lock | remove |
//! | 4 `MOVING` | its object is being taken from the spares, or put there | taking a spare for a name; ending the object |
//!
//! *Spares.* The memory of some kinds of objects is never used for anything else: other tasks may read it after the
//! object's end, and detect that it has ended. The object's name is free at once; its memory goes to a list for its
//! kind, in the region's header, to be used by the next object. A move has four steps: the state; two stores that
//! change the object's link and the list (or the entry and the list); the state. A task killed between them leaves
//! `MOVING`. The next holder of the lock then checks whether the object is in the list, and puts it there if not;
//! the entry becomes free, and nothing is lost. If a task is killed after an object has ended and before its name is
//! free, the next task that creates an object of the kind detects this.
//!
//! A kill during an insert leaves `CLAIMED`, which the next holder of the lock frees: the name is not poisoned, and
//! the sweep frees the value's block, which is still private to the dead task. The block becomes shared in the step
//! that links it here: see `publish` of the heap.
#![allow(unsafe_code)]

use super::word::{commit, pointer, read};
use crate::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};
use core::ptr::NonNull;

/// Maximum length of a name in bytes.
pub(super) const NAME_BYTES: usize = 64;

pub(super) const FREE: u32 = 0;
const CLAIMED: u32 = 1;
pub(super) const READY: u32 = 2;
const REMOVING: u32 = 3;
const MOVING: u32 = 4;

#[repr(C)]
pub(super) struct Entry {
    pub(super) state: AtomicU32,
    length: AtomicU32,
    pub(super) fingerprint: AtomicU64,
    /// Address of the object, 0 if none.
    pub(super) object: AtomicUsize,
    pub(super) bytes: AtomicU64,
    /// For an object whose memory is reused: the number of its list, from 1, and the offset of its link; else 0.
    list: AtomicU32,
    link: AtomicU32,
    name: [AtomicU8; NAME_BYTES],
}

impl Entry {
    fn is(&self, name: &str) -> bool {
        // Relaxed: the caller holds the directory's lock.
        self.length.load(Ordering::Relaxed) as usize == name.len()
            && self
                .name
                .iter()
                .zip(name.bytes())
                .all(|(place, byte)| place.load(Ordering::Relaxed) == byte)
    }

    pub(super) fn name(&self) -> String {
        let length = (self.length.load(Ordering::Relaxed) as usize).min(NAME_BYTES);
        let bytes: Vec<u8> = self.name[..length]
            .iter()
            .map(|byte| byte.load(Ordering::Relaxed))
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether the entry has, or is about to have, an object. No task may change the entry meanwhile.
    pub(super) fn is_in_use(&self) -> bool {
        let object = self.object().is_some();
        match self.state.load(Ordering::Relaxed) {
            FREE => false,
            CLAIMED | REMOVING | MOVING => object,
            _ => true,
        }
    }

    /// The object's address, which is not validated.
    pub(super) fn object(&self) -> Option<NonNull<u8>> {
        pointer(read(&self.object))
    }

    /// The object's size.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) as usize
    }

    /// Fills in a claimed entry; the heap's publish then stores the object, and [`Self::mark_ready`] follows.
    pub(super) fn claim(&self, name: &str, fingerprint: u64, bytes: u64) {
        // Relaxed throughout: the caller holds the directory's lock, whose release publishes everything.
        self.state.store(CLAIMED, Ordering::Relaxed);
        self.object.store(0, Ordering::Relaxed);
        self.length.store(name.len() as u32, Ordering::Relaxed);
        for (place, byte) in self.name.iter().zip(name.bytes()) {
            place.store(byte, Ordering::Relaxed);
        }
        self.fingerprint.store(fingerprint, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.list.store(0, Ordering::Relaxed);
    }

    /// Sets the list that the object of a claimed entry goes to at its end.
    pub(super) fn set_kind(&self, kind: SpareKind) {
        self.link.store(kind.link as u32, Ordering::Relaxed);
        self.list.store(kind.list as u32 + 1, Ordering::Relaxed);
    }

    fn kind(&self) -> Option<SpareKind> {
        let list = self.list.load(Ordering::Relaxed).checked_sub(1)? as usize;
        let link = self.link.load(Ordering::Relaxed) as usize;
        (list < LISTS).then_some(SpareKind { list, link })
    }

    fn mark_moving(&self) {
        // In its place in program order, like a [`commit`].
        compiler_fence(Ordering::SeqCst);
        self.state.store(MOVING, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    pub(super) fn mark_ready(&self) {
        // Release: for the inspector, which reads without the lock.
        self.state.store(READY, Ordering::Release);
    }

    pub(super) fn mark_removing(&self) {
        self.state.store(REMOVING, Ordering::Relaxed);
    }

    pub(super) fn mark_free(&self) {
        self.state.store(FREE, Ordering::Release);
    }
}

/// Finds a name. The caller holds the directory's lock.
pub(super) fn find<'a>(entries: &'a [Entry], name: &str) -> Option<&'a Entry> {
    let is_it = |entry: &&Entry| entry.state.load(Ordering::Relaxed) == READY && entry.is(name);
    entries.iter().find(is_it)
}

/// Finds a free entry. The caller holds the directory's lock.
pub(super) fn find_free(entries: &[Entry]) -> Option<&Entry> {
    let is_free = |entry: &&Entry| entry.state.load(Ordering::Relaxed) == FREE;
    entries.iter().find(is_free)
}

/// The number of lists of spares.
pub(super) const LISTS: usize = 4;
/// An upper bound of the length of a list, so that a walk ends even if an attacker made the list circular.
const MAX_SPARES: usize = 1 << 24;

/// A list of spares, and the offset of the link in its members.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct SpareKind {
    pub list: usize,
    pub link: usize,
}

/// The lists, and access to their members: `reach` returns the word at an offset in an object, if there is one. The
/// caller of any method holds the directory's lock.
pub(super) struct Spares<'a, F> {
    pub(super) lists: &'a [AtomicUsize; LISTS],
    pub(super) reach: F,
}

impl<'a, F: Fn(usize, usize) -> Option<&'a AtomicUsize>> Spares<'a, F> {
    /// The words that lead to the members of a list, each with the member's address and the member's link.
    fn members(
        &self,
        kind: SpareKind,
    ) -> impl Iterator<Item = (&'a AtomicUsize, usize, &'a AtomicUsize)> {
        let mut place = &self.lists[kind.list];
        core::iter::from_fn(move || {
            let object = place.load(Ordering::Relaxed);
            let link = (self.reach)(object, kind.link)?;
            Some((core::mem::replace(&mut place, link), object, link))
        })
        .take(MAX_SPARES)
    }

    /// Gives a claimed entry the first spare of its kind for which `is_usable` returns true. Returns whether there is
    /// one. `is_usable` sees all spares, since it also cleans up what dead tasks left in them.
    pub(super) fn take(
        &self,
        entry: &Entry,
        kind: SpareKind,
        mut is_usable: impl FnMut(usize) -> bool,
    ) -> bool {
        entry.set_kind(kind);
        let usable = self
            .members(kind)
            .filter(|(_, object, _)| is_usable(*object));
        let Some((place, object, link)) = usable.reduce(|first, _| first) else {
            return false;
        };
        entry.mark_moving();
        commit(&entry.object, object);
        commit(place, link.load(Ordering::Relaxed));
        entry.mark_ready();
        true
    }

    /// Moves the object of an entry, which has ended, to the spares, and frees the entry.
    pub(super) fn return_to_spares(&self, entry: &Entry) {
        entry.mark_moving();
        self.finish_move(entry);
    }

    /// Frees an entry that is `MOVING`; its object, if it has one, becomes a spare.
    fn finish_move(&self, entry: &Entry) {
        let object = entry.object.load(Ordering::Relaxed);
        if let Some(kind) = entry.kind()
            && let Some(link) = (self.reach)(object, kind.link)
            && !self.members(kind).any(|(_, member, _)| member == object)
        {
            let first = &self.lists[kind.list];
            commit(link, first.load(Ordering::Relaxed));
            commit(first, object);
        }
        entry.mark_free();
    }

    /// Finishes or undoes the moves of a dead holder of the lock.
    pub(super) fn repair(&self, entries: &[Entry]) {
        for entry in entries {
            if entry.state.load(Ordering::Relaxed) == MOVING {
                self.finish_move(entry);
            }
        }
    }
}

/// Finishes or undoes the operation of a dead holder of the lock. An insert whose object is already linked is
/// complete except for its state. An object whose removal began is freed with `retire`, which receives its address
/// and the location that names it.
pub(super) fn repair(entries: &[Entry], retire: impl Fn(NonNull<u8>, &AtomicUsize)) {
    for entry in entries {
        match (entry.state.load(Ordering::Relaxed), entry.object()) {
            (CLAIMED, Some(_)) => entry.mark_ready(),
            (CLAIMED | REMOVING, None) => entry.mark_free(),
            (REMOVING, Some(object)) => {
                retire(object, &entry.object);
                entry.mark_free();
            }
            _ => {}
        }
    }
}
