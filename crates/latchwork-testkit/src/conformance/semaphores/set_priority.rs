//! `rtems/sem/set-priority`

use super::group::{CALLER, CEILING, TaskGroup};
use super::{Class, ClassicSemaphores, Discipline, NO_ID, NO_PRIORITY, status, text_of};
use crate::conformance::{Combination, Driver, NotApplicable, Seen};
use std::sync::Arc;

const NEW: u32 = CEILING - 5;
/// A value that no call writes.
const UNTOUCHED: u32 = 0x7777_7777;

pub(super) fn driver<S: ClassicSemaphores>(semaphores: &Arc<S>) -> impl Driver + use<S> {
    let semaphores = Arc::clone(semaphores);
    move |combination: &Combination| run(&semaphores, combination)
}

fn run<S: ClassicSemaphores>(
    semaphores: &Arc<S>,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    let is = |condition: &str, state: &str| combination.pre(condition) == state;
    let group = TaskGroup::new(semaphores);
    let is_other = is("SchedId", "Other");
    if is_other {
        group.need_schedulers(2)?;
    }
    let [caller, owner] = [(); 2].map(|()| group.member(CALLER));
    let class = match combination.pre("Class") {
        "PrioCeilingNoOwner" | "PrioCeilingOwner" => Class::PrioCeiling,
        name => Class::named(name),
    };
    let id = group.create(caller, class, Discipline::Priority, 1);
    if is("Class", "PrioCeilingOwner") {
        assert_eq!(group.try_obtain(owner, id), status::SUCCESSFUL);
    }
    let before = group.priority(owner);
    let own_scheduler = group.scheduler();
    // The scheduler in which the semaphore's priority is observed.
    let observed = if is_other {
        group.schedulers()[1]
    } else {
        own_scheduler
    };
    let scheduler = if is("SchedId", "Invalid") {
        NO_ID
    } else {
        observed
    };
    let semaphore = if is("SemId", "Valid") { id } else { NO_ID };
    let new = match combination.pre("NewPrio") {
        "Current" => 0,
        "Valid" => NEW,
        _ => NO_PRIORITY,
    };
    let has_place = is("OldPrio", "Valid");
    let (answer, old, asked, now, own) = group.call(caller, move |semaphores| {
        let (mut old, mut now, mut own) = (UNTOUCHED, UNTOUCHED, CEILING);
        let place = has_place.then_some(&mut old);
        let answer = semaphores.set_priority(semaphore, scheduler, new, place);
        let asked = semaphores.set_priority(id, observed, 0, Some(&mut now));
        if is_other {
            semaphores.set_priority(id, own_scheduler, 0, Some(&mut own));
        }
        (answer, old, asked, now, own)
    });
    let after = group.priority(owner);
    let seen = Seen::new()
        .state(
            "Status",
            text_of(
                answer,
                &[
                    (status::INVALID_ADDRESS, "InvAddr"),
                    (status::INVALID_ID, "InvId"),
                    (status::INVALID_PRIORITY, "InvPrio"),
                    (status::NOT_DEFINED, "NotDef"),
                ],
            ),
        )
        .state(
            "OwnerPrio",
            match after {
                NEW => "New".to_owned(),
                _ if after == before => "Nop".to_owned(),
                other => format!("{other}"),
            },
        )
        .state(
            "SemPrio",
            match (asked, now) {
                _ if own != CEILING => format!("{own} in the scheduler of the creator"),
                (status::SUCCESSFUL, NEW) => "Set".to_owned(),
                // A semaphore without a priority has none to change.
                (status::SUCCESSFUL, CEILING) | (status::NOT_DEFINED, _) => "Nop".to_owned(),
                other => format!("{other:?}"),
            },
        )
        .state(
            "OldPrioVar",
            match old {
                CEILING => "Set".to_owned(),
                UNTOUCHED => "Nop".to_owned(),
                other => format!("{other}"),
            },
        );
    Ok(seen)
}
