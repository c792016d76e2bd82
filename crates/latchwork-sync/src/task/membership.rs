//! The calling thread as a task of regions: which it is attached to, and how a lock names it that lies in one.
//!
//! A region lock contains the *identity* of its owner: the slot and the slot's generation, which name one task of the
//! region for ever. Low half: the generation, which is not 0. High half: the slot, counted from 1, in the
//! upper 16 bits; the lower 16 bits are 0, and a lock has them for its flags.
//!
//! The record of a thread has the identity for the region of its first attachment at a fixed place, so that the fast
//! path of a lock finds it with one comparison. Locks in other regions take their slow path: it searches the
//! attachments.
//!
//! *The locks that a task holds* are counted in the thread, for each attachment, in two numbers ([`Held`]). A task that
//! holds some does not leave its region in good order, so that its identity does not stay in a word as one that nobody
//! has. They differ at the end of the thread:
//!
//! | acquired | may have lent references to the data | at the end of the thread |
//! | --- | --- | --- |
//! | by guards | yes: a leaked guard's reference may be another thread's | the slot passes to the keeper |
//! | through the C interface | no | the kernel ends the task's life: the next owner gets the owner's death |
//!
//! A thread with locks of both kinds in one region has one slot, which passes to the keeper. A signal handler leaves the
//! numbers as they were: it releases what it acquires.
#![allow(unsafe_code)]

use super::attachment::{Attachment, AttachmentParts, Held, MAX_ATTACHMENTS};
use super::record::{CurrentOrNone, Record};
use super::{Me, TaskError};
use crate::atomic::{AtomicPtr, Ordering, compiler_fence};
use core::cell::Cell;
use core::ptr::NonNull;

/// So many of them always have room on the list, whatever locks the thread holds.
const SURE_ATTACHMENTS: usize = 16;

/// Why the calling thread is no task of the region that a lock lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotATask {
    /// The lock lies in no region of this process.
    #[error("the lock lies in no region of this process")]
    NoRegion,
    /// All task slots of the region are in use.
    #[error("all {tasks} task slots of the region are taken")]
    TaskTableFull {
        /// Slots in the table.
        tasks: usize,
    },
    /// The thread is a task of too many regions: 128, or, from 16 on, as many as its robust list has room for.
    #[error(
        "the calling thread is a task of too many regions at a time (128, fewer with many robust locks)"
    )]
    TooManyAttachments,
    /// The thread runs its last destructors.
    #[error("the calling thread is ending")]
    ThreadEnding,
    /// The process had given the region up, and another one has validated its file for 10 s.
    #[error("another process has had the region's file locked for 10 s")]
    Validating,
    /// The region is for tasks of one PID namespace, and the process belongs to another: it is the child of a fork.
    #[error("the region belongs to PID namespace {region}, and this process to {here}")]
    OtherPidNamespace {
        /// The number of the region's namespace.
        region: u64,
        /// The number of this process's.
        here: u64,
    },
    /// `/proc` does not say to which PID namespace this process belongs.
    #[error("the PID namespace of this process is not known: /proc/self/ns/pid cannot be read")]
    UnknownPidNamespace,
    /// The thread cannot own robust locks, and so not the word that decides whether it is alive.
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// What regions do for these locks. Regions lie above this layer and register through [`set_regions`].
pub struct Regions {
    /// Makes the calling thread a task of the region that contains an address.
    pub join: fn(usize) -> Result<(), NotATask>,
    /// Whether the task with an identity is gone from the region with an attachment's `context`. What it left in the region
    /// may not be settled yet: the next owner of its lock has that done before it accesses the data
    /// ([`after_marked_death`](super::after_marked_death)).
    ///
    /// # Safety
    /// The context is that of an attachment of the calling thread.
    pub is_gone: unsafe fn(context: NonNull<()>, identity: u64) -> bool,
    /// Whether the task with an identity, the owner of a region lock, is gone although the kernel has marked no death: no thread has
    /// its ID. Then its death is marked, and settled; unless `lock` is the address of the lock under which that is done.
    ///
    /// # Safety
    /// As for `is_gone`.
    pub has_vanished: unsafe fn(context: NonNull<()>, identity: u64, lock: usize) -> bool,
    /// The thread of the task with an identity, if it is one of the calling process. A hint.
    ///
    /// # Safety
    /// As for `is_gone`.
    pub thread_of: unsafe fn(context: NonNull<()>, identity: u64) -> Option<u32>,
}

static REGIONS: AtomicPtr<Regions> = AtomicPtr::new(core::ptr::null_mut());

/// Registers what regions do.
///
/// # Safety
/// Called by the crate of regions alone: `is_gone` returns true for no living task.
pub unsafe fn set_regions(regions: &'static Regions) {
    // Release: pairs with the Acquire in `regions`.
    REGIONS.store(core::ptr::from_ref(regions).cast_mut(), Ordering::Release);
}

fn regions() -> Option<&'static Regions> {
    // Acquire: pairs with the Release in `set_regions`.
    let regions = REGIONS.load(Ordering::Acquire);
    // SAFETY: null, or from a `&'static` in `set_regions`.
    unsafe { regions.as_ref() }
}

/// What the place of a task in its table is counted from, in bits 48 to 63 of an identity. Not from 0: sleepers on a lock
/// compare the high half of its word, which must not be the same with an owner and without.
const FIRST_SLOT: u64 = 1 << 48;

fn identity_of(tag: u64) -> u64 {
    tag.rotate_left(32).wrapping_add(FIRST_SLOT)
}

/// The tag of the task with an identity.
pub(crate) fn tag_of(identity: u64) -> u64 {
    identity.wrapping_sub(FIRST_SLOT).rotate_left(32)
}

impl CurrentOrNone {
    /// The identity of the calling thread in the region of its first attachment, if that contains the address.
    #[inline(always)]
    pub fn first_identity_at(self, address: usize) -> Option<u64> {
        let record = self.record;
        (address.wrapping_sub(record.first_base.get()) < record.first_bytes.get())
            .then(|| record.first_identity.get())
    }

    /// The number of locks of guards that the thread holds in the region of its first attachment.
    #[inline(always)]
    pub fn first_held(self) -> u64 {
        self.record.held[0].lending.get()
    }

    /// Sets that number. The attachment exists.
    #[inline(always)]
    pub fn set_first_held(self, held: u64) {
        self.record.held[0].lending.set(held);
    }

    /// The calling thread as a task of the region that contains an address, if it is one.
    pub fn member_at(self, address: usize) -> Option<Member> {
        let record = self.record;
        let at = |index: usize| {
            let attachment = record.attachments[index].get()?;
            let is_in = (attachment.base..attachment.end).contains(&address);
            is_in.then(|| Member {
                record,
                index,
                identity: identity_of(attachment.tag),
                context: attachment.context,
            })
        };
        // The one that was found last, and then all. (A record of zeros is not written to: it has no attachments.)
        at(record.last_found.get()).or_else(|| {
            let found = (0..record.attached.get()).find_map(at)?;
            record.last_found.set(found.index);
            Some(found)
        })
    }

    /// The number of locks that name the thread as their owner, in the region that begins at `base`.
    pub fn locks_in_region(self, base: usize) -> u64 {
        self.held_in(base).map_or(0, Held::count)
    }

    /// Whether one of them was acquired by a guard, and so may have lent references to its data.
    pub fn lends_in_region(self, base: usize) -> bool {
        let held = self.held_in(base);
        held.is_some_and(|held| held.lending.get() != 0)
    }

    fn held_in(self, base: usize) -> Option<&'static Held> {
        let mut attachments = self.attachments().zip(&self.record.held);
        let found = attachments.find(|(attachment, _)| attachment.base == base);
        found.map(|(_, held)| held)
    }

    /// Whether any lock of a region names the thread as its owner.
    pub(super) fn holds_in_regions(self) -> bool {
        let attached = self.record.attached.get();
        let mut held = self.record.held[..attached].iter();
        held.any(|held| held.count() != 0)
    }
}

/// The calling thread as a task of one region. As a [`Me`], it is for the call that got it.
#[derive(Clone, Copy)]
pub struct Member {
    record: &'static Record,
    index: usize,
    identity: u64,
    context: NonNull<()>,
}

impl Member {
    /// The calling thread as a task of the region that contains an address. It becomes one if it is none yet.
    #[inline]
    pub fn at(address: usize) -> Result<Self, NotATask> {
        if let Some(member) = Me::current_or_none().member_at(address) {
            return Ok(member);
        }
        let regions = regions().ok_or(NotATask::NoRegion)?;
        (regions.join)(address)?;
        // The region is attached now.
        let member = Me::current_or_none().member_at(address);
        member.ok_or(NotATask::NoRegion)
    }

    /// The task's identity.
    pub fn identity(self) -> u64 {
        self.identity
    }

    /// Whether the region is that of the thread's first attachment.
    #[inline]
    pub fn is_in_first_region(self) -> bool {
        self.index == 0
    }

    /// Counts a lock that a guard has acquired.
    pub fn acquired(self) {
        let held = &self.record.held[self.index].lending;
        held.set(held.get() + 1);
    }

    /// Counts a lock that a guard has released.
    pub fn released(self) {
        let held = &self.record.held[self.index].lending;
        held.set(held.get().saturating_sub(1));
    }

    /// Counts a lock that was acquired through the C interface.
    #[cfg(feature = "foreign")]
    pub fn acquired_plain(self) {
        let held = &self.record.held[self.index].plain;
        held.set(held.get() + 1);
    }

    /// Counts a lock that was released through the C interface. (If the thread holds none that it acquired there, this one
    /// is a leaked guard's.)
    #[cfg(feature = "foreign")]
    pub fn released_plain(self) {
        let held = &self.record.held[self.index];
        match held.plain.get() {
            0 => self.released(),
            count => held.plain.set(count - 1),
        }
    }

    /// Whether the task with an identity is gone from this region.
    pub fn is_gone(self, identity: u64) -> bool {
        // SAFETY: the context is that of an attachment of the calling thread.
        regions()
            .is_some_and(|regions| unsafe { (regions.is_gone)(self.context, tag_of(identity)) })
    }

    /// For a task that has waited long for a lock: whether its owner is gone, and the kernel has not marked the death. Marks it.
    #[cold]
    pub fn has_vanished(self, identity: u64, lock: usize) -> bool {
        // SAFETY: as in `is_gone`.
        regions().is_some_and(|regions| unsafe {
            (regions.has_vanished)(self.context, tag_of(identity), lock)
        })
    }

    /// The thread of the task with an identity, if it is one of the calling process; `None`: that is unknown, or it is
    /// another's. It may be wrong: ask it only whether it is worth while to poll.
    pub fn thread_of(self, identity: u64) -> Option<u32> {
        // SAFETY: the context is that of an attachment of the calling thread.
        regions().and_then(|regions| unsafe { (regions.thread_of)(self.context, tag_of(identity)) })
    }
}

impl Me {
    /// Whether one more region can be attached.
    pub fn can_attach(self) -> bool {
        let count = self.record.attached.get();
        count < SURE_ATTACHMENTS || count < MAX_ATTACHMENTS && self.recount() >= 2
    }

    /// Records an attachment; see [`Self::can_attach`].
    ///
    /// # Safety
    /// Its life-word and its tail are on this thread's robust list. `context` and `slot` are those that `detach` asks
    /// for, and `detach`, which forgets the attachment, may be called with them in this thread at any time.
    pub unsafe fn attach(self, parts: AttachmentParts) {
        let count = self.record.attached.get();
        self.record.held[count].clear();
        self.record.attachments[count].set(Some(Attachment(parts)));
        self.record.attached.set(count + 1);
        self.place_anchor();
        self.record.place_first();
    }

    /// Removes the record of an attachment without calling its `detach`.
    ///
    /// # Safety
    /// Its life-word is still on the list: otherwise a signal handler's lock would be linked at an anchor that is not on
    /// the list. No operation of this thread [relies on](Self::rely_on_attachment) the attachment any more.
    pub unsafe fn forget(self, base: usize) {
        let places = &self.record.attachments[..self.record.attached.get()];
        let is_it =
            |place: &Cell<Option<Attachment>>| place.get().is_some_and(|it| it.base == base);
        if let Some(index) = places.iter().position(is_it) {
            let last = places.len() - 1;
            self.record.first_bytes.set(0);
            compiler_fence(Ordering::SeqCst);
            places[index].swap(&places[last]);
            places[last].take();
            let held = &self.record.held;
            held[index].swap(&held[last]);
            held[last].clear();
            self.record.attached.set(last);
        }
        self.place_anchor();
        self.record.place_first();
    }

    /// Sets the anchor to the last life-word on the list, and the end to the first tail. The anchor is never another
    /// lock: libc may unlink its own at any time.
    fn place_anchor(self) {
        self.with_list((), |head| {
            let (anchor, end) = self.anchor_and_end(head);
            self.record.anchor.set(anchor);
            self.record.end.set(end);
        });
    }
}

impl Record {
    /// Sets what the fast path reads of the first attachment. (The size comes last, and is 0 meanwhile: a signal handler
    /// takes the slow path.)
    pub(super) fn place_first(&self) {
        self.first_bytes.set(0);
        compiler_fence(Ordering::SeqCst);
        let first = self.attachments[0].get();
        self.first_base.set(first.map_or(0, |first| first.base));
        self.first_identity
            .set(first.map_or(0, |first| identity_of(first.tag)));
        compiler_fence(Ordering::SeqCst);
        self.first_bytes
            .set(first.map_or(0, |first| first.end - first.base));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The task in the first place of its table, in its first generation.
    #[test]
    fn the_high_half_of_an_identity_is_not_that_of_a_free_word() {
        let tag = 1 << 32;
        let identity = identity_of(tag);
        assert_ne!(identity >> 32, 0);
        assert_eq!(identity as u32, 1);
        assert_eq!(tag_of(identity), tag);
    }
}
