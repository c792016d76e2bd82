//! What the calling thread knows of itself: the locks that it holds, and the orders that it has seen.
//!
//! The truth lies in memory of the thread's own, which nobody else reads; each change is published at once, on
//! the thread's [`Place`] of the board, and in its slot of each region that it is a task of.
//!
//! *Fork:* the child's thread finds this copy as it was, and that it is another process's. It keeps what it
//! holds of locks that are the child's now (private, not robust), and begins to publish anew.
//!
//! *Signals:* a handler that locks while the checker is at work in the same thread is not watched
//! ([`Own::enter`]).
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

/// In [`Mine::what`]: it was held when the process was forked, by a thread that ends there.
const FORKED: u32 = 1 << 19;

/// Locks of one thread that are checked at a time.
pub(super) const MOST: usize = HELD + MORE;

/// Chains of held locks that a thread keeps, two by two: the latest that go by one place.
pub(super) const CHAINS: usize = 256;

/// Bytes of an [`Own`]: two pages.
const BYTES: usize = 8192;

/// A lock that the thread holds.
#[derive(Clone, Copy)]
pub(super) struct Mine {
    pub(super) address: usize,
    /// As in the record, but for the depth.
    pub(super) what: u32,
    /// How often it is held, beyond once.
    pub(super) depth: u32,
    /// Its node of the order graph.
    pub(super) node: u32,
    pub(super) site: Site,
    pub(super) since: u64,
    /// What the board knows of it.
    pub(super) entry: Option<&'static Entry>,
}

impl Mine {
    /// What it is, and how it is held.
    #[inline]
    pub(super) fn lock(&self) -> (Lock, Mode) {
        unpack(self.address as u64, self.what)
    }

    /// Whether it was held when the process was forked, and the parent's thread holds its own still.
    pub(super) fn is_from_before_fork(&self) -> bool {
        self.what & FORKED != 0
    }

    /// Whether it is held as one of several readers.
    #[inline]
    pub(super) fn reads(&self) -> bool {
        self.what & READS != 0
    }
}

/// See the head of this file. Zero is nobody's.
///
/// What each call for a lock looks at comes first, in one line; then what most write.
#[repr(C, align(64))]
pub(super) struct Own {
    place: Cell<Option<&'static Place>>,
    /// That place's.
    pub(super) board: Cell<Option<Board>>,
    /// Entries of `held` in use, empty ones among them included; the last one is not empty.
    pub(super) count: Cell<usize>,
    /// What the thread waits for; 0: nothing.
    pub(super) wanted: Cell<usize>,
    pub(super) index: Cell<u32>,
    pub(super) thread: Cell<u32>,
    /// The thread by a number that no other one of this process gets, nor had its parent's.
    pub(super) task: Cell<u32>,
    process: Cell<u32>,
    /// Entries among those of `held` that are empty: without any a release need not look for them.
    gaps: Cell<u32>,
    busy: Cell<bool>,
    /// Locks that found no room in `held`.
    pub(super) unseen: Cell<u32>,
    /// The object of the latest rule of use that the thread has broken.
    pub(super) broken: Cell<usize>,
    /// How often the thread was seen to end, with something held.
    pub(super) ends: Cell<u32>,
    pub(super) held: [Cell<Mine>; MOST],
    /// Places in sources that stand on the board.
    pub(super) sites: [Cell<u64>; 32],
    /// Chains of held locks that are known to be in order, by hash.
    pub(super) chains: [[Cell<u64>; 2]; CHAINS],
    /// Orders of locks that the thread was the first to make.
    pub(super) orders: Cell<u32>,
    /// Of a wait for a condition: how often all its waiters had been notified when it began.
    pub(super) round: Cell<u32>,
    /// When the wait began that is under way, to the nanosecond.
    pub(super) wait_began: Cell<u64>,
    pub(super) wait: Cell<Option<Wait>>,
}

const _: () = assert!(size_of::<Own>() <= BYTES);
const _: () = assert!(core::mem::offset_of!(Own, busy) < 64);

/// Threads that were watched so far.
static TASKS: AtomicU32 = AtomicU32::new(0);

/// Stands for a thread for which there was no room.
const UNWATCHED: NonNull<Own> = NonNull::dangling();

each_thread! {
    /// Survives a fork, unlike what leads to it otherwise.
    static KNOWN: Cell<Option<NonNull<Own>>> = Cell::new(None);
}

/// The calling thread at work in the checker; until it is dropped the thread is not watched.
pub(super) struct Busy(&'static Own);

impl Drop for Busy {
    #[inline]
    fn drop(&mut self) {
        // A signal handler of this thread sees all that was done, or that something is being done.
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
    /// The calling thread, unless it is at work here already, about to end, or cannot be known.
    #[inline]
    pub(super) fn enter() -> Option<Busy> {
        let known = Me::whoever().checked();
        // SAFETY: set by `begin`, to memory that stays until the thread ends.
        let own = match unsafe { (known as *const Self).as_ref() } {
            Some(own) => own,
            None => Self::begin()?,
        };
        own.become_busy()
    }

    /// As [`Self::enter`], of a thread that is known already.
    #[inline(always)]
    pub(super) fn enter_if_known() -> Option<Busy> {
        let known = Me::whoever().checked();
        // SAFETY: as above.
        let own: &'static Self = unsafe { (known as *const Self).as_ref() }?;
        own.become_busy()
    }

    #[inline(always)]
    fn become_busy(&'static self) -> Option<Busy> {
        if self.busy.get() {
            return None;
        }
        self.busy.set(true);
        // As in `Busy::drop`.
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
        // What follows may itself lock, in an allocator for instance.
        let own = match KNOWN.with(Cell::get) {
            Some(own) if own == UNWATCHED => return None,
            Some(own) => own,
            None => {
                let own = sys::arena(BYTES).ok()?.cast();
                KNOWN.with(|known| known.set(Some(own)));
                own
            }
        };
        // SAFETY: zeroed memory, or what this thread has made of it; see `Own`.
        let own: &'static Self = unsafe { own.as_ref() };
        if own.place.get().is_some() && own.process.get() == thread::process_id() {
            // The record was wiped by something else than a fork of ours.
            me.set_checked(ptr::from_ref(own).addr());
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
        me.set_checked(ptr::from_ref(own).addr());
        Some(own)
    }

    /// For the rest of the thread's life: what it takes from now on is not known later.
    fn stay_unwatched(&'static self) {
        KNOWN.with(|known| known.set(Some(UNWATCHED)));
        // A parent's may be in use further up the stack, if it was forked in a signal handler.
        if self.place.get().is_none() {
            // SAFETY: nothing leads to it any more.
            unsafe { sys::leave_arena(NonNull::from(self).cast(), BYTES) };
        }
    }

    /// After a fork: what is shared, or robust, is the parent's still.
    fn keep_private_ones(&self) {
        let held: [Mine; MOST] = core::array::from_fn(|place| self.held[place].get());
        let count = self.count.replace(0);
        self.gaps.set(0);
        // `unseen` stays: what found no room is held still, if it is private.
        self.wanted.set(0);
        self.wait.set(None);
        for mine in &held[..count] {
            // The parent's board is not this process's.
            let entry = board::board().and_then(|board| board.lock(mine.address));
            // What it was made as says more than what it was taken as.
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
        // SAFETY: set before anybody gets an `Own`.
        unsafe { self.place.get().unwrap_unchecked() }
    }

    /// Does something to each published copy.
    #[inline(always)]
    pub(super) fn publish(&self, change: impl Fn(&TaskRecord)) {
        change(self.record());
        if Me::whoever().first_attachment().is_some() {
            self.publish_in_regions(change);
        }
    }

    #[inline(never)]
    fn publish_in_regions(&self, change: impl Fn(&TaskRecord)) {
        for attachment in Me::whoever().attachments() {
            let record = region::check_record(&attachment);
            // Relaxed: written by this thread.
            if record.thread.load(Ordering::Relaxed) != self.thread.get() {
                self.begin_copy(record);
            }
            change(record);
        }
    }

    /// The thread has become a task of one more region: what it holds is published there, too.
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

    /// What the thread holds.
    pub(super) fn locks(&self) -> impl DoubleEndedIterator<Item = Mine> + Clone {
        self.held().filter(|mine| mine.address != 0)
    }

    /// Whether it holds nothing.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.count.get() == 0
    }

    /// Where a lock stands that the thread holds; the latest, if it holds it more than once.
    #[inline]
    pub(super) fn find(&self, address: usize) -> Option<(usize, Mine)> {
        let place = self.place_of(address)?;
        Some((place, self.held[place].get()))
    }

    /// The same, without what is known of it. Most are released in the reverse order.
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

    /// Publishes an entry where others than this process read it.
    #[inline(always)]
    pub(super) fn put_in_regions(&self, place: usize) {
        if Me::whoever().first_attachment().is_some() {
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

    /// The thread is about to release what stands at a place.
    #[inline(always)]
    pub(super) fn pop(&self, place: usize) {
        // SAFETY: this thread's own, and nobody refers to it. (To set all of it would be to write all of it.)
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

    /// An entry was emptied. How many are in use without it.
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

    /// What a fork handler took before the fork may be made anew in the child, where it cannot be released by rule: it
    /// is the parent's thread that holds it.
    pub(super) fn leave_to_parent(&self, address: usize) {
        if let Some((place, mine)) = self.find(address)
            && mine.what & FORKED != 0
        {
            self.pop(place);
        }
    }

    /// Changes how often a recursive lock is held, or where it was taken.
    #[inline(never)]
    pub(super) fn change(&self, place: usize, change: impl FnOnce(&mut Mine)) {
        let mut mine = self.held[place].get();
        change(&mut mine);
        self.held[place].set(mine);
        self.put(place, &mine);
    }

    /// Says that the thread is about to wait.
    pub(super) fn begin_wait(&self, lock: Lock, what: u32, site: Site) {
        self.begin_wait_with(lock, what, site, Lock::new(0, Kind::Unknown));
    }

    /// As above, for a condition: it will need the mutex, too.
    pub(super) fn begin_wait_with(&self, lock: Lock, what: u32, site: Site, mutex: Lock) {
        self.say_what_is_held();
        let now = clock::monotonic();
        self.wait_began.set(now);
        self.wanted.set(lock.address);
        let (address, also) = (lock.address as u64, mutex.address as u64);
        self.publish(|record| record.wanted.begin(address, site.raw(), now, what, also));
    }

    /// Who follows what waits for what finds the holders on the board: before the wait is seen there (a Release, in
    /// [`Wanted::begin`](crate::hook::Wanted)), the thread says that it is the one, of what it holds alone.
    fn say_what_is_held(&self) {
        for mine in self.locks().filter(|mine| !mine.reads()) {
            if let Some(entry) = mine.entry {
                entry.holder.store(self.number(), Ordering::Relaxed);
            }
        }
    }

    /// Says that it waits no more.
    #[inline]
    pub(super) fn end_wait(&self) {
        if self.wanted.replace(0) != 0 {
            self.publish(|record| record.wanted.end());
        }
    }

    /// The thread leaves its regions: only its process goes on to see what it holds.
    pub(super) fn end_copies(&self) {
        for attachment in Me::whoever().attachments() {
            region::check_record(&attachment).end();
        }
    }

    /// The thread ends: nothing of it is told any more.
    pub(super) fn end(busy: Busy) {
        let own = busy.0;
        own.publish(TaskRecord::end);
        let place = own.place();
        place.more_count.store(0, Ordering::Relaxed);
        // Release: pairs with the claim of the next one.
        place.taken.store(0, Ordering::Release);
        Me::whoever().set_checked(0);
        KNOWN.with(|known| known.set(None));
        core::mem::forget(busy);
        // SAFETY: nothing leads to it any more.
        unsafe { sys::leave_arena(NonNull::from(own).cast(), BYTES) };
    }

    /// Which thread of which process this is.
    pub(super) fn identity(&self) -> (u32, u32) {
        (self.process.get(), self.thread.get())
    }
}

#[inline]
fn publish_at(record: &TaskRecord, place: usize, count: usize, mine: &Mine) {
    record.push(place, count, |entry| mine.write(entry));
}

impl Mine {
    /// One that was taken just now.
    #[inline]
    pub(super) fn new(
        lock: Lock,
        mode: Mode,
        site: Site,
        node: u32,
        entry: Option<&'static Entry>,
    ) -> Self {
        Self {
            address: lock.address,
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
