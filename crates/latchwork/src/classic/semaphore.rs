//! The directives of RTEMS's semaphore manager.

use super::handle::{Classic, directive, ident};
use super::status::{
    BINARY_SEMAPHORE, CURRENT_PRIORITY, INHERIT_PRIORITY, Id, Interval, MAXIMUM_PRIORITY,
    MULTIPROCESSOR_RESOURCE_SHARING, NO_WAIT, Name, PRIORITY, PRIORITY_CEILING,
    SIMPLE_BINARY_SEMAPHORE, Status, not_attached,
};
use super::table::{Ceilings, SEMAPHORE, id_of, parts_of};
use crate::semaphore::handle::{ObjectRef, Properties, create_locked, finish_creation};
use crate::semaphore::object::owner_of;
use crate::semaphore::{BinarySemaphore, Refusal, ReleaseError, SemaphoreError, UseError, mrsp};
use crate::semaphore::{Caller, Discipline, Form, Kind, Locked, Obtained, WaitLimit, counting};
use crate::{atomic::Ordering, hook::Site};

/// The form that attributes ask for; `None` if they contradict each other.
fn form_of(attributes: u32) -> Option<Form> {
    let discipline = if attributes & PRIORITY == 0 {
        Discipline::Fifo
    } else {
        Discipline::Priority
    };
    const WITH_INHERITANCE: u32 = BINARY_SEMAPHORE | INHERIT_PRIORITY;
    const WITH_CEILING: u32 = BINARY_SEMAPHORE | PRIORITY_CEILING;
    const WITH_SHARING: u32 = BINARY_SEMAPHORE | MULTIPROCESSOR_RESOURCE_SHARING;
    const CLASS_AND_PROTOCOL: u32 =
        SIMPLE_BINARY_SEMAPHORE | WITH_INHERITANCE | WITH_CEILING | WITH_SHARING;
    let kind = match attributes & CLASS_AND_PROTOCOL {
        0 => Kind::Counting,
        SIMPLE_BINARY_SEMAPHORE => Kind::SimpleBinary,
        BINARY_SEMAPHORE => Kind::Binary,
        WITH_INHERITANCE if discipline == Discipline::Priority => Kind::Inherit,
        WITH_CEILING if discipline == Discipline::Priority => Kind::Ceiling,
        // All waiters are at the ceiling, so the order by priority is that of arrival.
        WITH_SHARING if discipline == Discipline::Priority => {
            return Some(Form::new(Kind::Mrsp, Discipline::Fifo));
        }
        _ => return None,
    };
    Some(Form::new(kind, discipline))
}

impl<'r> Classic<'r> {
    /// `rtems_semaphore_create`.
    ///
    /// A binary semaphore with a count of 0 is created obtained by the calling task. The ceiling is used with
    /// [`PRIORITY_CEILING`] and [`MULTIPROCESSOR_RESOURCE_SHARING`] only. It is that of the calling task's home
    /// scheduler, to which a semaphore with a priority ceiling belongs. A MrsP semaphore has a ceiling of 0 in all
    /// other schedulers, as in RTEMS, until [`Self::semaphore_set_priority`] sets one: their tasks obtain it at
    /// priority 1.
    #[track_caller]
    pub fn semaphore_create(
        &self,
        name: Name,
        count: u32,
        attributes: u32,
        ceiling: u32,
        id: Option<&mut Id>,
    ) -> Status {
        let site = Site::caller();
        directive(|| {
            if name == 0 {
                return Err(Status::InvalidName);
            }
            let id = id.ok_or(Status::InvalidAddress)?;
            let form = form_of(attributes).ok_or(Status::NotDefined)?;
            if count > 1 && form.kind() != Kind::Counting {
                return Err(Status::InvalidNumber);
            }
            let properties = Properties {
                form,
                count,
                ceiling,
                obtained: form.kind().has_owner() && count == 0,
            };
            *id = self.make(|| {
                let inner = self.region.inner();
                let task = Caller::new(inner.task().map_err(not_attached)?);
                let mut entries = self.semaphores.iter().enumerate();
                let free = entries.find(|(_, entry)| entry.object.key().is_none());
                let (index, entry) = free.ok_or(Status::TooMany)?;
                if properties.form.kind().has_ceiling() && properties.ceiling > MAXIMUM_PRIORITY {
                    return Err(Status::InvalidPriority);
                }
                let locked = Locked::new(inner, &entry.object).map_err(not_attached)?;
                // Release: see the head of `classic`.
                entry.name.store(name, Ordering::Release);
                let ceilings = &self.ceilings[index];
                let home = self.home_instance(task.task);
                // Relaxed, both: published with the key.
                ceilings.creator.store(home as u32, Ordering::Relaxed);
                for place in &ceilings.others {
                    place.store(0, Ordering::Relaxed);
                }
                let created = create_locked(&entry.object, &properties, task);
                let key = created.map_err(|error| match error {
                    SemaphoreError::AboveCeiling { .. } => Status::InvalidPriority,
                    _ => Status::InternalError,
                })?;
                drop(locked);
                finish_creation(inner, &entry.object, &properties, task, site);
                Ok(id_of(SEMAPHORE, (key >> 4) as u32, index))
            })?;
            Ok(())
        })
    }

    /// `rtems_semaphore_ident`: of several semaphores of this name, the one with the lowest index. Only this node has
    /// any.
    pub fn semaphore_ident(&self, name: Name, node: u32, id: Option<&mut Id>) -> Status {
        ident(name, node, id, || {
            let mut entries = self.semaphores.iter().enumerate();
            entries.find_map(|(index, entry)| {
                let key = entry.object.key()?;
                // Acquire: see the head of `classic`.
                let is_it = entry.name.load(Ordering::Acquire) == name;
                (is_it && entry.object.key() == Some(key))
                    .then(|| id_of(SEMAPHORE, (key >> 4) as u32, index))
            })
        })
    }

    /// `rtems_semaphore_delete`.
    #[track_caller]
    pub fn semaphore_delete(&self, id: Id) -> Status {
        let site = Site::caller();
        self.with_semaphore(id, |semaphore| status_of_use(semaphore.delete(site)))
    }

    /// `rtems_semaphore_obtain`: without waiting, or waiting for `timeout` ticks or for ever.
    ///
    /// A task of another scheduler than the creator's gets [`Status::NotDefined`] for a semaphore with a priority
    /// ceiling that no task owns. A MrsP semaphore is obtained at the ceiling of the calling task's scheduler.
    #[inline]
    #[track_caller]
    pub fn semaphore_obtain(&self, id: Id, options: u32, timeout: Interval) -> Status {
        let site = Site::caller();
        self.with_semaphore(id, |semaphore| {
            let kind = semaphore.core.form().kind();
            let has_owner = kind.has_owner();
            if kind == Kind::Mrsp {
                return self.obtain_mrsp(id, semaphore, self.limit(options, timeout), site);
            }
            if kind == Kind::Ceiling && self.table.instances.count() > 1 {
                let checked = self.check_scheduler(id, semaphore);
                if checked != Status::Successful {
                    return checked;
                }
            }
            let binary = BinarySemaphore::on(*semaphore);
            let got_it = if has_owner {
                binary.try_obtain_fast()
            } else {
                counting::obtain_free(semaphore.core, semaphore.key)
            };
            if got_it {
                return Status::Successful;
            }
            let limit = self.limit(options, timeout);
            let obtained = if has_owner {
                binary.obtain_slow(limit, site)
            } else {
                semaphore
                    .obtain_unit_slow(limit, site)
                    .map(|()| Obtained::Clean)
            };
            status_of_obtained(obtained)
        })
    }

    #[cold]
    fn obtain_mrsp(
        &self,
        id: Id,
        semaphore: &ObjectRef<'_>,
        limit: WaitLimit,
        site: Site,
    ) -> Status {
        directive(|| {
            let ceiling = self.ceiling_in(id, semaphore, self.own_instance()?);
            match status_of_obtained(mrsp::obtain_at(semaphore, limit, site, |_| ceiling)) {
                Status::Successful => Ok(()),
                other => Err(other),
            }
        })
    }

    /// A semaphore with a priority ceiling is not for tasks of other schedulers.
    #[cold]
    fn check_scheduler(&self, id: Id, semaphore: &ObjectRef<'_>) -> Status {
        directive(|| {
            let is_free = semaphore.word().is_some_and(|word| owner_of(word) == 0);
            if is_free && self.own_instance()? != self.creator_of(id) {
                return Err(Status::NotDefined);
            }
            Ok(())
        })
    }

    /// The schedulers' part of the semaphore of an id that has been checked.
    fn ceilings_of(&self, id: Id) -> &'r Ceilings {
        &self.ceilings[parts_of(id, SEMAPHORE).map_or(0, |(_, index)| index)]
    }

    /// The instance of the scheduler that a semaphore was created in.
    fn creator_of(&self, id: Id) -> usize {
        // Relaxed: published with the key.
        self.ceilings_of(id).creator.load(Ordering::Relaxed) as usize
    }

    /// The ceiling of a semaphore in a scheduler.
    fn ceiling_in(&self, id: Id, semaphore: &ObjectRef<'_>, instance: usize) -> u32 {
        // Relaxed, both: the value of any moment will do.
        if instance == self.creator_of(id) {
            semaphore.core.ceiling.load(Ordering::Relaxed)
        } else {
            self.ceilings_of(id).others[instance]
                .load(Ordering::Relaxed)
                .into()
        }
    }

    fn limit(&self, options: u32, timeout: Interval) -> WaitLimit {
        if options & NO_WAIT != 0 {
            WaitLimit::Try
        } else {
            WaitLimit::Until(self.deadline(timeout))
        }
    }

    /// `rtems_semaphore_release`.
    #[inline]
    #[track_caller]
    pub fn semaphore_release(&self, id: Id) -> Status {
        let site = Site::caller();
        self.with_semaphore(id, |semaphore| {
            let kind = semaphore.core.form().kind();
            let released = if kind == Kind::Mrsp {
                mrsp::release_from(semaphore, false, site)
            } else if kind.has_owner() {
                BinarySemaphore::on(*semaphore).release_with(false, site)
            } else {
                semaphore.release_unit(kind.most(), site)
            };
            match released {
                Ok(()) => Status::Successful,
                Err(ReleaseError::NotOwner) => Status::NotOwnerOfResource,
                Err(ReleaseError::Overflow) => Status::Unsatisfied,
                Err(ReleaseError::Deleted) => Status::InvalidId,
                Err(ReleaseError::Attach(error)) => not_attached(error),
            }
        })
    }

    /// `rtems_semaphore_flush`. A MrsP semaphore cannot be flushed: [`Status::NotDefined`].
    #[track_caller]
    pub fn semaphore_flush(&self, id: Id) -> Status {
        let site = Site::caller();
        self.with_semaphore(id, |semaphore| {
            if semaphore.core.form().kind() == Kind::Mrsp {
                return Status::NotDefined;
            }
            status_of_use(semaphore.flush(site).map(drop))
        })
    }

    /// The number of tasks in the semaphore's queue at this moment; 0 if there is no such semaphore. Not RTEMS's.
    #[must_use]
    pub fn semaphore_waiting(&self, id: Id) -> u32 {
        let semaphore = self.semaphore_of(id);
        semaphore.map_or(0, |semaphore| semaphore.waiting())
    }

    /// `rtems_semaphore_set_priority`: changes a ceiling, or with [`CURRENT_PRIORITY`] only reads it. The new ceiling
    /// of a MrsP semaphore takes effect for tasks that obtain it, or begin to wait for it, after this.
    ///
    /// Checks in this order:
    ///
    /// | if | then |
    /// | --- | --- |
    /// | there is no `old_priority` | [`Status::InvalidAddress`] |
    /// | there is no such semaphore, or no such scheduler | [`Status::InvalidId`] |
    /// | the priority is larger than [`MAXIMUM_PRIORITY`] | [`Status::InvalidPriority`] |
    /// | the semaphore has no ceiling; or it is no MrsP semaphore, and the scheduler is not its creator's | [`Status::NotDefined`] |
    pub fn semaphore_set_priority(
        &self,
        id: Id,
        scheduler: Id,
        new_priority: u32,
        old_priority: Option<&mut u32>,
    ) -> Status {
        directive(|| {
            let old_priority = old_priority.ok_or(Status::InvalidAddress)?;
            let semaphore = self.semaphore_of(id).ok_or(Status::InvalidId)?;
            let instance = self.instance(scheduler)?;
            if new_priority > MAXIMUM_PRIORITY {
                return Err(Status::InvalidPriority);
            }
            let is_creators = instance == self.creator_of(id);
            match semaphore.core.form().kind() {
                Kind::Mrsp => {}
                kind if kind.has_ceiling() && is_creators => {}
                _ => return Err(Status::NotDefined),
            }
            *old_priority = if new_priority == CURRENT_PRIORITY {
                self.ceiling_in(id, &semaphore, instance)
            } else if is_creators {
                let set = BinarySemaphore::on(semaphore).set_recorded_ceiling(new_priority);
                set.map_err(|error| status_of_use(Err(error)))?
            } else {
                let ObjectRef { inner, core, key } = semaphore;
                let _locked = Locked::new(inner, core).map_err(not_attached)?;
                if core.key() != Some(key) {
                    return Err(Status::InvalidId);
                }
                // Relaxed: under the lock; an obtain at the same moment may read either value.
                let place = &self.ceilings_of(id).others[instance];
                place.swap(new_priority as u8, Ordering::Relaxed).into()
            };
            Ok(())
        })
    }

    /// The semaphore of an id. If it is deleted after this, it refuses later operations.
    #[inline(always)]
    fn semaphore_of(&self, id: Id) -> Option<ObjectRef<'r>> {
        let (generation, index) = parts_of(id, SEMAPHORE)?;
        let core = &self.semaphores.get(index)?.object;
        let key = u64::from(generation) << 4;
        let inner = self.region.inner();
        (core.key() == Some(key)).then_some(ObjectRef { inner, core, key })
    }

    #[inline(always)]
    fn with_semaphore(&self, id: Id, use_it: impl FnOnce(&ObjectRef<'r>) -> Status) -> Status {
        match self.semaphore_of(id) {
            Some(semaphore) => use_it(&semaphore),
            None => Status::InvalidId,
        }
    }
}

fn status_of_obtained(obtained: Result<Obtained, Refusal>) -> Status {
    match obtained {
        Ok(Obtained::Clean) => Status::Successful,
        Ok(Obtained::OwnerDied) => Status::OwnerDied,
        Err(Refusal::WouldBlock | Refusal::Flushed) => Status::Unsatisfied,
        Err(Refusal::TimedOut) => Status::Timeout,
        Err(Refusal::Deleted) => Status::ObjectWasDeleted,
        Err(Refusal::NoObject) => Status::InvalidId,
        Err(Refusal::Deadlock) => Status::IncorrectState,
        Err(Refusal::AboveCeiling { .. }) => Status::InvalidPriority,
        Err(Refusal::Attach(error)) => not_attached(error),
    }
}

fn status_of_use(used: Result<(), UseError>) -> Status {
    match used {
        Ok(()) => Status::Successful,
        Err(UseError::Deleted) => Status::InvalidId,
        Err(UseError::InUse) => Status::ResourceInUse,
        Err(UseError::NoCeiling) => Status::NotDefined,
        Err(UseError::Attach(error)) => not_attached(error),
    }
}
