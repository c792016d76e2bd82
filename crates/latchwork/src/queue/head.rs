//! The head of a queue: its locks, the words that tasks sleep on, its counts and addresses. (`layout.rs` says which parts
//! a queue has, and how long each stays.)

use super::shape::{CHUNKS, PARTS, SIZES};
use super::{line::Line, sleepers::Sleepers};
use crate::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed},
};
use crate::mutex::InRegion;

/// The head of a queue. Each lock has a line of its own, for its waiters; so have the words of each side, and the words
/// that hardly ever change.
#[repr(C)]
pub(crate) struct Head {
    /// First: code that knows a queue's address only, such as that of inboxes, finds it there.
    pub(super) receivers_lock: Line<InRegion>,
    pub(super) senders_lock: Line<InRegion>,
    pub(super) fixed: Line<Fixed>,
    pub(super) blocks: Line<Blocks>,
    pub(super) sending: Line<Sending>,
    pub(super) receiving: Line<Receiving>,
}

const _: () = assert!(core::mem::offset_of!(Head, receivers_lock) == crate::region::QUEUE_LOCK);

/// Words that hardly ever change: most of them only when a queue begins or ends, the sleepers' words around sleeps,
/// `spares` when a chunk is added, `recovered` after deaths, `given` and `ranked` with such messages.
#[derive(Default)]
#[repr(C)]
pub(super) struct Fixed {
    pub(super) capacity: AtomicU32,
    pub(super) max_message: AtomicU32,
    /// How waiting receivers are served; see `waiters.rs`.
    pub(super) discipline: AtomicU32,
    /// Even: the queue lives; odd: there is none. A handle keeps the life that it was made in.
    pub(super) life: AtomicU32,
    pub(super) receivers: Sleepers,
    pub(super) senders: Sleepers,
    pub(super) watchers: Sleepers,
    /// The region's count of deaths at the last recovery.
    pub(super) recovered: AtomicU32,
    /// The number of cells that inboxes name: boards, and messages that were handed over. It grows under all locks, and
    /// shrinks under the receivers' lock.
    pub(super) given: AtomicU32,
    /// The number of cells beyond the capacity. Changes under all locks.
    pub(super) spares: AtomicU32,
    /// The number of messages sent that do not belong behind all others. Under the senders' lock.
    pub(super) ranked: AtomicU32,
    /// The sizes of a [`Shape`].
    pub(super) sizes: [AtomicU32; SIZES],
    /// The parts of a [`Shape`], as addresses.
    pub(super) parts: [AtomicUsize; PARTS],
}

/// The addresses of the queue's blocks.
#[derive(Default)]
#[repr(C)]
pub(super) struct Blocks {
    pub(super) chunks: [AtomicUsize; CHUNKS],
    /// The address of the body, or 0.
    pub(super) body: AtomicUsize,
    /// The next head in the region's list of free heads. Under the lock of the region's names.
    next_spare: AtomicUsize,
}

/// The words of the senders; they change under the senders' lock.
#[derive(Default)]
#[repr(C)]
pub(super) struct Sending {
    /// The senders' position in the lane of messages.
    pub(super) sent: AtomicU32,
    /// The senders' position in the lane of free cells.
    pub(super) fetched: AtomicU32,
    pub(super) stash_first: AtomicU32,
    pub(super) stash_count: AtomicU32,
    pub(super) next_number: AtomicU64,
}

/// The words of the receivers; they change under the receivers' lock.
#[derive(Default)]
#[repr(C)]
pub(super) struct Receiving {
    /// The receivers' position in the lane of messages.
    pub(super) taken: AtomicU32,
    /// The receivers' position in the lane of free cells.
    pub(super) freed: AtomicU32,
    pub(super) ready_first: AtomicU32,
    pub(super) ready_count: AtomicU32,
    /// The value of `ranked` for which a receiver last emptied the lane.
    pub(super) ranked_seen: AtomicU32,
    /// The number of inboxes that wait for this queue and have been given nothing.
    pub(super) waiting: AtomicU32,
    pub(super) next_arrival: AtomicU64,
    pub(super) redelivered: AtomicU64,
}

impl Head {
    /// The offset of the link between free heads.
    pub(super) const NEXT_SPARE: usize =
        core::mem::offset_of!(Head, blocks) + core::mem::offset_of!(Blocks, next_spare);

    /// A head without a queue.
    pub(crate) fn new() -> Self {
        Self {
            receivers_lock: Line(InRegion::new()),
            senders_lock: Line(InRegion::new()),
            fixed: Line(Fixed {
                life: AtomicU32::new(1),
                ..Fixed::default()
            }),
            blocks: Line::default(),
            sending: Line(Sending {
                next_number: AtomicU64::new(1),
                ..Sending::default()
            }),
            receiving: Line(Receiving {
                next_arrival: AtomicU64::new(1),
                ..Receiving::default()
            }),
        }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.fixed.capacity.load(Relaxed)
    }

    pub(super) fn max_message(&self) -> u32 {
        self.fixed.max_message.load(Relaxed)
    }

    /// The [`Discipline::code`](super::Discipline::code). A task that reads that of a later life than its handle's also
    /// reads that later life.
    pub(super) fn discipline(&self) -> u32 {
        self.fixed.discipline.load(Acquire)
    }

    /// Whether there is a queue.
    pub(super) fn is_alive(&self) -> bool {
        self.fixed.life.load(Acquire).is_multiple_of(2)
    }

    /// Whether there is a body, of a live or of a deleted queue. Under a lock.
    pub(super) fn has_body(&self) -> bool {
        self.blocks.body.load(Relaxed) != 0
    }
}

/// Adds 1 to a count that a lock of the caller's protects.
#[inline]
pub(super) fn count_up(count: &AtomicU32) {
    count.store(count.load(Relaxed).saturating_add(1), Relaxed);
}

/// Subtracts 1 from a count that a lock of the caller's protects.
#[inline]
pub(super) fn count_down(count: &AtomicU32) {
    count.store(count.load(Relaxed).saturating_sub(1), Relaxed);
}
