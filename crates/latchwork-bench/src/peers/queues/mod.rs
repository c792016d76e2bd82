//! Ways to pass messages from one task to another.

mod boost;
mod floor;
mod ours;
mod ours_in_c;
mod ours_with_locks;
mod pthread;
mod queue;
mod system;

pub(crate) use boost::Boost;
pub(crate) use floor::{Memcpy, SpinningRing};
pub(crate) use ours::{Batched, Copied, HandedOver, InPlace, Ring, RingBatched, RingInPlace};
pub(crate) use ours_in_c::InC;
pub(crate) use ours_with_locks::{OurMutexCond, OurMutexSem};
pub(crate) use pthread::{MutexCond, MutexSem, RobustMutexCond, RobustMutexSem};
pub(crate) use queue::{CAPACITY, MOST, MessageQueue, Receives, Sends};
use queue::{add_up, compute, read_lines};
pub(crate) use system::{Pipe, PosixMq, SeqPacket, ShallowMq};
