//! glibc's objects, as they are described to the checker.
#![allow(unsafe_code)]

use crate::layout::{Mark, Mutex, RwLock};
use crate::take::site;
use crate::{checked, sum, task};
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use latchwork::check::hook::{self, Kind, Lock, NoLock, Traits};
use latchwork_interpose::errno::keeping_errno;
use latchwork_interpose::mutexes::kind;

/// The description of a program's object at this address; `None` in a thread that is not checked.
#[inline]
pub(crate) fn at<T>(object: *const T, kind: Kind) -> Option<Lock> {
    checked::this_thread().then(|| Lock::new(object.expose_provenance(), kind))
}

/// Ensures that the checker's records are those of the object with this mark, and not of an earlier one at its address.
#[inline]
fn verify(mark: &Mark, lock: Lock, at: usize) {
    if !mark.is_of(lock.address()) {
        let expected = Mark::of(lock.address());
        keeping_errno(|| hook::unmarked(lock, &mark.0, expected, site(at)));
    }
}

impl Mutex {
    /// Whether the calling thread holds it.
    pub(crate) fn is_mine(&self) -> bool {
        // Relaxed: only the owner relies on it; other threads only compare it with their own ID.
        let owner = self.owner.load(Ordering::Relaxed);
        owner != 0 && owner == checked::thread_id()
    }
}

/// A mutex that is in no robust list: its link holds the holder's word.
#[inline]
fn with_word(lock: Lock) -> Lock {
    // SAFETY: the mutex's link, which nothing else uses as long as the mutex exists. glibc's initialisers set it to
    // zero.
    unsafe { lock.with_word(core::mem::offset_of!(Mutex, holder) as u8) }
}

/// A mutex of the usual kinds, in a thread that is checked. `None` has no meaning by itself.
///
/// # Safety
/// `mutex` points to a mutex.
#[inline(always)]
pub(crate) unsafe fn usual(mutex: *const Mutex) -> Option<Lock> {
    // SAFETY: by the contract it points to a mutex.
    let what = unsafe { (*mutex).kind() };
    let is_usual = what & !kind::TYPE == 0 && what != kind::ERROR_CHECK;
    if !is_usual || !hook::knows_this_thread() {
        return None;
    }
    let mut traits = Traits::empty();
    traits.set(Traits::RECURSIVE, what == kind::RECURSIVE);
    traits.set(Traits::ANYONE, what != kind::RECURSIVE);
    let lock = Lock::new(mutex.expose_provenance(), Kind::Mutex).with(traits);
    Some(with_word(lock))
}

/// The same for a mutex that is about to be acquired, if its mark shows that the records are of this very mutex.
///
/// # Safety
/// `mutex` points to a mutex.
#[inline(always)]
pub(crate) unsafe fn usual_to_take(mutex: *const Mutex) -> Option<Lock> {
    // SAFETY: by the contract it points to a mutex.
    unsafe { usual(mutex).filter(|lock| (*mutex).mark.is_of(lock.address())) }
}

/// A mutex, if it is checked.
///
/// # Safety
/// `mutex` points to a mutex.
#[inline]
pub(crate) unsafe fn mutex(mutex: *const Mutex) -> Option<Lock> {
    let lock = at(mutex, Kind::Mutex)?.with(Traits::ANYONE);
    // SAFETY: by the contract it points to a mutex.
    let what = unsafe { (*mutex).kind() };
    if what == 0 {
        return Some(with_word(lock));
    }
    // It was destroyed.
    if what == kind::ALL {
        return None;
    }
    // glibc marks each robust mutex as process-shared. Whether one is was noted when it was initialised.
    if what & kind::SHARED != 0 && !(what & kind::ROBUST != 0 && is_private_robust(lock)) {
        sum::shared(lock.address());
        return None;
    }
    Some(described(lock, what))
}

/// Whether a robust mutex was seen to be initialised for this process alone.
#[cold]
fn is_private_robust(lock: Lock) -> bool {
    keeping_errno(|| hook::is_made(lock.with(Traits::ROBUST)))
}

/// A mutex of this kind, which is checked.
fn described(lock: Lock, what: u32) -> Lock {
    let mut traits = Traits::empty();
    traits.set(Traits::RECURSIVE, what & kind::TYPE == kind::RECURSIVE);
    traits.set(Traits::ROBUST, what & kind::ROBUST != 0);
    // Mutexes of these types, robust ones, and those whose owner the kernel knows, can be released only by their
    // owners.
    let is_owners = matches!(what & kind::TYPE, kind::RECURSIVE | kind::ERROR_CHECK);
    traits.set(
        Traits::ANYONE,
        !is_owners && what & (kind::ROBUST | kind::INHERIT) == 0,
    );
    traits.set(Traits::LENDS, what & (kind::INHERIT | kind::PROTECT) != 0);
    let lock = lock.with(traits);
    if traits.contains(Traits::ROBUST) {
        lock
    } else {
        with_word(lock)
    }
}

/// A mutex that was just made with these attributes, if it is checked.
///
/// # Safety
/// `it` points to a mutex, `attributes` is null or points to its attributes.
pub(crate) unsafe fn made_mutex(
    it: *const Mutex,
    attributes: *const c_void,
    make_at: usize,
) -> Option<Lock> {
    // SAFETY: by the contract it points to a mutex.
    let what = unsafe { (*it).kind() };
    if what & kind::ROBUST == 0 {
        // SAFETY: by the contract it points to a mutex.
        return unsafe { mutex_to_take(it, make_at) };
    }
    let lock = at(it, Kind::Mutex)?.with(Traits::ANYONE);
    let mut sharing = libc::PTHREAD_PROCESS_PRIVATE;
    // SAFETY: by the contract; a mutex is robust only by attributes.
    unsafe { libc::pthread_mutexattr_getpshared(attributes.cast(), &raw mut sharing) };
    if sharing == libc::PTHREAD_PROCESS_PRIVATE {
        return Some(described(lock, what));
    }
    // A private one that was at its address, and was not destroyed, exists no more.
    keeping_errno(|| {
        if is_private_robust(lock) {
            hook::destroyed(lock, site(make_at));
        }
    });
    sum::shared(lock.address());
    None
}

/// The same for a mutex that is about to be acquired, or was made by C11's function.
///
/// # Safety
/// `it` points to a mutex.
#[inline]
pub(crate) unsafe fn mutex_to_take(it: *const Mutex, at: usize) -> Option<Lock> {
    // SAFETY: by the contract it points to a mutex.
    let Some(lock) = (unsafe { mutex(it) }) else {
        // SAFETY: by the contract it points to a mutex.
        unsafe { check_destroyed(it, at) };
        return None;
    };
    if !lock.traits.contains(Traits::ROBUST) {
        // SAFETY: by the contract it points to a mutex.
        unsafe { verify(&(*it).mark, lock, at) };
    }
    Some(lock)
}

/// Reports the use of a mutex that was destroyed.
///
/// # Safety
/// `mutex` points to a mutex.
pub(crate) unsafe fn check_destroyed(mutex: *const Mutex, at: usize) {
    // SAFETY: by the contract it points to a mutex.
    if unsafe { (*mutex).kind() } == kind::ALL {
        uses_no_lock(mutex, Kind::Mutex, NoLock::Ended, at);
    }
}

/// Reports the use of memory that contains no object of this kind.
#[cold]
pub(crate) fn uses_no_lock<T>(object: *const T, kind: Kind, what: NoLock, use_at: usize) {
    if let Some(lock) = at(object, kind) {
        keeping_errno(|| hook::uses_no_lock(lock, what, site(use_at)));
    }
}

/// Reports a second initialisation of an object that may have had one. (In the child of a fork, objects of the parent
/// may be initialised again.)
pub(crate) fn initialised_again<T>(object: *const T, kind: Kind, init_at: usize) {
    if let Some(lock) = at(object, kind).filter(|_| checked::is_first()) {
        keeping_errno(|| hook::initialised_again(lock, task::sees_frees(), site(init_at)));
    }
}

impl RwLock {
    /// Reports the use of a lock that was destroyed.
    pub(crate) fn check_destroyed(&self, at: usize) {
        let it = core::ptr::from_ref(self);
        if self.mark.is_ended(it.addr()) {
            uses_no_lock(it, Kind::RwLock, NoLock::Ended, at);
        }
    }
}

/// A reader/writer lock, if it is checked.
///
/// # Safety
/// `rwlock` points to a lock.
#[inline]
pub(crate) unsafe fn rwlock(rwlock: *const RwLock) -> Option<Lock> {
    const WRITERS_FIRST: u8 = 2;
    let lock = at(rwlock, Kind::RwLock)?;
    // SAFETY: by the contract it points to a lock. Relaxed: the fields change only while no thread may use it.
    let (shared, flags) = unsafe {
        let rwlock = &*rwlock;
        let flags = rwlock.flags.load(Ordering::Relaxed);
        (rwlock.shared.load(Ordering::Relaxed) != 0, flags)
    };
    if shared {
        sum::shared(lock.address());
        return None;
    }
    let mut traits = Traits::empty();
    traits.set(Traits::WRITERS_FIRST, flags == WRITERS_FIRST);
    Some(lock.with(traits | Traits::ANYONE))
}

/// The same for a lock that is about to be acquired, or was just made.
///
/// # Safety
/// `it` points to a lock.
#[inline]
pub(crate) unsafe fn rwlock_to_take(it: *const RwLock, at: usize) -> Option<Lock> {
    // SAFETY: by the contract it points to a lock.
    let lock = unsafe { rwlock(it) }?;
    // SAFETY: by the contract it points to a lock.
    unsafe {
        (*it).check_destroyed(at);
        verify(&(*it).mark, lock, at);
    }
    Some(lock)
}
