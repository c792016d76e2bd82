//! The calling thread's own state: the locks that it holds, and the lock orders that it has seen.
//!
//! The authoritative copy lies in the thread's own memory, which no other thread reads. Each change is published at
//! once: in the thread's [`Place`] of the board, and in its slot of each region that it is a task of.
//!
//! *Fork:* the child's thread finds this copy unchanged, and sees that it belongs to another process. It keeps its
//! entries for locks that are the child's now (private, not robust), and begins to publish again.
//!
//! *Signals:* locks that a handler takes while the checker runs in the same thread are not checked ([`Own::enter`]).
#![allow(unsafe_code)]

mod held_locks;

use crate::atomic::{AtomicU32, Ordering, compiler_fence};
use crate::check::record::board::{self, Board};
use crate::check::record::layout::{Entry, MORE, Place};
use crate::check::record::wait::{self, Wait};
use crate::hook::record::{DEEPER, READS, pack, unpack};
use crate::hook::{HELD, HeldLock, Kind, Lock, Mode, Site, TaskRecord, Traits};
use crate::region;
use crate::sys::each_thread::each_thread;
use crate::sys::process_mark::ProcessMark;
use crate::sys::{board as sys, clock, own_stack, scheduling, thread};
use crate::task::Me;
use core::cell::Cell;
use core::ptr::{self, NonNull};

/// The most locks of one thread that are checked at a time.
pub(crate) const MAX_HELD: usize = HELD + MORE;

/// How many chains of held locks a thread remembers: a hash table of pairs, each with the two latest of its slot.
pub(crate) const CHAINS: usize = 256;

/// The size of an [`Own`] in bytes: two pages.
const BYTES: usize = 8192;
/// The size of the stack behind it. Pages that are not used need no memory.
const STACK: usize = 256 << 10;

/// See the head of this file. Zeroed memory belongs to no thread.
///
/// The fields that each lock call reads come first, in one cache line; then those that most calls write.
#[repr(C, align(64))]
pub(crate) struct Own {
    place: Cell<Option<&'static Place>>,
    /// The board of that place.
    pub(crate) board: Cell<Option<Board>>,
    /// How many entries of `held` are in use, including empty ones among them; the last one is not empty.
    pub(crate) count: Cell<usize>,
    /// The address that the thread waits for; 0 for none.
    pub(crate) wanted: Cell<usize>,
    pub(crate) index: Cell<u32>,
    pub(crate) thread: Cell<u32>,
    /// The thread's number, which no other thread of this process has or gets, nor had one of its parent.
    pub(crate) task: Cell<u32>,
    process: Cell<u32>,
    /// The number of that process's mark.
    made_by: Cell<u64>,
    /// How many of the used entries of `held` are empty: if none is, a release need not search for them.
    gaps: Cell<u32>,
    busy: Cell<bool>,
    /// How many held locks found no room in `held`.
    pub(crate) unrecorded: Cell<u32>,
    /// The object of the latest rule of use that the thread broke.
    pub(crate) broken: Cell<usize>,
    /// How many times the thread's end was seen while it held something.
    pub(crate) ends: Cell<u32>,
    pub(crate) held: [Cell<HeldEntry>; MAX_HELD],
    /// A cache of source locations that are on the board.
    pub(crate) sites: [Cell<u64>; 32],
    /// The hashes of chains of held locks that were checked already.
    pub(crate) chains: [[Cell<u64>; 2]; CHAINS],
    /// How many lock orders this thread was the first to make.
    pub(crate) orders: Cell<u32>,
    /// For a wait for a condition: the condition's round (how many times all its waiters had been notified) when it
    /// began.
    pub(crate) round: Cell<u32>,
    /// When the current wait began, in nanoseconds.
    pub(crate) wait_began: Cell<u64>,
    pub(crate) wait: Cell<Option<Wait>>,
    /// Behind this value in its arena.
    stack: Cell<Option<NonNull<u8>>>,
}

const _: () = assert!(size_of::<Own>() <= BYTES);
const _: () = assert!(core::mem::offset_of!(Own, busy) < 64);

/// In [`HeldEntry::what`]: it was held when the process was forked, by a thread that does not exist in the child.
pub(crate) const FORKED: u32 = 1 << 19;

/// A lock that the thread holds.
#[derive(Clone, Copy)]
pub(crate) struct HeldEntry {
    pub(crate) address: usize,
    /// As in the record, without the depth.
    pub(crate) what: u32,
    /// How many times it is held, beyond the first.
    pub(crate) depth: u32,
    /// Its node of the order graph.
    pub(crate) node: u32,
    pub(crate) site: Site,
    pub(crate) since: u64,
    /// The lock's entry on the board.
    pub(crate) entry: Option<&'static Entry>,
}

impl HeldEntry {
    /// The lock, and the mode in which it is held.
    #[inline]
    pub(crate) fn lock(&self) -> (Lock, Mode) {
        unpack(self.address as u64, self.what)
    }

    /// Whether it was held when the process was forked; the parent's thread still holds the parent's lock.
    pub(crate) fn is_from_before_fork(&self) -> bool {
        self.what & FORKED != 0
    }

    /// Whether it is held in a read mode.
    #[inline]
    pub(crate) fn reads(&self) -> bool {
        self.what & READS != 0
    }

    /// The entry of a lock that was taken just now.
    #[inline]
    pub(crate) fn new(
        lock: Lock,
        mode: Mode,
        site: Site,
        node: u32,
        entry: Option<&'static Entry>,
    ) -> Self {
        Self {
            address: lock.address(),
            what: pack(lock, mode),
            depth: 0,
            node,
            site,
            since: clock::coarse(),
            entry,
        }
    }

    #[inline]
    pub(crate) fn write(&self, entry: &HeldLock) {
        entry.write(
            self.address as u64,
            self.site.raw(),
            self.since,
            self.what | (self.depth.min(u32::MAX / DEEPER) * DEEPER),
            self.node,
        );
    }
}

/// How many threads were checked so far.
static TASKS: AtomicU32 = AtomicU32::new(0);

/// Stands for a thread for which there was no room, and which is not checked.
const UNCHECKED: NonNull<Own> = NonNull::dangling();

each_thread! {
    /// Survives a fork, unlike the pointer in the thread record.
    static KNOWN: Cell<Option<NonNull<Own>>> = Cell::new(None);
}

/// The calling thread while it runs in the checker. Until this is dropped, its lock calls are not checked.
pub(crate) struct Busy(&'static Own);

impl Drop for Busy {
    #[inline]
    fn drop(&mut self) {
        // A signal handler of this thread sees either the mark, or all that was done under it.
        compiler_fence(Ordering::SeqCst);
        self.0.busy.set(false);
    }
}

impl core::ops::Deref for Busy {
    type Target = Own;
    #[inline]
    fn deref(&self) -> &Own {
        self.0
    }
}

impl Own {
    /// The calling thread, unless it runs in the checker already, is about to end, or has no room. For a thread that is
    /// not known yet `start` is called first, and says whether threads are checked.
    #[inline]
    pub(crate) fn enter(start: fn() -> bool) -> Option<Busy> {
        let known = Me::current_or_none().checked();
        // SAFETY: `begin` stored the pointer, to memory that stays mapped until the thread ends.
        let own = match unsafe { (known as *const Self).as_ref() } {
            Some(own) => own,
            None => Self::begin(start)?,
        };
        own.become_busy()
    }

    /// As [`Self::enter`], but only for a thread that is known already.
    #[inline(always)]
    pub(crate) fn enter_if_known() -> Option<Busy> {
        let known = Me::current_or_none().checked();
        // SAFETY: `begin` stored the pointer, or it is null; the memory stays mapped until the thread ends.
        let own: &'static Self = unsafe { (known as *const Self).as_ref() }?;
        own.become_busy()
    }

    #[inline(always)]
    fn become_busy(&'static self) -> Option<Busy> {
        if self.busy.get() {
            return None;
        }
        self.busy.set(true);
        // See `Busy::drop`: a signal handler sees the mark before what is done under it.
        compiler_fence(Ordering::SeqCst);
        Some(Busy(self))
    }

    #[cold]
    fn begin(start: fn() -> bool) -> Option<&'static Self> {
        if !start() {
            return None;
        }
        let me = Me::get().ok()?;
        if me.is_ending() {
            return None;
        }
        // The steps below may lock something themselves, in an allocator for instance.
        let own = match KNOWN.with(Cell::get) {
            Some(own) if own == UNCHECKED => return None,
            Some(own) => own,
            None => {
                let arena = sys::arena(BYTES + STACK).ok()?;
                // SAFETY: the rest of the arena, which nothing uses yet.
                unsafe { own_stack::guard(arena.add(BYTES)) };
                let own = arena.cast();
                KNOWN.with(|known| known.set(Some(own)));
                own
            }
        };
        // SAFETY: within the arena.
        let stack = unsafe { own.cast::<u8>().add(BYTES) };
        // SAFETY: zeroed memory, which is a valid `Own`, or memory that this thread has initialised.
        let own: &'static Self = unsafe { own.as_ref() };
        own.stack.set(Some(stack));
        let made_by = ProcessMark::own().map_or(0, ProcessMark::number);
        if own.place.get().is_some() && own.made_by.get() == made_by {
            // The thread record was wiped by something other than a fork of this library.
            // SAFETY: the thread's data, which stays mapped until `end` has set 0.
            unsafe { me.set_checked(ptr::from_ref(own).addr()) };
            return Some(own);
        }
        own.busy.set(true);
        let board = board::board();
        let claimed = board.and_then(Board::claim);
        own.busy.set(false);
        let Some((index, place)) = claimed else {
            own.stay_unchecked();
            return None;
        };
        own.process.set(thread::process_id());
        own.made_by.set(made_by);
        own.thread.set(me.tid());
        // In the child of a fork the thread keeps its number, by which the copied order graph knows it.
        if own.task.get() == 0 {
            own.task.set(TASKS.fetch_add(1, Ordering::Relaxed) + 1);
        }
        own.index.set(index as u32);
        own.place.set(Some(place));
        own.board.set(board);
        let priority = scheduling::own_priority().unwrap_or(0).into();
        wait::note_priority(priority);
        let (process, record) = (own.process.get(), &place.record);
        record.begin(process, me.tid(), priority, &thread::name());
        own.keep_private_ones();
        // SAFETY: the thread's data, which stays mapped until `end` has set 0.
        unsafe { me.set_checked(ptr::from_ref(own).addr()) };
        Some(own)
    }

    /// Runs what may need much stack: that of the thread may be small, and be the program's own memory, without a page that
    /// guards its end. Such calls do not nest.
    pub(crate) fn on_own_stack(&self, body: impl FnOnce()) {
        if let Some(stack) = self.stack.get() {
            // SAFETY: the rest of this thread's arena. The thread is busy, so that no signal handler is in such a call.
            unsafe { own_stack::on(stack, STACK, body) };
        }
    }

    /// The thread is not checked for the rest of its life, since locks that it takes from now on are not recorded.
    fn stay_unchecked(&'static self) {
        KNOWN.with(|known| known.set(Some(UNCHECKED)));
        // The parent's `Own` may be in use further up the stack, if the fork happened in a signal handler.
        if self.place.get().is_none() {
            // SAFETY: no pointer to it is left.
            unsafe { sys::leave_arena(NonNull::from(self).cast(), BYTES + STACK) };
        }
    }

    /// After a fork: drops locks that are shared or robust, since the parent still holds these.
    fn keep_private_ones(&self) {
        let held: [HeldEntry; MAX_HELD] = core::array::from_fn(|place| self.held[place].get());
        let count = self.count.replace(0);
        self.gaps.set(0);
        // `unrecorded` stays: a lock that found no room is still held, if it is private.
        self.wanted.set(0);
        self.wait.set(None);
        for mine in &held[..count] {
            // The entry is read again, since the parent's board is not this process's.
            let entry = board::board().and_then(|board| board.lock(mine.address));
            // The traits of the initialisation are more complete than those of the call that took the lock.
            let made = entry.map_or(0, |entry| entry.what.load(Ordering::Relaxed));
            let traits = mine.lock().0.traits | unpack(0, made).0.traits;
            if mine.address != 0 && !traits.intersects(Traits::SHARED | Traits::ROBUST) {
                let what = mine.what | FORKED;
                self.push(HeldEntry {
                    entry,
                    what,
                    ..*mine
                });
                if let Some(entry) = entry {
                    entry.holder.store(self.number(), Ordering::Relaxed);
                }
            }
        }
    }

    /// The thread's record on the board.
    #[inline(always)]
    pub(crate) fn record(&self) -> &'static TaskRecord {
        &self.place().record
    }

    #[inline(always)]
    pub(crate) fn place(&self) -> &'static Place {
        // SAFETY: `begin` sets the place before it returns an `Own`.
        unsafe { self.place.get().unwrap_unchecked() }
    }

    /// Publishes that the thread is about to wait.
    pub(crate) fn begin_wait(&self, lock: Lock, what: u32, site: Site) {
        self.begin_wait_with(lock, what, site, Lock::new(0, Kind::Unknown));
    }

    /// As [`Self::begin_wait`], for a condition: the task will need the mutex, too.
    pub(crate) fn begin_wait_with(&self, lock: Lock, what: u32, site: Site, mutex: Lock) {
        self.name_as_holder();
        let now = clock::monotonic();
        self.wait_began.set(now);
        self.wanted.set(lock.address());
        let (address, also) = (lock.address() as u64, mutex.address() as u64);
        self.publish(|record| record.wanted.begin(address, site.raw(), now, what, also));
    }

    /// Names this thread as the holder of its exclusive locks on the board. A task that searches the waits finds
    /// holders there, so this comes before the wait is visible (a Release, in [`Wanted::begin`](crate::hook::Wanted)).
    fn name_as_holder(&self) {
        for mine in self.locks().filter(|mine| !mine.reads()) {
            if let Some(entry) = mine.entry {
                entry.holder.store(self.number(), Ordering::Relaxed);
            }
        }
    }

    /// Publishes that it no longer waits.
    #[inline]
    pub(crate) fn end_wait(&self) {
        if self.wanted.replace(0) != 0 {
            self.publish(|record| record.wanted.end());
        }
    }

    /// The thread leaves its regions: only this process still sees what it holds.
    pub(crate) fn end_copies(&self) {
        for attachment in Me::current_or_none().attachments() {
            region::check_record(&attachment).end();
        }
    }

    /// The thread ends: its state is no longer published.
    pub(crate) fn end(busy: Busy) {
        let own = busy.0;
        own.publish(TaskRecord::end);
        let place = own.place();
        place.more_count.store(0, Ordering::Relaxed);
        // Release: pairs with the claim by the place's next thread.
        place.taken.store(0, Ordering::Release);
        if let Some(me) = Me::current_or_none().task() {
            // SAFETY: there is no data from now on.
            unsafe { me.set_checked(0) };
        }
        KNOWN.with(|known| known.set(None));
        core::mem::forget(busy);
        // SAFETY: no pointer to it is left.
        unsafe { sys::leave_arena(NonNull::from(own).cast(), BYTES + STACK) };
    }

    /// The process and thread IDs.
    pub(crate) fn identity(&self) -> (u32, u32) {
        (self.process.get(), self.thread.get())
    }
}
