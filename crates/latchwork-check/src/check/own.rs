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

use super::board::{self, Board};
use super::layout::{Entry, MORE, Place};
use super::settings;
use super::waits::{self, Wait};
use crate::atomic::{AtomicU32, Ordering, compiler_fence};
use crate::hook::record::{DEEPER, READS, pack, unpack};
use crate::hook::{HELD, HeldLock, Kind, Lock, Mode, Site, TaskRecord, Traits};
use crate::region;
use crate::sys::each_thread::each_thread;
use crate::sys::{board as sys, clock, scheduling, thread};
use crate::task::Me;
use core::cell::Cell;
use core::ptr::{self, NonNull};

/// In [`Mine::what`]: it was held when the process was forked, by a thread that does not exist in the child.
const FORKED: u32 = 1 << 19;

/// The most locks of one thread that are checked at a time.
pub(super) const MOST: usize = HELD + MORE;

/// How many chains of held locks a thread remembers: a hash table of pairs, each with the two latest of its slot.
pub(super) const CHAINS: usize = 256;

/// The size of an [`Own`] in bytes: two pages.
const BYTES: usize = 8192;

/// A lock that the thread holds.
#[derive(Clone, Copy)]
pub(super) struct Mine {
    pub(super) address: usize,
    /// As in the record, without the depth.
    pub(super) what: u32,
    /// How many times it is held, beyond the first.
    pub(super) depth: u32,
    /// Its node of the order graph.
    pub(super) node: u32,
    pub(super) site: Site,
    pub(super) since: u64,
    /// The lock's entry on the board.
    pub(super) entry: Option<&'static Entry>,
}

impl Mine {
    /// The lock, and the mode in which it is held.
    #[inline]
    pub(super) fn lock(&self) -> (Lock, Mode) {
        unpack(self.address as u64, self.what)
    }

    /// Whether it was held when the process was forked; the parent's thread still holds the parent's lock.
    pub(super) fn is_from_before_fork(&self) -> bool {
        self.what & FORKED != 0
    }

    /// Whether it is held in a read mode.
    #[inline]
    pub(super) fn reads(&self) -> bool {
        self.what & READS != 0
    }
}

/// See the head of this file. Zeroed memory belongs to no thread.
///
/// The fields that each lock call reads come first, in one cache line; then those that most calls write.
#[repr(C, align(64))]
pub(super) struct Own {
    place: Cell<Option<&'static Place>>,
    /// The board of that place.
    pub(super) board: Cell<Option<Board>>,
    /// How many entries of `held` are in use, including empty ones among them; the last one is not empty.
    pub(super) count: Cell<usize>,
    /// The address that the thread waits for; 0 for none.
    pub(super) wanted: Cell<usize>,
    pub(super) index: Cell<u32>,
    pub(super) thread: Cell<u32>,
    /// The thread's number, which no other thread of this process has or gets, nor had one of its parent.
    pub(super) task: Cell<u32>,
    process: Cell<u32>,
    /// How many of the used entries of `held` are empty: if none is, a release need not search for them.
    gaps: Cell<u32>,
    busy: Cell<bool>,
    /// How many held locks found no room in `held`.
    pub(super) unseen: Cell<u32>,
    /// The object of the latest rule of use that the thread broke.
    pub(super) broken: Cell<usize>,
    /// How many times the thread's end was seen while it held something.
    pub(super) ends: Cell<u32>,
    pub(super) held: [Cell<Mine>; MOST],
    /// A cache of source locations that are on the board.
    pub(super) sites: [Cell<u64>; 32],
    /// The hashes of chains of held locks that were checked already.
    pub(super) chains: [[Cell<u64>; 2]; CHAINS],
    /// How many lock orders this thread was the first to make.
    pub(super) orders: Cell<u32>,
    /// For a wait for a condition: the condition's round (how many times all its waiters had been notified) when it
    /// began.
    pub(super) round: Cell<u32>,
    /// When the current wait began, in nanoseconds.
    pub(super) wait_began: Cell<u64>,
    pub(super) wait: Cell<Option<Wait>>,
}

const _: () = assert!(size_of::<Own>() <= BYTES);
const _: () = assert!(core::mem::offset_of!(Own, busy) < 64);

/// How many threads were checked so far.
static TASKS: AtomicU32 = AtomicU32::new(0);

/// Stands for a thread for which there was no room, and which is not checked.
const UNWATCHED: NonNull<Own> = NonNull::dangling();

each_thread! {
    /// Survives a fork, unlike the pointer in the thread record.
    static KNOWN: Cell<Option<NonNull<Own>>> = Cell::new(None);
}

/// The calling thread while it runs in the checker. Until this is dropped, its lock calls are not checked.
pub(super) struct Busy(&'static Own);

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
    /// The calling thread, unless it runs in the checker already, is about to end, or has no room.
    #[inline]
    pub(super) fn enter() -> Option<Busy> {
        let known = Me::current_or_none().checked();
        // SAFETY: `begin` stored the pointer, to memory that stays mapped until the thread ends.
        let own = match unsafe { (known as *const Self).as_ref() } {
            Some(own) => own,
            None => Self::begin()?,
        };
        own.become_busy()
    }

    /// As [`Self::enter`], but only for a thread that is known already.
    #[inline(always)]
    pub(super) fn enter_if_known() -> Option<Busy> {
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
    fn begin() -> Option<&'static Self> {
        settings::read();
        if settings::has(settings::OFF) {
            return None;
        }
        let me = Me::get().ok()?;
        if me.is_ending() {
            return None;
        }
        super::begin();
        // The steps below may lock something themselves, in an allocator for instance.
        let own = match KNOWN.with(Cell::get) {
            Some(own) if own == UNWATCHED => return None,
            Some(own) => own,
            None => {
                let own = sys::arena(BYTES).ok()?.cast();
                KNOWN.with(|known| known.set(Some(own)));
                own
            }
        };
        // SAFETY: zeroed memory, which is a valid `Own`, or memory that this thread has initialised.
        let own: &'static Self = unsafe { own.as_ref() };
        if own.place.get().is_some() && own.process.get() == thread::process_id() {
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
            own.stay_unwatched();
            return None;
        };
        own.process.set(thread::process_id());
        own.thread.set(me.tid());
        own.task.set(TASKS.fetch_add(1, Ordering::Relaxed) + 1);
        own.index.set(index as u32);
        own.place.set(Some(place));
        own.board.set(board);
        let priority = scheduling::own_priority().unwrap_or(0).into();
        waits::saw_priority(priority);
        place
            .record
            .begin(own.process.get(), me.tid(), priority, &thread::name());
        own.keep_private_ones();
        // SAFETY: the thread's data, which stays mapped until `end` has set 0.
        unsafe { me.set_checked(ptr::from_ref(own).addr()) };
        Some(own)
    }

    /// The thread is not checked for the rest of its life, since locks that it takes from now on are not recorded.
    fn stay_unwatched(&'static self) {
        KNOWN.with(|known| known.set(Some(UNWATCHED)));
        // The parent's `Own` may be in use further up the stack, if the fork happened in a signal handler.
        if self.place.get().is_none() {
            // SAFETY: no pointer to it is left.
            unsafe { sys::leave_arena(NonNull::from(self).cast(), BYTES) };
        }
    }

    /// After a fork: drops locks that are shared or robust, since the parent still holds these.
    fn keep_private_ones(&self) {
        let held: [Mine; MOST] = core::array::from_fn(|place| self.held[place].get());
        let count = self.count.replace(0);
        self.gaps.set(0);
        // `unseen` stays: a lock that found no room is still held, if it is private.
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
                self.push(Mine {
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
    pub(super) fn record(&self) -> &'static TaskRecord {
        &self.place().record
    }

    #[inline(always)]
    pub(super) fn place(&self) -> &'static Place {
        // SAFETY: `begin` sets the place before it returns an `Own`.
        unsafe { self.place.get().unwrap_unchecked() }
    }

    /// Applies a change to each published copy.
    #[inline(always)]
    pub(super) fn publish(&self, change: impl Fn(&TaskRecord)) {
        change(self.record());
        if Me::current_or_none().first_attachment().is_some() {
            self.publish_in_regions(change);
        }
    }

    #[inline(never)]
    fn publish_in_regions(&self, change: impl Fn(&TaskRecord)) {
        for attachment in Me::current_or_none().attachments() {
            let record = region::check_record(&attachment);
            // Relaxed: this thread wrote it.
            if record.thread.load(Ordering::Relaxed) != self.thread.get() {
                self.begin_copy(record);
            }
            change(record);
        }
    }

    /// The thread has become a task of a further region: publishes its state there, too.
    #[cold]
    fn begin_copy(&self, copy: &TaskRecord) {
        let priority = self.record().priority.load(Ordering::Relaxed);
        copy.begin(
            self.process.get(),
            self.thread.get(),
            priority,
            &thread::name(),
        );
        for (place, mine) in self.held().enumerate().take(HELD) {
            publish_at(copy, place, place + 1, &mine);
        }
    }

    /// All entries, empty ones included.
    pub(super) fn held(&self) -> impl DoubleEndedIterator<Item = Mine> + ExactSizeIterator + Clone {
        self.held[..self.count.get()].iter().map(Cell::get)
    }

    /// The locks that the thread holds.
    pub(super) fn locks(&self) -> impl DoubleEndedIterator<Item = Mine> + Clone {
        self.held().filter(|mine| mine.address != 0)
    }

    /// Whether it holds nothing.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.count.get() == 0
    }

    /// The entry of a lock that the thread holds; the latest one, if it holds it more than once.
    #[inline]
    pub(super) fn find(&self, address: usize) -> Option<(usize, Mine)> {
        let place = self.place_of(address)?;
        Some((place, self.held[place].get()))
    }

    /// The index of that entry. Most locks are released in reverse order, so the search begins at the end.
    #[inline(always)]
    pub(super) fn place_of(&self, address: usize) -> Option<usize> {
        let last = self.count.get().checked_sub(1)?;
        if self.held.get(last)?.get().address == address {
            return Some(last);
        }
        self.place_of_earlier(address)
    }

    #[inline(never)]
    fn place_of_earlier(&self, address: usize) -> Option<usize> {
        let held = &self.held[..self.count.get()];
        held.iter().rposition(|mine| mine.get().address == address)
    }

    /// The thread has taken a lock.
    #[inline]
    pub(super) fn push(&self, mine: Mine) {
        let place = self.count.get();
        if place == MOST {
            return self.push_into_gap(mine);
        }
        self.held[place].set(mine);
        self.count.set(place + 1);
        self.put(place, &mine);
    }

    #[cold]
    fn push_into_gap(&self, mine: Mine) {
        match self.held.iter().position(|place| place.get().address == 0) {
            Some(place) => {
                self.held[place].set(mine);
                self.gaps.set(self.gaps.get() - 1);
                self.put(place, &mine);
            }
            None => self.unseen.set(self.unseen.get() + 1),
        }
    }

    /// Publishes an entry.
    #[inline]
    fn put(&self, place: usize, mine: &Mine) {
        if place < HELD {
            publish_at(self.record(), place, self.count.get(), mine);
            self.put_in_regions(place);
        } else {
            self.put_more(place - HELD, mine);
        }
    }

    /// Publishes an entry in the regions, where other processes read it.
    #[inline(always)]
    pub(super) fn put_in_regions(&self, place: usize) {
        if Me::current_or_none().first_attachment().is_some() {
            self.put_in_each_region(place);
        }
    }

    #[inline(never)]
    fn put_in_each_region(&self, place: usize) {
        let mine = self.held[place].get();
        let count = self.count.get();
        self.publish_in_regions(|record| publish_at(record, place, count, &mine));
    }

    #[cold]
    fn put_more(&self, place: usize, mine: &Mine) {
        let more = &self.place().more[place];
        mine.write(more);
        let count = &self.place().more_count;
        count.store((self.count.get() - HELD) as u32, Ordering::Release);
    }

    /// The thread is about to release the lock of an entry.
    #[inline(always)]
    pub(super) fn pop(&self, place: usize) {
        // SAFETY: the cell is this thread's own, and nothing refers to its contents. (`Cell::set` would write the whole
        // entry.)
        unsafe { (*self.held[place].as_ptr()).address = 0 };
        let is_last = place + 1 == self.count.get() && self.gaps.get() == 0;
        let count = if is_last {
            place
        } else {
            self.pop_beside_gaps()
        };
        self.count.set(count);
        if place < HELD {
            self.publish(|record| record.pop(place, count));
        } else {
            self.pop_more(place - HELD);
        }
    }

    /// An entry was emptied. Returns how many entries are in use without it.
    #[inline(never)]
    fn pop_beside_gaps(&self) -> usize {
        let held = &self.held[..self.count.get()];
        let last = held.iter().rposition(|mine| mine.get().address != 0);
        let count = last.map_or(0, |last| last + 1);
        let gaps = held[..count].iter().filter(|mine| mine.get().address == 0);
        self.gaps.set(gaps.count() as u32);
        count
    }

    #[cold]
    fn pop_more(&self, place: usize) {
        let board = self.place();
        board.more[place].lock.store(0, Ordering::Relaxed);
        let left = self.count.get().saturating_sub(HELD) as u32;
        board.more_count.store(left, Ordering::Relaxed);
    }

    /// A lock that a fork handler took before the fork may be reinitialised in the child, where it cannot be released
    /// by the rules: the parent's thread holds it. Forgets such a lock.
    pub(super) fn leave_to_parent(&self, address: usize) {
        if let Some((place, mine)) = self.find(address)
            && mine.what & FORKED != 0
        {
            self.pop(place);
        }
    }

    /// Changes the depth of a recursive lock, or the place where it was taken.
    #[inline(never)]
    pub(super) fn change(&self, place: usize, change: impl FnOnce(&mut Mine)) {
        let mut mine = self.held[place].get();
        change(&mut mine);
        self.held[place].set(mine);
        self.put(place, &mine);
    }

    /// Publishes that the thread is about to wait.
    pub(super) fn begin_wait(&self, lock: Lock, what: u32, site: Site) {
        self.begin_wait_with(lock, what, site, Lock::new(0, Kind::Unknown));
    }

    /// As [`Self::begin_wait`], for a condition: the task will need the mutex, too.
    pub(super) fn begin_wait_with(&self, lock: Lock, what: u32, site: Site, mutex: Lock) {
        self.say_what_is_held();
        let now = clock::monotonic();
        self.wait_began.set(now);
        self.wanted.set(lock.address());
        let (address, also) = (lock.address() as u64, mutex.address() as u64);
        self.publish(|record| record.wanted.begin(address, site.raw(), now, what, also));
    }

    /// Names this thread as the holder of its exclusive locks on the board. A task that searches the waits finds
    /// holders there, so this comes before the wait is visible (a Release, in [`Wanted::begin`](crate::hook::Wanted)).
    fn say_what_is_held(&self) {
        for mine in self.locks().filter(|mine| !mine.reads()) {
            if let Some(entry) = mine.entry {
                entry.holder.store(self.number(), Ordering::Relaxed);
            }
        }
    }

    /// Publishes that it no longer waits.
    #[inline]
    pub(super) fn end_wait(&self) {
        if self.wanted.replace(0) != 0 {
            self.publish(|record| record.wanted.end());
        }
    }

    /// The thread leaves its regions: only this process still sees what it holds.
    pub(super) fn end_copies(&self) {
        for attachment in Me::current_or_none().attachments() {
            region::check_record(&attachment).end();
        }
    }

    /// The thread ends: its state is no longer published.
    pub(super) fn end(busy: Busy) {
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
        unsafe { sys::leave_arena(NonNull::from(own).cast(), BYTES) };
    }

    /// The process and thread IDs.
    pub(super) fn identity(&self) -> (u32, u32) {
        (self.process.get(), self.thread.get())
    }
}

#[inline]
fn publish_at(record: &TaskRecord, place: usize, count: usize, mine: &Mine) {
    record.push(place, count, |entry| mine.write(entry));
}

impl Mine {
    /// The entry of a lock that was taken just now.
    #[inline]
    pub(super) fn new(
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
    fn write(&self, entry: &HeldLock) {
        entry.write(
            self.address as u64,
            self.site.raw(),
            self.since,
            self.what | (self.depth.min(u32::MAX / DEEPER) * DEEPER),
            self.node,
        );
    }
}
