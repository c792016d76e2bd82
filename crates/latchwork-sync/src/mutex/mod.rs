//! Mutual exclusion: one [`Mutex`] type, with the protocol as its parameter.
//!
//! | protocol | size | owner death | for |
//! | --- | --- | --- | --- |
//! | [`WaitWake`] | 4 bytes | locked for ever | threads of one process |
//! | [`WaitWake<Shared>`](crate::sharing::Shared) | 4 bytes | locked for ever | processes that cannot be killed, or that die together |
//! | [`Throughput`] | 16 bytes | locked for ever; a supervisor can detect it | many tasks, critical sections of a microsecond or more |
//! | [`Protect`] | 8 bytes | locked for ever | real-time tasks: the owner runs at a priority ceiling |
//! | [`Inherit`], [`InheritPlain`] | 8, 4 bytes | reported to every later lock call | real-time tasks: the owner runs at the priority of its waiters |
//! | [`Robust`] | 40 bytes | reported to the next owner | processes that can be killed at any moment |
//! | [`InRegion`] | 8 bytes | reported to the next owner | the same, for data in a region: nearly as fast as a lock that is not robust, and not pinned |
//! | [`InRegion<Throughput>`](InRegion) | 16 bytes | reported to the next owner | the same, for many tasks and critical sections of a microsecond or more |
//! | [`Robust<Inherit>`], [`Robust<Protect>`], [`Robust<Throughput>`] | 40 bytes | reported to the next owner | the same, with the properties of their protocol |
//!
//! [`RecursiveMutex`] lets its owner lock it again, with any protocol but [`Robust`] and [`InRegion`].
//!
//! ```
//! use latchwork::mutex::Mutex;
//!
//! static COUNTER: Mutex<u64> = Mutex::new(0);
//! *COUNTER.lock() += 1;
//! assert_eq!(*COUNTER.lock(), 1);
//! ```

#[cfg(not(loom))]
#[doc(hidden)]
pub mod at_rest;
#[cfg(all(feature = "foreign", not(loom)))]
#[doc(hidden)]
pub mod foreign;
pub mod in_region;
mod inherit;
mod lock;
mod owner_monitor;
#[cfg(not(loom))]
mod protect;
mod protocol;
#[cfg(not(loom))]
mod recursive;
mod report;
mod robust;
pub mod throughput;
mod wait_mode;
mod wait_wake;

#[cfg(not(loom))]
pub use crate::task::ProtectFault;
#[doc(no_inline)]
pub use in_region::{InRegion, RegionGuard, RegionProtocol};
pub use inherit::{Inherit, InheritFault, InheritPlain};
pub use lock::{Mutex, MutexGuard};
pub(crate) use lock::{constructors, lends_data};
pub(crate) use owner_monitor::OwnerMonitor;
#[cfg(not(loom))]
pub use protect::{KeptBoost, Protect, TrustedPriority};
#[cfg(not(loom))]
pub(crate) use protocol::implement_lock_api;
pub use protocol::{DataState, Interruptible, Protocol, RawLock};
#[doc(hidden)]
pub use protocol::{Relock, RelockAs, SleepPlace, SleepWord};
#[cfg(not(loom))]
pub use recursive::{RecursiveGuard, RecursiveMutex};
pub use wait_mode::Unfinished;
#[doc(hidden)]
pub use wait_mode::WaitMode;
pub(crate) use wait_mode::{end_of_nap, is_over};

pub(crate) use report::{lock_of, reports};
#[doc(hidden)]
pub use robust::{
    Acquired, OWNER_DIED, Pinned, RawError, RobustOps, TID_MASK, Unpinned, WAITERS, owner_of_guard,
};
pub use robust::{LockError, LockFailure, OwnerDied, Robust, RobustGuard, RobustProtocol};
pub(crate) use robust::{
    NoGuard, edits_in_place, exclusive_access, from_raw_error, lock_error, lock_reporting,
    methods_of_owner_died, methods_of_unpinned,
};
pub use throughput::Throughput;
pub use wait_wake::WaitWake;
