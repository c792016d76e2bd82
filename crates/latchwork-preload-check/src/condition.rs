//! What the memory of glibc's condition variables, barriers and semaphores shows of misuse.
//!
//! At the start, [`prepare`] determines glibc's layout with objects of this library's own; if the result is not as
//! expected, nothing is reported.
//!
//! An object that the checker does not know may have been made before the checker began: by the constructor of a
//! library, whose threads may use it, too. So an object counts as never initialised only if its words cannot be those
//! of any object, in whatever state it is and whatever other threads do with it meanwhile ([`cannot_be_cond`],
//! [`cannot_be_barrier`]). Other memory that was never initialised is not detected.
#![allow(unsafe_code)]

use crate::layout::{Mutex, Opaque};
use crate::object;
use crate::{checked, real};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use latchwork::check::hook::{self, Kind, NoLock};
use latchwork_interpose::errno::keeping_errno;
use libc::timespec;

/// The size of a `pthread_cond_t` in bytes.
pub(crate) const BYTES: usize = 48;
/// The size of a `pthread_barrier_t`, and of a `sem_t`.
pub(crate) const OTHER_BYTES: usize = 32;

type Words = [AtomicU32; BYTES / 4];

/// The index, plus 1, of the word that says whether a condition variable was destroyed, whether it is process-shared,
/// and how many threads wait for it.
static USES: AtomicUsize = AtomicUsize::new(0);
/// Whether a barrier's words are where they are expected.
static KNOWS_BARRIERS: AtomicUsize = AtomicUsize::new(0);

const DESTROYED: u32 = 4;
const SHARED: u32 = 1;
/// The bits of that word that are flags. The others are the number of waiting threads.
const FLAGS: u32 = 3;

/// The first words of two numbers of a condition variable, of 64 bits each. Without their lowest bits they are the
/// number of waits that ever began, and how many of these are of closed groups: so the second is at most the first.
const WAITS: usize = 0;
const CLOSED: usize = 2;

/// Words of a barrier: the number of threads that have arrived; that number at the end of the last complete round;
/// the number of threads in a round; whether it is process-shared; the number of threads that have left.
const ARRIVED: usize = 0;
const ROUND: usize = 1;
const COUNT: usize = 2;
const SHARED_WORD: usize = 3;
const LEFT: usize = 4;
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
    let place = place.filter(|_| counts_waits());
    USES.store(place.map_or(0, |place| place + 1), Ordering::Relaxed);
    let of_seven: Words = new();
    let of_one: Words = new();
    // SAFETY: the memory is large enough for a barrier. Each is destroyed as it was initialised, and nothing waits for
    // a barrier of one thread.
    let knows = unsafe {
        let [seven, one] = [&of_seven, &of_one].map(|words| words.as_ptr().cast_mut().cast());
        real::pthread_barrier_init(seven, core::ptr::null(), 7);
        real::pthread_barrier_init(one, core::ptr::null(), 1);
        real::pthread_barrier_wait(one);
        let used = [(ARRIVED, 1), (ROUND, 1), (COUNT, 1), (LEFT, 1)];
        let knows = is(&of_seven, &[(COUNT, 7)]) && is(&of_one, &used);
        real::pthread_barrier_destroy(seven);
        real::pthread_barrier_destroy(one);
        knows
    };
    KNOWS_BARRIERS.store(usize::from(knows), Ordering::Relaxed);
}

/// Whether the first two numbers of a condition variable are [`WAITS`] and [`CLOSED`]: after a wait without a
/// notification the first one is 1 (times two), and the second 0.
fn counts_waits() -> bool {
    let cond: Words = [const { AtomicU32::new(0) }; BYTES / 4];
    let mutex = [const { AtomicU64::new(0) }; size_of::<Mutex>() / size_of::<u64>()];
    let (cond_at, mutex_at) = (cond.as_ptr().cast_mut().cast(), mutex.as_ptr().cast_mut());
    let mutex_at = mutex_at.cast();
    let past = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: zeroed memory is a mutex, and a condition variable, of this thread alone.
    unsafe {
        real::pthread_mutex_lock(mutex_at);
        real::pthread_cond_timedwait(cond_at, mutex_at, &raw const past);
        real::pthread_mutex_unlock(mutex_at);
    }
    number(&cond, WAITS) == 2 && number(&cond, CLOSED) == 0
}

/// The number of 64 bits that begins with this word, and never decreases.
fn number(words: &Words, at: usize) -> u64 {
    let half = |at: usize| u64::from(words[at].load(Ordering::Acquire));
    loop {
        let (high, low) = (half(at + 1), half(at));
        if half(at + 1) == high {
            return high << 32 | low;
        }
    }
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
        && cannot_be_cond(words, uses)
        && is_new(cond, Kind::Condvar)
    {
        object::uses_no_lock(cond, Kind::Condvar, NoLock::Unmade, at);
    }
}

/// Whether no condition variable can have these words: more waits have begun than in years of nothing else, or fewer
/// than have ended, or more threads wait than a system can have.
fn cannot_be_cond(words: &Words, uses: u32) -> bool {
    /// At 100 ns for a wait this takes more than 100 years.
    const MOST_WAITS: u64 = 1 << 55;
    /// Four times the largest `pid_max` of Linux.
    const MOST_THREADS: u32 = 1 << 24;
    // In this order, since the second number was at least the first when the first was read, and only grows.
    let closed = number(words, CLOSED) >> 1;
    let waits = number(words, WAITS) >> 1;
    waits >= MOST_WAITS || closed > waits || uses >> FLAGS > MOST_THREADS
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
    let Some(words) = barrier_words(barrier) else {
        return;
    };
    if words[SHARED_WORD].load(Ordering::Relaxed) != ALL_PROCESSES {
        check_ended(barrier, Kind::Barrier, at);
    }
    if cannot_be_barrier(words) && is_new(barrier, Kind::Barrier) {
        object::uses_no_lock(barrier, Kind::Barrier, NoLock::Unmade, at);
    }
}

type BarrierWords = [AtomicU32; OTHER_BYTES / 4];

/// The words of a barrier, if their meaning is known.
fn barrier_words(barrier: *const Opaque) -> Option<&'static BarrierWords> {
    // SAFETY: the program passes it as a barrier, which lives as long as the call.
    let words = || unsafe { &*barrier.cast::<BarrierWords>() };
    (KNOWS_BARRIERS.load(Ordering::Relaxed) != 0).then(words)
}

/// Whether no barrier can have these words, which only an initialisation changes: it refuses other counts, and stores
/// one of two values for the processes.
fn cannot_be_barrier(words: &BarrierWords) -> bool {
    const MOST_THREADS: u32 = u32::MAX / 2;
    let [count, shared] = [COUNT, SHARED_WORD].map(|at| words[at].load(Ordering::Relaxed));
    count == 0 || count >= MOST_THREADS || !matches!(shared, 0 | ALL_PROCESSES)
}

/// How many threads are blocked on a barrier: those that have arrived in a round that is not complete. The last thread
/// to arrive first marks the round as complete, and then wakes the others one by one. So when the first of them has
/// returned, and destroys the barrier, others may still sleep, but are not blocked: glibc's function waits for them.
/// 0 also if the layout is not known.
pub(crate) fn blocked_on(barrier: *const Opaque) -> usize {
    let Some(words) = barrier_words(barrier) else {
        return 0;
    };
    // A thread that has returned synchronises with all that arrived in its round. In this order, since of two numbers
    // that grow, the second one was at most the first.
    let word = |at: usize| words[at].load(Ordering::Acquire);
    let round = word(ROUND);
    let arrived = word(ARRIVED).wrapping_sub(round);
    // A round that has all its threads is about to be marked as complete.
    arrived.checked_rem(word(COUNT)).unwrap_or(0) as usize
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
