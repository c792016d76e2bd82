//! What the memory of glibc's condition variables, barriers and semaphores shows of misuse.
//!
//! At the start, [`prepare`] determines glibc's layout with objects of this library's own; if the result is not as
//! expected, nothing is reported.
#![allow(unsafe_code)]

use crate::layout::Opaque;
use crate::object;
use crate::{checked, real};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use latchwork::check::hook::{self, Kind, NoLock};
use latchwork_interpose::errno::keeping_errno;

/// The size of a `pthread_cond_t` in bytes.
pub(crate) const BYTES: usize = 48;
/// The size of a `pthread_barrier_t`, and of a `sem_t`.
pub(crate) const OTHER_BYTES: usize = 32;

type Words = [AtomicU32; BYTES / 4];

/// The index, plus 1, of the word that says whether a condition variable was destroyed, and whether it is
/// process-shared.
static USES: AtomicUsize = AtomicUsize::new(0);
/// Whether a barrier's words are where they are expected.
static KNOWS_BARRIERS: AtomicUsize = AtomicUsize::new(0);

const DESTROYED: u32 = 4;
const SHARED: u32 = 1;

/// Words of a barrier: the number of threads, and whether it is process-shared.
const COUNT: usize = 2;
const SHARED_WORD: usize = 3;
/// The value of `SHARED_WORD` for a process-shared barrier.
const ALL_PROCESSES: u32 = 128;

/// Determines the layout.
pub(crate) fn prepare() {
    let new = || [const { AtomicU32::new(0) }; BYTES / 4];
    let is = |words: &Words, expected: &[(usize, u32)]| {
        words.iter().enumerate().all(|(place, word)| {
            let expected = expected.iter().find(|(at, _)| *at == place);
            word.load(Ordering::Relaxed) == expected.map_or(0, |(_, value)| *value)
        })
    };
    let cond: Words = new();
    // SAFETY: zeroed memory is a condition variable without waiters.
    unsafe { real::pthread_cond_destroy(cond.as_ptr().cast_mut().cast()) };
    let place = (0..cond.len()).find(|place| is(&cond, &[(*place, DESTROYED)]));
    USES.store(place.map_or(0, |place| place + 1), Ordering::Relaxed);
    let barrier: Words = new();
    let it = barrier.as_ptr().cast_mut().cast();
    // SAFETY: the memory is large enough for a barrier.
    unsafe { real::pthread_barrier_init(it, core::ptr::null(), 7) };
    let knows = is(&barrier, &[(COUNT, 7)]);
    KNOWS_BARRIERS.store(usize::from(knows), Ordering::Relaxed);
    // SAFETY: the barrier was initialised above.
    unsafe { real::pthread_barrier_destroy(it) };
}

/// The words of a condition variable, and the value of the word with the flags.
fn words(cond: *const Opaque) -> Option<(&'static Words, u32)> {
    let place = USES.load(Ordering::Relaxed).checked_sub(1)?;
    // SAFETY: the program passes it as a condition variable, which lives as long as the call.
    let words = unsafe { &*cond.cast::<Words>() };
    Some((words, words[place].load(Ordering::Relaxed)))
}

/// A condition variable is about to be notified.
#[inline]
pub(crate) fn check_destroyed(cond: *const Opaque, at: usize) {
    if words(cond).is_some_and(|(_, uses)| uses & DESTROYED != 0 && uses >> 3 == 0) {
        object::uses_no_lock(cond, Kind::Condvar, NoLock::Ended, at);
    }
}

/// A condition variable is about to be used.
pub(crate) fn check_use(cond: *const Opaque, at: usize) {
    check_destroyed(cond, at);
    if let Some((words, uses)) = words(cond)
        && uses & (DESTROYED | SHARED) == 0
        && words.iter().any(|word| word.load(Ordering::Relaxed) != 0)
        && is_new(cond, Kind::Condvar)
    {
        object::uses_no_lock(cond, Kind::Condvar, NoLock::Unmade, at);
    }
}

/// Whether the checker knows nothing of an object. (The child of a fork may have it from its parent, whose board had no
/// room for it.)
fn is_new(object: *const Opaque, kind: Kind) -> bool {
    checked::is_first()
        && object::at(object, kind).is_some_and(|object| keeping_errno(|| hook::is_unknown(object)))
}

/// A condition variable is about to be initialised.
pub(crate) fn check_init(cond: *const Opaque, at: usize) {
    if words(cond).is_some_and(|(_, uses)| uses & (DESTROYED | SHARED) == 0) {
        object::initialised_again(cond, Kind::Condvar, at);
    }
}

/// A barrier is about to be used.
pub(crate) fn check_barrier(barrier: *const Opaque, at: usize) {
    // SAFETY: the program passes it as a barrier, which lives as long as the call and is large enough for this word.
    let shared = unsafe { &(*barrier.cast::<Words>())[SHARED_WORD] };
    if KNOWS_BARRIERS.load(Ordering::Relaxed) != 0
        && shared.load(Ordering::Relaxed) != ALL_PROCESSES
    {
        check_ended(barrier, Kind::Barrier, at);
        if is_new(barrier, Kind::Barrier) {
            object::uses_no_lock(barrier, Kind::Barrier, NoLock::Unmade, at);
        }
    }
}

/// A semaphore is about to be used. The word checked here has only two valid values.
pub(crate) fn check_semaphore(semaphore: *const Opaque, at: usize) {
    // SAFETY: the program passes it as a semaphore, which lives as long as the call.
    let shared = unsafe { &(*semaphore.cast::<Words>())[2] };
    match shared.load(Ordering::Relaxed) {
        0 => check_ended(semaphore, Kind::Semaphore, at),
        ALL_PROCESSES => {}
        _ => object::uses_no_lock(semaphore, Kind::Semaphore, NoLock::Overwritten, at),
    }
}

/// Whether an object was destroyed of a kind that only a call can initialise again.
static ANY_DESTROYED: AtomicUsize = AtomicUsize::new(0);

/// An object of such a kind was destroyed.
pub(crate) fn note_destroyed() {
    if ANY_DESTROYED.load(Ordering::Relaxed) == 0 {
        ANY_DESTROYED.store(1, Ordering::Relaxed);
    }
}

fn check_ended(object: *const Opaque, kind: Kind, at: usize) {
    if ANY_DESTROYED.load(Ordering::Relaxed) != 0
        && let Some(lock) = object::at(object, kind)
        && keeping_errno(|| hook::has_ended(lock))
    {
        object::uses_no_lock(object, kind, NoLock::Ended, at);
    }
}
