//! The memory of glibc's objects, as far as it is read or marked here.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use latchwork_interpose::mutexes::kind;

/// A mark in bytes of an object that glibc uses only in its initialisation. An object without the mark was
/// reinitialised in place since its last use, by a constructor or an assignment, without a call.
#[repr(transparent)]
pub(crate) struct Mark(pub(crate) AtomicU64);

impl Mark {
    /// The mark of an object at this address: it depends on the address, since a copy is another object.
    #[inline]
    pub(crate) const fn of(address: usize) -> u64 {
        address as u64 ^ 0x6b72_616d_0000_0000
    }

    #[inline]
    pub(crate) fn is_of(&self, address: usize) -> bool {
        // Relaxed: all users of the object store the same value.
        self.0.load(Ordering::Relaxed) == Self::of(address)
    }

    /// A thread that is not checked has destroyed the object at this address: the checker's records are not of the next one.
    pub(crate) fn forget(&self, address: usize) {
        if self.is_of(address) {
            // Relaxed: no thread may use the object any more.
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// A destroyed object has the mark with these bits inverted.
    const ENDED: u64 = u64::MAX;

    /// Whether it was destroyed.
    pub(crate) fn is_ended(&self, address: usize) -> bool {
        self.0.load(Ordering::Relaxed) == Self::of(address) ^ Self::ENDED
    }
}

/// A `pthread_mutex_t`, or an `mtx_t`.
#[repr(C, align(8))]
pub struct Mutex {
    word: AtomicU32,
    count: u32,
    pub(crate) owner: AtomicU32,
    users: u32,
    kind: AtomicU32,
    spins: u32,
    /// A link of glibc's robust list, which is unused in mutexes that are not robust.
    pub(crate) mark: Mark,
    /// The other link: the holder, for the checker.
    pub(crate) holder: AtomicU32,
    rest: u32,
}

impl Mutex {
    pub(crate) fn kind(&self) -> u32 {
        // Relaxed: it changes only while no thread may use the mutex.
        self.kind.load(Ordering::Relaxed) & kind::ALL
    }

    /// Whether it contains its mark, so that it is the mutex that was made or used last at this address.
    pub(crate) fn is_marked(&self) -> bool {
        self.mark.is_of(core::ptr::from_ref(self).addr())
    }

    /// Whether it may be free.
    pub(crate) fn looks_free(&self) -> bool {
        // Relaxed: a hint.
        self.word.load(Ordering::Relaxed) == 0
    }

    /// Whether it returns an error where other types hang.
    pub(crate) fn checks_errors(&self) -> bool {
        self.kind() & kind::TYPE == kind::ERROR_CHECK
    }
}

/// A `pthread_rwlock_t`.
#[repr(C, align(8))]
pub struct RwLock {
    readers: AtomicU32,
    words: [u32; 6],
    pub(crate) shared: AtomicU32,
    rest: u64,
    /// Padding, in glibc's layout.
    pub(crate) mark: Mark,
    pub(crate) flags: AtomicU8,
    end: [u8; 7],
}

impl RwLock {
    /// Whether it contains its mark, so that it is the lock that was made or used last at this address.
    pub(crate) fn is_marked(&self) -> bool {
        self.mark.is_of(core::ptr::from_ref(self).addr())
    }

    /// Marks the lock as destroyed.
    pub(crate) fn mark_destroyed(&self) {
        let address = core::ptr::from_ref(self).addr();
        if self.is_marked() {
            // Relaxed: no thread may use it any more.
            let mark = Mark::of(address) ^ Mark::ENDED;
            self.mark.0.store(mark, Ordering::Relaxed);
        }
    }

    /// Whether it has no reader and no writer inside.
    pub(crate) fn looks_free(&self) -> bool {
        /// The bit that says on which of two words threads sleep.
        const PHASE: u32 = 1;
        // Relaxed: a hint.
        self.readers.load(Ordering::Relaxed) & !PHASE == 0
    }
}

const _: () = assert!(size_of::<Mutex>() == 40 && size_of::<RwLock>() == 56);

/// A `pthread_cond_t` or `cnd_t`, `sem_t`, `pthread_spinlock_t`, `pthread_barrier_t`: only the address matters here.
#[repr(C)]
pub struct Opaque([u8; 4]);
