//! A growable array in a region.
//!
//! | word | where | meaning |
//! | --- | --- | --- |
//! | `buffer` | header | address of the buffer, 0 for none |
//! | `capacity` | buffer | elements that it has room for, fixed |
//! | `state` | buffer | low half: length; high half: 0, or 1 + the index of the *hole* |
//!
//! Invariants
//! 1. The elements below the length are values, except the hole: its element was taken, and the last element is about
//!    to move there.
//! 2. Every change is a store to one word: `buffer` or `state`. So a buffer and its length always match.
//!
//! *Commit points, and a kill between any two stores.*
//! - *Push:* the element is written behind the length, then `state`: before that store nothing was pushed.
//! - *Pop:* `state`, then the element is read: it is removed either way.
//! - *Grow, shrink, insert, remove:* a complete buffer is built, private to the task; the heap replaces the old one
//!   by it in one step.
//! - *Swap-remove:* `state` with the hole, the last element is copied, `state` with the new length. A later method
//!   that finds a hole copies again.
//! - *Truncate:* an element is dropped, then `state`. After a kill in between, the element is dropped again, which
//!   its `TornSafe` allows.
#![allow(unsafe_code)]

mod edit;
mod validate;

pub use edit::VecMut;

use super::container::{self, Anchor};
use super::region_id::RegionId;
use super::{PushError, Region, Relocatable, Shareable, StorageError, TornSafe, fingerprint_of};
use crate::atomic::Ordering::{Relaxed, SeqCst};
use crate::atomic::{AtomicU64, compiler_fence};
use core::alloc::Layout;
use core::fmt;
use core::marker::{PhantomData, PhantomPinned};
use core::mem::offset_of;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::slice;

/// A growable array whose elements live in a region.
///
/// It derefs to a slice. It holds real pointers, so its place is in the region that it was made for, or on a task's
/// stack. In a process that has not attached that region, or has unmapped it, its methods panic.
///
/// ```
/// use latchwork::mutex::{Mutex, Robust};
/// use latchwork::region::{RegionOptions, Vec};
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let primes = region.object("primes", || Mutex::robust(Vec::<u32>::new_in(&region)))?;
/// let mut primes = primes.lock().unwrap();
/// primes.edit().push(2)?;
/// primes.edit().push(3)?;
/// assert_eq!(primes.iter().sum::<u32>(), 5);
/// # drop(primes);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *Cost.* Two words; the buffer has two more. A push is a branch and two stores, amortised O(1).
///
/// *Owner death.* Each method takes effect as a whole or not at all. A value on the dead task's stack, on its way in
/// or out, is lost together with the blocks that it owns: they are leaked. In shared memory the container itself is not
/// copied, by `mem::swap` for example: it is changed in its place, through [`VecMut`] (see [`TornSafe`]).
///
/// *Fork.* One on the stack still belongs to the parent: the child must forget its copy, and not change it.
#[repr(C)]
pub struct Vec<T> {
    pub(super) buffer: Anchor,
    elements: PhantomData<T>,
    pinned: PhantomPinned,
}

#[repr(C)]
struct Head {
    capacity: usize,
    state: AtomicU64,
}

/// The maximum number of elements: their count and an index + 1 fit half a word each.
const MAX: usize = u32::MAX as usize - 1;

// SAFETY: addresses in the region are the same everywhere, and the elements are Shareable.
unsafe impl<T: Shareable> Shareable for Vec<T> {
    const FINGERPRINT: u64 = fingerprint_of::<Self>(
        "latchwork::Vec",
        &[
            T::FINGERPRINT,
            size_of::<Head>() as u64,
            offset_of!(Head, capacity) as u64,
            offset_of!(Head, state) as u64,
        ],
    );
    const NAMES_THREADS: bool = T::NAMES_THREADS;
}
// SAFETY: every change is one store (see the module's documentation), and the elements are TornSafe.
unsafe impl<T: TornSafe> TornSafe for Vec<T> {}
// SAFETY: nothing contains its address.
unsafe impl<T> Relocatable for Vec<T> {}

impl<T> Vec<T> {
    const OFFSET: usize = size_of::<Head>().next_multiple_of(align_of::<T>());

    fn layout(capacity: usize) -> Option<Layout> {
        let bytes = size_of::<T>()
            .checked_mul(capacity)?
            .checked_add(Self::OFFSET)?;
        let align = align_of::<Head>().max(align_of::<T>());
        Layout::from_size_align(bytes, align)
            .ok()
            .filter(|_| capacity <= MAX)
    }

    /// The caller keeps the region mapped, by a guard or for a borrow.
    #[inline]
    fn head(&self) -> Option<&Head> {
        // SAFETY: the buffer begins with its head, and lives until `buffer` changes, which takes `&mut self`.
        self.buffer.block().map(|head| unsafe { &*head.as_ptr() })
    }

    /// The place of the first element; dangling without a buffer.
    #[inline]
    fn first(&self) -> NonNull<T> {
        match self.buffer.block::<u8>() {
            // SAFETY: the elements follow the head in the same block.
            Some(buffer) => unsafe { buffer.add(Self::OFFSET).cast() },
            None => NonNull::dangling(),
        }
    }

    #[inline]
    fn state(&self) -> u64 {
        // Relaxed: the lock that protects the container orders it.
        self.head().map_or(0, |head| head.state.load(Relaxed))
    }

    #[inline]
    fn set_state(&self, state: u64) {
        if let Some(head) = self.head() {
            compiler_fence(SeqCst);
            head.state.store(state, Relaxed);
            compiler_fence(SeqCst);
        }
    }

    /// The number of elements.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        let _guard = self.buffer.guard();
        self.count()
    }

    #[inline]
    fn count(&self) -> usize {
        (self.state() & u64::from(u32::MAX)) as usize
    }

    /// Whether there are no elements.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of elements that fit without growing.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        let _guard = self.buffer.guard();
        self.room()
    }

    #[inline]
    fn room(&self) -> usize {
        self.head().map_or(0, |head| head.capacity)
    }

    /// The elements.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        self.buffer.keep_mapped();
        // SAFETY: by invariant 1 the elements are values. If there is a hole, it still holds the old element's bytes,
        // perhaps partly overwritten: `TornSafe` makes them a value, and a type without `TornSafe` is not accessible
        // here before the hole is filled.
        unsafe { self.elements() }
    }

    /// # Safety
    /// The region stays mapped while the slice is used.
    #[inline]
    pub(super) unsafe fn elements(&self) -> &[T] {
        // SAFETY: the elements below the length are values, and the caller keeps the region mapped.
        unsafe { slice::from_raw_parts(self.first().as_ptr(), self.count()) }
    }

    /// Finishes the operation that a dead owner left unfinished. Every method that changes the array does this by
    /// itself; the array has no other derived state.
    #[inline]
    pub fn repair(&mut self) {
        let _guard = self.buffer.guard();
        self.finish_pending();
    }

    #[inline]
    fn finish_pending(&mut self) {
        if crate::atomic::unless_disabled!(VectorFinishesOperation, self.state() >> 32 != 0, false)
        {
            self.fill_hole();
        }
    }

    #[cold]
    #[inline(never)]
    fn fill_hole(&mut self) {
        let (hole, last) = ((self.state() >> 32) as usize - 1, self.count() - 1);
        if core::mem::needs_drop::<T>() {
            // A kill in the copy leaves no mixture of two containers.
            // SAFETY: the place of the element that was taken; `TornSafe` allows a mixture with zeros.
            unsafe { self.first().add(hole).write_bytes(0, 1) };
            compiler_fence(SeqCst);
        }
        // SAFETY: both are places of elements; the last one is a value, and the hole is not one any more.
        unsafe { self.first().add(last).copy_to(self.first().add(hole), 1) };
        self.set_state(last as u64);
    }

    /// Shortens the array to `len` elements, dropping the others from the last one on.
    pub fn truncate(&mut self, len: usize) {
        struct Shorten<'a, T>(&'a Vec<T>, usize);
        impl<T> Drop for Shorten<'_, T> {
            fn drop(&mut self) {
                self.0.set_state(self.1 as u64);
            }
        }
        let _guard = self.buffer.guard();
        self.finish_pending();
        if !core::mem::needs_drop::<T>() && len < self.count() {
            self.set_state(len as u64);
        }
        while len < self.count() {
            let last = self.count() - 1;
            // The element counts as removed even if its drop panics.
            let _shorten = Shorten(self, last);
            // SAFETY: a value, which is no element any more once the length has changed.
            unsafe { self.first().add(last).drop_in_place() };
        }
    }

    /// Drops all elements. The buffer stays, as with all methods that remove elements: see [`Self::shrink_to_fit`].
    pub fn clear(&mut self) {
        self.truncate(0);
    }
}

impl<T: Shareable + Relocatable> Vec<T> {
    /// An empty array for this region. Takes no memory before the first push.
    #[must_use]
    pub fn new_in(region: &Region) -> Self {
        Self::empty(region.inner().id)
    }

    pub(super) fn empty(region: RegionId) -> Self {
        Self {
            buffer: Anchor::new(region),
            elements: PhantomData,
            pinned: PhantomPinned,
        }
    }

    /// An empty array with room for at least `capacity` elements.
    ///
    /// # Errors
    /// If the region has no room, or the thread cannot become a task of it.
    pub fn with_capacity_in(capacity: usize, region: &Region) -> Result<Self, StorageError> {
        let mut this = Self::new_in(region);
        this.reserve(capacity)?;
        Ok(this)
    }

    /// Appends an element.
    ///
    /// # Errors
    /// If the region has no room or the thread cannot become a task of it; the error contains the element.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), PushError<T>> {
        let _guard = self.buffer.guard();
        self.finish_pending();
        let len = self.count();
        if len == self.room()
            && let Err(error) = self.grow(len + 1)
        {
            return Err(PushError { value, error });
        }
        // SAFETY: there is room, and the place holds no value.
        unsafe { self.first().add(len).write(value) };
        self.set_state(len as u64 + 1);
        Ok(())
    }

    /// Removes and returns the last element.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let _guard = self.buffer.guard();
        self.finish_pending();
        let last = self.count().checked_sub(1)?;
        // SAFETY: an element.
        unsafe { container::settle(self.first().add(last), 1) };
        self.set_state(last as u64);
        // SAFETY: a value, which is no element any more.
        Some(unsafe { self.first().add(last).read() })
    }

    /// The elements, mutable.
    #[inline]
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        self.buffer.keep_mapped();
        self.finish_pending();
        // SAFETY: after `finish_pending` there is no hole, so all elements are values, and the container is borrowed
        // exclusively.
        unsafe { slice::from_raw_parts_mut(self.first().as_ptr(), self.count()) }
    }
}

impl<T: Shareable + Relocatable + Copy> Vec<T> {
    /// Appends copies of all elements of a slice, in one step.
    ///
    /// # Errors
    /// As for [`Self::reserve`]; then no element is appended.
    pub fn extend_from_slice(&mut self, values: &[T]) -> Result<(), StorageError> {
        let _guard = self.buffer.guard();
        self.reserve(values.len())?;
        let len = self.count();
        // SAFETY: there is room behind the elements, and `values` cannot overlap that room.
        unsafe {
            self.first()
                .add(len)
                .as_ptr()
                .copy_from_nonoverlapping(values.as_ptr(), values.len())
        };
        self.set_state((len + values.len()) as u64);
        Ok(())
    }
}

impl<T> Drop for Vec<T> {
    /// Drops the elements and frees the buffer. A thread that cannot become a task of the region leaks the buffer; a
    /// process that has not attached the region leaks buffer and elements.
    fn drop(&mut self) {
        let Some(_guard) = self.buffer.try_guard() else {
            return;
        };
        self.clear();
        // SAFETY: the buffer contains no element any more.
        let _ = unsafe { self.buffer.free_block() };
    }
}

impl<T> Deref for Vec<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T: Shareable + Relocatable> DerefMut for Vec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        self.as_mut_slice()
    }
}

impl<'a, T> IntoIterator for &'a Vec<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T: Shareable + Relocatable> IntoIterator for &'a mut Vec<T> {
    type Item = &'a mut T;
    type IntoIter = slice::IterMut<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T: PartialEq> PartialEq for Vec<T> {
    fn eq(&self, other: &Self) -> bool {
        // A guard, and no record of a borrow: the container may be on its way into the region.
        let _guards = (self.buffer.guard(), other.buffer.guard());
        // SAFETY: the elements are values as in `as_slice`, and both regions are held.
        unsafe { self.elements() == other.elements() }
    }
}
impl<T: Eq> Eq for Vec<T> {}

impl<T: fmt::Debug> fmt::Debug for Vec<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}
