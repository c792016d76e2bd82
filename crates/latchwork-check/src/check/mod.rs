//! Locks that explain themselves: rules, deadlocks, order, priority inversion, long waits.
//!
//! | to check | do |
//! | --- | --- |
//! | one mutex | give it a [`Checked`] protocol: `Mutex<T, Checked<WaitWake>>`, `Mutex<T, Robust<Checked<WaitWake<Shared>>>>` |
//! | one reader/writer lock | [`CheckedRwLock`] |
//! | all mutexes and reader/writer locks of a program, semaphores and queues | the feature `check` |
//! | semaphores, queues and events alone | call [`begin`] before any is made or opened |
//! | foreign locks | tell the [`hook`] of them |
//!
//! What is found goes to standard error, and to where [`set_reporter`] and the variable `LATCHWORK_CHECK` say;
//! the program goes on. The variable is a list, separated by commas: `off`; `fatal` (the first finding aborts);
//! `quiet` (no text); `json=PATH`; `suppress=PATH` (lines as reports end with); `without=RULE` (which is not reported);
//! `order=PATH` (for `latchwork order`);
//! `long=MS` (10,000); `inversion=MS` (1); `long-hold=MS` (0: none); `hints`; `exit` (what is held as the process ends is
//! reported, too); `refuse` (interposed calls that would close a circle fail).
//!
//! ```
//! use latchwork::check::{self, Checked, Finding, Rule};
//! use latchwork::mutex::{Mutex, WaitWake};
//!
//! static A: Mutex<(), Checked<WaitWake>> = Mutex::from_raw(Checked::named("a", WaitWake::new()), ());
//! static B: Mutex<(), Checked<WaitWake>> = Mutex::from_raw(Checked::named("b", WaitWake::new()), ());
//!
//! # check::set_text(false);
//! check::set_reporter(Some(|finding: &Finding| assert_eq!(finding.rule, Rule::OneOrder)));
//! std::thread::spawn(|| drop((A.lock(), B.lock()))).join().unwrap();
//! std::thread::spawn(|| drop((B.lock(), A.lock()))).join().unwrap(); // reported, though nothing hangs
//! ```
//!
//! # What is checked
//!
//! | rule | mutexes, spinlocks, reader/writer locks | semaphores with an owner | counts, queues |
//! | --- | --- | --- | --- |
//! | `one-holder` | yes | – | – |
//! | `owner-unlocks`, `no-double-unlock` | yes, with the place of the last release | the same; not of guards that come too late | – |
//! | `no-recursion` | yes, but for recursive ones | MrsP | – |
//! | `initialised-by-interface` | by their tags | used after deletion | the same |
//! | `not-remade-while-held`, `not-copied` | by their tags | – | – |
//! | `no-exit-holding` | yes | yes | – |
//! | `no-free-holding` | yes: regions, their blocks, containers, named objects | – (they are never freed) | – |
//! | `one-mutex-per-condition`, `waits-with-mutex` | yes | – | – |
//! | `within-ceiling` | `Protect` | ceiling, MrsP | – |
//! | `no-delete-in-use` | – | owned | awaited |
//! | `no-lone-wait` | – | – | in an anonymous region, by a process without other threads and children |
//! | `no-deadlock`, `one-order`, `one-task-order` | yes | yes | – (anybody may release) |
//! | `no-inversion`, `no-long-wait` | yes | when the wait ends | – |
//! | `no-long-hold` | with `long-hold=MS`, at the release | the same | – |
//! | `initialised-once`, `no-failed-call`, `notifies-with-mutex` | what interposers tell of foreign objects | – | the same |
//!
//! How sure a finding is, its [`Confidence`] says. A deadlock of locks that any task may release (foreign ones of most
//! kinds) is [assumed](Confidence::Assumed) to last, unless no thread is left that could do so.
//!
//! `one-order` needs as many tasks as orders that contradict each other, and locks that at least two tasks have taken.
//! `one-task-order` is the same of orders that one task has made alone: a second one that did the same could wait for it
//! for ever, but perhaps none ever does. Such a finding is [suspected](Confidence::Suspected) only. It counts as a
//! finding (`fatal` aborts at it); the word `without=one-task-order`, or [`leave_out`], leaves all of them out.
//!
//! Events have no rule: they may be sent to oneself, by a signal handler. Circles go through all processes of a region
//! before the sleep; through others, by locks in memory that they share otherwise, when the wait has lasted for 0.1 s
//! (not of robust locks, which come back from their wait with the lock only; nor of processes whose `/proc/PID/fd` the
//! caller may not read). What the deletion of a queue or semaphore tells its waiters and later users is well defined; who
//! ends work in this way suppresses `no-delete-in-use` and `initialised-by-interface` for the place.
//!
//! A report takes up to 20 KiB of the stack of the thread that makes it, where the crate is optimised (45 KiB where it is
//! not): give threads that use checked locks that much beyond their own needs.
//!
//! # How it works
//!
//! | part | file | what |
//! | --- | --- | --- |
//! | the observer | `observer.rs`, [`hook`], `tell.rs` | what locks and interposers report: addresses and sites |
//! | records | `hook/record.rs`, [`layout`], `board.rs` | what each task holds and wants, where anybody can read it |
//! | the calling thread | `own.rs` | its stack of held locks, without a look at anything shared |
//! | the usual | `quick.rs` | a known lock is taken or released, and there is nothing else to it |
//! | holders | `beside.rs` | who holds a lock, in the lock's own memory |
//! | locks | `known.rs`, `tag.rs`, `place.rs` | names, classes; what a checked lock says of itself; places in other languages |
//! | locks made again | `anew.rs` | foreign ones, of which nobody tells |
//! | misuse of foreign objects | `abuse.rs` | failing calls, a second initialisation, an end with waiters |
//! | deadlocks | `circle.rs`, `field.rs` | circles of waits, through processes, found before the sleep |
//! | the same by locks in no region | `far.rs` | in other processes, when the wait has lasted for 0.1 s |
//! | whether they last | `lasting.rs` | or another task may release what keeps them |
//! | order | `order.rs`, `order/`, `order_file.rs` | edges between classes, and cycles of them |
//! | conditions | `condition.rs` | who waits for one, with which mutex |
//! | inversions, long waits | `waits.rs` | what lasts |
//! | waits for nobody | `lone.rs` | what no other task can end |
//! | ends of threads | `end.rs`, `ended.rs` | what is held when all destructors have run; and whether the process goes on |
//! | findings | `rule.rs`, `finding.rs`, `found.rs`, `words.rs`, `foreign.rs` | one value for each |
//! | reports | `text.rs`, `json.rs`, `sink.rs`, `kept.rs`, `settings.rs` | for people and programs; suppressions |
#![allow(unsafe_code)]

mod abuse;
mod anew;
mod beside;
mod board;
mod checked;
pub(crate) mod circle;
mod condition;
mod end;
mod ended;
mod far;
mod few;
mod field;
mod finding;
mod foreign;
mod found;
mod json;
mod kept;
mod kinds;
mod known;
mod lasting;
pub mod layout;
mod lone;
mod observer;
mod order;
mod order_file;
mod own;
mod place;
mod quick;
mod reader;
mod robust;
mod rule;
mod rwlock;
mod settings;
mod sink;
mod tag;
mod tell;
mod text;
mod totals;
mod waits;
mod words;

pub use checked::{Checked, Refused, Refuses, Reports};
pub use few::{Few, Text};
pub use finding::{Confidence, Finding, LockText, PlaceText, Released, TASKS, TaskText, Use};
pub use json::Json;
pub use kinds::Checkable;
#[doc(hidden)]
pub use order::order_work;
pub use order_file::{CannotOpen, save_order};
pub use reader::{BoardFindings, BoardLock, BoardReader, BoardReport, BoardTask};
pub use rule::{Rule, Severity};
pub use rwlock::CheckedRwLock;
pub use settings::{
    is_on, leave_out, refuses, set_fatal, set_inversion, set_long_hold, set_long_wait, set_on,
    set_text, suppress,
};
#[doc(hidden)]
pub use sink::forget_reported;
pub use sink::set_reporter;
pub use totals::{Totals, totals};

use crate::hook::Table;
use observer::Checker;

/// Has semaphores, events and queues report what they do from now on, for the beginning of a program; so does the
/// first use of a checked lock. With the feature `check` it has been called before `main` and before the program's
/// constructors (those of a priority below 90 excepted).
///
/// What they could have told before is not made up for: a handle on a semaphore with an owner that was made before is
/// not checked, but for its waits; and a task that obtains by a handle of later is to release by one of later.
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

/// What a lock, a wrapper around foreign locks, or an interposer tells the checker.
///
/// Every function may be called in any context in which a lock may be taken: before `main`, in a signal
/// handler, in the child of a fork, inside an allocator. None allocates from the program's allocator, and
/// none takes a lock while all that it meets is known. A lock that is taken while the checker itself is at
/// work in the same thread is not seen.
///
/// A lock that can be taken at once: try, then [`taken`](hook::taken). One that cannot:
/// [`wants`](hook::wants), wait, then [`taken`](hook::taken) or [`gave_up`](hook::gave_up). Before the
/// release [`releasing`](hook::releasing).
pub mod hook {
    pub use super::abuse::{
        ends_for_sleepers, failed, has_ended, is_unknown, made_again, notifies_without_mutex,
    };
    pub use super::anew::unmarked;
    pub use super::ended::{joined, joins_are_told};
    #[doc(hidden)]
    pub use super::known::may_be_in;
    pub use super::observer::{
        condvar_begins, condvar_ends, condvar_notifies, destroyed, gave_up, has_waited, releasing,
        taken, waits, wants,
    };
    pub use super::place::{NoLock, source_line, uses_no_lock};
    #[doc(hidden)]
    pub use super::quick::{Since, releasing_as_usual, taken_as_usual};
    pub use super::tell::{
        forked, freed, initialised, knows_this_thread, not_a_lock, patience, re_site, seen,
        still_waits, task_ends,
    };
    #[doc(hidden)]
    pub use crate::backoff::rest_if_contended;
    pub use crate::hook::{
        HELD, Held, HeldLock, How, Kind, Lock, Mode, RecordedSite, Site, TaskRecord, TaskView,
        Traits, Verdict, Wanted,
    };
}
