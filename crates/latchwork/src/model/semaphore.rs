//! Access to `semaphore/` for models: objects, and the records of three tasks, without a region.

use crate::atomic::{AtomicU32, Ordering::SeqCst};
use crate::region::Parked;
use crate::region::wait_record::{BUSY, WaitRecord};
use crate::semaphore::object::{owner_of, slot_of};
use crate::semaphore::{Access, Caller, Core, Discipline, Form, Kind, Locked, Obtained, Refusal};
use crate::semaphore::{TaskTable, WaitLimit, counting, owned, priority};
use crate::sys::futex::{self, Sharing, Wait};
use crate::time::Deadline;

const TASKS: u16 = 4;

/// The kind of a model's semaphores; all serve waiters by priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SemaphoreKind {
    /// With this count.
    Counting(u32),
    /// With an owner.
    Binary,
    /// With an owner that inherits its waiters' priorities.
    Inherit,
}

/// How an obtain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The task has obtained the semaphore.
    Obtained,
    /// The deadline passed.
    TimedOut,
    /// The wait would have completed a wait-for cycle.
    Deadlock,
    /// A flush ended the wait.
    Flushed,
}

/// Semaphores, and tasks with the numbers 1 to 3, which are those of [`as_task`](super::as_task).
pub struct Semaphores {
    // Boxed, since other objects store their addresses.
    cores: Vec<Box<Core>>,
    keys: Vec<u64>,
    tasks: Tasks,
}

struct Tasks(Vec<WaitRecord>);

impl TaskTable for Tasks {
    fn record(&self, slot: u16) -> Option<&WaitRecord> {
        self.0.get(usize::from(slot))
    }

    fn used(&self) -> u16 {
        TASKS
    }

    fn is_alive(&self, task: u64) -> bool {
        task >> 32 == 1
    }

    fn deaths(&self) -> u32 {
        0
    }

    fn settle_deaths(&self) {}

    fn park(&self, word: &AtomicU32, value: u32, _: u32, deadline: Option<Deadline>) -> Parked {
        match futex::wait(word, value, Sharing::Shared, deadline) {
            Wait::TimedOut => Parked::TimedOut,
            _ => Parked::Again,
        }
    }

    fn mirror(&self, _: u64, _: u32) -> bool {
        true
    }
}

fn number(task: u16) -> u64 {
    1 << 32 | u64::from(task) << 16
}

impl Semaphores {
    /// Creates `count` semaphores of a kind.
    #[must_use]
    pub fn new(count: usize, kind: SemaphoreKind) -> Self {
        let (kind, content) = match kind {
            SemaphoreKind::Counting(count) => (Kind::Counting, u64::from(count) << 32),
            SemaphoreKind::Binary => (Kind::Binary, 0),
            SemaphoreKind::Inherit => (Kind::Inherit, 0),
        };
        let form = Form::new(kind, Discipline::Priority);
        let cores = (0..count).map(|_| {
            let core = Box::new(Core::new());
            core::ptr::from_ref::<Core>(&core).expose_provenance();
            (core.init(form, 255, content), core)
        });
        let (keys, cores) = cores.unzip();
        let tasks = (0..TASKS).map(|task| WaitRecord::new(number(task)));
        let tasks = Tasks(tasks.collect());
        Self { cores, keys, tasks }
    }

    fn caller(&self, task: u16) -> Caller<'_> {
        Caller {
            task: number(task),
            record: &self.tasks.0[usize::from(task)],
        }
    }

    fn access(&self, semaphore: usize, task: u16) -> Access<'_, Tasks> {
        Access {
            tasks: &self.tasks,
            core: &self.cores[semaphore],
            key: self.keys[semaphore],
            caller: self.caller(task),
        }
    }

    /// Obtains a semaphore.
    ///
    /// # Panics
    /// If it is refused for another reason than those of [`Waited`].
    pub fn obtain(&self, semaphore: usize, task: u16, deadline: Option<Deadline>) -> Waited {
        let access = self.access(semaphore, task);
        let (core, key) = (access.core, access.key);
        let limit = WaitLimit::Until(deadline);
        let obtained = match core.form().kind().has_owner() {
            true if owned::obtain_free(core, key, number(task)) => Ok(()),
            true => {
                owned::obtain(&access, limit).map(|obtained| assert_eq!(obtained, Obtained::Clean))
            }
            false if counting::obtain_free(core, key) => Ok(()),
            false => counting::obtain(&access, limit),
        };
        match obtained {
            Ok(()) => Waited::Obtained,
            Err(Refusal::TimedOut) => Waited::TimedOut,
            Err(Refusal::Deadlock) => Waited::Deadlock,
            Err(Refusal::Flushed) => Waited::Flushed,
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    /// Enters the queue of a semaphore that another task owns, and donates the caller's priority to the owner;
    /// this wait has no end.
    ///
    /// # Panics
    /// If no task owns it.
    pub fn begin_wait(&self, semaphore: usize, task: u16) {
        let core = &self.cores[semaphore];
        let locked = Locked::new(&self.tasks, core).expect("a task of a model");
        assert!(locked.set_queued(core.word.load(SeqCst)));
        locked.enqueue(self.caller(task));
        drop(locked);
        priority::donate(&self.tasks, core, self.caller(task));
    }

    /// The task that owns a semaphore, or 0.
    #[must_use]
    pub fn owner(&self, semaphore: usize) -> u16 {
        slot_of(owner_of(self.cores[semaphore].word.load(SeqCst)))
    }

    /// Records that a task waited for something that this task owns.
    pub fn set_inherits(&self, task: u16) {
        priority::set_inherits(&self.tasks.0[usize::from(task)].standing);
    }

    /// The priority by which a task is ordered in a queue.
    #[must_use]
    pub fn queue_priority(&self, task: u16) -> u32 {
        self.tasks.0[usize::from(task)].priority.load(SeqCst)
    }

    /// Releases a semaphore.
    ///
    /// # Panics
    /// If the release is refused.
    pub fn release(&self, semaphore: usize, task: u16) {
        let access = self.access(semaphore, task);
        let (core, key) = (access.core, access.key);
        let released = if core.form().kind().has_owner() {
            if owned::release_free(core, key, number(task)) {
                if core.form().kind() == Kind::Inherit {
                    priority::lower_priority(&self.tasks, core, self.caller(task));
                }
                return;
            }
            owned::release(&access, false)
        } else {
            if counting::release_free(core, key, u32::MAX) {
                return;
            }
            counting::release(&access, u32::MAX)
        };
        released.expect("released by who has it");
    }

    /// The count, and the number of waiters.
    #[must_use]
    pub fn state(&self, semaphore: usize) -> (u32, u32) {
        let core = &self.cores[semaphore];
        (
            (core.word.load(SeqCst) >> 32) as u32,
            core.waiting.load(SeqCst),
        )
    }

    /// Sets a task's own priority.
    pub fn set_priority(&self, task: u16, priority: u32) {
        priority::set_base(&self.tasks, number(task), priority);
    }

    /// The effective priority of a task.
    #[must_use]
    pub fn priority(&self, task: u16) -> u32 {
        let standing = &self.tasks.0[usize::from(task)].standing;
        standing.effective.load(SeqCst) & !BUSY
    }
}
