//! The record that a creator and a coproc share: one block of the region's heap per coproc.
//!
//! | state | meaning | entered by |
//! | --- | --- | --- |
//! | 0 `REQUESTED` | to be made, or being made | creator |
//! | 1 `READY` | in the pool: sleeps until it has work | coproc |
//! | 2 `ASSIGNED` | taken from the pool | creator: CAS from `READY` or `AWAKE` |
//! | 3 `STARTED` | all attributes are set, its function runs | coproc |
//! | 4 `FAILED` | an attribute failed; it runs nothing | coproc, or the zygote for it |
//! | 5 `DONE` | its function has ended, the result is here | coproc |
//! | 6 `CLOSED` | in the pool: the coproc must end, or ends by itself | creator, or the zygote when the creator has died or become another program: CAS from `REQUESTED`, `READY` or `AWAKE`; coproc: CAS from `READY` |
//! | 6 `CLOSED` | of a `Coprocs` itself: the zygote must end | creator |
//! | 7 `AWAKE` | as `READY`, but polls for its work without sleeping | coproc: CAS from `READY`, and back |
//!
//! Invariants
//! 1. Only the creator writes the request, before it sends `REQUESTED` or stores `ASSIGNED` (Release). Only the coproc
//!    reads it, after it has seen that (Acquire).
//! 2. A coproc that has stored `FAILED` or `DONE` does not touch its record again. So the record may be freed then, or
//!    once the process was reaped. It may not be freed as soon as the task is gone, for a function may leave the region
//!    and run on.
//! 3. The result is written before `DONE`. A process that has ended without `DONE` died.
//! 4. A record is private to its creator's task until the store that links it into the runtime's [`Chain`], and freed by
//!    the store that unlinks it (the heap's intents). So a creator that is killed leaves each of its records in the chain,
//!    or freed by the sweep of its task. The zygote then has that sweep done, and frees all records in the chain. A coproc
//!    whose record is in no chain (its runtime has been dropped) frees its own record when its function has ended. (So a
//!    record leaks if creator *and* zygote are killed, if the creator becomes another program, or if the creator and a coproc
//!    whose runtime has been dropped are killed. The control record, which begins the chain, also leaks if the creator is killed
//!    before the zygote has started; and the control record with all records, if the creator is killed after the zygote has ended.)
#![allow(unsafe_code)]

use super::attributes::{Attribute, Settings};
use crate::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
use crate::mutex::Mutex;
use crate::region::heap::Owner;
use crate::region::{AttachError, ObjectError, Region};
use crate::sys::clock::since_boot;
use crate::sys::futex::{self, Sharing};
use crate::sys::limits::Usage;
use crate::sys::process::Ended;
use crate::sys::process_identity::ProcessIdentity;
use crate::sys::sockets::MAX_DESCRIPTORS;
use crate::sys::{process, thread};
use crate::text::whole_characters;
use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::time::Duration;
use rustix::io::Errno;
use std::sync::Arc;

pub(super) const REQUESTED: u32 = 0;
pub(super) const READY: u32 = 1;
pub(super) const ASSIGNED: u32 = 2;
pub(super) const STARTED: u32 = 3;
pub(super) const FAILED: u32 = 4;
pub(super) const DONE: u32 = 5;
pub(super) const CLOSED: u32 = 6;
pub(super) const AWAKE: u32 = 7;

/// The most bytes of an argument that is passed by value.
pub(super) const VALUE_BYTES: usize = 256;
/// The most bytes that are kept of a panic's message.
const MESSAGE_BYTES: usize = 160;

/// A monomorphic function of this image, which is at the same address in all clones.
pub(super) type Run = unsafe fn(&Region, entry: usize, argument: *const u8) -> i32;

/// The function to run.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Call {
    pub(super) run: Run,
    pub(super) entry: usize,
    /// The argument's address; 0 means the value in the request.
    pub(super) argument: usize,
}

/// The request for a coproc: its call and its attributes.
#[derive(Clone)]
#[repr(C, align(16))]
pub(super) struct Request {
    pub(super) call: Option<Call>,
    pub(super) settings: Settings,
    /// The process that requests the coproc.
    pub(super) creator: u32,
    /// When its record was added to the chain, since boot: a task of the creator's had joined by then.
    pub(super) made_at: u64,
    /// Whether it is made ahead, for the pool.
    pub(super) pooled: bool,
    /// The descriptors to pass, as numbers in the process that is cloned. `descriptor_count` is how many must arrive.
    pub(super) descriptors: [i32; MAX_DESCRIPTORS],
    pub(super) descriptor_count: usize,
    /// The argument by value: with its padding, which is not initialised.
    pub(super) value: [MaybeUninit<u128>; VALUE_BYTES / 16],
}

impl Request {
    /// A request without a call. `pooled`: for a coproc that is made ahead.
    pub(super) fn without_call(creator: u32, pooled: bool) -> Self {
        Self {
            call: None,
            settings: Settings::named("ready"),
            creator,
            made_at: 0,
            pooled,
            descriptors: [-1; MAX_DESCRIPTORS],
            descriptor_count: 0,
            value: [MaybeUninit::new(0); VALUE_BYTES / 16],
        }
    }
}

#[repr(C, align(64))]
pub(super) struct Record {
    pub(super) state: AtomicU32,
    /// Set by the kernel when it makes the process; 0 before, and after the process was reaped ([`Record::ended_unstarted`]).
    pub(super) pid: AtomicU32,
    /// The processor on which the function began: a hint for a joiner that spins.
    processor: AtomicU32,
    /// Which process had that ID; zeros before the coproc has noted it.
    identity: [AtomicU64; 2],
    /// Slot and generation in the region's task table; 0 before the coproc has joined.
    task: AtomicU64,
    /// The attribute that failed and its error, or the result.
    pub(super) code: AtomicU32,
    pub(super) detail: AtomicU32,
    usage: [AtomicU64; 7],
    message_length: AtomicU32,
    message: [AtomicU8; MESSAGE_BYTES],
    /// Neighbours in the runtime's chain, by address. `previous` is 0 if the record is in no chain.
    next: AtomicUsize,
    previous: AtomicUsize,
    request: UnsafeCell<Request>,
}

// SAFETY: all fields are atomics, except the request, which one task at a time uses (invariant 1).
unsafe impl Sync for Record {}

/// A record in a region.
#[derive(Clone)]
pub(super) struct Ref {
    pub(super) region: Region,
    record: NonNull<Record>,
    /// The chain that the creator added it to.
    chain: Option<Arc<Chain>>,
}

// SAFETY: the region handle keeps the record mapped, and the record is `Sync`.
unsafe impl Send for Ref {}
// SAFETY: the region handle keeps the record mapped, and the record is `Sync`.
unsafe impl Sync for Ref {}

impl core::ops::Deref for Ref {
    type Target = Record;
    fn deref(&self) -> &Record {
        // SAFETY: `new` allocated the record, and the callers of `free` keep invariant 2, so it is not freed yet.
        unsafe { self.record.as_ref() }
    }
}

impl Ref {
    /// Allocates a record that outlives the calling task: a runtime's control record.
    pub(super) fn new(region: &Region, request: Request) -> Result<Self, ObjectError> {
        let record = Self::private(region, request)?;
        // SAFETY: allocated now.
        unsafe { region.keep(record.record.cast()) };
        Ok(record)
    }

    #[cfg(test)]
    pub(super) fn layout() -> Layout {
        Layout::new::<Record>()
    }

    /// Allocates a record that is private to the calling task.
    fn private(region: &Region, request: Request) -> Result<Self, ObjectError> {
        let block = region.allocate(Layout::new::<Record>())?;
        let record: NonNull<Record> = block.cast();
        // Zero is `REQUESTED`, no process, no task and no neighbour.
        // SAFETY: the block has the right size and alignment, no other task knows it, and zeros are valid atomics.
        unsafe {
            record.write_bytes(0, 1);
            (&raw mut (*record.as_ptr()).request).write(UnsafeCell::new(request));
        }
        Ok(Self {
            region: region.clone(),
            record,
            chain: None,
        })
    }

    /// The record at an address that was received over the zygote's socket, or read from a neighbour's link.
    ///
    /// # Safety
    /// The address is 0, or that of a record of this region, which is not freed while the result is used.
    pub(super) unsafe fn at(region: &Region, address: usize) -> Option<Self> {
        let record = NonNull::new(core::ptr::with_exposed_provenance_mut(address))?;
        Some(Self {
            region: region.clone(),
            record,
            chain: None,
        })
    }

    pub(super) fn address(&self) -> usize {
        self.record.as_ptr().expose_provenance()
    }

    /// Frees the record.
    ///
    /// # Safety
    /// By invariant 2 the coproc does not touch the record again, and no other `Ref` of this process is used again.
    pub(super) unsafe fn free(&self) {
        if let Some(chain) = &self.chain
            // SAFETY: the caller keeps the contract.
            && unsafe { chain.retire(self) }
        {
            return;
        }
        // SAFETY: the caller keeps the contract. If the thread cannot become a task of the region, the record leaks.
        let _: Result<(), AttachError> = unsafe { self.region.deallocate(self.record.cast()) };
    }
}

/// The records of a runtime: a list in the region that begins at the control record, so that the zygote finds the
/// records when their creator is dead.
///
/// Only the creator changes the list, under the lock. Each change takes effect by one store to a `next`, which also decides
/// whose the record is: before the first one it is private to the creator's task, and after the second one it is free. A
/// kill at any instruction leaves a list that can be followed, and no record outside of it. If the creator dies in the
/// middle of a change, the sweep of its task reads that `next` to finish or undo the change. So nobody frees a record of
/// the list, or follows it, before that sweep (`end_all` of the zygote).
pub(super) struct Chain {
    control: Ref,
    lock: Mutex<()>,
}

impl Chain {
    pub(super) fn new(control: &Ref) -> Arc<Self> {
        Arc::new(Self {
            control: control.clone(),
            lock: Mutex::new(()),
        })
    }

    /// A new record in the chain.
    pub(super) fn add(self: &Arc<Self>, mut request: Request) -> Result<Ref, ObjectError> {
        let inner = self.control.region.inner();
        let task = inner.task()?;
        request.made_at = since_boot();
        let mut record = Ref::private(&self.control.region, request)?;
        let _lock = self.lock.lock();
        let first = self.control.next.load(Relaxed);
        record.next.store(first, Relaxed);
        record.previous.store(self.control.address(), Relaxed);
        if let Some(first) = self.at(first) {
            first.previous.store(record.address(), Relaxed);
        }
        // A reader that follows this link sees the record's own link, stored above: the store is a Release.
        // SAFETY: the lock protects the word among the threads of this process, and no other process stores to it, or
        // frees the control record, before this process's tasks were swept. The record is this task's own.
        unsafe { inner.publish_block(task, record.record.cast(), &self.control.next) };
        record.chain = Some(Arc::clone(self));
        Ok(record)
    }

    /// Unlinks and frees a record; `false` if it is in no chain. (If the thread cannot become a task of the region, the
    /// record stays in the chain.)
    ///
    /// # Safety
    /// As for [`Ref::free`].
    unsafe fn retire(&self, record: &Ref) -> bool {
        let inner = self.control.region.inner();
        let task = inner.task();
        let _lock = self.lock.lock();
        let next = record.next.load(Relaxed);
        let Some(previous) = self.at(record.previous.load(Relaxed)) else {
            return false;
        };
        if let Ok(task) = task {
            if let Some(next) = self.at(next) {
                next.previous.store(previous.address(), Relaxed);
            }
            // SAFETY: as in `add`; the caller guarantees that nobody uses the record again.
            unsafe { inner.unlink_block(task, record.record.cast(), &previous.next, next) };
        }
        true
    }

    /// Unlinks all records, since the control record is about to be freed.
    pub(super) fn dissolve(&self) {
        let _lock = self.lock.lock();
        let mut next = self.control.next.swap(0, Relaxed);
        while let Some(record) = self.at(next) {
            next = record.next.swap(0, Relaxed);
            record.previous.store(0, Relaxed);
        }
    }

    fn at(&self, address: usize) -> Option<Ref> {
        // SAFETY: the links hold addresses of records that are in the chain, and so not freed.
        unsafe { Ref::at(&self.control.region, address) }
    }
}

impl Record {
    /// The next record of the chain.
    pub(super) fn next(&self) -> usize {
        // Acquire: pairs with the Release of `add` and `retire`.
        self.next.load(Acquire)
    }

    pub(super) fn is_in_chain(&self) -> bool {
        // Relaxed: nothing is read through it.
        self.previous.load(Relaxed) != 0
    }

    /// Whether its process, a child of this one, has ended before the coproc started. If so, the process is reaped and its ID is
    /// cleared. A process that ends after the start is left to the join, which needs the ID and the status.
    pub(super) fn ended_unstarted(&self) -> bool {
        let pid = self.pid.load(Relaxed);
        // The state is read after the end, so it is the last one that the process has stored.
        let ended = pid != 0 && process::has_ended(pid) && self.state() == REQUESTED;
        if ended {
            let _ = process::reap(pid, false);
            self.pid.store(0, Relaxed);
        }
        ended
    }

    /// Notes which process the calling coproc is.
    pub(super) fn identify(&self) {
        let ProcessIdentity { inode, seen } = ProcessIdentity::own();
        for (place, value) in self.identity.iter().zip([inode, seen]) {
            // Relaxed: the Release store of the state publishes it.
            place.store(value, Relaxed);
        }
    }

    /// Which process the coproc is, once the state is `READY` or later.
    pub(super) fn identity(&self) -> ProcessIdentity {
        let [inode, seen] = [0, 1].map(|index: usize| self.identity[index].load(Relaxed));
        ProcessIdentity { inode, seen }
    }

    /// Reaps its process, which has this ID, if it has ended; `None` if not. `CHILD`: other code has reaped it.
    pub(super) fn reap(&self, pid: u32) -> Result<Option<(Ended, Usage)>, Errno> {
        match self.state() {
            // Its function has ended, or never ran.
            FAILED | DONE | CLOSED => self.identity().reap_clone(pid),
            _ => self.identity().reap(pid),
        }
    }

    /// The request.
    ///
    /// # Safety
    /// Invariant 1: the state allows the caller to use the request.
    #[expect(clippy::mut_from_ref, reason = "the state says whose it is")]
    pub(super) unsafe fn request(&self) -> &mut Request {
        // SAFETY: by the contract, the state gives the request to the caller alone.
        unsafe { &mut *self.request.get() }
    }

    pub(super) fn set_task(&self, task: Owner) {
        // Relaxed: the Release store of the state publishes it.
        self.task.store(task.raw(), Relaxed);
    }

    /// The coproc's task in the region, once the state is `READY` or later.
    pub(super) fn task(&self) -> Option<Owner> {
        Owner::from_raw(self.task.load(Relaxed))
    }

    pub(super) fn state(&self) -> u32 {
        // Acquire: pairs with the Release of `enter`.
        self.state.load(Acquire)
    }

    pub(super) fn enter(&self, state: u32) {
        // Release: pairs with the Acquire of `state` and of the pool.
        self.state.store(state, Release);
    }

    /// Enters `STARTED` without a wake-up; a joiner may spin meanwhile.
    pub(super) fn begin_here(&self) {
        // Relaxed: ordered before `STARTED` by the Release of `enter`, and only a hint.
        self.processor.store(thread::processor(), Relaxed);
        self.enter(STARTED);
    }

    /// Whether its function has begun on another processor than the caller's.
    pub(super) fn runs_elsewhere(&self) -> bool {
        matches!(self.state(), STARTED | DONE)
            && self.processor.load(Relaxed) != thread::processor()
    }

    /// Enters a state, and wakes the tasks that sleep on it.
    pub(super) fn announce(&self, state: u32) {
        let word = &raw const self.state;
        self.enter(state);
        futex::wake(word, u32::MAX, Sharing::Shared);
    }

    /// Makes the coproc end, unless it has got work.
    pub(super) fn close(&self) {
        let is_idle = |state| matches!(state, REQUESTED | READY | AWAKE).then_some(CLOSED);
        // Release: pairs with the Acquire of `state`.
        if self.state.fetch_update(Release, Relaxed, is_idle).is_ok() {
            self.wake();
        }
    }

    /// Wakes all tasks that sleep on the state. One wake-up would not do: a task may still sleep on this address
    /// because of a record that was there before, and would consume it.
    pub(super) fn wake(&self) {
        futex::wake(&raw const self.state, u32::MAX, Sharing::Shared);
    }

    /// Reports an attribute that cannot be set.
    pub(super) fn refuse(&self, attribute: Attribute, error: Errno) {
        // Relaxed: the Release store of `FAILED` publishes it.
        self.code.store(attribute as u32, Relaxed);
        self.detail
            .store(error.raw_os_error().cast_unsigned(), Relaxed);
        self.announce(FAILED);
    }

    pub(super) fn set_usage(&self, usage: &Usage) {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let values = [
            nanoseconds(usage.user_time),
            nanoseconds(usage.system_time),
            usage.max_rss_kib,
            usage.minor_faults,
            usage.major_faults,
            usage.voluntary_switches,
            usage.involuntary_switches,
        ];
        for (place, value) in self.usage.iter().zip(values) {
            // Relaxed: the Release store of `DONE` publishes it.
            place.store(value, Relaxed);
        }
    }

    pub(super) fn usage(&self) -> Usage {
        let value = |index: usize| self.usage[index].load(Relaxed);
        let mut usage = Usage::default();
        usage.user_time = Duration::from_nanos(value(0));
        usage.system_time = Duration::from_nanos(value(1));
        usage.max_rss_kib = value(2);
        usage.minor_faults = value(3);
        usage.major_faults = value(4);
        usage.voluntary_switches = value(5);
        usage.involuntary_switches = value(6);
        usage
    }

    pub(super) fn set_message(&self, message: &str) {
        let kept = whole_characters(message, MESSAGE_BYTES);
        for (place, byte) in self.message.iter().zip(kept.bytes()) {
            // Relaxed: the Release store of `DONE` publishes it.
            place.store(byte, Relaxed);
        }
        self.message_length.store(kept.len() as u32, Relaxed);
    }

    pub(super) fn message(&self) -> String {
        let length = (self.message_length.load(Relaxed) as usize).min(MESSAGE_BYTES);
        let bytes: Vec<u8> = self.message[..length]
            .iter()
            .map(|byte| byte.load(Relaxed))
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
