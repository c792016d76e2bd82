//! A region's semaphores, as read from outside: see [`region::inspect`](crate::region::inspect).

use super::handle::FINGERPRINT;
pub use super::object::Kind as SemaphoreKind;
use super::object::{Core, DELETED, DIED, Kind, owner_of, slot_of};
use super::priority_mutex;
use crate::atomic::Ordering::Relaxed;
use crate::region::inspect::{AnyBytes, Contents, RegionPlace, TaskState, TaskWait};
use std::collections::BTreeMap;

/// A semaphore of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SemaphoreReport {
    /// Its name, or that of the object that contains it, with the offset there.
    pub name: String,
    /// Its address in every task.
    pub address: u64,
    /// Its kind.
    pub kind: SemaphoreKind,
    /// Whether it is a [`PriorityMutex`](super::PriorityMutex), which protects data.
    pub has_data: bool,
    /// Whether waiters are served by priority.
    pub by_priority: bool,
    /// The number of tasks that may obtain it now; with an owner kind, 1 if it has none.
    pub count: u32,
    /// Slot and generation of its owner, which may be dead.
    pub owner: Option<(u16, u32)>,
    /// An owner died, and no task has got the report yet.
    pub owner_died: bool,
    /// A mutex with data whose owner died, and which the next owner released without a repair.
    pub not_recoverable: bool,
    /// The ceiling, as a recorded priority.
    pub ceiling: Option<u32>,
    /// The slots of the waiters, in the order in which they will be served. Living tasks only.
    pub waiters: Vec<u16>,
}

// SAFETY: all fields are numbers, but for the node of a lock, whose links are not followed in a copy.
unsafe impl AnyBytes for Core {}

/// A region's semaphores, as a method of its [`Contents`].
pub trait SemaphoreReports {
    /// The region's semaphores: the named ones, and those that a task waits for.
    #[must_use]
    fn semaphores(&self) -> Vec<SemaphoreReport>;
}

impl SemaphoreReports for Contents {
    fn semaphores(&self) -> Vec<SemaphoreReport> {
        let mut queues: BTreeMap<u64, Vec<(u32, u64, u16)>> = self
            .objects
            .iter()
            .filter(|object| {
                object.fingerprint == FINGERPRINT || priority_mutex::is_in(self, object)
            })
            .map(|object| (object.address, Vec::new()))
            .collect();
        for task in &self.tasks {
            if let Some(TaskWait::Semaphore {
                address,
                priority,
                ticket,
            }) = task.waits_for
                && task.state != TaskState::Unswept
            {
                queues
                    .entry(address)
                    .or_default()
                    .push((priority, ticket, task.slot));
            }
        }
        queues
            .into_iter()
            .filter_map(|(address, queue)| semaphore(self, address, queue))
            .collect()
    }
}

fn semaphore(
    contents: &Contents,
    address: u64,
    mut queue: Vec<(u32, u64, u16)>,
) -> Option<SemaphoreReport> {
    let aligned = address.is_multiple_of(align_of::<Core>() as u64);
    let place = contents.place(address.checked_sub(contents.base)?)?;
    let name = match place {
        RegionPlace::Object { name, offset: 0 } => name.to_owned(),
        RegionPlace::Object { name, offset } => format!("{name}+{offset:#x}"),
        RegionPlace::Heap => format!("{address:#x}"),
        _ => return None,
    };
    let core = aligned.then(|| contents.read::<Core>(address))??;
    let word = core.word.load(Relaxed);
    let form = core.form();
    let has_ended = word & DELETED != 0;
    if has_ended && !form.has_data() {
        return None;
    }
    let kind = form.kind();
    if !form.is_by_priority() {
        queue.iter_mut().for_each(|(priority, ..)| *priority = 0);
    }
    queue.sort_unstable();
    let owner = Some(owner_of(word)).filter(|owner| kind.has_owner() && *owner != 0);
    Some(SemaphoreReport {
        name,
        address,
        kind,
        has_data: form.has_data(),
        by_priority: form.is_by_priority(),
        count: match kind.has_owner() {
            true => u32::from(owner.is_none() && !has_ended),
            false => (word >> 32) as u32,
        },
        owner: owner.map(|owner| (slot_of(owner), (owner >> 32) as u32)),
        owner_died: word & DIED != 0,
        not_recoverable: has_ended,
        ceiling: match kind {
            Kind::Ceiling => Some(core.ceiling.load(Relaxed)),
            Kind::Mrsp => Some(core.in_force.load(Relaxed)).filter(|_| owner.is_some()),
            _ => None,
        },
        waiters: queue.into_iter().map(|(.., slot)| slot).collect(),
    })
}
