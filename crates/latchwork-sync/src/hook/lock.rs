//! A lock as observers see it: kind, address, traits; and how it is acquired.
#![allow(unsafe_code)]

#[cfg(not(loom))]
use crate::atomic::AtomicU32;
use crate::sharing::Sharing;
use crate::sys::futex::Sharing as Flag;

macro_rules! kinds {
    ($($(#[$meta:meta])* $kind:ident = $number:literal, $name:literal;)*) => {
        /// The kind of object at an address.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$meta])* $kind = $number,)*
        }

        impl Kind {
            /// The kind with this number; [`Kind::Unknown`] if there is none.
            #[inline]
            #[must_use]
            pub fn from_number(number: u8) -> Self {
                match number {
                    $($number => Self::$kind,)*
                    _ => Self::Unknown,
                }
            }

            /// Its name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// Not known.
    #[default]
    Unknown = 0, "lock";
    /// A mutex of any protocol, pthread's included.
    Mutex = 1, "mutex";
    /// A reader/writer lock.
    RwLock = 2, "rwlock";
    /// A spinlock.
    Spin = 3, "spinlock";
    /// A condition variable.
    Condvar = 4, "condvar";
    /// A counting semaphore, which has no owner.
    Semaphore = 5, "semaphore";
    /// A binary semaphore, which its owner releases.
    OwnedSemaphore = 6, "binary semaphore";
    /// A barrier.
    Barrier = 7, "barrier";
    /// A completion.
    Completion = 8, "completion";
    /// A function that runs once.
    Once = 9, "once";
    /// A message queue, of any kind.
    Queue = 10, "queue";
    /// A task's events.
    Events = 11, "events";
    /// The end of a thread or coproc.
    Join = 12, "join";
}

impl Kind {
    /// Whether a task that acquires it owns it until it releases it.
    #[inline]
    #[must_use]
    pub const fn has_owner(self) -> bool {
        matches!(
            self,
            Self::Mutex | Self::RwLock | Self::Spin | Self::OwnedSemaphore
        )
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

/// A lock, or any other object that tasks wait for. Safe code cannot claim that memory at the address is the lock's:
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

impl Mode {
    #[inline]
    pub(crate) const fn of(writes: bool) -> Self {
        if writes {
            Self::Exclusive
        } else {
            Self::Shared
        }
    }
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
