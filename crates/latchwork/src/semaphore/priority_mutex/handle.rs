//! The handle on a priority mutex.

use super::guard::{LockError, OwnerDied, PriorityGuard};
use super::lock::Lock;
use super::shared::Shared;
use crate::hook::Site;
use crate::region::{ObjectError, Region, Shareable, TaskId};
use crate::semaphore::{
    Form, Kind, Obtained, Priority, SemaphoreError, UseError, WaitLimit, report,
};
use crate::time::Deadline;
use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;

/// The options of a priority mutex to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityMutexOptions {
    ceiling: Option<Priority>,
}

impl PriorityMutexOptions {
    /// The owner has the priority of its best waiter, if that is better than its own.
    #[must_use]
    pub const fn new() -> Self {
        Self { ceiling: None }
    }

    /// Instead of that, the owner has this priority, if it is better than its own; tasks with a better one must not use the
    /// mutex.
    #[must_use]
    pub const fn ceiling(mut self, ceiling: Priority) -> Self {
        self.ceiling = Some(ceiling);
        self
    }

    fn form(self) -> Form {
        Form::with_data(match self.ceiling {
            None => Kind::Inherit,
            Some(_) => Kind::Ceiling,
        })
    }
}

impl Default for PriorityMutexOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// A mutex with data, as a named object of a region: waiters are served by recorded priority, and the owner inherits that of
/// its best waiter.
///
/// It is the lock for real-time tasks of several processes, also of several PID namespaces. Inheritance follows chains of
/// owners, through this mutex, through a [`BinarySemaphore`](crate::semaphore::BinarySemaphore) that inherits, and through
/// all processes of the region. The priorities are the recorded ones
/// ([`TaskPriority`](crate::semaphore::TaskPriority)); the kernel gets those of tasks that are
/// [mirrored](crate::semaphore::TaskPriority::mirror). [`PriorityMutexOptions::ceiling`] gives the owner a fixed priority
/// instead.
///
/// This is a handle, which may be copied. Only a [`PriorityGuard`] releases the mutex, and nothing deletes it: it stays until
/// the end of the region, and its data is then not dropped.
///
/// ```
/// use latchwork::region::RegionOptions;
/// use latchwork::semaphore::priority_mutex::LockError;
/// use latchwork::semaphore::{PriorityMutex, PriorityMutexOptions};
///
/// let region = RegionOptions::new().any_pid_namespace(true).create_anonymous()?;
/// let options = PriorityMutexOptions::new();
/// let plan = PriorityMutex::create(&region, "plan", &options, || [0_u32; 16])?;
/// let mut steps = match plan.lock() {
///     Ok(steps) => steps,
///     // The owner died; what it was doing to the data is ours to find out.
///     Err(LockError::OwnerDied(died)) => died.make_consistent(),
///     Err(error) => return Err(error.into()),
/// };
/// steps[3] = 7;
/// // It does not nest: there can be no second `&mut` to the data.
/// assert!(matches!(plan.lock(), Err(LockError::Deadlock)));
/// drop(steps);
/// assert_eq!(plan.lock()?[3], 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *Owner death:* the next owner gets [`LockError::OwnerDied`], with the lock; a guard dropped by a panic counts as owner
/// death. If it is dropped without a repair, the mutex is not recoverable, for ever. *End of a thread:* a lock whose guard
/// it has forgotten stays locked until its process ends, which is then reported as the owner's death; so do the semaphores
/// that the thread owns besides. *Deadlock:* as for [`BinarySemaphore`](crate::semaphore::BinarySemaphore). *Fork:* the
/// child owns nothing; dropping an inherited guard there aborts. *Signal handlers* must not use a mutex that the
/// interrupted code may be using. *Order, polling before the queue:* see [`semaphore`](crate::semaphore).
///
/// *Cost:* lock and unlock of a free one are one compare-and-swap each; with a ceiling, or while an observer such as the
/// checker is registered, it takes the object's lock. It has 192 bytes and more, by its data.
pub struct PriorityMutex<'r, T: ?Sized> {
    lock: Lock<'r, T>,
}

impl<T: ?Sized> Clone for PriorityMutex<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for PriorityMutex<'_, T> {}

type LockResult<'r, T> = Result<PriorityGuard<'r, T>, LockError<'r, T>>;

impl<'r, T: Shareable> PriorityMutex<'r, T> {
    /// Creates the mutex of this name, with the data that `make` returns; or opens it if there is one of this type and
    /// protocol, whatever its ceiling and owner.
    ///
    /// `make` runs at most once per name, under the directory's lock, like that of [`Region::object`]; it must not use the
    /// directory itself. If the caller is killed in `make`, or `make` panics, the name stays free.
    ///
    /// # Errors
    /// [`ObjectError::OtherType`] if the name belongs to an object of another type; [`SemaphoreError::OtherKind`] if it is a
    /// mutex with the other protocol. See [`SemaphoreError`].
    #[track_caller]
    pub fn create(
        region: &'r Region,
        name: &str,
        options: &PriorityMutexOptions,
        make: impl FnOnce() -> T,
    ) -> Result<Self, SemaphoreError> {
        if T::NAMES_THREADS && region.inner().spans_pid_namespaces() {
            return Err(ObjectError::NamesThreads.into());
        }
        let (form, ceiling) = (options.form(), options.ceiling);
        let fingerprint = Shared::<T>::FINGERPRINT;
        let (block, bytes) =
            region.raw_object(name, fingerprint, Layout::new::<Shared<T>>(), |block| {
                let ceiling = ceiling.map_or(0, |ceiling| ceiling.get().into());
                Shared::write(block, form, ceiling, make);
            })?;
        let mutex = Self::found(region, block, bytes, name, Site::caller())?;
        let is_it = mutex.lock.shared.core.form() == form;
        is_it.then_some(mutex).ok_or(SemaphoreError::OtherKind)
    }

    /// Opens the mutex of this name.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`], [`ObjectError::OtherType`]; see [`SemaphoreError`].
    #[track_caller]
    pub fn open(region: &'r Region, name: &str) -> Result<Self, SemaphoreError> {
        let (block, bytes) = region.find_raw_object(name, Shared::<T>::FINGERPRINT)?;
        Self::found(region, block, bytes, name, Site::caller())
    }

    fn found(
        region: &'r Region,
        block: NonNull<u8>,
        bytes: usize,
        name: &str,
        site: Site,
    ) -> Result<Self, SemaphoreError> {
        let shared = Shared::at(region, block, bytes)?;
        report::named(&shared.core, name, site);
        let lock = Lock::new(region, shared);
        Ok(Self { lock })
    }
}

impl<'r, T: ?Sized> PriorityMutex<'r, T> {
    /// Acquires the lock, waiting while another task has it.
    ///
    /// # Errors
    /// See [`LockError`]; `WouldBlock` and `TimedOut` do not occur.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> LockResult<'r, T> {
        self.lock_with(WaitLimit::Until(None), Site::caller())
    }

    /// Acquires the lock if no other task has it at this moment.
    ///
    /// # Errors
    /// See [`LockError`]; `TimedOut` does not occur.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> LockResult<'r, T> {
        self.lock_with(WaitLimit::Try, Site::caller())
    }

    /// Acquires the lock, or fails once `deadline` has passed.
    ///
    /// # Errors
    /// See [`LockError`]; `WouldBlock` does not occur.
    #[inline]
    #[track_caller]
    pub fn lock_until(&self, deadline: Deadline) -> LockResult<'r, T> {
        self.lock_with(WaitLimit::Until(Some(deadline)), Site::caller())
    }

    /// Acquires the lock, or fails after `timeout`.
    ///
    /// # Errors
    /// See [`LockError`]; `WouldBlock` does not occur.
    #[track_caller]
    pub fn lock_for(&self, timeout: Duration) -> LockResult<'r, T> {
        self.lock_until(Deadline::after(timeout))
    }

    #[inline(always)]
    fn lock_with(&self, limit: WaitLimit, site: Site) -> LockResult<'r, T> {
        let (obtained, owner) = self.lock.obtain(limit, site)?;
        let guard = PriorityGuard::new(self.lock, owner);
        match obtained {
            Obtained::Clean => Ok(guard),
            Obtained::OwnerDied => Err(LockError::OwnerDied(OwnerDied::new(guard))),
        }
    }

    /// The ceiling, if there is one.
    #[must_use]
    pub fn ceiling(&self) -> Option<Priority> {
        self.lock.semaphore.ceiling()
    }

    /// Changes the ceiling; returns the one before. The owner's priority changes at once.
    ///
    /// # Errors
    /// [`UseError::NoCeiling`]; [`UseError::Deleted`] if the mutex is not recoverable; [`UseError::Attach`].
    pub fn set_ceiling(&self, ceiling: Priority) -> Result<Priority, UseError> {
        self.lock.semaphore.set_ceiling(ceiling)
    }

    /// The task that has the lock at this moment. It may have died, if no task has come for the mutex since.
    #[must_use]
    pub fn owner(&self) -> Option<TaskId> {
        self.lock.semaphore.owner()
    }

    /// The number of tasks in its queue at this moment.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.lock.semaphore.waiting()
    }
}

impl<T: ?Sized> fmt::Debug for PriorityMutex<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PriorityMutex")
            .field("owner", &self.owner())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
