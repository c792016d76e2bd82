//! `score/tq/enqueue-…`: the place in the queue of a task that begins to wait, and what the owner inherits from it.

use super::group::{Begun, CALLER, CEILING, HIGH, LOW, LOWER, Member, TaskGroup};
use super::{Class, ClassicSemaphores, Discipline, NOT_CLASSIC, ONE_PRIORITY, status};
use crate::conformance::{Combination, NotApplicable, Seen};

/// The order in which the waiters of a semaphore get it, as each holder in turn releases it.
pub(super) fn order<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    id: u32,
    mut holder: Member,
    waiting: &[(Member, Begun)],
) -> Vec<usize> {
    let mut order = Vec::new();
    while order.len() < waiting.len() {
        assert_eq!(group.release(holder, id), status::SUCCESSFUL);
        group.settle();
        let served = waiting
            .iter()
            .position(|(_, begun)| begun.result() == Some(status::SUCCESSFUL));
        let served = served.expect("a waiter that gets the semaphore");
        holder = waiting[served].0;
        order.push(served);
    }
    order
}

/// The position of the last waiter among at most two others.
fn position(order: &[usize]) -> &'static str {
    match order {
        [0] => "InitialFirst",
        [1, 0] => "First",
        _ => "Second",
    }
}

/// A semaphore with count 0, a task that may release it, and waiters that are added one by one.
fn queue<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    waiters: impl IntoIterator<Item = u32>,
) -> (u32, Member, Vec<(Member, Begun)>) {
    let holder = group.member(LOWER + 5);
    let id = group.create(holder, class, discipline, 1);
    assert_eq!(group.try_obtain(holder, id), status::SUCCESSFUL);
    let waiting = waiters.into_iter().map(|priority| {
        let member = group.member(priority);
        let begun = group.obtain(member, id);
        assert!(begun.result().is_none(), "a task that does not wait");
        (member, begun)
    });
    (id, holder, waiting.collect())
}

/// The priority of an earlier waiter, relative to the caller's.
fn earlier(combination: &Combination) -> Option<u32> {
    match combination.pre("QueueEligible") {
        "None" => None,
        "High" => Some(CALLER - 5),
        "Equal" => Some(CALLER),
        _ => Some(CALLER + 5),
    }
}

/// `score/tq/enqueue-fifo`
pub(super) fn fifo<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if discipline != Discipline::Fifo {
        return Err(NOT_CLASSIC);
    }
    let earlier = (combination.pre("Queue") == "NonEmpty").then_some(LOWER);
    let (id, holder, waiting) = queue(
        group,
        class,
        discipline,
        earlier.into_iter().chain([CALLER]),
    );
    let place = match order(group, id, holder, &waiting)[..] {
        [0] => "First",
        [0, 1] => "Last",
        _ => "not the last",
    };
    Ok(Seen::new().state("Position", place))
}

/// A task that will begin to wait, perhaps with a helping scheduler.
fn enqueueing<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    has_helper: bool,
) -> Result<Member, NotApplicable> {
    if !has_helper {
        return Ok(group.member(CALLER));
    }
    group.need_schedulers(2)?;
    let member = group.member_in(0, CALLER);
    group.give_helper(member, 1, LOWER);
    Ok(member)
}

fn by_priority<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    let member = enqueueing(group, combination.pre("EligibleScheduler") == "Helping")?;
    let earlier = earlier(combination);
    let (id, holder, mut waiting) = queue(group, class, Discipline::Priority, earlier);
    let begun = group.obtain(member, id);
    assert!(begun.result().is_none(), "a task that does not wait");
    waiting.push((member, begun));
    Ok(Seen::new().state("Position", position(&order(group, id, holder, &waiting))))
}

/// `score/tq/enqueue-priority`
pub(super) fn priority<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    match (class, discipline) {
        (Class::Counting | Class::Simple | Class::Binary, Discipline::Priority) => {
            by_priority(group, class, combination)
        }
        _ => Err(NOT_CLASSIC),
    }
}

/// `score/tq/enqueue-ceiling`
pub(super) fn ceiling<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    _: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    match class {
        Class::PrioCeiling => by_priority(group, class, combination),
        _ => Err(NOT_CLASSIC),
    }
}

/// `score/tq/enqueue-mrsp`: all waiters have the ceiling, and the schedulers' queues are served in turn, so that one
/// waiter of another scheduler among these is served in order of arrival.
pub(super) fn mrsp<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if class != Class::MrsP {
        return Err(NOT_CLASSIC);
    }
    let ineligible = combination.pre("QueueIneligible");
    if ineligible == "None" {
        return by_priority(group, class, combination);
    }
    let has_helper = combination.pre("EligibleScheduler") == "Helping";
    // A scheduler that is neither the task's nor a helping one.
    let other = 1 + usize::from(has_helper);
    group.need_schedulers(other + 1)?;
    let caller = enqueueing(group, has_helper)?;
    let (id, holder, _) = queue(group, class, discipline, []);
    let foreign = || group.member_in(other, CALLER);
    let members = match (ineligible, earlier(combination)) {
        ("After", Some(earlier)) => vec![group.member(earlier), foreign(), caller],
        (_, Some(earlier)) => vec![foreign(), group.member(earlier), caller],
        (_, None) => vec![foreign(), caller],
    };
    let waiting: Vec<(Member, Begun)> = members
        .into_iter()
        .map(|member| (member, group.obtain(member, id)))
        .collect();
    let place = match (&order(group, id, holder, &waiting)[..], ineligible) {
        ([0, 1], "Only") => "InitialLast".to_owned(),
        ([0, 1, 2], "Before") => "SecondLast".to_owned(),
        ([0, 1, 2], "After") => "SecondFirst".to_owned(),
        (other, _) => format!("{other:?}"),
    };
    Ok(Seen::new().state("Position", place))
}

/// `score/tq/enqueue-deadlock`: the owner waits for the caller, or for a task that does.
pub(super) fn deadlock<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    discipline: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if !class.is_mutex() {
        return Err(NOT_CLASSIC);
    }
    let length = if combination.pre("Deadlock") == "One" {
        2
    } else {
        4
    };
    // Each owns a semaphore and waits for that of the one before.
    let members: Vec<Member> = (0..length).map(|_| group.member(CALLER)).collect();
    let own: Vec<u32> = members
        .iter()
        .map(|member| {
            let id = group.create(*member, class, discipline, 1);
            assert_eq!(group.try_obtain(*member, id), status::SUCCESSFUL);
            id
        })
        .collect();
    for index in 1..members.len() {
        let begun = group.obtain(members[index], own[index - 1]);
        assert_eq!(begun.result(), None);
    }
    let result = match group.obtain(members[0], own[own.len() - 1]).result() {
        Some(status::INCORRECT_STATE) => "Status".to_owned(),
        other => format!("{other:?}"),
    };
    if result != "Status" {
        // The tasks of a cycle cannot be freed.
        group.abandon();
    }
    Ok(Seen::new().state("Result", result))
}

/// The owner of a queue, which may wait in another queue itself, and the owner of that one.
pub(super) struct Chain {
    pub(super) id: u32,
    pub(super) owner: Member,
    pub(super) owner_of_owner: Option<(u32, Member)>,
}

impl Chain {
    /// An inheriting semaphore and its owner; there are no waiters yet.
    pub(super) fn new<S: ClassicSemaphores>(group: &TaskGroup<S>, owner: u32) -> Self {
        let owner = group.member(owner);
        let id = group.create(owner, Class::PrioInherit, Discipline::Priority, 1);
        assert_eq!(group.try_obtain(owner, id), status::SUCCESSFUL);
        Self {
            id,
            owner,
            owner_of_owner: None,
        }
    }

    /// Lets the owner wait, as the table says, for a semaphore of a task of this priority.
    pub(super) fn let_owner_wait<S: ClassicSemaphores>(
        &mut self,
        group: &TaskGroup<S>,
        state: &str,
        priority: u32,
    ) {
        let (class, discipline) = match state {
            "NotEnqueued" => return,
            "FIFO" => (Class::Binary, Discipline::Fifo),
            "Priority" => (Class::Binary, Discipline::Priority),
            _ => (Class::PrioInherit, Discipline::Priority),
        };
        let member = group.member(priority);
        let id = group.create(member, class, discipline, 1);
        assert_eq!(group.try_obtain(member, id), status::SUCCESSFUL);
        assert_eq!(group.obtain(self.owner, id).result(), None);
        self.owner_of_owner = Some((id, member));
    }

    /// The priorities of both owners.
    pub(super) fn priorities<S: ClassicSemaphores>(
        &self,
        group: &TaskGroup<S>,
    ) -> [Option<u32>; 2] {
        let other = self
            .owner_of_owner
            .map(|(_, member)| group.priority(member));
        [Some(group.priority(self.owner)), other]
    }
}

/// `score/tq/enqueue-priority-inherit`
pub(super) fn inherit<S: ClassicSemaphores>(
    group: &TaskGroup<S>,
    class: Class,
    _: Discipline,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    if class != Class::PrioInherit {
        return Err(NOT_CLASSIC);
    }
    if combination.pre("Scheduler") != "One" {
        group.need_schedulers(2)?;
    }
    // If an earlier waiter has the same priority, the owner gains nothing more.
    let gains = combination.pre("PriorityForOwner") == "Vital";
    if gains && ["High", "Equal"].contains(&combination.pre("QueueEligible")) {
        return Err(ONE_PRIORITY);
    }
    let caller = enqueueing(group, combination.pre("SchedulerForOwner") == "Vital")?;
    let mut chain = Chain::new(group, if gains { LOW } else { HIGH });
    let mut waiting: Vec<(Member, Begun)> = Vec::new();
    let mut enqueue = |chain: &Chain, member: Member| {
        waiting.push((member, group.obtain(member, chain.id)));
    };
    if let Some(earlier) = earlier(combination) {
        enqueue(&chain, group.member(earlier));
    }
    chain.let_owner_wait(group, combination.pre("OwnerState"), LOWER);
    let before = chain.priorities(group);
    enqueue(&chain, caller);
    let after = chain.priorities(group);
    let change = |place: usize| match (before[place], after[place]) {
        (before, after) if before == after => "Nop".to_owned(),
        (Some(_), Some(CALLER)) => "Raise".to_owned(),
        other => format!("{other:?}"),
    };
    if let Some((id, member)) = chain.owner_of_owner {
        assert_eq!(group.release(member, id), status::SUCCESSFUL);
        group.settle();
    }
    Ok(Seen::new()
        .state("OwnerPriority", change(0))
        .state("OwnerOwnerPriority", change(1))
        .state(
            "Position",
            position(&order(group, chain.id, chain.owner, &waiting)),
        ))
}

const _: () = assert!(HIGH < CEILING && CEILING < CALLER - 5 && CALLER + 5 < LOW && LOW < LOWER);
