//! A region that a thread is a task of, as the thread's record names it; and what regions have done after an owner's
//! death.
#![allow(unsafe_code)]

use crate::atomic::{AtomicPtr, Ordering};
use core::cell::Cell;
use core::ops::Deref;
use core::ptr::NonNull;

/// The regions that one thread can be a task of at a time. Each takes two entries of its robust list.
pub const MAX_ATTACHMENTS: usize = 128;

/// A region that this thread is a task of, as [`Me::attach`](super::Me::attach) recorded it. Safe code can read its parts,
/// and neither make nor change one. As a [`Me`](super::Me), it is for the call that got it.
#[derive(Clone, Copy)]
pub struct Attachment(pub(super) AttachmentParts);

impl Deref for Attachment {
    type Target = AttachmentParts;
    #[inline(always)]
    fn deref(&self) -> &AttachmentParts {
        &self.0
    }
}

/// The parts of an [`Attachment`].
#[derive(Clone, Copy)]
pub struct AttachmentParts {
    /// First address of the region.
    pub base: usize,
    /// First address after it.
    pub end: usize,
    /// The thread's slot in the region's task table.
    pub slot: NonNull<()>,
    /// The link of the life-word on the robust list.
    pub life: usize,
    /// The link of its tail on the robust list.
    pub tail: usize,
    /// The tag by which the region names this task.
    pub tag: u64,
    /// Passed to `detach`.
    pub context: NonNull<()>,
    /// Whether the task in a slot has something that lends references, beside locks.
    pub lends: unsafe fn(slot: NonNull<()>) -> bool,
    /// Ends the attachment and forgets it, called when the thread exits.
    pub detach: unsafe fn(context: NonNull<()>, slot: NonNull<()>),
}

/// The number of region locks that name the thread as their owner, in the region of one attachment: see
/// [`membership`](super::membership).
#[repr(C)]
pub(super) struct Held {
    /// Acquired by guards. (64 bits: safe code can forget 2³² guards in a minute.)
    pub(super) lending: Cell<u64>,
    /// Acquired through the C interface, which counts them in the header's free path.
    pub(super) plain: Cell<u32>,
}

impl Held {
    pub(super) fn count(&self) -> u64 {
        self.lending.get() + u64::from(self.plain.get())
    }

    pub(super) fn clear(&self) {
        self.lending.set(0);
        self.plain.set(0);
    }

    pub(super) fn swap(&self, other: &Self) {
        self.lending.swap(&other.lending);
        self.plain.swap(&other.plain);
    }
}

/// Calls the regions' hook for a robust lock that was taken from a dead owner. To be called with the lock's address,
/// after the lock was taken and before the new owner can use the data.
pub fn after_owner_death(lock: usize) {
    // A waiter may have found the owner's thread gone: of that death the owner's life-word says nothing.
    call_owner_death_hook(lock, true);
}

/// The same for a lock whose waiters take it only if the owner's life-word says that it is dead.
pub fn after_marked_death(lock: usize) {
    call_owner_death_hook(lock, false);
}

fn call_owner_death_hook(lock: usize, may_be_unmarked: bool) {
    // Acquire: pairs with the Release in `set_owner_death_hook`.
    let hook = OWNER_DEATH_HOOK.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: only `set_owner_death_hook` stores here, and only functions of this type.
        let hook: fn(usize, bool) = unsafe { core::mem::transmute(hook) };
        hook(lock, may_be_unmarked);
    }
}

/// Installs the function that [`after_owner_death`] and [`after_marked_death`] call: with the lock's address, and whether
/// the kernel may not have marked the death. Regions lie above this layer and install it this way.
///
/// # Safety
/// Called by the crate of regions alone: its hook completes what the dead task had begun in the region's memory, before
/// the new owner uses that. Without the hook, safe code would find containers half changed.
pub unsafe fn set_owner_death_hook(hook: fn(usize, bool)) {
    OWNER_DEATH_HOOK.store(hook as *mut (), Ordering::Release);
}

static OWNER_DEATH_HOOK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
