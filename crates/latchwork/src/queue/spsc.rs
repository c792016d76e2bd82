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
#![allow(unsafe_code)]

mod control;
mod receiver;
mod sender;

pub use receiver::{Held, HeldBatch, Receiver};
pub use sender::{Place, Sender};

use super::attempt::Failure;
use super::ring::{Ring, Side};
use super::{QueueError, QueueOptions, Wait};
use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::backoff::ExponentialBackoff;
use crate::hook::{Kind, Waiting};
use crate::region::heap::Owner;
use crate::region::{
    AttachError, Inner, ObjectError, Parked, Region, Reused, SpareKind, Task, fingerprint,
};
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::sync::Arc;

/// The head of a ring. Its messages are in a block of their own, the body, which the ring has while it lives, and after
/// its deletion until both ends are free. The head stays, for the next ring, since old handles may read it.
#[repr(C, align(128))]
pub(super) struct Core {
    /// These and the body change under the lock of the region's names, while there is no ring and no task has an end.
    capacity: AtomicU32,
    max_message: AtomicU32,
    /// The body's address, or 0.
    body: AtomicUsize,
    next_spare: AtomicUsize,
    /// By [`Side`]: the task that has the end, or 0.
    pub(super) claims: [AtomicU64; 2],
    pub(super) ring: Ring,
}

impl Core {
    pub(super) fn capacity(&self) -> u32 {
        self.capacity.load(Ordering::Relaxed)
    }

    pub(super) fn max_message(&self) -> u32 {
        self.max_message.load(Ordering::Relaxed)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.ring.life().is_multiple_of(2)
    }
}

impl Reused for Core {
    const FINGERPRINT: u64 = FINGERPRINT;
    const KIND: SpareKind = SpareKind {
        list: 3,
        link: core::mem::offset_of!(Core, next_spare),
    };

    fn new() -> Self {
        let ring = Ring::new();
        ring.begin_life_after(0);
        Self {
            capacity: AtomicU32::new(0),
            max_message: AtomicU32::new(0),
            body: AtomicUsize::new(0),
            next_spare: AtomicUsize::new(0),
            claims: [const { AtomicU64::new(0) }; 2],
            ring,
        }
    }

    fn has_ended(&self) -> bool {
        !self.is_alive()
    }

    fn is_over(&self, region: &Region) -> bool {
        Spsc::at(region, self).is_over()
    }
}

/// The bytes before each message, for its length. The message begins at a multiple of 8.
const LENGTH: usize = 8;

pub(super) const FINGERPRINT: u64 = fingerprint(
    "spsc queue",
    size_of::<Core>(),
    align_of::<Core>(),
    &[LENGTH as u64, 4],
);

/// The reason why an end of a ring was not claimed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// A living task has this end.
    #[error("a living task has this end of the ring")]
    Taken,
    /// The ring of the handle was deleted.
    #[error("the ring was deleted")]
    Deleted,
    /// The calling thread cannot become a task of the region.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// A handle on a ring in a region.
#[derive(Clone, Copy)]
pub struct Spsc<'r> {
    region: &'r Region,
    core: &'r Core,
    /// The life of the ring that this handle was made in.
    life: u32,
}

// SAFETY: the words are atomics, and the messages belong to the task that has claimed an end.
unsafe impl Send for Spsc<'_> {}
// SAFETY: as for `Send`; a handle itself is never changed through a shared reference.
unsafe impl Sync for Spsc<'_> {}

/// The distance from one message to the next, in bytes.
fn stride(max_message: u32) -> usize {
    LENGTH + (max_message as usize).next_multiple_of(8)
}

/// The body's layout; `None` if the ring would not fit the address space.
fn layout(capacity: u32, max_message: u32) -> Option<Layout> {
    let places = capacity.checked_next_power_of_two()? as usize;
    let bytes = stride(max_message).checked_mul(places)?;
    Layout::from_size_align(bytes, align_of::<Core>()).ok()
}

impl<'r> Spsc<'r> {
    /// Creates the ring of this name, or opens it if it exists with the same capacities. All of its memory is allocated
    /// at once. The options' discipline has no effect here.
    ///
    /// # Errors
    /// See [`QueueError`].
    pub fn create(
        region: &'r Region,
        name: &str,
        options: &QueueOptions,
    ) -> Result<Self, QueueError> {
        options.check(region)?;
        region.reused(name, |core: &'r Core| {
            if !core.is_alive() {
                return Self::at(region, core).begin(options.capacities());
            }
            let ring = Self::open_in(region, core)?;
            if (ring.capacity(), ring.max_message()) != options.capacities() {
                return Err(QueueError::OtherOptions {
                    capacity: ring.capacity(),
                    max_message: ring.max_message(),
                });
            }
            Ok(ring)
        })
    }

    /// Opens the ring of this name.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`], also if the ring was deleted; see [`QueueError`].
    pub fn open(region: &'r Region, name: &str) -> Result<Self, QueueError> {
        region.find_reused(name, |core: &'r Core| Self::open_in(region, core))
    }

    /// Opens the ring of a head, which may come from a file that anybody wrote.
    fn open_in(region: &'r Region, core: &'r Core) -> Result<Self, QueueError> {
        let is_sound = Self::at(region, core).has_sound_body();
        let ring = Self::at(region, core);
        // Another task may have deleted it since, and then its body is gone.
        match ring.life % 2 {
            0 if is_sound => Ok(ring),
            0 => Err(ObjectError::OtherType.into()),
            _ => Err(ObjectError::NotFound.into()),
        }
    }

    /// Whether the head points to a body. For heads that come from files.
    fn has_sound_body(&self) -> bool {
        let body = self.core.body.load(Ordering::Relaxed);
        layout(self.capacity(), self.max_message()).is_some_and(|layout| {
            body.is_multiple_of(layout.align()) && self.inner().has_block_at(body, layout.size())
        })
    }

    /// A handle on the ring that a head has at this moment.
    fn at(region: &'r Region, core: &'r Core) -> Self {
        let life = core.ring.life();
        Self { region, core, life }
    }

    /// The largest number of messages.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.core.capacity()
    }

    /// The largest size of a message, in bytes.
    #[must_use]
    pub fn max_message(&self) -> u32 {
        self.core.max_message()
    }

    /// The number of messages in the ring at this moment, including those that the receiver has in its hands.
    #[must_use]
    pub fn len(&self) -> u32 {
        let head = self.core.ring.index(Side::Receiver);
        let tail = self.core.ring.index(Side::Sender);
        // Both may have changed between the two reads.
        tail.wrapping_sub(head).min(self.core.capacity())
    }

    /// Whether there is no message at this moment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Claims the sending end for the calling task, until it is dropped.
    ///
    /// # Errors
    /// [`ClaimError::Taken`], [`ClaimError::Deleted`], [`ClaimError::Attach`].
    pub fn sender(&self) -> Result<Sender<'r>, ClaimError> {
        Ok(Sender::new(self.end(Side::Sender)?))
    }

    /// Claims the receiving end for the calling task, until it is dropped.
    ///
    /// # Errors
    /// As for [`Self::sender`].
    pub fn receiver(&self) -> Result<Receiver<'r>, ClaimError> {
        Ok(Receiver::new(self.end(Side::Receiver)?))
    }

    fn end(&self, side: Side) -> Result<End<'r>, ClaimError> {
        let end = End::claim(*self, side)?;
        // While the end is claimed, only a deletion changes the life after this.
        if end.check_life().is_err() {
            return Err(ClaimError::Deleted);
        }
        Ok(end)
    }

    /// The region that the ring lies in.
    #[must_use]
    pub fn region(&self) -> &'r Region {
        self.region
    }

    /// A token from which [`Self::of_token`] makes this handle again.
    pub(super) fn token(&self) -> (usize, u32) {
        let address = core::ptr::from_ref(self.core).expose_provenance();
        (address, self.life)
    }

    /// # Safety
    /// The token is of a ring in this region.
    pub(super) unsafe fn of_token(region: &'r Region, (address, life): (usize, u32)) -> Self {
        // SAFETY: by the contract it is a ring's head, which stays as long as the region.
        let core: &'r Core = unsafe { &*core::ptr::with_exposed_provenance(address) };
        Self { region, core, life }
    }

    /// Whether the handle's ring has not been deleted.
    pub(super) fn is_alive(&self) -> bool {
        self.core.ring.life() == self.life
    }

    pub(super) fn words(&self) -> &'r Ring {
        &self.core.ring
    }

    fn inner(&self) -> &'r Arc<Inner> {
        self.region.inner()
    }

    /// The address of the length of the message with this index; the bytes follow.
    fn place(&self, index: u32) -> NonNull<u8> {
        let mask = self.capacity().next_power_of_two() - 1;
        let offset = (index & mask) as usize * stride(self.max_message());
        let body = self.core.body.load(Ordering::Relaxed);
        let place = core::ptr::with_exposed_provenance_mut::<u8>(body + offset);
        // SAFETY: the offset is inside the body, which stays while a task has an end.
        unsafe { NonNull::new_unchecked(place) }
    }

    fn bytes(&self, index: u32) -> NonNull<u8> {
        // SAFETY: the bytes follow the length, inside the body.
        unsafe { self.place(index).add(LENGTH) }
    }

    fn length(&self, index: u32) -> &'r AtomicU32 {
        // SAFETY: the place is inside the body and aligned to 8; its first bytes are only used as this atomic.
        unsafe { self.place(index).cast().as_ref() }
    }
}

impl fmt::Debug for Spsc<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Spsc")
            .field("capacity", &self.capacity())
            .field("max_message", &self.max_message())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// A claimed end: what sender and receiver have in common.
struct End<'r> {
    queue: Spsc<'r>,
    side: Side,
    owner: Owner,
    /// This side's index. No other task changes that.
    mine: u32,
    /// The other side's index, as last read.
    others: u32,
    not_send: PhantomData<*const ()>,
}

impl<'r> End<'r> {
    fn claim(queue: Spsc<'r>, side: Side) -> Result<Self, ClaimError> {
        let inner = queue.inner();
        let task = inner.task()?;
        let claim = &queue.core.claims[side as usize];
        // Acquire: pairs with the Release in `free`. (The writes of a dead task are ordered by its index.)
        let mut found = claim.load(Ordering::Acquire);
        loop {
            if Owner::from_raw(found).is_some_and(|owner| inner.is_alive(owner)) {
                return Err(ClaimError::Taken);
            }
            let mine = task.owner().raw();
            match claim.compare_exchange(found, mine, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(other) => found = other,
            }
        }
        // The end is the task's as long as it is a task of the region.
        task.slot.message_taken();
        let ring = &queue.core.ring;
        Ok(Self {
            queue,
            side,
            owner: task.owner(),
            mine: ring.index(side),
            others: ring.index(side.other()),
            not_send: PhantomData,
        })
    }

    /// Gives up the claim.
    fn free(&self) {
        // Release: pairs with the Acquire of the next claim.
        self.queue.core.claims[self.side as usize].store(0, Ordering::Release);
        self.queue.inner().slots()[usize::from(self.owner.slot())].message_finished();
    }

    /// Whether the handle's ring still lives.
    #[inline]
    fn check_life(&self) -> Result<(), Failure> {
        if self.queue.is_alive() {
            Ok(())
        } else {
            Err(Failure::Deleted)
        }
    }

    /// The task that has the end, which must be the calling one.
    #[inline]
    fn task(&self) -> Result<Task<'r>, AttachError> {
        let task = self.queue.inner().task()?;
        if task.owner() != self.owner {
            not_mine();
        }
        Ok(task)
    }

    /// Aborts if the end is not the calling task's. For changes of places that were taken before.
    #[inline]
    fn assert_mine(&self) {
        if !self.queue.inner().is_me(self.owner) {
            not_mine();
        }
    }

    /// What this side has left: messages, or room for them, as far as it knows.
    #[inline]
    fn left(&self) -> u32 {
        match self.side {
            Side::Receiver => self.others.wrapping_sub(self.mine),
            Side::Sender => {
                let used = self.mine.wrapping_sub(self.others);
                self.queue.core.capacity().saturating_sub(used)
            }
        }
    }

    /// Reads the other side's index; returns what is left.
    #[inline]
    fn look(&mut self) -> u32 {
        self.others = self.queue.core.ring.index(self.side.other());
        self.left()
    }

    /// Waits until something is left; returns how much.
    #[inline]
    fn wait(&mut self, wait: Wait) -> Result<u32, Failure> {
        let task = self.task()?;
        self.check_life()?;
        match self.left() {
            0 => self.wait_slowly(task, wait),
            left => Ok(left),
        }
    }

    #[cold]
    fn wait_slowly(&mut self, task: Task<'r>, wait: Wait) -> Result<u32, Failure> {
        let left = self.look();
        if left > 0 {
            return Ok(left);
        }
        if wait == Wait::Not {
            return Err(Failure::Refused);
        }
        let turns = Some(&task.slot.takes_turns);
        if ExponentialBackoff::None.poll(self.queue.max_message(), turns, || {
            self.look() > 0 || self.check_life().is_err()
        }) {
            self.check_life()?;
            return Ok(self.left());
        }
        let inner = self.queue.inner();
        let ring = &self.queue.core.ring;
        loop {
            // Read before the ring is checked: see `park`.
            let deaths = inner.deaths();
            ring.lie_down(self.side);
            let mut timed_out = false;
            if self.look() == 0 && self.check_life().is_ok() {
                let words = [(ring.sleep_word(self.side), 1)];
                let object = core::ptr::from_ref(self.queue.core).addr();
                let _waiting = Waiting::begin(Kind::Queue, object, wait.deadline().is_some());
                timed_out = inner.park(task, &words, deaths, wait.deadline()) == Parked::TimedOut;
            }
            ring.rise(self.side);
            self.check_life()?;
            match self.look() {
                0 if timed_out => return Err(Failure::TimedOut),
                0 => {}
                left => return Ok(left),
            }
        }
    }

    /// This side has finished this many more places.
    #[inline]
    fn advance(&mut self, count: u32) {
        self.mine = self.mine.wrapping_add(count);
        self.queue.core.ring.advance(self.side, self.mine);
    }
}

#[cold]
#[inline(never)]
fn not_mine() -> ! {
    crate::fatal(format_args!(
        "an end of a ring was used by a task that does not have it (one inherited across fork is the parent's)"
    ))
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let inner = self.queue.inner();
        // In the child of a fork the end is the parent's.
        if inner.is_me(self.owner) {
            self.free();
            if !self.queue.is_alive() {
                self.queue.clear_away();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::layout;

    #[test]
    fn a_capacity_beyond_all_powers_of_two_has_no_layout() {
        assert!(layout(1 << 31, 8).is_some());
        assert!(layout((1 << 31) + 1, 8).is_none());
    }
}
