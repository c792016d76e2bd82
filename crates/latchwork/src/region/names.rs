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
//!
//! A kill in mid-insert leaves `CLAIMED`, which the next holder of the lock frees: the name is not
//! poisoned, and the value's block, still private to the dead task, goes with the sweep. The block
//! becomes shared in the step that links it here: see `publish` of the heap.
#![allow(unsafe_code)]

use crate::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::ptr::NonNull;

/// Bytes of a name, at most.
pub(super) const NAME_BYTES: usize = 64;

pub(super) const FREE: u32 = 0;
const CLAIMED: u32 = 1;
pub(super) const READY: u32 = 2;
const REMOVING: u32 = 3;

#[repr(C)]
pub(super) struct Entry {
    pub(super) state: AtomicU32,
    length: AtomicU32,
    pub(super) fingerprint: AtomicU64,
    /// Address of the object, 0 if none.
    pub(super) object: AtomicUsize,
    pub(super) bytes: AtomicU64,
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
            CLAIMED | REMOVING => object,
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
