//! What regions have done after an owner's death.
#![allow(unsafe_code)]

use crate::atomic::{AtomicPtr, Ordering};

/// Calls the regions' hook for a robust lock that was taken from a dead owner. To be called with the lock's address,
/// after the lock was taken and before the new owner can use the data.
pub fn after_owner_death(lock: usize) {
    // Acquire: pairs with the Release in `set_owner_death_hook`.
    let hook = OWNER_DEATH_HOOK.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: only `set_owner_death_hook` stores here, and only functions of this type.
        let hook: fn(usize) = unsafe { core::mem::transmute(hook) };
        hook(lock);
    }
}

/// Installs the function that [`after_owner_death`] calls. Regions lie above this layer and install it this way.
///
/// # Safety
/// Called by the crate of regions alone: its hook completes what the dead task had begun in the region's memory, before
/// the new owner uses that. Without the hook, safe code would find containers half changed.
pub unsafe fn set_owner_death_hook(hook: fn(usize)) {
    OWNER_DEATH_HOOK.store(hook as *mut (), Ordering::Release);
}

static OWNER_DEATH_HOOK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
