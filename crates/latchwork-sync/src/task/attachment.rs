//! A region that a thread is a task of, as the thread's record names it.

use core::ops::Deref;
use core::ptr::NonNull;

/// The regions that one thread can be a task of at a time. Each takes two entries of its robust list.
pub const MAX_ATTACHMENTS: usize = 128;

/// A region that this thread is a task of, as [`Me::attach`](super::Me::attach) recorded it. Safe code can read its parts,
/// and neither make nor change one. As a [`Me`](super::Me), it is for the call that got it.
#[derive(Clone, Copy)]
pub struct Attachment(AttachmentParts);

impl Attachment {
    #[inline]
    pub(super) fn new(parts: AttachmentParts) -> Self {
        Self(parts)
    }
}

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
