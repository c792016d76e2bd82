//! How a task obtains and releases the semaphore of a priority mutex, and counts that it has it.

use super::shared::Shared;
use crate::atomic::Ordering::Acquire;
use crate::hook::Site;
use crate::region::Region;
use crate::semaphore::handle::ObjectRef;
use crate::semaphore::object::key_of;
use crate::semaphore::{BinarySemaphore, Caller, Obtained, Refusal, ReleaseError, WaitLimit};
use crate::semaphore::{owned, priority};
use crate::task::{self, Me, Member};

/// The mutex without the rights to its data.
pub(super) struct Lock<'r, T: ?Sized> {
    pub(super) semaphore: BinarySemaphore<'r>,
    pub(super) shared: &'r Shared<T>,
}

impl<T: ?Sized> Clone for Lock<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Lock<'_, T> {}

impl<'r, T: ?Sized> Lock<'r, T> {
    pub(super) fn new(region: &'r Region, shared: &'r Shared<T>) -> Self {
        let core = &shared.core;
        let object = ObjectRef {
            inner: region.inner(),
            core,
            // Of one that is not recoverable, too. Acquire: pairs with the beginning of the object.
            key: key_of(core.word.load(Acquire)),
        };
        Self {
            semaphore: BinarySemaphore::on(object),
            shared,
        }
    }

    /// Obtains it; returns the calling task's identity, too. After an owner's death the region has been swept.
    #[inline(always)]
    pub(super) fn obtain(&self, limit: WaitLimit, site: Site) -> Result<(Obtained, u64), Refusal> {
        let obtained = match self.try_obtain_fast() {
            true => Obtained::Clean,
            false => self.obtain_slow(limit, site)?,
        };
        let Some(member) = Me::current_or_none().member_at(self.address()) else {
            crate::fatal(format_args!(
                "a priority mutex was obtained by a thread that is no task of its region"
            ));
        };
        // The task does not end in good order between the obtain and this.
        member.acquired();
        Ok((obtained, member.identity()))
    }

    #[inline(always)]
    fn try_obtain_fast(&self) -> bool {
        let ObjectRef { inner, core, key } = self.semaphore.object;
        let task = inner.first_attached_task();
        self.semaphore.has_fast_path
            && task.is_some_and(|task| owned::obtain_free(core, key, task.owner().raw()))
    }

    #[cold]
    fn obtain_slow(&self, limit: WaitLimit, site: Site) -> Result<Obtained, Refusal> {
        let object = self.semaphore.object;
        let obtained = object.obtain_owned(limit, site, |access, limit| {
            // A mutex that is not recoverable is no misuse of its caller's.
            owned::obtain(access, limit).map_err(|refusal| match refusal {
                Refusal::NoObject => Refusal::Deleted,
                refusal => refusal,
            })
        })?;
        if obtained == Obtained::OwnerDied {
            task::after_owner_death(self.address());
        }
        Ok(obtained)
    }

    /// The calling task, if it is the `owner` for which a guard was made; else this aborts.
    pub(super) fn owner_of_guard(&self, owner: u64) -> Member {
        match Me::current_or_none().member_at(self.address()) {
            Some(member) if member.identity() == owner => member,
            _ => crate::fatal(format_args!(
                "unlock of a priority mutex by a task that does not hold it (a guard inherited across fork is the parent's)"
            )),
        }
    }

    /// Releases the lock of a guard that was made for `owner`. `torn`: the next owner gets the report of owner death.
    #[inline]
    pub(super) fn release(&self, owner: u64, torn: bool) {
        let member = self.owner_of_guard(owner);
        let ObjectRef { inner, core, key } = self.semaphore.object;
        let released = match inner.first_attached_task() {
            Some(task)
                if self.semaphore.has_fast_path
                    && !torn
                    && owned::release_free(core, key, task.owner().raw()) =>
            {
                priority::lower_priority(inner, core, Caller::new(task));
                Ok(())
            }
            _ => self.release_slow(torn),
        };
        after_release(member, released);
    }

    #[cold]
    fn release_slow(&self, torn: bool) -> Result<(), ReleaseError> {
        let release = |access: &_| owned::release(access, torn);
        self.semaphore.object.release_owned(Site::UNKNOWN, release)
    }

    /// The same; no task acquires it any more.
    #[cold]
    pub(super) fn end_for_ever(&self, owner: u64) {
        let member = self.owner_of_guard(owner);
        let object = self.semaphore.object;
        let ended = object.release_owned(Site::UNKNOWN, |access| owned::end_for_ever(access));
        after_release(member, ended);
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(&self.shared.core).addr()
    }
}

#[inline]
fn after_release(member: Member, released: Result<(), ReleaseError>) {
    match released {
        // Not before the release: until then the word names the task.
        Ok(()) => member.released(),
        Err(error) => crate::fatal(format_args!("a priority mutex cannot be released: {error}")),
    }
}
