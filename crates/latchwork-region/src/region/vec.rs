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

use super::container::{self, MappingGuard};
use super::region_id::RegionId;
use super::{PushError, Region, Shareable, StorageError, TornSafe, fingerprint};
use crate::atomic::{AtomicU64, AtomicUsize, Ordering, compiler_fence};
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
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
/// primes.push(2)?;
/// primes.push(3)?;
/// assert_eq!(primes.iter().sum::<u32>(), 5);
/// # drop(primes);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *Cost.* Two words; the buffer has two more. A push is a branch and two stores, amortised O(1).
///
/// *Owner death.* Each method takes effect as a whole or not at all. A value on the dead task's stack, on its way in
/// or out, is lost together with the blocks that it owns: they are leaked. Assigning or swapping whole containers
/// (`a = b`, `mem::swap`) in shared memory copies several words, which no container can do in one step: avoid it
/// where a kill matters. After a kill in the middle of it, two containers may own one buffer (see [`TornSafe`]).
#[repr(C)]
pub struct Vec<T> {
    region: RegionId,
    buffer: AtomicUsize,
    elements: PhantomData<T>,
}

#[repr(C)]
struct Head {
    capacity: usize,
    state: AtomicU64,
}

/// The maximum number of elements: their count and an index + 1 fit half a word each.
const MAX: usize = u32::MAX as usize - 1;

// The elements are not stored inside, so they do not move with the container.
impl<T> Unpin for Vec<T> {}

// SAFETY: addresses in the region are the same everywhere, and the elements are Shareable.
unsafe impl<T: Shareable> Shareable for Vec<T> {
    const FINGERPRINT: u64 = fingerprint(
        "latchwork::Vec",
        size_of::<Self>(),
        align_of::<Self>(),
        &[
            T::FINGERPRINT,
            size_of::<Head>() as u64,
            core::mem::offset_of!(Head, capacity) as u64,
            core::mem::offset_of!(Head, state) as u64,
        ],
    );
}
// SAFETY: every change is one store (see the module's documentation), and the elements are TornSafe.
unsafe impl<T: TornSafe> TornSafe for Vec<T> {}

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

    /// Keeps the region mapped while a method runs.
    #[inline]
    pub(super) fn guard(&self) -> MappingGuard {
        container::guard(self.region, &self.buffer)
    }

    /// The caller keeps the region mapped, by a guard or for a borrow.
    #[inline]
    fn head(&self) -> Option<&Head> {
        // SAFETY: the buffer begins with its head, and lives until `buffer` changes, which takes
        // `&mut self`.
        container::pointer(container::read(&self.buffer)).map(|head| unsafe { &*head.as_ptr() })
    }

    /// The place of the first element; dangling without a buffer.
    #[inline]
    fn first(&self) -> NonNull<T> {
        match container::pointer::<u8>(container::read(&self.buffer)) {
            // SAFETY: the elements follow the head in the same block.
            Some(buffer) => unsafe { buffer.add(Self::OFFSET).cast() },
            None => NonNull::dangling(),
        }
    }

    #[inline]
    fn state(&self) -> u64 {
        // Relaxed: the lock that protects the container orders it.
        self.head()
            .map_or(0, |head| head.state.load(Ordering::Relaxed))
    }

    #[inline]
    fn set_state(&self, state: u64) {
        if let Some(head) = self.head() {
            compiler_fence(Ordering::SeqCst);
            head.state.store(state, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
        }
    }

    /// The number of elements.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        let _guard = self.guard();
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
        let _guard = self.guard();
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
        container::keep_mapped(self.region, &self.buffer);
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
        let _guard = self.guard();
        self.settle();
    }

    #[inline]
    fn settle(&mut self) {
        if self.state() >> 32 != 0 {
            self.fill_hole();
        }
    }

    #[cold]
    #[inline(never)]
    fn fill_hole(&mut self) {
        let (hole, last) = ((self.state() >> 32) as usize - 1, self.count() - 1);
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
        let _guard = self.guard();
        self.settle();
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

    /// Frees the buffer, which contains no element any more.
    fn free_buffer(&mut self) -> Result<(), StorageError> {
        let Some(buffer) = container::pointer(container::read(&self.buffer)) else {
            return Ok(());
        };
        // SAFETY: `&mut self` is exclusive, and the buffer contains no element.
        unsafe { container::unlink_and_free(self.region, &self.buffer, buffer) }
    }

    /// Drops all elements. The buffer stays, as with all methods that remove elements: see [`Self::shrink_to_fit`].
    pub fn clear(&mut self) {
        self.truncate(0);
    }
}

impl<T: Shareable + Unpin> Vec<T> {
    /// An empty array for this region. Takes no memory before the first push.
    #[must_use]
    pub fn new_in(region: &Region) -> Self {
        Self::empty(region.inner().id)
    }

    pub(super) fn empty(region: RegionId) -> Self {
        Self {
            region,
            buffer: AtomicUsize::new(0),
            elements: PhantomData,
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

    pub(super) fn region(&self) -> RegionId {
        self.region
    }

    /// Builds a buffer with room for `capacity` elements, of which `fill` writes the first `len`, and replaces the
    /// old buffer by it. `fill` has moved the old buffer's elements out.
    fn rebuild(
        &mut self,
        capacity: usize,
        len: usize,
        fill: impl FnOnce(NonNull<T>),
    ) -> Result<(), StorageError> {
        let layout = Self::layout(capacity).ok_or(StorageError::TooLong)?;
        container::with_heap(self.region, |heap| {
            let block = heap.alloc(layout)?;
            // The capacity includes the bytes that the heap's size class gives beyond the request.
            let usable = heap.usable_size(block) - Self::OFFSET;
            let capacity = usable.checked_div(size_of::<T>()).unwrap_or(MAX).min(MAX);
            // SAFETY: a block of at least the layout's size that no other task knows.
            unsafe {
                block.cast().write(Head {
                    capacity,
                    state: AtomicU64::new(len as u64),
                });
                fill(block.add(Self::OFFSET).cast());
            }
            let old = container::pointer(container::read(&self.buffer));
            // SAFETY: `&mut self`: the caller has exclusive access to this container.
            unsafe { heap.link(&self.buffer, container::address(block), Some(block), old) };
            Ok(())
        })
    }

    /// Makes room for at least `additional` more elements.
    ///
    /// # Errors
    /// If the region has no room, or the thread cannot become a task of it. Then nothing has changed.
    pub fn reserve(&mut self, additional: usize) -> Result<(), StorageError> {
        let _guard = self.guard();
        self.settle();
        let len = self.count();
        let needed = len.checked_add(additional).ok_or(StorageError::TooLong)?;
        if needed <= self.room() {
            return Ok(());
        }
        self.grow(needed)
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, needed: usize) -> Result<(), StorageError> {
        let (first, len) = (self.first(), self.count());
        let double = self.room().saturating_mul(2).min(MAX);
        // SAFETY: the elements move; the old buffer is freed without dropping them.
        let fill = |new: NonNull<T>| unsafe { new.copy_from_nonoverlapping(first, len) };
        self.rebuild(needed.max(double), len, fill)
    }

    /// Returns the memory that the elements do not need to the heap, in one step: all of it if there are no elements.
    /// ([`Region::trim`] returns the heap's free memory to the system.)
    ///
    /// # Errors
    /// If the region has no room for the smaller buffer beside the old one. Then nothing has changed.
    pub fn shrink_to_fit(&mut self) -> Result<(), StorageError> {
        self.shrink_to(0)
    }

    /// Like [`Self::shrink_to_fit`], but keeps room for `capacity` elements.
    ///
    /// # Errors
    /// As for [`Self::shrink_to_fit`].
    pub fn shrink_to(&mut self, capacity: usize) -> Result<(), StorageError> {
        let _guard = self.guard();
        self.settle();
        let (first, len, room) = (self.first(), self.count(), self.room());
        let wanted = len.max(capacity);
        if wanted >= room {
            return Ok(());
        }
        if wanted == 0 {
            return self.free_buffer();
        }
        let (Some(smaller), Some(buffer)) = (
            Self::layout(wanted),
            container::pointer::<u8>(container::read(&self.buffer)),
        ) else {
            return Ok(());
        };
        let is_smaller = container::with_heap(self.region, |heap| {
            Ok(heap.size_for(smaller) < heap.usable_size(buffer))
        })?;
        if is_smaller {
            // SAFETY: the elements move; the old buffer is freed without dropping them.
            let fill = |new: NonNull<T>| unsafe { new.copy_from_nonoverlapping(first, len) };
            self.rebuild(wanted, len, fill)?;
        }
        Ok(())
    }

    /// Appends an element.
    ///
    /// # Errors
    /// If the region has no room or the thread cannot become a task of it; the error contains the element.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), PushError<T>> {
        let _guard = self.guard();
        self.settle();
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
        let _guard = self.guard();
        self.settle();
        let last = self.count().checked_sub(1)?;
        self.set_state(last as u64);
        // SAFETY: a value, which is no element any more.
        Some(unsafe { self.first().add(last).read() })
    }

    /// Removes and returns an element, and moves the last one to its place, in O(1).
    ///
    /// # Panics
    /// If there is no element `index`.
    pub fn swap_remove(&mut self, index: usize) -> T {
        let _guard = self.guard();
        self.settle();
        let len = self.count();
        assert!(index < len, "index {index} out of range for length {len}");
        // SAFETY: a value, which is no element any more once the state has changed.
        let value = unsafe { self.first().add(index).read() };
        if index + 1 == len {
            self.set_state(index as u64);
        } else {
            self.set_state((index as u64 + 1) << 32 | len as u64);
            self.fill_hole();
        }
        value
    }

    /// Inserts an element before `index`. Copies the array, O(n): moving its tail in place could leave elements twice
    /// if the task is killed.
    ///
    /// # Errors
    /// As for [`Self::push`].
    ///
    /// # Panics
    /// If `index` is greater than the length.
    pub fn insert(&mut self, index: usize, value: T) -> Result<(), PushError<T>> {
        let _guard = self.guard();
        self.settle();
        let (first, len) = (self.first(), self.count());
        assert!(index <= len, "index {index} out of range for length {len}");
        if index == len {
            return self.push(value);
        }
        let mut value = Some(value);
        let capacity = (len + 1).max(self.room());
        // SAFETY: the elements move around the new one; the old buffer is freed without dropping them.
        let result = self.rebuild(capacity, len + 1, |new| unsafe {
            new.copy_from_nonoverlapping(first, index);
            if let Some(value) = value.take() {
                new.add(index).write(value);
            }
            new.add(index + 1)
                .copy_from_nonoverlapping(first.add(index), len - index);
        });
        match (result, value) {
            (Err(error), Some(value)) => Err(PushError { value, error }),
            _ => Ok(()),
        }
    }

    /// Removes and returns an element, and closes the gap. Copies the array, O(n), as [`Self::insert`] does;
    /// [`Self::swap_remove`] does not.
    ///
    /// # Errors
    /// If the region has no room for the copy. Then nothing has changed.
    ///
    /// # Panics
    /// If there is no element `index`.
    pub fn remove(&mut self, index: usize) -> Result<T, StorageError> {
        let _guard = self.guard();
        self.settle();
        let (first, len) = (self.first(), self.count());
        assert!(index < len, "index {index} out of range for length {len}");
        // SAFETY: a value. It belongs to the caller once the copy without it has replaced the buffer.
        let value = core::mem::ManuallyDrop::new(unsafe { first.add(index).read() });
        // SAFETY: the other elements move; the old buffer is freed without dropping them.
        self.rebuild(self.room(), len - 1, |new| unsafe {
            new.copy_from_nonoverlapping(first, index);
            new.add(index)
                .copy_from_nonoverlapping(first.add(index + 1), len - 1 - index);
        })?;
        Ok(core::mem::ManuallyDrop::into_inner(value))
    }

    /// The elements, mutable.
    #[inline]
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        container::keep_mapped(self.region, &self.buffer);
        self.settle();
        // SAFETY: after `settle` there is no hole, so all elements are values, and the container is borrowed
        // exclusively.
        unsafe { slice::from_raw_parts_mut(self.first().as_ptr(), self.count()) }
    }
}

impl<T: Shareable + Unpin + Copy> Vec<T> {
    /// Appends copies of all elements of a slice, in one step.
    ///
    /// # Errors
    /// As for [`Self::reserve`]; then no element is appended.
    pub fn extend_from_slice(&mut self, values: &[T]) -> Result<(), StorageError> {
        let _guard = self.guard();
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
        let Some(_guard) = container::try_guard(self.region, &self.buffer) else {
            return;
        };
        self.clear();
        let _ = self.free_buffer();
    }
}

impl<T> Deref for Vec<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T: Shareable + Unpin> DerefMut for Vec<T> {
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

impl<'a, T: Shareable + Unpin> IntoIterator for &'a mut Vec<T> {
    type Item = &'a mut T;
    type IntoIter = slice::IterMut<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T: PartialEq> PartialEq for Vec<T> {
    fn eq(&self, other: &Self) -> bool {
        // A guard, and no record of a borrow: the container may be on its way into the region.
        let _guards = (self.guard(), other.guard());
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
