//! `score/sem/…`: semaphores without an owner.

use super::group::{CALLER, LOW, LOWER, TaskGroup};
use super::{Class, ClassicSemaphores, Discipline, NOT_CLASSIC, status, text_of};
use crate::conformance::{Combination, NotApplicable, Seen};

/// The count of an available semaphore.
fn positive(class: Class) -> u32 {
    if class == Class::Counting { 2 } else { 1 }
}

fn initial(class: Class, combination: &Combination) -> u32 {
    match combination.pre("Count") {
        "Zero" => 0,
        _ => positive(class),
    }
}

fn change(before: u32, after: u32) -> String {
    match before.wrapping_sub(after) {
        0 => "Nop".to_owned(),
        1 => "MinusOne".to_owned(),
        other => format!("{other} less"),
    }
}

/// `score/sem/seize-try`
pub(super) fn seize_try<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if class.is_mutex() {
        return Err(NOT_CLASSIC);
    }
    let caller = group.member(CALLER);
    let count = initial(class, combination);
    let id = group.create(caller, class, discipline, count);
    let answer = group.try_obtain(caller, id);
    let left = group.drain(caller, id, 5);
    Ok(Seen::new()
        .state("Status", text_of(answer, &[(status::UNSATISFIED, "Unsat")]))
        .state("Count", change(count, left)))
}

/// `score/sem/seize-wait`
pub(super) fn seize_wait<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if class.is_mutex() {
        return Err(NOT_CLASSIC);
    }
    let caller = group.member(CALLER);
    let other = group.member(CALLER);
    let count = initial(class, combination);
    let id = group.create(caller, class, discipline, count);
    let begun = group.obtain(caller, id);
    let result = begun.result();
    let left = group.drain(other, id, 5);
    Ok(Seen::new()
        .state(
            "Status",
            result.map_or("Enqueued".to_owned(), |answer| text_of(answer, &[])),
        )
        .state("Count", change(count, left)))
}

/// `score/sem/surrender`
pub(super) fn surrender<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    let wanted = match combination.pre("Variant") {
        "Counting" => Class::Counting,
        _ => Class::Simple,
    };
    if class != wanted || discipline.name() != combination.pre("Discipline") {
        return Err(NOT_CLASSIC);
    }
    let caller = group.member(CALLER);
    let before = match (combination.pre("Count"), class) {
        ("Max", Class::Counting) => u32::MAX,
        ("Max", _) | ("LessMax", Class::Counting) => 1,
        _ => 0,
    };
    let id = group.create(caller, class, discipline, before);
    let waiting = if combination.pre("Count") == "Blocked" {
        vec![LOWER, LOW]
    } else {
        vec![]
    }
    .into_iter()
    .map(|priority| group.obtain(group.member(priority), id))
    .collect::<Vec<_>>();
    let answer = group.release(caller, id);
    group.settle();
    let results: Vec<Option<u32>> = waiting.iter().map(|begun| begun.result()).collect();
    // As many as can be counted.
    let count = match group.drain(caller, id, 5) {
        5 if before == u32::MAX => "Nop".to_owned(),
        after if class == Class::Counting && after == before + 1 => "PlusOne".to_owned(),
        0 => "Zero".to_owned(),
        1 => "One".to_owned(),
        other => format!("{other}"),
    };
    Ok(Seen::new()
        .state(
            "Status",
            text_of(answer, &[(status::UNSATISFIED, "MaxCountExceeded")]),
        )
        .state(
            "Surrender",
            match results[..] {
                [Some(status::SUCCESSFUL), None] => "FIFO".to_owned(),
                [None, Some(status::SUCCESSFUL)] => "Priority".to_owned(),
                _ => format!("{results:?}"),
            },
        )
        .state("Count", count))
}
