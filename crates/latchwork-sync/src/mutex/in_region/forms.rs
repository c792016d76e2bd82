//! The forms of the region lock: which protocols have one, and where they differ. The states are in the
//! [parent](super).
#![allow(unsafe_code)]

use super::membership::{Member, NotATask};
use crate::atomic::AtomicU64;
use crate::mutex::{Acquired, Unfinished, WaitMode};

/// Where the region lock of a protocol differs from that of others. Only the protocols of this crate implement it.
///
/// # Safety
/// If `take` succeeds, it has put the task's identity into the word by a compare-and-swap, with Acquire: into a word
/// without an owner, or in place of an owner that is gone; and returns `OwnerDied` if the word had `INCONSISTENT`, or
/// such an owner.
#[doc(hidden)]
pub unsafe trait RegionOps: Sized + Unpin + Send + Sync + 'static {
    /// What the lock has behind its word.
    type Gate: Default + Unpin + Send + Sync;

    /// The same, of an unlocked lock.
    #[cfg(not(loom))]
    const GATE: Self::Gate;

    /// The word of a lock that is free, and reserved for waiters; 0 if there is none.
    const RESERVED: u64 = 0;

    /// Takes the lock of these words.
    fn take(
        word: &AtomicU64,
        gate: &Self::Gate,
        me: Member,
        wait_mode: WaitMode,
    ) -> Result<Acquired, RawError>;

    /// What the release of a word with an owner, which sets `flags`, keeps of it, and how many sleepers it wakes; the
    /// caller would wake `wakes`.
    #[inline(always)]
    fn hand_on(_word: u64, _flags: u64, wakes: u32) -> (u64, u32) {
        (0, wakes)
    }
}

/// The protocols that have a form for regions: [`WaitWake`](crate::mutex::WaitWake) and
/// [`Throughput`](crate::mutex::Throughput), both [`Shared`](crate::sharing::Shared).
pub trait RegionProtocol: RegionOps {}
impl<P: RegionOps> RegionProtocol for P {}

/// Why a region lock was not acquired: see [`LockError`](super::LockError).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
#[allow(missing_docs, reason = "hidden")]
pub enum RawError {
    WouldBlock,
    TimedOut,
    Interrupted,
    NotRecoverable,
    Deadlock,
    Unavailable(NotATask),
}

impl From<Unfinished> for RawError {
    fn from(unfinished: Unfinished) -> Self {
        match unfinished {
            Unfinished::TimedOut => Self::TimedOut,
            Unfinished::Interrupted => Self::Interrupted,
        }
    }
}
