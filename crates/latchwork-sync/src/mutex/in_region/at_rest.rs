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
        let state = rested(self.word().load(Relaxed), NOT_RECOVERABLE);
        *self = Self::new();
        self.word().store(state, Relaxed);
        Ok(())
    }
}
