//! The library that `latchwork run --mutex=…` and `run --heal` load into a program: it replaces the locks behind
//! `pthread_mutex_t`, or heals those that processes share.
//!
//! A shared library for `LD_PRELOAD`. Its functions have the names of glibc's and replace them in the program and in
//! all libraries that it loads. `LATCHWORK_MUTEX` selects the lock: `tp` (throughput), `wait-wake`, `pi` (inheriting),
//! or `glibc`, which changes nothing. `LATCHWORK_HEAL` (`report` or `end`) heals waits for objects that processes share.
//!
//! | file | contents |
//! | --- | --- |
//! | `memory.rs` | the layout of glibc's objects, and where the replacement lies in them |
//! | `replacement.rs` | the replacement locks |
//! | `mutex.rs`, `cond.rs` | the functions |
//! | `mode.rs` | the selected lock; the first call |
//! | `heal/` | `--heal`: lost wake-ups of process-shared objects, and waits that no task can end |
//! | `probe.rs` | what this glibc does, determined once |
//! | `real.rs` | glibc's functions |
//! | `thread.rs`, `nap.rs`, `clock.rs` | the caller's identity; sleeping; points in time |
//! | `counts.rs` | the summary at the end |
//!
//! The parts that it shares with the checking interposer are in `latchwork-interpose`.
//!
//! # What holds everywhere
//!
//! 1. Nothing allocates, and no per-thread state is set up: the caller may be the allocator, or be at a thread's first
//!    instruction.
//! 2. Nothing panics; if it does, the process ends.
//! 3. A lock call does not change `errno`. Only waits for a condition or a semaphore are cancellation points.
//! 4. The child of a fork, or of `_Fork`, continues with the state that it finds, without a handler.
//! 5. These stay glibc's: mutexes that are robust, process-shared, inherit priority or have a ceiling; reader/writer
//!    locks, semaphores, spinlocks, barriers.
//!
//! The library cannot replace anything in static binaries; locks that a library builds on futexes itself (Rust's std,
//! parking_lot, Go); glibc's internal locks; and programs that run with the privileges of another user, in which the
//! dynamic linker ignores `LD_PRELOAD`.
#![cfg(all(target_os = "linux", target_env = "gnu", not(loom)))]

mod clock;
mod cond;
mod counts;
mod heal;
mod memory;
mod mode;
mod mutex;
mod nap;
mod probe;
mod real;
mod replacement;
mod thread;
