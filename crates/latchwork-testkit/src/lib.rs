//! Helpers for the tests of Latchwork: processes, and their violent end.
//!
//! | part | purpose |
//! | --- | --- |
//! | [`Trial`] | one kill test: mutual exclusion with others, seed, watchdog, number of kills |
//! | [`Child`] | a forked (or raw-cloned) process that never outlives its test |
//! | [`Storm`] | working children, killed at random moments and replaced |
//! | [`step`] | one operation, killed at every instruction |
//! | [`die`] | the end of a child, as by a kill |
//! | [`in_dying_thread`] | a thread that dies alone, with all that it holds |
//! | [`Namespace`] | a PID namespace, and its end as a whole |
//! | [`Page`] | memory that forks share, outside of any region: a test's own journal |
//! | [`output_of`] | a program that must end by itself |
//! | [`Patience`] | how long a test waits before it reports a hang |
//! | [`compile`] | a program in C |
//! | [`bodies`] | what every lock must do, for the tests of several crates |
//! | [`priority`] | policies and priorities |
//! | [`refuse`], [`install`] | system calls that fail, as in a sandbox; a seccomp filter |
//! | [`count_calls`], [`calls_in`] | how many system calls a thread makes |
//! | [`WallClock`] | steps of the wall clock, in a machine of the tests' own |
//! | [`Mapped`] | any value in memory that forks share |
//! | [`ThreadId`] | a thread, as others see it |
//! | [`explore`] | every state of a model |
//! | [`conformance`] | RTEMS's behaviour tables, run against an implementation |
//! | [`guides`] | the code blocks of README and the guides |
//! | [`Leftover`] | a file or folder that is removed when the test ends, however it ends |
//!
//! Environment: `LATCHWORK_SEED` repeats a run's random decisions (not the scheduler's);
//! `LATCHWORK_KILLS` multiplies the number of kills, 1 by default;
//! `LATCHWORK_POINTS` multiplies the kills of [`step`] in its place;
//! `LATCHWORK_RECOVERIES` is the share of operations of which [`step`] also kills tasks that recover (0 to 1);
//! `LATCHWORK_STRESS_SECONDS` is how long the mixed stress test goes on, 3 by default, 600 in the long run;
//! `LATCHWORK_MESSAGES` is how many messages `kill_queue` counts, 100,000 by default;
//! `LATCHWORK_KILL_REPORT` names a file to which [`step`] appends what it has tried, as JSON;
//! `LATCHWORK_MODEL_STATES` asks [`explore`] for large bounds, of at most so many states in each model, and
//! `LATCHWORK_MODEL_REPORT` names a file to which it then appends how many there were, as JSON;
//! `LATCHWORK_STEP_CLOCK=1` lets tests set the wall clock: for a machine in which nothing else runs;
//! `LATCHWORK_CONFORMANCE` names a file to which the conformance report goes, as JSON;
//! `LATCHWORK_WATCHDOG` is the [`Patience`] in seconds, 120 by default. The long run:
//!
//! ```text
//! LATCHWORK_KILLS=8 cargo test --release -p latchwork --test 'kill_*' -- --nocapture
//! LATCHWORK_STRESS_SECONDS=600 cargo test --release -p latchwork --test kill_mixed -- --nocapture all_kinds
//! ```
//!
//! No test result depends on a measured time: the watchdog only ends a test that would never end.

mod apart;
pub mod bodies;
mod child;
mod compile;
pub mod conformance;
mod counted;
mod dying_thread;
pub mod explore;
pub mod guides;
mod leftover;
mod mapped;
mod namespace;
mod page;
mod patience;
pub mod priority;
mod program;
mod sandbox;
mod seed;
pub mod step;
mod storm;
mod thread_id;
mod trial;
mod wall_clock;
mod watchdog;

pub use child::{Child, Exit, die, has_futex_waitv, is_in_region_sleep, region_sleep_words};
pub use compile::compile;
pub use counted::{calls_in, count_calls};
pub use dying_thread::in_dying_thread;
pub use fastrand;
pub use leftover::Leftover;
pub use mapped::Mapped;
pub use namespace::Namespace;
pub use page::Page;
pub use patience::Patience;
pub use program::{output_of, receive_patiently, write_program};
pub use sandbox::{install, refuse};
pub use seed::Seed;
pub use storm::{Storm, Worker};
pub use thread_id::ThreadId;
pub use trial::Trial;
pub use wall_clock::WallClock;
pub use watchdog::Watchdog;
