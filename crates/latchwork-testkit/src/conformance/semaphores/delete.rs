//! `rtems/sem/delete`

use super::group::{CALLER, LOW, LOWER, NAME, TaskGroup};
use super::{Class, ClassicSemaphores, Discipline, NO_ID, status, text_of};
use crate::conformance::{Combination, Driver, Seen};
use std::sync::Arc;

pub(super) fn driver<S: ClassicSemaphores>(semaphores: &Arc<S>) -> impl Driver + use<S> {
    let semaphores = Arc::clone(semaphores);
    move |combination: &Combination| Ok(run(&semaphores, combination))
}

fn run<S: ClassicSemaphores>(semaphores: &Arc<S>, combination: &Combination) -> Seen {
    let group = TaskGroup::new(semaphores);
    let [caller, holder] = [CALLER, LOW].map(|priority| group.member(priority));
    let (class, no_object) = match combination.pre("Id") {
        "NoObj" => (Class::Counting, true),
        name => (Class::named(name), false),
    };
    let discipline = Discipline::named(combination.pre("Discipline"));
    let id = group.create(caller, class, discipline, 1);
    let state = combination.pre("State");
    if state != "GtZeroOrNoOwner" {
        assert_eq!(group.try_obtain(holder, id), status::SUCCESSFUL);
    }
    let waiting = if state == "Blocked" {
        vec![LOWER, LOW]
    } else {
        vec![]
    }
    .into_iter()
    .map(|priority| group.obtain(group.member(priority), id))
    .collect::<Vec<_>>();
    let (answer, ident) = group.call(caller, move |semaphores| {
        let answer = semaphores.delete(if no_object { NO_ID } else { id });
        (answer, semaphores.ident(NAME, Some(&mut 0)))
    });
    group.settle();
    let results: Vec<Option<u32>> = waiting.iter().map(|begun| begun.result()).collect();
    let seen = Seen::new()
        .state(
            "Status",
            text_of(
                answer,
                &[
                    (status::INVALID_ID, "InvId"),
                    (status::RESOURCE_IN_USE, "InUse"),
                ],
            ),
        )
        .state(
            "Name",
            match ident {
                status::SUCCESSFUL => "Valid",
                _ => "Invalid",
            },
        );
    if results.iter().all(Option::is_none) {
        seen.state("Flush", "No")
    } else if results
        .iter()
        .all(|result| *result == Some(status::OBJECT_WAS_DELETED))
    {
        seen.one_of("Flush", ["FIFO", "Priority"])
    } else {
        seen.state("Flush", format!("{results:?}"))
    }
}
