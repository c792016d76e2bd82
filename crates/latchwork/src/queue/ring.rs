//! The words of a ring for one sender and one receiver: the progress of each side, and whether it sleeps.
//!
//! | word | meaning | changed by |
//! | --- | --- | --- |
//! | `tail` | messages sent so far, modulo 2³² | the sender, with Release: the messages that it counts are complete |
//! | `head` | messages received so far, modulo 2³² | the receiver, with Release: the messages that it counts may be overwritten |
//! | `receiver`, `sender` | 1: that side sleeps, or is about to; 0: it does not | 1 by that side; 0 by either |
//! | `watchers` | the sleeping watchers, see `sleepers.rs` | watchers, and the sender that notifies them |
//! | `life` | even: the ring lives; odd: it was deleted | +1 by a task that deletes it, or creates the next ring |
//!
//! Invariants
//! 1. `tail − head` is between 0 and the capacity, which is at most 2³⁰. The places from `head` to `tail` are the
//!    receiver's, the others the sender's.
//! 2. Each side changes its own index only, by one store that comes after everything that the index promises. So a kill
//!    at any instruction leaves a message sent or not, received or not, and there is nothing to recover.
//! 3. A side that is about to sleep sets its word, and then reads the other's index once more. A side that advances its
//!    index then reads the other's word; if that is 1, it clears it to 0 and wakes the other. The sender does the same
//!    for all watchers, and a task that deletes the ring for both sides and all watchers.
//!
//! *No wake-up is lost.* Between the store and the read of either side is a full barrier (a read-modify-write and what
//! `fence_after_update` adds). So if the sleeper does not see the index advanced, the other side sees the word set. It
//! clears the word and wakes: a sleeping task is taken off the kernel's queue, and a task that is about to sleep
//! compares the word in the kernel, and is refused. A late wake-up, meant for an earlier sleep, also clears the word,
//! so the sleep that it meets ends too: the flag that is cleared is the word that is slept on. If the waking task dies
//! between the two steps, the region ends the sleeps of all its tasks (`region/park.rs`). There may be many watchers,
//! and a flag that one of them sets again could send another to sleep that had been notified; so watchers have a
//! ticket.
//!
//! *Orderings:* SYNC tail: Release by the sender, Acquire by the receiver's read. SYNC head: Release by the receiver,
//! Acquire by the sender's read. SYNC sleep: the barriers above.
//!
//! *A deleted ring is freed once.* Each side has a claim word, which names the task that uses the side. The body is freed,
//! under a lock, by a task that finds the ring deleted and claims both sides. The deleting task stores the new life, and then
//! tries this. A task that gives up a side clears its claim word, and tries this if it then reads a new life. A full barrier
//! lies between the store and the read of each, so at least one of the two sees the other's store. If a third task still has
//! the other side, it tries this when it gives that side up.
//!
//! *Elision:* while no task sleeps, no system call is made. *Cost:* one read-modify-write for each message or batch on
//! each side, on a line that the other side reads when it has used up what it knew of.
//!
//! *Checked by:* `tests/loom_ring.rs` (capacity 1 and 2, up to three messages, deadlines, spurious wake-ups, watchers,
//! deletion, sides that are given up meanwhile), with negative twins: each index without Release, a sleeper that does not
//! check again, either barrier left out, a word that is not cleared, watchers that are forgotten, a deletion that is notified
//! before it is stored, a side that is given up without a barrier.

use super::{line::Line, sleepers::Sleepers};
use crate::atomic::{AtomicU32, AtomicU64, Ordering, fence, fence_after_update, unless_fault};
use crate::sys::futex::{self, Sharing};

/// See the module.
#[repr(C)]
pub(crate) struct Ring {
    tail: Line<AtomicU32>,
    head: Line<AtomicU32>,
    rare: Line<Rare>,
}

/// Read by each operation; written only around sleeps and at deletion.
#[repr(C)]
struct Rare {
    /// By [`Side`].
    sleepers: [AtomicU32; 2],
    watchers: Sleepers,
    life: AtomicU32,
}

/// One of the two tasks that use a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The sender.
    Sender,
    /// The receiver.
    Receiver,
}

impl Ring {
    /// The offset of the words that the sides sleep on, the sender's first.
    #[cfg(not(loom))]
    pub(super) const SLEEPERS: usize =
        core::mem::offset_of!(Ring, rare) + core::mem::offset_of!(Rare, sleepers);

    /// The number of messages. For a copy from outside, whose words may hold any values.
    #[cfg(not(loom))]
    pub(super) fn length(&self) -> u32 {
        let [tail, head] = [Side::Sender, Side::Receiver].map(|side| self.index(side));
        tail.wrapping_sub(head)
    }

    /// A side's index: its progress, which the other side needs to know.
    pub(crate) fn index(&self, side: Side) -> u32 {
        // Acquire: SYNC tail, SYNC head.
        self.word_of(side).load(Ordering::Acquire)
    }

    /// The step that makes messages visible (`tail`), or frees their places (`head`): stores a side's index. Wakes the
    /// other side if it sleeps; returns whether that took a system call.
    #[inline]
    pub(crate) fn advance(&self, side: Side, index: u32) -> bool {
        // Release: SYNC tail, SYNC head.
        let order = match side {
            Side::Sender => unless_fault!(RingTailRelaxed, Ordering::Release, Ordering::Relaxed),
            Side::Receiver => unless_fault!(RingHeadRelaxed, Ordering::Release, Ordering::Relaxed),
        };
        self.word_of(side).swap(index, order);
        // SYNC sleep.
        unless_fault!(RingWakerUnordered, fence_after_update(), ());
        let sleeper = self.sleep_word(side.other());
        // Relaxed, here and below: ordered by the barrier; the word hands nothing over.
        let woken = sleeper.load(Ordering::Relaxed) != 0 && Self::wake(sleeper);
        let watchers_woken = side == Side::Sender
            && unless_fault!(RingForgetsWatchers, self.watchers().notify(u32::MAX), false);
        woken | watchers_woken
    }

    #[cold]
    fn wake(sleeper: &AtomicU32) -> bool {
        // Relaxed: the kernel orders the comparison with the wake-up.
        let slept = unless_fault!(
            RingWordStays,
            sleeper.swap(0, Ordering::Relaxed),
            sleeper.load(Ordering::Relaxed)
        ) != 0;
        if slept {
            futex::wake(sleeper, 1, Sharing::Shared);
        }
        slept
    }

    /// Announces that a side is about to sleep on [`Self::sleep_word`] while that is 1. The side must read the other's
    /// index once more after this, and call [`Self::end_sleep`] in any case.
    pub(crate) fn announce_sleep(&self, side: Side) {
        // Relaxed: ordered by the barrier, SYNC sleep.
        self.sleep_word(side).swap(1, Ordering::Relaxed);
        unless_fault!(RingSleeperUnordered, fence_after_update(), ());
    }

    /// The watchers' word and count.
    pub(crate) fn watchers(&self) -> &Sleepers {
        &self.rare.0.watchers
    }

    /// The ring's life: a generation counter.
    #[inline]
    pub(crate) fn life(&self) -> u32 {
        // Relaxed: a task that sleeps reads it behind a barrier; for others, a late read is the same as an earlier
        // call.
        self.rare.0.life.load(Ordering::Relaxed)
    }

    /// Begins the life after `life`, and wakes all sleepers; false if another task has begun it.
    pub(crate) fn begin_life_after(&self, life: u32) -> bool {
        let begin = || {
            let next = life.wrapping_add(1);
            let word = &self.rare.0.life;
            // AcqRel: the accesses of the last life come before those of the next.
            let begun = word.compare_exchange(life, next, Ordering::AcqRel, Ordering::Relaxed);
            // SYNC sleep. Also pairs with the fence in `give_up`.
            fence_after_update();
            begun.is_ok()
        };
        let wake_all = || {
            for side in [Side::Sender, Side::Receiver] {
                Self::wake(self.sleep_word(side));
            }
            self.watchers().notify(u32::MAX);
        };
        let early = unless_fault!(RingDeletesLate, false, true);
        if early {
            wake_all();
        }
        let begun = begin();
        if !early {
            wake_all();
        }
        begun
    }

    /// Gives up a side that the calling task has claimed. Returns whether the ring of life `life` was deleted; the caller
    /// must then try to free its body.
    pub(crate) fn give_up(&self, claim: &AtomicU64, life: u32) -> bool {
        // Release: pairs with the Acquire of the next claim.
        claim.store(0, Ordering::Release);
        // Pairs with the barrier in `begin_life_after`.
        unless_fault!(RingGivesUpUnordered, fence(Ordering::SeqCst), ());
        self.life() != life
    }

    /// No side sleeps: whoever did has ended.
    #[cfg(not(loom))]
    pub(super) fn put_to_rest(&self) {
        self.end_sleep(Side::Sender);
        self.end_sleep(Side::Receiver);
        self.watchers().clear();
    }

    /// Ends the announcement of a sleep, whether or not the side slept.
    pub(crate) fn end_sleep(&self, side: Side) {
        // Relaxed: a task that still sees a 1 makes a needless system call.
        self.sleep_word(side).store(0, Ordering::Relaxed);
    }

    /// The word that a side sleeps on.
    pub(crate) fn sleep_word(&self, side: Side) -> &AtomicU32 {
        &self.rare.0.sleepers[side as usize]
    }

    fn word_of(&self, side: Side) -> &AtomicU32 {
        match side {
            Side::Sender => &self.tail.0,
            Side::Receiver => &self.head.0,
        }
    }
}

impl Default for Ring {
    fn default() -> Self {
        let word = || AtomicU32::new(0);
        Self {
            tail: Line(word()),
            head: Line(word()),
            rare: Line(Rare {
                sleepers: [word(), word()],
                watchers: Sleepers::default(),
                life: word(),
            }),
        }
    }
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}
