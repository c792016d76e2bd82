//! Barriers: no task continues before all have arrived.
//!
//! For phases of a computation that several tasks go through together: each calls [`Barrier::wait`], which
//! returns when all have called it.
//!
//! ```
//! use latchwork::barrier::Barrier;
//!
//! static PHASE: Barrier = Barrier::new(3);
//!
//! std::thread::scope(|scope| {
//!     for _ in 0..3 {
//!         // One of the three learns that it was the last to arrive.
//!         scope.spawn(|| PHASE.wait());
//!     }
//! });
//! ```
//!
//! # How it works
//!
//! | bits of the word | meaning |
//! | --- | --- |
//! | 31–16 | round, which changes when the last one arrives |
//! | 15–0 | how many have arrived in this round |
//!
//! The state is one word, so each arrival, withdrawal and opening is one compare-and-swap: there is no instant
//! between them for a kill to hit. The last task to arrive opens the round and wakes all.
//!
//! *No wake-up is lost:* a sleeper's futex call compares the whole word, round included, and the opening changes the
//! round before it wakes. *Orderings:* AcqRel on the word: whatever any task did before its arrival is visible after
//! the opening. *Death:* a task that died after it arrived counts as arrived. The others wait for a task that will
//! never arrive: use the timed wait, which withdraws. If the last task is killed between opening and waking, in a
//! region its death wakes the others (if its process has a task there, see `sleep.rs`; a thread that ever waited here
//! is one). *Rounds* wrap after 65,536, which a sleeper would have to miss entirely. *Lifetime:* sleepers read the word
//! after the opening, so the barrier must live until all have returned. *Frozen:* size 8, alignment 4.

use crate::atomic::{AtomicU32, Ordering};
use crate::hook::{Kind, Waiting};
use crate::mutex::at_rest::AtRest;
use crate::sharing::{Private, Shared, Sharing};
use crate::sys::futex::{self, Wait};
use crate::time::Deadline;
use core::marker::PhantomData;

const ARRIVED: u32 = 0xffff;
const ROUND: u32 = 1 << 16;

/// A meeting point for a fixed number of tasks, which can be used any number of times: see the [module](self).
///
/// It may be freed when all of its tasks have returned, not as soon as one has: a task that slept reads the word once
/// more. If a task is killed before it arrives, the others wait for ever, except in the timed wait, which withdraws.
#[derive(Debug)]
#[repr(C)]
pub struct Barrier<S: Sharing = Private> {
    word: AtomicU32,
    tasks: u32,
    sharing: PhantomData<S>,
}

impl Barrier<Private> {
    /// For `tasks` threads of this process.
    ///
    /// # Panics
    /// If `tasks` is 0 or above 65,535.
    #[must_use]
    pub const fn new(tasks: u32) -> Self {
        Self::new_in(tasks)
    }
}

impl Barrier<Shared> {
    /// For `tasks` tasks of all processes that map it.
    ///
    /// In a region, a task that is killed as it opens the barrier leaves no waiter asleep. A process that uses
    /// this after a fork, through inherited references alone, has to join (`latchwork::region::Region::join`) the
    /// region first.
    ///
    /// # Panics
    /// If `tasks` is 0 or above 65,535.
    #[must_use]
    pub const fn shared(tasks: u32) -> Self {
        Self::new_in(tasks)
    }
}

impl<S: Sharing> Barrier<S> {
    /// For `tasks` tasks.
    ///
    /// # Panics
    /// If `tasks` is 0 or above 65,535.
    #[must_use]
    pub const fn new_in(tasks: u32) -> Self {
        assert!(
            tasks >= 1 && tasks <= ARRIVED,
            "a barrier is for 1 to 65,535 tasks"
        );
        Self {
            word: AtomicU32::new(0),
            tasks,
            sharing: PhantomData,
        }
    }

    /// Waits until all have arrived; returns true for exactly one of them.
    pub fn wait(&self) -> bool {
        // Without a deadline the wait ends with the round.
        self.wait_inner(None).unwrap_or(false)
    }

    /// Waits until all have arrived, or withdraws at `deadline` and returns `None`.
    pub fn wait_until(&self, deadline: Deadline) -> Option<bool> {
        self.wait_inner(Some(deadline))
    }

    fn wait_inner(&self, deadline: Option<Deadline>) -> Option<bool> {
        // Read before arriving: the task that opens the barrier does not access it after the opening.
        let tasks = self.tasks;
        let last = |word: u32| (word & ARRIVED) + 1 == tasks;
        let arrive = |word: u32| {
            Some(if last(word) {
                (word & !ARRIVED).wrapping_add(ROUND)
            } else {
                word + 1
            })
        };
        // AcqRel: each arrival publishes what its task did before, and the last arrival acquires all of it.
        let (Ok(before) | Err(before)) =
            self.word
                .fetch_update(Ordering::AcqRel, Ordering::Relaxed, arrive);
        if last(before) {
            futex::wake(&raw const self.word, u32::MAX, S::FLAG);
            return Some(true);
        }
        let round = before & !ARRIVED;
        loop {
            // Acquire: pairs with the last arrival's Release.
            let word = self.word.load(Ordering::Acquire);
            if word & !ARRIVED != round {
                return Some(false);
            }
            let object = core::ptr::from_ref(self).addr();
            let _waiting = Waiting::begin(Kind::Barrier, object, deadline.is_some());
            if crate::sleep::sleep(&self.word, word, S::FLAG, deadline) == Wait::TimedOut {
                let withdraw = |word: u32| (word & !ARRIVED == round).then(|| word - 1);
                return match self
                    .word
                    .fetch_update(Ordering::AcqRel, Ordering::Acquire, withdraw)
                {
                    Ok(_) => None,
                    Err(_) => Some(false),
                };
            }
        }
    }
}

impl crate::mutex::at_rest::sealed::Sealed for Barrier<Shared> {}

impl AtRest for Barrier<Shared> {
    fn put_to_rest(&mut self) -> Result<(), &'static str> {
        let arrived = *self.word.get_mut() & ARRIVED;
        let is_sound = (1..=ARRIVED).contains(&self.tasks) && arrived < self.tasks;
        is_sound
            .then_some(())
            .ok_or("a barrier is for as many tasks as there cannot be, or more have arrived")
    }
}
