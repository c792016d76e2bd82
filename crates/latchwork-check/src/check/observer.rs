//! The checker as an [`Observer`], and all functions by which locks report to it.
//!
//! `Checked` calls [`Checker`] by its name, other locks of this library through the table that [`begin`] registers, and
//! foreign locks call the functions of [`hook`](super::hook). Each function here enters the calling thread into the
//! checker ([`Own::enter`]), so that locks that the checker itself takes are not checked, and calls the function of
//! `observe/` that handles the event.

use super::configure;
use super::observe::lookup::{self, NoLock};
use super::observe::{acquire, ended_threads, fast_path, lifetime, misuse, release, sleep};
use super::record::own::{Busy, Own};
use super::record::rule::Rule;
use super::record::tag::Tag;
use super::record::{known, settings, sites};
use crate::atomic::{AtomicU64, Ordering};
use crate::hook::{How, Kind, Lock, Misuse, Mode, Observer, Site, Table, Verdict};
use crate::task::Me;
use crate::time::Deadline;
use core::ops::Range;

/// See the head of this file.
pub struct Checker;

/// Has semaphores, events and queues report what they do from now on, for the beginning of a program; so does the
/// first use of a checked lock. With the feature `check` it has been called before `main` and before the program's
/// constructors (those of a priority below 90 excepted).
///
/// Earlier events are lost: of a handle on a semaphore with an owner that was made before this call, only waits are
/// checked; and a task that obtains a semaphore by a handle that was made later must also release it by such a handle.
pub fn begin() {
    static TABLE: Table = Table::of::<Checker>();
    crate::hook::observe(&TABLE);
}

/// The feature `check` begins as soon as the program, or the library that contains it, is loaded.
#[cfg(all(feature = "check", not(miri)))]
extern "C" fn begins() {
    begin();
}

// SAFETY: a section of pointers to such functions. Its number places it before constructors without a priority.
#[cfg(all(feature = "check", not(miri)))]
#[used]
#[unsafe(link_section = ".init_array.00090")]
static BEGINS: extern "C" fn() = begins;

/// A thread is checked for the first time. Returns whether threads are checked.
#[cold]
fn start() -> bool {
    configure::read();
    if settings::has(settings::OFF) {
        return false;
    }
    begin();
    true
}

/// The calling thread, unless it is in the checker already, is about to end, or has no room.
#[inline]
pub(super) fn enter() -> Option<Busy> {
    Own::enter(start)
}

/// Defines methods that forward to the functions of the same names.
macro_rules! forward {
    ($(fn $name:ident($($argument:ident: $Type:ty),*) $(-> $Answer:ty)?;)*) => {$(
        #[inline(always)]
        fn $name($($argument: $Type),*) $(-> $Answer)? {
            $name($($argument),*)
        }
    )*};
}

impl Observer for Checker {
    forward! {
        fn wants(lock: Lock, mode: Mode, timed: bool, site: Site) -> Verdict;
        fn taken(lock: Lock, mode: Mode, how: How, site: Site);
        fn gave_up(lock: Lock);
        fn releasing(lock: Lock, site: Site) -> Verdict;
        fn releases(lock: Lock, site: Site);
        fn destroyed(lock: Lock, site: Site);
        fn condvar_begins(condvar: Lock, mutex: Lock, timed: bool, site: Site) -> Verdict;
        fn condvar_ends(condvar: Lock, mutex: Lock, has_mutex: bool, site: Site);
        fn waits(object: Lock, timed: bool, site: Site) -> bool;
        fn waits_alone(object: Lock, site: Site);
        fn has_waited(object: Lock);
        fn named(object: Lock, name: &str, site: Site);
        fn ended(object: Lock);
        fn misused(object: Lock, misuse: Misuse, site: Site);
    }

    #[inline(always)]
    fn notifies(condvar: Lock, all: bool) {
        sleep::condvar_notifies(condvar, all);
    }

    #[inline(always)]
    fn freed(range: Range<usize>) {
        freed(range, Site::UNKNOWN);
    }

    /// A thread that has no record, as in the child of a fork, begins again at its first lock.
    #[inline(always)]
    fn task_ends() -> bool {
        Own::enter_if_known().is_some_and(ended_threads::goes_on)
    }
}

/// Defines functions that enter the calling thread and call the handler of an event. What follows `else` is what they do
/// for a thread that cannot be entered.
macro_rules! events {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($argument:ident: $Type:ty),*) $(-> $Answer:ty)?
       = $handler:path $(, else $otherwise:expr)?;)*) => {$(
        $(#[$meta])*
        $vis fn $name($($argument: $Type),*) $(-> $Answer)? {
            match enter() {
                Some(own) => $handler(&own, $($argument),*),
                None => { $($otherwise)? }
            }
        }
    )*};
}

events! {
    /// The calling task cannot acquire a lock at once, and is about to wait for it; until a deadline, if `timed`.
    pub fn wants(lock: Lock, mode: Mode, timed: bool, site: Site) -> Verdict = acquire::wants, else Verdict::Go;

    /// As [`taken`], by the slow path.
    #[inline(never)]
    pub(super) fn taken_slowly(lock: Lock, mode: Mode, how: How, site: Site) = acquire::taken;

    /// The wait that [`next_report_time`] refers to goes on, and has lasted until then.
    pub fn still_waits() = acquire::still_waits;

    /// As [`releasing`], by the slow path.
    #[inline(never)]
    pub(super) fn releasing_slowly(lock: Lock, site: Site) -> Verdict = release::releasing, else Verdict::Go;

    /// The calling task is about to release a mutex and wait for a condition.
    pub fn condvar_begins(condvar: Lock, mutex: Lock, timed: bool, site: Site) -> Verdict
        = sleep::condvar_begins, else Verdict::Go;

    /// The calling task is about to sleep for an object that has no owner. Returns whether no other task
    /// was found that could end this sleep.
    pub fn waits(object: Lock, timed: bool, site: Site) -> bool = sleep::waits, else false;

    /// Called after [`waits`] returned `true`, if the object still requires a sleep.
    fn waits_alone(object: Lock, site: Site) = sleep::waits_alone;

    /// The interface has initialised a lock at this address.
    pub fn initialised(lock: Lock, name: Option<&str>, site: Site) = lifetime::initialised;

    /// A lock with a tag is used for the first time.
    pub(super) fn introduced(lock: Lock, tag: &Tag) = lifetime::introduced, else { tag.settle(); };

    /// The interface is about to destroy a lock.
    pub fn destroyed(lock: Lock, site: Site) = lifetime::destroyed;

    /// There is an object of this name.
    fn named(lock: Lock, name: &str, site: Site) = lifetime::named;

    /// An object that no task owned was deleted.
    fn ended(lock: Lock) = lifetime::ended;

    /// The memory of a lock that [`locks_in`] has named is free by now. Nothing happens if the lock has another generation:
    /// then the memory is in use again, and contains another lock.
    pub fn freed_meanwhile(address: usize, generation: u32, site: Site) = lifetime::freed_meanwhile;

    #[cold]
    fn freed_with_locks(range: Range<usize>, site: Site) = lifetime::freed;

    /// An object has refused a call, or should have.
    fn misused(lock: Lock, misuse: Misuse, site: Site) = misuse::misused;

    /// The memory at this address is not a lock that the interface made: it was zeroed, overwritten or copied. `why` is
    /// the end of a sentence that begins with the task.
    pub fn not_a_lock(lock: Lock, rule: Rule, why: &str, site: Site) = misuse::not_a_lock;

    /// A line of a source file, as a site. Reports show it as `file:line`.
    #[must_use]
    pub fn source_line(file: &str, line: u32) -> Site = sites::site_of_line, else Site::UNKNOWN;

    /// A call of this name failed with this error because of how it was made. This is reported once for each place, and
    /// not if the call has broken another rule of the same object.
    pub fn failed(object: Lock, call: &str, error: i32, site: Site) = misuse::failed;

    /// Whether an object was never made by its interface, nor used, as far as the checker can know.
    #[must_use]
    pub fn is_unknown(object: Lock) -> bool = misuse::is_unknown, else false;

    /// Whether an object with at least these traits was made by its interface since the checker began, and still exists.
    #[must_use]
    pub fn is_made(object: Lock) -> bool = misuse::is_made, else false;

    /// Whether an object was destroyed by its interface, and its memory has not been used otherwise since. Never of an
    /// object in memory that processes share, where another one may have initialised it again.
    #[must_use]
    pub fn has_ended(object: Lock) -> bool = misuse::has_ended, else false;

    /// An object is initialised that may be initialised already, and was not destroyed. This is reported if its memory
    /// was certainly not freed meanwhile: for variables of modules; and for the heap, if the caller `sees_frees`.
    pub fn initialised_again(object: Lock, sees_frees: bool, site: Site) = misuse::initialised_again;

    /// An object of so many bytes is about to be destroyed. Threads that still sleep on it are reported, `most` of them
    /// at most: so many the object itself counts as blocked. Woken threads do not count, since they no longer sleep, or
    /// sleep on their mutex. Neither do waiters of a condition variable that were all notified: they are not blocked,
    /// wherever the C library lets them sleep until they return.
    pub fn ends_for_sleepers(object: Lock, bytes: usize, most: usize, site: Site) = misuse::ends_for_sleepers;

    fn hint_at_notification(condvar: Lock, site: Site) = misuse::notifies_without_mutex;

    /// A lock is about to be used, or was just made, and its memory does not contain `mark` where it should. So there
    /// is another lock now, and what was known of the one before no longer counts. (Unless another task holds that one:
    /// then it was overwritten, and its consequences are reported.) If the calling task is checked, the memory contains
    /// the mark from now on.
    ///
    /// `mark` is unique to this address, and not zero. The memory stays a lock's until the call returns.
    #[cold]
    #[inline(never)]
    pub fn unmarked(lock: Lock, place: &AtomicU64, mark: u64, site: Site) = lifetime::unmarked;
}

/// The calling task has acquired a lock.
#[inline(never)]
pub fn taken(lock: Lock, mode: Mode, how: How, site: Site) {
    if !fast_path::taken_as_usual(lock, mode, how, site) {
        taken_slowly(lock, mode, how, site);
    }
}

/// The wait that [`wants`] began is over without the lock.
pub fn gave_up(_lock: Lock) {
    if let Some(own) = enter() {
        acquire::end_wait(&own);
    }
}

/// Whether the calling task holds a lock.
pub(super) fn holds(lock: Lock) -> bool {
    enter().is_some_and(|own| own.find(lock.address()).is_some())
}

/// The time at which something will have to be reported about the current wait, in nanoseconds on CLOCK_MONOTONIC: a
/// call that can is to call [`still_waits`] then, and to go on waiting.
#[must_use]
pub fn next_report_time() -> Option<u64> {
    enter()?.wait.get()?.next()
}

/// As [`next_report_time`], if that is before the deadline of the wait.
pub(super) fn report_before(deadline: Option<Deadline>) -> Option<Deadline> {
    let report = next_report_time().map(Deadline::from_nanoseconds);
    report.filter(|report| deadline.is_none_or(|deadline| *report < deadline))
}

/// As [`fast_path::releasing_as_usual`], but not inlined: one copy for all checked locks of a program.
#[inline(never)]
pub(super) fn releasing_as_usual(lock: Lock, site: Site) -> Option<fast_path::Since> {
    fast_path::releasing_as_usual(lock, site)
}

/// The calling task is about to release a lock.
#[inline(never)]
pub fn releasing(lock: Lock, site: Site) -> Verdict {
    match fast_path::releasing_as_usual(lock, site) {
        Some(since) => since.is_over(),
        None => return releasing_slowly(lock, site),
    }
    Verdict::Go
}

/// The calling task is about to release an object that it owns by the object's own records. If the task acquired it
/// before the checker began, the checker does not know of it.
fn releases(lock: Lock, site: Site) {
    if holds(lock) {
        let _ = releasing(lock, site);
    }
}

/// There is a lock at this address, which may not have been reported yet. Only for a lock that is free: the holder of
/// another lock would be unknown.
pub fn seen(lock: Lock, site: Site) {
    if let Some(own) = enter() {
        lookup::know(&own, lock, site);
    }
}

/// The wait for a condition is over, and the mutex is held again, unless it could not be acquired.
pub fn condvar_ends(condvar: Lock, mutex: Lock, has_mutex: bool, site: Site) {
    if let Some(own) = enter() {
        sleep::condvar_ends(&own, condvar);
    }
    if has_mutex {
        taken(mutex, Mode::Exclusive, How::Again, site);
    }
}

/// As [`condvar_ends`], for the wait that the record of the calling task shows.
pub(super) fn condvar_wait_ends(mutex: Lock, has_mutex: bool) {
    let wait = enter().map(|own| sleep::current(&own));
    let (condvar, site) = wait.unwrap_or((0, Site::UNKNOWN));
    condvar_ends(Lock::new(condvar, Kind::Condvar), mutex, has_mutex, site);
}

/// The sleep that [`waits`] began is over.
pub fn has_waited(_object: Lock) {
    if let Some(own) = enter() {
        own.end_wait();
    }
}

/// Memory is about to be freed, or its mapping to end.
#[inline]
pub fn freed(range: Range<usize>, site: Site) {
    if known::may_be_in(&range) {
        freed_with_locks(range, site);
    }
}

/// Names the locks in a range of memory, each by its address and its generation, for [`freed_meanwhile`]: if memory can
/// be reported as free only when another task may use it already.
pub fn locks_in(range: Range<usize>, mut name: impl FnMut(usize, u32)) {
    if let Some(_own) = enter().filter(|_| known::may_be_in(&range)) {
        for entry in known::in_range(range) {
            let address = entry.address.load(Ordering::Relaxed);
            name(address as usize, entry.generation.load(Ordering::Relaxed));
        }
    }
}

/// The calling task uses memory as a lock that contains none.
pub fn uses_no_lock(lock: Lock, what: NoLock, site: Site) {
    let (rule, why) = what.breach();
    not_a_lock(lock, rule, why, site);
}

/// A condition variable is about to be notified. Reports a hint if a task waits for it with a mutex that the calling
/// task does not hold.
pub fn notifies_without_mutex(condvar: Lock, site: Site) {
    if settings::has(settings::HINTS) {
        hint_at_notification(condvar, site);
    }
}

/// The calling thread is about to end, with all the locks that it holds.
pub fn task_ends(site: Site) {
    if let Some(own) = Own::enter_if_known() {
        ended_threads::ends(own, site);
    }
}

/// Whether the calling thread is checked: it has reported something, or called [`forked`]. An interposer that tests
/// this has nothing set up within an allocator's lock.
#[inline]
#[must_use]
pub fn knows_this_thread() -> bool {
    Me::current_or_none().checked() != 0
}

/// For the child of a fork, as its first step: it keeps the forking thread's stack of locks, and begins a board of its
/// own. (Without this call that happens at its first lock.)
pub fn forked() {
    drop(enter());
}

/// A lock that the calling task holds was really acquired at another place: by the caller of a wrapper.
pub fn re_site(lock: Lock, site: Site) {
    if let Some(own) = enter()
        && let Some((place, _)) = own.find(lock.address())
    {
        own.know_site(site);
        own.change(place, |mine| mine.site = site);
    }
}
