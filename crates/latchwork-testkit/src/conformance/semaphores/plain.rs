//! `score/sem/…`: semaphores without an owner.

use super::crew::{CALLER, Crew, LOW, LOWER};
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
    crew: &Crew<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if class.is_mutex() {
        return Err(NOT_CLASSIC);
    }
    let caller = crew.member(CALLER);
    let count = initial(class, combination);
    let id = crew.create(caller, class, discipline, count);
    let answer = crew.try_obtain(caller, id);
    let left = crew.drain(caller, id, 5);
    Ok(Seen::new()
        .state("Status", text_of(answer, &[(status::UNSATISFIED, "Unsat")]))
        .state("Count", change(count, left)))
}

/// `score/sem/seize-wait`
pub(super) fn seize_wait<S: ClassicSemaphores>(
    crew: &Crew<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if class.is_mutex() {
        return Err(NOT_CLASSIC);
    }
    let caller = crew.member(CALLER);
    let other = crew.member(CALLER);
    let count = initial(class, combination);
    let id = crew.create(caller, class, discipline, count);
    let begun = crew.obtain(caller, id);
    let result = begun.result();
    let left = crew.drain(other, id, 5);
    Ok(Seen::new()
        .state(
            "Status",
            result.map_or("Enqueued".to_owned(), |answer| text_of(answer, &[])),
        )
        .state("Count", change(count, left)))
}

/// `score/sem/surrender`
pub(super) fn surrender<S: ClassicSemaphores>(
    crew: &Crew<S>,
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
    let caller = crew.member(CALLER);
    let before = match (combination.pre("Count"), class) {
        ("Max", Class::Counting) => u32::MAX,
        ("Max", _) | ("LessMax", Class::Counting) => 1,
        _ => 0,
    };
    let id = crew.create(caller, class, discipline, before);
    let waiting = if combination.pre("Count") == "Blocked" {
        vec![LOWER, LOW]
    } else {
        vec![]
    }
    .into_iter()
    .map(|priority| crew.obtain(crew.member(priority), id))
    .collect::<Vec<_>>();
    let answer = crew.release(caller, id);
    crew.settle();
    let results: Vec<Option<u32>> = waiting.iter().map(|begun| begun.result()).collect();
    // As many as can be counted.
    let count = match crew.drain(caller, id, 5) {
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
