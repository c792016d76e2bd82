//! `rtems/sem/timeout`

use super::group::{CALLER, LOW, LOWER, TaskGroup};
use super::leave::expire;
use super::{Class, ClassicSemaphores, Discipline, status};
use crate::conformance::{Combination, Driver, Seen};
use std::sync::Arc;

pub(super) fn driver<S: ClassicSemaphores>(semaphores: &Arc<S>) -> impl Driver + use<S> {
    let semaphores = Arc::clone(semaphores);
    move |combination: &Combination| Ok(run(&semaphores, combination))
}

/// One task waits without a time-out, and then a task of higher priority until its time-out.
fn run<S: ClassicSemaphores>(semaphores: &Arc<S>, combination: &Combination) -> Seen {
    let group = TaskGroup::new(semaphores);
    let [owner, patient, caller] = [LOWER, LOW, CALLER].map(|priority| group.member(priority));
    let class = Class::named(combination.pre("Class"));
    let discipline = Discipline::named(combination.pre("Discipline"));
    let id = group.create(owner, class, discipline, 1);
    assert_eq!(group.try_obtain(owner, id), status::SUCCESSFUL);
    let own = group.priority(owner);
    let waiting = group.obtain(patient, id);
    let with_patient = group.priority(owner);
    let (answer, [meanwhile, after]) = expire(&group, caller, id, || group.priority(owner));
    let seen = Seen::new();
    if answer != status::TIMEOUT || waiting.result().is_some() {
        seen.state("Action", format!("status {answer}"))
    } else if after != with_patient || group.priority(caller) != CALLER {
        seen.state("Action", "a priority stays raised")
    } else if with_patient == own && meanwhile == own {
        seen.one_of("Action", ["Timeout", "TimeoutMrsP"])
    } else if meanwhile == CALLER {
        seen.state("Action", "TimeoutPriorityInherit")
    } else {
        seen.state("Action", "a priority is not inherited")
    }
}
