//! glibc's objects, as the checker is told of them.
#![allow(unsafe_code)]

use crate::{start, sum};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use latchwork::check::hook::{Kind, Lock, Traits};
use latchwork_interpose::mutexes::kind;

/// Something of the program's that is watched at this address; `None`: in a thread that is not.
#[inline]
pub(crate) fn at<T>(object: *const T, kind: Kind) -> Option<Lock> {
    start::watches().then(|| Lock::new(object.addr(), kind))
}

/// A `pthread_mutex_t`, or an `mtx_t`.
#[repr(C, align(8))]
pub struct Mutex {
    word: u64,
    owner: AtomicU32,
    users: u32,
    kind: AtomicU32,
    rest: [u32; 5],
}

impl Mutex {
    pub(crate) fn kind(&self) -> u32 {
        // Relaxed: it changes only where nobody may use the mutex.
        self.kind.load(Ordering::Relaxed) & kind::ALL
    }

    /// Whether the calling thread has it.
    pub(crate) fn is_mine(&self) -> bool {
        // Relaxed: the holder's own; others only compare it with their own ID.
        let owner = self.owner.load(Ordering::Relaxed);
        owner != 0 && owner == start::thread()
    }

    /// Whether it returns an error where others hang.
    pub(crate) fn says_no(&self) -> bool {
        self.kind() & kind::TYPE == kind::ERROR_CHECK
    }
}

/// A mutex, if it is watched.
///
/// # Safety
/// There is one.
#[inline]
pub(crate) unsafe fn mutex(mutex: *const Mutex) -> Option<Lock> {
    let lock = at(mutex, Kind::Mutex)?;
    // SAFETY: by the contract.
    let what = unsafe { (*mutex).kind() };
    if what == 0 {
        return Some(lock);
    }
    // Destroyed.
    if what == kind::ALL {
        return None;
    }
    if what & kind::SHARED != 0 {
        sum::shared(lock.address);
        return None;
    }
    let mut traits = Traits::empty();
    traits.set(Traits::RECURSIVE, what & kind::TYPE == kind::RECURSIVE);
    traits.set(Traits::ROBUST, what & kind::ROBUST != 0);
    traits.set(Traits::LENDS, what & (kind::INHERIT | kind::PROTECT) != 0);
    Some(lock.with(traits))
}

/// A `pthread_rwlock_t`.
#[repr(C, align(8))]
pub struct RwLock {
    words: [u32; 7],
    shared: AtomicU32,
    rest: [u32; 4],
    flags: AtomicU8,
    end: [u8; 7],
}

/// A reader/writer lock, if it is watched.
///
/// # Safety
/// There is one.
#[inline]
pub(crate) unsafe fn rwlock(rwlock: *const RwLock) -> Option<Lock> {
    const WRITERS_FIRST: u8 = 2;
    let lock = at(rwlock, Kind::RwLock)?;
    // SAFETY: by the contract. Relaxed: they change only where nobody may use it.
    let (shared, flags) = unsafe {
        let rwlock = &*rwlock;
        let flags = rwlock.flags.load(Ordering::Relaxed);
        (rwlock.shared.load(Ordering::Relaxed) != 0, flags)
    };
    if shared {
        sum::shared(lock.address);
        return None;
    }
    let mut traits = Traits::empty();
    traits.set(Traits::WRITERS_FIRST, flags == WRITERS_FIRST);
    Some(lock.with(traits))
}

const _: () = assert!(size_of::<Mutex>() == 40 && size_of::<RwLock>() == 56);

/// A `pthread_cond_t` or `cnd_t`, `sem_t`, `pthread_spinlock_t`, `pthread_barrier_t`: their addresses are all
/// that matters here.
#[repr(C)]
pub struct Opaque([u8; 4]);
