//! The library that `latchwork run --check` loads into a program: the locks stay glibc's, and each call is reported to
//! the checker.
//!
//! A shared library for `LD_PRELOAD`. `LATCHWORK_CHECK` says what happens to findings, see [`latchwork::check`].
//!
//! | file | contents |
//! | --- | --- |
//! | `layout.rs`, `object.rs` | the memory of glibc's objects; how they are described to the checker |
//! | `take.rs` | acquiring a lock: try, report, wait, report |
//! | `condition.rs` | what the memory of glibc's objects shows of misuse |
//! | `mutex.rs`, `cond.rs`, `rwlock.rs`, `other.rs` | the functions |
//! | `task.rs` | threads and forks; memory that is freed |
//! | `library.rs` | libraries that are unloaded |
//! | `start.rs`, `checked.rs`, `sum.rs` | the start; which threads are checked; the summary at the end |
//! | `real.rs` | glibc's functions |
//!
//! The parts that it shares with the other interposer are in `latchwork-interpose`.
//!
//! # What holds everywhere
//!
//! 1. The program's call is made unchanged, and its result is returned. (With `refuse`, a call that would complete a
//!    wait-for cycle is not made.) Of the program's memory only two things are changed, in bytes that glibc does not
//!    use: a mark in mutexes and reader/writer locks, and the holder of a mutex. See `layout.rs`.
//! 2. A thread is checked from its first instruction in the program on, once this library was started. Locks that are
//!    used earlier, or in a thread that pthread has not created, are not checked. So no state is set up inside an
//!    allocator's lock.
//! 3. Nothing panics; `errno` is what the program's call leaves.
//!
//! A thread for which the program requests a stack below 128 KiB gets 64 KiB more than that (`task.rs`), since a report
//! needs them. So a program that expects such a small stack to overflow sees no overflow. The attributes still show the
//! requested size.
//!
//! For a condition variable that processes share, notifications by other processes are not seen.
//!
//! *Limits.* Process-shared locks are not checked, but counted. So is a robust mutex that was initialised before this
//! library was started, since glibc marks every robust mutex as process-shared. A semaphore has no owner: only waits
//! for it are reported. Of semaphores, spinlocks and barriers in memory that processes share, uses after their end are
//! not reported: another process may have initialised them again. A spinlock that is reinitialised by an assignment is
//! taken for the earlier one. The checker is not notified of memory that `realloc` frees or that is mapped over, of
//! locks that the first thread holds when it ends by `pthread_exit`, of the use of a semaphore that was never
//! initialised, or of a second initialisation on a stack. The use of a condition variable or barrier that was never
//! initialised is noticed only if its memory cannot be such an object (`condition.rs`): any other may have been made
//! before this library was started. A deadlock is not detected if a thread joins another one that waits for a lock
//! which the joining thread holds.
//!
//! Of the 1,024 keys that a program can have (`pthread_key_create`) this library takes one.
#![cfg(all(target_os = "linux", target_env = "gnu", not(loom)))]

mod checked;
mod cond;
mod condition;
mod entry {
    pub(crate) use latchwork_interpose::entry;
}
mod layout;
mod library;
mod mutex;
mod object;
mod other;
mod real;
mod rwlock;
mod start;
mod sum;
mod take;
mod task;
