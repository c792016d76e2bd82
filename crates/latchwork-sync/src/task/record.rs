//! The record of a thread, and the calling thread as its record shows it: [`CurrentOrNone`].
#![allow(unsafe_code)]

use super::attachment::{Attachment, Held, MAX_ATTACHMENTS};
use super::ceiling::Ceilings;
use crate::sys::each_thread::each_thread;
use crate::sys::robust_list::{Head, OwnHead};
use crate::sys::{own_record, thread};
use core::cell::{Cell, UnsafeCell};
use core::ptr::NonNull;

/// The state of a thread. All zero is a valid record: that of a thread without one.
#[repr(C)]
pub struct Record {
    pub(super) tid: Cell<u32>,
    /// See [`CurrentOrNone::stamp`].
    pub(super) stamp: Cell<u32>,
    /// Robust locks of the user that still fit on the list; 0 in the record of a thread without one.
    pub(super) budget: Cell<i32>,
    pub(super) head: Cell<Option<NonNull<Head>>>,
    /// The place on the list where robust locks are linked: after the life-words, or at the front.
    pub(super) anchor: Cell<usize>,
    /// Where the list ends for robust locks: at the first tail, or at the head.
    pub(super) end: Cell<usize>,
    /// First address, size and identity of the first attachment, or 0: see [`membership`](super::membership).
    pub(super) first_base: Cell<usize>,
    pub(super) first_bytes: Cell<usize>,
    pub(super) first_identity: Cell<u64>,
    /// For each attachment, the locks that name the thread by its identity as their owner.
    pub(super) held: [Held; MAX_ATTACHMENTS],
    /// The attachment in whose region a lock was found last. It may have ended since.
    pub(super) last_found: Cell<usize>,
    pub(super) own_head: UnsafeCell<OwnHead>,
    /// Address of the checker's data for this thread; 0: none.
    pub(super) checked: Cell<usize>,
    /// The number of operations under way that rely on an attachment.
    pub(super) relying: Cell<u32>,
    pub(super) attached: Cell<usize>,
    pub(super) attachments: [Cell<Option<Attachment>>; MAX_ATTACHMENTS],
    pub(super) ceilings: Ceilings,
    /// The number of the process's PID namespace; 0: not asked yet, or unknown.
    pub(super) namespace: Cell<u32>,
}

const _: () = assert!(size_of::<Record>() <= thread::RECORD_BYTES);

// The C header relies on the layout of the first fields.
#[cfg(all(feature = "foreign", target_pointer_width = "64"))]
const _: () = assert!(
    core::mem::offset_of!(Record, tid) == 0
        && core::mem::offset_of!(Record, budget) == 8
        && core::mem::offset_of!(Record, head) == 16
        && core::mem::offset_of!(Record, anchor) == 24
        && core::mem::offset_of!(Record, end) == 32
        && core::mem::offset_of!(Record, first_base) == 40
        && core::mem::offset_of!(Record, first_bytes) == 48
        && core::mem::offset_of!(Record, first_identity) == 56
        && core::mem::offset_of!(Record, held) == 64
        && core::mem::offset_of!(Held, plain) == 8
);

each_thread! {
    /// The stage of the thread's end: one of the constants below.
    pub(super) static END: Cell<u8> = Cell::new(AHEAD);
}
each_thread! {
    /// How often the thread's end was announced by the key.
    pub(super) static ANNOUNCED: Cell<u8> = Cell::new(0);
}
pub(super) const AHEAD: u8 = 0;
/// The loader will call `ends` at the thread's end: there was no free key.
pub(super) const ASKED_FOR: u8 = 1;
/// The end has begun: the thread becomes no task any more.
pub(super) const BEGUN: u8 = 2;
/// What the thread held is the keeper's: the thread gets no record any more.
pub(super) const GIVEN: u8 = 3;

#[inline(always)]
pub(super) fn record() -> &'static Record {
    // SAFETY: the record is either zeros that no code writes (all-zero is valid for every field: integers, `Option` of
    // pointers, `Option<Attachment>` whose niche is a null pointer), or the page that `refresh` has set, which stays
    // mapped until the thread's end.
    unsafe { own_record::get().cast().as_ref() }
}

/// Whether this is the calling thread's own record, and not the shared one of zeros.
pub(super) fn is_own(record: &Record) -> bool {
    !core::ptr::addr_eq(record, own_record::no_record().as_ptr())
}

/// The calling thread if it has a record in this process, or none: then its ID is 0, it has no attachments and no
/// budget. What it returns is correct in both cases.
#[derive(Clone, Copy)]
pub struct CurrentOrNone {
    pub(super) record: &'static Record,
}

impl CurrentOrNone {
    /// The thread's ID in its PID namespace; 0 if it has no record.
    #[inline]
    pub fn tid(self) -> u32 {
        self.record.tid.get()
    }

    /// The thread's ID, and above it the low bits of the process's mark: what a guard keeps of its owner. A process that was
    /// forked as the first one of a PID namespace may have a thread with the same ID; its stamp is another one. 0 if the
    /// thread has no record.
    #[inline]
    pub fn stamp(self) -> u32 {
        self.record.stamp.get()
    }

    /// Where the robust list ends for locks (see [`robust_list`](crate::sys::robust_list)); 0 if the thread has no
    /// record.
    #[inline]
    pub fn end(self) -> usize {
        self.record.end.get()
    }

    /// Whether the thread is running its last destructors: a new attachment would not be ended in the proper order.
    pub fn is_ending(self) -> bool {
        END.with(Cell::get) >= BEGUN
    }

    /// How many more robust locks this thread can take: the kernel walks only a limited number of entries of a dead
    /// task's list. May be too low: see [`Me::recount`](super::Me::recount). 0 if the thread has no record.
    #[inline]
    pub fn budget(self) -> i32 {
        self.record.budget.get()
    }

    /// The address passed to [`Me::set_checked`](super::Me::set_checked); 0 in a new thread and in the child of a fork.
    #[inline(always)]
    pub fn checked(self) -> usize {
        self.record.checked.get()
    }

    /// The place on the list where robust locks are linked; see [`Head::link`](crate::sys::robust_list::Head::link).
    #[inline]
    pub fn anchor(self) -> usize {
        self.record.anchor.get()
    }

    /// The regions that this thread is a task of.
    #[inline]
    pub fn attachments(self) -> impl Iterator<Item = Attachment> {
        self.record.attachments[..self.record.attached.get()]
            .iter()
            .filter_map(Cell::get)
    }

    /// The link of the last life-word on the list, and that of the first tail; the list's front if there is none.
    pub(super) fn anchor_and_end(self, head: &Head) -> (usize, usize) {
        let is = |which: fn(&Attachment) -> usize| {
            move |link: &usize| {
                self.attachments()
                    .any(|attachment| which(&attachment) == *link)
            }
        };
        let last = head.links().filter(is(|known| known.life)).last();
        let tail = head.links().find(is(|known| known.tail));
        (last.unwrap_or(head.front()), tail.unwrap_or(head.front()))
    }

    /// The first attachment, without a read of the others: most threads are tasks of one region.
    #[inline(always)]
    pub fn first_attachment(self) -> Option<Attachment> {
        self.record.attachments[0].get()
    }

    /// Whether the thread is in an operation that [relies on an attachment](super::Me::rely_on_attachment).
    pub fn relies_on_attachment(self) -> bool {
        self.record.relying.get() != 0
    }
}

/// Why the calling thread cannot be a task or own robust locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// No memory for the thread's record.
    #[error("no memory for the thread's record: {0}")]
    Memory(rustix::io::Errno),
    /// The kernel, or a sandbox, refuses robust lists.
    #[error("the system refuses robust lists: {0}")]
    RobustList(rustix::io::Errno),
    /// The C library's robust mutexes have an unknown layout.
    #[error("this C library's robust mutexes have an unknown layout (offset {0})")]
    ForeignLayout(isize),
    /// The thread has ended, except for destructors, and what it held belongs to its process now.
    #[error("the thread has ended, and what it held is its process's now")]
    Ended,
}
