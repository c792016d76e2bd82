//! Places in programs; what an observer answers, and what misuse a lock reports.
#![allow(unsafe_code)]

use core::panic::Location;

/// A place in a program: a return address, or a place in a source file.
///
/// One word, which is 0 for an unknown place, odd for the address of a [`Location`] (which is even) and
/// one, and otherwise the address of an instruction; both are addresses of this process. The checker reads the
/// [`Location`], so a site cannot be made of a number:
///
/// ```compile_fail,E0423
/// use latchwork::check::hook::{How, Kind, Lock, Mode, Site, taken};
///
/// taken(Lock::new(0x4000, Kind::Mutex), Mode::Exclusive, How::Locked, Site(0x1001));
/// ```
///
/// A site in a record of another process is a [`RecordedSite`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Site(u64);

impl Site {
    /// An unknown place.
    pub const UNKNOWN: Self = Self(0);

    /// The instruction that a call returns to.
    #[inline]
    #[must_use]
    pub fn from_return_address(address: usize) -> Self {
        // An instruction may have an odd address; the address before it belongs to the same call.
        Self(address as u64 & !1)
    }

    /// A place in a source file.
    #[inline]
    #[must_use]
    pub fn from_location(location: &'static Location<'static>) -> Self {
        Self(core::ptr::from_ref(location).expose_provenance() as u64 | 1)
    }

    /// The caller, as `#[track_caller]` reports it.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn caller() -> Self {
        Self::from_location(Location::caller())
    }

    /// A place that is known by its text only, which is on the checker's board under this number.
    #[doc(hidden)]
    #[must_use]
    pub const fn of_text(key: u64) -> Self {
        Self(key | TEXT_ONLY | 1)
    }

    /// A site that the calling task's own record contains.
    ///
    /// # Safety
    /// A [`Site`] of this process, or of one that this process is a copy of, has been converted to this number.
    #[doc(hidden)]
    #[must_use]
    pub const unsafe fn of_own_record(raw: u64) -> Self {
        Self(raw)
    }

    /// The site as a word.
    #[inline]
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Whether it is a place in a source file.
    #[inline]
    #[must_use]
    pub const fn is_location(self) -> bool {
        self.0 & 1 != 0
    }

    /// The place in the source file, of a site that this process made.
    ///
    /// # Safety
    /// [`Self::from_location`] made it in this process, or in one that this is a copy of.
    #[must_use]
    pub unsafe fn location(self) -> Option<&'static Location<'static>> {
        let address = (self.0 & !1) as usize;
        // SAFETY: by the caller's contract the word is the address of a `Location`, plus one.
        (self.is_location() && self.0 & TEXT_ONLY == 0)
            .then(|| unsafe { &*core::ptr::with_exposed_provenance(address) })
    }
}

/// A place in a record of any process: the word of a [`Site`], whose addresses are those of that
/// process. It can be printed and compared; no code follows the address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct RecordedSite(u64);

impl RecordedSite {
    /// An unknown place.
    pub const UNKNOWN: Self = Self(0);

    /// The site with this word in a record.
    #[inline]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The site as a word.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Whether it is a place in a source file.
    #[inline]
    #[must_use]
    pub const fn is_location(self) -> bool {
        Site(self.0).is_location()
    }
}

impl From<Site> for RecordedSite {
    fn from(site: Site) -> Self {
        Self(site.0)
    }
}

/// No address of a process has this bit.
const TEXT_ONLY: u64 = 1 << 63;

/// A call that an object has refused, or should have refused.
#[derive(Clone, Copy, Debug)]
pub enum Misuse {
    /// The release of an object that another task owns, or no task.
    NotOwner {
        /// Whether a task owns it.
        owned: bool,
    },
    /// A use of it after its end.
    AfterEnd,
    /// The deletion of an object that a task owns.
    DeleteOwned,
    /// The deletion of an object that tasks wait for.
    DeleteAwaited {
        /// The number of waiters.
        waiting: u32,
    },
    /// A use by a task whose priority is above the object's ceiling.
    AboveCeiling {
        /// The task's priority, in the object's own numbers.
        own: u32,
        /// The ceiling.
        ceiling: u32,
    },
}

/// How a reported call proceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It continues: nothing is wrong, or it was reported and the program continues as it would without a checker.
    Go,
    /// The wait would complete a wait-for cycle, possibly of the calling task alone. It was reported; a call that can
    /// fail fails with it.
    Deadlock,
    /// No task holds the lock, so that there is nothing to release.
    NotHeld,
    /// Another task holds it.
    NotOwner,
    /// There is no lock at this address that the interface has initialised.
    NotALock,
}
