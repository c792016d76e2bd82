//! The directives of RTEMS's scheduler manager, and the task directives about schedulers and processors, with the
//! statuses of RTEMS 6. (RTEMS 5 has `INVALID_NUMBER` for a set that is too small.)
//!
//! A scheduler instance is a set of processors. The kernel enforces it: a task that a directive puts into an instance
//! is bound to those processors of the instance that are in the task's affinity. Both are recorded by the task's slot,
//! where other processes find them.
//!
//! *A move, step by step*, all under the table's lock:
//!
//! | step | a kill before it leaves | the next owner of the lock ([`Classic::finish_move`]) |
//! | --- | --- | --- |
//! | 1. the new home is stored in `moving` | the old home | has nothing to do: `moving` names no task |
//! | 2. the task's number is stored in `moving` | the old home | has nothing to do |
//! | 3. the thread is bound in the kernel | the old home, and a complete `moving` | repeats steps 3 to 5 |
//! | 4. the home is stored in the task's record, its number last | the thread bound, the old record | repeats steps 3 to 5 |
//! | 5. the number in `moving` is cleared | the thread bound, the new record in part or complete | repeats steps 3 to 5 |
//!
//! If the kernel refuses step 3, step 4 is left out, and the old home stays. Steps 3 and 4 name a task, not a thread: a
//! task that has died meanwhile is not bound, and its successor in the slot has another number.

use super::handle::{Classic, directive};
use super::processors::{all, both, highest, load, store};
use super::status::{Id, MAXIMUM_PRIORITY, Name, SCHEDULER, Status, not_attached};
use super::table::{GENERATION, Home, SCHEDULERS, id_of, parts_of};
use crate::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crate::region::wait_record::{BUSY, STATE, WAITING, WaitRecord};
use crate::semaphore::{TaskTable, object::slot_of, priority};
use crate::sys::scheduling::{self, CpuMask};
use crate::sys::thread::processor;

impl Classic<'_> {
    /// `rtems_scheduler_ident`: the scheduler of a name.
    ///
    /// No `id`: [`Status::InvalidAddress`]; no scheduler has the name: [`Status::InvalidName`].
    pub fn scheduler_ident(&self, name: Name, id: Option<&mut Id>) -> Status {
        directive(|| {
            let id = id.ok_or(Status::InvalidAddress)?;
            let instance = self.table.instances.named(name);
            *id = scheduler_id(instance.ok_or(Status::InvalidName)?);
            Ok(())
        })
    }

    /// `rtems_scheduler_ident_by_processor`: the scheduler of a processor.
    ///
    /// No `id`: [`Status::InvalidAddress`]; there is no such processor: [`Status::InvalidName`]; no scheduler has it:
    /// [`Status::IncorrectState`].
    pub fn scheduler_ident_by_processor(&self, processor: u32, id: Option<&mut Id>) -> Status {
        directive(|| {
            let id = id.ok_or(Status::InvalidAddress)?;
            if processor >= scheduling::processor_count() {
                return Err(Status::InvalidName);
            }
            *id = self.scheduler_of(processor as usize)?;
            Ok(())
        })
    }

    /// `rtems_scheduler_ident_by_processor_set`: the scheduler of the highest processor in a set that the system has.
    /// The set is as [`processor_set`](super::processor_set) makes it.
    ///
    /// No `id` or no `set`: [`Status::InvalidAddress`]; the size is not that of whole words: [`Status::InvalidSize`];
    /// none of the processors exists: [`Status::InvalidName`]; no scheduler has that processor:
    /// [`Status::IncorrectState`].
    pub fn scheduler_ident_by_processor_set(
        &self,
        set: Option<&[u8]>,
        id: Option<&mut Id>,
    ) -> Status {
        directive(|| {
            let id = id.ok_or(Status::InvalidAddress)?;
            let set = load(set.ok_or(Status::InvalidAddress)?).ok_or(Status::InvalidSize)?;
            let processor = highest(&both(&set, &all())).ok_or(Status::InvalidName)?;
            *id = self.scheduler_of(processor)?;
            Ok(())
        })
    }

    /// `rtems_scheduler_get_maximum_priority`: the number of the lowest priority, which is [`MAXIMUM_PRIORITY`] in all
    /// schedulers.
    ///
    /// No `priority`: [`Status::InvalidAddress`]; no such scheduler: [`Status::InvalidId`].
    pub fn scheduler_get_maximum_priority(
        &self,
        scheduler: Id,
        priority: Option<&mut u32>,
    ) -> Status {
        directive(|| {
            let priority = priority.ok_or(Status::InvalidAddress)?;
            self.instance(scheduler)?;
            *priority = MAXIMUM_PRIORITY;
            Ok(())
        })
    }

    /// `rtems_scheduler_get_processor_set`: the scheduler's processors that the system has, in the form of
    /// [`processor_set`](super::processor_set).
    ///
    /// No `set`: [`Status::InvalidAddress`]; no such scheduler: [`Status::InvalidId`]; the size is not that of whole
    /// words, or too small: [`Status::InvalidSize`].
    pub fn scheduler_get_processor_set(&self, scheduler: Id, set: Option<&mut [u8]>) -> Status {
        directive(|| {
            let set = set.ok_or(Status::InvalidAddress)?;
            let instance = self.instance(scheduler)?;
            store(&self.processors_of(instance), set).ok_or(Status::InvalidSize)
        })
    }

    /// `rtems_scheduler_get_processor`: the number of the processor on which the calling thread runs at this moment.
    #[must_use]
    pub fn scheduler_get_processor(&self) -> u32 {
        processor()
    }

    /// `rtems_scheduler_get_processor_maximum`: the number of the system's processors, at most 1024.
    #[must_use]
    pub fn scheduler_get_processor_maximum(&self) -> u32 {
        scheduling::processor_count()
    }

    /// `rtems_task_get_scheduler`: a task's home scheduler, which is the one declared first, until
    /// [`Self::task_set_scheduler`] changes it. The child of a fork has no task of its parent's: its thread becomes a new
    /// one, of the scheduler declared first, and runs where its parent could.
    ///
    /// No `scheduler`: [`Status::InvalidAddress`]; no such task: [`Status::InvalidId`].
    pub fn task_get_scheduler(&self, id: Id, scheduler: Option<&mut Id>) -> Status {
        directive(|| {
            let scheduler = scheduler.ok_or(Status::InvalidAddress)?;
            let (task, _) = self.living(id)?;
            *scheduler = scheduler_id(self.home_instance(task));
            Ok(())
        })
    }

    /// `rtems_task_set_scheduler`: moves a task to a scheduler, with a new priority of its own, and binds it to those
    /// of the scheduler's processors that are in its affinity.
    ///
    /// Checks in this order:
    ///
    /// | if | then |
    /// | --- | --- |
    /// | there is no such scheduler | [`Status::InvalidId`] |
    /// | the priority is larger than [`MAXIMUM_PRIORITY`], or 0 (which RTEMS takes for one before all others) | [`Status::InvalidPriority`] |
    /// | there is no such task | [`Status::InvalidId`] |
    /// | the task waits for a semaphore, or has a priority by one that it owns: a ceiling, or one that it inherits | [`Status::ResourceInUse`] |
    /// | the scheduler has no processor, or none in the task's affinity; or the kernel refuses, since none may be used (cpuset), or the task's process is another user's | [`Status::Unsatisfied`] |
    ///
    /// A thread that was never moved, and whose affinity no directive has set, may run wherever the kernel lets it; this
    /// directive gives it an affinity of all processors. Where the only scheduler has all processors, such a thread's
    /// processors stay as they are. If the calling task is killed in this directive, the other task may have been moved,
    /// and have its old priority.
    pub fn task_set_scheduler(&self, id: Id, scheduler: Id, priority: u32) -> Status {
        directive(|| {
            let instance = self.instance(scheduler)?;
            if !(1..=MAXIMUM_PRIORITY).contains(&priority) {
                return Err(Status::InvalidPriority);
            }
            let (task, record) = self.living(id)?;
            // So that `inherits` is as it should be.
            priority::refresh(self.region.inner(), task, false);
            self.make(|| {
                let standing = &record.standing;
                // Relaxed: the answer may be stale when the call returns. The task itself changes it without this lock.
                let is_raised = standing.effective.load(Relaxed) & !BUSY
                    < standing.base.load(Relaxed)
                    || standing.ceilings.load(Relaxed) != 0
                    || standing.inherits.load(Relaxed) != 0;
                if is_raised
                    || is_in_section(record)
                    || record.word.load(Relaxed) & STATE == WAITING
                {
                    return Err(Status::ResourceInUse);
                }
                let home = self.home_of(task);
                let is_whole = self.processors_of(instance) == all();
                if home.is_none() && is_whole {
                    return Ok(());
                }
                let affinity = home.map_or_else(all, |home| home.1);
                self.move_task(task, instance, &affinity)
                    .map_err(|NotMoved| Status::Unsatisfied)
            })?;
            priority::set_base(self.region.inner(), task, priority);
            Ok(())
        })
    }

    /// `rtems_task_get_affinity`: the processors that a task may use, as far as its scheduler has them; for a task to
    /// which no directive gave any, those where the kernel lets it run. In the form of
    /// [`processor_set`](super::processor_set).
    ///
    /// No `set`: [`Status::InvalidAddress`]; no such task: [`Status::InvalidId`]; the size is not that of whole words,
    /// or too small: [`Status::InvalidSize`].
    pub fn task_get_affinity(&self, id: Id, set: Option<&mut [u8]>) -> Status {
        directive(|| {
            let set = set.ok_or(Status::InvalidAddress)?;
            let (task, _) = self.living(id)?;
            let affinity = self.make(|| match self.home_of(task) {
                Some((_, affinity)) => Ok(affinity),
                None => {
                    let thread = self.region.inner().thread_in(slot_of(task));
                    let mask = thread.and_then(|thread| scheduling::affinity_of(thread).ok());
                    mask.ok_or(Status::InvalidId)
                }
            })?;
            store(&affinity, set).ok_or(Status::InvalidSize)
        })
    }

    /// `rtems_task_set_affinity`: the processors that a task may use, of those that its scheduler has; the task is bound
    /// to them. The scheduler stays the same. Processors that do not exist or belong to others have no effect.
    ///
    /// Checks in this order:
    ///
    /// | if | then |
    /// | --- | --- |
    /// | there is no `set` | [`Status::InvalidAddress`] |
    /// | there is no such task | [`Status::InvalidId`] |
    /// | the size is not that of whole words; the scheduler has none of the processors; the kernel refuses, since none may be used (cpuset), or the task's process is another user's | [`Status::InvalidNumber`] |
    /// | the task owns a MrsP semaphore, or waits for one: it may then run on the processors of others (not RTEMS's) | [`Status::ResourceInUse`] |
    pub fn task_set_affinity(&self, id: Id, set: Option<&[u8]>) -> Status {
        directive(|| {
            let set = set.ok_or(Status::InvalidAddress)?;
            let (task, record) = self.living(id)?;
            let affinity = load(set).ok_or(Status::InvalidNumber)?;
            self.make(|| {
                let instance = self.home_instance(task);
                if highest(&both(&affinity, &self.processors_of(instance))).is_none() {
                    return Err(Status::InvalidNumber);
                }
                if is_in_section(record) {
                    return Err(Status::ResourceInUse);
                }
                self.move_task(task, instance, &affinity)
                    .map_err(|NotMoved| Status::InvalidNumber)
            })
        })
    }

    /// The scheduler instance of an id.
    pub(super) fn instance(&self, scheduler: Id) -> Result<usize, Status> {
        let (generation, index) = parts_of(scheduler, SCHEDULERS).ok_or(Status::InvalidId)?;
        let is_it = generation == 0 && index < self.table.instances.count();
        is_it.then_some(index).ok_or(Status::InvalidId)
    }

    /// The id of the scheduler that has a processor.
    fn scheduler_of(&self, processor: usize) -> Result<Id, Status> {
        let instance = self.table.instances.owner_of(processor);
        instance.map(scheduler_id).ok_or(Status::IncorrectState)
    }

    /// The processors of an instance that the system has.
    fn processors_of(&self, instance: usize) -> CpuMask {
        both(&self.table.instances.processors(instance), &all())
    }

    /// The instance of a task's home scheduler.
    pub(super) fn home_instance(&self, task: u64) -> usize {
        self.home_if_recorded(task).map_or(0, |home| {
            // Relaxed: the task was moved before, or is being moved. Another process may have stored nonsense.
            let instance = home.scheduler.load(Relaxed) as usize;
            instance.min(self.table.instances.count() - 1)
        })
    }

    /// The instance of the calling task's home scheduler.
    pub(super) fn own_instance(&self) -> Result<usize, Status> {
        let task = self.region.inner().task().map_err(not_attached)?;
        Ok(self.home_instance(task.owner().raw()))
    }

    fn home_if_recorded(&self, task: u64) -> Option<&Home> {
        let home = self.homes.get(usize::from(slot_of(task)))?;
        // Acquire: pairs with the Release in `Home::record`.
        (home.task.load(Acquire) == task).then_some(home)
    }

    /// The recorded instance and affinity of a task. Under the table's lock.
    fn home_of(&self, task: u64) -> Option<(usize, CpuMask)> {
        let home = self.home_if_recorded(task)?;
        Some((self.home_instance(task), home.affinity()))
    }

    /// Binds a task to the processors of an instance that are in its affinity, and records both. Under the table's
    /// lock.
    fn move_task(&self, task: u64, instance: usize, affinity: &CpuMask) -> Result<(), NotMoved> {
        let next = &self.table.moving;
        next.record(task, instance as u32, affinity);
        let done = self.apply(task, instance, affinity);
        next.task.store(0, SeqCst);
        done
    }

    fn apply(&self, task: u64, instance: usize, affinity: &CpuMask) -> Result<(), NotMoved> {
        let home = self.homes.get(usize::from(slot_of(task)));
        let home = home.ok_or(NotMoved)?;
        self.bind(task, &both(affinity, &self.processors_of(instance)))?;
        home.record(task, instance as u32, affinity);
        Ok(())
    }

    /// Completes the move of a task that a dead owner of the table's lock has begun. Under that lock.
    pub(super) fn finish_move(&self) {
        let next = &self.table.moving;
        let task = next.task.load(SeqCst);
        if task != 0 {
            let instance = next.scheduler.load(Relaxed) as usize;
            if instance < self.table.instances.count() {
                // If the kernel refuses, nothing has changed.
                let _ = self.apply(task, instance, &next.affinity());
            }
            next.task.store(0, SeqCst);
        }
    }

    /// Binds a living task to processors, in the kernel.
    fn bind(&self, task: u64, mask: &CpuMask) -> Result<(), NotMoved> {
        let inner = self.region.inner();
        let is_own = inner.task().is_ok_and(|own| own.owner().raw() == task);
        let thread = if is_own {
            0
        } else {
            inner.thread_in(slot_of(task)).ok_or(NotMoved)?
        };
        let before = scheduling::affinity_of(thread).map_err(|_| NotMoved)?;
        if !inner.is_alive(task) || highest(mask).is_none() {
            return Err(NotMoved);
        }
        scheduling::set_affinity_of(thread, mask).map_err(|_| NotMoved)?;
        if inner.is_alive(task) {
            return Ok(());
        }
        // The thread ID may be another thread's by now.
        let _ = scheduling::set_affinity_of(thread, &before);
        Err(NotMoved)
    }
}

/// The kernel did not bind the task to the processors.
struct NotMoved;

/// Whether a task owns a MrsP semaphore, or is about to.
fn is_in_section(record: &WaitRecord) -> bool {
    // Relaxed: the answer may be stale when the call returns.
    record.lending.sections.load(Relaxed) != 0 || record.standing.waits_at.load(Relaxed) != 0
}

/// The id of an instance.
fn scheduler_id(instance: usize) -> Id {
    id_of(SCHEDULERS, 0, instance)
}

const _: () = assert!(SCHEDULER == SCHEDULERS << 28 | 1 && GENERATION == 0xfff);

impl Home {
    fn record(&self, task: u64, scheduler: u32, affinity: &CpuMask) {
        // Relaxed, both: published by the task's number, or by the lock.
        self.scheduler.store(scheduler, Relaxed);
        for (place, word) in self.affinity.iter().zip(affinity) {
            place.store(*word, Relaxed);
        }
        self.task.store(task, SeqCst);
    }

    fn affinity(&self) -> CpuMask {
        core::array::from_fn(|place| self.affinity[place].load(Relaxed))
    }
}
