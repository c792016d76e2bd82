//! `score/tq/{flush,surrender,timeout}…`: how waiters stop waiting, and what then happens to the priorities that their
//! owner inherits.

use super::enqueue::Chain;
use super::group::{Begun, CALLER, CEILING, HIGH, LOW, LOWER, Member, TaskGroup};
use super::{Class, ClassicSemaphores, Discipline, NOT_CLASSIC, TICK, status, text_of};
use crate::conformance::{Combination, NotApplicable, Seen};
use std::time::Instant;

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
        let start = Instant::now();
        let begun = group.obtain_for(member, id, ticks);
        let meanwhile = look();
        // The call may have left the queue, and not have returned yet. (One tick less: clocks are rounded.)
        let is_late = start.elapsed() >= TICK * (ticks - 1);
        let answer = group.wait(&begun);
        group.settle();
        if is_late && answer == status::TIMEOUT {
            ticks *= 2;
            continue;
        }
        return (answer, [meanwhile, look()]);
    }
}

struct Waiter {
    begun: Begun,
}

/// A held semaphore with two waiters, the first of which has the lower priority.
fn with_waiters<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    holder: u32,
) -> (u32, Member, [Waiter; 2]) {
    let members = [holder, LOW, CALLER].map(|priority| group.member(priority));
    let (id, waiting) = with_members(group, class, discipline, members);
    (id, members[0], waiting)
}

/// The same with these tasks: the holder and the waiters.
fn with_members<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    [holder, first, second]: [Member; 3],
) -> (u32, [Waiter; 2]) {
    let id = group.create(holder, class, discipline, 1);
    assert_eq!(group.try_obtain(holder, id), status::SUCCESSFUL);
    let waiting = [first, second].map(|member| {
        let begun = group.obtain(member, id);
        Waiter { begun }
    });
    (id, waiting)
}

/// The tasks for a surrender, with the helping schedulers that the table wants: the previous owner, the new one, and a
/// task that goes on waiting; by their priorities.
fn surrendering<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    combination: &Combination,
    priorities: [u32; 3],
) -> Result<[Member; 3], NotApplicable> {
    let is_vital = |condition| combination.pre(condition) == "Vital";
    // The previous owner has a waiter's scheduler only by this semaphore; so has the new one.
    let (previous, new) = (is_vital("PreviousHelping"), is_vital("NewHelping"));
    let schedulers = match (previous, new) {
        (false, false) => return Ok(priorities.map(|priority| group.member(priority))),
        (true, false) => [0, 1, 1],
        (_, true) => [0, 0, 1],
    };
    group.need_schedulers(2)?;
    let place = |index: usize| group.member_in(schedulers[index], priorities[index]);
    let members = [0, 1, 2].map(place);
    if !previous {
        // It has that scheduler by another semaphore, too.
        group.give_helper(members[0], 1, LOWER + 8);
    }
    Ok(members)
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
    let [owner, new, other] = surrendering(group, combination, [CALLER, LOW, CALLER])?;
    let (id, waiting) = with_members(group, class, discipline, [owner, new, other]);
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
    if combination.pre("SchedulerCount") != "One" {
        group.need_schedulers(2)?;
    }
    let [owner, new_owner, other] = surrendering(group, combination, [LOWER, CALLER, LOW])?;
    let (id, waiting) = with_members(group, class, discipline, [owner, other, new_owner]);
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
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if class != Class::MrsP {
        return Err(NOT_CLASSIC);
    }
    let caller = if combination.pre("Scheduler") == "Other" {
        group.need_schedulers(2)?;
        group.member_in(1, CALLER)
    } else {
        group.member(CALLER)
    };
    let (id, ..) = with_waiters(group, class, discipline, LOWER);
    let (answer, _) = expire(group, caller, id, || ());
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
    // The task, and those that wait with it, are of the owner's scheduler, or of a helping one.
    let is_helping = is("HomeScheduler", "Helping");
    let has_more = is("EligibleScheduler", "More");
    if is_helping || has_more {
        group.need_schedulers(2)?;
    }
    let waiter = |priority| {
        if is_helping {
            group.member_in(1, priority)
        } else {
            group.member(priority)
        }
    };
    // An owner has that scheduler by another semaphore, too.
    let help = |owner, is_dispensable: bool| {
        if is_helping {
            group.give_helper(owner, 1, if is_dispensable { HIGH / 4 } else { LOWER + 8 });
        }
    };
    let owner_is_high = !is("OwnerPriority", "Vital");
    let mut chain = Chain::new(group, if owner_is_high { HIGH } else { LOW });
    help(chain.owner, owner_is_high);
    match combination.pre("Queue") {
        "Only" => {}
        "Vital" => wait_for(group, chain.id, waiter(CALLER + 5)),
        _ => wait_for(group, chain.id, waiter(CEILING)),
    }
    let owners_owner_is_high = is("OwnerOwnerPriority", "Dispensable");
    let owners_owner = if owners_owner_is_high {
        HIGH / 4
    } else {
        LOWER
    };
    chain.let_owner_wait(group, combination.pre("OwnerState"), owners_owner);
    if let Some((id, member)) = chain.owner_of_owner {
        help(member, owners_owner_is_high);
        match combination.pre("OwnerQueue") {
            "Vital" => wait_for(group, id, waiter(LOW + 1)),
            "Dispensable" => wait_for(group, id, waiter(HIGH / 2)),
            _ => {}
        }
    }
    let caller = waiter(CALLER);
    if has_more {
        // A task of the other scheduler waits for it.
        group.give_helper(caller, usize::from(!is_helping), LOWER + 9);
    }
    let (answer, [before, after]) = expire(group, caller, chain.id, || chain.priorities(group));
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
fn wait_for<S: ClassicSemaphores>(group: &TaskGroup<S>, id: u32, waiter: Member) {
    let begun = group.obtain(waiter, id);
    assert_eq!(begun.result(), None);
}
