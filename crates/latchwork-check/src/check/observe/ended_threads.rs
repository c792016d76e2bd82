//! Threads that have ended with locks held.
//!
//! When a process ends, its locks end with it, and some processes end a thread first: a Java virtual machine ends a
//! thread that keeps the world stopped, and exits. So where joins are reported to the checker ([`joins_are_reported`]), the
//! end of a thread is kept here, and reported when the process is seen to go on: when the thread is joined, or when one
//! of the locks is wanted. With the setting `exit`, entries that remain at the process's end are reported then,
//! together with all locks that are held at that time. Where joins are not reported, an end is reported at once.
//!
//! *Bounds:* [`MOST`] ends at a time; others are reported at once.
//!
//! *When a thread has ended:* its destructors run one after the other: first those of its thread-locals, then those of
//! its keys (`pthread_key_create`), in rounds. The destructor of the thread's record is one of the latter, and a later
//! one may release what the thread holds. So a thread that holds something is checked again in the next round, and in
//! the one after that. There is no fourth round, since the round of the first check is unknown: a thread may have
//! locked for the first time in a key's destructor. A lock that is released after the third check, or that is taken
//! then and released by a still later destructor, is a false positive.

use crate::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::check::detect::visible_tasks::TaskRef;
use crate::check::record::board;
use crate::check::record::own::{Busy, HeldEntry, Own};
use crate::check::record::process::ProcessId;
use crate::check::record::settings;
use crate::check::report::findings::{self, Deed};
use crate::check::report::{finding::TaskText, words};
use crate::hook::record::{load_name, name_of, pack, store_name, unpack};
use crate::hook::{Lock, Mode, RecordedSite, Site};
use crate::sys::cancellation::Undisturbed;
use crate::sys::{thread, thread_end::ROUNDS};
use crate::task;

const MOST: usize = 64;

/// A lock that a thread held when it ended. Relaxed throughout: under the board's lock.
struct Ended {
    /// The thread's handle, as the caller of a join has it; 0 if the entry is empty.
    handle: AtomicU64,
    lock: AtomicU64,
    what: AtomicU32,
    site: AtomicU64,
    process: AtomicU32,
    thread: AtomicU32,
    name: [AtomicU64; 2],
    /// Identifies the lock among those that were at its address.
    generation: AtomicU32,
}

static ENDED: [Ended; MOST] = [const {
    Ended {
        handle: AtomicU64::new(0),
        lock: AtomicU64::new(0),
        what: AtomicU32::new(0),
        site: AtomicU64::new(0),
        process: AtomicU32::new(0),
        thread: AtomicU32::new(0),
        name: [const { AtomicU64::new(0) }; 2],
        generation: AtomicU32::new(0),
    }
}; MOST];
/// How many entries are in use. Relaxed: a thread that must find one has synchronised with the thread's end, or finds
/// its lock taken.
static COUNT: AtomicU32 = AtomicU32::new(0);
static JOINS_ARE_REPORTED: AtomicBool = AtomicBool::new(false);

/// Declares that each join of a thread will be reported by [`joined`]. Meant for the start of a program.
pub fn joins_are_reported() {
    JOINS_ARE_REPORTED.store(true, Ordering::Relaxed);
}

/// The thread's end has begun, or goes on. Returns whether the thread is to be checked again, and must be known until
/// then.
pub(crate) fn goes_on(own: Busy) -> bool {
    let (process, thread) = own.identity();
    let holds = process != thread && own.locks().next().is_some();
    if holds && checks_again(&own) {
        own.end_copies();
        return true;
    }
    ends(own, Site::UNKNOWN);
    false
}

fn checks_again(own: &Own) -> bool {
    own.ends.set(own.ends.get() + 1);
    own.ends.get() < ROUNDS - 1 && task::end_again()
}

pub(crate) fn ends(own: Busy, site: Site) {
    for mine in own.locks() {
        ends_with(&own, &mine, site);
    }
    Own::end(own);
}

/// The calling thread ends, and holds a lock.
fn ends_with(own: &Own, mine: &HeldEntry, site: Site) {
    let (process, thread) = own.identity();
    if process == thread {
        // The process usually ends with its first thread.
        if settings::has(settings::EXIT) {
            report(own, mine, site);
        }
    } else if !JOINS_ARE_REPORTED.load(Ordering::Relaxed) || !keep(own, mine) {
        report(own, mine, site);
    }
}

fn report(own: &Own, mine: &HeldEntry, site: Site) {
    let (lock, mode) = mine.lock();
    let (who, taken) = (words::me(own), mine.site.into());
    findings::ends_holding(who, lock, mode, taken, site, while_holding());
}

fn while_holding() -> Deed<'static> {
    format_args!("ended while holding").into()
}

/// Stores an end. Returns whether there was room.
fn keep(own: &Own, mine: &HeldEntry) -> bool {
    let (process, thread) = own.identity();
    let (lock, mode) = mine.lock();
    let kept = board::alone(|_| {
        let mut all = ENDED.iter();
        let free = all.find(|ended| ended.handle.load(Ordering::Relaxed) == 0)?;
        free.lock.store(lock.address() as u64, Ordering::Relaxed);
        free.what.store(pack(lock, mode), Ordering::Relaxed);
        free.site.store(mine.site.raw(), Ordering::Relaxed);
        free.process.store(process, Ordering::Relaxed);
        free.thread.store(thread, Ordering::Relaxed);
        store_name(&free.name, &thread::name());
        free.generation
            .store(generation_of(lock).unwrap_or(0), Ordering::Relaxed);
        free.handle
            .store(thread::handle() as u64, Ordering::Relaxed);
        COUNT.fetch_add(1, Ordering::Relaxed);
        Some(())
    });
    kept.is_some()
}

fn generation_of(lock: Lock) -> Option<u32> {
    let entry = board::board()?.lock(lock.address())?;
    Some(entry.generation.load(Ordering::Relaxed))
}

/// A thread was joined: it has ended, and the process goes on.
pub fn joined(handle: usize) {
    report_all(while_holding(), |ended| {
        ended.handle.load(Ordering::Relaxed) == handle as u64
    });
}

/// A task wants a lock that is not free.
#[inline]
pub(crate) fn is_wanted(lock: Lock) {
    let before = format_args!("ended while holding");
    let what = Deed::around(before, format_args!(", which another task now wants"));
    report_all(what, |ended| {
        ended.lock.load(Ordering::Relaxed) == lock.address() as u64
    });
}

/// The process ends in good order: an `atexit` handler.
pub(crate) extern "C" fn process_ends() {
    let _undisturbed = Undisturbed::begin();
    let before = format_args!("ended while holding");
    let after = format_args!("; reported at the end of the process");
    report_all(Deed::around(before, after), |_| true);
    for who in TaskRef::all() {
        for held in who.record.view().held() {
            let task = words::task(who);
            let after = format_args!(" when the process ends");
            let what = Deed::around(format_args!("still holds"), after);
            findings::ends_holding(task, held.lock, held.mode, held.site, Site::UNKNOWN, what);
        }
    }
}

#[inline]
fn report_all(what: Deed<'_>, is_wanted: impl Fn(&Ended) -> bool) {
    if COUNT.load(Ordering::Relaxed) > 0 {
        report_each(what, is_wanted);
    }
}

#[cold]
fn report_each(what: Deed<'_>, is_wanted: impl Fn(&Ended) -> bool) {
    while let Some(ended) = take(&is_wanted) {
        let (lock, mode) = (ended.lock, ended.mode);
        // Unless another lock is at the address now.
        if generation_of(lock) == Some(ended.generation) {
            findings::ends_holding(ended.who, lock, mode, ended.site, Site::UNKNOWN, what);
        }
    }
}

/// A copy of an entry, read once.
struct EndedCopy {
    who: TaskText,
    lock: Lock,
    mode: Mode,
    site: RecordedSite,
    generation: u32,
}

fn take(is_wanted: impl Fn(&Ended) -> bool) -> Option<EndedCopy> {
    board::alone(|_| {
        let mut all = ENDED.iter();
        let one =
            all.find(|ended| ended.handle.load(Ordering::Relaxed) != 0 && is_wanted(ended))?;
        let load = |field: &AtomicU32| field.load(Ordering::Relaxed);
        let (lock, mode) = unpack(one.lock.load(Ordering::Relaxed), load(&one.what));
        let name = words::clean(name_of(&load_name(&one.name)));
        let copy = EndedCopy {
            who: TaskText::new(ProcessId::here(load(&one.process)), load(&one.thread), name),
            lock,
            mode,
            site: RecordedSite::new(one.site.load(Ordering::Relaxed)),
            generation: load(&one.generation),
        };
        one.handle.store(0, Ordering::Relaxed);
        COUNT.fetch_sub(1, Ordering::Relaxed);
        Some(copy)
    })
}
