//! The contents of the regions' tables: tasks, semaphores, queues, events.

use super::gather::Gathering;
use super::picture::{
    Absence, DEAD, Key, Kind, Location, Lock, Membership, Role, State, Task, UnseenOwner, Waiter,
};
use latchwork::queue::inspect::{QueueReport, QueueReports as _, QueueWait};
use latchwork::region::inspect::{Contents, TaskReport, TaskState, TaskWait};
use latchwork::semaphore::inspect::{SemaphoreReport, SemaphoreReports as _};
use std::collections::HashMap;

/// A region whose tables are added.
pub(super) struct Tables<'a> {
    region: usize,
    file: (u64, u64),
    pub(super) contents: &'a Contents,
    /// Indices of the picture's tasks, by slot.
    tasks: HashMap<u16, usize>,
}

/// A task that a region's table names, and that is none.
pub(super) struct NotItsTask;

impl Tables<'_> {
    pub(super) fn key(&self, address: u64) -> Key {
        Key::Shared {
            device: self.file.0,
            inode: self.file.1,
            offset: address.wrapping_sub(self.contents.base),
        }
    }

    fn entry(&self, number: u64) -> Key {
        Key::Entry {
            device: self.file.0,
            inode: self.file.1,
            number,
        }
    }

    pub(super) fn lock(&self, name: &str, address: u64, kind: Kind, state: State) -> Lock {
        let place = Location::Region {
            region: self.region,
            object: Some(name.to_owned()),
        };
        Lock {
            address,
            kind,
            state,
            ..Lock::new(self.key(address), place)
        }
    }
}

impl Gathering {
    /// Adds the contents of the tables of all regions.
    pub(super) fn add_regions(&mut self) {
        let regions = std::mem::take(&mut self.picture.regions);
        for (region, report) in regions.iter().enumerate() {
            let Ok(contents) = &report.contents else {
                continue;
            };
            let tasks = contents
                .tasks
                .iter()
                .filter(|task| task.state != TaskState::Unswept)
                .filter_map(|task| Some((task.slot, self.task_of(region, report.file, task).ok()?)))
                .collect();
            let tables = Tables {
                region,
                file: report.file,
                contents,
                tasks,
            };
            for semaphore in contents.semaphores() {
                self.add_semaphore(&tables, &semaphore);
            }
            for queue in contents.queues() {
                self.add_queue(&tables, &queue);
            }
            self.add_events(&tables);
            for report in &contents.tasks {
                if let (Some(view), Some(&task)) = (&report.checked, tables.tasks.get(&report.slot))
                {
                    self.record_of(&tables, task, view);
                }
            }
        }
        self.picture.regions = regions;
    }

    /// The thread that a region's table names as a task, if it is visible. `Err` if its process has not mapped the region's
    /// file: what a file says of others need not be true.
    pub(super) fn thread_of_task(
        &self,
        file: (u64, u64),
        task: &TaskReport,
    ) -> Result<Option<usize>, NotItsTask> {
        let key = (task.pid_namespace, task.own_thread);
        let Some(&thread) = self.threads.get(&key) else {
            return Ok(None);
        };
        let maps = self.maps_of(self.picture.tasks[thread].pid);
        match maps.contain(file) {
            Some(true) => Ok(Some(thread)),
            None => Ok(None),
            Some(false) => Err(NotItsTask),
        }
    }

    /// A task's thread, as [`Self::thread_of_task`]; if that is not visible, the table's entry for it.
    fn task_of(
        &mut self,
        region: usize,
        file: (u64, u64),
        task: &TaskReport,
    ) -> Result<usize, NotItsTask> {
        let index = self.thread_of_task(file, task)?.unwrap_or_else(|| {
            self.picture.tasks.push(Task {
                pid: task.process,
                tid: task.thread,
                is_elsewhere: task.state == TaskState::Unconfirmed
                    && task.pid_namespace != self.ours,
                name: task.name.clone(),
                process: String::new(),
                state: match task.state {
                    TaskState::Unswept => DEAD,
                    _ => '?',
                },
                ticks: 0,
                started: 0,
                schedule: None,
                waited: None,
                waited_is_exact: false,
                waited_is_least: false,
                seen_for: None,
                waits_at: None,
                waits_for: Vec::new(),
                memberships: Vec::new(),
            });
            self.picture.tasks.len() - 1
        });
        self.picture.tasks[index].memberships.push(Membership {
            region,
            slot: task.slot,
            name: task.name.clone(),
            priority: task.effective_priority,
        });
        Ok(index)
    }

    fn add_semaphore(&mut self, tables: &Tables<'_>, semaphore: &SemaphoreReport) {
        let kind = match semaphore.has_data {
            true => Kind::PriorityMutex,
            false => Kind::Semaphore(semaphore.kind),
        };
        let state = match semaphore.owner {
            _ if semaphore.not_recoverable => State::Unusable,
            _ if !kind.is_lock() => State::Count(semaphore.count.into()),
            Some(_) => State::Held,
            None if semaphore.owner_died => State::OwnerDied,
            None => State::Free,
        };
        let lock = self.lock_at(tables.key(semaphore.address), || {
            tables.lock(&semaphore.name, semaphore.address, kind, state)
        });
        let named = semaphore.owner.and_then(|(slot, generation)| {
            let task = tables.contents.task(slot, generation)?;
            (task.state != TaskState::Unswept).then_some(task)
        });
        let owner = named.and_then(|task| tables.tasks.get(&task.slot).copied());
        let entry = &mut self.picture.locks[lock];
        entry.kind = kind;
        entry.state = state;
        entry.flags.owner_dead =
            semaphore.owner_died || (semaphore.owner.is_some() && named.is_none());
        entry.unseen_owner = named.filter(|_| owner.is_none()).map(|task| UnseenOwner {
            tid: task.own_thread,
            absence: Absence::NotVisible,
        });
        entry.owners = owner.into_iter().collect();
        if let Some(ceiling) = semaphore.ceiling {
            entry.remark = format!("ceiling {ceiling}");
        }
        let role = if kind.is_lock() {
            Role::Exclusive
        } else {
            Role::Event
        };
        for slot in &semaphore.waiters {
            if let Some(&task) = tables.tasks.get(slot) {
                self.add_waiter(lock, Waiter { task, role });
            }
        }
    }

    fn add_queue(&mut self, tables: &Tables<'_>, queue: &QueueReport) {
        let state = State::Depth {
            messages: queue.ready,
            capacity: queue.capacity,
        };
        // The key is not the queue's address: a queue begins with a lock of its own.
        let key = tables.entry(queue.address);
        let lock = self.lock_at(key, || Lock {
            key,
            ..tables.lock(&queue.name, queue.address, Kind::Queue, state)
        });
        if queue.in_flight > 0 {
            self.picture.locks[lock].in_flight = queue.in_flight;
            self.picture.locks[lock].remark = format!("{} in flight", queue.in_flight);
        }
        for slot in &queue.receivers {
            if let Some(&task) = tables.tasks.get(slot) {
                let role = Role::Message;
                self.add_waiter(lock, Waiter { task, role });
            }
        }
        // Waiters for room, and those at a ring, are identified by the words that they sleep on.
        for (address, wait) in queue.sleep_words() {
            let word = self.locks.get(&tables.key(address)).copied();
            let Some(other) = word.filter(|other| *other != lock) else {
                continue;
            };
            let role = match wait {
                QueueWait::Room => Role::Room,
                QueueWait::Message => Role::Message,
                _ => Role::Event,
            };
            for Waiter { task, .. } in std::mem::take(&mut self.picture.locks[other].waiters) {
                self.picture.tasks[task]
                    .waits_for
                    .retain(|waited| *waited != other);
                self.add_waiter(lock, Waiter { task, role });
            }
        }
    }

    fn add_events(&mut self, tables: &Tables<'_>) {
        for report in &tables.contents.tasks {
            let (
                Some(TaskWait::Events {
                    events,
                    all,
                    pending,
                    system,
                }),
                Some(&task),
            ) = (report.waits_for, tables.tasks.get(&report.slot))
            else {
                continue;
            };
            let key = tables.entry(report.slot.into());
            let place = Location::Region {
                region: tables.region,
                object: Some(format!("events of {}", report.name)),
            };
            let lock = self.lock_at(key, || Lock::new(key, place));
            let which = if all { "all" } else { "any" };
            let layer = if system { "system events" } else { "events" };
            let entry = &mut self.picture.locks[lock];
            entry.kind = Kind::Events;
            entry.remark = format!("{which} of the {layer} {events:#x}; pending: {pending:#x}");
            let role = Role::Event;
            self.add_waiter(lock, Waiter { task, role });
        }
    }
}
