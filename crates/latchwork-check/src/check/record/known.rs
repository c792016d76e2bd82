//! The checker's records of locks: kind, place of initialisation, class and name.

use super::order_graph::graph::{GRAPH, node_of};
use crate::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::check::record::board::{self, Board};
use crate::check::record::bounded::Text;
use crate::check::record::condition;
use crate::check::record::layout::{ENDED, Entry, GONE, MADE, NO_TASK, REMADE};
use crate::check::record::own::Own;
use crate::check::record::sites::{enter_text, key_of};
use crate::check::record::tag::Tag;
use crate::hook::record::pack;
use crate::hook::{Kind, Lock, Mode, Site};
use crate::sys::introspect;
use core::ops::Range;

/// The entry of a lock; enters the lock first if it has none. `None` if there is no room. Calls `was_destroyed` first
/// if the object was destroyed ([`is_ended`]), and is of a kind that only a call can initialise again.
#[inline]
pub(crate) fn know(
    own: &Own,
    lock: Lock,
    site: Site,
    was_destroyed: impl FnOnce(),
) -> Option<&'static Entry> {
    own.know_site(site);
    let board = board::board()?;
    match board.lock(lock.address()) {
        // Relaxed: the word is changed together with the rest of the entry.
        Some(entry) if entry.what.load(Ordering::Relaxed) & GONE == 0 => Some(entry),
        entry => {
            let is_remade_by_call =
                matches!(lock.kind, Kind::Spin | Kind::Barrier | Kind::Semaphore);
            if is_remade_by_call && entry.is_some_and(is_ended) {
                was_destroyed();
            }
            enter(board, lock, None, site, 0)
        }
    }
}

/// A lock was initialised by the interface.
pub(crate) fn made(own: &Own, lock: Lock, name: Option<&str>, site: Site) {
    own.know_site(site);
    if let Some(board) = board::board() {
        enter(board, lock, name, site, MADE);
    }
}

#[cold]
fn enter(
    board: Board,
    lock: Lock,
    name: Option<&str>,
    site: Site,
    marks: u32,
) -> Option<&'static Entry> {
    // Each use of a lock without room comes here, so nothing more is done for it.
    if !board.has_room(lock.address()) {
        return None;
    }
    note_page(lock.address());
    if let Some(tag) = Tag::of(lock).filter(|tag| tag.is_live()) {
        return enter_tagged(board, lock, tag);
    }
    // The initialisation of this lock was not seen. A static lock is identified by its own place; a lock on the heap,
    // which was zeroed there, by the place of its first use. This is looked up without the board's lock, since it reads
    // files.
    let mut symbol = Text::<120>::EMPTY;
    // The end of a thread is neither static nor on the heap.
    let is_static = name.is_none()
        && marks & MADE == 0
        && lock.kind != Kind::Join
        && is_static(lock.address(), &mut symbol);
    let name = if is_static { Some(&*symbol) } else { name };
    let is_new = marks & MADE != 0;
    board::alone(|_| put(board, lock, name, site, marks, is_new))
}

/// Whether a lock lies in a module; writes the module's name and the offset. A page lies in a module as a whole or not
/// at all, so of many locks that lie side by side elsewhere only the first of each page is looked up.
fn is_static(address: usize, to: &mut impl core::fmt::Write) -> bool {
    /// The page of the last lock that lay in no module.
    static ELSEWHERE: AtomicUsize = AtomicUsize::new(0);
    let page = address / PAGE;
    // Relaxed: the page number is complete by itself.
    if ELSEWHERE.load(Ordering::Relaxed) == page {
        return false;
    }
    let is_static = introspect::write_static(address, to).is_some();
    if !is_static {
        ELSEWHERE.store(page, Ordering::Relaxed);
    }
    is_static
}

/// Publishes the place of initialisation that a lock with a tag carries, so that other processes can read it.
pub(crate) fn enter_place(tag: &Tag) -> Site {
    let site = tag.site();
    let mut place = Text::<120>::EMPTY;
    let _ = tag.write_place(&mut place);
    enter_text(site.raw(), format_args!("{place}"));
    site
}

/// Enters a lock whose tag contains its name and its place of initialisation; enters it again, if the tag is settled again.
pub(crate) fn enter_tagged(board: Board, lock: Lock, tag: &Tag) -> Option<&'static Entry> {
    let site = enter_place(tag);
    note_page(lock.address());
    board::alone(|_| put(board, lock, tag.name(), site, MADE, tag.settle()))
}

/// Enters a lock; if it has an entry, describes that again if the lock is new, or the one before it is gone. Under the
/// lock.
fn put(
    board: Board,
    lock: Lock,
    name: Option<&str>,
    site: Site,
    marks: u32,
    is_new: bool,
) -> Option<&'static Entry> {
    let describe = |entry: &Entry| {
        let key = name.map_or(0, key_of);
        if let Some(name) = name {
            board.enter_text(key, format_args!("{name}"));
        }
        settle(entry, lock, key, site, marks);
    };
    let mut was_known = true;
    let entry = board.enter_lock(lock.address(), |entry| {
        was_known = false;
        describe(entry);
    })?;
    if was_known && (is_new || entry.what.load(Ordering::Relaxed) & GONE != 0) {
        describe(entry);
    }
    Some(entry)
}

/// Another lock is in the place of a lock that is not held. If that lock was named by its place, this one is, too.
/// Under the lock.
pub(crate) fn reinitialise(entry: &Entry, lock: Lock, site: Site) {
    let name = entry.name.load(Ordering::Relaxed);
    settle(entry, lock, name, site, REMADE);
}

/// Stores what identifies a lock; `name` is a key, or 0. Under the lock.
fn settle(entry: &Entry, lock: Lock, name: u64, site: Site, marks: u32) {
    let class = if name == 0 { site.raw() } else { name };
    entry.name.store(name, Ordering::Relaxed);
    let before = node_of(entry);
    GRAPH.retire(before);
    entry.task.store(NO_TASK, Ordering::Relaxed);
    let node = lock.kind.has_owner().then(|| GRAPH.node_for(class, before));
    entry.node.store(node.unwrap_or(0), Ordering::Relaxed);
    entry.site.store(site.raw(), Ordering::Relaxed);
    entry.holder.store(0, Ordering::Relaxed);
    condition::settle(entry, lock.kind);
    entry.generation.fetch_add(1, Ordering::Relaxed);
    let what = pack(lock, Mode::Exclusive) | marks;
    entry.what.store(what, Ordering::Relaxed);
}

/// A lock was destroyed by its interface.
pub(crate) fn ended(entry: &Entry) {
    entry.what.fetch_or(ENDED, Ordering::Relaxed);
    gone(entry);
}

/// Whether a lock was destroyed, and is still. In memory that processes share, another process may have initialised it
/// again, which this process does not see: there the end is forgotten. (That is asked here, and not when a lock is
/// destroyed, since it reads the list of mappings.)
#[cold]
pub(crate) fn is_ended(entry: &Entry) -> bool {
    if entry.what.load(Ordering::Relaxed) & ENDED == 0 {
        return false;
    }
    let is_shared = introspect::is_shared_memory(entry.address.load(Ordering::Relaxed));
    if is_shared {
        forget_end(entry);
    }
    !is_shared
}

/// The memory of a destroyed lock no longer belongs to a lock. Returns false if the lock was not destroyed.
pub(crate) fn forget_end(entry: &Entry) -> bool {
    entry.what.fetch_and(!ENDED, Ordering::Relaxed) & ENDED != 0
}

/// A lock no longer exists.
pub(crate) fn gone(entry: &Entry) {
    // With no task recorded, a thread that takes it again takes the slow path.
    entry.task.store(NO_TASK, Ordering::Relaxed);
    entry.what.fetch_or(GONE, Ordering::Relaxed);
    GRAPH.retire(entry.node.swap(0, Ordering::Relaxed));
}

/// Memory in which there was a lock at some time: a bit for each 64 bytes of a page, by the page's hash. Most blocks
/// that are freed contain no lock, and a look-up in the table costs more than the free itself.
static PAGES: [AtomicU64; 1 << 15] = [const { AtomicU64::new(0) }; 1 << 15];

const PAGE: usize = 4096;
const GRAIN: usize = PAGE / u64::BITS as usize;

#[inline]
fn grains_of(page: usize) -> &'static AtomicU64 {
    let hash = (page / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize);
    &PAGES[hash >> (usize::BITS - PAGES.len().ilog2())]
}

fn note_page(address: usize) {
    let grains = grains_of(address);
    let grain = 1 << (address % PAGE / GRAIN);
    // Relaxed: a thread that frees this memory has synchronised with the one that used the lock in it.
    if grains.load(Ordering::Relaxed) & grain == 0 {
        grains.fetch_or(grain, Ordering::Relaxed);
    }
}

/// For ranges of at least this size the whole table is searched, instead of each address.
const LARGE: usize = 256 * PAGE;

/// The grains of a page that lie in a small range, as bits.
#[inline]
fn grains_in(range: &Range<usize>, page: usize) -> u64 {
    let first = range.start.max(page) - page;
    let last = (range.end.min(page + PAGE) - page).div_ceil(GRAIN);
    let after = u64::MAX.checked_shl(last as u32).unwrap_or(0);
    grains_of(page).load(Ordering::Relaxed) & (u64::MAX << (first / GRAIN)) & !after
}

fn pages(range: &Range<usize>) -> impl Iterator<Item = usize> + use<> {
    (range.start & !(PAGE - 1)..range.end).step_by(PAGE)
}

/// Whether there may be a lock in a range of memory.
#[inline]
#[must_use]
#[doc(hidden)]
pub fn may_be_in(range: &Range<usize>) -> bool {
    let first = range.start % PAGE;
    let last = first + range.len().saturating_sub(1);
    // Most blocks of an allocator lie in one page.
    if last < PAGE {
        let grains = grains_of(range.start).load(Ordering::Relaxed);
        return grains << (63 - last / GRAIN) >> (63 - last / GRAIN) >> (first / GRAIN) != 0;
    }
    range.len() > LARGE || pages(range).any(|page| grains_in(range, page) != 0)
}

/// The locks in a range of memory.
pub(crate) fn in_range(range: Range<usize>) -> impl Iterator<Item = &'static Entry> {
    let board = board::board();
    let (small, all) = if range.len() > LARGE {
        (0..0, board)
    } else {
        (range.clone(), None)
    };
    let addresses = pages(&small).flat_map(move |page| {
        let range = small.clone();
        let grains = grains_in(&range, page);
        let is_marked = move |grain: &usize| grains >> grain & 1 != 0;
        let marked = (0..u64::BITS as usize).filter(is_marked);
        marked.flat_map(move |grain| {
            let grain = page + grain * GRAIN;
            let (first, end) = (grain.max(range.start), (grain + GRAIN).min(range.end));
            (first.next_multiple_of(4)..end).step_by(4)
        })
    });
    let in_grains = addresses.filter_map(move |address| board?.lock(address));
    let in_table = all.into_iter().flat_map(Board::locks).filter(move |entry| {
        let address = entry.address.load(Ordering::Relaxed) as usize;
        range.contains(&address)
    });
    let is_there = |entry: &&Entry| entry.what.load(Ordering::Relaxed) & (GONE | ENDED) != GONE;
    in_grains.chain(in_table).filter(is_there)
}
