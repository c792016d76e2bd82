//! Sleeping until another task makes progress, in a way that survives that task's death.
//!
//! The kernel wakes *one* waiter of a dead task's robust words, and no sleeper on any other word. So a task that
//! sleeps in a region sleeps on several words at once (`futex_waitv`): those that it waits for, the life-words of all
//! other tasks, the count of used slots (the life-word of a task that joins later is not among those it knows), and the count of
//! deaths, which the kernel compares. (On that word a sweep wakes only in a region with more slots than one sleep can watch.)
//!
//! *Why no death is missed.* Let T die while other tasks sleep. The kernel changes T's life-word and wakes one
//! sleeper S. Even if something else woke S at the same time, S checks the life-words that it watched before it continues
//! (`park` ends with that check), detects T's death, and sweeps: it wakes all watchers of T's life-word, and counts the death. If S
//! is killed before that, *its* life-word wakes another sleeper, which detects S and T. A task that is about to sleep
//! has read T's life-word before: if T was alive then and is dead now, the kernel refuses the sleep. If a sweep ran in
//! between and set the word to 0, the count of deaths differs from the one that the caller passed, which it read before
//! it last read its object.
//!
//! *Why does the kernel compare the count, too?* It enqueues on one word after the other. Between S's own check of the count and
//! the moment when S is enqueued on T's life-word, T may die, be swept, and have a successor in its slot with the same
//! thread ID, if that is a task of another PID namespace: the life-word is as it was. The count comes last: if the death was
//! counted before, the kernel refuses the sleep, and if not, the sweep wakes S by the life-word, on which S is enqueued by then.
//! (`region_lock.rs` among the models of `latchwork-testkit` finds this, if the count is left out, and so does
//! `tests/region_slots.rs`.)
//!
//! *Sleeps that watch no task.* The kernel enqueues a sleeper on each of its words, one after the other, and takes it off again
//! before it runs: with 100 tasks that takes eight times as long as all else in a hand-over of a semaphore, and most waits
//! are short. So if some task has checked all life-words in the last [`FIRST_SLEEP`], a wait begins with a sleep on its own
//! words alone, for [`FIRST_SLEEP`] at most, and only then sleeps as above. Such a sleeper is enqueued on no life-word, so it
//! consumes no wake-up of the kernel's for a death. Each death is noticed nevertheless:
//! - A task that is in such a sleep when T dies checks as the sleep times out, at most [`FIRST_SLEEP`] after the death. (If
//!   something else ends the sleep, the next one counts as that of a new wait.)
//! - A wait that begins [`FIRST_SLEEP`] or more after the death begins with a check, unless another task has made one since
//!   the death. So waits that are always short (since others end them, or signals, or their own deadlines) notice it, too.
//! - A wait that begins sooner checks within twice that time, if it lasts so long.
//!
//! The age of a check is read from the kernel's coarse clock, so the last two may be late by a tick of it (1 to 10 ms). Where a
//! sleep cannot watch all tasks, the check is the lookout's (`lookout.rs`), and may be [`RECHECK`] old.
//!
//! *Limits.* One sleep takes at most 128 words. In a region with more tasks a sleeper watches the few tasks that follow
//! it cyclically in the table, and one sleeper looks after all tasks (`lookout.rs`). Who does not watch the dead task is woken
//! on the count of deaths, by the sweep.
//!
//! *Without `futex_waitv`* (before Linux 5.16, or refused by a sandbox) each of these sleeps is a nap on the first of the
//! caller's words, of 50 ms at most (`futex::NAP_ON_ONE`), after which the task checks as after any other sleep, and the wait
//! goes on. So a death is noticed that much later. A lookout's nap may end early; the post passes on then, and the time of the
//! last check, which outlives it, still says when the next one is due. Tasks of one region may differ in this.
//!
//! # Cancelled waits
//!
//! The waits of a task that is to be deleted are cancelled, for the interface to C, whose tasks delete each other.
//!
//! A thread enables its *cancel word* while it is in a directive that may wait. Once that word is not 0, the wait ends
//! as if it had timed out (unless the thread has disabled cancellation): the task has left the object's queue then, and
//! has received whatever it was granted before.
//! The task that stores the word wakes all sleepers in the region, and repeats that until the deleted task has ended: a
//! wake-up between the task's check of the word and its sleep has no effect. Deletions are rare; a wait that is not
//! cancelled costs two reads of a thread-local variable. A task in the first sleep of its wait is not woken, but
//! the wake-ups go on.
//!
//! Not cancelled: a spinning wait for a MrsP semaphore, and waits outside directives.
#![allow(unsafe_code)]

use super::lookout::{self, MOST_WORDS, NEIGHBOURS, Post, RECHECK, Then, watches_all};
use super::task_table::{Life, life_of};
use super::{Inner, Parked, Task};
use crate::atomic::{AtomicU32, Ordering};
use crate::sleep::Hooks;
use crate::sys::cancellation;
use crate::sys::each_thread::each_thread;
use crate::sys::futex::{self, Sharing, Wait};
use crate::time::Deadline;
use core::cell::Cell;
use core::time::Duration;
use std::sync::Arc;

/// The longest sleep that watches no task. (`CONTRACT.md` states it.)
const FIRST_SLEEP: Duration = Duration::from_millis(4);

impl Inner {
    /// The number of deaths that were detected so far. Read it before reading an object that a dead task might have
    /// left partly changed, and pass it to [`Self::park`].
    #[inline]
    pub fn deaths(&self) -> u32 {
        // Acquire: pairs with the Release in `wait_for_dead_tasks`.
        self.header().deaths.load(Ordering::Acquire)
    }

    /// Sleeps while each of `words` has its value and no task dies; whether a death ends the sleep at once or some
    /// milliseconds later, the head of the module says. At most 8 words. Also returns whether a wake-up ended the sleep, on
    /// one of `words` or for a death.
    pub fn park(
        &self,
        task: Task<'_>,
        words: &[(&AtomicU32, u32)],
        deaths: u32,
        deadline: Option<Deadline>,
    ) -> (Parked, bool) {
        if self.was_just_checked(words.len())
            && self.deaths() == deaths
            && let Some(ended) = sleep_first(words, deadline)
        {
            return ended;
        }
        self.park_watching(task, words, deaths, deadline)
    }

    /// As [`Self::park`], but each death ends the sleep at once.
    pub fn park_watching(
        &self,
        task: Task<'_>,
        words: &[(&AtomicU32, u32)],
        deaths: u32,
        deadline: Option<Deadline>,
    ) -> (Parked, bool) {
        debug_assert!(words.len() <= MOST_WORDS);
        let mut post = Post::new(&self.header().lookout, task.owner().slot());
        loop {
            if let Some(ended) = self.park_once(task, words, deaths, deadline, &mut post) {
                return ended;
            }
        }
    }

    /// One sleep; `None`: the task sleeps on.
    fn park_once<'r>(
        &'r self,
        task: Task<'_>,
        words: &[(&AtomicU32, u32)],
        deaths: u32,
        deadline: Option<Deadline>,
        post: &mut Post<'r>,
    ) -> Option<(Parked, bool)> {
        // Before the check: a death after it may be one that the check does not see.
        let now = lookout::now();
        let mut waits = [const { futex::WaitWord::new() }; futex::WAIT_MANY_MAX];
        let mut count = 0;
        let mut watch = |word| {
            waits[count] = word;
            count += 1;
        };
        // Acquire: pairs with the Release of `use_slot`.
        let seen = self.header().slots_used.load(Ordering::Acquire);
        // A malicious file may claim more slots than exist.
        let used = (seen as usize).min(self.max_tasks());
        // Its own life-word it does not watch, but the numbers of slots and of deaths.
        let watches_all = watches_all(used, words.len());
        // Not otherwise: there is no room for further words, should a malicious task have lowered the number of slots.
        let holder = if watches_all {
            None
        } else {
            post.assume(&self.slots()[..used]);
            post.watched().map(|(word, slot)| {
                watch(word);
                slot
            })
        };
        // Without `futex_waitv`, the one to sleep on: the first of the caller's.
        let main = usize::from(holder.is_some());
        for (word, value) in words {
            watch(futex::shared_word(word, *value));
        }
        watch(futex::shared_word(&self.header().slots_used, seen));
        let neighbours = if watches_all { used } else { NEIGHBOURS };
        let neighbours = (1..used)
            .map(|step| &self.slots()[(usize::from(task.owner().slot()) + step) % used])
            .take(neighbours);
        let watched = || neighbours.clone().chain(holder);
        for slot in watched() {
            // Acquire: a task that sees a word that a sweep has reset sees the deaths that it counted.
            let word = slot.life.word.load(Ordering::Acquire);
            if life_of(word) == Life::Dead {
                let _ = self.sweep();
                return Some((Parked::Again, false));
            }
            watch(futex::shared_word(&slot.life.word, word));
        }
        if watches_all {
            self.header().lookout.all_were_alive(now);
        }
        if self.deaths() != deaths {
            return Some((Parked::Again, false));
        }
        // The last one: see the argument above.
        crate::atomic::unless_disabled!(
            KernelComparesDeaths,
            watch(futex::shared_word(&self.header().deaths, deaths)),
            ()
        );
        let limit = (!watches_all).then(|| Deadline::after(post.limit(used)));
        let until = limit.into_iter().chain(deadline).min();
        let (ended, woken) = futex::wait_many(&waits[..count], main, until);
        let is_over = ended == Wait::TimedOut && deadline.is_some_and(Deadline::has_passed);
        let by_limit = ended == Wait::TimedOut && limit.is_some_and(Deadline::has_passed);
        let checks_all = by_limit && post.limit_has_passed() == Then::CheckAll;
        // For whichever reason this thread woke, it may also have consumed the kernel's only wake-up for a death.
        let finds_dead = if checks_all {
            // Before the check, as above.
            let now = lookout::now();
            let finds_dead = self.has_unswept();
            if !finds_dead {
                self.header().lookout.all_were_alive(now);
            }
            finds_dead
        } else {
            watched().any(|slot| slot.life() == Life::Dead)
        };
        if crate::atomic::unless_disabled!(SleeperSweepsWhenWoken, finds_dead, false) {
            let _ = self.sweep();
            return Some((Parked::Again, woken.is_some()));
        }
        if is_over {
            return Some((Parked::TimedOut, woken.is_some()));
        }
        if holder.is_some() && woken == Some(0) {
            post.is_offered();
            return None;
        }
        // By the limit alone it ends no wait.
        (!by_limit).then_some((Parked::Again, woken.is_some()))
    }

    /// Whether all tasks were checked so short a time ago that a wait for so many words may begin without a check.
    fn was_just_checked(&self, words: usize) -> bool {
        // Relaxed: it only says which time applies.
        let used = self.header().slots_used.load(Ordering::Relaxed) as usize;
        let most = if watches_all(used, words) {
            FIRST_SLEEP
        } else {
            RECHECK
        };
        let age = self.header().lookout.age();
        crate::atomic::unless_disabled!(WaitsBeginWithCheck, age < most, true)
    }

    /// Like [`Self::park`], in a directive: for a task that is to be deleted, the deadline has passed.
    pub fn park_cancellable(
        &self,
        task: Task<'_>,
        words: &[(&AtomicU32, u32)],
        deaths: u32,
        deadline: Option<Deadline>,
    ) -> (Parked, bool) {
        if is_requested() {
            return (Parked::TimedOut, false);
        }
        match self.park(task, words, deaths, deadline) {
            (Parked::Again, woken) if is_requested() => (Parked::TimedOut, woken),
            ended => ended,
        }
    }
}

/// The hooks for sleeping on a word that lies in a region of this process.
pub(super) static HOOKS: Hooks = Hooks {
    deaths: |word| {
        let inner = containing(word)?;
        inner.task().ok()?;
        Some(inner.deaths())
    },
    sleep: |word, expected, deaths, deadline, has_slept| {
        let inner = containing(word)?;
        let task = inner.task().ok()?;
        let words = [(word, expected)];
        let (parked, _) = if has_slept {
            inner.park_watching(task, &words, deaths, deadline)
        } else {
            inner.park(task, &words, deaths, deadline)
        };
        Some(match parked {
            Parked::Again => Wait::Again,
            Parked::TimedOut => Wait::TimedOut,
        })
    },
};

/// The sleep on the words alone; `None`: the task has to check the life-words now. So that a wait with a short deadline
/// notices deaths, too, that is also so if the deadline has passed.
fn sleep_first(words: &[(&AtomicU32, u32)], deadline: Option<Deadline>) -> Option<(Parked, bool)> {
    debug_assert!(words.len() <= MOST_WORDS);
    let end = Deadline::after(FIRST_SLEEP);
    let until = Some(deadline.map_or(end, |deadline| deadline.min(end)));
    let (ended, woken) = if let [(word, value)] = words {
        futex::wait_woken(word, *value, Sharing::Shared, until)
    } else {
        let mut waits = [const { futex::WaitWord::new() }; MOST_WORDS];
        for (wait, (word, value)) in waits.iter_mut().zip(words) {
            *wait = futex::shared_word(word, *value);
        }
        let (ended, woken) = futex::wait_many(&waits[..words.len()], 0, until);
        (ended, woken.is_some())
    };
    (ended != Wait::TimedOut).then_some((Parked::Again, woken))
}

fn containing(word: &AtomicU32) -> Option<Arc<Inner>> {
    Inner::containing(core::ptr::from_ref(word).addr())
}

each_thread! {
    /// The word that cancels the calling thread's waits, while that is enabled.
    static CANCEL_WORD: Cell<Option<&'static AtomicU32>> = Cell::new(None);
}

fn is_requested() -> bool {
    let word = CANCEL_WORD.with(Cell::get);
    // Relaxed: no other memory is read because of it.
    word.is_some_and(|word| word.load(Ordering::Relaxed) != 0 && cancellation::is_enabled())
}

/// The words that cancel the waits of a task that is deleted, and a wake-up of all sleepers: for the C interface.
#[cfg(feature = "foreign")]
pub mod foreign {
    use super::{AtomicU32, CANCEL_WORD, Cell, each_thread, futex};
    use crate::region::Region;

    each_thread! {
        /// The word that a task has for this purpose.
        static OWN: Cell<Option<&'static AtomicU32>> = Cell::new(None);
    }

    /// Sets the calling thread's word for [`enable_cancel_word`].
    pub fn set_cancel_word(word: Option<&'static AtomicU32>) {
        OWN.with(|own| own.set(word));
    }

    /// Lets the directives of the calling thread use its cancel word, or none, until the next call.
    pub fn enable_cancel_word(is_enabled: bool) {
        let word = OWN.with(Cell::get).filter(|_| is_enabled);
        CANCEL_WORD.with(|enabled| enabled.set(word));
    }

    /// Wakes all sleepers of a region, so that they check their conditions again.
    pub fn wake_sleepers(region: &Region) {
        let word = &raw const region.inner().header().slots_used;
        futex::wake(word, u32::MAX, futex::Sharing::Shared);
    }
}
