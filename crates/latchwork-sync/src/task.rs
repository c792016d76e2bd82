//! The calling thread: its ID, its robust list, and the regions that it is a task of.
//!
//! Each thread has a [`Record`], in memory that the kernel wipes in the child of every fork or memory-copying clone. So
//! its fields never belong to another process: after a fork, a raw clone, or in a new thread the ID reads 0, which
//! sends the fast path to [`refresh`]. No `pthread_atfork` handler takes part (a raw clone would bypass it). The fast path has one branch.
//!
//! Invariants
//! 1. `record()` is either the thread's own record, filled in for the process that the thread is in now, or a record
//!    whose `tid` is 0.
//! 2. Only its thread uses a record, so its cells need no atomics.
//! 3. Attachments are undone at thread exit, newest first, before the record ends. (An attachment whose task holds an
//!    object is only forgotten: its slot passes to the keeper, or the kernel ends it, with the thread.)
//! 4. The first use of a lock, which makes the record, takes no lock of libc's or the loader's, and no memory of the
//!    allocator's: four system calls for the record, one for its ID, two in the first process of a family for marks, and
//!    a store that requests the call at the thread's end (`sys/thread_end.rs`).
//! 5. What a thread holds when it ends in good order, and may have lent to another thread, is handed on only when its
//!    process dies: it passes to the keeper (`task/keeper.rs`).
//!
//! *The end of a thread.* [`ends`] is called after the destructors of its thread-locals, together with the destructors
//! of other thread-specific keys, whose order is undefined. If one of those takes a lock after this call, the thread
//! gets a record again, which ends in the next round of destructors. After the last round no call follows: 4 KiB stay
//! mapped. A thread whose end has begun becomes no task any more. A thread that holds something is asked again in the
//! next two rounds, since a later destructor may release it. In the third what it holds becomes its process's. A
//! destructor that releases it still later aborts; a lock that is taken, and leaked, after the last call is handed on.
//!
//! *Signals:* a handler that locks between any two lines of [`refresh`] may make a record of its own. The record that
//! is set last stays; the other one is given back, or stays mapped. The handler has released its locks when it returns.
#![allow(unsafe_code)]

use self::record::{AHEAD, ANNOUNCED, ASKED_FOR, BEGUN, END, GIVEN, Record, is_own, record};
use crate::sys::each_thread::each_thread;
use crate::sys::robust_list::{self, Head, KERNEL_LIMIT, OwnHead, Unavailable};
use crate::sys::{
    cancellation::Undisturbed, namespaces, own_record, process_mark::ProcessMark, thread,
    thread_end,
};
use core::cell::Cell;
use core::ffi::c_void;
use core::ops::{Deref, Range};
use core::ptr::NonNull;

mod attachment;
mod boost;
mod ceiling;
mod keeper;
mod membership;
mod record;

pub use self::attachment::{
    Attachment, AttachmentParts, MAX_ATTACHMENTS, after_marked_death, after_owner_death,
    set_owner_death_hook,
};
pub use self::boost::ProtectFault;
pub use self::ceiling::{Ceilings, HIGHEST};
pub use self::keeper::while_nothing_is_handed_over;
pub(crate) use self::membership::tag_of;
pub use self::membership::{Member, NotATask, Regions, set_regions};
pub use self::record::{CurrentOrNone, TaskError};

/// Robust locks of the user that a thread can hold at a time. Some of the entries that the kernel walks are left for
/// pthread's own locks, and for the few that this crate takes for itself.
const MAX_HELD: i32 = KERNEL_LIMIT as i32 - 128;

/// Thread IDs are smaller than two to this power, on every kernel.
const ID_BITS: u32 = 22;

each_thread! {
    /// The robust list head, once found. It survives a fork, unlike the record: a raw clone leaves no other trace of
    /// libc's head.
    static KNOWN_HEAD: Cell<Option<NonNull<Head>>> = Cell::new(None);
}

/// The calling thread as a task: it has a record in this process, and so an ID and a robust list.
///
/// A `Me` is for the call that got it. Nothing keeps one: at the thread's end its record is unmapped, and in the child of
/// a fork it is wiped. (No type enforces this: a lifetime would make each use of a lock a closure.)
#[derive(Clone, Copy)]
pub struct Me(CurrentOrNone);

impl Deref for Me {
    type Target = CurrentOrNone;
    #[inline(always)]
    fn deref(&self) -> &CurrentOrNone {
        &self.0
    }
}

impl CurrentOrNone {
    /// The calling thread as a task, if it has a record.
    #[inline]
    pub fn task(self) -> Option<Me> {
        (self.tid() != 0).then_some(Me(self))
    }

    /// The calling thread as a task, if it can take one more robust lock within its budget. (A thread without a record
    /// has a budget of 0.)
    #[inline(always)]
    pub fn task_with_budget(self) -> Option<Me> {
        (self.budget() > 0).then_some(Me(self))
    }

    /// The calling thread as a task.
    ///
    /// # Safety
    /// The thread has a record in this process: it holds a robust lock, for instance.
    #[inline(always)]
    pub unsafe fn task_unchecked(self) -> Me {
        Me(self)
    }
}

impl Me {
    /// The calling thread; cheap after the first call.
    #[inline]
    pub fn get() -> Result<Self, TaskError> {
        let current = Self::current_or_none();
        if current.tid() == 0 {
            refresh()
        } else {
            Ok(Self(current))
        }
    }

    /// The calling thread, without making a record.
    #[inline]
    pub fn current_or_none() -> CurrentOrNone {
        CurrentOrNone { record: record() }
    }

    /// The thread's ID in its PID namespace, which is not 0.
    #[inline]
    pub fn tid(self) -> u32 {
        self.0.tid()
    }

    /// See [`CurrentOrNone::stamp`].
    #[inline]
    pub fn stamp(self) -> u32 {
        self.0.stamp()
    }

    /// The number of the thread's PID namespace, in which its ID is unique; 0 if `/proc` does not say. It costs a system call
    /// once in a process.
    pub fn namespace(self) -> u32 {
        let namespace = &self.record.namespace;
        if namespace.get() == 0 {
            namespace.set(namespaces::own());
        }
        namespace.get()
    }

    /// The thread's robust list.
    ///
    /// # Safety
    /// The caller uses it in this thread, in the process in which it got `self`, and before the thread's end. A node that
    /// it announces there stays where it is until the announcement ends.
    #[inline]
    pub unsafe fn head(self) -> &'static Head {
        // SAFETY: `refresh` sets the head before the ID and the budget, of which one was not 0 when `self` was made; by
        // the caller's contract this is the same process. The head lives as long as the thread.
        unsafe { self.record.head.get().unwrap_unchecked().as_ref() }
    }

    /// Lets `operation` read the robust list; returns `none` in the child of a fork, where the record is wiped.
    fn with_list<R>(self, none: R, operation: impl FnOnce(&Head) -> R) -> R {
        match self.record.head.get() {
            // SAFETY: the head that `refresh` has set lives as long as the thread, which is the calling one: a `Me` is
            // not `Send`.
            Some(head) => operation(unsafe { head.as_ref() }),
            None => none,
        }
    }

    /// The number of locks on the robust list that lie in a range of addresses, without the entries of attachments.
    pub fn locks_within(self, range: &Range<usize>) -> usize {
        self.with_list(0, |head| {
            let is_lock = |link: &usize| {
                let is_of =
                    |attachment: Attachment| [attachment.life, attachment.tail].contains(link);
                range.contains(link) && !self.attachments().any(is_of)
            };
            head.links().filter(is_lock).count()
        })
    }

    /// Whether the thread holds a robust lock.
    pub fn holds_locks(self) -> bool {
        self.locks_within(&(0..usize::MAX)) != 0 || self.holds_in_regions()
    }

    /// To be called when a lock that counts has been linked. This crate's own locks are linked even if no budget is
    /// left; the budget is then below 0.
    ///
    /// A wrong count breaks no memory: locks that exceed the kernel's limit are not marked when the thread dies.
    #[inline]
    pub fn spend(self) {
        self.set_budget(self.budget() - 1);
    }

    /// To be called when a lock that counts has been unlinked.
    #[inline]
    pub fn refund(self) {
        self.set_budget(self.budget() + 1);
    }

    /// Sets the budget, unless the record was wiped: in the child of a fork a budget would claim that the record has a
    /// robust list; see [`CurrentOrNone::task_with_budget`].
    #[inline]
    fn set_budget(self, budget: i32) {
        if self.record.head.get().is_some() {
            self.record.budget.set(budget);
        }
    }

    /// Sets the address of the checker's data for this thread.
    ///
    /// # Safety
    /// The checker's alone to call: the address is 0, or that of its data for this thread, which lives until another is
    /// set or the record ends.
    pub unsafe fn set_checked(self, address: usize) {
        self.record.checked.set(address);
    }

    /// Counts the entries of the robust list, and returns the corrected budget; 0 in the child of a fork.
    #[cold]
    pub fn recount(self) -> i32 {
        let budget = self.with_list(0, |head| MAX_HELD - head.links().count() as i32);
        self.set_budget(budget);
        budget
    }

    /// Runs an operation that relies on an attachment: meanwhile no signal handler can end an attachment.
    #[inline]
    pub fn rely_on_attachment<R>(self, operation: impl FnOnce() -> R) -> R {
        struct Relying<'a>(&'a Cell<u32>);
        impl Drop for Relying<'_> {
            fn drop(&mut self) {
                // The child of a fork in the operation begins at 0 again.
                self.0.set(self.0.get().saturating_sub(1));
            }
        }
        let relying = Relying(&self.record.relying);
        relying.0.set(relying.0.get() + 1);
        operation()
    }
}

/// The calling thread's ID. It is cached, if the thread can have a record.
#[inline]
pub fn id() -> u32 {
    Me::get().map_or_else(|_| thread::thread_id(), Me::tid)
}

/// The calling thread's [stamp](CurrentOrNone::stamp); 0 if it can have no record.
#[cfg(feature = "foreign")]
pub fn stamp() -> u32 {
    Me::get().map_or(0, Me::stamp)
}

/// Makes the record of the calling thread, in the process that it is in now.
#[cold]
fn refresh() -> Result<Me, TaskError> {
    if END.with(Cell::get) == GIVEN {
        return Err(TaskError::Ended);
    }
    let mut record = record();
    if !is_own(record) {
        let page = thread::map_wipe_on_fork().map_err(TaskError::Memory)?;
        record = self::record();
        if is_own(record) {
            // A signal handler has just made a record.
            // SAFETY: the page was mapped above, and no pointer to it is left.
            unsafe { thread::unmap_record(page) };
        } else {
            // SAFETY: the page is fresh zeroed memory, large enough and page-aligned; all-zero is a valid record, and
            // it stays mapped until the thread's end, after which no pointer leads to it.
            record = unsafe { page.cast::<Record>().as_ref() };
            // SAFETY: the page is a record of zeros, and stays mapped until `end_record` has set another pointer.
            unsafe { own_record::set(page.cast()) };
        }
    }
    ask_for_end();
    let mark = ProcessMark::own().map_err(TaskError::Memory)?;
    let own = record.own_head.get();
    // SAFETY: only this thread touches its record, nothing else borrows the field, and it stays mapped as long as a lock
    // is on the list (see `end_record`). The known head was registered for this thread: it is libc's, and lives as long.
    let found = unsafe { robust_list::find(KNOWN_HEAD.with(Cell::get), &mut *own) };
    let head = found.map_err(|error| match error {
        Unavailable::Refused(error) => TaskError::RobustList(error),
        Unavailable::ForeignLayout(offset) => TaskError::ForeignLayout(offset),
    })?;
    // Do not remember a head inside the record: the record is wiped in the child, which would find the head empty. Such
    // a head is never libc's.
    let own = own.addr()..own.addr() + size_of::<OwnHead>();
    if !own.contains(&head.addr().get()) {
        KNOWN_HEAD.with(|known| known.set(Some(head)));
    }
    record.head.set(Some(head));
    // SAFETY: `find` returned the head of this thread's list, which lives as long as the thread.
    let front = unsafe { head.as_ref() }.front();
    record.anchor.set(front);
    record.end.set(front);
    let tid = thread::thread_id();
    record.stamp.set(tid ^ (mark.number() as u32) << ID_BITS);
    record.tid.set(tid);
    Ceilings::drop_inherited_boost();
    // Last: a caller that reads a budget above 0 can rely on all other fields.
    record.budget.set(MAX_HELD);
    Ok(Me(CurrentOrNone { record }))
}

/// Requests that [`ends`] is called at the thread's end.
fn ask_for_end() {
    // SAFETY: `ends` may be called at the thread's end.
    if unsafe { thread_end::call_at_end(ends) } {
        return;
    }
    // No key is free. (Or there is no memory for the value of this one.)
    END.with(|end| {
        if end.get() == AHEAD {
            // SAFETY: `ends_at_once` may be called at the thread's end.
            let is_asked_for = unsafe { thread_end::call_at_exit(ends_at_once) };
            end.set(if is_asked_for { ASKED_FOR } else { BEGUN });
        }
    });
}

/// Called by the key when the thread ends, in up to [`thread_end::ROUNDS`] rounds: see the module.
///
/// # Safety
/// The thread does not return to code that uses its attachments.
unsafe extern "C" fn ends(_: *mut c_void) {
    let _undisturbed = Undisturbed::begin();
    let announced = ANNOUNCED.with(|count| {
        count.set(count.get().saturating_add(1));
        count.get()
    });
    let Some(me) = Me::with_something_left() else {
        return;
    };
    if me.waits_for_destructors() && u32::from(announced) < thread_end::ROUNDS - 1 && end_again() {
        END.with(|end| end.set(BEGUN));
        crate::hook::task_ends();
        return;
    }
    // SAFETY: the thread ends in good order, and this is the last call that is sure to come.
    unsafe { end(me, true) };
}

/// As [`ends`], for a thread that has no key: the loader announces its end once. (Also if the thread calls `exit`.)
///
/// # Safety
/// As for [`ends`].
unsafe extern "C" fn ends_at_once(_: *mut c_void) {
    let _undisturbed = Undisturbed::begin();
    if let Some(me) = Me::with_something_left() {
        // SAFETY: as in `ends`.
        unsafe { end(me, true) };
    }
}

/// Called when the thread ends the process. What it holds stays its own until the process is dead.
///
/// # Safety
/// As for [`ends`].
unsafe extern "C" fn exits(_: *mut c_void) {
    let _undisturbed = Undisturbed::begin();
    let record = record();
    if is_own(record) {
        // SAFETY: by the caller's contract.
        unsafe { end(Me(CurrentOrNone { record }), false) };
    }
}

/// # Safety
/// As for [`ends`]. If `hands_over`, the thread ends in good order, and uses nothing that it holds any more.
unsafe fn end(me: Me, hands_over: bool) {
    let is_watched = crate::hook::task_ends();
    // A record that was wiped by a fork has nothing attached.
    while let Some(attachment) = me.attachments().last() {
        // SAFETY: the attachment was made by this thread and is undone once.
        unsafe { (attachment.detach)(attachment.context, attachment.slot) };
    }
    let gives = hands_over && me.with_list(false, keeper::is_concerned);
    if gives {
        // SAFETY: by the caller's contract.
        me.with_list((), |head| unsafe {
            keeper::hand_over(head, me.tid(), me.end())
        });
    }
    END.with(|end| end.set(if gives { GIVEN } else { BEGUN }));
    if !is_watched || gives {
        me.end_record();
    }
}

/// Requests one more call of [`ends`], after other destructors of this thread, whose end has begun. Returns whether it
/// will come.
pub fn end_again() -> bool {
    // SAFETY: `ends` may be called at the thread's end.
    unsafe { thread_end::call_at_end(ends) }
}

/// Called when the process ends by `exit`, which the calling thread has called.
///
/// # Safety
/// The thread does not return to code that uses its attachments: it is in `exit`.
pub unsafe extern "C" fn process_ends() {
    if !Me::current_or_none().is_ending() {
        // SAFETY: by the caller's contract; `exits` does not use its argument.
        unsafe { exits(core::ptr::null_mut()) };
    }
}

/// Called when this library is loaded, or the program begins.
extern "C" fn begins() {
    // SAFETY: `ends` may be called at the end of any thread, and `exits` when this one, if it is the first, ends the
    // process.
    unsafe { thread_end::prepare(ends, exits) };
}

// SAFETY: these sections hold pointers to functions of this type.
#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGINS: extern "C" fn() = begins;
#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".fini_array")]
static PROCESS_ENDS: unsafe extern "C" fn() = process_ends;

impl Me {
    /// The calling thread, whose end has begun, if it has a record, or something left for the keeper. (The first thread
    /// may have ended its record in a function of the loader's, from where it seemed to end the process.)
    fn with_something_left() -> Option<Self> {
        let record = record();
        if is_own(record) {
            return Some(Self(CurrentOrNone { record }));
        }
        let head = KNOWN_HEAD.with(Cell::get)?;
        // SAFETY: the head that was found for this thread lives as long as the thread.
        keeper::is_concerned(unsafe { head.as_ref() })
            .then(Self::get)?
            .ok()
    }

    /// Whether the thread holds something that a later destructor may release: what concerns the keeper, or a lock that
    /// can only be released before the thread leaves its region.
    fn waits_for_destructors(self) -> bool {
        self.with_list(false, keeper::is_concerned)
            || self.holds_in_regions()
            || self.attachments().any(|attachment| {
                // SAFETY: the attachment names a slot of its region, which it keeps mapped.
                unsafe { (attachment.lends)(attachment.slot) }
            })
    }

    /// Whether the thread holds a lock that lies in a range of addresses and lends references to its data.
    pub fn lends_within(self, range: &Range<usize>) -> bool {
        self.with_list(false, |head| keeper::lends_within(head, range))
    }

    /// Ends the record: the thread has none from now on.
    fn end_record(self) {
        let record = self.record;
        // SAFETY: the record of zeros is a static.
        unsafe { own_record::set(own_record::no_record()) };
        // If the list head is inside the record, and locks are on it, the record stays mapped: the kernel is to walk
        // the list.
        let page = core::ptr::from_ref(record).addr();
        let lies_in_it =
            |head: NonNull<Head>| (page..page + size_of::<Record>()).contains(&head.addr().get());
        if record.head.get().is_some_and(lies_in_it)
            && self.with_list(false, |head| head.links().next().is_some())
        {
            return;
        }
        // SAFETY: the record was this thread's; no list head or other pointer leads to it any more.
        unsafe { thread::unmap_record(NonNull::from(record).cast()) };
    }
}
