//! `score/mtx/…`: semaphores with an owner.

use super::group::{Begun, CALLER, CEILING, HIGH, LOW, LOWER, Member, TaskGroup};
use super::{Class, ClassicSemaphores, Discipline, NOT_CLASSIC, attribute, status, text_of};
use crate::conformance::{Combination, NOT_APPLICABLE, NotApplicable, Seen};

/// Whether a class has this protocol; `Other` means no protocol, or inheritance.
fn has_protocol(class: Class, protocol: &str) -> bool {
    match protocol {
        "None" => class == Class::Binary,
        "Inherit" => class == Class::PrioInherit,
        "Ceiling" => class == Class::PrioCeiling,
        "MrsP" => class == Class::MrsP,
        _ => matches!(class, Class::Binary | Class::PrioInherit),
    }
}

/// Whether the combination applies to this class and discipline.
fn is_about(class: Class, discipline: Discipline, combination: &Combination) -> bool {
    let is_recursive = combination.pre("Recursive") == "Allowed";
    let of_discipline = |name| name == discipline.name() || name == NOT_APPLICABLE;
    has_protocol(class, combination.pre("Protocol"))
        && of_discipline(combination.pre("Discipline"))
        && is_recursive == (class != Class::MrsP)
}

/// A priority in this relation to the ceiling (or to whatever has the ceiling's priority).
fn relative(state: &str) -> u32 {
    match state {
        "High" => HIGH,
        "Equal" => CEILING,
        _ => CALLER,
    }
}

/// A semaphore to be seized, its owner, and the caller's priority.
struct Scene {
    id: u32,
    caller: Member,
    owner: Member,
    /// Whether the caller already holds a semaphore with that ceiling.
    uses_ceiling: bool,
    priority: u32,
}

fn set_up<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Scene {
    let [caller, owner] = [CALLER, LOW].map(|priority| group.member(priority));
    let id = group.create(owner, class, discipline, 1);
    let with = combination.pre("Owner");
    match with {
        "Caller" => assert_eq!(group.try_obtain(caller, id), status::SUCCESSFUL),
        "None" => {}
        _ => assert_eq!(group.try_obtain(owner, id), status::SUCCESSFUL),
    }
    group.set_own_priority(caller, relative(combination.pre("Priority")));
    if with == "Deadlock" {
        let other = group.create(caller, Class::Binary, Discipline::Priority, 1);
        assert_eq!(group.try_obtain(caller, other), status::SUCCESSFUL);
        assert_eq!(group.obtain(owner, other).result(), None);
    }
    Scene {
        id,
        caller,
        owner,
        uses_ceiling: class.has_ceiling() && with == "Caller",
        priority: group.priority(caller),
    }
}

impl Scene {
    /// The effect on the priority of the caller, which does not wait.
    fn priority<S: ClassicSemaphores>(&self, group: &TaskGroup<S>) -> String {
        let now = group.priority(self.caller);
        group.set_own_priority(self.caller, LOWER);
        let uses_ceiling = group.priority(self.caller) == CEILING;
        if uses_ceiling && !self.uses_ceiling {
            "Ceiling".to_owned()
        } else if now == self.priority {
            "Nop".to_owned()
        } else {
            format!("{now}")
        }
    }

    /// Determines who owns the semaphore, by taking it from the owner.
    fn owner<S: ClassicSemaphores>(&self, group: &TaskGroup<S>) -> &'static str {
        if group.release(self.caller, self.id) == status::SUCCESSFUL {
            "Caller"
        } else if group.try_obtain(group.member(LOW), self.id) == status::SUCCESSFUL {
            "None"
        } else {
            "Other"
        }
    }
}

/// `score/mtx/seize-try`
pub(super) fn seize_try<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if !is_about(class, discipline, combination) {
        return Err(NOT_CLASSIC);
    }
    let scene = set_up(group, class, discipline, combination);
    let answer = group.try_obtain(scene.caller, scene.id);
    let priority = scene.priority(group);
    Ok(Seen::new()
        .state(
            "Status",
            text_of(
                answer,
                &[
                    (status::UNSATISFIED, "Unavailable"),
                    (status::INCORRECT_STATE, "Deadlock"),
                    (status::INVALID_PRIORITY, "MutexCeilingViolated"),
                ],
            ),
        )
        .state("Priority", priority)
        .state("Owner", scene.owner(group)))
}

/// `score/mtx/seize-wait`
pub(super) fn seize_wait<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if !is_about(class, discipline, combination) {
        return Err(NOT_CLASSIC);
    }
    let scene = set_up(group, class, discipline, combination);
    let before = group.priority(scene.owner);
    let begun = group.obtain(scene.caller, scene.id);
    let seen = Seen::new();
    if let Some(answer) = begun.result() {
        let priority = scene.priority(group);
        return Ok(seen
            .state(
                "Status",
                text_of(
                    answer,
                    &[
                        (status::INCORRECT_STATE, "DeadlockStatus"),
                        (status::INVALID_PRIORITY, "MutexCeilingViolated"),
                    ],
                ),
            )
            .state("Enqueued", "No")
            .state("Priority", priority)
            .state("Owner", scene.owner(group)));
    }
    let now = group.priority(scene.caller);
    let priority = match now {
        CEILING if class == Class::MrsP => "Ceiling".to_owned(),
        _ if now == scene.priority => "Nop".to_owned(),
        other => format!("{other}"),
    };
    let inherits = group.priority(scene.owner) != before;
    let seen = seen.state("Priority", priority);
    // A later waiter of higher priority; useless where the ceiling makes all equal.
    let order = (class != Class::MrsP && scene.priority == CALLER).then(|| {
        let rival = group.obtain(group.member(CALLER - 5), scene.id);
        let owner = owner_of(group, &scene);
        (served(group, [&begun, &rival]), owner)
    });
    let (order, owner) = match order {
        Some((order, owner)) => (order, owner),
        None => ("Priority", owner_of(group, &scene)),
    };
    let seen = seen.state("Owner", owner);
    Ok(match (order, inherits) {
        ("Priority", true) => seen.state("Enqueued", "PriorityInherit"),
        ("Priority", false) => {
            seen.one_of("Enqueued", ["Priority", "PriorityCeiling", "PriorityMrsP"])
        }
        (other, false) => seen.state("Enqueued", other),
        (other, true) => seen.state("Enqueued", format!("{other}, inheriting")),
    })
}

/// Whether the semaphore still belongs to its owner, which releases it.
fn owner_of<S: ClassicSemaphores>(group: &TaskGroup<S>, scene: &Scene) -> &'static str {
    let released = group.release(scene.owner, scene.id);
    group.settle();
    if released == status::SUCCESSFUL {
        "Other"
    } else {
        "not the owner"
    }
}

/// The order of service of two waiters, the later of which has the higher priority.
fn served<S: ClassicSemaphores>(group: &TaskGroup<S>, waiting: [&Begun; 2]) -> &'static str {
    group.settle();
    match waiting.map(Begun::result) {
        [Some(status::SUCCESSFUL), None] => "FIFO",
        [None, Some(status::SUCCESSFUL)] => "Priority",
        [None, None] => "Nop",
        _ => "both, or neither in good order",
    }
}

/// `score/mtx/surrender`
pub(super) fn surrender<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if !is_about(class, discipline, combination) {
        return Err(NOT_CLASSIC);
    }
    let [caller, owner] = [CALLER, CALLER].map(|priority| group.member(priority));
    let id = group.create(caller, class, discipline, 1);
    match combination.pre("Owner") {
        "Caller" => assert_eq!(group.try_obtain(caller, id), status::SUCCESSFUL),
        "Other" => assert_eq!(group.try_obtain(owner, id), status::SUCCESSFUL),
        _ => {}
    }
    if combination.pre("Nested") == "Yes" {
        let again = group.call(caller, move |semaphores| {
            semaphores.obtain(id, attribute::WAIT, 0)
        });
        assert_eq!(again, status::SUCCESSFUL);
    }
    // The priority that a waiter lends by inheritance equals that of a ceiling.
    let highest = match class {
        Class::PrioInherit => CEILING,
        _ => LOW,
    };
    let waiting = (combination.pre("Blocked") == "Yes")
        .then(|| [LOWER, highest].map(|priority| group.obtain(group.member(priority), id)));
    let own = relative(combination.pre("Priority"));
    group.set_own_priority(caller, own);
    let before = group.priority(caller);
    let answer = group.release(caller, id);
    group.settle();
    let after = group.priority(caller);
    let order = match &waiting {
        Some([low, high]) => served(group, [low, high]),
        None => "Nop",
    };
    let holder = if order != "Nop" {
        "First"
    } else if group.release(caller, id) == status::SUCCESSFUL {
        "Caller"
    } else if group.release(owner, id) == status::SUCCESSFUL {
        "Other"
    } else {
        "None"
    };
    let seen = Seen::new()
        .state(
            "Status",
            text_of(answer, &[(status::NOT_OWNER_OF_RESOURCE, "NotOwner")]),
        )
        .state("Owner", holder)
        .state(
            "Priority",
            match after {
                _ if after == before => "Nop".to_owned(),
                _ if after > before && after == own => "Low".to_owned(),
                other => format!("{other}"),
            },
        );
    Ok(match order {
        // At the ceiling all waiters have equal priority.
        "FIFO" if class == Class::MrsP => seen.state("Surrender", "MrsP"),
        "Priority" => seen.one_of("Surrender", ["Priority", "PriorityInherit", "MrsP"]),
        other => seen.state("Surrender", other),
    })
}
