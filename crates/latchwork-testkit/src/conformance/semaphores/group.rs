//! The tasks of one combination: threads that make one call at a time, as the driver requests.
//!
//! A call has *settled* when it has returned, or when its task waits in it: the task sleeps in a futex call, or the
//! semaphore counts it among its waiters. When all calls of a group have settled, nothing changes any more by itself
//! (except for time-outs).
#![allow(unsafe_code)]

use super::{Class, ClassicSemaphores, Discipline, FEW_SCHEDULERS, attribute, status};
use crate::child::is_in_futex;
use crate::conformance::NotApplicable;
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

/// The name of semaphores under test.
pub(super) const NAME: u32 = u32::from_be_bytes(*b"TEST");
/// The ceiling of those semaphores that have one.
pub(super) const CEILING: u32 = 30;
/// A priority above it, the priority of most callers, which is below it, and lower ones.
pub(super) const HIGH: u32 = 20;
pub(super) const CALLER: u32 = 40;
pub(super) const LOW: u32 = 60;
pub(super) const LOWER: u32 = 70;

type Job<S> = Box<dyn FnOnce(&S) + Send>;

const IDLE: u8 = 0;
/// It has a job, and may still be asleep.
const ASSIGNED: u8 = 1;
const WORKING: u8 = 2;

/// A member of the group, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member(usize);

struct TaskThread<S> {
    jobs: Option<Sender<Job<S>>>,
    shared: Arc<Shared>,
    task: u64,
    thread: Option<JoinHandle<()>>,
    /// The semaphore that it is obtaining, if any.
    obtains: Cell<Option<u32>>,
}

#[derive(Default)]
struct Shared {
    thread: AtomicI32,
    state: AtomicU8,
}

/// A call that may wait.
pub(super) struct Begun {
    result: Receiver<u32>,
}

impl Begun {
    /// The call's result; `None` if it waits.
    pub(super) fn result(&self) -> Option<u32> {
        self.result.try_recv().ok()
    }
}

pub(super) struct TaskGroup<S: ClassicSemaphores> {
    semaphores: Arc<S>,
    task_threads: RefCell<Vec<TaskThread<S>>>,
    /// Semaphores that are deleted with the group.
    ids: RefCell<Vec<u32>>,
    is_abandoned: Cell<bool>,
}

impl<S: ClassicSemaphores> TaskGroup<S> {
    pub(super) fn new(semaphores: &Arc<S>) -> Self {
        Self {
            semaphores: Arc::clone(semaphores),
            task_threads: RefCell::default(),
            ids: RefCell::default(),
            is_abandoned: Cell::new(false),
        }
    }

    /// Adds a member.
    pub(super) fn member(&self, priority: u32) -> Member {
        let (jobs, todo) = channel::<Job<S>>();
        let (tell, told) = channel();
        let shared = Arc::new(Shared::default());
        let semaphores = Arc::clone(&self.semaphores);
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            own.thread.store(thread_id(), Ordering::Release);
            // The group may be gone, after a panic.
            let _ = tell.send(semaphores.join(priority));
            for job in todo {
                own.state.store(WORKING, Ordering::Release);
                job(&semaphores);
                // Release, both: pair with the Acquire in `state`.
                own.state.store(IDLE, Ordering::Release);
            }
        });
        let mut task_threads = self.task_threads.borrow_mut();
        task_threads.push(TaskThread {
            jobs: Some(jobs),
            shared,
            task: told.recv().expect("a thread that joins"),
            thread: Some(thread),
            obtains: Cell::new(None),
        });
        Member(task_threads.len() - 1)
    }

    /// Adds a member of a scheduler: the number of its place in [`Self::schedulers`].
    pub(super) fn member_in(&self, scheduler: usize, priority: u32) -> Member {
        let member = self.member(priority);
        let id = self.schedulers()[scheduler];
        let moved = self.call(member, move |semaphores| {
            semaphores.set_own_scheduler(id, priority)
        });
        assert_eq!(moved, status::SUCCESSFUL, "move a task to a scheduler");
        member
    }

    /// Gives a member a helping scheduler: a task of that scheduler, of this priority, waits for an inheriting semaphore
    /// that the member owns.
    pub(super) fn give_helper(&self, member: Member, scheduler: usize, priority: u32) {
        let id = self.create(member, Class::PrioInherit, Discipline::Priority, 1);
        assert_eq!(self.try_obtain(member, id), status::SUCCESSFUL);
        let helper = self.member_in(scheduler, priority);
        assert_eq!(self.obtain(helper, id).result(), None);
    }

    /// Lets a member begin a call that may wait, and waits until it has settled.
    fn start<T: Send + 'static>(
        &self,
        member: Member,
        obtains: Option<u32>,
        call: impl FnOnce(&S) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (tell, told) = channel();
        {
            let task_threads = self.task_threads.borrow();
            let task_thread = &task_threads[member.0];
            assert!(!task_thread.is_busy(), "the task waits in a call");
            task_thread.obtains.set(obtains);
            task_thread.shared.state.store(ASSIGNED, Ordering::Relaxed);
            let job: Job<S> = Box::new(move |semaphores| {
                let _ = tell.send(call(semaphores));
            });
            let jobs = task_thread.jobs.as_ref().expect("a living member");
            jobs.send(job).expect("a living member");
        }
        self.settle();
        told
    }

    /// Lets a member make a call that must not wait.
    pub(super) fn call<T: Send + 'static>(
        &self,
        member: Member,
        call: impl FnOnce(&S) -> T + Send + 'static,
    ) -> T {
        let result = self.start(member, None, call);
        result.try_recv().expect("a call that does not wait")
    }

    /// Lets a member make a call, and waits until it has returned: another task, which executes, may delay it.
    pub(super) fn call_through<T: Send + 'static>(
        &self,
        member: Member,
        call: impl FnOnce(&S) -> T + Send + 'static,
    ) -> T {
        let result = self.start(member, None, call);
        let result = result.recv().expect("a call that returns");
        self.settle();
        result
    }

    /// Lets a member obtain a semaphore, with a time-out of so many ticks (0: none).
    pub(super) fn obtain_for(&self, member: Member, id: u32, ticks: u32) -> Begun {
        let result = self.start(member, Some(id), move |semaphores| {
            semaphores.obtain(id, attribute::WAIT, ticks)
        });
        Begun { result }
    }

    /// Lets a member obtain a semaphore, without a time-out.
    pub(super) fn obtain(&self, member: Member, id: u32) -> Begun {
        self.obtain_for(member, id, 0)
    }

    pub(super) fn try_obtain(&self, member: Member, id: u32) -> u32 {
        self.call(member, move |semaphores| {
            semaphores.obtain(id, attribute::NO_WAIT, 0)
        })
    }

    pub(super) fn release(&self, member: Member, id: u32) -> u32 {
        self.call(member, move |semaphores| semaphores.release(id))
    }

    /// How many times the member can obtain it without waiting, up to `most`.
    pub(super) fn drain(&self, member: Member, id: u32, most: u32) -> u32 {
        let free = |_: &u32| self.try_obtain(member, id) == status::SUCCESSFUL;
        (0..most).take_while(free).count() as u32
    }

    pub(super) fn priority(&self, member: Member) -> u32 {
        self.semaphores
            .priority_of(self.task_threads.borrow()[member.0].task)
    }

    pub(super) fn set_own_priority(&self, member: Member, priority: u32) {
        self.call(member, move |semaphores| {
            semaphores.set_own_priority(priority);
        });
    }

    pub(super) fn scheduler(&self) -> u32 {
        self.semaphores.scheduler()
    }

    pub(super) fn schedulers(&self) -> Vec<u32> {
        self.semaphores.schedulers()
    }

    /// Returns the reason why a combination that needs so many schedulers with tasks cannot be run, if it cannot.
    pub(super) fn need_schedulers(&self, count: usize) -> Result<(), NotApplicable> {
        if self.schedulers().len() < count {
            return Err(FEW_SCHEDULERS);
        }
        Ok(())
    }

    pub(super) fn capacity(&self) -> u32 {
        self.semaphores.capacity()
    }

    /// Makes a semaphore under test, which is deleted with the group. If its count is 0, the member becomes its owner,
    /// where the class has owners. A MrsP semaphore has the same ceiling in all schedulers.
    pub(super) fn create(
        &self,
        member: Member,
        class: Class,
        discipline: Discipline,
        count: u32,
    ) -> u32 {
        let attributes = class.attributes() | discipline.attribute();
        let (answer, id) = self.call(member, move |semaphores| {
            let mut id = 0;
            let answer = semaphores.create(NAME, count, attributes, CEILING, Some(&mut id));
            (answer, id)
        });
        assert_eq!(answer, status::SUCCESSFUL, "create a {class:?} semaphore");
        self.keep(id);
        if class == Class::MrsP {
            for scheduler in self.schedulers().into_iter().skip(1) {
                self.set_ceiling(member, id, scheduler, CEILING);
            }
        }
        id
    }

    /// Sets the ceiling of a semaphore in a scheduler.
    pub(super) fn set_ceiling(&self, member: Member, id: u32, scheduler: u32, ceiling: u32) {
        let answer = self.call(member, move |semaphores| {
            semaphores.set_priority(id, scheduler, ceiling, Some(&mut 0))
        });
        assert_eq!(answer, status::SUCCESSFUL, "set a ceiling");
    }

    /// The semaphore will be deleted with the group.
    pub(super) fn keep(&self, id: u32) {
        self.ids.borrow_mut().push(id);
    }

    /// Waits until all calls have settled.
    pub(super) fn settle(&self) {
        let mut still = 0;
        // Checked twice: a task that is seen asleep may be woken by one that was checked before it.
        while still < 2 {
            still = if self.has_settled() { still + 1 } else { 0 };
            if still == 0 {
                // Where other programs have work, a yield takes a whole time slice.
                sleep(Duration::from_micros(20));
            }
        }
    }

    /// A call has settled if it has returned, or obtains a semaphore and waits for it. (A call may sleep for other reasons: for
    /// memory, while a thread of another test is just allocating some.)
    fn has_settled(&self) -> bool {
        let task_threads = self.task_threads.borrow();
        task_threads.iter().all(|task_thread| {
            let waits_for = |id| match self.semaphores.waiters(id) {
                Some(count) => {
                    let obtains =
                        |other: &&TaskThread<S>| other.is_busy() && other.obtains.get() == Some(id);
                    count as usize >= task_threads.iter().filter(obtains).count()
                }
                None => task_thread.is_asleep(),
            };
            !task_thread.is_busy() || task_thread.obtains.get().is_some_and(waits_for)
        })
    }

    /// Waits until a call has returned by itself.
    pub(super) fn wait(&self, begun: &Begun) -> u32 {
        begun.result.recv().expect("a living member")
    }

    /// Abandons tasks and semaphores that wait for each other.
    pub(super) fn abandon(&self) {
        self.is_abandoned.set(true);
    }

    /// Ends all calls and removes all semaphores.
    fn clean_up(&self) {
        let janitor = self.member(u32::from(u8::MAX) - 1);
        let members = self.task_threads.borrow().len();
        let mut ids = self.ids.take();
        for round in 0.. {
            ids.retain(|id| {
                let id = *id;
                self.call(janitor, move |semaphores| semaphores.delete(id))
                    == status::RESOURCE_IN_USE
            });
            if ids.is_empty() {
                break;
            }
            assert!(round < 100, "a semaphore cannot be deleted");
            for id in &ids {
                for member in (0..members).map(Member) {
                    let is_busy = || self.task_threads.borrow()[member.0].is_busy();
                    while !is_busy() && self.release(member, *id) == status::SUCCESSFUL {}
                }
            }
        }
        self.settle();
        for task_thread in &*self.task_threads.borrow() {
            assert!(!task_thread.is_busy(), "a task waits for nothing");
        }
    }
}

impl<S: ClassicSemaphores> Drop for TaskGroup<S> {
    fn drop(&mut self) {
        if self.is_abandoned.get() {
            return;
        }
        if std::thread::panicking() {
            // The panic must not disturb other tests; tasks that cannot be freed are abandoned.
            let _ = catch_unwind(AssertUnwindSafe(|| self.clean_up()));
            return;
        }
        self.clean_up();
        for mut task_thread in self.task_threads.take() {
            drop(task_thread.jobs.take());
            if let Some(thread) = task_thread.thread.take() {
                thread.join().expect("a member that ends");
            }
        }
    }
}

impl<S> TaskThread<S> {
    fn state(&self) -> u8 {
        // Acquire: pairs with the Release of the member.
        self.shared.state.load(Ordering::Acquire)
    }

    fn is_busy(&self) -> bool {
        self.state() != IDLE
    }

    /// Whether its thread sleeps in a futex call of its job.
    fn is_asleep(&self) -> bool {
        let thread = self.shared.thread.load(Ordering::Acquire);
        self.state() == WORKING && is_in_futex(&format!("/proc/self/task/{thread}"))
    }
}

fn thread_id() -> i32 {
    // SAFETY: `gettid` has no preconditions.
    unsafe { libc::gettid() }
}
