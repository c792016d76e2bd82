//! The interface by which locks report to an observer, in addresses.
//!
//! Its types are in this low layer, so that a region can contain a task's [`TaskRecord`] in its slot, and a lock can
//! describe itself, without naming the checker. The checker is an [`Observer`], the one trait by which everything
//! reports. It registers itself by [`observe`]; until then a report costs at most one load, on a slow path.
#![allow(unsafe_code)]

mod observer;
pub mod record;
#[cfg(not(loom))]
mod reports;

pub use observer::{ByFeature, Observer};
#[cfg(not(loom))]
pub use observer::{Registered, Table, is_observed, observe};
#[cfg_attr(loom, allow(unused_imports, reason = "models use a part"))]
pub use record::{HELD, Held, HeldLock, TaskRecord, TaskView, Wanted};
#[cfg(not(loom))]
pub use reports::{Waiting, freed, notifies, task_ends};

#[cfg(not(loom))]
use crate::atomic::AtomicU32;
use crate::sharing::Sharing;
use crate::sys::futex::Sharing as Flag;
use core::panic::Location;

/// Models have no observer.
#[cfg(loom)]
pub struct Waiting;
#[cfg(loom)]
impl Waiting {
    pub fn begin(_: Kind, _: usize, _: bool) -> Self {
        Self
    }
}

/// The kind of object at an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Kind {
    /// Not known.
    #[default]
    Unknown = 0,
    /// A mutex of any protocol, pthread's included.
    Mutex = 1,
    /// A reader/writer lock.
    RwLock = 2,
    /// A spinlock.
    Spin = 3,
    /// A condition variable.
    Condvar = 4,
    /// A counting semaphore, which has no owner.
    Semaphore = 5,
    /// A binary semaphore, which its owner releases.
    OwnedSemaphore = 6,
    /// A barrier.
    Barrier = 7,
    /// A completion.
    Completion = 8,
    /// A function that runs once.
    Once = 9,
    /// A message queue, of any kind.
    Queue = 10,
    /// A task's events.
    Events = 11,
    /// The end of a thread or coproc.
    Join = 12,
}

impl Kind {
    const ALL: [Self; 13] = [
        Self::Unknown,
        Self::Mutex,
        Self::RwLock,
        Self::Spin,
        Self::Condvar,
        Self::Semaphore,
        Self::OwnedSemaphore,
        Self::Barrier,
        Self::Completion,
        Self::Once,
        Self::Queue,
        Self::Events,
        Self::Join,
    ];

    /// The kind with this number; [`Kind::Unknown`] if there is none.
    #[inline]
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        *Self::ALL.get(usize::from(number)).unwrap_or(&Self::Unknown)
    }

    /// Whether a task that acquires it owns it until it releases it.
    #[inline]
    #[must_use]
    pub const fn has_owner(self) -> bool {
        matches!(
            self,
            Self::Mutex | Self::RwLock | Self::Spin | Self::OwnedSemaphore
        )
    }

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "lock",
            Self::Mutex => "mutex",
            Self::RwLock => "rwlock",
            Self::Spin => "spinlock",
            Self::Condvar => "condvar",
            Self::Semaphore => "semaphore",
            Self::OwnedSemaphore => "binary semaphore",
            Self::Barrier => "barrier",
            Self::Completion => "completion",
            Self::Once => "once",
            Self::Queue => "queue",
            Self::Events => "events",
            Self::Join => "join",
        }
    }
}

bitflags::bitflags! {
    /// Properties of a lock.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Traits: u8 {
        /// Tasks of other processes use it, too.
        const SHARED = 1;
        /// The death of its owner is reported to the next one.
        const ROBUST = 2;
        /// Its owner runs at the priority of a waiter, or at a ceiling.
        const LENDS = 4;
        /// Its owner may acquire it again.
        const RECURSIVE = 8;
        /// Readers wait while a writer waits.
        const WRITERS_FIRST = 16;
        /// Any task may release it, not only its owner: a mutex that does not check which task unlocks it, for instance.
        const ANYONE = 32;
    }
}

/// The traits of a lock, with [`Traits::SHARED`] if processes share it.
#[inline]
pub const fn traits_of<S: Sharing>(traits: Traits) -> Traits {
    match S::FLAG {
        Flag::Private => traits,
        Flag::Shared => traits.union(Traits::SHARED),
    }
}

/// A lock, or any other object that tasks wait for: its address, kind and traits. Safe code cannot claim that memory at
/// the address is the lock's:
///
/// ```compile_fail,E0451
/// use latchwork::check::hook::{Kind, Lock};
///
/// let lock = Lock { has_tag: true, ..Lock::new(0x1000, Kind::Mutex) };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The address of its first byte, in the calling process. Private, since a word near it may be read and written.
    address: usize,
    /// Its kind.
    pub kind: Kind,
    /// Its properties.
    pub traits: Traits,
    /// A checked lock's tag is at the address.
    has_tag: bool,
    /// The distance in bytes from the address to a word that names the holder; 0: there is none.
    word: u8,
}

impl Lock {
    /// A lock of one process, without traits.
    #[inline]
    #[must_use]
    pub const fn new(address: usize, kind: Kind) -> Self {
        Self {
            address,
            kind,
            traits: Traits::empty(),
            has_tag: false,
            word: 0,
        }
    }

    /// The address of its first byte, in the calling process.
    #[inline]
    #[must_use]
    pub const fn address(self) -> usize {
        self.address
    }

    /// The same lock with these traits.
    #[inline]
    #[must_use]
    pub const fn with(mut self, traits: Traits) -> Self {
        self.traits = traits;
        self
    }

    /// Whether tasks of other processes use it, too.
    #[inline]
    #[must_use]
    pub const fn is_shared(self) -> bool {
        self.traits.contains(Traits::SHARED)
    }

    /// The same lock, with a word of its memory, `bytes` from its beginning, in which the checker names the holder.
    ///
    /// # Safety
    /// During each call that reports this lock, there are four bytes, aligned as a `u32`, that no other code changes.
    /// They are zero at first; afterwards they may have any value.
    #[cfg(not(loom))]
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub const unsafe fn with_word(mut self, bytes: u8) -> Self {
        self.word = bytes;
        self
    }

    /// The same lock without its word.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub const fn without_word(mut self) -> Self {
        self.word = 0;
        self
    }

    /// The same lock, whose memory begins with the tag of a checked lock.
    ///
    /// # Safety
    /// The address is that of such a tag, exposed, which stays valid during every call that reports this lock.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub const unsafe fn with_tag(mut self) -> Self {
        self.has_tag = true;
        self
    }

    /// Whether a checked lock's tag is at the address.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub const fn has_tag(self) -> bool {
        self.has_tag
    }

    /// The word that names the owner.
    ///
    /// # Safety
    /// The reference is used only during the call that reported the lock.
    #[cfg(not(loom))]
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub unsafe fn word(self) -> Option<&'static AtomicU32> {
        let word =
            core::ptr::with_exposed_provenance::<AtomicU32>(self.address + usize::from(self.word));
        // SAFETY: by the contract of `with_word`.
        (self.word != 0).then(|| unsafe { &*word })
    }
}

/// How a lock is held or wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// By one task alone.
    #[default]
    Exclusive = 0,
    /// As one of several readers.
    Shared = 1,
}

/// How a lock was acquired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum How {
    /// By a call that waits if necessary.
    #[default]
    Locked = 0,
    /// By a call that never waits: it implies no lock order.
    Tried = 1,
    /// Again, after a wait for a condition.
    Again = 2,
}

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
