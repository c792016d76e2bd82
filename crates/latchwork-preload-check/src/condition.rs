//! What the memory of glibc's condition variables, barriers and semaphores says of misuse.
//!
//! Where glibc keeps what was found out with objects of this library's own as it starts ([`prepare`]); where that comes out
//! otherwise than expected, nothing is said.
#![allow(unsafe_code)]

use crate::object::{self, Opaque};
use crate::{real, start};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use latchwork::check::hook::{self, Kind, NoLock};
use latchwork_interpose::errno::keeping_errno;

/// Bytes of a `pthread_cond_t`.
pub(crate) const BYTES: usize = 48;
/// Bytes of a `pthread_barrier_t`, and of a `sem_t`.
pub(crate) const OTHER_BYTES: usize = 32;

type Words = [AtomicU32; BYTES / 4];

/// Which word of a condition variable says that it was destroyed, and that processes share it; + 1.
static USES: AtomicUsize = AtomicUsize::new(0);
/// A barrier's words are where they are expected.
static KNOWS_BARRIERS: AtomicUsize = AtomicUsize::new(0);

const DESTROYED: u32 = 4;
const SHARED: u32 = 1;

/// Words of a barrier: how many tasks it is for, and for whom.
const COUNT: usize = 2;
const FOR_WHOM: usize = 3;
/// In there: for tasks of all processes.
const ALL_PROCESSES: u32 = 128;

/// Finds out what stands where.
pub(crate) fn prepare() {
    let new = || [const { AtomicU32::new(0) }; BYTES / 4];
    let is = |words: &Words, expected: &[(usize, u32)]| {
        words.iter().enumerate().all(|(place, word)| {
            let expected = expected.iter().find(|(at, _)| *at == place);
            word.load(Ordering::Relaxed) == expected.map_or(0, |(_, value)| *value)
        })
    };
    let cond: Words = new();
    // SAFETY: zeros are a condition variable that nobody waits for.
    unsafe { real::pthread_cond_destroy(cond.as_ptr().cast_mut().cast()) };
    let place = (0..cond.len()).find(|place| is(&cond, &[(*place, DESTROYED)]));
    USES.store(place.map_or(0, |place| place + 1), Ordering::Relaxed);
    let barrier: Words = new();
    let it = barrier.as_ptr().cast_mut().cast();
    // SAFETY: memory for one, and more.
    unsafe { real::pthread_barrier_init(it, core::ptr::null(), 7) };
    let knows = is(&barrier, &[(COUNT, 7)]);
    KNOWS_BARRIERS.store(usize::from(knows), Ordering::Relaxed);
    // SAFETY: made above.
    unsafe { real::pthread_barrier_destroy(it) };
}

/// The words of a condition variable, and which of them says more.
fn words(cond: *const Opaque) -> Option<(&'static Words, u32)> {
    let place = USES.load(Ordering::Relaxed).checked_sub(1)?;
    // SAFETY: the program calls it a condition variable, which lives as long as the call.
    let words = unsafe { &*cond.cast::<Words>() };
    Some((words, words[place].load(Ordering::Relaxed)))
}

/// A condition variable is about to be notified.
#[inline]
pub(crate) fn look_for_end(cond: *const Opaque, at: usize) {
    if words(cond).is_some_and(|(_, uses)| uses & DESTROYED != 0 && uses >> 3 == 0) {
        object::uses_no_lock(cond, Kind::Condvar, NoLock::Ended, at);
    }
}

/// A condition variable is about to be used.
pub(crate) fn look(cond: *const Opaque, at: usize) {
    look_for_end(cond, at);
    if let Some((words, uses)) = words(cond)
        && uses & (DESTROYED | SHARED) == 0
        && words.iter().any(|word| word.load(Ordering::Relaxed) != 0)
        && is_new(cond, Kind::Condvar)
    {
        object::uses_no_lock(cond, Kind::Condvar, NoLock::Unmade, at);
    }
}

/// Whether nothing is known of an object. (The child of a fork may have it from its parent, which had no room.)
fn is_new(object: *const Opaque, kind: Kind) -> bool {
    start::is_first()
        && object::at(object, kind).is_some_and(|object| keeping_errno(|| hook::is_unknown(object)))
}

/// A condition variable is about to be initialised.
pub(crate) fn look_before_init(cond: *const Opaque, at: usize) {
    if words(cond).is_some_and(|(_, uses)| uses & (DESTROYED | SHARED) == 0) {
        object::made_again(cond, Kind::Condvar, at);
    }
}

/// A barrier is about to be used.
pub(crate) fn look_at_barrier(barrier: *const Opaque, at: usize) {
    // SAFETY: as for condition variables; its words are fewer.
    let for_whom = unsafe { &(*barrier.cast::<Words>())[FOR_WHOM] };
    if KNOWS_BARRIERS.load(Ordering::Relaxed) != 0
        && for_whom.load(Ordering::Relaxed) != ALL_PROCESSES
    {
        look_at_end(barrier, Kind::Barrier, at);
        if is_new(barrier, Kind::Barrier) {
            object::uses_no_lock(barrier, Kind::Barrier, NoLock::Unmade, at);
        }
    }
}

/// A semaphore is about to be used. What it is for is no number of any other meaning.
pub(crate) fn look_at_semaphore(semaphore: *const Opaque, at: usize) {
    // SAFETY: the program calls it a semaphore.
    let for_whom = unsafe { &(*semaphore.cast::<Words>())[2] };
    match for_whom.load(Ordering::Relaxed) {
        0 => look_at_end(semaphore, Kind::Semaphore, at),
        ALL_PROCESSES => {}
        _ => object::uses_no_lock(semaphore, Kind::Semaphore, NoLock::Overwritten, at),
    }
}

/// Objects that nothing but a call makes again, and of which one was destroyed.
static HAVE_ENDED: AtomicUsize = AtomicUsize::new(0);

/// An object of that sort was destroyed.
pub(crate) fn has_ended() {
    if HAVE_ENDED.load(Ordering::Relaxed) == 0 {
        HAVE_ENDED.store(1, Ordering::Relaxed);
    }
}

fn look_at_end(object: *const Opaque, kind: Kind, at: usize) {
    if HAVE_ENDED.load(Ordering::Relaxed) != 0
        && let Some(lock) = object::at(object, kind)
        && keeping_errno(|| hook::has_ended(lock))
    {
        object::uses_no_lock(object, kind, NoLock::Ended, at);
    }
}
