//! The robust forms of all protocols behind one trait.
#![allow(dead_code, reason = "each program uses its part")]

use core::mem::forget;
use core::pin::Pin;
use latchwork::mutex::{
    Inherit, LockError, Mutex, Protect, Robust, RobustProtocol, Throughput, WaitWake,
};
use latchwork::sharing::Sharing;
use latchwork_testkit::in_dying_thread;
use latchwork_testkit::priority::may_use_priorities;

/// That of the locks here.
pub const CEILING: u8 = 30;

/// A protocol, and how its locks are made.
pub trait Kind: RobustProtocol + Sized + 'static {
    fn robust() -> Robust<Self>;

    /// Whether this process may use it; says so if not.
    fn may_be_used(_test: &str) -> bool {
        true
    }

    fn mutex<T>(value: T) -> Mutex<T, Robust<Self>> {
        Mutex::from_raw(Self::robust(), value)
    }
}

impl<S: Sharing> Kind for WaitWake<S> {
    fn robust() -> Robust<Self> {
        Robust::new()
    }
}

impl<S: Sharing> Kind for Inherit<S> {
    fn robust() -> Robust<Self> {
        Robust::new()
    }
}

impl<S: Sharing> Kind for Throughput<S> {
    fn robust() -> Robust<Self> {
        Robust::new()
    }
}

impl<S: Sharing> Kind for Protect<S> {
    fn robust() -> Robust<Self> {
        Robust::<Self>::with_ceiling(CEILING)
    }

    fn may_be_used(test: &str) -> bool {
        may_use_priorities(test)
    }
}

pub type Lock<K> = Mutex<u32, Robust<K>>;
/// Takes the lock in a thread that dies with it.
pub fn leave_dead_owner<K: Kind>(lock: Pin<&Lock<K>>, value: u32) {
    in_dying_thread(|| {
        let mut guard = lock.lock().unwrap();
        *guard = value;
        forget(guard);
    });
}

pub fn expect_owner_died<K: Kind>(lock: Pin<&Lock<K>>) {
    match lock.lock() {
        Err(LockError::OwnerDied(died)) => drop(died.make_consistent()),
        other => panic!("{other:?}"),
    }
    drop(lock.lock().unwrap());
}
