//! What `latchwork run --check` loads into a program: its locks stay glibc's, and each call is told to the
//! checker.
//!
//! A shared library for `LD_PRELOAD`. `LATCHWORK_CHECK` says what becomes of findings, see
//! [`latchwork::check`].
//!
//! | file | what |
//! | --- | --- |
//! | `object.rs` | glibc's objects, as the checker is told of them |
//! | `take.rs` | taking a lock: try, tell, wait, tell |
//! | `condition.rs` | what memory of glibc's objects says of misuse |
//! | `mutex.rs`, `cond.rs`, `rwlock.rs`, `other.rs` | the functions |
//! | `task.rs` | threads and forks; memory that is given back |
//! | `library.rs` | libraries that are unloaded |
//! | `start.rs`, `sum.rs` | the beginning; what is said at the end |
//! | `real.rs` | the functions that these stand in for |
//!
//! What it has in common with the other interposer stands in `latchwork-interpose`.
//!
//! # What holds everywhere
//!
//! 1. The program's call is made as it is, and what it gives is given. (With `refuse`, one that would close a
//!    circle is not made.) Of the program's memory nothing is changed but a mark in mutexes and reader/writer locks,
//!    and who holds a mutex, in bytes that glibc leaves alone: see `object.rs`.
//! 2. A thread is watched from its first instruction in the program on, once this library was started; what
//!    locks before, or in a thread that pthread has not made, is not. So nothing is set up inside an
//!    allocator's lock.
//! 3. Nothing panics; `errno` is what the call leaves.
//!
//! A thread for which the program asks for a stack below 128 KiB has 64 KiB more than that (`task.rs`): a report needs
//! them. So a program that expects an overflow of so small a stack has none. The attributes say what the program has said.
//!
//! Of a condition variable that processes share, notifications that another one makes are not seen.
//!
//! What processes share is not checked, and counted. A semaphore belongs to nobody: only waits for it are told. A
//! spinlock that is made anew by an assignment is taken for the one that was there before. Of memory that `realloc` gives
//! back, or that is mapped over, nobody tells, nor of what the first thread holds as it ends by `pthread_exit`; nor of a semaphore
//! that was never initialised, or of a second initialisation on a stack. Who
//! joins a thread that waits for what the joiner holds is not found out.
//!
//! Of the 1,024 keys that a program can have (`pthread_key_create`) one is this library's.
#![cfg(all(target_os = "linux", target_env = "gnu", not(loom)))]

mod cond;
mod condition;
mod entry {
    pub(crate) use latchwork_interpose::entry;
}
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
