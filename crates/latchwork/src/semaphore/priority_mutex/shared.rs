//! The object in the region: how it begins, and is recognised.
#![allow(unsafe_code)]

use crate::region::inspect::{AnyBytes, Contents, ObjectReport};
use crate::region::{ObjectError, Region, Shareable, fingerprint};
use crate::semaphore::{Core, Form, Kind};
use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

/// A semaphore, and the data that it protects.
#[repr(C)]
pub(super) struct Shared<T: ?Sized> {
    pub(super) core: Core,
    /// [`mark_of`] the object's fingerprint. It never changes.
    mark: u64,
    pub(super) data: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: `&Shared` gives one task at a time access to `T`, as if `T` was lent across threads: `T: Send` is enough.
unsafe impl<T: ?Sized + Send> Sync for Shared<T> {}

/// What begins an object whose data is of an unknown type.
#[repr(C)]
pub(super) struct Head {
    pub(super) core: Core,
    pub(super) mark: u64,
}

// SAFETY: all fields are numbers, but for the node of a lock, whose links are not followed in a copy.
unsafe impl AnyBytes for Head {}

/// The mark in an object with this fingerprint. The fingerprint itself depends on the type of the data, which the inspector
/// does not know.
const fn mark_of(fingerprint_of_object: u64) -> u64 {
    fingerprint(
        "mark of a priority mutex",
        size_of::<Head>(),
        align_of::<Head>(),
        &[fingerprint_of_object],
    )
}

/// Whether a named object is a priority mutex.
pub(in crate::semaphore) fn is_in(contents: &Contents, object: &ObjectReport) -> bool {
    let may_be = object.bytes >= size_of::<Head>() as u64
        && object.address.is_multiple_of(align_of::<Head>() as u64);
    let head = may_be.then(|| contents.read::<Head>(object.address));
    head.flatten()
        .is_some_and(|head| head.mark == mark_of(object.fingerprint))
}

impl<T: Shareable> Shared<T> {
    pub(super) const FINGERPRINT: u64 = fingerprint(
        "priority mutex",
        size_of::<Self>(),
        align_of::<Self>(),
        &[1, T::FINGERPRINT],
    );

    /// Begins an object in a fresh block of the right size and alignment.
    pub(super) fn write(block: NonNull<u8>, form: Form, ceiling: u32, make: impl FnOnce() -> T) {
        let core = Core::new();
        core.init(form, ceiling, 0);
        let object = Self {
            core,
            mark: mark_of(Self::FINGERPRINT),
            data: UnsafeCell::new(ManuallyDrop::new(make())),
        };
        // SAFETY: the caller's block, which no other task knows.
        unsafe { block.cast::<Self>().write(object) };
    }

    /// The object in a block of this size whose fingerprint is that of the type.
    pub(super) fn at(_: &Region, block: NonNull<u8>, bytes: usize) -> Result<&Self, ObjectError> {
        let object = block.cast::<Self>();
        if bytes != size_of::<Self>() || !object.is_aligned() {
            return Err(ObjectError::OtherType);
        }
        object.as_ptr().expose_provenance();
        // SAFETY: `write` wrote an object of this fingerprint. It is never freed: no type exists by which `Region::remove`
        // would find it.
        let object = unsafe { object.as_ref() };
        // The file's contents are not trusted.
        object
            .is_sound()
            .then_some(object)
            .ok_or(ObjectError::Damaged)
    }

    /// Whether the words that never change are those of such an object.
    fn is_sound(&self) -> bool {
        Self::is_sound_head(&self.core, self.mark)
    }

    /// The same, of an object whose data may be anything.
    pub(super) fn is_sound_head(core: &Core, mark: u64) -> bool {
        mark == mark_of(Self::FINGERPRINT) && is_form_of_one(core.form())
    }
}

fn is_form_of_one(form: Form) -> bool {
    [Kind::Inherit, Kind::Ceiling].contains(&form.kind()) && form == Form::with_data(form.kind())
}
