//! What the handles on all kinds have in common: a named object of a region.

use super::caller::Caller;
use super::error::{ObtainError, ReleaseError, SemaphoreError, UseError};
use super::object::{Core, DELETED, Form, Kind, key_of};
use super::wait::WaitLimit;
use super::wait_queue::Locked;
use super::{Refusal, counting, mrsp, owned, priority, report};
use crate::atomic::Ordering;
use crate::hook::Site;
use crate::region::wait_record::{FLUSHED, LOWEST};
use crate::region::{
    AttachError, Inner, ObjectError, Region, Reused, SpareKind, Task, fingerprint,
};
use std::sync::Arc;

pub(super) const FINGERPRINT: u64 =
    fingerprint("semaphore", size_of::<Core>(), align_of::<Core>(), &[4]);

/// A reference to a semaphore: its core, and the key of the incarnation.
#[derive(Clone, Copy)]
pub(crate) struct ObjectRef<'r> {
    pub(crate) inner: &'r Arc<Inner>,
    pub(crate) core: &'r Core,
    /// See `object.rs`.
    pub(crate) key: u64,
}

/// The reason why nothing was obtained.
pub(crate) enum Failure {
    Refused(Refusal),
    Attach(AttachError),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Self {
        Self::Attach(error)
    }
}

impl From<Failure> for ObtainError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(refusal) => refusal.into(),
            Failure::Attach(error) => Self::Attach(error),
        }
    }
}

/// The properties of a semaphore to create.
pub(crate) struct Properties {
    pub(crate) form: Form,
    pub(crate) count: u32,
    pub(crate) ceiling: u32,
    /// The caller owns it from its creation on.
    pub(crate) obtained: bool,
}

impl Properties {
    pub(crate) fn counting(form: Form, count: u32) -> Self {
        Self {
            form,
            count,
            ceiling: LOWEST,
            obtained: false,
        }
    }
}

impl<'r> ObjectRef<'r> {
    pub(super) const BYTES: usize = size_of::<Core>();

    /// Creates the semaphore of this name, or opens it if there is one of this form.
    pub(super) fn create(
        region: &'r Region,
        name: &str,
        properties: &Properties,
        site: Site,
    ) -> Result<Self, SemaphoreError> {
        let opened = region.reused(name, |core: &'r Core| {
            create_or_open_in(region.inner(), core, properties, || ())
        })?;
        Ok(opened.finish(properties, name, site))
    }

    /// Opens the semaphore of this name if `accepts` accepts its form.
    pub(super) fn open(
        region: &'r Region,
        name: &str,
        site: Site,
        accepts: impl FnOnce(Form) -> bool,
    ) -> Result<Self, SemaphoreError> {
        let open = |core: &'r Core| {
            let key = core.key().ok_or(ObjectError::NotFound)?;
            if !accepts(core.form()) {
                return Err(SemaphoreError::OtherKind);
            }
            let inner = region.inner();
            Ok(Self { inner, core, key })
        };
        let opened = region.find_reused(name, open)?;
        report::named(opened.core, name, site);
        Ok(opened)
    }

    /// Obtains a unit of a count.
    #[inline(always)]
    pub(crate) fn obtain_unit(&self, limit: WaitLimit, site: Site) -> Result<(), ObtainError> {
        if self.try_obtain_unit_fast() {
            return Ok(());
        }
        Ok(self.obtain_unit_slow(limit, site)?)
    }

    /// Obtains a unit if there is one and no task waits.
    #[inline(always)]
    pub(crate) fn try_obtain_unit_fast(&self) -> bool {
        counting::obtain_free(self.core, self.key)
    }

    #[cold]
    pub(crate) fn obtain_unit_slow(&self, limit: WaitLimit, site: Site) -> Result<(), Failure> {
        let caller = Caller::new(self.inner.task()?);
        let obtain = |limit| counting::obtain(self.inner, self.core, self.key, caller, limit);
        Ok(report::obtain_unit(self.core, limit, site, obtain)?)
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
        // The object's lock is robust, and its waiters watch over tasks only: so the caller must be one.
        self.inner.task()?;
        let released = counting::release(self.inner, self.core, self.key, max);
        let released = released.map_err(ReleaseError::from);
        report::released(self.core, self.key, &released, site);
        released
    }

    /// The calling task, if it may own the semaphore: an owner is a task already, and the child of a fork does not
    /// become one when it releases what it does not own.
    pub(super) fn calling_owner(&self) -> Result<Task<'r>, ReleaseError> {
        let thread = crate::task::Me::get().map_err(AttachError::from)?;
        self.inner.attached_task(thread).ok_or(match self.word() {
            Some(_) => ReleaseError::NotOwner,
            None => ReleaseError::Deleted,
        })
    }

    /// Ends the waits of all waiters; returns their number.
    pub(crate) fn flush(&self, site: Site) -> Result<u32, UseError> {
        let flushed = self.flush_all();
        report::flushed_or_deleted(self.core, &flushed, None, site);
        flushed
    }

    fn flush_all(&self) -> Result<u32, UseError> {
        self.inner.task()?;
        let locked = Locked::new(self.inner, self.core).map_err(AttachError::from)?;
        if self.core.key() != Some(self.key) {
            return Err(UseError::Deleted);
        }
        let count = locked.end_all_waits(FLUSHED);
        drop(locked);
        if count > 0 {
            priority::refresh_owner(self.inner, self.core);
        }
        Ok(count)
    }

    /// Deletes a named semaphore, and frees the name.
    pub(super) fn delete_named(&self, site: Site) -> Result<(), UseError> {
        self.delete(site)?;
        self.inner.release_name(self.core);
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
        self.inner.task()?;
        let (inner, core, key) = (self.inner, self.core, self.key);
        if core.form().kind().has_owner() {
            let deleted = owned::delete(inner, core, key).map_err(AttachError::from)?;
            deleted.map_err(|refusal| match refusal {
                owned::DeleteRefusal::Deleted => UseError::Deleted,
                owned::DeleteRefusal::InUse => UseError::InUse,
            })
        } else if counting::delete(inner, core, key).map_err(AttachError::from)? {
            Ok(())
        } else {
            Err(UseError::Deleted)
        }
    }

    /// The number of waiters.
    pub(crate) fn waiting(&self) -> u32 {
        // Relaxed: the value may be stale when the call returns.
        self.core.waiting.load(Ordering::Relaxed)
    }

    /// The word, if the handle's semaphore still exists.
    pub(crate) fn word(&self) -> Option<u64> {
        let word = self.core.word.load(Ordering::Relaxed);
        super::object::is_of(word, self.key).then_some(word)
    }
}

/// A semaphore that was created or opened, under the lock of the region's names.
pub(super) struct Opened<'r> {
    object: ObjectRef<'r>,
    is_new: bool,
    caller: Caller<'r>,
}

/// Creates a semaphore in a core without one, or opens the one that is there if it has this form. `prepare` runs for a
/// new one, under its lock, before other tasks can find it.
pub(super) fn create_or_open_in<'r>(
    inner: &'r Arc<Inner>,
    core: &'r Core,
    properties: &Properties,
    prepare: impl FnOnce(),
) -> Result<Opened<'r>, SemaphoreError> {
    let caller = Caller::new(inner.task()?);
    let _locked = Locked::new(inner, core).map_err(AttachError::from)?;
    let found = core.key();
    let key = match found {
        Some(key) if core.form() == properties.form => key,
        Some(_) => return Err(SemaphoreError::OtherKind),
        None => {
            prepare();
            create_locked(core, properties, caller)?
        }
    };
    Ok(Opened {
        object: ObjectRef { inner, core, key },
        is_new: found.is_none(),
        caller,
    })
}

impl<'r> Opened<'r> {
    /// Does the rest of the creation, without a lock.
    pub(super) fn finish(self, properties: &Properties, name: &str, site: Site) -> ObjectRef<'r> {
        let ObjectRef { inner, core, .. } = self.object;
        report::named(core, name, site);
        if self.is_new {
            finish_creation(inner, core, properties, self.caller, site);
        }
        self.object
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

/// Creates a semaphore in a core without one, under its lock; the calling task owns it if `properties` say so.
pub(crate) fn create_locked(
    core: &Core,
    properties: &Properties,
    caller: Caller<'_>,
) -> Result<u64, SemaphoreError> {
    debug_assert!(key_of(DELETED) == 0);
    if properties.obtained
        && properties.form.kind().has_ceiling()
        && caller.priority() < properties.ceiling
    {
        return Err(SemaphoreError::AboveCeiling {
            own: super::Priority::recorded(caller.priority()),
            ceiling: super::Priority::recorded(properties.ceiling),
        });
    }
    let content = match properties.form.kind().has_owner() {
        true if properties.obtained => {
            if properties.form.kind() == Kind::Mrsp {
                mrsp::before_creation(caller, properties.ceiling);
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
    if properties.obtained {
        report::created(core, site);
    }
    match properties.form.kind() {
        Kind::Ceiling if properties.obtained => priority::push_ceiling(inner, core, caller),
        Kind::Mrsp if properties.obtained => mrsp::after_creation(inner, core, caller),
        _ => {}
    }
}

/// Handles the result of a guard's release.
#[inline]
pub(super) fn finish_guard_release(released: Result<(), ReleaseError>) {
    match released {
        // The guard is a parent's, or the semaphore was released by hand.
        Ok(()) | Err(ReleaseError::NotOwner | ReleaseError::Deleted) => {}
        Err(error) => crate::fatal(format_args!("a semaphore cannot be released: {error}")),
    }
}
