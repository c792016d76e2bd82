//! What several tests of locks need.
#![allow(unsafe_code)]
#![allow(dead_code, reason = "each program uses its part")]

use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicI32, Ordering};

/// A value in memory that forks share: the user's own mapping, no region.
pub struct Mapped<T>(NonNull<T>);

// SAFETY: gives `&T` only.
unsafe impl<T: Sync> Sync for Mapped<T> {}

impl<T> Mapped<T> {
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

    pub fn pin(&self) -> Pin<&T> {
        // SAFETY: the value stays where it is until the mapping goes, and is not moved then.
        unsafe { Pin::new_unchecked(self.0.as_ref()) }
    }
}

impl<T, const N: usize> Mapped<[T; N]> {
    pub fn each(&self) -> [Pin<&T>; N] {
        // SAFETY: as in `pin`; each element is pinned with the array.
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

/// A thread of this process, as others see it.
#[derive(Default)]
pub struct ThreadId(AtomicI32);

impl ThreadId {
    /// It is the calling thread.
    pub fn set(&self) {
        // SAFETY: no preconditions.
        self.0.store(unsafe { libc::gettid() }, Ordering::Release);
    }

    /// As the system calls it; 0 as long as it is not set.
    pub fn number(&self) -> i32 {
        self.0.load(Ordering::Acquire)
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Whether the thread sleeps in a futex call at this moment.
    pub fn is_in_futex(&self) -> bool {
        let id = self.0.load(Ordering::Acquire);
        let call =
            std::fs::read_to_string(format!("/proc/self/task/{id}/syscall")).unwrap_or_default();
        let number = call.split(' ').next().and_then(|call| call.parse().ok());
        id != 0
            && [libc::SYS_futex, libc::SYS_futex_waitv]
                .map(Some)
                .contains(&number)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: the thread is alive: its scope has not ended.
        unsafe {
            libc::syscall(
                libc::SYS_tgkill,
                libc::getpid(),
                self.0.load(Ordering::Acquire),
                signal,
            )
        };
    }
}
