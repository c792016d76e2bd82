//! The common parts of both interposers: the functions that they stand in for, glibc's objects, and the output at the
//! end.
//!
//! | file | contents |
//! | --- | --- |
//! | `symbol.rs` | the functions of the same names behind the interposer's; the environment |
//! | `mutexes.rs` | those for mutexes and condition variables; the kinds of mutexes; C11's results |
//! | `entry.rs` | how a function learns its caller's address |
//! | `cleanup.rs` | calls that may end the thread |
//! | `counts.rs` | counts of objects, and which process prints them |
//! | `say.rs`, `errno.rs` | lines on standard error; `errno`, which a lock call does not change |
//!
//! The rules of an interposer hold here: nothing allocates or panics, and all of it may be called before any
//! constructor has run.
#![cfg(all(target_os = "linux", target_env = "gnu", not(loom)))]

pub mod cleanup;
pub mod counts;
mod entry;
pub mod errno;
pub mod mutexes;
pub mod say;
pub mod symbol;

#[doc(hidden)]
pub use libc;
