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
//! reported, too); `refuse` (interposed calls that would close a cycle fail).
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
//! | deadlocks | `cycle.rs`, `field.rs` | circles of waits, through processes, found before the sleep |
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

mod checked;
mod configure;
mod detect;
pub mod hook;
mod kinds;
mod observe;
mod observer;
mod record;
mod report;
mod robust;
mod rwlock;
mod tagged;
#[cfg(all(test, not(loom)))]
mod tests;

pub use checked::{Checked, Refused, Refuses, Reports};
pub use configure::{
    is_on, refuses, set_fatal, set_inversion, set_long_hold, set_long_wait, set_on, set_text,
};
pub use kinds::Checkable;
pub use observer::begin;
pub use record::bounded::{Few, Text};
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
