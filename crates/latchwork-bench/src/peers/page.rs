//! Memory in which a contestant does not move.
#![allow(unsafe_code)]

use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::ptr::{self, NonNull};

use latchwork::region::{self, Region};

/// A value at the beginning of a page of its own, which forked children share.
///
/// Every contestant lives in one, so that its address gives no contestant an advantage: a lock and its datum share a
/// cache line if they fit, and share it with nothing else.
pub(crate) struct SharedPage<T>(NonNull<T>, Memory);

/// Where a page lies.
enum Memory {
    Mapping,
    Region(#[allow(dead_code, reason = "it owns the page")] region::Box<'static, [u8]>),
}

// SAFETY: a place owns its value, as a box does.
unsafe impl<T: Send> Send for SharedPage<T> {}
// SAFETY: a place owns its value, as a box does.
unsafe impl<T: Sync> Sync for SharedPage<T> {}

impl<T> SharedPage<T> {
    /// Places `value`. It is dropped with the place, except in forked children, which leave by `_exit`.
    pub(crate) fn new(value: T) -> io::Result<Self> {
        // SAFETY: the value is written before it is read.
        let place = unsafe { Self::zeroed()? };
        // SAFETY: the mapping is new, large enough, and page-aligned; zeros are not dropped.
        unsafe { place.0.write(value) };
        Ok(place)
    }

    /// A zeroed value, for a type that is too large for a stack.
    ///
    /// # Safety
    /// Zeros are a valid value.
    pub(crate) unsafe fn zeroed() -> io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096) };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                Self::LENGTH,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let place = NonNull::new(address.cast::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self(place, Memory::Mapping))
    }

    /// As [`Self::new`], in a region.
    pub(crate) fn new_in(value: T, region: &'static Region) -> io::Result<Self> {
        const PAGE: usize = 4096;
        const { assert!(size_of::<T>() <= PAGE && align_of::<T>() <= PAGE) };
        let mut block = region::Box::zeroed_in(2 * PAGE, region).map_err(io::Error::other)?;
        let first = block.as_mut_ptr();
        let place = first.wrapping_add(first.align_offset(PAGE)).cast::<T>();
        // SAFETY: of two pages, one whole page begins at the first address of a page in them; nobody else uses it.
        let place = unsafe {
            place.write(value);
            NonNull::new_unchecked(place)
        };
        Ok(Self(place, Memory::Region(block)))
    }

    const LENGTH: usize = if size_of::<T>() == 0 {
        1
    } else {
        size_of::<T>()
    };

    /// The value, which does not move.
    pub(crate) fn pin(&self) -> Pin<&T> {
        // SAFETY: the value does not move until it is dropped, and no mutable reference to it is given out.
        unsafe { Pin::new_unchecked(&**self) }
    }
}

impl<T> Deref for SharedPage<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the place owns an initialised value, and gives out only shared references.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for SharedPage<T> {
    fn drop(&mut self) {
        // SAFETY: `new` mapped and initialised it, and no borrow of it is left.
        unsafe {
            self.0.drop_in_place();
            if matches!(self.1, Memory::Mapping) {
                libc::munmap(self.0.as_ptr().cast(), Self::LENGTH);
            }
        }
    }
}
