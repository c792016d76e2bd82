//! What both interposers are made of: the functions behind their own, glibc's objects, and what is said at
//! the end.
//!
//! | file | what |
//! | --- | --- |
//! | `symbol.rs` | functions that stand behind ones of the same name; the environment |
//! | `mutexes.rs` | those of mutexes and condition variables; the kinds of mutexes; C11's results |
//! | `entry.rs` | how a function knows where it was called from |
//! | `cleanup.rs` | calls that may end the thread |
//! | `counts.rs` | objects that were seen, and which process speaks of them |
//! | `say.rs`, `errno.rs` | lines on standard error; `errno`, which a lock call leaves alone |
//!
//! What holds in an interposer holds here: nothing allocates or panics, and all of it may be called before
//! any constructor.
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
