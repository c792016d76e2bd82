//! Named objects: how the tasks of a region find each other's data.
//!
//! A flat directory of entries behind one robust lock; lookups and inserts are rare.
//!
//! | state | meaning | entered by |
//! | --- | --- | --- |
//! | 0 `FREE` | no object | initially; removal; recovery of a claim |
//! | 1 `CLAIMED` | being filled in under the lock | insert |
//! | 2 `READY` | an object | insert, its last store (Release) |
//! | 3 `REMOVING` | being dropped and freed under the lock | remove |
//! | 4 `MOVING` | its object comes from the spares, or goes there | a name for a spare; the end of its object |
//!
//! *Spares.* The memory of some kinds of objects never becomes anything else: others may look at it after the object's
//! end, and see that it has ended. Its name is free at once; the memory goes to a list of its kind, in the
//! region's header, for the next object. A move has four steps: the state; two stores that change the
//! object's link and the list (or the entry and the list); the state. Killed between them, a task leaves `MOVING`,
//! and the next holder of the lock sees whether the object is in the list: if not, it is put there. The
//! entry is free then, and nothing is lost. An object whose task was killed after its end, and before its name was
//! given up, is found by the next one that makes an object of the kind.
//!
//! A kill in mid-insert leaves `CLAIMED`, which the next holder of the lock frees: the name is not
//! poisoned, and the value's block, still private to the dead task, goes with the sweep. The block
//! becomes shared in the step that links it here: see `publish` of the heap.
#![allow(unsafe_code)]

use crate::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};
use core::ptr::NonNull;

/// Bytes of a name, at most.
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
    /// Of an object whose memory is used again: which list it goes to, from 1, and where in it the link lies; or 0.
    list: AtomicU32,
    link: AtomicU32,
    name: [AtomicU8; NAME_BYTES],
}

impl Entry {
    fn is(&self, name: &str) -> bool {
        // Relaxed: under the directory's lock.
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

    /// Whether the entry has, or is about to have, an object. While nobody changes it.
    pub(super) fn is_in_use(&self) -> bool {
        let object = self.object().is_some();
        match self.state.load(Ordering::Relaxed) {
            FREE => false,
            CLAIMED | REMOVING | MOVING => object,
            _ => true,
        }
    }

    /// The object, which may be anything.
    pub(super) fn object(&self) -> Option<NonNull<u8>> {
        NonNull::new(core::ptr::with_exposed_provenance_mut(
            self.object.load(Ordering::Relaxed),
        ))
    }

    /// Its size.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) as usize
    }

    /// Fills in a claimed entry; the object follows by the heap's publish, then [`Self::ready`].
    pub(super) fn claim(&self, name: &str, fingerprint: u64, bytes: u64) {
        // Relaxed throughout: under the directory's lock, whose release publishes all.
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

    /// The object of a claimed entry goes to this list at its end.
    pub(super) fn set_kind(&self, kind: SpareKind) {
        self.link.store(kind.link as u32, Ordering::Relaxed);
        self.list.store(kind.list as u32 + 1, Ordering::Relaxed);
    }

    fn kind(&self) -> Option<SpareKind> {
        let list = self.list.load(Ordering::Relaxed).checked_sub(1)? as usize;
        let link = self.link.load(Ordering::Relaxed) as usize;
        (list < LISTS).then_some(SpareKind { list, link })
    }

    fn is_moving(&self) {
        self.set(&self.state, MOVING);
    }

    /// A store that a kill finds after all that precedes it, and before all that follows.
    fn set(&self, word: &AtomicU32, value: u32) {
        compiler_fence(Ordering::SeqCst);
        word.store(value, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    pub(super) fn ready(&self) {
        // Release: for the inspector, which reads without the lock.
        self.state.store(READY, Ordering::Release);
    }

    pub(super) fn removing(&self) {
        self.state.store(REMOVING, Ordering::Relaxed);
    }

    pub(super) fn free(&self) {
        self.state.store(FREE, Ordering::Release);
    }
}

/// Finds a name; under the directory's lock.
pub(super) fn find<'a>(entries: &'a [Entry], name: &str) -> Option<&'a Entry> {
    entries
        .iter()
        .find(|entry| entry.state.load(Ordering::Relaxed) == READY && entry.is(name))
}

/// Finds a free entry; under the directory's lock.
pub(super) fn find_free(entries: &[Entry]) -> Option<&Entry> {
    entries
        .iter()
        .find(|entry| entry.state.load(Ordering::Relaxed) == FREE)
}

/// How many lists of spares there are.
pub(super) const LISTS: usize = 4;
/// More spares than a list has, but for one that a hostile hand has made a ring of.
const MOST: usize = 1 << 24;

/// A list of spares, and where its members have their links.
#[derive(Clone, Copy)]
pub(crate) struct SpareKind {
    pub(crate) list: usize,
    pub(crate) link: usize,
}

/// The lists, and how their members are reached: `reach` gives the word at an address of so many bytes into an object, if
/// there is one. All under the directory's lock.
pub(super) struct Spares<'a, F> {
    pub(super) lists: &'a [AtomicUsize; LISTS],
    pub(super) reach: F,
}

impl<'a, F: Fn(usize, usize) -> Option<&'a AtomicUsize>> Spares<'a, F> {
    /// The words that lead to the members of a list, each with its member and that one's link.
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
        .take(MOST)
    }

    /// Gives a claimed entry the first spare of its kind that is right; whether there is one. All are looked at, for
    /// what the dead left in them.
    pub(super) fn take(
        &self,
        entry: &Entry,
        kind: SpareKind,
        mut is_right: impl FnMut(usize) -> bool,
    ) -> bool {
        entry.set_kind(kind);
        let right = self
            .members(kind)
            .filter(|(_, object, _)| is_right(*object));
        let Some((place, object, link)) = right.reduce(|first, _| first) else {
            return false;
        };
        entry.is_moving();
        store(&entry.object, object);
        store(place, link.load(Ordering::Relaxed));
        entry.ready();
        true
    }

    /// The object of an entry has ended: it goes to the spares, and the entry is free.
    pub(super) fn shelve(&self, entry: &Entry) {
        entry.is_moving();
        self.finish_move(entry);
    }

    /// An entry that is `MOVING` becomes free, and its object, if it has one, a spare.
    fn finish_move(&self, entry: &Entry) {
        let object = entry.object.load(Ordering::Relaxed);
        if let Some(kind) = entry.kind()
            && let Some(link) = (self.reach)(object, kind.link)
            && !self.members(kind).any(|(_, member, _)| member == object)
        {
            let first = &self.lists[kind.list];
            store(link, first.load(Ordering::Relaxed));
            store(first, object);
        }
        entry.free();
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

/// As [`Entry::set`].
fn store(word: &AtomicUsize, value: usize) {
    compiler_fence(Ordering::SeqCst);
    word.store(value, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// Finishes or undoes what a dead holder of the lock was doing. An insert whose object is linked
/// already is complete but for its state; an object whose removal began is freed with `retire`,
/// which is given its address and the location that names it.
pub(super) fn repair(entries: &[Entry], retire: impl Fn(NonNull<u8>, &AtomicUsize)) {
    for entry in entries {
        match (entry.state.load(Ordering::Relaxed), entry.object()) {
            (CLAIMED, Some(_)) => entry.ready(),
            (CLAIMED | REMOVING, None) => entry.free(),
            (REMOVING, Some(object)) => {
                retire(object, &entry.object);
                entry.free();
            }
            _ => {}
        }
    }
}
