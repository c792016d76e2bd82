//! Named objects: how the tasks of a region find each other's data.
//!
//! A flat directory of entries behind one region lock, the directory's lock (`header.rs` has the order of locks). An object
//! takes the first free entry from its name's *home* on. The header knows how far from its home an entry lies at most
//! (`names_reach`), so a lookup ends there. The reach grows before the entry is claimed, and never shrinks: a task that is
//! killed in between leaves it too large at worst. In a directory that is at most four fifths full it stays small.
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
//! free, a task that creates an object of the kind after the death was detected frees it (`spares.rs`).
//!
//! A kill during an insert leaves `CLAIMED`, which the next holder of the lock frees: the name is not poisoned, and
//! the sweep frees the value's block, which is still private to the dead task. The block becomes shared in the step
//! that links it here: see `publish` of the heap.
#![allow(unsafe_code)]

use super::word::{commit, pointer, read, text};
use crate::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};
use core::ptr::NonNull;

/// Maximum length of a name in bytes.
pub(super) const NAME_BYTES: usize = 64;

pub(super) const FREE: u32 = 0;
pub(super) const CLAIMED: u32 = 1;
pub(super) const READY: u32 = 2;
pub(super) const REMOVING: u32 = 3;
pub(super) const MOVING: u32 = 4;

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

/// The entries in which the object of a name may be, in a directory of so many, of which each lies at most `reach` after its
/// home.
pub(super) fn places(
    name: &str,
    entries: usize,
    reach: u32,
) -> impl Iterator<Item = usize> + use<> {
    let home = home(name, entries);
    // A malicious file may claim any reach.
    let last = (reach as usize).min(entries.saturating_sub(1));
    (0..=last).map(move |step| (home + step) % entries)
}

/// Where the search for a name begins. (FNV-1a; its high bits, which decide here, hardly depend on the last bytes: so the bits
/// are mixed once more.)
fn home(name: &str, entries: usize) -> usize {
    let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    });
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((u128::from(mixed) * entries as u128) >> 64) as usize
}

impl Entry {
    pub(super) fn is(&self, name: &str) -> bool {
        // Relaxed: the caller holds the directory's lock.
        let bytes = self.name.iter().map(|place| place.load(Ordering::Relaxed));
        self.length.load(Ordering::Relaxed) as usize == name.len()
            && bytes.take(name.len()).eq(name.bytes())
    }

    /// Whether the name has as many bytes as a name can have.
    pub(super) fn has_sound_length(&self) -> bool {
        self.length.load(Ordering::Relaxed) as usize <= NAME_BYTES
    }

    pub(super) fn name(&self) -> String {
        let length = (self.length.load(Ordering::Relaxed) as usize).min(NAME_BYTES);
        text(&self.name[..length])
    }

    /// Whether the entry has, or is about to have, an object. No task may change the entry meanwhile.
    pub(super) fn is_in_use(&self) -> bool {
        match self.state.load(Ordering::Relaxed) {
            FREE => false,
            CLAIMED | REMOVING | MOVING => self.object().is_some(),
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
        // Relaxed throughout: the caller holds the directory's lock, whose release publishes everything. The object comes
        // first: a claimed entry with an object is taken for one whose object is made.
        commit(&self.object, 0);
        self.state.store(CLAIMED, Ordering::Relaxed);
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

    pub(super) fn kind(&self) -> Option<SpareKind> {
        let list = self.list.load(Ordering::Relaxed).checked_sub(1)? as usize;
        let link = self.link.load(Ordering::Relaxed) as usize;
        (list < LISTS).then_some(SpareKind { list, link })
    }

    pub(super) fn mark_moving(&self) {
        // In its place in program order, like a [`commit`](super::word::commit).
        compiler_fence(Ordering::SeqCst);
        self.state.store(MOVING, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    pub(super) fn mark_ready(&self) {
        // Release: for the inspector, which reads without the lock.
        self.state.store(READY, Ordering::Release);
    }

    pub(super) fn mark_free(&self) {
        self.state.store(FREE, Ordering::Release);
    }
}

/// The number of lists of spares.
pub(super) const LISTS: usize = 4;

/// A list of spares, and the offset of the link in its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct SpareKind {
    pub list: usize,
    pub link: usize,
}
