//! What queues and rings report to the checker; nothing if there is none.

use crate::hook::{self, Kind, Lock, Misuse, Observer, Registered, Site};
use crate::region::write_object_name;

/// A queue or a ring, by the address of its head.
#[derive(Clone, Copy)]
pub(super) struct Report(pub(super) usize);

impl Report {
    /// The object, as the checker identifies it.
    fn object(self) -> Lock {
        Lock::new(self.0, Kind::Queue).with(hook::Traits::SHARED)
    }

    /// Reports the name, so that the checker need not search the region for it.
    pub(super) fn named(self, name: &str, site: Site) {
        if hook::is_observed() {
            Registered::named(self.object(), name, site);
        }
    }

    /// Reports that the object is about to lose its name. The checker keeps the name, for uses after the end.
    pub(super) fn ends(self, site: Site) {
        if hook::is_observed() {
            let mut name = String::new();
            write_object_name(self.0, &mut name);
            Registered::named(self.object(), &name, site);
            Registered::ended(self.object());
        }
    }

    /// Reports a call that was refused, or should have been.
    #[cold]
    pub(super) fn misused(self, misuse: Misuse, site: Site) {
        if hook::is_observed() {
            Registered::misused(self.object(), misuse, site);
        }
    }
}
