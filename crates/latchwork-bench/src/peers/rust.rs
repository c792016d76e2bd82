//! The locks that Rust programs use.

use std::pin::Pin;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use latchwork::time::Deadline;

use super::{Lock, RwLock};

impl Lock for std::sync::Mutex<u64> {
    type Held<'a> = std::sync::MutexGuard<'a, u64>;

    const BYTES: usize = size_of::<std::sync::Mutex<()>>();

    #[inline]
    fn lock<'a>(self: Pin<&'a Self>) -> Self::Held<'a> {
        self.get_ref()
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lock for parking_lot::Mutex<u64> {
    type Held<'a> = parking_lot::MutexGuard<'a, u64>;

    const BYTES: usize = size_of::<parking_lot::Mutex<()>>();

    #[inline]
    fn lock<'a>(self: Pin<&'a Self>) -> Self::Held<'a> {
        self.get_ref().lock()
    }

    fn times_out(self: Pin<&Self>, deadline: Deadline) -> std::io::Result<bool> {
        // The same clock; the cost of reading it twice belongs to the interface.
        let instant = Instant::now() + deadline.remaining().max(Duration::from_nanos(1));
        Ok(self.get_ref().try_lock_until(instant).is_none())
    }
}

impl RwLock for std::sync::RwLock<u64> {
    type Reading<'a> = std::sync::RwLockReadGuard<'a, u64>;
    type Writing<'a> = std::sync::RwLockWriteGuard<'a, u64>;

    #[inline]
    fn read<'a>(self: Pin<&'a Self>) -> Self::Reading<'a> {
        self.get_ref()
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn write<'a>(self: Pin<&'a Self>) -> Self::Writing<'a> {
        self.get_ref()
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl RwLock for parking_lot::RwLock<u64> {
    type Reading<'a> = parking_lot::RwLockReadGuard<'a, u64>;
    type Writing<'a> = parking_lot::RwLockWriteGuard<'a, u64>;

    #[inline]
    fn read<'a>(self: Pin<&'a Self>) -> Self::Reading<'a> {
        self.get_ref().read()
    }

    #[inline]
    fn write<'a>(self: Pin<&'a Self>) -> Self::Writing<'a> {
        self.get_ref().write()
    }
}
