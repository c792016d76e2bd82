//! Drivers of the actions on semaphores, over any type that implements [`ClassicSemaphores`].
//!
//! [`run`] runs all tables. Each combination has its own tasks (threads) and semaphores. The library's records are not
//! read, except for the tasks' priorities: the drivers observe a semaphore's class, count, owner and discipline by the
//! results of calls, and by which tasks they wake.

mod create;
mod crew;
mod delete;
mod enqueue;
mod flush;
mod leave;
mod mutex;
mod plain;
mod set_priority;
mod sub_actions;
mod timeout;

use super::{ActionReport, Combination, Driver, NotApplicable, Report, Seen, Table};
use std::sync::Arc;

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

/// No class of semaphores has these properties.
const NOT_CLASSIC: NotApplicable = NotApplicable("NotClassic");

/// A table's name for a result: "Ok" for success, else one of these.
fn text_of(answer: u32, others: &[(u32, &str)]) -> String {
    match others.iter().find(|(status, _)| *status == answer) {
        _ if answer == status::SUCCESSFUL => "Ok".to_owned(),
        Some((_, text)) => (*text).to_owned(),
        None => format!("status {answer}"),
    }
}

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
    /// The ID of the tasks' scheduler.
    fn scheduler(&self) -> u32;
    /// The most semaphores that can exist.
    fn capacity(&self) -> u32;
    /// Whether there are MrsP semaphores.
    fn has_mrsp(&self) -> bool {
        true
    }
    /// How many tasks wait for a semaphore, if waiters may spin instead of sleeping.
    fn waiters(&self, _id: u32) -> Option<u32> {
        None
    }
}

/// An ID that no object has.
const NO_ID: u32 = u32::MAX;
/// A priority that no task can have.
const NO_PRIORITY: u32 = u32::MAX;

/// The class of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Counting,
    Simple,
    Binary,
    PrioCeiling,
    PrioInherit,
    MrsP,
}

impl Class {
    const ALL: [Self; 6] = [
        Self::Counting,
        Self::Simple,
        Self::Binary,
        Self::PrioCeiling,
        Self::PrioInherit,
        Self::MrsP,
    ];

    /// The class that tables call by this name.
    fn named(name: &str) -> Self {
        let class = Self::ALL.into_iter().find(|class| class.name() == name);
        class.unwrap_or_else(|| panic!("there is no class {name}"))
    }

    fn name(self) -> String {
        format!("{self:?}")
    }

    fn is_mutex(self) -> bool {
        !matches!(self, Self::Counting | Self::Simple)
    }

    fn has_ceiling(self) -> bool {
        matches!(self, Self::PrioCeiling | Self::MrsP)
    }

    fn attributes(self) -> u32 {
        match self {
            Self::Counting => 0,
            Self::Simple => attribute::SIMPLE_BINARY,
            Self::Binary => attribute::BINARY,
            Self::PrioCeiling => attribute::BINARY | attribute::CEILING,
            Self::PrioInherit => attribute::BINARY | attribute::INHERIT,
            Self::MrsP => attribute::BINARY | attribute::MRSP,
        }
    }
}

/// The order in which waiters are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Discipline {
    Fifo,
    Priority,
}

impl Discipline {
    const ALL: [Self; 2] = [Self::Fifo, Self::Priority];

    fn named(name: &str) -> Self {
        match name {
            "FIFO" => Self::Fifo,
            "Priority" => Self::Priority,
            other => panic!("there is no discipline {other}"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Fifo => "FIFO",
            Self::Priority => "Priority",
        }
    }

    fn attribute(self) -> u32 {
        match self {
            Self::Fifo => attribute::FIFO,
            Self::Priority => attribute::PRIORITY,
        }
    }
}

/// Runs all tables against semaphores; combinations that no driver runs yet are counted.
pub fn run<S: ClassicSemaphores>(semaphores: &Arc<S>) -> Report {
    let actions = Table::all()
        .iter()
        .map(|table| run_action(semaphores, table))
        .collect();
    Report { actions }
}

/// Excludes combinations about MrsP semaphores, if there are none.
struct Among<D> {
    driver: D,
    has_mrsp: bool,
}

impl<D: Driver> Driver for Among<D> {
    fn run(&mut self, combination: &Combination) -> Result<Seen, NotApplicable> {
        // Attributes that request MrsP are then refused; an earlier check may refuse the call in any case.
        let is_refused = combination.expected().any(|state| {
            ["InvName", "InvAddr", "NotDef"]
                .map(|status| ("Status", status))
                .contains(&state)
        });
        let is_about_mrsp = combination.table().action.ends_with("-mrsp")
            || combination.pre_states().any(|(condition, state)| {
                state == "MrsP" || (condition, state) == ("MrsP", "Yes") && !is_refused
            });
        if is_about_mrsp && !self.has_mrsp {
            return Err(NotApplicable("NoMrsP"));
        }
        self.driver.run(combination)
    }
}

/// Runs one table against semaphores.
pub fn run_action<S: ClassicSemaphores>(
    semaphores: &Arc<S>,
    table: &'static Table,
) -> ActionReport {
    let run = |driver: Box<dyn Driver>| {
        let has_mrsp = semaphores.has_mrsp();
        table.conform(&mut Among { driver, has_mrsp })
    };
    let one_class =
        |action: sub_actions::SubAction<S>| run(Box::new(sub_actions::each(semaphores, action)));
    match &*table.action {
        "rtems/sem/create" => run(Box::new(create::driver(semaphores))),
        "rtems/sem/delete" => run(Box::new(delete::driver(semaphores))),
        "rtems/sem/flush" => run(Box::new(flush::driver(semaphores))),
        "rtems/sem/obtain" => run(Box::new(sub_actions::obtain(semaphores))),
        "rtems/sem/release" => run(Box::new(sub_actions::release(semaphores))),
        "rtems/sem/set-priority" => run(Box::new(set_priority::driver(semaphores))),
        "rtems/sem/timeout" => run(Box::new(timeout::driver(semaphores))),
        "score/sem/seize-try" => one_class(plain::seize_try),
        "score/sem/seize-wait" => one_class(plain::seize_wait),
        "score/sem/surrender" => one_class(plain::surrender),
        "score/mtx/seize-try" => one_class(mutex::seize_try),
        "score/mtx/seize-wait" => one_class(mutex::seize_wait),
        "score/mtx/surrender" => one_class(mutex::surrender),
        "score/tq/enqueue-ceiling" => one_class(enqueue::ceiling),
        "score/tq/enqueue-deadlock" => one_class(enqueue::deadlock),
        "score/tq/enqueue-fifo" => one_class(enqueue::fifo),
        "score/tq/enqueue-mrsp" => one_class(enqueue::mrsp),
        "score/tq/enqueue-priority" => one_class(enqueue::priority),
        "score/tq/enqueue-priority-inherit" => one_class(enqueue::inherit),
        "score/tq/flush-fifo" => one_class(leave::flush_fifo),
        "score/tq/flush-priority" => one_class(leave::flush_priority),
        "score/tq/flush-priority-inherit" => one_class(leave::flush_inherit),
        "score/tq/surrender" => one_class(leave::surrender),
        "score/tq/surrender-mrsp" => one_class(leave::surrender_mrsp),
        "score/tq/surrender-priority-inherit" => one_class(leave::surrender_inherit),
        "score/tq/timeout" => one_class(leave::timeout),
        "score/tq/timeout-mrsp" => one_class(leave::timeout_mrsp),
        "score/tq/timeout-priority-inherit" => one_class(leave::timeout_inherit),
        // No part of the other tables (`rtems/sem/mrsp-obtain`) applies.
        _ => table.survey(),
    }
}
