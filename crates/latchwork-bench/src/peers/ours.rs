//! Latchwork's own contestants.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::io;
use std::pin::Pin;
use std::ptr::{self, NonNull};

use latchwork::mutex::{Mutex, Robust, WaitWake};
use latchwork::region::Region;

use super::heap::{ALIGNMENT, Heap};
use super::{FreeLock, Line};

impl FreeLock for Mutex<u64, WaitWake> {
    #[inline]
    fn increment(&self) {
        *self.lock() += 1;
    }
}

/// The robust wait-wake mutex, which needs a place to stay.
pub(crate) struct RobustMutex;

static ROBUST: Line<Mutex<u64, Robust>> = Line(Mutex::robust(0));

impl FreeLock for RobustMutex {
    #[inline]
    fn increment(&self) {
        if let Ok(mut datum) = Pin::static_ref(&ROBUST.0).lock() {
            *datum += 1;
        }
    }

    fn check(&self) -> io::Result<()> {
        match Pin::static_ref(&ROBUST.0).lock() {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }
}

impl Heap for Region {
    #[inline]
    fn allocate(&self, size: usize) -> *mut u8 {
        Layout::from_size_align(size, ALIGNMENT)
            .ok()
            .and_then(|layout| Region::allocate(self, layout).ok())
            .map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8, _size: usize) {
        if let Some(block) = NonNull::new(block) {
            // SAFETY: the caller's promise is the region's. A thread that allocated is a task, so
            // that there is no error.
            let _ = unsafe { self.deallocate(block) };
        }
    }
}
