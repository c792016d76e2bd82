//! Rings: queues for one sender and one receiver, which need no lock.
//!
//! A ring is created as such. A task claims its [sending](Spsc::sender) or its [receiving](Spsc::receiver) end; a
//! second claim is refused, until the first is dropped or its task has died. Messages are sent and received as through
//! a [`Queue`](super::Queue) of the default order: by copy, in place, in batches; a ring is flushed, watched and
//! deleted as a queue is. There are no ranks, blocks, or broadcasts.
//!
//! | a task that dies | when | then |
//! | --- | --- | --- |
//! | the sender | before the message, or batch, is committed | nothing of it is visible |
//! | the receiver | before it has copied the message, or dropped what it held in place | the next receiver gets the message, or the whole batch |
//!
//! ```
//! use latchwork::queue::{QueueOptions, spsc::Spsc};
//! use latchwork::region::RegionOptions;
//!
//! let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
//! let ring = Spsc::create(&region, "samples", &QueueOptions::new(64, 16))?;
//! let mut sender = ring.sender()?;
//! sender.send(b"first")?;
//! let mut receiver = ring.receiver()?;
//! assert_eq!(&*receiver.receive_held(latchwork::queue::Wait::Forever)?, b"first");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *Claims:* an end's word holds the slot and generation of the task that has it. The task's life-word says whether
//! that task is alive, so a dead task's claim is taken over by one compare-and-swap. `ring.rs` describes the ring's
//! words, why no wake-up is lost, and why there is nothing to recover. *Waiting:* some microseconds of polling, with
//! yields, then sleep. *Fork:* an end stays the parent's; using it in the child aborts. *Cost:* one read-modify-write
//! on the side's own line for each message or batch; a copy, unless the message is written in place; and a read of the
//! other side's line when what was known of it is used up.

mod content;
mod end;
pub(super) mod handle;
mod receiver;
mod sender;

pub use handle::{ClaimError, Spsc};
pub use receiver::{Held, HeldBatch, Receiver};
pub use sender::{Place, Sender};
