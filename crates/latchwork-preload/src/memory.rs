//! The layout of glibc's mutex and condition variable in a program's memory, and where the replacement lies in them.
//!
//! | offset | glibc's mutex (40 bytes) | replacement |
//! | --- | --- | --- |
//! | 0 | lock | the word of our lock: 0 is free |
//! | 4 | count | the depth of a recursive mutex |
//! | 8 | owner | the owner's thread ID |
//! | 12 | users | the number of condition waits that will acquire it again; in a mutex that stays glibc's, also glibc's own count |
//! | 16 | kind | the same, and flags: whether the mutex was counted, and whether [another word](Mutex::second_word) is its lock |
//! | 20 | spins, elision | the gate of our lock (a queueing mutex in front of it) |
//! | 24 | list | the request word of our lock, or the other word; 32: how much spinning pays |
//!
//! Memory from a static initialiser, from `pthread_mutex_init` or of zeros is an unlocked replacement lock. Debuggers
//! find owner, kind and count where they expect them.
//!
//! *The other word.* The kernel lets only its owner release an inheriting lock that has waiters. So when another thread
//! releases a normal mutex, the mutex becomes another lock from then on: a wait-wake lock at offset 24. The first word
//! stays as it is and is never 0, so no thread acquires it any more. A thread that already waits for it checks the kind
//! when its sleep ends, at most a second later. Setting the flag in the kind releases the mutex, since the other word
//! is free at first.
//!
//! | offset | glibc's condition variable (48 bytes) | replacement |
//! | --- | --- | --- |
//! | 0 | a number of waiters | the ticket that waiters compare; 4: how many wait; 8: of which process |
//! | 28 or 36 | flags: process-shared, clock | the same |
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use latchwork_interpose::mutexes::kind;

/// A `pthread_mutex_t`, or an `mtx_t`.
#[repr(C, align(8))]
pub struct Mutex {
    pub(crate) word: AtomicU32,
    pub(crate) count: AtomicU32,
    pub(crate) owner: AtomicU32,
    users: AtomicU32,
    kind: AtomicU32,
    pub(crate) gate: AtomicU32,
    pub(crate) request: AtomicU32,
    unused: u32,
    pub(crate) spin_gain: AtomicU32,
    rest: u32,
}

/// Flags beside the kind: the mutex was counted; with glibc's own flag against elision, which is set already if the
/// program has set the type `PTHREAD_MUTEX_NORMAL`. (glibc ignores the other bits.)
const COUNTED: u32 = 0x400 | NOT_ELIDED;
const NOT_ELIDED: u32 = 0x200;
/// Flag beside the kind: [`Mutex::second_word`] is the lock.
const SECOND_WORD: u32 = 0x800;

/// How a mutex is used: the low bits of its kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Normal,
    Recursive,
    ErrorCheck,
    /// glibc's: robust, inheriting, with a ceiling, process-shared, or unknown.
    Other,
}

impl Mutex {
    /// Relaxed: it changes only while no thread may use the mutex.
    #[inline(always)]
    pub(crate) fn kind(&self) -> u32 {
        self.kind.load(Ordering::Relaxed) & kind::ALL
    }

    #[inline(always)]
    pub(crate) fn purpose(&self) -> Use {
        match self.kind() {
            0 | 3 => Use::Normal,
            kind::RECURSIVE => Use::Recursive,
            kind::ERROR_CHECK => Use::ErrorCheck,
            _ => Use::Other,
        }
    }

    /// Whether it is a normal mutex that was counted: one comparison, for most calls.
    #[inline(always)]
    pub(crate) fn is_known(&self) -> bool {
        self.kind.load(Ordering::Relaxed) == COUNTED
    }

    /// Sets the counted flag, called by its holder. Returns whether it was clear.
    #[inline(always)]
    pub(crate) fn is_new(&self) -> bool {
        let kind = self.kind.load(Ordering::Relaxed);
        let is_new = kind & COUNTED != COUNTED;
        if is_new {
            self.kind.store(kind | COUNTED, Ordering::Relaxed);
        }
        is_new
    }

    /// The word that is the lock instead of the first one, if another thread than the owner has released that.
    pub(crate) fn second_word(&self) -> Option<&AtomicU32> {
        // Acquire: pairs with the Release in `release_to_second_word`.
        (self.kind.load(Ordering::Acquire) & SECOND_WORD != 0).then_some(&self.request)
    }

    /// Releases it for a thread that is not its owner, but may release it; the owner's word stays as it is.
    pub(crate) fn release_to_second_word(&self) {
        // Release: pairs with the Acquire in `second_word`.
        self.kind.fetch_or(SECOND_WORD, Ordering::Release);
    }

    /// Whether a thread holds it. Relaxed: no thread may use it meanwhile. A free lock may still be reserved for a
    /// waiter that has given up.
    pub(crate) fn is_held(&self) -> bool {
        match self.second_word() {
            Some(word) => word.load(Ordering::Relaxed) != 0,
            None => self.word.load(Ordering::Relaxed) & libc::FUTEX_TID_MASK != 0,
        }
    }

    /// Whether waits for conditions will acquire it again.
    pub(crate) fn is_awaited(&self) -> bool {
        self.users.load(Ordering::Relaxed) != 0
    }

    /// A wait for a condition begins: the caller holds the mutex, and will hold it again. (glibc counts a mutex's
    /// users, and this includes those that have released it for such a wait; but it does not count the users of robust
    /// mutexes, whose owners may die.)
    pub(crate) fn wait_begins(&self) {
        if self.kind() & kind::ROBUST == 0 {
            // Relaxed, here and below: only holders and the destroying thread use it.
            self.users.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The wait is over, and the caller holds the mutex.
    pub(crate) fn wait_ends(&self) {
        if self.kind() & kind::ROBUST == 0 {
            self.users.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Marks it as destroyed, so that every call refuses it, as glibc does.
    pub(crate) fn mark_destroyed(&self) {
        self.kind.store(u32::MAX, Ordering::Relaxed);
    }
}

/// A `pthread_cond_t`, or a `cnd_t`.
#[repr(C, align(8))]
pub struct Cond {
    pub(crate) ticket: AtomicU32,
    pub(crate) waiters: AtomicU32,
    pub(crate) process: AtomicU32,
    rest: [AtomicU32; 9],
}

const _: () = assert!(size_of::<Mutex>() == 40 && size_of::<Cond>() == 48);

/// A `sem_t`.
#[repr(C, align(8))]
pub struct Semaphore([AtomicU32; 8]);

impl Semaphore {
    /// Zeros, for glibc's functions to initialise.
    pub(crate) const fn zeroed() -> Self {
        Self([const { AtomicU32::new(0) }; 8])
    }

    /// The number of units. Relaxed: a hint.
    pub(crate) fn value(&self) -> u32 {
        self.0[0].load(Ordering::Relaxed)
    }

    /// Whether processes share it.
    pub(crate) fn is_shared(&self) -> bool {
        self.0[2].load(Ordering::Relaxed) == libc::FUTEX_PRIVATE_FLAG as u32
    }
}

const _: () = assert!(size_of::<Semaphore>() == size_of::<libc::sem_t>());

/// The word in which glibc stores the flags of a condition variable; 0 if unknown.
static FLAGS: AtomicUsize = AtomicUsize::new(0);
const SHARED: u32 = 1;
const MONOTONIC: u32 = 2;

impl Cond {
    /// Zeros, for glibc's functions to initialise.
    pub(crate) const fn zeroed() -> Self {
        Self {
            ticket: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            process: AtomicU32::new(0),
            rest: [const { AtomicU32::new(0) }; 9],
        }
    }

    /// Finds the word of the flags in a condition variable that glibc has initialised as process-shared and for the
    /// monotonic clock. Returns whether it lies outside the replacement's words.
    pub(crate) fn find_flags(&mut self) -> bool {
        let words = &mut self.rest;
        let index = words
            .iter_mut()
            .position(|word| *word.get_mut() == SHARED | MONOTONIC);
        // Relaxed, here and below: a number that does not change afterwards.
        FLAGS.store(index.unwrap_or(0), Ordering::Relaxed);
        index.is_some_and(|index| index > 0)
    }

    fn flags(&self) -> u32 {
        self.rest[FLAGS.load(Ordering::Relaxed)].load(Ordering::Relaxed)
    }

    /// Whether it is process-shared, and so glibc's.
    #[inline(always)]
    pub(crate) fn is_shared(&self) -> bool {
        self.flags() & SHARED != 0
    }

    pub(crate) fn clock(&self) -> libc::clockid_t {
        if self.flags() & MONOTONIC != 0 {
            libc::CLOCK_MONOTONIC
        } else {
            libc::CLOCK_REALTIME
        }
    }
}
