//! `rtems/sem/flush`

use super::crew::{CALLER, Crew, HIGH, LOW, LOWER};
use super::{Class, ClassicSemaphores, Discipline, NO_ID, status};
use crate::conformance::{Combination, Driver, NOT_APPLICABLE, Seen};
use std::sync::Arc;

pub(super) fn driver<S: ClassicSemaphores>(semaphores: &Arc<S>) -> impl Driver + use<S> {
    let semaphores = Arc::clone(semaphores);
    move |combination: &Combination| Ok(run(&semaphores, combination))
}

fn run<S: ClassicSemaphores>(semaphores: &Arc<S>, combination: &Combination) -> Seen {
    let crew = Crew::new(semaphores);
    let caller = crew.member(HIGH);
    let holder = crew.member(LOWER);
    let (class, discipline) = match combination.pre("Class") {
        NOT_APPLICABLE => (Class::Counting, Discipline::Fifo),
        class => (
            Class::named(class),
            Discipline::named(combination.pre("Discipline")),
        ),
    };
    let id = crew.create(caller, class, discipline, 1);
    assert_eq!(crew.try_obtain(holder, id), status::SUCCESSFUL);
    let own = crew.priority(holder);
    let waiting = [LOW, CALLER].map(|priority| crew.obtain(crew.member(priority), id));
    let inherited = crew.priority(holder);
    let is_valid = combination.pre("Id") == "Valid";
    let answer = crew.call(caller, move |semaphores| {
        semaphores.flush(if is_valid { id } else { NO_ID })
    });
    crew.settle();
    let results = waiting.map(|begun| begun.result());
    let seen = Seen::new();
    match answer {
        status::INVALID_ID => seen.state("Action", "InvId"),
        status::NOT_DEFINED => seen.state("Action", "NotDef"),
        status::SUCCESSFUL
            if results == [Some(status::UNSATISFIED); 2] && crew.priority(holder) == own =>
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
