//! The robust reader/writer lock: a writer's death is reported to the next task, a reader's releases what it held.
//!
//! Not recursive: a task that would wait for itself gets [`LockError::Deadlock`]. No priority inheritance.
//! Source: the *big-reader lock* of Linux (`brlock`: a writer checks a slot of each reader), built from
//! robust mutexes. The *gate* is a queueing mutex in front of the lock that writers hold, of the throughput
//! protocol, which hands the lock off to a waiter that has waited for long. A *seat* is the slot of one reader.
//!
//! There are two kinds of robust mutexes, and so of these locks (`parts.rs`); the text holds for both, but where it names one:
//!
//! | seats | gate | the owner of a part is | lock |
//! | --- | --- | --- | --- |
//! | [`Robust`] | [`Throughput`] | the thread with an ID; the kernel finds what a dead one held | [`RobustRwLock`], pinned |
//! | [`InRegion`] | [`InRegion<Throughput>`](InRegion) | the task with an identity; the region knows whether it is gone | [`RegionRwLock`], which may move while it is free |
//!
//! | part | held by |
//! | --- | --- |
//! | gate, a robust mutex | a writer, while it waits or is inside; a reader for a moment, if it cannot enter past the gate |
//! | seats, [`READERS`](RobustRwLock) robust mutexes | readers, one each; other tasks for a moment |
//! | `writing` | 1 while a writer is inside, or has died there; changed by the gate's owner |
//!
//! The gate is *open* while its word is free, and says that the data of its last owner is whole.
//!
//! | operation | steps |
//! | --- | --- |
//! | read, past an open gate | acquire a free seat; check the gate; if it is not open, release the seat |
//! | read, otherwise | acquire the gate, acquire a seat, release the gate |
//! | write | acquire the gate; wait until each seat has been seen free; set `writing` |
//! | stop reading | release the seat |
//! | stop writing | clear `writing`, release the gate |
//! | downgrade | acquire a seat, clear `writing`, release the gate |
//!
//! Invariants
//! 1. A reader is inside if it has a seat, and has seen the gate open since, or had the gate itself.
//! 2. While `writing` is 1 the gate is not open, and only the gate's owner is inside.
//! 3. A seat protects no data: a task that acquires one from a dead owner declares it consistent at once.
//!
//! *Why a writer is alone.* A reader that enters past the gate stores its seat's word, then loads the gate's. A
//! writer stores the gate's word, then loads the seats'. Each has a barrier in between. So the reader sees the
//! gate locked and leaves its seat, or the writer sees the seat locked and waits. A seat acquired by the gate's
//! owner is visible to the next owner of the gate.
//!
//! *A kill between any two instructions* leaves robust mutexes, each with all the guarantees of its kind: its owner's
//! death is detected, its sleepers are woken. A dead reader's seat is acquired by a task that waits for it or searches
//! for a free one. After the death of a gate's owner, `writing` says what the death means. 0: the dead task was not
//! inside (it was entering as a reader, or waited for readers), and the gate is acquired as if it had been released. 1:
//! the data may be torn. The next owner of the gate gets the report, even if it came to read; it then holds the lock to
//! write. (By 2 no reader is inside, so it need not check the seats.) `writing` is set before the first change of the
//! data and cleared after the last one in the program order of its own task, and a kill cuts that order at one point. (The
//! next owner sees it: the kernel, or the life-word of a region's task, orders the dead task's stores before its death.)
//! The only recovery is to acquire a mutex, so a kill of the recovering task is one more owner death.
//!
//! *No wake-up is lost:* each sleep is that of a robust mutex.
//! *Orderings:* a reader's release of its seat (Release) pairs with the writer's load of it (Acquire), a
//! writer's release of the gate with a reader's load of the gate; barriers as above.
//!
//! *Progress:* writers first: readers that come while a writer has the gate wait. All waiters, readers and
//! writers, queue at the gate, and its first waiter gets it handed off within the threshold of 5 ms: no task
//! starves (see [`Throughput`]). (A gate that is reserved for that waiter has no owner, and is not open.) The gate's owner
//! then waits for the readers in the seats. It waits for no reader that comes later, except for the moment in which such a
//! reader finds the gate locked. *All seats
//! taken:* one more reader acquires the gate and keeps it until there is a seat. It sleeps on its favourite
//! seat, which its ID (in a region its slot) selects, and checks the others each millisecond.
//!
//! *Reading while reading* takes a second seat and never waits. Where it would have to, it reports `Deadlock`,
//! since a writer may be waiting for the first seat. Writing while reading and reading while writing never
//! wait, either: before each wait a task checks whether it has a seat or the gate itself.
//!
//! *Hostile events:* as for the mutexes of the kind: EINTR, exec, fork, signal handlers, PID namespaces. A lock of region locks
//! that is moved while tasks are inside, or after they died there, may take dead tasks for living ones in its new place;
//! [`reset`](RobustRwLock::reset) makes it usable.
//! *Frozen:* layout of the parts; a line of 64 bytes for the gate and for each seat. (Counters, if the lock has any, are
//! 64 bytes more, between the gate and the seats.)
//! *Cost, free:* to read, two compare-and-swaps in a cache line that no other reader touches (unless their IDs
//! select the same seat), and a load of the gate; to write, two compare-and-swaps, and a load of each seat.
//! *Checked by:* `tests/loom_robust_rwlock.rs` and `tests/loom_region_rwlock.rs` (a victim that dies at each of its steps; negative twins),
//! `tests/robust_rwlock.rs`, `tests/region_rwlock.rs`, `tests/rwlock_traced.rs`, `tests/kill_rwlock.rs` (kills at each
//! instruction, and storms).
//!
//! [`InRegion`]: crate::mutex::InRegion
//! [`Robust`]: crate::mutex::Robust
//! [`Throughput`]: crate::mutex::Throughput

mod account;
mod acquire;
#[cfg(not(loom))]
mod at_rest;
mod error;
#[cfg(all(feature = "foreign", not(loom)))]
mod foreign;
mod guard;
mod in_region;
mod lock;
mod owner_died;
mod parts;
mod raw;

pub use self::error::LockError;
#[cfg(all(feature = "foreign", not(loom)))]
pub use self::foreign::*;
pub use self::guard::{RobustReadGuard, RobustWriteGuard};
pub use self::in_region::{Movable, RegionRwLock};
pub use self::lock::RobustRwLock;
pub use self::owner_died::OwnerDied;
#[cfg(loom)]
pub(crate) use self::parts::Part;
pub use self::parts::SeatLock;
#[cfg(loom)]
pub(crate) use self::raw::{Entered, RawRobust};
