//! `score/tq/{flush,surrender,timeout}…`: how waiters stop waiting, and what then happens to the priorities that their
//! owner inherits.

use super::enqueue::Chain;
use super::group::{Begun, CALLER, CEILING, HIGH, LOW, LOWER, Member, TaskGroup};
use super::{Class, ClassicSemaphores, Discipline, NOT_CLASSIC, status, text_of};
use crate::conformance::{Combination, NotApplicable, Seen};

/// Lets a member wait for a semaphore until its time-out, and makes observations during the wait and after it. The
/// time-out is doubled until it is long enough for the observation.
pub(super) fn expire<S: ClassicSemaphores, T>(
    group: &TaskGroup<S>,
    member: Member,
    id: u32,
    look: impl Fn() -> T,
) -> (u32, [T; 2]) {
    let mut ticks = 4;
    loop {
        let begun = group.obtain_for(member, id, ticks);
        let meanwhile = look();
        let answer = match begun.result() {
            None => group.wait(&begun),
            Some(status::TIMEOUT) => {
                ticks *= 2;
                continue;
            }
            Some(other) => other,
        };
        group.settle();
        return (answer, [meanwhile, look()]);
    }
}

struct Waiter {
    member: Member,
    begun: Begun,
}

/// A held semaphore with two waiters, the first of which has the lower priority.
fn with_waiters<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    holder: u32,
) -> (u32, Member, [Waiter; 2]) {
    let holder = group.member(holder);
    let id = group.create(holder, class, discipline, 1);
    assert_eq!(group.try_obtain(holder, id), status::SUCCESSFUL);
    let waiting = [LOW, CALLER].map(|priority| {
        let member = group.member(priority);
        let begun = group.obtain(member, id);
        Waiter { member, begun }
    });
    (id, holder, waiting)
}

fn flush<S: ClassicSemaphores>(group: &TaskGroup<S>, id: u32) -> u32 {
    let answer = group.call(group.member(CALLER), move |semaphores| semaphores.flush(id));
    group.settle();
    answer
}

/// The effect of a flush on waiters, if there are any.
fn flushed<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    is_empty: bool,
    [nothing, all]: [&'static str; 2],
) -> String {
    if is_empty {
        let id = group.create(group.member(CALLER), class, discipline, 1);
        return match flush(group, id) {
            status::SUCCESSFUL => nothing.to_owned(),
            other => format!("status {other}"),
        };
    }
    let (id, _, waiting) = with_waiters(group, class, discipline, LOWER);
    let answer = flush(group, id);
    match (answer, waiting.map(|waiter| waiter.begun.result())) {
        (status::SUCCESSFUL, [Some(status::UNSATISFIED), Some(status::UNSATISFIED)]) => {
            all.to_owned()
        }
        other => format!("{other:?}"),
    }
}

/// `score/tq/flush-fifo`
pub(super) fn flush_fifo<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if discipline != Discipline::Fifo {
        return Err(NOT_CLASSIC);
    }
    let is_empty = combination.pre("QueueEmpty") == "Yes";
    let operation = flushed(group, class, discipline, is_empty, ["Nop", "ExtractAll"]);
    Ok(Seen::new().state("Operation", operation))
}

/// `score/tq/flush-priority`
pub(super) fn flush_priority<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if discipline != Discipline::Priority || matches!(class, Class::MrsP | Class::PrioInherit) {
        return Err(NOT_CLASSIC);
    }
    let is_empty = combination.pre("Queue") == "Empty";
    let operation = flushed(group, class, discipline, is_empty, ["Nop", "TryExtract"]);
    Ok(Seen::new().state("Operation", operation))
}

/// `score/tq/flush-priority-inherit`
pub(super) fn flush_inherit<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if class != Class::PrioInherit {
        return Err(NOT_CLASSIC);
    }
    if combination.pre("Queue") == "Empty" {
        let extract = flushed(group, class, discipline, true, ["Nop", "All"]);
        return Ok(Seen::new()
            .state("Extract", extract)
            .state("PriorityUpdate", "No"));
    }
    let own = if combination.pre("Priority") == "Minimum" {
        LOWER
    } else {
        HIGH
    };
    let (id, owner, waiting) = with_waiters(group, class, discipline, own);
    let before = group.priority(owner);
    let answer = flush(group, id);
    let extract = match (answer, waiting.map(|waiter| waiter.begun.result())) {
        (status::SUCCESSFUL, [Some(status::UNSATISFIED), Some(status::UNSATISFIED)]) => {
            "All".to_owned()
        }
        other => format!("{other:?}"),
    };
    let update = match (before, group.priority(owner)) {
        (before, after) if before == after => "No".to_owned(),
        (CALLER, LOWER) => "Yes".to_owned(),
        other => format!("{other:?}"),
    };
    Ok(Seen::new()
        .state("Extract", extract)
        .state("PriorityUpdate", update))
}

/// Which waiter got the semaphore: the first, which has the lower priority, or the second.
fn dequeued(waiting: &[Waiter; 2]) -> (&'static str, &'static str) {
    match waiting.each_ref().map(|waiter| waiter.begun.result()) {
        [Some(status::SUCCESSFUL), None] => ("FIFO", "Yes"),
        [None, Some(status::SUCCESSFUL)] => ("Priority", "Yes"),
        [None, None] => ("nobody", "No"),
        _ => ("several, or none in good order", "Yes"),
    }
}

/// `score/tq/surrender`
pub(super) fn surrender<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    let has_owner = combination.pre("HasOwner") == "Yes";
    // Inheriting and MrsP semaphores have tables of their own.
    let is_plain = !matches!(class, Class::PrioInherit | Class::MrsP);
    if !is_plain
        || has_owner != class.is_mutex()
        || discipline.name() != combination.pre("Discipline")
    {
        return Err(NOT_CLASSIC);
    }
    let (id, holder, waiting) = with_waiters(group, class, discipline, CALLER);
    assert_eq!(group.release(holder, id), status::SUCCESSFUL);
    group.settle();
    let (who, unblocked) = dequeued(&waiting);
    Ok(Seen::new()
        .state("Dequeue", who)
        .state("Unblock", unblocked))
}

/// `score/tq/surrender-mrsp`
pub(super) fn surrender_mrsp<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if class != Class::MrsP {
        return Err(NOT_CLASSIC);
    }
    let (id, owner, waiting) = with_waiters(group, class, discipline, CALLER);
    let seen = previous_owner(group, id, owner, combination);
    Ok(match dequeued(&waiting) {
        ("FIFO" | "Priority", _) => seen.one_of("Dequeue", ["FIFO", "Priority"]),
        (other, _) => seen.state("Dequeue", other),
    })
}

/// `score/tq/surrender-priority-inherit`
pub(super) fn surrender_inherit<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if class != Class::PrioInherit {
        return Err(NOT_CLASSIC);
    }
    let (id, owner, waiting) = with_waiters(group, class, discipline, LOWER);
    let new_owner = waiting[1].member;
    let before = group.priority(new_owner);
    let seen = previous_owner(group, id, owner, combination);
    let (who, unblocked) = dequeued(&waiting);
    let change = match group.priority(new_owner) {
        after if after == before => "Nop".to_owned(),
        other => format!("{other}"),
    };
    Ok(seen
        .state("Dequeue", who)
        .state("Unblock", unblocked)
        .state("NewPriority", change))
}

/// Releases a semaphore, and observes what priority the owner loses by that.
fn previous_owner<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    id: u32,
    owner: Member,
    combination: &Combination,
) -> Seen {
    if combination.pre("InheritedPriority") == "Dispensable" {
        group.set_own_priority(owner, HIGH);
    }
    let before = group.priority(owner);
    assert_eq!(group.release(owner, id), status::SUCCESSFUL);
    group.settle();
    let after = group.priority(owner);
    Seen::new().state(
        "PreviousOwnerPriority",
        match after {
            _ if after == before => "Nop",
            _ if after > before => "Drop",
            _ => "raised",
        },
    )
}

/// `score/tq/timeout`
pub(super) fn timeout<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    _: &Combination,
) -> Result<Seen, NotApplicable> {
    if matches!(class, Class::PrioInherit | Class::MrsP) {
        return Err(NOT_CLASSIC);
    }
    let (id, ..) = with_waiters(group, class, discipline, LOWER);
    let (answer, _) = expire(group, group.member(CALLER), id, || ());
    Ok(timed_out(answer))
}

fn timed_out(answer: u32) -> Seen {
    Seen::new()
        .state("Status", text_of(answer, &[(status::TIMEOUT, "Timeout")]))
        .state("Unblock", "Yes")
}

/// `score/tq/timeout-mrsp`
pub(super) fn timeout_mrsp<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    _: &Combination,
) -> Result<Seen, NotApplicable> {
    if class != Class::MrsP {
        return Err(NOT_CLASSIC);
    }
    let (id, ..) = with_waiters(group, class, discipline, LOWER);
    let (answer, _) = expire(group, group.member(CALLER), id, || ());
    Ok(timed_out(answer))
}

/// `score/tq/timeout-priority-inherit`
pub(super) fn timeout_inherit<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    _: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if class != Class::PrioInherit {
        return Err(NOT_CLASSIC);
    }
    let is = |condition: &str, state: &str| combination.pre(condition) == state;
    let mut chain = Chain::new(
        group,
        if is("OwnerPriority", "Vital") {
            LOW
        } else {
            HIGH
        },
    );
    match combination.pre("Queue") {
        "Only" => {}
        "Vital" => wait_for(group, chain.id, CALLER + 5),
        _ => wait_for(group, chain.id, CEILING),
    }
    let owners_owner = if is("OwnerOwnerPriority", "Dispensable") {
        HIGH / 4
    } else {
        LOWER
    };
    chain.let_owner_wait(group, combination.pre("OwnerState"), owners_owner);
    if let Some((id, _)) = chain.owner_of_owner {
        match combination.pre("OwnerQueue") {
            "Vital" => wait_for(group, id, LOW + 1),
            "Dispensable" => wait_for(group, id, HIGH / 2),
            _ => {}
        }
    }
    let (answer, [before, after]) = expire(group, group.member(CALLER), chain.id, || {
        chain.priorities(group)
    });
    let change = |place: usize| match (before[place], after[place]) {
        (before, after) if before == after => "Nop".to_owned(),
        (Some(before), Some(after)) if before < after => "Lower".to_owned(),
        other => format!("{other:?}"),
    };
    Ok(timed_out(answer)
        .state("OwnerPriority", change(0))
        .state("OwnerOwnerPriority", change(1)))
}

/// A further task that waits for a semaphore.
fn wait_for<S: ClassicSemaphores>(group: &TaskGroup<S>, id: u32, priority: u32) {
    let begun = group.obtain(group.member(priority), id);
    assert_eq!(begun.result(), None);
}
