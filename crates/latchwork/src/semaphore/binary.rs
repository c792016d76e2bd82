//! Handles on semaphores with an owner: binary ones, plain, with a ceiling, or inheriting.

use super::handle::{ObjectRef, Properties, guard, obtaining};
use super::{
    Caller, Core, Discipline, Form, Kind, Obtained, Priority, Refusal, WaitLimit, owned, priority,
};
use super::{ObtainError, ReleaseError, SemaphoreError, UseError};
use crate::atomic::Ordering;
use crate::hook::{self, Site};
use crate::region::{Region, TaskId, wait_record::LOWEST};
use crate::time::Deadline;
use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

/// The options of a binary semaphore to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryOptions {
    kind: Kind,
    discipline: Discipline,
    ceiling: Priority,
    obtained: bool,
}

impl BinaryOptions {
    /// Free, first come, first served, without a protocol.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            kind: Kind::Binary,
            discipline: Discipline::Fifo,
            ceiling: Priority::LOWEST,
            obtained: false,
        }
    }

    /// The waiter of the highest priority is served first.
    #[must_use]
    pub const fn by_priority(mut self) -> Self {
        self.discipline = Discipline::Priority;
        self
    }

    /// The owner has the priority of its best waiter, if that is better than its own. Served by priority.
    #[must_use]
    pub const fn inherit(mut self) -> Self {
        self.kind = Kind::Inherit;
        self.by_priority()
    }

    /// The owner has this priority, if that is better than its own; tasks with a better one must not use the semaphore.
    /// Served by priority.
    #[must_use]
    pub const fn ceiling(mut self, ceiling: Priority) -> Self {
        self.kind = Kind::Ceiling;
        self.ceiling = ceiling;
        self.by_priority()
    }

    /// The task that creates it owns it at once, and must [release](BinarySemaphore::release) it.
    #[must_use]
    pub const fn obtained(mut self) -> Self {
        self.obtained = true;
        self
    }
}

impl Default for BinaryOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// A semaphore that the task that obtained it owns. The owner may obtain it again, and releases it as often.
///
/// ```
/// use latchwork::region::RegionOptions;
/// use latchwork::semaphore::{BinaryOptions, BinarySemaphore};
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let bus = BinarySemaphore::create(&region, "bus", &BinaryOptions::new().by_priority())?;
/// let outer = bus.obtain()?;
/// let inner = bus.obtain()?;
/// drop(inner);
/// drop(outer);
/// assert!(bus.owner().is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *Owner death:* [`Held::owner_died`] reports it to the next owner; a guard dropped by a panic counts as owner death.
/// *Deadlock:* a wait that would complete a cycle of owners that wait for each other, of any length and through any
/// processes, is refused; if several tasks complete it at the same moment, at least one of them gets the error. Waits
/// in other regions, or for objects that are not semaphores with an owner, are not detected.
#[derive(Clone, Copy)]
pub struct BinarySemaphore<'r> {
    pub(super) object: ObjectRef<'r>,
    kind: Kind,
    /// An uncontended pair only changes the word: there is no ceiling, and no listener.
    pub(super) has_fast_path: bool,
}

impl<'r> BinarySemaphore<'r> {
    /// The size of a semaphore in the region, in bytes.
    pub const BYTES: usize = ObjectRef::BYTES;

    /// Creates the semaphore of this name, or opens it if there is one of this kind and discipline, whatever its
    /// ceiling and owner.
    ///
    /// # Errors
    /// See [`SemaphoreError`].
    #[track_caller]
    pub fn create(
        region: &'r Region,
        name: &str,
        options: &BinaryOptions,
    ) -> Result<Self, SemaphoreError> {
        let properties = Properties {
            form: Form::new(options.kind, options.discipline),
            count: 0,
            ceiling: u32::from(options.ceiling.get()),
            obtained: options.obtained,
        };
        let (object, _) = ObjectRef::create::<Core>(region, name, &properties, Site::caller())?;
        Ok(Self::on(object))
    }

    /// Opens the semaphore of this name.
    ///
    /// # Errors
    /// See [`SemaphoreError`].
    #[track_caller]
    pub fn open(region: &'r Region, name: &str) -> Result<Self, SemaphoreError> {
        let accepts = |kind: Kind| kind.has_owner() && kind != Kind::Mrsp;
        let (object, _) = ObjectRef::open::<Core>(region, name, Site::caller(), accepts)?;
        Ok(Self::on(object))
    }

    pub(crate) fn on(object: ObjectRef<'r>) -> Self {
        let kind = object.core.form().kind();
        Self {
            object,
            kind,
            has_fast_path: !kind.has_ceiling() && !hook::is_observed(),
        }
    }

    obtaining! {
        Held<'r>, "Obtains the semaphore, waiting for it";
        /// Obtains the semaphore, waiting while another task owns it.
        ///
        /// # Errors
        /// [`ObtainError::Deadlock`], [`ObtainError::AboveCeiling`], [`ObtainError::Flushed`],
        /// [`ObtainError::Deleted`], [`ObtainError::Attach`].
        obtain;
        /// Obtains the semaphore if no other task owns it at this moment.
        ///
        /// # Errors
        /// [`ObtainError::WouldBlock`], [`ObtainError::AboveCeiling`], [`ObtainError::Deleted`],
        /// [`ObtainError::Attach`].
        try_obtain
    }

    #[inline(always)]
    fn obtain_with(&self, limit: WaitLimit, site: Site) -> Result<Held<'r>, ObtainError> {
        let obtained = if self.try_obtain_fast() {
            Obtained::Clean
        } else {
            self.obtain_slow(limit, site)?
        };
        Ok(Held::new(*self, obtained))
    }

    /// Obtains the semaphore if it is free and the fast path suffices.
    #[inline(always)]
    pub(crate) fn try_obtain_fast(&self) -> bool {
        let ObjectRef { inner, core, key } = self.object;
        if self.has_fast_path
            && let Some(task) = inner.first_attached_task()
            && owned::obtain_free(core, key, task.owner().raw())
        {
            task.slot.wait.standing.obtained();
            return true;
        }
        false
    }

    #[cold]
    pub(crate) fn obtain_slow(&self, limit: WaitLimit, site: Site) -> Result<Obtained, Refusal> {
        self.object.obtain_owned(limit, site, owned::obtain)
    }

    /// Releases the semaphore once. Required for each obtain whose guard was [kept](Held::keep), and for a semaphore
    /// that was created obtained. The last release hands it to the first waiter, if there is one.
    ///
    /// # Errors
    /// [`ReleaseError::NotOwner`], [`ReleaseError::Deleted`], [`ReleaseError::Attach`].
    #[inline]
    #[track_caller]
    pub fn release(&self) -> Result<(), ReleaseError> {
        self.release_with(false, Site::caller())
    }

    #[inline(always)]
    pub(crate) fn release_with(&self, torn: bool, site: Site) -> Result<(), ReleaseError> {
        let ObjectRef { inner, core, key } = self.object;
        if self.has_fast_path
            && !torn
            && let Some(task) = inner.first_attached_task()
            && owned::release_free(core, key, task.owner().raw())
        {
            let task = Caller::new(task);
            task.record.standing.released();
            if self.kind == Kind::Inherit {
                priority::lower_priority(inner, core, task);
            }
            return Ok(());
        }
        self.release_slow(torn, site)
    }

    #[cold]
    fn release_slow(&self, torn: bool, site: Site) -> Result<(), ReleaseError> {
        let release = |access: &_| owned::release(access, torn);
        self.object.release_owned(site, release)
    }

    /// Ends the waits of all waiters, in the order in which they would be served: they get [`ObtainError::Flushed`].
    /// The owner keeps the semaphore. Returns the number of waiters.
    ///
    /// # Errors
    /// [`UseError::Deleted`], [`UseError::Attach`].
    #[track_caller]
    pub fn flush(&self) -> Result<u32, UseError> {
        self.object.flush(Site::caller())
    }

    /// Deletes the semaphore, which no task may own: later calls get [`ObtainError::Deleted`]. A new one of this name
    /// can be created; the handles on this one do not affect it (for the next 4095 of them).
    ///
    /// # Errors
    /// [`UseError::InUse`], [`UseError::Deleted`], [`UseError::Attach`].
    #[track_caller]
    pub fn delete(&self) -> Result<(), UseError> {
        self.object.delete_named(self.object.core, Site::caller())
    }

    /// The ceiling, if there is one.
    #[must_use]
    pub fn ceiling(&self) -> Option<Priority> {
        // Relaxed: the value may be stale when the call returns.
        let ceiling = self.object.core.ceiling.load(Ordering::Relaxed);
        (self.kind == Kind::Ceiling).then(|| Priority::recorded(ceiling))
    }

    /// Changes the ceiling; returns the one before. The owner's priority changes at once.
    ///
    /// # Errors
    /// [`UseError::NoCeiling`], [`UseError::Deleted`], [`UseError::Attach`].
    pub fn set_ceiling(&self, ceiling: Priority) -> Result<Priority, UseError> {
        let before = self.set_recorded_ceiling(ceiling.get().into())?;
        Ok(Priority::recorded(before))
    }

    /// The same in RTEMS's numbers, which include 0.
    pub(crate) fn set_recorded_ceiling(&self, ceiling: u32) -> Result<u32, UseError> {
        let ObjectRef { inner, core, .. } = self.object;
        if !self.kind.has_ceiling() {
            return Err(UseError::NoCeiling);
        }
        let locked = self.object.lock()?;
        let before = core.ceiling.swap(ceiling, Ordering::SeqCst);
        drop(locked);
        // A MrsP semaphore's ceiling takes effect with the next obtain.
        if self.kind == Kind::Ceiling {
            priority::ceiling_changed(inner, core);
        }
        debug_assert!(before <= LOWEST);
        Ok(before)
    }

    /// The task that owns it at this moment. It may have died, if no task has come for the semaphore since.
    #[must_use]
    pub fn owner(&self) -> Option<TaskId> {
        self.object.owner()
    }

    /// The number of tasks in its queue at this moment.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.object.waiting()
    }
}

impl fmt::Debug for BinarySemaphore<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("BinarySemaphore")
            .field("kind", &self.kind)
            .field("owner", &self.owner())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

guard! {
    /// A binary semaphore that the calling task has obtained; dropping this releases it.
    Held of BinarySemaphore
}
