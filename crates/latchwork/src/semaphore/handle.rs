//! What the handles on all kinds have in common: a named object of a region.

use super::error::{ObtainError, ReleaseError, SemaphoreError, UseError};
use super::object::{Core, DELETED, Form, Kind, key_of};
use super::wait::{Me, Patience};
use super::wait_queue::Locked;
use super::{Refusal, counting, mrsp, owned, priority, watched};
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
pub(crate) struct Anchor<'r> {
    pub(crate) ground: &'r Arc<Inner>,
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
pub(crate) struct Plan {
    pub(crate) form: Form,
    pub(crate) count: u32,
    pub(crate) ceiling: u32,
    /// The caller owns it from its creation on.
    pub(crate) obtained: bool,
}

impl Plan {
    pub(crate) fn counting(form: Form, count: u32) -> Self {
        Self {
            form,
            count,
            ceiling: LOWEST,
            obtained: false,
        }
    }
}

/// The calling task, in the form that semaphores use.
#[inline]
pub(crate) fn me(task: Task<'_>) -> Me<'_> {
    Me {
        task: task.owner().raw(),
        record: &task.slot.wait,
    }
}

impl<'r> Anchor<'r> {
    pub(super) const BYTES: usize = size_of::<Core>();

    /// Creates the semaphore of this name, or opens it if there is one of this form.
    pub(super) fn create(
        region: &'r Region,
        name: &str,
        plan: &Plan,
        site: Site,
    ) -> Result<Self, SemaphoreError> {
        let begun = region.reused(name, |core: &'r Core| {
            begin_in(region.inner(), core, plan, || ())
        })?;
        Ok(begun.finish(plan, name, site))
    }

    /// Opens the semaphore of this name if `is_right` accepts its form.
    pub(super) fn open(
        region: &'r Region,
        name: &str,
        site: Site,
        is_right: impl FnOnce(Form) -> bool,
    ) -> Result<Self, SemaphoreError> {
        let open = |core: &'r Core| {
            let key = core.key().ok_or(ObjectError::NotFound)?;
            if !is_right(core.form()) {
                return Err(SemaphoreError::OtherKind);
            }
            let ground = region.inner();
            Ok(Self { ground, core, key })
        };
        let opened = region.find_reused(name, open)?;
        watched::named(opened.core, name, site);
        Ok(opened)
    }

    /// Obtains a unit of a count.
    #[inline(always)]
    pub(crate) fn obtain_unit(&self, patience: Patience, site: Site) -> Result<(), ObtainError> {
        if self.obtain_unit_at_hand() {
            return Ok(());
        }
        Ok(self.obtain_unit_slowly(patience, site)?)
    }

    /// Obtains a unit if there is one and no task waits.
    #[inline(always)]
    pub(crate) fn obtain_unit_at_hand(&self) -> bool {
        counting::obtain_free(self.core, self.key)
    }

    #[cold]
    pub(crate) fn obtain_unit_slowly(&self, patience: Patience, site: Site) -> Result<(), Failure> {
        let me = me(self.ground.task()?);
        let obtain = |patience| counting::obtain(self.ground, self.core, self.key, me, patience);
        Ok(watched::obtain_unit(self.core, patience, site, obtain)?)
    }

    /// Releases a unit; the count is at most `most`.
    #[inline(always)]
    pub(crate) fn release_unit(&self, most: u32, site: Site) -> Result<(), ReleaseError> {
        if counting::release_free(self.core, self.key, most) {
            return Ok(());
        }
        self.release_unit_slowly(most, site)
    }

    #[cold]
    fn release_unit_slowly(&self, most: u32, site: Site) -> Result<(), ReleaseError> {
        // The object's lock is robust, and its waiters watch over tasks only: so the caller must be one.
        self.ground.task()?;
        let released = counting::release(self.ground, self.core, self.key, most);
        let released = released.map_err(ReleaseError::from);
        watched::has_released(self.core, self.key, &released, site);
        released
    }

    /// The calling task, if it may own the semaphore: an owner is a task already, and the child of a fork does not
    /// become one when it releases what it does not own.
    pub(super) fn owner_at_hand(&self) -> Result<Task<'r>, ReleaseError> {
        let thread = crate::task::Me::get().map_err(AttachError::from)?;
        self.ground.attached_task(thread).ok_or(match self.word() {
            Some(_) => ReleaseError::NotOwner,
            None => ReleaseError::Deleted,
        })
    }

    /// Ends the waits of all waiters; returns their number.
    pub(crate) fn flush(&self, site: Site) -> Result<u32, UseError> {
        let flushed = self.flush_all();
        watched::has_used(self.core, &flushed, None, site);
        flushed
    }

    fn flush_all(&self) -> Result<u32, UseError> {
        self.ground.task()?;
        let locked = Locked::new(self.ground, self.core).map_err(AttachError::from)?;
        if self.core.key() != Some(self.key) {
            return Err(UseError::Deleted);
        }
        let count = locked.end_all(FLUSHED);
        drop(locked);
        if count > 0 {
            priority::pass_on(self.ground, self.core);
        }
        Ok(count)
    }

    /// Deletes a named semaphore, and frees the name.
    pub(super) fn delete_named(&self, site: Site) -> Result<(), UseError> {
        self.delete(site)?;
        self.ground.release_name(self.core);
        Ok(())
    }

    /// Deletes the semaphore.
    pub(crate) fn delete(&self, site: Site) -> Result<(), UseError> {
        let waiting = self.waiting();
        let deleted = self.end();
        watched::has_used(self.core, &deleted, Some(waiting), site);
        deleted
    }

    fn end(&self) -> Result<(), UseError> {
        self.ground.task()?;
        let (ground, core, key) = (self.ground, self.core, self.key);
        if core.form().kind().has_owner() {
            let deleted = owned::delete(ground, core, key).map_err(AttachError::from)?;
            deleted.map_err(|refusal| match refusal {
                owned::DeleteRefusal::Deleted => UseError::Deleted,
                owned::DeleteRefusal::InUse => UseError::InUse,
            })
        } else if counting::delete(ground, core, key).map_err(AttachError::from)? {
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
pub(super) struct Begun<'r> {
    anchor: Anchor<'r>,
    is_new: bool,
    me: Me<'r>,
}

/// Creates a semaphore in a core without one, or opens the one that is there if it has this form. `prepare` runs for a
/// new one, under its lock, before other tasks can find it.
pub(super) fn begin_in<'r>(
    ground: &'r Arc<Inner>,
    core: &'r Core,
    plan: &Plan,
    prepare: impl FnOnce(),
) -> Result<Begun<'r>, SemaphoreError> {
    let me = me(ground.task()?);
    let _locked = Locked::new(ground, core).map_err(AttachError::from)?;
    let found = core.key();
    let key = match found {
        Some(key) if core.form() == plan.form => key,
        Some(_) => return Err(SemaphoreError::OtherKind),
        None => {
            prepare();
            make(core, plan, me)?
        }
    };
    Ok(Begun {
        anchor: Anchor { ground, core, key },
        is_new: found.is_none(),
        me,
    })
}

impl<'r> Begun<'r> {
    /// Does the rest of the creation, without a lock.
    pub(super) fn finish(self, plan: &Plan, name: &str, site: Site) -> Anchor<'r> {
        let Anchor { ground, core, .. } = self.anchor;
        watched::named(core, name, site);
        if self.is_new {
            made(ground, core, plan, self.me, site);
        }
        self.anchor
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

/// Creates a semaphore in a core without one, under its lock; the calling task owns it if the plan says so.
pub(crate) fn make(core: &Core, plan: &Plan, me: Me<'_>) -> Result<u64, SemaphoreError> {
    debug_assert!(key_of(DELETED) == 0);
    if plan.obtained && plan.form.kind().has_ceiling() && me.priority() < plan.ceiling {
        return Err(SemaphoreError::AboveCeiling {
            own: super::Priority::recorded(me.priority()),
            ceiling: super::Priority::recorded(plan.ceiling),
        });
    }
    let content = match plan.form.kind().has_owner() {
        true if plan.obtained => {
            if plan.form.kind() == Kind::Mrsp {
                mrsp::makes(me, plan.ceiling);
            }
            me.record.standing.obtained();
            me.task
        }
        true => 0,
        false => u64::from(plan.count) << 32,
    };
    Ok(core.make(plan.form, plan.ceiling, content))
}

/// The rest after [`make`], when the lock has been released.
pub(crate) fn made(ground: &Arc<Inner>, core: &Core, plan: &Plan, me: Me<'_>, site: Site) {
    if plan.obtained {
        watched::made(core, site);
    }
    match plan.form.kind() {
        Kind::Ceiling if plan.obtained => priority::has_ceiling(ground, core, me),
        Kind::Mrsp if plan.obtained => mrsp::made(ground, core, me),
        _ => {}
    }
}

/// Handles the result of a guard's release.
#[inline]
pub(super) fn end_of_guard(released: Result<(), ReleaseError>) {
    match released {
        // The guard is a parent's, or the semaphore was released by hand.
        Ok(()) | Err(ReleaseError::NotOwner | ReleaseError::Deleted) => {}
        Err(error) => crate::fatal(format_args!("a semaphore cannot be released: {error}")),
    }
}
