//! Co-processes: processes that share as much as they need.
//!
//! A coproc is a process of its own (its memory, its descriptors, its place in ps) that shares a
//! [region](crate::region) with its creator, at the same address. It is started like a thread, with
//! attributes set before its function runs, and joined like one; and it may be killed at any
//! instruction, which its creator learns, and which leaves the region usable.
//!
//! ```
//! use latchwork::coproc::{Attributes, Coprocs, Outcome};
//! use latchwork::mutex::{Mutex, Robust};
//! use latchwork::region::{Region, RegionOptions};
//!
//! fn add(region: &Region, hits: &Mutex<u64, Robust>) -> i32 {
//!     *region.pin(hits).lock().unwrap() += 1;
//!     7
//! }
//!
//! let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
//! // SAFETY: no static owns anything in a region, or a descriptor.
//! let coprocs = unsafe { Coprocs::new(&region)? };
//! let hits = region.object("hits", || Mutex::robust(0u64))?;
//! let coproc = coprocs.spawn(add, &hits, &Attributes::new().name("adder"))?;
//! assert_eq!(coproc.join()?.outcome, Outcome::Returned(7));
//! assert_eq!(*hits.lock().unwrap(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Two ways to start
//!
//! | | clean (the default) | snapshot |
//! | --- | --- | --- |
//! | is a copy of | the process when the runtime started | the calling thread, now |
//! | takes the longer, the | larger the process was *then* | larger the process is now |
//! | descriptors | 0, 1, 2, the region, those passed | all |
//! | locks of other threads | free | copied held, never released |
//! | statics | as they were then | as they are now |
//! | runs | a function with an argument in the region, or by value | that, or a closure |
//!
//! Start the runtime early, before other threads and large data. (A later start is checked, see
//! [`Coprocs::new`].) Code that is loaded later by `dlopen` is not there in a clean start.
//!
//! In both, signal handlers are reset as by `exec` and no signal is blocked; the process group, the
//! terminal, the environment and the working directory are the creator's. A coproc ends by `_exit`:
//! its creator's `atexit` handlers never run in it, whether its function returns, panics or calls
//! `exit` (with glibc; elsewhere `exit` runs them). The child of a fork in a coproc ends likewise if
//! it returns from the function.
//!
//! # What a copy has in common with its original
//!
//! - A function that calls `exit` has the *destructors of thread-locals* run that the copied thread
//!   had: the one that started the runtime, or in a snapshot the one that spawned. One that returns
//!   does not.
//! - Handlers of *`pthread_atfork`* do not run: a library that repairs itself in them is not
//!   repaired.
//! - State that was copied is the same in all copies: *`std::hash::RandomState`* may give the same
//!   keys in each of them, and so may other generators of random numbers that were seeded before.
//! - *`std::env::args`* gives what stands where the arguments were: the coproc's name.
//!
//! # When processes die
//!
//! | who | what happens |
//! | --- | --- |
//! | a coproc, by whatever cause | its creator's join says how; robust locks that it held report it; the region is swept |
//! | the server process (`zygote`) | the next spawn makes another one, from the process as it is then; coprocs go on |
//! | the creator | ready coprocs end; others go on, unless they were to [die with it](Attributes::die_with_parent); the server process ends after the last of them |
//!
//! A coproc may start a runtime and coprocs of its own. So may the child of a fork, to which its
//! parent's runtime is of no use ([`SpawnError::OtherProcess`]).
//!
//! # The creator's other children
//!
//! Coprocs have no exit signal: they send no SIGCHLD, and `waitpid(-1)` does not see them. The
//! runtime waits for them by itself. But to a coproc that becomes another program by `exec` the
//! kernel gives the exit signal SIGCHLD: a `waitpid(-1)` of the host may meet its end, or a SIGCHLD
//! that is ignored discard it, and a join then answers [`JoinError::Taken`].
//!
//! A coproc that nobody joins (it is [detached](Attributes::detached), or its handle was dropped) is
//! a zombie from its end until the next spawn or join, or a call of [`reap_ended`].
//!
//! | file | what |
//! | --- | --- |
//! | `zygote.rs` | the small process that makes clean coprocs |
//! | `pool.rs` | coprocs that were made ahead |
//! | `spawn.rs` | the runtime and the ways to start |
//! | `attributes.rs` | what a coproc is to be like |
//! | `record.rs` | what creator and coproc tell each other |
//! | `child.rs` | the life of a coproc |
//! | `pace.rs` | who stays awake for whom, and for how long |
//! | `join.rs`, `graveyard.rs` | waiting for its end |
//! | `supervisor.rs` | starting again what died |

mod attributes;
mod child;
mod clone;
mod error;
mod graveyard;
mod join;
mod pace;
mod pool;
mod record;
mod spawn;
mod supervisor;
#[cfg(test)]
mod tests;
mod zygote;

pub use crate::sys::limits::Usage;
pub use attributes::{Attributes, Scheduling};
pub use child::descriptors;
pub use error::{JoinError, SpawnError, StartError};
pub use graveyard::reap_ended;
pub use join::{Coproc, Exit, KillError, Outcome, wait_any};
pub use rustix::process::Signal;
pub use spawn::{Coprocs, Options};
pub use supervisor::{Event, Happening, Restart, Spec, Supervisor};
