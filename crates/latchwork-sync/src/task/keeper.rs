//! The keeper: what a thread holds when it ends in good order stays its process's.
//!
//! *Why?* A guard lends a reference to its data, for as long as the lock lives. A guard that is leaked (`Box::leak`,
//! `mem::forget`, all safe) never ends, and the reference may be another thread's by then. The kernel would hand the
//! lock on when the thread ends: the next owner would change, or free, what the reference shows. Only the death of the
//! process ends all references. So at the end of a thread ([`hand_over`]) its locks pass to the *keeper*, a thread that
//! sleeps for ever. The kernel hands them on when the keeper dies, which is when the process does. The same holds for the
//! slot of a region whose task has messages in flight, reservations, or the end of a ring.
//!
//! | what a thread leaves on its list ([`AtEnd`]) | passes to |
//! | --- | --- |
//! | a lock, a seat of a reader | the keeper (`adoption.rs` argues for each step) |
//! | a lock with inheritance: the kernel knows its owner | nobody: it is not recoverable |
//! | life-word and tail of a slot that lends references, or whose region locks do | the keeper: the task lives on, as one that does nothing |
//! | libc's own, those of the C interface, other slots | the next owner, which gets the owner's death: POSIX's rule |
//!
//! *A thread that really dies alone*, by the bare system call `exit`, runs no code of this library. The kernel hands on
//! what it held, at once. (Only unsafe code can do that.)
//!
//! They pass in the order of every list: life-words, locks, tails. While locks follow their slot's life-word, a kill
//! may mark a lock before the life-word; see `region/sweep.rs`.
//!
//! *No keeper* (no memory, a limit on threads), or more locks than the kernel walks: the locks are *lost*. Their state
//! becomes not recoverable, whereupon the kernel hands them on to tasks that get no data. The word of a slot then names a
//! thread that does not exist, for ever: its cells and its place in the table are lost until the region is deleted.
//!
//! *Fork.* The page of the keeper is wiped in the child, which holds nothing, and makes a keeper of its own when it
//! needs one. *Cost:* none for a thread that holds nothing at its end, but a walk of its list. The first hand-over
//! makes a thread with a stack of 256 KiB, of which it touches two pages; each lock costs two context switches.
#![allow(unsafe_code)]

use crate::adoption::{self, Desk};
use crate::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::sys::futex::{self, Sharing};
use crate::sys::futex_bits::{NO_THREAD, WAITERS};
use crate::sys::robust_list::{self, AtEnd, Head, KERNEL_LIMIT, Node, OwnHead};
use crate::sys::robust_state::NOT_RECOVERABLE;
use crate::sys::wiped::Wiped;
use crate::sys::{lasting_thread, process, signals, thread};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;

/// The nodes that one keeper takes: some entries that the kernel walks stay free, as in each thread.
const MOST: u32 = KERNEL_LIMIT as u32 - 128;

/// The ways in which the keeper is concerned.
const CONCERNED: [AtEnd; 4] = [AtEnd::Keep, AtEnd::Lose, AtEnd::KeepLife, AtEnd::KeepTail];

/// The keeper as givers see it, in memory that is wiped on fork. All zero: there is no keeper.
#[repr(C)]
struct Page {
    /// The lock of the givers: 1 while one is at work.
    lock: AtomicU32,
    /// The keeper's ID; 0, or [`REFUSED`].
    keeper: AtomicU32,
    desk: Desk,
    /// The request, which the desk orders.
    node: AtomicPtr<Node>,
    place: AtomicU32,
    giver: AtomicU32,
    /// The number of nodes on the keeper's list. For givers, under the lock.
    count: AtomicU32,
}

/// The thread was made, and cannot be a keeper.
const REFUSED: u32 = u32::MAX;

// SAFETY: zeros are a page; its fields need no drop.
static PAGE: Wiped<Page> = unsafe { Wiped::new() };

/// Whether something on a thread's list concerns the keeper.
pub(super) fn is_concerned(head: &Head) -> bool {
    head.has_any(&CONCERNED)
}

/// Whether a lock within a range of addresses, on the calling thread's list, lends references to its data.
pub(super) fn lends_within(head: &Head, range: &core::ops::Range<usize>) -> bool {
    // SAFETY: the nodes are on the calling thread's list; the references end here.
    unsafe { head.nodes(AtEnd::Keep) }.any(|node| range.contains(&ptr::from_ref(node).addr()))
}

/// Hands over what the calling thread, `tid`, has on its list, which ends at `end` for locks.
///
/// # Safety
/// The thread ends in good order: no code of it uses a lock that it holds from now on.
pub(super) unsafe fn hand_over(head: &Head, tid: u32, end: usize) {
    let signals = signals::block_all();
    // SAFETY: a lock that is held stays where it is, here and below.
    unsafe { head.nodes(AtEnd::Lose) }.for_each(lose);
    let needs_keeper = head.has_any(&CONCERNED[2..]) || head.has_any(&CONCERNED[..1]);
    let session = if needs_keeper { Session::begin() } else { None };
    for at_end in [AtEnd::KeepLife, AtEnd::Keep, AtEnd::KeepTail] {
        // SAFETY: as above; the iterator ends before the list changes.
        while let Some(node) = unsafe { head.nodes(at_end) }.next() {
            let unlink = || {
                // SAFETY: the node is on the list of the calling thread, and announced.
                unsafe {
                    match at_end {
                        AtEnd::KeepTail => head.unlink_tail(node),
                        _ => drop(head.unlink(node, end)),
                    }
                }
            };
            let has_room = |to: &&Session| to.0.count.load(Ordering::Relaxed) < MOST;
            if let Some(session) = session.as_ref().filter(has_room) {
                adoption::give(head, node, unlink, || session.ask(node, at_end, tid));
            } else if at_end == AtEnd::Keep {
                // They stay on the list, and all that follow are lost, too.
                // SAFETY: as above.
                unsafe { head.nodes(AtEnd::Keep) }.for_each(lose);
                break;
            } else {
                let strand = || node.word.store(NO_THREAD | WAITERS, Ordering::Relaxed);
                adoption::give(head, node, unlink, strand);
            }
        }
    }
    drop(session);
    signals::restore(signals);
}

/// Runs `operation` while no node is on its way from one thread's list to another's. `None` if that cannot be had.
pub fn while_nothing_is_handed_over<R>(operation: impl FnOnce() -> R) -> Option<R> {
    let _session = Session::wait_for_others()?;
    Some(operation())
}

/// Makes a lock that the calling thread holds useless for the next owner, whoever hands it on.
fn lose(node: &Node) {
    // Relaxed: the kernel orders it before the hand-over.
    node.state.store(NOT_RECOVERABLE, Ordering::Relaxed);
}

/// The right to make requests, of a keeper that may have to be made.
struct Session(&'static Page);

impl Session {
    /// Begins to make requests; `None` if there can be no keeper.
    fn begin() -> Option<Self> {
        let session = Self::wait_for_others()?;
        (session.is_ready() || session.start()).then_some(session)
    }

    fn wait_for_others() -> Option<Self> {
        let page = PAGE.get().ok()?;
        // Acquire: pairs with the Release in `drop`.
        while page.lock.swap(1, Ordering::Acquire) != 0 {
            futex::wait(&page.lock, 1, Sharing::Private, None);
        }
        Some(Self(page))
    }

    fn is_ready(&self) -> bool {
        // Acquire: pairs with the Release in `keep`.
        ![0, REFUSED].contains(&self.0.keeper.load(Ordering::Acquire))
    }

    /// Makes a keeper.
    fn start(&self) -> bool {
        let Self(page) = self;
        page.keeper.store(0, Ordering::Relaxed);
        // SAFETY: `keep` runs for ever, on a page that stays.
        let made = unsafe { lasting_thread::start(keep, ptr::from_ref(*page).cast_mut().cast()) };
        while made && page.keeper.load(Ordering::Acquire) == 0 {
            futex::wait(&page.keeper, 0, Sharing::Private, None);
        }
        self.is_ready()
    }

    /// Has the keeper take a node, which is unlinked and announced.
    fn ask(&self, node: &Node, place: AtEnd, giver: u32) {
        let Self(page) = self;
        // Relaxed: the desk orders them.
        page.count.fetch_add(1, Ordering::Relaxed);
        page.node
            .store(ptr::from_ref(node).cast_mut(), Ordering::Relaxed);
        page.place.store(place as u32, Ordering::Relaxed);
        page.giver.store(giver, Ordering::Relaxed);
        page.desk.ask();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `begin`.
        self.0.lock.store(0, Ordering::Release);
        futex::wake(&raw const self.0.lock, 1, Sharing::Private);
    }
}

/// The keeper.
extern "C" fn keep(page: *mut c_void) -> *mut c_void {
    // SAFETY: `start` passes the page, which is never unmapped.
    let page = unsafe { &*page.cast::<Page>() };
    process::set_name(b"latchwork-keep");
    // SAFETY: zeros are a valid head.
    let mut own = unsafe { MaybeUninit::<OwnHead>::zeroed().assume_init() };
    // SAFETY: `own` lives as long as this thread, which never leaves this function once it is a keeper. (If the function
    // fails, `own` is not registered.)
    let Ok(head) = (unsafe { robust_list::find(None, &mut own) }) else {
        page.keeper.store(REFUSED, Ordering::Release);
        futex::wake(&raw const page.keeper, 1, Sharing::Private);
        return ptr::null_mut();
    };
    // SAFETY: the list of this thread, which lives as long as the thread does.
    let head = unsafe { head.as_ref() };
    let me = thread::thread_id();
    // Behind the last life-word; at the first tail.
    let (mut anchor, mut end) = (head.front(), head.front());
    // Release: pairs with the Acquire in `is_ready`.
    page.keeper.store(me, Ordering::Release);
    futex::wake(&raw const page.keeper, 1, Sharing::Private);
    loop {
        page.desk.wait_for_request();
        // SAFETY: the giver holds the node, which stays where it is, and waits for the answer.
        let node = unsafe { &*page.node.load(Ordering::Relaxed) };
        let place = page.place.load(Ordering::Relaxed);
        let link = || {
            // SAFETY: the word names this thread, the node is announced, and on no list; it stays where it is until this
            // thread ends. The anchor is on this thread's list, and no tail.
            unsafe {
                if place == AtEnd::KeepTail as u32 {
                    head.link_tail(node);
                    if end == head.front() {
                        end = node.link();
                    }
                } else if place == AtEnd::KeepLife as u32 {
                    head.link(node, 0, head.front(), end);
                    if anchor == head.front() {
                        anchor = node.link();
                    }
                } else {
                    head.link(node, 0, anchor, end);
                }
            }
        };
        if place == AtEnd::KeepLife as u32 {
            // Before it is announced: who uses the slot later must know which IDs the kernel may look for here. (In a
            // life-word, nothing else uses this field.)
            node.extra.store(me, Ordering::Relaxed);
        }
        adoption::take(head, node, page.giver.load(Ordering::Relaxed), me, link);
        page.desk.answer();
    }
}
