//! What the handles on all kinds have in common: a named object of a region.

use super::object::{DELETED, QUEUED, is_of, key_of, owner_of};
use super::{Access, Caller, Core, Form, Kind, Locked, Obtained, Priority, Refusal, WaitLimit};
use super::{ObtainError, ReleaseError, SemaphoreError, TaskTable, UseError};
use super::{counting, mrsp, priority, report};
use crate::atomic::Ordering::Relaxed;
use crate::hook::Site;
use crate::region::wait_record;
use crate::region::{
    AttachError, Inner, ObjectError, Region, Reused, SpareKind, Task, TaskId, fingerprint,
};
use std::sync::Arc;

pub(super) const FINGERPRINT: u64 =
    fingerprint("semaphore", size_of::<Core>(), align_of::<Core>(), &[5]);

/// A reference to a semaphore: its core, and the key of the incarnation.
#[derive(Clone, Copy)]
pub(crate) struct ObjectRef<'r> {
    pub(crate) inner: &'r Arc<Inner>,
    pub(crate) core: &'r Core,
    /// See `object.rs`.
    pub(crate) key: u64,
}

/// The properties of a semaphore to create.
pub(crate) struct Properties {
    pub(crate) form: Form,
    pub(crate) count: u32,
    pub(crate) ceiling: u32,
    /// The caller owns it from its creation on.
    pub(crate) obtained: bool,
}

/// An object in a region that contains a semaphore.
pub(super) trait Place: Reused {
    fn core(&self) -> &Core;
    /// Prepares it for a new semaphore, under the lock, before other tasks can find it.
    fn prepare(&self, _properties: &Properties) {}
}

impl<'r> ObjectRef<'r> {
    pub(super) const BYTES: usize = size_of::<Core>();

    /// Creates the semaphore of this name, or opens it if there is one of this form.
    pub(super) fn create<S: Place>(
        region: &'r Region,
        name: &str,
        properties: &Properties,
        site: Site,
    ) -> Result<(Self, &'r S), SemaphoreError> {
        let inner = region.inner();
        // Opens the semaphore at a place. If there is none, creates it if `begins` names the caller, or else returns `None`.
        let at = |place: &'r S, begins: Option<Caller<'r>>| {
            let core = place.core();
            let _locked = Locked::new(inner, core)?;
            let (key, creator) = match (core.key(), begins) {
                (Some(key), _) if core.form() == properties.form => (key, None),
                (Some(_), _) => return Err(SemaphoreError::OtherKind),
                (None, Some(caller)) => {
                    place.prepare(properties);
                    (create_locked(core, properties, caller)?, begins)
                }
                (None, None) => return Ok(None),
            };
            Ok(Some((Self { inner, core, key }, place, creator)))
        };
        let begin = |place| {
            let caller = Caller::new(inner.task()?);
            Ok(at(place, Some(caller))?.ok_or(ObjectError::Damaged)?)
        };
        let (object, place, creator) = region.reused(name, |place| at(place, None), begin)?;
        report::named(object.core, name, site);
        if let Some(caller) = creator {
            finish_creation(inner, object.core, properties, caller, site);
        }
        Ok((object, place))
    }

    /// Opens the semaphore of this name if `accepts` accepts its kind.
    pub(super) fn open<S: Place>(
        region: &'r Region,
        name: &str,
        site: Site,
        accepts: impl FnOnce(Kind) -> bool,
    ) -> Result<(Self, &'r S), SemaphoreError> {
        let (object, place) = region.find_reused(name, |place: &'r S| {
            let (inner, core) = (region.inner(), place.core());
            let object = core.key().map(|key| (Self { inner, core, key }, place));
            match object {
                Some(_) if !accepts(core.form().kind()) => Err(SemaphoreError::OtherKind),
                object => Ok(object),
            }
        })?;
        report::named(object.core, name, site);
        Ok((object, place))
    }

    /// A task's access. (It is made where it is used: copied out of a `Result`, it costs each obtain and release 5 ns.)
    #[inline]
    fn access(&self, task: Task<'r>) -> Access<'r, Arc<Inner>> {
        Access {
            tasks: self.inner,
            core: self.core,
            key: self.key,
            caller: Caller::new(task),
        }
    }

    /// The object, locked, if it is still the handle's.
    pub(super) fn lock(&self) -> Result<Locked<'r, Arc<Inner>>, UseError> {
        self.inner.task()?;
        let locked = Locked::new(self.inner, self.core)?;
        let is_mine = self.core.key() == Some(self.key);
        is_mine.then_some(locked).ok_or(UseError::Deleted)
    }

    /// Obtains a unit of a count.
    #[inline(always)]
    pub(crate) fn obtain_unit(&self, limit: WaitLimit, site: Site) -> Result<(), ObtainError> {
        if counting::obtain_free(self.core, self.key) {
            return Ok(());
        }
        Ok(self.obtain_unit_slow(limit, site)?)
    }

    #[cold]
    pub(crate) fn obtain_unit_slow(&self, limit: WaitLimit, site: Site) -> Result<(), Refusal> {
        let access = self.access(self.inner.task()?);
        let obtain = |limit| counting::obtain(&access, limit);
        report::obtain_unit(self.core, limit, site, obtain)
    }

    /// Releases a unit; the count is at most `max`.
    #[inline(always)]
    pub(crate) fn release_unit(&self, max: u32, site: Site) -> Result<(), ReleaseError> {
        if counting::release_free(self.core, self.key, max) {
            return Ok(());
        }
        self.release_unit_slow(max, site)
    }

    #[cold]
    fn release_unit_slow(&self, max: u32, site: Site) -> Result<(), ReleaseError> {
        // Only a task acquires the object's lock.
        let released = counting::release(&self.access(self.inner.task()?), max);
        report::released(self.core, self.key, &released, site);
        released
    }

    /// Obtains a semaphore with an owner by `obtain`.
    #[inline]
    pub(super) fn obtain_owned(
        &self,
        limit: WaitLimit,
        site: Site,
        obtain: impl Fn(&Access<'r, Arc<Inner>>, WaitLimit) -> Result<Obtained, Refusal>,
    ) -> Result<Obtained, Refusal> {
        let access = self.access(self.inner.task()?);
        let obtain = |limit| obtain(&access, limit);
        report::obtain(self.core, limit, site, obtain)
    }

    /// Releases a semaphore with an owner by `release`.
    #[inline]
    pub(super) fn release_owned(
        &self,
        site: Site,
        release: impl FnOnce(&Access<'r, Arc<Inner>>) -> Result<(), ReleaseError>,
    ) -> Result<(), ReleaseError> {
        let released = self.possible_owner().and_then(|task| {
            let access = self.access(task);
            report::releasing(&access, site);
            release(&access)
        });
        if site != Site::UNKNOWN {
            report::released(self.core, self.key, &released, site);
        }
        released
    }

    /// The calling task, if it may own the semaphore: an owner is a task already, and the child of a fork
    /// does not become one when it releases what it does not own.
    #[inline]
    fn possible_owner(&self) -> Result<Task<'r>, ReleaseError> {
        let thread = crate::task::Me::get().map_err(AttachError::from)?;
        let task = self.inner.attached_task(thread);
        task.ok_or(match self.word() {
            Some(_) => ReleaseError::NotOwner,
            None => ReleaseError::Deleted,
        })
    }

    /// The identity of the calling task; 0 if the thread is no task of the region.
    #[inline(always)]
    pub(super) fn caller(&self) -> u64 {
        match self.inner.first_attached_task() {
            Some(task) => task.owner().raw(),
            None => self.caller_elsewhere(),
        }
    }

    /// [`Self::caller`] for a thread whose first attachment, if it has one, is not to this region.
    #[cold]
    fn caller_elsewhere(&self) -> u64 {
        let thread = crate::task::Me::get().ok();
        let task = thread.and_then(|thread| self.inner.attached_task(thread));
        task.map_or(0, |task| task.owner().raw())
    }

    /// Ends the waits of all waiters; returns their number.
    pub(crate) fn flush(&self, site: Site) -> Result<u32, UseError> {
        let locked = self.lock();
        let flushed = locked.map(|locked| locked.end_all_waits(wait_record::FLUSHED));
        if matches!(flushed, Ok(1..)) {
            priority::refresh_owner(self.inner, self.core);
        }
        report::flushed_or_deleted(self.core, &flushed, None, site);
        flushed
    }

    /// Deletes a named semaphore, which lies in `place`, and frees the name.
    pub(super) fn delete_named<S: Place>(
        &self,
        place: *const S,
        site: Site,
    ) -> Result<(), UseError> {
        self.delete(site)?;
        self.inner.release_name(place);
        Ok(())
    }

    /// Deletes the semaphore.
    pub(crate) fn delete(&self, site: Site) -> Result<(), UseError> {
        let waiting = self.waiting();
        let deleted = self.end();
        report::flushed_or_deleted(self.core, &deleted, Some(waiting), site);
        deleted
    }

    fn end(&self) -> Result<(), UseError> {
        let Self { inner, core, .. } = *self;
        let locked = self.lock()?;
        let has_owner = core.form().kind().has_owner();
        loop {
            let word = core.word.load(Relaxed);
            let owner = owner_of(word);
            if has_owner && owner != 0 {
                if TaskTable::is_alive(inner, owner) {
                    return Err(UseError::InUse);
                }
                locked.settle_dead_owner(word);
            } else if core.replace(word, key_of(word) | DELETED | word & QUEUED) {
                // It is deleted since that exchange, even if this task is killed: see `recover`.
                locked.end_all_waits(wait_record::DELETED);
                return Ok(());
            }
        }
    }

    /// The owner, which may have died, if no task has come for the semaphore since.
    pub(super) fn owner(&self) -> Option<TaskId> {
        match owner_of(self.word()?) {
            0 => None,
            owner => TaskId::from_raw(owner),
        }
    }

    /// The number of waiters.
    pub(crate) fn waiting(&self) -> u32 {
        // Relaxed: the value may be stale when the call returns.
        self.core.waiting.load(Relaxed)
    }

    /// The word, if the handle's semaphore still exists.
    pub(crate) fn word(&self) -> Option<u64> {
        let word = self.core.word.load(Relaxed);
        is_of(word, self.key).then_some(word)
    }
}

impl Reused for Core {
    const FINGERPRINT: u64 = FINGERPRINT;
    const KIND: SpareKind = SpareKind {
        list: 1,
        link: Self::NEXT_SPARE,
    };

    fn new() -> Self {
        Self::new()
    }

    fn has_ended(&self) -> bool {
        self.key().is_none()
    }
}

impl Place for Core {
    fn core(&self) -> &Core {
        self
    }
}

/// Creates a semaphore in a core without one, under its lock; the calling task owns it if `properties` say so.
pub(crate) fn create_locked(
    core: &Core,
    properties: &Properties,
    caller: Caller<'_>,
) -> Result<u64, SemaphoreError> {
    debug_assert!(key_of(DELETED) == 0);
    let kind = properties.form.kind();
    let (own, ceiling) = (caller.priority(), properties.ceiling);
    if properties.obtained && kind.has_ceiling() && own < ceiling {
        let [own, ceiling] = [own, ceiling].map(Priority::recorded);
        return Err(SemaphoreError::AboveCeiling { own, ceiling });
    }
    let content = match kind.has_owner() {
        true if properties.obtained => {
            if kind == Kind::Mrsp {
                mrsp::before_creation(caller, ceiling);
            }
            caller.record.standing.obtained();
            caller.task
        }
        true => 0,
        false => u64::from(properties.count) << 32,
    };
    Ok(core.init(properties.form, properties.ceiling, content))
}

/// The rest after [`create_locked`], when the lock has been released.
pub(crate) fn finish_creation(
    inner: &Arc<Inner>,
    core: &Core,
    properties: &Properties,
    caller: Caller<'_>,
    site: Site,
) {
    if !properties.obtained {
        return;
    }
    report::created(core, site);
    match properties.form.kind() {
        Kind::Ceiling => priority::push_ceiling(inner, core, caller),
        Kind::Mrsp => mrsp::after_creation(inner, core, caller),
        _ => {}
    }
}

/// The functions of a handle that obtain, by its function `obtain_with`.
macro_rules! obtaining {
    (
        $held:ty, $what:literal;
        $(#[$obtain:meta])* obtain;
        $(#[$try_obtain:meta])* try_obtain
    ) => {
        $(#[$obtain])*
        #[inline]
        #[track_caller]
        pub fn obtain(&self) -> Result<$held, ObtainError> {
            self.obtain_with(WaitLimit::Until(None), Site::caller())
        }

        $(#[$try_obtain])*
        #[inline]
        #[track_caller]
        pub fn try_obtain(&self) -> Result<$held, ObtainError> {
            self.obtain_with(WaitLimit::Try, Site::caller())
        }

        #[doc = concat!($what, " until `deadline`.")]
        ///
        /// # Errors
        /// [`ObtainError::TimedOut`], and as for [`Self::obtain`].
        #[inline]
        #[track_caller]
        pub fn obtain_until(&self, deadline: Deadline) -> Result<$held, ObtainError> {
            self.obtain_with(WaitLimit::Until(Some(deadline)), Site::caller())
        }

        #[doc = concat!($what, " for at most `timeout`.")]
        ///
        /// # Errors
        /// As for [`Self::obtain_until`].
        #[track_caller]
        pub fn obtain_for(&self, timeout: Duration) -> Result<$held, ObtainError> {
            self.obtain_until(Deadline::after(timeout))
        }
    };
}
pub(super) use obtaining;

/// The guard of a semaphore with an owner, which the handle's function `release_with` releases.
macro_rules! guard {
    ($(#[$meta:meta])* $held:ident of $semaphore:ident) => {
        $(#[$meta])*
        ///
        /// If this is dropped by a panic, the semaphore is released as if its owner had died. In the child of a fork,
        /// which owns nothing, dropping it does nothing.
        #[must_use = "the semaphore is released when this is dropped; see `keep`"]
        pub struct $held<'r> {
            semaphore: $semaphore<'r>,
            owner_died: bool,
            /// The identity of the task that obtained it.
            owner: u64,
            /// The semaphore belongs to the thread.
            thread: PhantomData<*const ()>,
        }

        impl<'r> $held<'r> {
            #[inline(always)]
            fn new(semaphore: $semaphore<'r>, obtained: Obtained) -> Self {
                Self {
                    owner: semaphore.object.caller(),
                    semaphore,
                    owner_died: obtained == Obtained::OwnerDied,
                    thread: PhantomData,
                }
            }

            /// Whether the previous owner died, or panicked: the data that the semaphore protects may be half changed.
            #[must_use]
            pub fn owner_died(&self) -> bool {
                self.owner_died
            }

            #[doc = concat!(
                "Leaves the semaphore obtained; this task must [release](", stringify!($semaphore), "::release) it later."
            )]
            pub fn keep(self) {
                core::mem::forget(self);
            }
        }

        impl Drop for $held<'_> {
            #[inline]
            fn drop(&mut self) {
                // The child of a fork may have obtained the semaphore itself: that is another guard's.
                if self.owner != self.semaphore.object.caller() {
                    return;
                }
                let torn = std::thread::panicking();
                match self.semaphore.release_with(torn, Site::UNKNOWN) {
                    // The semaphore was released by hand.
                    Ok(()) | Err(ReleaseError::NotOwner | ReleaseError::Deleted) => {}
                    Err(error) => crate::fatal(format_args!("a semaphore cannot be released: {error}")),
                }
            }
        }

        impl fmt::Debug for $held<'_> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut formatter = formatter.debug_struct(stringify!($held));
                formatter.field("semaphore", &self.semaphore);
                formatter.field("owner_died", &self.owner_died).finish()
            }
        }
    };
}
pub(super) use guard;
