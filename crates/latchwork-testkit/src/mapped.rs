//! A value that forks share.
#![allow(unsafe_code)]

use core::pin::Pin;
use core::ptr::{self, NonNull};

/// A value in a shared anonymous mapping, which this process and its later forks share. It is not in a region.
#[derive(Debug)]
pub struct Mapped<T>(NonNull<T>);

// SAFETY: shared access gives only `&T`, and `T` is `Sync`.
unsafe impl<T: Sync> Sync for Mapped<T> {}

impl<T> Mapped<T> {
    /// Maps memory and moves `value` into it.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn new(value: T) -> Self {
        let (access, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing.
        let address = unsafe { libc::mmap(ptr::null_mut(), size_of::<T>(), access, flags, -1, 0) };
        assert_ne!(
            address,
            libc::MAP_FAILED,
            "mmap: {}",
            std::io::Error::last_os_error()
        );
        let address = NonNull::new(address.cast::<T>()).expect("mmap gave address 0");
        // SAFETY: the mapping has room for the value, and is aligned to pages.
        unsafe { address.write(value) };
        Self(address)
    }

    /// The value, pinned: it never moves.
    pub fn pin(&self) -> Pin<&T> {
        // SAFETY: the value stays where it is until the mapping goes, and is not moved then.
        unsafe { Pin::new_unchecked(self.0.as_ref()) }
    }
}

impl<T, const N: usize> Mapped<[T; N]> {
    /// Each element of an array, pinned.
    pub fn each(&self) -> [Pin<&T>; N] {
        // SAFETY: the array stays where it is until the mapping goes, and its elements with it.
        self.each_ref()
            .map(|element| unsafe { Pin::new_unchecked(element) })
    }
}

impl<T> core::ops::Deref for Mapped<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.pin().get_ref()
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size; no reference is left.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<T>()) };
    }
}
