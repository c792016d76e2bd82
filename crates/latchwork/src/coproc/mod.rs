//! Co-processes: processes that share as much as they need.
//!
//! A coproc is a separate process, with its own memory, descriptors and entry in `ps`. It shares a
//! [region](crate::region) with its creator, mapped at the same address. It is started like a thread, with attributes
//! that are set before its function runs, and it is joined like a thread. It may be killed at any instruction: its
//! creator is notified, and the region stays usable.
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
//! | cost grows with | the size of the process *then* | the size of the process now |
//! | descriptors | 0, 1, 2, those passed, those of regions (below) | all |
//! | locks of other threads | free | copied held, never released |
//! | statics | as they were then | as they are now |
//! | runs | a function with an argument in the region, or by value | that, or a closure |
//!
//! A clean coproc and the server process have all regions that the creator had attached when the runtime started, not only
//! the runtime's: mapped writable, each with an open descriptor. Attach what coprocs must not have after that. (If the
//! server process dies, the next one has the regions that the creator has then.)
//!
//! Start the runtime early, before other threads and large data. (A later start is checked, see [`Coprocs::new`].) A
//! clean start does not contain code that `dlopen` loaded after the runtime started.
//!
//! In both, signal handlers are reset as by `exec` and no signal is blocked; the process group, the terminal, the
//! environment and the working directory are the creator's. A coproc ends by `_exit`: its creator's `atexit` handlers
//! never run in it, whether its function returns, panics or calls `exit` (with glibc; with other C libraries `exit`
//! runs them). If the coproc forks and the child returns from the function, the child ends by `_exit` too.
//!
//! # What a copy has in common with its original
//!
//! - A function that calls `exit` runs the *destructors of thread-locals* of the copied thread: the thread that started
//!   the runtime, or in a snapshot the thread that spawned. A function that returns does not run them.
//! - Handlers of *`pthread_atfork`* do not run: a library that relies on them to repair its state after a fork is not
//!   repaired.
//! - Copied state is the same in all copies: *`std::hash::RandomState`* may give the same keys in each of them, and so
//!   may other random number generators that were seeded before the copy.
//! - *`std::env::args`* returns the coproc's name, which overwrites the process's arguments.
//!
//! # When processes die
//!
//! | process | effect of its death |
//! | --- | --- |
//! | a coproc, by whatever cause | its creator's join says how; robust locks that it held report owner death; the region is swept |
//! | the server process (`zygote`) | the next spawn makes another one, from the process as it is then; coprocs go on |
//! | the creator | ready coprocs end; others go on, unless they were to [die with it](Attributes::die_with_parent); the server process ends after the last of them |
//!
//! A coproc may start a runtime and coprocs of its own. So may the child of a fork, which cannot use its parent's
//! runtime ([`SpawnError::OtherProcess`]).
//!
//! # The creator's other children
//!
//! Coprocs have no exit signal: they send no SIGCHLD, and `waitpid(-1)` does not report them. The runtime reaps them
//! itself. But the kernel gives the exit signal SIGCHLD to a coproc that becomes another program by `exec`: a
//! `waitpid(-1)` of the host may then reap it, or an ignored SIGCHLD may discard its status, and a join then returns
//! [`JoinError::Taken`]. That is so, too, if the kernel has given its ID to another child meanwhile, which is neither
//! signalled nor reaped. (With two exceptions: before Linux 6.9, that of [`Coproc::kill`]; and with no free descriptor a join
//! or a spawn goes by the ID alone.)
//!
//! A coproc that is never joined (it is [detached](Attributes::detached), or its handle was dropped) is a zombie from
//! its end until the next spawn or join, or a call of [`reap_ended`].

mod attributes;
mod child;
mod clone;
mod confine;
mod error;
mod join;
mod pool;
mod reap;
mod record;
mod runtime;
mod spawn;
mod supervisor;
#[cfg(test)]
mod tests;
mod wait_any;
mod zygote;

pub use crate::sys::limits::Usage;
pub use attributes::{Attributes, Scheduling};
pub use child::descriptors;
pub use confine::{FileAccess, SystemCalls};
pub use error::{JoinError, SpawnError, StartError};
pub use join::{Coproc, Exit, KillError, Outcome};
pub use reap::reap_ended;
pub use rustix::process::Signal;
pub use spawn::{Coprocs, Options};
pub use supervisor::{Event, Happening, Restart, Spec, Supervisor};
pub use wait_any::wait_any;

use attributes::Attribute;
use record::{Chain, Ref, Request};
use zygote::Zygote;
