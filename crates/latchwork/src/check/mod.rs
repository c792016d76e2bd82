//! Locks that explain themselves: rules, deadlocks, order, priority inversion, long waits.
//!
//! | part | file | what |
//! | --- | --- | --- |
//! | the hook | [`hook`], `tell.rs` | what a lock, or an interposer, tells: addresses and sites |
//! | records | `hook/record.rs`, [`layout`], `board.rs` | what each task holds and wants, where anybody can read it |
//! | the calling thread | `own.rs` | its stack of held locks, without a look at anything shared |
#![allow(unsafe_code)]

mod board;
mod checked;
pub(crate) mod circle;
mod few;
mod field;
mod finding;
mod foreign;
mod found;
mod json;
mod kinds;
mod known;
pub mod layout;
mod order;
mod order_file;
mod own;
mod reader;
mod robust;
mod rule;
mod rwlock;
mod settings;
mod sink;
mod tag;
mod tell;
mod text;
mod waits;
mod words;

pub use checked::{Checked, Refused, Refuses, Reports};
pub use few::{Few, Text};
pub use finding::{Confidence, Finding, LockText, PlaceText, TASKS, TaskText, Use};
pub use json::Json;
pub use kinds::Checkable;
pub use order_file::{CannotOpen, save_order};
pub use reader::{BoardFindings, BoardLock, BoardReader, BoardTask};
pub use rule::{Rule, Severity};
pub use rwlock::CheckedRwLock;
pub use settings::{
    is_on, refuses, set_fatal, set_inversion, set_long_wait, set_on, set_text, suppress,
};
#[doc(hidden)]
pub use sink::forget_reported;
pub use sink::set_reporter;

use crate::hook::{Hooks, Site};

/// Has the lower layers tell of what they do.
fn listen() {
    static HOOKS: Hooks = Hooks {
        waits: tell::waits,
        has_waited: tell::has_waited,
        freed: |range| tell::freed(range, Site::UNKNOWN),
        task_ends: || tell::task_ends(Site::UNKNOWN),
    };
    crate::hook::listen(&HOOKS);
}

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
    pub use super::tell::{
        condvar_begins, condvar_ends, destroyed, forked, freed, gave_up, has_waited, initialised,
        not_a_lock, patience, re_site, releasing, still_waits, taken, task_ends, waits, wants,
    };
    pub use crate::hook::{
        HELD, Held, HeldLock, How, Kind, Lock, Mode, Site, TaskRecord, TaskView, Traits, Verdict,
        Wanted,
    };
}
