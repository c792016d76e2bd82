//! Validation of what a region's objects hold: the second part of a checked attach, after that of the tables.
//!
//! An attach knows no types, so the caller [declares](super::RegionOptions::holds) them. Each name in the directory leads
//! to a block and a fingerprint; the fingerprint selects the declared type; and the type's [`Validate`] follows what an
//! object of that type points to. A name of a type that was not declared is refused.
//!
//! *What holds after it.* Each pointer that the declared types follow leads to the beginning of an allocated block that is
//! large enough, and no two lead to the same block: each is *claimed* once. So no list is circular, no node belongs to two
//! containers, and no walk follows more blocks than there are. (The search for a map's entries has a bound of its own.) Each
//! value is one of its type. Each lock is as a death leaves it. What a death may leave in the middle of an operation is accepted, since the next owner finishes it.
//!
//! *What is not checked:* whether a value makes sense to the program, whether a key is in the slot that its hash selects
//! (if not, it is not found), and whether an allocated block belongs to something.
//!
//! *Why nothing changes meanwhile.* No other process has the file, as the file's lock says, and no task lives. A process
//! that writes without that lock can do so at any time, and no check helps against it.
#![allow(unsafe_code)]

mod locks;
mod plain;
mod reused;

#[doc(hidden)]
pub use reused::ReusedContent;

use super::names::{self, MOVING, READY, REMOVING, SpareKind};
use super::word::{pointer, read};
use super::{AttachError, Inner, Shareable, Unsound};
use crate::atomic::{AtomicUsize, Ordering};
use core::alloc::Layout;
use core::ptr::NonNull;
use std::collections::{HashMap, HashSet};

/// Types whose values a [checked attach](super::RegionOptions::checked) can validate.
///
/// Derive it beside [`Shareable`]. Numbers, `bool`, `char`, arrays, tuples, the containers of [`region`](super), robust
/// locks, and the locks and primitives that have no kernel-defined owner implement it. `Option` does not: its encoding
/// belongs to the compiler. (A `repr` enum of your own can take its place.)
///
/// ```
/// use latchwork::mutex::{InRegion, Mutex};
/// use latchwork::region::{HashMap, Shareable, String, Validate};
///
/// #[derive(Shareable, Validate)]
/// #[repr(C)]
/// struct Shop {
///     stock: Mutex<HashMap<String, u64>, InRegion>,
///     is_open: bool,
/// }
/// ```
///
/// Not for a packed type, whose fields are not aligned:
///
/// ```compile_fail
/// use latchwork::region::{Shareable, Validate};
///
/// #[derive(Shareable, Validate)]
/// #[repr(C, packed)]
/// struct Packed {
///     tag: u8,
///     sign: char,
/// }
/// ```
///
/// # Safety
/// If `validate` returns `Ok`, the place holds a value of the type, in which every pointer was claimed; and it reads
/// nothing but the place and what it has claimed.
#[diagnostic::on_unimplemented(
    message = "a checked attach cannot validate `{Self}`",
    label = "not `Validate`",
    note = "#[derive(Validate)] for your own types; an `Option` has no encoding that could be checked"
)]
pub unsafe trait Validate: Shareable + Sized {
    /// Validates the value at a place whose bytes may be anything. It may finish what a dead task left unfinished.
    ///
    /// # Safety
    /// The place is aligned, in a block of the region that is large enough, and no task uses it.
    ///
    /// # Errors
    /// What is wrong, and where.
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound>;
}

/// A kind of named objects: how a checked attach recognises and validates one.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Content {
    pub fingerprint: u64,
    /// The list to which such an object goes at its end, if its memory is used again, and its size.
    pub reused: Option<(SpareKind, usize)>,
    /// Gets the object's address and the size that the directory gives; a block of that size is there.
    pub validate: unsafe fn(NonNull<u8>, usize, &mut Validator<'_>) -> Result<(), Unsound>,
}

/// Types of named objects that a checked attach knows: those that are [`Validate`], and the library's own, such as queues
/// and semaphores.
///
/// # Safety
/// [`Content::validate`] refuses what is no object of the type, and [`Content::reused`] is where such an object goes.
pub unsafe trait KnownContent {
    #[doc(hidden)]
    fn content() -> Content;
}

// SAFETY: `Validate` refuses what is no value of the type; an object of the program's own goes to no list.
unsafe impl<T: Validate> KnownContent for T {
    fn content() -> Content {
        Content {
            fingerprint: T::FINGERPRINT,
            reused: None,
            validate: |place, bytes, region| {
                let object = place.cast::<T>();
                if bytes != size_of::<T>() || !object.is_aligned() {
                    return Err(region.unsound(place, "its size or alignment is not its type's"));
                }
                // SAFETY: aligned, and in a block of that size; no task lives.
                unsafe { T::validate(object, region) }
            },
        }
    }
}

/// What a checked attach expects to find.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected {
    pub(super) contents: Vec<Content>,
    /// Objects of other types are accepted as they are.
    pub(super) accepts_others: bool,
}

/// A checked attach at work: which blocks it has met.
pub struct Validator<'r> {
    inner: &'r Inner,
    object: String,
    claimed: HashSet<usize>,
    /// The memory of ended objects, and in which list it is.
    spares: HashMap<usize, usize>,
    /// The cells that an undo log may restore, while one with records is validated.
    cells: Option<HashSet<usize>>,
}

impl<'r> Validator<'r> {
    /// The region.
    #[doc(hidden)]
    #[must_use]
    pub fn inner(&self) -> &'r Inner {
        self.inner
    }

    /// The error for a place.
    #[must_use]
    pub fn unsound<T: ?Sized>(&self, place: NonNull<T>, what: &'static str) -> Unsound {
        Unsound {
            object: self.object.clone(),
            offset: (place.addr().get()).wrapping_sub(self.inner.base().addr().get()),
            what,
        }
    }

    /// The block to which a word at `place` leads: of at least this layout, and met for the first time.
    #[doc(hidden)]
    pub fn claim<T: ?Sized>(
        &mut self,
        place: NonNull<T>,
        address: usize,
        layout: Layout,
    ) -> Result<NonNull<u8>, Unsound> {
        let block = pointer(address).filter(|_| address.is_multiple_of(layout.align()));
        let Some((block, _)) = self.inner.block(block, layout.size()) else {
            return Err(self.unsound(place, "a pointer leads to no block of its size"));
        };
        if !self.claimed.insert(address) {
            return Err(self.unsound(place, "two pointers lead to one block"));
        }
        // A block in use belongs to nobody: as one of a task's own, it would be freed at the death of the next task that
        // gets its span.
        // SAFETY: an allocated block, which no task uses.
        unsafe { self.inner.heap.keep(block) };
        Ok(block)
    }

    /// Whether a block that was claimed has as many bytes.
    pub(super) fn has_room(&self, block: NonNull<u8>, bytes: usize) -> bool {
        self.inner.block(Some(block), bytes).is_some()
    }

    /// A cell that an undo log may restore.
    pub(super) fn meet_cell(&mut self, address: usize) {
        if let Some(cells) = &mut self.cells {
            cells.insert(address);
        }
    }

    /// Runs `step`, and returns the cells that it met.
    pub(super) fn cells_met(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<(), Unsound>,
    ) -> Result<HashSet<usize>, Unsound> {
        let outer = self.cells.replace(HashSet::new());
        let result = step(self);
        let met = core::mem::replace(&mut self.cells, outer).unwrap_or_default();
        if let Some(outer) = &mut self.cells {
            outer.extend(&met);
        }
        result.map(|()| met)
    }
}

/// Validates the directory, and the objects that it names. Only for a region that no other process has, whose tables were
/// validated.
pub(super) fn check(inner: &Inner, expected: &Expected) -> Result<(), AttachError> {
    let mut validator = Validator {
        inner,
        object: String::new(),
        claimed: HashSet::new(),
        spares: HashMap::new(),
        cells: None,
    };
    validator.spares(expected)?;
    for entry in inner.entries() {
        validator.entry(entry, expected)?;
    }
    Ok(())
}

impl Validator<'_> {
    fn spares(&mut self, expected: &Expected) -> Result<(), AttachError> {
        for (list, first) in self.inner.header().spares.iter().enumerate() {
            let mut address = read(first);
            let mut place = NonNull::from(first);
            "(memory of ended objects)".clone_into(&mut self.object);
            let known = (expected.contents.iter()).find_map(|content| {
                Some((
                    content,
                    content.reused.filter(|(kind, _)| kind.list == list)?,
                ))
            });
            let Some((content, (kind, bytes))) = known else {
                if address != 0 && !expected.accepts_others {
                    return Err(AttachError::UnknownType {
                        object: self.object.clone(),
                    });
                }
                // Nothing is known of this memory, so it is not used again.
                first.store(0, Ordering::Relaxed);
                continue;
            };
            while address != 0 {
                let layout = Layout::from_size_align(bytes, align_of::<usize>());
                let layout = layout.map_err(|_| self.unsound(place, "its size is out of range"))?;
                let object = self.claim(place, address, layout)?;
                self.spares.insert(address, list);
                // SAFETY: a block of that size, which no task uses.
                unsafe { (content.validate)(object, bytes, self)? };
                // SAFETY: the link is in the object, and aligned.
                let link: NonNull<AtomicUsize> = unsafe { object.add(kind.link).cast() };
                // SAFETY: as above.
                address = read(unsafe { link.as_ref() });
                place = link;
            }
        }
        Ok(())
    }

    fn entry(&mut self, entry: &names::Entry, expected: &Expected) -> Result<(), AttachError> {
        let state = entry.state.load(Ordering::Relaxed);
        if state > MOVING || !entry.has_sound_length() {
            return Err(AttachError::Damaged("a name is in no state that there is"));
        }
        let Some(object) = entry.object().filter(|_| entry.is_in_use()) else {
            return Ok(());
        };
        if state != READY && !self.inner.header().names_lock.is_free_and_torn() {
            return Err(AttachError::Damaged(
                "a name is half made, and no task died at it",
            ));
        }
        self.object = entry.name();
        let place = NonNull::from(&entry.object);
        let fingerprint = entry.fingerprint.load(Ordering::Relaxed);
        let content = expected
            .contents
            .iter()
            .find(|content| content.fingerprint == fingerprint);
        if state == MOVING {
            let Some(content) = content else {
                return Err(AttachError::UnknownType {
                    object: core::mem::take(&mut self.object),
                });
            };
            let kind = content.reused.map(|(kind, _)| kind);
            if entry.kind() != kind {
                return Err(self
                    .unsound(place, "it goes to a list that is not its type's")
                    .into());
            }
            // A task that died as it moved the object to the spares may have got so far.
            let list = self.spares.get(&object.addr().get());
            if list.is_some() && list == kind.map(|kind| kind.list).as_ref() {
                return Ok(());
            }
        }
        let layout = Layout::from_size_align(entry.bytes(), 1)
            .map_err(|_| self.unsound(place, "its size is out of range"))?;
        let object = self.claim(place, object.addr().get(), layout)?;
        if state == REMOVING {
            // It is freed, and not looked at.
            return Ok(());
        }
        let Some(content) = content else {
            return match expected.accepts_others {
                true => Ok(()),
                false => Err(AttachError::UnknownType {
                    object: core::mem::take(&mut self.object),
                }),
            };
        };
        // SAFETY: a block of that size, which no task uses.
        unsafe { (content.validate)(object, entry.bytes(), self)? };
        Ok(())
    }
}
