//! Locks that report their misuse: rules of use, deadlocks, lock order, priority inversion, long waits.
//!
//! | to check | do |
//! | --- | --- |
//! | one mutex | give it a [`Checked`] protocol: `Mutex<T, Checked<WaitWake>>`, `Mutex<T, Robust<Checked<WaitWake<Shared>>>>` |
//! | one reader/writer lock | [`CheckedRwLock`] |
//! | all mutexes and reader/writer locks of a program, semaphores and queues | the feature `check` |
//! | the same in a static library that a C linker links | the feature `check`, and call [`begin`] once: the linker leaves out what nothing names |
//! | semaphores, queues and events alone | call [`begin`] before any is made or opened |
//! | foreign locks | report them through [`hook`] |
//!
//! Findings are written to standard error, and to the destinations that [`set_reporter`] and the variable
//! `LATCHWORK_CHECK` name; the program goes on. The variable is a list, separated by commas:
//!
//! | word | meaning |
//! | --- | --- |
//! | `off` | nothing is checked |
//! | `fatal` | the first finding that is not suppressed aborts the program, after its report |
//! | `refuse` | an interposed call that would complete a wait-for cycle fails with `EDEADLK` |
//! | `quiet` | no text on standard error |
//! | `json=PATH` | findings are appended to a file, one JSON object a line |
//! | `suppress=PATH` | a file of suppression lines, in the form in which reports end |
//! | `without=RULE` | breaches of this rule are not reported; may be given several times |
//! | `order=PATH` | the lock order is appended to a file (for `latchwork order`) when the program ends in good order |
//! | `exit` | locks that are held when the process ends are reported, too |
//! | `long=MS` | longer waits are reported; default 10,000, 0 for none |
//! | `long-hold=MS` | longer holds are reported at the release, with the precision of a kernel tick; default 0, for none |
//! | `hints` | uses that are allowed but may be faults are reported, too: `notifies-with-mutex` |
//! | `inversion=MS` | how long a task may wait for one of lower priority; default 1 |
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
//! | `owner-unlocks`, `no-double-unlock` | yes, with the place of the last release | the same; not for guards that are dropped too late | – |
//! | `no-recursion` | yes, except for recursive ones | MrsP | – |
//! | `initialised-by-interface` | by their tags | used after deletion | the same |
//! | `not-remade-while-held`, `not-copied` | by their tags | – | – |
//! | `no-exit-holding` | yes | yes | – |
//! | `no-free-holding` | yes: regions, their blocks, containers, named objects | – (they are never freed) | – |
//! | `one-mutex-per-condition`, `waits-with-mutex` | yes | – | – |
//! | `within-ceiling` | `Protect` | ceiling, MrsP | – |
//! | `no-delete-in-use` | – | owned | awaited |
//! | `no-lone-wait` | – | – | in an anonymous region, by a process without other threads and children |
//! | `no-deadlock`, `one-order`, `one-task-order` | yes | yes | – (any task may release) |
//! | `no-inversion`, `no-long-wait` | yes | when the wait ends | – |
//! | `no-long-hold` | with `long-hold=MS`, at the release | the same | – |
//! | `initialised-once`, `no-failed-call`, `notifies-with-mutex` | foreign objects, by the reports of interposers | – | the same |
//!
//! A finding states its [`Confidence`]. A deadlock of locks that any task may release (foreign ones of most kinds) is
//! [assumed](Confidence::Assumed) to last, unless no thread is left that could release them.
//!
//! `one-order` needs as many tasks as there are contradictory orders, and locks that at least two tasks have acquired.
//! `one-task-order` is the same for orders that a single task has made: a second task that did the same could deadlock
//! with it, but perhaps none ever does. Such a finding is only [suspected](Confidence::Suspected). So is one of `one-order`
//! whose tasks have taken different locks that were made in one place: perhaps they are never the same ones. It counts as a
//! finding (`fatal` aborts at it); the word `without=one-task-order`, or [`leave_out`], leaves all of them out.
//!
//! Events have no rule: a task may send them to itself, in a signal handler. Wait-for cycles are followed through all
//! processes of a region before the sleep. Through other processes, by locks in memory that they share otherwise, they
//! are searched for when the wait has lasted for 0.1 s (not for robust locks, whose waits return with the lock only;
//! nor through processes whose `/proc/PID/fd` the caller may not read). The results that the deletion of a queue or
//! semaphore has for its waiters and later users are well defined; a program that ends work in this way suppresses
//! `no-delete-in-use` and `initialised-by-interface` for the place.
//!
//! A report takes up to 20 KiB of the stack of the thread that makes it, where the crate is optimised (45 KiB where it
//! is not): give threads that use checked locks that much beyond their own needs.
//!
//! # How it works
//!
//! `record/` has what is recorded: each thread's locks, the board, known locks, the lock order, settings. `detect/` finds
//! what is wrong in it, and returns that. `report/` makes findings of it, as values, text and JSON; tools read the board
//! through it. `observe/` has the events: what a report of a lock changes, and which rules it may break. Then come
//! `observer.rs`, [`hook`] and `configure.rs`, and last [`Checked`] and its forms. Each uses only what comes before it: a
//! test that parses the source checks it.
//!
//! A call for a lock goes this way: `observer.rs` tries `observe/fast_path.rs`. If anything about the call is new or
//! unusual, it enters the calling thread into the checker and calls the event, for instance `observe/acquire.rs`. The
//! event changes the thread's own list (`record/own.rs`), which is published on the board and in the thread's regions;
//! asks `detect/` whether a rule is broken; and has `report/findings.rs` make the finding, which `report/sink.rs`
//! delivers.
#![allow(unsafe_code)]

mod checked;
mod configure;
mod detect;
pub mod hook;
mod kinds;
mod observe;
mod observer;
mod record;
mod report;
mod rwlock;
#[cfg(all(test, not(loom)))]
mod tests;

pub use checked::{Checked, Refused, Refuses, Reports};
pub use configure::{
    is_on, refuses, set_fatal, set_inversion, set_long_hold, set_long_wait, set_on, set_text,
};
pub use kinds::Checkable;
pub use observer::begin;
pub use record::bounded::{BoundedList, Text};
pub use record::layout;
#[doc(hidden)]
pub use record::order_graph::level::order_work;
pub use record::rule::{Rule, Severity};
pub use record::settings::{leave_out, suppress};
pub use record::totals::{Totals, totals};
pub use report::board_reader::{BoardFindings, BoardLock, BoardReader, BoardReport, BoardTask};
pub use report::finding::{
    Confidence, Finding, LockText, PlaceText, Released, TASKS, TaskText, Use,
};
pub use report::json::Json;
pub use report::order_file::{CannotOpen, save_order};
#[doc(hidden)]
pub use report::sink::forget_reported;
pub use report::sink::set_reporter;
pub use rwlock::CheckedRwLock;
