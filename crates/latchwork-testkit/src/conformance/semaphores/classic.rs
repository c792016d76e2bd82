//! The tested interface: RTEMS's directives for semaphores, and the numbers that it gives its results and attributes.

/// RTEMS's numbers of its status codes.
#[allow(missing_docs, reason = "RTEMS's names")]
pub mod status {
    pub const SUCCESSFUL: u32 = 0;
    pub const INVALID_NAME: u32 = 3;
    pub const INVALID_ID: u32 = 4;
    pub const TOO_MANY: u32 = 5;
    pub const TIMEOUT: u32 = 6;
    pub const OBJECT_WAS_DELETED: u32 = 7;
    pub const INVALID_ADDRESS: u32 = 9;
    pub const INVALID_NUMBER: u32 = 10;
    pub const NOT_DEFINED: u32 = 11;
    pub const RESOURCE_IN_USE: u32 = 12;
    pub const UNSATISFIED: u32 = 13;
    pub const INCORRECT_STATE: u32 = 14;
    pub const INVALID_PRIORITY: u32 = 19;
    pub const NOT_OWNER_OF_RESOURCE: u32 = 23;
}

/// RTEMS's numbers of attributes of semaphores, and options of obtaining them.
#[allow(missing_docs, reason = "RTEMS's names")]
pub mod attribute {
    pub const FIFO: u32 = 0;
    pub const PRIORITY: u32 = 4;
    pub const BINARY: u32 = 0x10;
    pub const SIMPLE_BINARY: u32 = 0x20;
    pub const INHERIT: u32 = 0x40;
    pub const CEILING: u32 = 0x80;
    pub const MRSP: u32 = 0x100;
    pub const WAIT: u32 = 0;
    pub const NO_WAIT: u32 = 1;
}

/// The length of a tick of each implementation.
pub const TICK: core::time::Duration = core::time::Duration::from_millis(1);

/// RTEMS's classic semaphores, with the signatures of their directives. Priorities are RTEMS's: 1 is the highest.
///
/// The calling thread makes each call as a task, and gets RTEMS's [`status`] numbers.
pub trait ClassicSemaphores: Send + Sync + 'static {
    /// Makes the calling thread a task of this priority, before its first call; returns the task's number.
    fn join(&self, priority: u32) -> u64;
    /// Changes the calling task's own priority.
    fn set_own_priority(&self, priority: u32);
    /// The current priority of a task, including what it inherits and the ceilings of the semaphores that it holds.
    fn priority_of(&self, task: u64) -> u32;
    /// `rtems_semaphore_create`
    fn create(
        &self,
        name: u32,
        count: u32,
        attributes: u32,
        ceiling: u32,
        id: Option<&mut u32>,
    ) -> u32;
    /// `rtems_semaphore_ident`, on all nodes.
    fn ident(&self, name: u32, id: Option<&mut u32>) -> u32;
    /// `rtems_semaphore_delete`
    fn delete(&self, id: u32) -> u32;
    /// `rtems_semaphore_obtain`; 0 ticks mean no time-out.
    fn obtain(&self, id: u32, options: u32, ticks: u32) -> u32;
    /// `rtems_semaphore_release`
    fn release(&self, id: u32) -> u32;
    /// `rtems_semaphore_flush`
    fn flush(&self, id: u32) -> u32;
    /// `rtems_semaphore_set_priority`
    fn set_priority(&self, id: u32, scheduler: u32, priority: u32, old: Option<&mut u32>) -> u32;
    /// The ID of the scheduler of tasks that were never moved.
    fn scheduler(&self) -> u32;
    /// The IDs of all schedulers that have a processor, each another; [`Self::scheduler`] is the first.
    fn schedulers(&self) -> Vec<u32> {
        vec![self.scheduler()]
    }
    /// `rtems_task_set_scheduler` for the calling task. Only used if there are several schedulers.
    fn set_own_scheduler(&self, _scheduler: u32, _priority: u32) -> u32 {
        status::INVALID_ID
    }
    /// `rtems_scheduler_get_processor`. Only used if there are several schedulers.
    fn processor(&self) -> u32 {
        0
    }
    /// The most semaphores that can exist.
    fn capacity(&self) -> u32;
    /// Whether there are MrsP semaphores.
    fn has_mrsp(&self) -> bool {
        true
    }
    /// How many tasks wait for a semaphore; `None`: its waiters sleep in a futex call.
    fn waiters(&self, _id: u32) -> Option<u32> {
        None
    }
}

/// An ID that no object has.
pub(super) const NO_ID: u32 = u32::MAX;
/// A priority that no task can have.
pub(super) const NO_PRIORITY: u32 = u32::MAX;
