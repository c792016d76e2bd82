//! `latchwork run --heal`: waits for objects that processes share. The objects stay glibc's, and all changes of them
//! but those named here are made by glibc's own functions. So a task with `--heal` and one without can use an object
//! together.
//!
//! | object | what changes |
//! | --- | --- |
//! | robust, process-shared mutex | its owner holds it with the waiters bit, and waiters nap: below |
//! | other process-shared mutex | waiters nap, and find out whether the owner has ended: [`watched`] |
//! | process-shared semaphore | a waiter naps, and finds out whether a task is left that could post it: [`semaphore`] |
//! | mutex that inherits priority or has a ceiling; private object | nothing |
//!
//! A thread of a process is not killed alone. So the fault described here needs several processes, and private robust
//! mutexes do not have it. But glibc marks each robust mutex as process-shared, so private ones are treated like the
//! others, which costs time and changes nothing else.
//!
//! # A robust mutex
//!
//! | word | meaning | a release wakes |
//! | --- | --- | --- |
//! | 0 | free | |
//! | T | T holds it; no task is known to wait | no task |
//! | T + W | T holds it; tasks may sleep | one task |
//! | D, D + W | free; the owner died | |
//!
//! W is `FUTEX_WAITERS`, D is `FUTEX_OWNER_DIED`. glibc loses a wake-up as follows: a release stores 0 and wakes the
//! sleeper B; a newcomer stores T without W; B is killed. The kernel looks at the word for B, and does nothing, since
//! the word has an owner. The other sleepers sleep until some task sets W again, or for ever.
//!
//! Two rules heal this:
//!
//! 1. *An owner holds it with W.* After each lock call of glibc's that has acquired the mutex, W is set in the word.
//! 2. *No lock call sleeps for longer than a [nap](naps::NAP).* It is a repeated `pthread_mutex_clocklock`.
//!
//! Rule 1 needs neither the unlock nor the waits for conditions: glibc finds W in the word wherever it releases, and a
//! wait for a condition acquires with W by itself. A release then makes a system call. In exchange for it the task that
//! wakes another is never the only one that knows of sleepers.
//!
//! *Between any two steps of a task the task may be killed.* The kernel then acts on the word of a mutex that the task
//! has announced in `list_op_pending`, which glibc's calls do before their first access, or holds.
//!
//! | killed | word | who wakes the next sleeper |
//! | --- | --- | --- |
//! | asleep | any | no wake-up has gone to this task |
//! | woken, before its compare-and-swap | 0 | the kernel |
//! | | D, D + W | the kernel since Linux 6.2; before, nobody |
//! | | has an owner T | T's release, since T holds it with W |
//! | after its compare-and-swap, before rule 1 | T or T + W | the kernel, if W is set; if it is not, nobody |
//! | as the owner, later | T + W | the kernel, which stores D + W |
//! | in a release, after its store, before its wake-up | 0 | the kernel |
//! | | has an owner T | T's release |
//! | between two naps | as asleep: a sleep that ended by its limit has consumed no wake-up | |
//!
//! **All tasks with `--heal`.** From the table: a death leaves sleepers without a wake-up only in the two rows with
//! *nobody*. In the row of rule 1, a wake-up must have been lost to another death before, or else W was set: so it takes
//! two kills, one of them within some instructions. In both, rule 2 bounds the delay: a task in a lock call looks at
//! the word after a nap at most, and then acquires the mutex, or sets W. A task that acquires a mutex again after a
//! wait for a condition sleeps inside of glibc, without naps. It is only reached by rule 1, and so by the next release.
//! If no task uses the mutex any more after one of these two deaths, such a task is not woken.
//!
//! **Some tasks without.** Rule 2 still holds for each task with `--heal`, whatever the others do. A release by a task
//! with `--heal` wakes a sleeper, whichever task that is. What remains lost: a task without `--heal` takes the free
//! word and releases it without a wake-up. Then sleepers without naps (tasks without `--heal`, and waits for conditions)
//! sleep until a task with `--heal` holds the mutex or ends a nap, and for ever if none does.
//!
//! **What does not change.** Owner, count, number of users, the list of robust mutexes, its announcements, and all
//! results are glibc's work. Setting W is a step that any waiter may take at any time. A task that is killed between the
//! lock call and rule 1 leaves the mutex as glibc's lock call alone would.
//!
//! **Orderings.** Setting W is relaxed: glibc's compare-and-swap has acquired, and its exchange will release.
//!
//! # What of glibc is used
//!
//! The word and the kind of a mutex; for [`watched`] also owner and count; of a semaphore its value and its flag.
//! [`probe`](crate::probe) lets glibc make and lock such objects, and compares. If one differs, nothing is healed, and a line says
//! so.
#![allow(unsafe_code)]

mod gone;
mod naps;
mod proc;
pub(crate) mod report;
mod robust;
mod semaphore;
pub(crate) mod setting;
mod watched;

use crate::clock::Until;
use crate::memory::Mutex;
use core::ffi::c_int;
use latchwork_interpose::mutexes::kind;

/// How the waits for a mutex are healed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Care {
    Robust,
    Watched,
}

fn care(mutex: &Mutex) -> Option<Care> {
    const ROBUST: u32 = kind::ROBUST | kind::SHARED;
    match mutex.kind() & !kind::TYPE {
        ROBUST if setting::is_on() => Some(Care::Robust),
        kind::SHARED if setting::is_on() => Some(Care::Watched),
        _ => None,
    }
}

/// The lock call for a mutex that stays glibc's. `pass` is glibc's function, with all that the program has passed;
/// `until` is the end of the wait, if that was passed.
///
/// # Safety
/// As for `pass`.
#[inline(always)]
pub(crate) unsafe fn lock(
    mutex: *mut Mutex,
    until: impl Fn() -> Option<Until>,
    pass: impl Fn() -> c_int,
) -> c_int {
    // SAFETY: the caller's mutex, of which only atomics are accessed.
    match care(unsafe { &*mutex }) {
        None => pass(),
        // SAFETY: by the caller's contract.
        Some(Care::Robust) => unsafe { robust::lock(mutex, until(), pass) },
        // SAFETY: by the caller's contract.
        Some(Care::Watched) => unsafe { watched::lock(mutex, until(), pass) },
    }
}

/// The attempt to lock such a mutex; `pass` is `pthread_mutex_trylock`.
///
/// # Safety
/// As for `pass`.
#[inline(always)]
pub(crate) unsafe fn try_lock(mutex: *mut Mutex, pass: impl Fn() -> c_int) -> c_int {
    // SAFETY: the caller's mutex, of which only atomics are accessed.
    let here = unsafe { &*mutex };
    match care(here) {
        Some(Care::Robust) => robust::taken(here, pass()),
        _ => pass(),
    }
}
