//! `rtems/sem/create`

use super::group::{CALLER, LOW, LOWER, Member, NAME, TaskGroup};
use super::{ClassicSemaphores, NO_PRIORITY, attribute, status, text_of};
use crate::conformance::{Combination, Driver, Seen};
use std::sync::Arc;

/// Ceilings that are, and are not, at least as high as the caller's priority.
const CEILING_ABOVE: u32 = CALLER - 10;
const CEILING_BELOW: u32 = CALLER + 10;
/// A value that no call writes.
const UNTOUCHED: u32 = 0x7777_7777;

pub(super) fn driver<S: ClassicSemaphores>(semaphores: &Arc<S>) -> impl Driver + use<S> {
    let semaphores = Arc::clone(semaphores);
    move |combination: &Combination| Ok(run(&semaphores, combination))
}

fn run<S: ClassicSemaphores>(semaphores: &Arc<S>, combination: &Combination) -> Seen {
    let is = |condition: &str, state: &str| combination.pre(condition) == state;
    let group = TaskGroup::new(semaphores);
    let caller = group.member(CALLER);
    if is("Free", "No") {
        fill(&group, caller);
    }
    let mut attributes = 0;
    for (condition, bit) in [
        ("Binary", attribute::BINARY),
        ("Simple", attribute::SIMPLE_BINARY),
        ("Inherit", attribute::INHERIT),
        ("Ceiling", attribute::CEILING),
        ("MrsP", attribute::MRSP),
    ] {
        attributes |= if is(condition, "Yes") { bit } else { 0 };
    }
    attributes |= if is("Disc", "Prio") {
        attribute::PRIORITY
    } else {
        attribute::FIFO
    };
    let name = if is("Name", "Valid") { NAME } else { 0 };
    let count = match combination.pre("Count") {
        "Zero" => 0,
        "One" => 1,
        _ => 2,
    };
    let ceiling = match combination.pre("Prio") {
        "LeCur" => CEILING_ABOVE,
        "GtCur" => CEILING_BELOW,
        _ => NO_PRIORITY,
    };
    let has_place = is("Id", "Valid");
    let (answer, id, ident, found) = group.call(caller, move |semaphores| {
        let (mut id, mut found) = (UNTOUCHED, UNTOUCHED);
        let place = has_place.then_some(&mut id);
        let answer = semaphores.create(name, count, attributes, ceiling, place);
        let ident = semaphores.ident(name, Some(&mut found));
        (answer, id, ident, found)
    });
    let seen = Seen::new()
        .state(
            "Status",
            text_of(
                answer,
                &[
                    (status::INVALID_NAME, "InvName"),
                    (status::INVALID_ADDRESS, "InvAddr"),
                    (status::INVALID_NUMBER, "InvNum"),
                    (status::INVALID_PRIORITY, "InvPrio"),
                    (status::NOT_DEFINED, "NotDef"),
                    (status::TOO_MANY, "TooMany"),
                ],
            ),
        )
        .state(
            "Name",
            match (ident, found == id) {
                (status::SUCCESSFUL, true) => "Valid",
                (status::INVALID_NAME, _) => "Invalid",
                _ => "found another one",
            },
        )
        .state("IdVar", if id == UNTOUCHED { "Nop" } else { "Set" })
        .state(
            "Prio",
            match group.priority(caller) {
                CALLER => "Nop".to_owned(),
                priority if priority == ceiling => "Ceiling".to_owned(),
                priority => format!("{priority}"),
            },
        );
    if answer != status::SUCCESSFUL {
        return seen;
    }
    group.keep(id);
    look_at(&group, caller, id, count, seen)
}

/// Allocates all remaining semaphores.
fn fill<S: ClassicSemaphores>(group: &TaskGroup<S>, member: Member) {
    for _ in 0..=group.capacity() {
        let (answer, id) = group.call(member, |semaphores| {
            let mut id = 0;
            let name = u32::from_be_bytes(*b"FILL");
            let answer = semaphores.create(name, 1, 0, 0, Some(&mut id));
            (answer, id)
        });
        if answer == status::TOO_MANY {
            return;
        }
        assert_eq!(answer, status::SUCCESSFUL);
        group.keep(id);
    }
    panic!("there are more semaphores than the capacity");
}

/// Determines what kind of semaphore was made.
fn look_at<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    caller: Member,
    id: u32,
    count: u32,
    seen: Seen,
) -> Seen {
    let other = group.member(LOW);
    let third = group.member(LOW);
    let free = group.drain(other, id, 5);
    if group.release(third, id) == status::NOT_OWNER_OF_RESOURCE {
        let owner = if free > 0 {
            (0..free).for_each(|_| assert_eq!(group.release(other, id), status::SUCCESSFUL));
            "No"
        } else if group.release(caller, id) == status::SUCCESSFUL {
            "Caller"
        } else {
            "somebody else"
        };
        let variant = variant_of_mutex(group, caller, other, id);
        assert_eq!(group.try_obtain(other, id), status::SUCCESSFUL);
        let seen = seen.state("Owner", owner).state("Variant", variant);
        return match (variant, discipline(group, other, id)) {
            ("MrsP", "FIFO") => seen.one_of("Disc", ["FIFO", "Prio"]),
            (_, discipline) => seen.state("Disc", discipline),
        };
    }
    // It has been released once.
    group.release(third, id);
    let variant = match group.drain(other, id, 3) {
        1 => "SB",
        2 => "Cnt",
        _ => "neither",
    };
    let initial = if free == count { "Initial" } else { "another" };
    seen.state("Count", initial)
        .state("Owner", "No")
        .state("Variant", variant)
        .state("Disc", discipline(group, other, id))
}

fn variant_of_mutex<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    caller: Member,
    low: Member,
    id: u32,
) -> &'static str {
    let scheduler = group.scheduler();
    let (asked, flushed) = group.call(caller, move |semaphores| {
        let asked = semaphores.set_priority(id, scheduler, 0, Some(&mut 0));
        (asked, semaphores.flush(id))
    });
    match (asked, flushed) {
        (status::SUCCESSFUL, status::NOT_DEFINED) => return "MrsP",
        (status::SUCCESSFUL, status::SUCCESSFUL) => return "PC",
        (status::NOT_DEFINED, status::SUCCESSFUL) => {}
        _ => return "none that is known",
    }
    assert_eq!(group.try_obtain(low, id), status::SUCCESSFUL);
    let waiting = group.obtain(caller, id);
    let variant = match group.priority(low) {
        CALLER => "PI",
        LOW => "Bin",
        _ => "none that is known",
    };
    assert_eq!(group.release(low, id), status::SUCCESSFUL);
    group.settle();
    assert_eq!(waiting.result(), Some(status::SUCCESSFUL));
    assert_eq!(group.release(caller, id), status::SUCCESSFUL);
    variant
}

/// Which of two waiters is served first when `holder` releases the semaphore, whose count is 0.
fn discipline<S: ClassicSemaphores>(group: &TaskGroup<S>, holder: Member, id: u32) -> &'static str {
    let members = [group.member(LOWER), group.member(LOW)];
    let waiting = members.map(|member| group.obtain(member, id));
    assert_eq!(group.release(holder, id), status::SUCCESSFUL);
    group.settle();
    match waiting.map(|begun| begun.result()) {
        [Some(status::SUCCESSFUL), None] => "FIFO",
        [None, Some(status::SUCCESSFUL)] => "Prio",
        _ => "neither",
    }
}
