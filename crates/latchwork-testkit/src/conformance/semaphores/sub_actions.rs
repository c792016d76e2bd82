//! Actions that RTEMS specifies by other actions: obtain and release.
//!
//! A sub-action (`SemSeizeTry`, say) is observed if all combinations of its own table that apply to the class and
//! discipline pass.

use super::group::{CALLER, TaskGroup};
use super::{
    Class, ClassicSemaphores, Discipline, NO_ID, NOT_CLASSIC, attribute, mutex, plain, status,
};
use crate::conformance::{ActionReport, Combination, Driver, NotApplicable, Seen, Table};
use std::sync::Arc;

/// Runs a combination of a sub-action's table with a semaphore of a class and discipline.
pub(super) type SubAction<S> =
    fn(&TaskGroup<S>, Class, Discipline, &Combination) -> Result<Seen, NotApplicable>;

/// Runs a sub-action's combination with all classes and disciplines that it applies to.
pub(super) fn each<S: ClassicSemaphores>(
    semaphores: &Arc<S>,
    action: SubAction<S>,
) -> impl Driver + use<S> {
    let semaphores = Arc::clone(semaphores);
    move |combination: &Combination| {
        let mut result = Err(NOT_CLASSIC);
        for class in Class::ALL {
            for discipline in Discipline::ALL {
                let is_missing = class == Class::MrsP && !semaphores.has_mrsp();
                if is_missing || !exists(class, discipline) {
                    continue;
                }
                let seen = action(&TaskGroup::new(&semaphores), class, discipline, combination);
                // The observation is the first result that is not as expected.
                match seen {
                    Ok(seen) if !seen.meets(combination) => return Ok(seen),
                    Ok(seen) => result = Ok(seen),
                    Err(reason) if result.is_err() && reason != NOT_CLASSIC => {
                        result = Err(reason);
                    }
                    Err(_) => {}
                }
            }
        }
        result
    }
}

fn exists(class: Class, discipline: Discipline) -> bool {
    discipline == Discipline::Priority
        || matches!(class, Class::Counting | Class::Simple | Class::Binary)
}

/// Whether a semaphore performs a sub-action: returns its name, or what was observed instead.
fn tried<S: ClassicSemaphores>(
    semaphores: &Arc<S>,
    class: Class,
    discipline: Discipline,
    name: &str,
    (table, action): (&str, SubAction<S>),
) -> String {
    let ActionReport { passed, failed, .. } =
        Table::named(table).conform(&mut |combination: &Combination| {
            action(&TaskGroup::new(semaphores), class, discipline, combination)
        });
    match failed.first() {
        None if passed > 0 => name.to_owned(),
        None => format!("nothing of {name} applies"),
        Some(first) => format!("not {name}: {first}"),
    }
}

/// `rtems/sem/obtain`
pub(super) fn obtain<S: ClassicSemaphores>(semaphores: &Arc<S>) -> impl Driver + use<S> {
    let semaphores = Arc::clone(semaphores);
    move |combination: &Combination| {
        let class = Class::named(combination.pre("Class"));
        let discipline = Discipline::named(combination.pre("Discipline"));
        let (wait, ticks) = match combination.pre("Wait") {
            "No" => (attribute::NO_WAIT, 0),
            "Timeout" => (attribute::WAIT, 1),
            _ => (attribute::WAIT, 0),
        };
        let seen = if combination.pre("Id") == "Invalid" {
            invalid(&semaphores, class, discipline, move |semaphores| {
                semaphores.obtain(NO_ID, wait, ticks)
            })
        } else {
            let waits = wait == attribute::WAIT;
            let step = if waits { "Wait" } else { "Try" };
            let sub = match (class.is_mutex(), waits) {
                (false, false) => ("score/sem/seize-try", plain::seize_try as SubAction<S>),
                (false, true) => ("score/sem/seize-wait", plain::seize_wait as SubAction<S>),
                (true, false) => ("score/mtx/seize-try", mutex::seize_try as SubAction<S>),
                (true, true) => ("score/mtx/seize-wait", mutex::seize_wait as SubAction<S>),
            };
            let kind = match class {
                Class::Counting | Class::Simple => "Sem",
                Class::Binary => "Mtx",
                Class::PrioCeiling => "CeilingMtx",
                Class::PrioInherit => "InheritMtx",
                Class::MrsP => "MrsPMtx",
            };
            let name = format!("{kind}Seize{step}");
            tried(&semaphores, class, discipline, &name, sub)
        };
        Ok(Seen::new().state("Action", seen))
    }
}

/// `rtems/sem/release`
pub(super) fn release<S: ClassicSemaphores>(semaphores: &Arc<S>) -> impl Driver + use<S> {
    let semaphores = Arc::clone(semaphores);
    move |combination: &Combination| {
        let class = Class::named(combination.pre("Class"));
        let discipline = Discipline::named(combination.pre("Discipline"));
        let seen = if combination.pre("Id") == "Invalid" {
            invalid(&semaphores, class, discipline, |semaphores| {
                semaphores.release(NO_ID)
            })
        } else {
            let name = match class {
                Class::Counting => "CountingSurrender",
                Class::Simple => "BinarySurrender",
                Class::Binary => "MtxSurrender",
                Class::PrioCeiling => "CeilingMtxSurrender",
                Class::PrioInherit => "InheritMtxSurrender",
                Class::MrsP => "MrsPMtxSurrender",
            };
            let sub = if class.is_mutex() {
                ("score/mtx/surrender", mutex::surrender as SubAction<S>)
            } else {
                ("score/sem/surrender", plain::surrender as SubAction<S>)
            };
            tried(&semaphores, class, discipline, name, sub)
        };
        Ok(Seen::new().state("Action", seen))
    }
}

/// The result of a call with an ID that no semaphore has, while a semaphore exists.
fn invalid<S: ClassicSemaphores>(
    semaphores: &Arc<S>,
    class: Class,
    discipline: Discipline,
    call: impl FnOnce(&S) -> u32 + Send + 'static,
) -> String {
    let group = TaskGroup::new(semaphores);
    let caller = group.member(CALLER);
    group.create(caller, class, discipline, 1);
    match group.call(caller, call) {
        status::INVALID_ID => "InvId".to_owned(),
        other => format!("status {other}"),
    }
}
