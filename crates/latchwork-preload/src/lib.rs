//! What `latchwork run --mutex=…` loads into a program: other mutexes behind `pthread_mutex_t`.
//!
//! A shared library for `LD_PRELOAD`. Its functions have the names of glibc's and stand in for them in the
//! program and in all libraries that it loads. Which lock is used says `LATCHWORK_MUTEX`: `tp`
//! (throughput), `wait-wake`, `pi` (inheriting), or `glibc`, which changes nothing.
//!
//! | file | what |
//! | --- | --- |
//! | `memory.rs` | glibc's objects as they lie in a program's memory, and where ours is in them |
//! | `inside.rs` | our locks in there |
//! | `mutex.rs`, `cond.rs` | the functions |
//! | `mode.rs` | what is wanted; the first call |
//! | `real.rs` | the functions that these stand in for |
//! | `thread.rs`, `nap.rs`, `clock.rs` | who the caller is; sleeping; points in time |
//! | `counts.rs` | what is said at the end |
//!
//! What it has in common with the interposer that checks stands in `latchwork-interpose`.
//!
//! # What holds everywhere
//!
//! 1. Nothing allocates, and no thread is set up: the caller may be the allocator, or a thread's first
//!    instruction.
//! 2. Nothing panics; if it does, the process ends.
//! 3. `errno` stays as it is. Only waits for a condition are cancellation points.
//! 4. The child of a fork, or `_Fork`, goes on with what it finds, without a handler.
//! 5. What is glibc's stays glibc's: mutexes that are robust, shared between processes, inherit priority
//!    or have a ceiling, reader/writer locks, semaphores, spinlocks, barriers.
//!
//! Not seen: static binaries; locks that a library makes of futexes by itself (Rust's std, parking_lot, Go);
//! glibc's own; a program that is executed with the rights of another user, in which the dynamic linker loads
//! nothing that it is told to.
#![cfg(all(target_os = "linux", target_env = "gnu", not(loom)))]

mod clock;
mod cond;
mod counts;
mod inside;
mod memory;
mod mode;
mod mutex;
mod nap;
mod real;
mod thread;
