//! Region locks in memory that no task uses: see `mutex/at_rest.rs`.

use super::lock::NOT_RECOVERABLE;
use super::part::rested;
use super::{InRegion, RegionProtocol};
use crate::atomic::Ordering::Relaxed;
use crate::mutex::at_rest::AtRest;

impl<P: RegionProtocol> crate::mutex::at_rest::sealed::Sealed for InRegion<P> {}

impl<P: RegionProtocol> AtRest for InRegion<P> {
    fn put_to_rest(&mut self) -> Result<(), &'static str> {
        // Relaxed: no task uses the lock.
        let word = self.word().load(Relaxed);
        // A waiter for which a lock is reserved has not had it.
        let is_free = word == P::RESERVED;
        let state = rested(if is_free { 0 } else { word }, NOT_RECOVERABLE);
        *self = Self::new();
        self.word().store(state, Relaxed);
        Ok(())
    }
}
