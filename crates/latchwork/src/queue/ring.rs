//! The words of a ring for one sender and one receiver: who has come how far, and who sleeps.
//!
//! | word | meaning | changed by |
//! | --- | --- | --- |
//! | `tail` | messages sent so far, modulo 2³² | the sender, with Release: what it counts is whole |
//! | `head` | messages received so far, modulo 2³² | the receiver, with Release: what it counts may be overwritten |
//! | `receiver`, `sender` | 1: that side sleeps, or is about to; 0: it does not | 1 by that side; 0 by either |
//! | `watchers` | who watches, see `sleepers.rs` | watchers, and the sender that tells them |
//! | `life` | even: the ring lives; odd: it was deleted | +1 by whoever deletes it, or makes it anew |
//!
//! Invariants
//! 1. `tail − head` is between 0 and the capacity, which is at most 2³⁰. The places from `head` to
//!    `tail` are the receiver's, the others the sender's.
//! 2. Each side changes its own index only, by one store that comes after all that it promises. So a
//!    kill at any instruction leaves a message sent or not, received or not, and there is nothing to
//!    recover.
//! 3. Who is about to sleep sets its word, and then looks at the other's index once more. Who moves its
//!    index then looks at the other's word; if that is 1 it makes it 0, and wakes. The sender does the same
//!    for those who watch, all of them, and whoever deletes the ring for everybody.
//!
//! *No wake-up is lost.* Between the store and the look of either side stands a full barrier (a
//! read-modify-write and what `fence_after_update` adds). So if the sleeper does not see the index
//! moved, the mover sees the word set. It makes it 0 and wakes: a sleeper that is asleep is taken
//! off; one that is about to be compares the word in the kernel, and is refused. A mover that comes late,
//! with the word of an earlier sleep, makes the word 0 as well, and so the sleep that it meets ends
//! too: the flag that is cleared is the word that is slept on. Should the mover die between the two, the
//! region wakes all who sleep in it (`region/park.rs`). Watchers are many, and a flag that one of them sets
//! anew could send another one to sleep that had been told: they have a ticket.
//!
//! *Orderings:* SYNC tail: Release by the sender, Acquire by the receiver's look. SYNC head: Release by
//! the receiver, Acquire by the sender's look. SYNC sleep: the barriers above.
//!
//! *Elision:* with nobody asleep no call is made. *Cost:* one read-modify-write a message or batch on
//! each side, on a line that the other one reads when it has used up what it knew of.
//!
//! *Checked by:* `tests/loom_ring.rs` (capacity 1 and 2, up to three messages, deadlines, spurious
//! wake-ups, watchers, deletion), with negative twins: each index without Release, a sleeper that does not
//! look again, either barrier left out, a word that is not cleared, watchers that are forgotten, a deletion
//! that is told before it is true.

use super::sleepers::Sleepers;
use crate::atomic::{AtomicU32, Ordering, const_unless_loom, fence_after_update, unless_fault};
use crate::sys::futex::{self, Sharing};

/// A cache line and its neighbour, which processors fetch along.
#[repr(C, align(128))]
struct Line<T>(T);

/// See the module.
#[repr(C)]
pub(crate) struct Ring {
    tail: Line<AtomicU32>,
    head: Line<AtomicU32>,
    rare: Line<Rare>,
}

/// Read by each operation, written around sleeps and at deletion only.
#[repr(C)]
struct Rare {
    /// By [`Side`].
    sleepers: [AtomicU32; 2],
    watchers: Sleepers,
    life: AtomicU32,
}

/// One of the two who use a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Sender,
    Receiver,
}

impl Ring {
    /// Where in it the words are that the sides sleep on, the sender's first.
    #[cfg(not(loom))]
    pub(super) const SLEEPERS: usize =
        core::mem::offset_of!(Ring, rare) + core::mem::offset_of!(Rare, sleepers);

    /// How many messages there are, by a copy that may be anything.
    #[cfg(not(loom))]
    pub(super) fn length(&self) -> u32 {
        let [tail, head] = [Side::Sender, Side::Receiver].map(|side| self.index(side));
        tail.wrapping_sub(head)
    }

    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self {
                tail: Line(AtomicU32::new(0)),
                head: Line(AtomicU32::new(0)),
                rare: Line(Rare {
                    sleepers: [AtomicU32::new(0), AtomicU32::new(0)],
                    watchers: Sleepers::new(),
                    life: AtomicU32::new(0),
                }),
            }
        }
    }

    /// How far a side has come: what the other one needs to know.
    pub(crate) fn index(&self, side: Side) -> u32 {
        // Acquire: SYNC tail, SYNC head.
        self.word_of(side).load(Ordering::Acquire)
    }

    /// A side has come so far. If the other one sleeps, it is woken; returns whether that took a call.
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
        // Relaxed, here and below: ordered by the barrier; it hands nothing over.
        let woken = sleeper.load(Ordering::Relaxed) != 0 && Self::wake(sleeper);
        let told = side == Side::Sender
            && unless_fault!(RingForgetsWatchers, self.watchers().notify(u32::MAX), false);
        woken | told
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

    /// Says that a side is about to sleep on [`Self::sleep_word`] while that is 1. It is to look at the
    /// other's index once more, and to [rise](Self::rise) in any case.
    pub(crate) fn lie_down(&self, side: Side) {
        // Relaxed: ordered by the barrier, SYNC sleep.
        self.sleep_word(side).swap(1, Ordering::Relaxed);
        unless_fault!(RingSleeperUnordered, fence_after_update(), ());
    }

    /// Where those sleep who watch.
    pub(crate) fn watchers(&self) -> &Sleepers {
        &self.rare.0.watchers
    }

    /// Which life the ring is in.
    #[inline]
    pub(crate) fn life(&self) -> u32 {
        // Relaxed: whoever sleeps looks behind a barrier; otherwise a late look is as good as an early call.
        self.rare.0.life.load(Ordering::Relaxed)
    }

    /// Begins the next life after `life`, and wakes everybody; false if another one has.
    pub(crate) fn begin_life_after(&self, life: u32) -> bool {
        let begin = || {
            let next = life.wrapping_add(1);
            let word = &self.rare.0.life;
            // AcqRel: what was done in the last life comes before what is in the next.
            let begun = word.compare_exchange(life, next, Ordering::AcqRel, Ordering::Relaxed);
            // SYNC sleep.
            fence_after_update();
            begun.is_ok()
        };
        let tell = || {
            for side in [Side::Sender, Side::Receiver] {
                Self::wake(self.sleep_word(side));
            }
            self.watchers().notify(u32::MAX);
        };
        let early = unless_fault!(RingDeletesLate, false, true);
        if early {
            tell();
        }
        let begun = begin();
        if !early {
            tell();
        }
        begun
    }

    /// A side that lay down does not sleep.
    pub(crate) fn rise(&self, side: Side) {
        // Relaxed: one who still sees a 1 makes a needless call.
        self.sleep_word(side).store(0, Ordering::Relaxed);
    }

    /// What a side sleeps on.
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

#[cfg(loom)]
impl Default for Ring {
    fn default() -> Self {
        Self::new()
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
