//! A region that a thread is a task of, as the thread's record names it; and what regions have done after an owner's
//! death.
#![allow(unsafe_code)]

use super::Me;
use crate::atomic::{AtomicPtr, Ordering, compiler_fence};
use core::cell::Cell;
use core::ops::Deref;
use core::ptr::NonNull;

/// The regions that one thread can be a task of at a time. Each takes two entries of its robust list.
pub const MAX_ATTACHMENTS: usize = 128;

/// So many of them always have room on the list, whatever locks the thread holds.
const SURE_ATTACHMENTS: usize = 16;

/// A region that this thread is a task of, as [`Me::attach`] recorded it. Safe code can read its parts,
/// and neither make nor change one. As a [`Me`], it is for the call that got it.
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

impl Me {
    /// Whether one more region can be attached.
    pub fn can_attach(self) -> bool {
        let count = self.record.attached.get();
        count < SURE_ATTACHMENTS || count < MAX_ATTACHMENTS && self.recount() >= 2
    }

    /// Records an attachment; see [`Self::can_attach`].
    ///
    /// # Safety
    /// Its life-word and its tail are on this thread's robust list. `context` and `slot` are those that `detach` asks
    /// for, and `detach`, which forgets the attachment, may be called with them in this thread at any time.
    pub unsafe fn attach(self, parts: AttachmentParts) {
        let count = self.record.attached.get();
        self.record.held[count].set(0);
        self.record.attachments[count].set(Some(Attachment(parts)));
        self.record.attached.set(count + 1);
        self.place_anchor();
        self.record.place_first();
    }

    /// Removes the record of an attachment without calling its `detach`.
    ///
    /// # Safety
    /// Its life-word is still on the list: otherwise a signal handler's lock would be linked at an anchor that is not on
    /// the list. No operation of this thread [relies on](Self::rely_on_attachment) the attachment any more.
    pub unsafe fn forget(self, base: usize) {
        let places = &self.record.attachments[..self.record.attached.get()];
        let is_it =
            |place: &Cell<Option<Attachment>>| place.get().is_some_and(|it| it.base == base);
        if let Some(index) = places.iter().position(is_it) {
            let last = places.len() - 1;
            self.record.first_bytes.set(0);
            compiler_fence(Ordering::SeqCst);
            places[index].swap(&places[last]);
            places[last].take();
            let held = &self.record.held;
            held[index].swap(&held[last]);
            held[last].set(0);
            self.record.attached.set(last);
        }
        self.place_anchor();
        self.record.place_first();
    }

    /// Sets the anchor to the last life-word on the list, and the end to the first tail. The anchor is never another
    /// lock: libc may unlink its own at any time.
    fn place_anchor(self) {
        self.with_list((), |head| {
            let (anchor, end) = self.anchor_and_end(head);
            self.record.anchor.set(anchor);
            self.record.end.set(end);
        });
    }
}

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
