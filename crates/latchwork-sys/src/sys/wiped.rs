//! Variables that the child of a fork does not inherit: it finds zeros.
#![allow(unsafe_code)]

use super::thread::{RECORD_BYTES, map_wipe_on_fork, unmap_record};
use crate::atomic::{AtomicPtr, Ordering};
use core::ptr;
use rustix::io::Result;

/// A variable in memory of its own, which the kernel wipes in the child of any fork or memory-copying clone. It is mapped at
/// the first use, for the rest of the process's life and the lives of its children.
pub struct Wiped<T>(AtomicPtr<T>);

impl<T: Sync + 'static> Wiped<T> {
    /// The variable, whose value is zeros at first.
    ///
    /// # Safety
    /// All zeros is a valid `T`, which needs no more than a page's alignment, and no drop.
    #[must_use]
    pub const unsafe fn new() -> Self {
        const { assert!(size_of::<T>() <= RECORD_BYTES) };
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The variable, if it has been mapped, by this process or by one that it was forked from.
    #[inline]
    pub fn made(&self) -> Option<&'static T> {
        // Acquire: pairs with the Release in `make`.
        // SAFETY: null, or a page that stays mapped, of zeros or of what this process has stored.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The variable. The call fails only if it has not been mapped before, and there is no memory.
    #[inline]
    pub fn get(&self) -> Result<&'static T> {
        match self.made() {
            Some(made) => Ok(made),
            None => self.make(),
        }
    }

    #[cold]
    fn make(&self) -> Result<&'static T> {
        let page = map_wipe_on_fork()?;
        let (null, fresh) = (ptr::null_mut(), page.cast().as_ptr());
        let first = self
            .0
            .compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire);
        let made = first.map_or_else(
            |other| {
                // SAFETY: no other thread knows the page.
                unsafe { unmap_record(page) };
                other
            },
            |_| fresh,
        );
        // SAFETY: the page that was published, which stays mapped; see `made`.
        Ok(unsafe { &*made })
    }
}
