//! Latchwork's own contestants.

use std::io;
use std::pin::Pin;

use latchwork::mutex::{Mutex, Robust, WaitWake};

use super::{FreeLock, Line};

impl FreeLock for Mutex<u64, WaitWake> {
    #[inline]
    fn increment(&self) {
        *self.lock() += 1;
    }
}

/// The robust wait-wake mutex, which needs a place to stay.
pub(crate) struct RobustMutex;

static ROBUST: Line<Mutex<u64, Robust>> = Line(Mutex::robust(0));

impl FreeLock for RobustMutex {
    #[inline]
    fn increment(&self) {
        if let Ok(mut datum) = Pin::static_ref(&ROBUST.0).lock() {
            *datum += 1;
        }
    }

    fn check(&self) -> io::Result<()> {
        match Pin::static_ref(&ROBUST.0).lock() {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }
}
