//! Drivers of the actions on semaphores, over any type that implements [`ClassicSemaphores`].
//!
//! [`run`] runs all tables. Each combination has its own tasks (threads) and semaphores. The library's records are not
//! read, except for the tasks' priorities: the drivers observe a semaphore's class, count, owner and discipline by the
//! results of calls, and by which tasks they wake.
//!
//! *Schedulers.* A task's helping schedulers are those of tasks that wait for semaphores which it owns by inheritance or
//! MrsP. Tables that speak of one, two, three or more schedulers in the system are read as speaking of those that have
//! tasks: the combination must not need more, and schedulers without tasks have no effect.

mod class;
mod classic;
mod create;
mod delete;
mod enqueue;
mod flush;
mod group;
mod leave;
mod mrsp_obtain;
mod mutex;
mod plain;
mod set_priority;
mod sub_actions;
mod timeout;

use super::{ActionReport, Combination, Driver, NotApplicable, Report, Seen, Table};
use class::{Class, Discipline, FEW_SCHEDULERS, NOT_CLASSIC, ONE_PRIORITY, text_of};
pub use classic::{ClassicSemaphores, TICK, attribute, status};
use classic::{NO_ID, NO_PRIORITY};
use std::sync::Arc;

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
        let is_about_mrsp = combination.table().action.contains("mrsp")
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
        "rtems/sem/mrsp-obtain" => run(Box::new(mrsp_obtain::driver(semaphores))),
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
        _ => table.survey(),
    }
}
