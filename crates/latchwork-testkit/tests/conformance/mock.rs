//! Classic semaphores as RTEMS describes them, in the simplest form: one lock, and priorities that are computed at each
//! request. For testing the drivers.

use crate::class::{Class, class_of};
use crate::fault::Fault;
use latchwork_testkit::Watchdog;
use latchwork_testkit::conformance::semaphores::{ClassicSemaphores, attribute, status};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

pub struct Mock {
    /// Each creation counts as progress. (A test may abandon threads that hold the mock, but not the watchdog.)
    watchdog: Weak<Watchdog>,
    state: Mutex<State>,
    changed: Condvar,
    fault: Option<Fault>,
    /// A waiter for a MrsP semaphore does not sleep.
    spins: bool,
}

#[derive(Default)]
struct State {
    tasks: Vec<Task>,
    objects: BTreeMap<u32, Object>,
    serial: u32,
}

struct Task {
    own: u32,
    /// The place of its scheduler.
    scheduler: usize,
    waits: Option<u32>,
    result: Option<u32>,
    stuck: u32,
}

struct Object {
    name: u32,
    class: Class,
    by_priority: bool,
    count: u32,
    owner: Option<usize>,
    nested: u32,
    /// The place of its creator's scheduler.
    creator: usize,
    ceilings: [u32; SCHEDULERS.len()],
    queue: Vec<usize>,
}

const SCHEDULERS: [u32; 3] = [1, 2, 3];
const CAPACITY: u32 = 6;

thread_local! {
    static ME: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn is_valid(priority: u32) -> bool {
    (1..=255).contains(&priority)
}

impl Object {
    fn is_mutex(&self) -> bool {
        !matches!(self.class, Class::Counting | Class::Simple)
    }

    fn is_mrsp(&self) -> bool {
        self.class == Class::MrsP
    }

    fn has_ceiling(&self) -> bool {
        matches!(self.class, Class::Ceiling | Class::MrsP)
    }

    /// The ceiling for a task of this scheduler.
    fn ceiling_in(&self, scheduler: usize) -> u32 {
        let place = if self.is_mrsp() {
            scheduler
        } else {
            self.creator
        };
        self.ceilings[place].max(1)
    }
}

impl Mock {
    pub fn new(watchdog: &Arc<Watchdog>, fault: Option<Fault>) -> Self {
        Self {
            watchdog: Arc::downgrade(watchdog),
            state: Mutex::default(),
            changed: Condvar::new(),
            fault,
            spins: false,
        }
    }

    pub fn spinning(watchdog: &Arc<Watchdog>) -> Self {
        Self {
            spins: true,
            ..Self::new(watchdog, None)
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn priority(&self, state: &State, task: usize) -> u32 {
        let mut priority = state.tasks[task].own.min(state.tasks[task].stuck);
        for object in state.objects.values() {
            let waits = object.class == Class::MrsP && object.queue.contains(&task);
            if (object.owner == Some(task) || waits)
                && object.has_ceiling()
                && !self.has(Fault::NoCeiling)
            {
                priority = priority.min(object.ceiling_in(state.tasks[task].scheduler));
            }
            if object.owner == Some(task)
                && object.class == Class::Inherit
                && !self.has(Fault::NoInheritance)
            {
                for waiter in &object.queue {
                    priority = priority.min(self.priority(state, *waiter));
                }
            }
        }
        priority
    }

    /// Takes the first waiter off the queue, and ends its wait.
    fn next(&self, state: &mut State, id: u32) -> Option<usize> {
        let object = &state.objects[&id];
        let by_priority = object.by_priority && !self.has(Fault::AlwaysFifo);
        let first = (0..object.queue.len()).min_by_key(|place| {
            if by_priority {
                self.priority(state, object.queue[*place])
            } else {
                0
            }
        })?;
        let task = state.objects.get_mut(&id)?.queue.remove(first);
        self.end_wait(state, task, status::SUCCESSFUL);
        Some(task)
    }

    fn end_wait(&self, state: &mut State, task: usize, result: u32) {
        state.tasks[task].waits = None;
        state.tasks[task].result = Some(result);
        self.changed.notify_all();
    }

    fn end_all(&self, state: &mut State, id: u32, result: u32) {
        let Some(object) = state.objects.get_mut(&id) else {
            return;
        };
        for task in core::mem::take(&mut object.queue) {
            self.end_wait(state, task, result);
        }
    }

    fn would_deadlock(&self, state: &State, mut owner: usize, me: usize) -> bool {
        while !self.has(Fault::NoDeadlocks) {
            if owner == me {
                return true;
            }
            let next = state.tasks[owner].waits;
            match next.and_then(|id| state.objects[&id].owner) {
                Some(next) => owner = next,
                None => return false,
            }
        }
        false
    }
}

impl ClassicSemaphores for Mock {
    fn join(&self, priority: u32) -> u64 {
        let mut state = self.lock();
        state.tasks.push(Task {
            own: priority,
            scheduler: 0,
            waits: None,
            result: None,
            stuck: u32::MAX,
        });
        ME.set(state.tasks.len() - 1);
        ME.get() as u64
    }

    fn set_own_priority(&self, priority: u32) {
        self.lock().tasks[ME.get()].own = priority;
    }

    fn priority_of(&self, task: u64) -> u32 {
        self.priority(&self.lock(), task as usize)
    }

    fn create(
        &self,
        name: u32,
        count: u32,
        attributes: u32,
        ceiling: u32,
        id: Option<&mut u32>,
    ) -> u32 {
        if let Some(watchdog) = self.watchdog.upgrade() {
            watchdog.progress();
        }
        let mut state = self.lock();
        if name == 0 {
            return status::INVALID_NAME;
        }
        let Some(id) = id else {
            return status::INVALID_ADDRESS;
        };
        let Some(class) = class_of(attributes) else {
            return status::NOT_DEFINED;
        };
        if count > 1 && class != Class::Counting {
            return status::INVALID_NUMBER;
        }
        if state.objects.len() as u32 >= CAPACITY {
            return status::TOO_MANY;
        }
        let creator = state.tasks[ME.get()].scheduler;
        let mut ceilings = [0; SCHEDULERS.len()];
        ceilings[creator] = ceiling;
        let mut object = Object {
            name,
            class,
            by_priority: attributes & attribute::PRIORITY != 0,
            count,
            owner: None,
            nested: 0,
            creator,
            ceilings,
            queue: Vec::new(),
        };
        let owns = object.is_mutex() && count == 0;
        if object.has_ceiling()
            && (!is_valid(ceiling) || owns && self.priority(&state, ME.get()) < ceiling)
        {
            return status::INVALID_PRIORITY;
        }
        if owns {
            (object.owner, object.nested) = (Some(ME.get()), 1);
        }
        state.serial += 1;
        *id = 0x1a01_0000 + state.serial;
        state.objects.insert(*id, object);
        status::SUCCESSFUL
    }

    fn ident(&self, name: u32, id: Option<&mut u32>) -> u32 {
        let state = self.lock();
        let found = state.objects.iter().find(|(_, object)| object.name == name);
        match (id, found) {
            (None, _) => status::INVALID_ADDRESS,
            (_, None) => status::INVALID_NAME,
            (Some(place), Some((id, _))) => {
                *place = *id;
                status::SUCCESSFUL
            }
        }
    }

    fn delete(&self, id: u32) -> u32 {
        let mut state = self.lock();
        let Some(object) = state.objects.get(&id) else {
            return status::INVALID_ID;
        };
        if object.owner.is_some() && !self.has(Fault::DeleteOwned) {
            return status::RESOURCE_IN_USE;
        }
        if !self.has(Fault::DeleteStrandsWaiters) || object.is_mutex() {
            self.end_all(&mut state, id, status::OBJECT_WAS_DELETED);
        } else {
            self.end_all(&mut state, id, status::UNSATISFIED);
        }
        state.objects.remove(&id);
        status::SUCCESSFUL
    }

    fn obtain(&self, id: u32, options: u32, ticks: u32) -> u32 {
        let mut state = self.lock();
        let me = ME.get();
        let current = self.priority(&state, me);
        let scheduler = state.tasks[me].scheduler;
        let Some(object) = state.objects.get_mut(&id) else {
            return status::INVALID_ID;
        };
        let is_above = object.has_ceiling()
            && current < object.ceiling_in(scheduler)
            && !self
                .fault
                .is_some_and(|fault| fault == Fault::NoCeilingCheck);
        match object.owner {
            _ if !object.is_mutex() => {
                if object.count > 0 {
                    object.count -= 1;
                    return status::SUCCESSFUL;
                }
            }
            None if object.class == Class::Ceiling && scheduler != object.creator => {
                return status::NOT_DEFINED;
            }
            None if is_above => return status::INVALID_PRIORITY,
            None => {
                (object.owner, object.nested) = (Some(me), 1);
                return status::SUCCESSFUL;
            }
            Some(owner) if owner == me => {
                if object.class == Class::MrsP || self.fault == Some(Fault::NoRecursion) {
                    return status::INCORRECT_STATE;
                }
                object.nested += 1;
                return status::SUCCESSFUL;
            }
            Some(_) => {}
        }
        if options & attribute::NO_WAIT != 0 {
            return status::UNSATISFIED;
        }
        if object.class == Class::MrsP && is_above {
            return status::INVALID_PRIORITY;
        }
        let owner = object.owner;
        if owner.is_some_and(|owner| self.would_deadlock(&state, owner, me)) {
            return status::INCORRECT_STATE;
        }
        if let Some(object) = state.objects.get_mut(&id) {
            object.queue.push(me);
        }
        state.tasks[me].waits = Some(id);
        state.tasks[me].result = None;
        let end = (ticks > 0).then(|| Instant::now() + Duration::from_millis(ticks.into()));
        loop {
            if let Some(result) = state.tasks[me].result {
                return result;
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                if let (Some(owner), true) = (owner, self.has(Fault::KeepsPriorityAfterTimeout)) {
                    state.tasks[owner].stuck = self.priority(&state, owner);
                }
                if let Some(object) = state.objects.get_mut(&id) {
                    object.queue.retain(|waiter| *waiter != me);
                }
                state.tasks[me].waits = None;
                return status::TIMEOUT;
            }
            if self.spins && state.objects.get(&id).is_some_and(Object::is_mrsp) {
                drop(state);
                std::thread::yield_now();
                state = self.lock();
                continue;
            }
            state = match left {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let woken = self.changed.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn release(&self, id: u32) -> u32 {
        let mut state = self.lock();
        let Some(object) = state.objects.get_mut(&id) else {
            return status::INVALID_ID;
        };
        if object.is_mutex() {
            let is_owner = object.owner == Some(ME.get());
            if !is_owner && (object.owner.is_none() || self.fault != Some(Fault::AnybodyReleases)) {
                return status::NOT_OWNER_OF_RESOURCE;
            }
            object.nested -= 1;
            if object.nested == 0 {
                let next = self.next(&mut state, id);
                if let Some(object) = state.objects.get_mut(&id) {
                    (object.owner, object.nested) = (next, 1);
                }
            }
            return status::SUCCESSFUL;
        }
        if self.next(&mut state, id).is_some() {
            return status::SUCCESSFUL;
        }
        let Some(object) = state.objects.get_mut(&id) else {
            return status::INVALID_ID;
        };
        match object.class {
            Class::Simple => object.count = 1,
            _ if object.count == u32::MAX => {
                return if self.has(Fault::CountsPastMaximum) {
                    status::SUCCESSFUL
                } else {
                    status::UNSATISFIED
                };
            }
            _ => object.count += 1,
        }
        status::SUCCESSFUL
    }

    fn flush(&self, id: u32) -> u32 {
        let mut state = self.lock();
        let Some(object) = state.objects.get(&id) else {
            return status::INVALID_ID;
        };
        if object.class == Class::MrsP {
            return status::NOT_DEFINED;
        }
        let result = if self.has(Fault::FlushCounts) {
            status::SUCCESSFUL
        } else {
            status::UNSATISFIED
        };
        self.end_all(&mut state, id, result);
        status::SUCCESSFUL
    }

    fn set_priority(&self, id: u32, scheduler: u32, priority: u32, old: Option<&mut u32>) -> u32 {
        let mut state = self.lock();
        let Some(old) = old else {
            return status::INVALID_ADDRESS;
        };
        let Some(mut scheduler) = SCHEDULERS.iter().position(|id| *id == scheduler) else {
            return status::INVALID_ID;
        };
        let is_blind = self.has(Fault::OneCeilingForAllSchedulers);
        let Some(object) = state.objects.get_mut(&id) else {
            return status::INVALID_ID;
        };
        if priority != 0 && !is_valid(priority) {
            return status::INVALID_PRIORITY;
        }
        if is_blind {
            scheduler = object.creator;
        }
        let is_others = !object.is_mrsp() && scheduler != object.creator;
        if (!object.has_ceiling() || is_others) && self.fault != Some(Fault::SetsPriorityOfAny) {
            return status::NOT_DEFINED;
        }
        *old = object.ceilings[scheduler];
        if priority != 0 {
            object.ceilings[scheduler] = priority;
        }
        status::SUCCESSFUL
    }

    fn scheduler(&self) -> u32 {
        SCHEDULERS[0]
    }

    fn schedulers(&self) -> Vec<u32> {
        SCHEDULERS.to_vec()
    }

    fn set_own_scheduler(&self, scheduler: u32, priority: u32) -> u32 {
        let Some(place) = SCHEDULERS.iter().position(|id| *id == scheduler) else {
            return status::INVALID_ID;
        };
        let mut state = self.lock();
        let task = &mut state.tasks[ME.get()];
        (task.scheduler, task.own) = (place, priority);
        status::SUCCESSFUL
    }

    fn processor(&self) -> u32 {
        let state = self.lock();
        let me = ME.get();
        let owns = |object: &Object| object.is_mrsp() && object.owner == Some(me);
        let moves = self.has(Fault::MovesWhenItObtains) && state.objects.values().any(owns);
        state.tasks[me].scheduler as u32 ^ u32::from(moves)
    }

    fn capacity(&self) -> u32 {
        CAPACITY
    }

    fn waiters(&self, id: u32) -> Option<u32> {
        let state = self.lock();
        state
            .objects
            .get(&id)
            .map(|object| object.queue.len() as u32)
    }
}
