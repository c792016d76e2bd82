//! `rtems/sem/flush`

use super::group::{CALLER, HIGH, LOW, LOWER, TaskGroup};
use super::{Class, ClassicSemaphores, Discipline, NO_ID, status};
use crate::conformance::{Combination, Driver, NOT_APPLICABLE, Seen};
use std::sync::Arc;

pub(super) fn driver<S: ClassicSemaphores>(semaphores: &Arc<S>) -> impl Driver + use<S> {
    let semaphores = Arc::clone(semaphores);
    move |combination: &Combination| Ok(run(&semaphores, combination))
}

fn run<S: ClassicSemaphores>(semaphores: &Arc<S>, combination: &Combination) -> Seen {
    let group = TaskGroup::new(semaphores);
    let caller = group.member(HIGH);
    let holder = group.member(LOWER);
    let (class, discipline) = match combination.pre("Class") {
        NOT_APPLICABLE => (Class::Counting, Discipline::Fifo),
        class => (
            Class::named(class),
            Discipline::named(combination.pre("Discipline")),
        ),
    };
    let id = group.create(caller, class, discipline, 1);
    assert_eq!(group.try_obtain(holder, id), status::SUCCESSFUL);
    let own = group.priority(holder);
    let waiting = [LOW, CALLER].map(|priority| group.obtain(group.member(priority), id));
    let inherited = group.priority(holder);
    let is_valid = combination.pre("Id") == "Valid";
    let answer = group.call(caller, move |semaphores| {
        semaphores.flush(if is_valid { id } else { NO_ID })
    });
    group.settle();
    let results = waiting.map(|begun| begun.result());
    let seen = Seen::new();
    match answer {
        status::INVALID_ID => seen.state("Action", "InvId"),
        status::NOT_DEFINED => seen.state("Action", "NotDef"),
        status::SUCCESSFUL
            if results == [Some(status::UNSATISFIED); 2] && group.priority(holder) == own =>
        {
            if inherited == own {
                seen.one_of(
                    "Action",
                    ["FlushFIFO", "FlushPriority", "FlushPriorityCeiling"],
                )
            } else {
                seen.state("Action", "FlushPriorityInherit")
            }
        }
        other => seen.state("Action", format!("status {other}, waiters {results:?}")),
    }
}
