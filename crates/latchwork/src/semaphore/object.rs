//! The object: one word for operations that need not wait, and the fields that its lock protects.
//!
//! | bits of the word | counting, simple binary | with an owner |
//! | --- | --- | --- |
//! | 63–32 | the count | the owner's generation |
//! | 31–16 | 0 | the owner's slot; with generation 0: no owner |
//! | 15–4 | the incarnation, which changes when a semaphore is created in a deleted object | the same |
//! | 3 `NESTED` | 0 | the owner has obtained it more than once: see `nest` |
//! | 2 `DIED` | 0 | an owner died, and no task has got the report yet |
//! | 1 `DELETED` | there is no object | the same; of a mutex with data: it is not recoverable |
//! | 0 `QUEUED` | a task may be in the queue | the same |
//!
//! An incarnation with all flags clear is a *key*. An operation compares the low half with the key of its handle: one
//! comparison says that the object is the handle's, and that no task waits; then the operation is one compare-and-swap.

#[cfg(not(loom))]
use crate::atomic::AtomicUsize;
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::atomic::{AtomicU32, AtomicU64, const_unless_loom};
use crate::mutex::InRegion;

pub(crate) const QUEUED: u64 = 1;
pub(crate) const DELETED: u64 = 2;
pub(crate) const DIED: u64 = 4;
pub(crate) const NESTED: u64 = 8;
const FLAGS: u64 = 0xf;
/// The incarnation.
const KEY: u64 = 0xfff0;
const NEXT_KEY: u64 = 0x10;
/// Incarnation and flags.
pub(crate) const LOW: u64 = FLAGS | KEY;
/// One unit of a count.
pub(crate) const ONE: u64 = 1 << 32;

/// The kind of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
#[non_exhaustive]
pub enum Kind {
    /// A counting semaphore.
    Counting = 0,
    /// A simple binary semaphore: it counts to one.
    SimpleBinary = 1,
    /// A binary semaphore: it has an owner.
    Binary = 2,
    /// Its owner has at least the ceiling.
    Ceiling = 3,
    /// Its owner has at least the priority of its best waiter.
    Inherit = 4,
    /// Its owner has at least the ceiling of its CPU, and waiters may lend it their CPUs.
    Mrsp = 5,
}

impl Kind {
    pub(crate) fn has_owner(self) -> bool {
        !matches!(self, Self::Counting | Self::SimpleBinary)
    }

    /// Whether the owner gets a priority by it that does not depend on the waiters.
    pub(crate) fn has_ceiling(self) -> bool {
        matches!(self, Self::Ceiling | Self::Mrsp)
    }

    /// The largest count.
    pub(crate) const fn most(self) -> u32 {
        match self {
            Self::Counting => u32::MAX,
            _ => 1,
        }
    }
}

/// The order in which waiters are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// First come, first served.
    #[default]
    Fifo,
    /// The highest priority first; among equals, first come, first served.
    Priority,
}

/// Kind and discipline, in one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form(pub(crate) u32);

const BY_PRIORITY: u32 = 1 << 8;
/// It protects data beside it: see `priority_mutex.rs`.
const WITH_DATA: u32 = 1 << 9;

impl Form {
    pub(crate) const fn new(kind: Kind, discipline: Discipline) -> Self {
        match discipline {
            Discipline::Fifo => Self(kind as u32),
            Discipline::Priority => Self(kind as u32 | BY_PRIORITY),
        }
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self.0 & 0xff {
            0 => Kind::Counting,
            1 => Kind::SimpleBinary,
            2 => Kind::Binary,
            3 => Kind::Ceiling,
            4 => Kind::Inherit,
            _ => Kind::Mrsp,
        }
    }

    /// Whether the number has a meaning: a file may hold any.
    #[cfg(not(loom))]
    pub(crate) fn is_known(self) -> bool {
        let kind = self.0 & !(BY_PRIORITY | WITH_DATA);
        kind <= Kind::Mrsp as u32
    }

    /// The form of a mutex with data, which is served by priority.
    #[cfg(not(loom))]
    pub(crate) const fn with_data(kind: Kind) -> Self {
        Self(Self::new(kind, Discipline::Priority).0 | WITH_DATA)
    }

    /// Whether it protects data: its owner then cannot obtain it again.
    pub(crate) fn has_data(self) -> bool {
        self.0 & WITH_DATA != 0
    }

    pub(crate) fn is_by_priority(self) -> bool {
        self.0 & BY_PRIORITY != 0
    }
}

/// A semaphore in a region. It never moves, and its memory is never used otherwise.
#[repr(C, align(64))]
pub(crate) struct Core {
    pub(crate) word: AtomicU64,
    /// How often the owner has obtained it again; valid only while the word has `NESTED`. Only the owner uses it.
    pub(crate) nest: AtomicU32,
    /// A [`Form`], constant during an incarnation.
    form: AtomicU32,
    /// The ceiling, if there is one: the owner has at least this priority.
    pub(crate) ceiling: AtomicU32,
    /// The ceiling at which the owner of a MrsP semaphore obtained it. Only the owner changes it.
    pub(crate) in_force: AtomicU32,
    /// Slot + 1 of the first and of the last waiter; 0: none. These and the fields below are under the lock.
    pub(crate) first: AtomicU32,
    pub(crate) last: AtomicU32,
    /// The number of waiters.
    pub(crate) waiting: AtomicU32,
    /// The count of deaths when the queue was last repaired.
    pub(crate) recovered: AtomicU32,
    /// The next core in the owner's list of ceilings. Only the owner changes it.
    pub(crate) next_held: AtomicU64,
    /// The next ticket.
    pub(crate) tickets: AtomicU64,
    pub(crate) lock: InRegion,
    /// The next core in the region's list of free cores. Under the lock of the region's names.
    #[cfg(not(loom))]
    next_spare: AtomicUsize,
}

// The code for the waiters' records relies on this offset.
#[cfg(not(loom))]
const _: () = assert!(core::mem::offset_of!(Core, lock) == crate::region::wait_record::LOCK);

impl Core {
    /// The offset of the link between free cores.
    #[cfg(not(loom))]
    pub(crate) const NEXT_SPARE: usize = core::mem::offset_of!(Core, next_spare);

    const_unless_loom! {
        /// A core without an object.
        pub(crate) fn new() -> Self {
            Self {
                word: AtomicU64::new(DELETED),
                nest: AtomicU32::new(0),
                form: AtomicU32::new(0),
                ceiling: AtomicU32::new(0),
                in_force: AtomicU32::new(0),
                first: AtomicU32::new(0),
                last: AtomicU32::new(0),
                waiting: AtomicU32::new(0),
                next_held: AtomicU64::new(0),
                tickets: AtomicU64::new(0),
                recovered: AtomicU32::new(0),
                lock: InRegion::new(),
                #[cfg(not(loom))]
                next_spare: AtomicUsize::new(0),
            }
        }
    }

    #[inline]
    pub(crate) fn form(&self) -> Form {
        // Relaxed: it changes only while there is no object; a task that has the object's key read it from the word
        // with Acquire.
        Form(self.form.load(Relaxed))
    }

    /// The address by which records name it.
    pub(crate) fn address(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64
    }

    /// Begins a new object in a core without one, with `content` in the word's high half; returns its key. Under the
    /// lock; the last store commits it.
    pub(crate) fn init(&self, form: Form, ceiling: u32, content: u64) -> u64 {
        // Relaxed: under the lock, and published by the word.
        let key = key_of(self.word.load(Relaxed).wrapping_add(NEXT_KEY));
        self.form.store(form.0, Relaxed);
        self.ceiling.store(ceiling, Relaxed);
        self.nest.store(0, Relaxed);
        // Release: pairs with the Acquire of a task that reads the key.
        self.word.store(content | key, Release);
        key
    }

    /// Replaces the word, if it is still `word`.
    pub(crate) fn replace(&self, word: u64, by: u64) -> bool {
        // AcqRel: the word passes on what releases before this one have published.
        let replaced = self.word.compare_exchange(word, by, AcqRel, Relaxed);
        replaced.is_ok()
    }

    /// The key of the current object, if there is one.
    pub(crate) fn key(&self) -> Option<u64> {
        // Acquire: pairs with `init`.
        let word = self.word.load(Acquire);
        (word & DELETED == 0).then_some(key_of(word))
    }
}

/// The incarnation in a word.
#[inline]
pub(crate) fn key_of(word: u64) -> u64 {
    word & KEY
}

/// Whether the word is that of the object with this key.
#[inline]
pub(crate) fn is_of(word: u64, key: u64) -> bool {
    word & (KEY | DELETED) == key
}

/// The owner, 0 if none.
#[inline]
pub(crate) fn owner_of(word: u64) -> u64 {
    word & !0xffff
}

/// The slot of a task number.
#[inline]
pub(crate) fn slot_of(task: u64) -> u16 {
    (task >> 16) as u16
}

/// The semaphore at an address that a record or another semaphore contains.
///
/// # Safety
/// There is one at this address. A semaphore is never moved or freed while the region is mapped; it may have been
/// deleted since, but its memory is still a semaphore.
pub(super) unsafe fn core_at<'a>(address: u64) -> &'a Core {
    // SAFETY: the caller promises that a semaphore lies there, and it is never moved or freed.
    unsafe { &*core::ptr::with_exposed_provenance(address as usize) }
}
