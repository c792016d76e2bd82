//! glibc's mutex and condition variable as they lie in a program's memory, and where ours is in them.
//!
//! | at | glibc's mutex (40 bytes) | a replaced one |
//! | --- | --- | --- |
//! | 0 | lock | the word of our lock: 0 is free |
//! | 4 | count | how often a recursive one is held |
//! | 8 | owner | the holder's thread ID |
//! | 12 | users | waits for conditions that will take it again; of a mutex that stays glibc's: the same, with its own |
//! | 16 | kind | the same, whether the mutex was counted, and whether [another word](Mutex::instead) is its lock |
//! | 20 | spins, elision | the gate of our lock |
//! | 24 | list | the request of our lock, or the other word; 32: how much good polls do |
//!
//! What a static initialiser, `pthread_mutex_init` or zeroed memory leaves is an unlocked lock of ours.
//! Debuggers find owner, kind and count where they expect them.
//!
//! *The other word.* The kernel lets nobody but its owner release an inheriting lock for which somebody waits. So a normal
//! mutex that another thread releases is another lock from then on: a wait-wake lock at 24. The first word stays as it
//! is, and nobody takes it any more: it is never 0. A thread that came to it before looks at the kind when a nap ends, a
//! second later at most. To note it in the kind is to release the mutex, for the other word is free at first.
//!
//! | at | glibc's condition variable (48 bytes) | ours |
//! | --- | --- | --- |
//! | 0 | a number of waiters | the ticket that waiters compare; 4: how many wait; 8: of which process |
//! | 28 or 36 | flags: shared by processes, clock | the same |
#![allow(unsafe_code)]

use crate::real;
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
    pub(crate) mood: AtomicU32,
    rest: u32,
}

/// Beside the kind: the mutex was counted; with glibc's own note that it is not to be elided, which is there already if
/// the program has set the type `PTHREAD_MUTEX_NORMAL`. (glibc does not look at the other bits.)
const COUNTED: u32 = 0x400 | NOT_ELIDED;
const NOT_ELIDED: u32 = 0x200;
/// Beside the kind: [`Mutex::instead`] is the lock.
const ELSEWHERE: u32 = 0x800;

/// What a mutex is for: the low bits of its kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Normal,
    Recursive,
    ErrorCheck,
    /// Glibc's: robust, inheriting, with a ceiling, shared between processes, or unknown.
    Other,
}

impl Mutex {
    /// Relaxed: it changes only where nobody may use the mutex.
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

    /// Whether it is a normal one that was counted: one comparison, for most calls.
    #[inline(always)]
    pub(crate) fn is_known(&self) -> bool {
        self.kind.load(Ordering::Relaxed) == COUNTED
    }

    /// Notes that it is counted, by its holder; whether it was not.
    #[inline(always)]
    pub(crate) fn is_new(&self) -> bool {
        let kind = self.kind.load(Ordering::Relaxed);
        let is_new = kind & COUNTED != COUNTED;
        if is_new {
            self.kind.store(kind | COUNTED, Ordering::Relaxed);
        }
        is_new
    }

    /// The word that is the lock instead of the first one, since another thread has released that.
    pub(crate) fn instead(&self) -> Option<&AtomicU32> {
        // Acquire: pairs with the Release in `release_elsewhere`.
        (self.kind.load(Ordering::Acquire) & ELSEWHERE != 0).then_some(&self.request)
    }

    /// Releases it for a thread that has not taken it, and whose it is to give; the owner's word stays as it is.
    pub(crate) fn release_elsewhere(&self) {
        // Release: pairs with the Acquire in `instead`.
        self.kind.fetch_or(ELSEWHERE, Ordering::Release);
    }

    /// Whether somebody has it. Relaxed: nobody may use it meanwhile. What is free may still be reserved for who has given
    /// up by now.
    pub(crate) fn is_held(&self) -> bool {
        match self.instead() {
            Some(word) => word.load(Ordering::Relaxed) != 0,
            None => self.word.load(Ordering::Relaxed) & libc::FUTEX_TID_MASK != 0,
        }
    }

    /// Whether waits for conditions will take it again.
    pub(crate) fn is_awaited(&self) -> bool {
        self.users.load(Ordering::Relaxed) != 0
    }

    /// A wait for a condition begins: the caller has the mutex, and will have it again. (glibc counts its users, among
    /// them those of a mutex that it has given up for such a wait; but not of robust ones, whose owners die.)
    pub(crate) fn wait_begins(&self) {
        if self.kind() & kind::ROBUST == 0 {
            // Relaxed, here and below: for those who have it, and whoever destroys it.
            self.users.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The wait is over, and the caller has the mutex.
    pub(crate) fn wait_ends(&self) {
        if self.kind() & kind::ROBUST == 0 {
            self.users.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Makes it one that every call refuses, as glibc does.
    pub(crate) fn end(&self) {
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

/// Where glibc keeps the flags of a condition variable, in words; 0: nowhere known.
static FLAGS: AtomicUsize = AtomicUsize::new(0);
const SHARED: u32 = 1;
const MONOTONIC: u32 = 2;

/// Finds out where glibc keeps those flags, by having it make one; whether they are where ours is not.
pub(crate) fn prepare() -> bool {
    let mut cond = Cond {
        ticket: AtomicU32::new(0),
        waiters: AtomicU32::new(0),
        process: AtomicU32::new(0),
        rest: [const { AtomicU32::new(0) }; 9],
    };
    // SAFETY: attributes and a condition variable of this function's.
    unsafe {
        let mut attributes = core::mem::MaybeUninit::<libc::pthread_condattr_t>::zeroed();
        let attributes = attributes.as_mut_ptr();
        libc::pthread_condattr_init(attributes);
        libc::pthread_condattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED);
        libc::pthread_condattr_setclock(attributes, libc::CLOCK_MONOTONIC);
        real::pthread_cond_init(&raw mut cond, attributes.cast());
        libc::pthread_condattr_destroy(attributes);
    }
    let found = cond
        .rest
        .iter_mut()
        .position(|word| *word.get_mut() == SHARED | MONOTONIC);
    // Relaxed, here and below: a number that never changes.
    FLAGS.store(found.unwrap_or(0), Ordering::Relaxed);
    found.is_some_and(|index| index > 0)
}

/// Whether priority can be inherited here, as glibc finds out for its own: a lock that is then not to be had, where
/// somebody waits, would be one that the program does not know that it has not got.
pub(crate) fn can_inherit() -> bool {
    let mut mutex = core::mem::MaybeUninit::<Mutex>::zeroed();
    let mut attributes = core::mem::MaybeUninit::<libc::pthread_mutexattr_t>::zeroed();
    // SAFETY: attributes and a mutex of this function's.
    unsafe {
        let attributes = attributes.as_mut_ptr();
        libc::pthread_mutexattr_init(attributes);
        libc::pthread_mutexattr_setprotocol(attributes, libc::PTHREAD_PRIO_INHERIT);
        let made = real::pthread_mutex_init(mutex.as_mut_ptr(), attributes.cast());
        libc::pthread_mutexattr_destroy(attributes);
        made == 0
    }
}

impl Cond {
    fn flags(&self) -> u32 {
        self.rest[FLAGS.load(Ordering::Relaxed)].load(Ordering::Relaxed)
    }

    /// Whether it is for processes to share, and so glibc's.
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
