//! The interface by which locks report to an observer, in addresses.
//!
//! Its types are in this low layer, so that a region can contain a task's [`TaskRecord`] in its slot, and a lock can
//! describe itself, without naming the checker. The checker is an [`Observer`], the one trait by which everything
//! reports. It registers itself by [`observe`]; until then a report costs at most one load, on a slow path.

mod lock;
mod observer;
pub mod record;
#[cfg(not(loom))]
mod reports;
mod site;

pub use lock::{How, Kind, Lock, Mode, Traits, traits_of};
pub use observer::{ByFeature, Observer};
#[cfg(not(loom))]
pub use observer::{Registered, Table, is_observed, observe};
#[cfg_attr(loom, allow(unused_imports, reason = "models use a part"))]
pub use record::{HELD, Held, HeldLock, TaskRecord, TaskView, Wanted};
#[cfg(not(loom))]
pub use reports::{Waiting, freed, notifies, task_ends};
pub use site::{Misuse, RecordedSite, Site, Verdict};

/// Models have no observer.
#[cfg(loom)]
pub struct Waiting;
#[cfg(loom)]
impl Waiting {
    pub fn begin(_: Kind, _: usize, _: bool) -> Self {
        Self
    }
}
