//! The identity of a task.
#![allow(unsafe_code)]

use super::heap::Owner;
use super::{AttachError, Region, Shareable, fingerprint};
use core::fmt;
use core::num::NonZero;

/// Identifies a task of a region for ever: a later task in the same place of the task table has another ID.
///
/// The ID means the same in every process that has the region, and nothing in another region. It can be stored in the
/// region, or sent by any means, as it is or as a [number](Self::to_raw).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct TaskId(NonZero<u64>);

impl TaskId {
    pub(crate) fn new(owner: Owner) -> Self {
        // An owner is never 0.
        Self(NonZero::new(owner.raw()).unwrap_or(NonZero::<u64>::MAX))
    }

    /// The place in the task table.
    #[must_use]
    pub fn slot(self) -> u16 {
        (self.0.get() >> 16) as u16
    }

    /// The number of tasks that this place has had, this one included (0 is skipped when it wraps).
    #[must_use]
    pub fn generation(self) -> u32 {
        (self.0.get() >> 32) as u32
    }

    /// The ID as a number other than 0.
    #[must_use]
    pub fn to_raw(self) -> u64 {
        self.0.get()
    }

    /// The reverse of [`Self::to_raw`]. Any other number names no task, which is detected when it is used.
    #[must_use]
    pub fn from_raw(raw: u64) -> Option<Self> {
        NonZero::new(raw).map(Self)
    }

    #[doc(hidden)]
    #[inline]
    pub fn owner(self) -> Option<Owner> {
        let generation = NonZero::new(self.generation())?;
        let owner = Owner::new(self.slot(), generation);
        (owner.raw() == self.to_raw()).then_some(owner)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TaskId({}.{})", self.slot(), self.generation())
    }
}

// SAFETY: an integer that is not 0; it names a task in the region's own table.
unsafe impl Shareable for TaskId {
    const FINGERPRINT: u64 = fingerprint("TaskId", size_of::<Self>(), align_of::<Self>(), &[]);
}

impl Region {
    /// The ID of the calling thread, which becomes a task of the region if it is none yet.
    ///
    /// # Errors
    /// As for [`Self::join`].
    pub fn task_id(&self) -> Result<TaskId, AttachError> {
        Ok(TaskId::new(self.inner().task()?.owner()))
    }

    /// Whether a task has neither left nor died. The answer may be outdated when the caller gets it.
    #[must_use]
    pub fn has_task(&self, task: TaskId) -> bool {
        task.owner()
            .is_some_and(|owner| self.inner().is_alive(owner))
    }
}
