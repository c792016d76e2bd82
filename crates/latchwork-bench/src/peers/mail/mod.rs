//! Ways to pass messages from one task to another.

mod floor;
mod ours;
mod pthread;
mod system;

pub(crate) use floor::{Memcpy, SpinningRing};
pub(crate) use ours::{Batched, Copied, HandedOver, InPlace, Ring, RingBatched};
pub(crate) use pthread::{MutexCond, MutexSem};
pub(crate) use system::{Pipe, PosixMq, SeqPacket, ShallowMq};

use std::io;

/// Messages that may be under way, where the contestant leaves the choice: as many as a POSIX message
/// queue takes without privileges.
pub(crate) const CAPACITY: usize = 10;

/// A way from one task to another, which threads and forked children share.
pub(crate) trait Mail: Send + Sync + Sized + 'static {
    type Sender<'a>: Sends
    where
        Self: 'a;
    type Receiver<'a>: Receives
    where
        Self: 'a;

    /// One for messages of this size.
    fn make(size: usize) -> io::Result<Self>;

    /// The sending end, for the task that is going to send.
    fn sender(&self) -> io::Result<Self::Sender<'_>>;

    /// The receiving end, likewise.
    fn receiver(&self) -> io::Result<Self::Receiver<'_>>;
}

pub(crate) trait Sends {
    /// Sends `message` so many times.
    fn send(&mut self, message: &[u8], times: u64) -> io::Result<()>;
}

pub(crate) trait Receives {
    /// Receives so many messages into `buffer`, or looks at each cache line of each where it lies.
    fn receive(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()>;
}

/// Reads a byte of each cache line, so that a message that is not copied has still come over.
fn look_at(message: &[u8]) {
    let sum = message
        .iter()
        .step_by(64)
        .fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    std::hint::black_box(sum);
}
