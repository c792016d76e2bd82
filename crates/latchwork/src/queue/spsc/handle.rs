//! A handle on a ring, and the ring's head.
#![allow(unsafe_code)]

use super::super::ring::{Ring, Side};
use super::super::{QueueError, QueueOptions, report::Report};
use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::hook::Site;
use crate::region::{AttachError, Inner, ObjectError, Region, Reused, SpareKind, fingerprint};
use core::{alloc::Layout, fmt, ptr::NonNull};
use std::sync::Arc;

/// The head of a ring. Its messages are in a block of their own, the body, which the ring has while it lives, and after
/// its deletion until both ends are free. The head stays, for the next ring, since old handles may read it.
#[derive(Default)]
#[repr(C, align(128))]
pub(in crate::queue) struct Head {
    /// These and the body change under the lock of the region's names, while there is no ring and no task has an end.
    pub(super) capacity: AtomicU32,
    pub(super) max_message: AtomicU32,
    /// The body's address, or 0.
    pub(super) body: AtomicUsize,
    next_spare: AtomicUsize,
    /// By [`Side`]: the task that has the end, or 0.
    pub(in crate::queue) claims: [AtomicU64; 2],
    pub(in crate::queue) ring: Ring,
}

impl Head {
    pub(in crate::queue) fn capacity(&self) -> u32 {
        self.capacity.load(Ordering::Relaxed)
    }

    pub(in crate::queue) fn max_message(&self) -> u32 {
        self.max_message.load(Ordering::Relaxed)
    }

    pub(in crate::queue) fn is_alive(&self) -> bool {
        self.ring.life().is_multiple_of(2)
    }
}

impl Reused for Head {
    const FINGERPRINT: u64 = FINGERPRINT;
    const KIND: SpareKind = SpareKind {
        list: 3,
        link: core::mem::offset_of!(Head, next_spare),
    };

    fn new() -> Self {
        let head = Self::default();
        head.ring.begin_life_after(0);
        head
    }

    fn has_ended(&self) -> bool {
        !self.is_alive()
    }

    fn can_be_reused(&self, region: &Region) -> bool {
        Spsc::at(region, self).is_over()
    }
}

/// The bytes before each message, for its length. The message begins at a multiple of 8.
const LENGTH: usize = 8;

pub(in crate::queue) const FINGERPRINT: u64 = fingerprint(
    "spsc queue",
    size_of::<Head>(),
    align_of::<Head>(),
    &[LENGTH as u64, 4],
);

/// The reason why an end of a ring was not claimed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// A living task has this end. (For a moment, also one that claims it with an old handle, while the ring of that was
    /// deleted and this one was created.)
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
    pub(super) region: &'r Region,
    pub(in crate::queue) core: &'r Head,
    /// The life of the ring that this handle was made in.
    pub(in crate::queue) life: u32,
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
pub(super) fn layout(capacity: u32, max_message: u32) -> Option<Layout> {
    let places = capacity.checked_next_power_of_two()? as usize;
    let bytes = stride(max_message).checked_mul(places)?;
    Layout::from_size_align(bytes, align_of::<Head>()).ok()
}

impl<'r> Spsc<'r> {
    /// Creates the ring of this name, or opens it if it exists with the same capacities. All of its memory is allocated
    /// at once. The options' discipline has no effect here.
    ///
    /// # Errors
    /// See [`QueueError`].
    #[track_caller]
    pub fn create(
        region: &'r Region,
        name: &str,
        options: &QueueOptions,
    ) -> Result<Self, QueueError> {
        let site = Site::caller();
        options.check(region)?;
        let open = |core: &'r Head| {
            let ring = Self::open_in(region, core)?;
            match ring {
                Some(ring) if (ring.capacity(), ring.max_message()) != options.capacities() => {
                    Err(QueueError::OtherOptions {
                        capacity: ring.capacity(),
                        max_message: ring.max_message(),
                    })
                }
                ring => Ok(ring),
            }
        };
        region.reused(name, open, |core: &'r Head| {
            let ring = Self::at(region, core).begin(options.capacities())?;
            ring.report().named(name, site);
            Ok(ring)
        })
    }

    /// Opens the ring of this name.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`], also if the ring was deleted; see [`QueueError`].
    pub fn open(region: &'r Region, name: &str) -> Result<Self, QueueError> {
        region.find_reused(name, |core: &'r Head| Self::open_in(region, core))
    }

    /// Opens the ring of a head, which may come from a file that anybody wrote; `None` if it has been deleted.
    fn open_in(region: &'r Region, core: &'r Head) -> Result<Option<Self>, QueueError> {
        let is_sound = Self::at(region, core).has_sound_body();
        let ring = Self::at(region, core);
        // Another task may have deleted it since, and then its body is gone.
        match ring.life % 2 {
            0 if is_sound => Ok(Some(ring)),
            0 => Err(ObjectError::OtherType.into()),
            _ => Ok(None),
        }
    }

    /// Whether the head points to a body. For heads that come from files.
    pub(super) fn has_sound_body(&self) -> bool {
        let body = self.core.body.load(Ordering::Relaxed);
        layout(self.capacity(), self.max_message()).is_some_and(|layout| {
            body.is_multiple_of(layout.align()) && self.inner().has_block_at(body, layout.size())
        })
    }

    /// A handle on the ring that a head has at this moment.
    pub(in crate::queue) fn at(region: &'r Region, core: &'r Head) -> Self {
        let life = core.ring.life();
        Self { region, core, life }
    }

    /// What the ring reports to the checker.
    pub(super) fn report(&self) -> Report {
        Report(core::ptr::from_ref(self.core).addr())
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

    /// The number of messages in the ring at this moment, including those that the receiver is reading in place.
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

    /// The region that the ring lies in.
    #[must_use]
    pub fn region(&self) -> &'r Region {
        self.region
    }

    /// Whether the handle's ring has not been deleted.
    pub(in crate::queue) fn is_alive(&self) -> bool {
        self.core.ring.life() == self.life
    }

    pub(super) fn inner(&self) -> &'r Arc<Inner> {
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

    pub(super) fn bytes(&self, index: u32) -> NonNull<u8> {
        // SAFETY: the bytes follow the length, inside the body.
        unsafe { self.place(index).add(LENGTH) }
    }

    pub(super) fn length(&self, index: u32) -> &'r AtomicU32 {
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

#[cfg(test)]
mod tests {
    use super::layout;

    #[test]
    fn a_capacity_beyond_all_powers_of_two_has_no_layout() {
        assert!(layout(1 << 31, 8).is_some());
        assert!(layout((1 << 31) + 1, 8).is_none());
    }
}
