//! Message queues in a region: bounded, for any number of senders and receivers, and consistent after the death of any
//! task.
//!
//! A message is 0 to `max_message` bytes, or a block of the region's heap of any size. Receivers get messages in the
//! order of their [ranks](Rank), and messages of one rank in the order in which their sends were committed. Small
//! messages are copied under a lock, in one step; larger ones are copied outside it, or not at all.
//!
//! | to | use |
//! | --- | --- |
//! | send, receive a copy | [`Queue::send`], [`Queue::receive`], and `try_`, `_until`, `_for` |
//! | send before all others, or by priority | [`Queue::urgent`], [`Queue::with_priority`] |
//! | write and read the message in place | [`Queue::reserve`], [`Queue::receive_held`] |
//! | transfer a block without a copy | [`Queue::send_block`], [`Queue::receive_block`] |
//! | send and receive several at once | [`Queue::send_batch`], [`Queue::receive_batch`] |
//! | send one message to all current waiters | [`Queue::broadcast`] |
//! | wait by epoll | [`Queue::watch`] |
//! | check that all work is done | [`Queue::is_drained`] |
//! | connect two tasks at the lowest cost | [`spsc`] |
//!
//! | a task that dies | when | then |
//! | --- | --- | --- |
//! | a sender | before the commit | nothing of the message is visible, and its place is free again |
//! | a receiver | before [`Queue::receive`] has copied the message, or the [`Message`] was dropped | the message is delivered again, in its old position |
//! | any task | while it holds a lock of the queue | the next task that takes the lock rebuilds the queue from its cells |
//! | receivers | with messages that they had waited for | those are pending again, possibly more than the capacity |
//! | a task that was woken for a message, or handed one | before it took it | another task is woken, or gets it |
//!
//! So a receiver that copies gets a message once, and the copy dies with the receiver. One that holds a message gets it at least
//! once. To process each message exactly once, receive it with [`Queue::receive_held`], and commit the result and a mark that it
//! is done in one step. (The message's
//! [deliveries](Message::deliveries) say whether there was an earlier attempt.)
//!
//! ```
//! use latchwork::queue::{Queue, QueueOptions};
//! use latchwork::region::RegionOptions;
//!
//! let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
//! let queue = Queue::create(&region, "jobs", &QueueOptions::new(16, 64))?;
//! queue.send(b"first")?;
//! queue.urgent().send(b"at once")?;
//! let message = queue.receive_held()?;
//! assert_eq!(&*message, b"at once");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *Waiting:* a task polls for some microseconds, and then sleeps through `region/park.rs`, which also notices deaths
//! of tasks. Between polls it yields its CPU; mostly it yields at once if a yield ended its last wait, since its peer then
//! runs on the same CPU. While other programs need the CPU, it does not yield. `sleepers.rs` says why no wake-up is lost, and `waiters.rs` which receiver is served first.
//! *Fork:* the child is a task of its own; messages that its parent has in flight stay the parent's, and finishing one
//! in the child aborts. *Signal handlers* must not use any queue if the interrupted code may be in a call on one, also
//! on another one: a task has one inbox, and the interrupted wait would not be served any more. Nor must they keep a message. *Cost:* a send or receive of a small message is one robust lock and unlock, and a copy; it makes no system
//! call unless a task sleeps. A message whose rank puts it between others shifts four bytes for each message behind it
//! or before it, whichever are fewer. A broadcast, and each message to a waiting receiver that is served in order,
//! reads a word of every task of the region. A broadcast is copied under the locks.
//!
//! # How it works
//!
//! *Where a message becomes visible to receivers:* in `Cells::commit` (`cells.rs`), which every send calls under the
//! lock. The commit point is the store of the state `READY` in the message's cell: if the sender is killed before the
//! store, nothing was sent; if it is killed after it, the message is delivered. The next step makes receivers find the
//! cell: `Lane::put` (`lane.rs`, a Release store), or `insert_ready` (`ready.rs`) where receivers are served in order.
//! Receivers read it in `Queue::take` (`receive.rs`). A broadcast becomes visible in `Cells::post_board` (`waiters.rs`), a
//! ring's message in `Ring::advance` (`ring.rs`). `ARCHITECTURE.md` says what each file has.

mod attempt;
mod cell;
mod cells;
mod content;
mod error;
mod handle;
mod head;
pub mod inspect;
pub(crate) mod lane;
mod layout;
mod line;
mod locked;
mod message;
mod options;
pub(crate) mod places;
mod rank;
mod ready;
mod receive;
mod recover;
mod report;
mod reserve;
pub(crate) mod ring;
mod send;
mod shape;
pub(crate) mod sleepers;
mod spares;
pub mod spsc;
mod transfer;
mod waiters;
mod wake;
mod watch;

pub(crate) use content::validate_head;
pub use error::{ControlError, QueueError, ReceiveError, SendBlockError, SendError};
pub use handle::Queue;
pub(crate) use head::Head;
pub use message::{Message, Messages};
pub use options::{Discipline, QueueOptions, Wait};
pub use rank::{Priority, Rank};
pub use reserve::Reservation;
pub use watch::{Watch, WatchError};
