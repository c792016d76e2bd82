//! Memory that forks share.
#![allow(unsafe_code)]

use core::ops::Deref;
use core::ptr::NonNull;

/// A value in anonymous memory that this process and its later forks share.
///
/// A test keeps its journal here, so that the code under test does not record its own results.
#[derive(Debug)]
pub struct Page<T> {
    value: NonNull<T>,
}

// SAFETY: shared access gives only `&T`, and `T` is `Sync`.
unsafe impl<T: Sync> Send for Page<T> {}
// SAFETY: shared access gives only `&T`, and `T` is `Sync`.
unsafe impl<T: Sync> Sync for Page<T> {}

/// Types that are valid when all their bytes are zero, and that processes may share.
///
/// # Safety
/// All-zero is a valid value, and the type holds no pointers.
pub unsafe trait Zeroed: Sync {}
macro_rules! zeroed {
    ($($ty:ident),*) => {$(
        // SAFETY: an atomic integer, of which zero is a value.
        unsafe impl Zeroed for core::sync::atomic::$ty {}
    )*};
}
zeroed!(
    AtomicBool,
    AtomicI32,
    AtomicU8,
    AtomicU16,
    AtomicU32,
    AtomicU64,
    AtomicUsize
);
// SAFETY: all bytes zero is a valid value of each element.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}
// SAFETY: all bytes zero is a valid value of each part.
unsafe impl<A: Zeroed, B: Zeroed> Zeroed for (A, B) {}
// SAFETY: all bytes zero is a valid value of each part.
unsafe impl<A: Zeroed, B: Zeroed, C: Zeroed> Zeroed for (A, B, C) {}

impl<T: Zeroed> Page<T> {
    /// A page of zeros.
    ///
    /// # Panics
    /// If there is no memory.
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: a fresh mapping at an address that the kernel chooses overlaps nothing.
        let address = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                size_of::<T>().max(1),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(
            address,
            libc::MAP_FAILED,
            "mmap: {}",
            std::io::Error::last_os_error()
        );
        Self {
            value: NonNull::new(address.cast()).expect("mmap gave address 0"),
        }
    }
}

impl<T: Zeroed> Default for Page<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for Page<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: mapped until drop, page-aligned, and zero is valid by `Zeroed`.
        unsafe { self.value.as_ref() }
    }
}

impl<T> Drop for Page<T> {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it with this size; the borrow checker guarantees that no reference is left.
        unsafe { libc::munmap(self.value.as_ptr().cast(), size_of::<T>().max(1)) };
    }
}
