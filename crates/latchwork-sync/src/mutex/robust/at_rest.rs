//! Robust locks in memory that no task uses: see `mutex/at_rest.rs`.

use super::ops::{CONSISTENT, INCONSISTENT, NOT_RECOVERABLE};
use super::{OWNER_DIED, Robust, RobustProtocol, WAITERS};
use crate::atomic::Ordering::Relaxed;
use crate::mutex::at_rest::AtRest;

// Without the form of `Protect`, whose ceiling a file could set to what no lock has.
impl<P: RobustProtocol + Default> crate::mutex::at_rest::sealed::Sealed for Robust<P> {}

impl<P: RobustProtocol + Default> AtRest for Robust<P> {
    fn put_to_rest(&mut self) -> Result<(), &'static str> {
        // Relaxed, throughout: no task uses the lock.
        let state = self.node.state.load(Relaxed);
        if ![CONSISTENT, INCONSISTENT, NOT_RECOVERABLE].contains(&state) {
            return Err("a robust lock is in a state that there is not");
        }
        let word = self.node.word.load(Relaxed);
        // A waiter for which a lock is reserved has not had it.
        let is_free = word == 0 || P::RESERVES && word == WAITERS;
        let is_torn = state != CONSISTENT || !is_free;
        let (mut fresh, setting) = (Self::new(), self.node.setting);
        // The fresh lock is dropped with the words of this one.
        self.node.word.store(0, Relaxed);
        core::mem::swap(&mut self.node, &mut fresh.node);
        self.node.setting = setting;
        if is_torn {
            self.node.word.store(OWNER_DIED, Relaxed);
            self.node.state.store(state.max(INCONSISTENT), Relaxed);
        }
        Ok(())
    }
}
