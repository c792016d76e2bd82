//! Latchwork's own contestants.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::io;
use std::pin::Pin;
use std::ptr::{self, NonNull};

use latchwork::coproc::{Attributes, Coprocs};
use latchwork::mutex::{Mutex, Robust, WaitWake};
use latchwork::region::{Region, RegionOptions};

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

/// A region for coprocs that come and go.
pub(crate) fn region_for_coprocs() -> io::Result<Region> {
    RegionOptions::new()
        .max_bytes(16 << 20)
        .label("bench")
        .create_anonymous()
        .map_err(io::Error::other)
}

/// Starts a coproc that does nothing, and joins it.
pub(crate) fn spawn_and_join(coprocs: &Coprocs, attributes: &Attributes) -> io::Result<()> {
    let coproc = coprocs
        .spawn_value(|_, number: u32| number as i32, 0, attributes)
        .map_err(io::Error::other)?;
    match coproc.join().map_err(io::Error::other)? {
        exit if exit.is_success() => Ok(()),
        exit => Err(io::Error::other(format!("a coproc ended: {exit:?}"))),
    }
}
