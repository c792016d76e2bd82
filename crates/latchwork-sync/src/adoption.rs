//! How a lock passes from a thread that ends to the keeper, a thread that lasts until its process ends
//! (`task/keeper.rs`, which also says why).
//!
//! The kernel finds a dead thread's locks on the thread's robust list, and marks a word that holds the thread's ID. So
//! word and list must change together, in two threads, and a kill of the process may come between any two lines of
//! either. Such a kill ends the two threads in any order, and one of them may go on for a while when the kernel has
//! already walked the other's list. So each thread changes its own list only, and only the keeper, while it lives,
//! writes the keeper's ID:
//!
//! | | the giver | the keeper | the word holds the ID of | which finds it by |
//! | --- | --- | --- | --- | --- |
//! | 1 | announces | | the giver | list, announcement |
//! | 2 | unlinks | | the giver | announcement |
//! | 3 | asks, waits | | the giver | announcement |
//! | 4 | | announces | the giver | announcement |
//! | 5 | | changes the word | the keeper | announcement |
//! | 6 | | links | the keeper | list, announcement |
//! | 7 | | settles, answers | the keeper | list |
//! | 8 | settles | | the keeper | list |
//!
//! Invariant: from 1 to 8 the thread whose ID is in the word has the node on its list, or announced. So whichever of the
//! two dies at whichever line, the kernel marks the word when it walks the list of the thread that is named there:
//! - *The giver is dead, the keeper is not*, at 4 or 5: the kernel has marked the word, or will: the keeper's
//!   compare-and-swap either comes first (the keeper, which announces the node, is named, and its own death follows), or
//!   fails (it does not link a node whose word it does not hold).
//! - *The keeper is dead, the giver is not:* before 5 the giver is named, and announces the node until it dies: it waits
//!   for an answer that does not come. From 5 on the keeper is named, and has announced or linked the node.
//!
//! *Waiters* are not woken: they sleep with the bit `WAITERS`, which the change keeps, and with the time-outs of all
//! sleeps on such words. A sleep that begins with the giver's ID in the expected value is refused by the kernel once
//! the word has changed. *Signal handlers:* both threads block signals, so that nothing else is announced meanwhile.
//! *Orderings:* the request's Release and Acquire hand the node's links to the keeper, the answer's hand the word back.
//! *Checked by:* `tests/loom_keeper.rs` (both threads die, at each pair of steps; negative twins), `tests/kill_keeper.rs`.
#![allow(unsafe_code)]

use crate::atomic::{AtomicU32, Ordering, unless_fault};
use crate::sys::futex::{self, Sharing};
use crate::sys::futex_bits::TID_MASK;
use crate::sys::robust_list::{Head, Node};

/// The word by which a giver and the keeper take turns. All zero: no request.
#[derive(Default)]
#[repr(transparent)]
pub struct Desk(AtomicU32);

const ASKED: u32 = 1;
const ANSWERED: u32 = 2;
#[cfg(loom)]
const KILLED: u32 = 3;

impl Desk {
    /// Asks the keeper, and waits for its answer. One thread at a time.
    pub fn ask(&self) {
        // Release, and Acquire below: see the module.
        let _before = self.0.swap(ASKED, Ordering::Release);
        #[cfg(loom)]
        if _before == KILLED {
            latchwork_sys::model::die();
        }
        futex::wake(&raw const self.0, 1, Sharing::Private);
        self.wait_for(ANSWERED);
    }

    /// Waits for the next request. For the keeper.
    pub fn wait_for_request(&self) {
        self.wait_for(ASKED);
    }

    fn wait_for(&self, value: u32) {
        loop {
            let now = self.0.load(Ordering::Acquire);
            if now == value {
                return;
            }
            #[cfg(loom)]
            if now == KILLED {
                latchwork_sys::model::die();
            }
            futex::wait(&self.0, now, Sharing::Private, None);
        }
    }

    /// One of the two tasks is dead: the signal that killed it ends the wait of the other.
    #[cfg(loom)]
    pub fn kill(&self) {
        // A read-modify-write, so that each request comes before it or after it.
        self.0.swap(KILLED, Ordering::AcqRel);
        futex::wake(&raw const self.0, u32::MAX, Sharing::Private);
    }

    /// Answers the request. For the keeper.
    pub fn answer(&self) {
        self.0.store(ANSWERED, Ordering::Release);
        futex::wake(&raw const self.0, 1, Sharing::Private);
    }
}

/// The giver's part: `unlink` unlinks the node, `ask` returns when the keeper has it.
pub fn give(head: &Head, node: &Node, unlink: impl FnOnce(), ask: impl FnOnce()) {
    let before = head.announce(node, 0);
    unlink();
    if unless_fault!(GiverSettlesEarly, false, true) {
        head.settle(before);
    }
    ask();
    head.settle(before);
}

/// The keeper's part: `link` links the node, which is called if the word names the giver.
pub fn take(head: &Head, node: &Node, giver: u32, keeper: u32, link: impl FnOnce()) {
    let before = unless_fault!(KeeperUnannounced, head.announce(node, 0), 0);
    if change_owner(&node.word, giver, keeper) {
        link();
    }
    head.settle(before);
}

/// Replaces the owner's ID in a word. Returns false if the word names another task.
fn change_owner(word: &AtomicU32, from: u32, to: u32) -> bool {
    let mut now = word.load(Ordering::Relaxed);
    // The bits may change meanwhile: a waiter sets `WAITERS`.
    while now & TID_MASK == from {
        let changed = now & !TID_MASK | to;
        // Release: as the giver did, its successor passes on what the giver wrote.
        match word.compare_exchange(now, changed, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(other) => now = other,
        }
    }
    false
}
