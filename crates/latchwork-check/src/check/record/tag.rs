//! The tag at the beginning of a checked lock: a magic number, its own address, its name, and where it was made.
//!
//! | `magic` | `address` | the lock is |
//! | --- | --- | --- |
//! | [`LIVE`] | 0 | made, and not used yet: it may move |
//! | [`LIVE`] | its own | in use, or was |
//! | [`LIVE`] | another | a copy, or moved |
//! | [`ENDED`] | – | dropped |
//! | 0 | – | zeroed memory |
//! | else | – | overwritten |
//!
//! Name and place are stored as text, since a pointer to them would mean nothing to the other processes of a region.
#![allow(unsafe_code)]

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::check::record::sites::hash;
use crate::hook::{Kind, Lock, Site, Traits};
use core::fmt::{self, Write};
use core::panic::Location;

const LIVE: u64 = u64::from_le_bytes(*b"lwcheck1");
const ENDED: u64 = u64::from_le_bytes(*b"lwended1");

const NAME: usize = 24;
const FILE: usize = 48;

/// See the head of this file.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Tag {
    magic: AtomicU64,
    address: AtomicU64,
    name: [u8; NAME],
    file: [u8; FILE],
    line: u32,
    column: u32,
    /// See `holder.rs`; unused in a lock that processes share.
    holder: AtomicU32,
}

/// What a tag says of the memory that it lies in: see the table above.
#[derive(Clone, Copy)]
pub(crate) enum State {
    Unused,
    InUse,
    Copied,
    Zeroed,
    Dropped,
    Overwritten,
}

/// The end of a text (or its beginning), padded with zeros.
const fn padded<const N: usize>(text: &str, from_end: bool) -> [u8; N] {
    let bytes = text.as_bytes();
    let mut start = if from_end && bytes.len() > N {
        bytes.len() - N
    } else {
        0
    };
    // The text is not cut in the middle of a character.
    while start < bytes.len() && bytes[start] & 0xc0 == 0x80 {
        start += 1;
    }
    let mut padded = [0; N];
    let mut at = 0;
    while at < N && start + at < bytes.len() {
        padded[at] = bytes[start + at];
        at += 1;
    }
    padded
}

fn unpadded(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == 0);
    &text[..end.unwrap_or(text.len())]
}

impl Tag {
    pub(crate) const fn new(name: &str, made_at: &Location<'_>) -> Self {
        Self {
            magic: AtomicU64::new(LIVE),
            address: AtomicU64::new(0),
            name: padded(name, false),
            file: padded(made_at.file(), true),
            line: made_at.line(),
            column: made_at.column(),
            holder: AtomicU32::new(0),
        }
    }

    /// The lock that begins with this tag.
    #[inline]
    pub(crate) fn lock(&self, kind: Kind, traits: Traits) -> Lock {
        let lock = Lock::new(core::ptr::from_ref(self).expose_provenance(), kind).with(traits);
        // SAFETY: the address of this tag; the lock is in use, and so alive, as it is reported.
        let lock = unsafe { lock.with_tag() };
        if lock.is_shared() {
            return lock;
        }
        // SAFETY: the word is the lock's own, in a field that nothing else uses while the lock is in use.
        unsafe { lock.with_word(core::mem::offset_of!(Self, holder) as u8) }
    }

    /// The tag of a lock that is flagged as having one.
    pub(crate) fn of(lock: Lock) -> Option<&'static Self> {
        // SAFETY: only `Tag::lock` sets the flag (the contract of `Lock::with_tag`), for a lock that is in use, and so
        // alive, as long as this reference. All fields are valid for any contents of the memory.
        lock.has_tag()
            .then(|| unsafe { &*core::ptr::with_exposed_provenance(lock.address()) })
    }

    #[inline]
    fn own_address(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64
    }

    /// Whether its lock was used here before, and was neither dropped nor overwritten since.
    #[inline]
    pub(crate) fn is_in_place(&self) -> bool {
        // Relaxed, in all of this file: each word is complete by itself.
        self.magic.load(Ordering::Relaxed) == LIVE
            && self.address.load(Ordering::Relaxed) == self.own_address()
    }

    /// What the tag says of the memory of its lock.
    pub(crate) fn state(&self) -> State {
        let address = self.address.load(Ordering::Relaxed);
        match self.magic.load(Ordering::Relaxed) {
            LIVE if address == 0 => State::Unused,
            LIVE if address == self.own_address() => State::InUse,
            LIVE => State::Copied,
            0 => State::Zeroed,
            ENDED => State::Dropped,
            _ => State::Overwritten,
        }
    }

    /// Whether it is neither dropped nor overwritten.
    pub(crate) fn is_live(&self) -> bool {
        self.magic.load(Ordering::Relaxed) == LIVE
    }

    /// Fixes the address, since the lock is now in use. Returns whether that is new. Under the board's lock.
    pub(crate) fn settle(&self) -> bool {
        let (address, own) = (&self.address, self.own_address());
        let settled = address.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
        settled.is_ok()
    }

    /// Whether it has been used.
    pub(crate) fn is_settled(&self) -> bool {
        self.address.load(Ordering::Relaxed) != 0
    }

    /// The name that it was given, if any.
    pub(crate) fn name(&self) -> Option<&str> {
        let mut chunks = unpadded(&self.name).utf8_chunks();
        let name = chunks.next().map_or("", |name| name.valid());
        (!name.is_empty()).then_some(name)
    }

    /// The site number of the place where it was made.
    pub(crate) fn site(&self) -> Site {
        let with = |hash: u64, number: u32| hash.wrapping_mul(31).wrapping_add(number.into());
        Site::of_text(with(with(hash(&self.file), self.line), self.column))
    }

    /// Writes that place as text.
    pub(crate) fn write_place(&self, to: &mut impl Write) -> fmt::Result {
        let file = str::from_utf8(unpadded(&self.file)).unwrap_or("?");
        write!(to, "{file}:{}:{}", self.line, self.column)
    }

    /// The lock is about to be dropped. Returns whether it was in use.
    pub(crate) fn end(&self) -> bool {
        let known = self.address.load(Ordering::Relaxed) == self.own_address();
        self.magic.swap(ENDED, Ordering::Relaxed) == LIVE && known
    }

    /// Makes it the tag of a copy, which says that its lock is elsewhere.
    #[cfg(test)]
    pub(crate) fn pretend_copied(&self) {
        self.address.fetch_add(64, Ordering::Relaxed);
    }
}
