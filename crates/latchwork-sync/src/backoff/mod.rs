//! Backoff: how a waiter passes the time between two polls of the word that it waits for, and how long it polls before
//! it sleeps.
//!
//! A poll costs processor time that other tasks could use, and takes the cache line from the task that is about to
//! write it. A sleep costs a system call, a wake-up, and the time in which no task has the lock. A wait polls by one of
//! the policies below, and then sleeps. (A spinlock's waiter repeats its burst after a yield, or a short sleep.)
//!
//! | policy | used by | what it does |
//! | --- | --- | --- |
//! | spin | every wait; alone: a semaphore's waiter for its own hand-over | the processor's pause instruction between two polls, ever more of them ([`FIRST_POLLS`], [`pause`]) |
//! | yield | mutexes, reader/writer locks, semaphores before their queue | `sched_yield` after [`FIRST_YIELD`] polls and then every [`NEXT_YIELD`]: the owner may wait for this very processor ([`yield_if_brief`]). Where other tasks need the processor for themselves, it polls on the first time, and then sleeps ([`yield_or_sleep`]) |
//! | burst | spinlocks, the checking interposer | a fixed number of polls, without a yield ([`Burst`]) |
//! | budget | throughput, priority-inheritance locks, semaphores, waiters for a writer that runs | a process learns for each lock whether polls pay ([`Budget`]) |
//! | long | wait-wake, robust, region locks | a wait polls for as long as a wake-up takes before its first sleep, where that pays ([`LongPolls`]) |
//! | rest | wait-wake, robust, throughput locks | no poll at all for a microsecond before the first one, where tasks collide often and it pays ([`rest_if_contended`]) |
//! | exponential | message queues, events | one, two, four … pauses between two polls, since each poll takes the cache line from the peer (but always one where the peer does not write it); and yields ([`ExponentialBackoff`]) |
//! | meeting | coprocs | a few polls, then a yield, up to a deadline, or until a yield would not be brief ([`poll_briefly`]) |
//!
//! Tasks on the same processor: the first yield hands the processor over. Tasks of different processes: the same
//! policies; the lock keeps none of their data. Real-time tasks: a yield reaches tasks of the same priority only. Locks
//! that order their waiters by priority let a real-time task poll [`FIRST_POLLS`] times and then sleep in order.
//!
//! A thread keeps most of what it learns in its own memory ([`Habits`](crate::sys::own_record::Habits)), and adds what
//! concerns a lock to the process's memory now and then: a lock needs no room for it, and cache lines seldom move. Bounds on polls count pauses, of which an interval may have several: the time is
//! bounded, and the line moves less often. A pause takes 4 to 60 ns, depending on the processor. The counts of polls below are
//! therefore upper bounds; where polls are compared with the cost of a sleep, their speed is measured once per process
//! (`speed.rs`). Models do not poll.

#[cfg(not(loom))]
mod budget;
mod exponential;
#[cfg(not(loom))]
mod hand_over;
#[cfg(not(loom))]
mod learned;
#[cfg(not(loom))]
mod rest;
#[cfg(not(loom))]
mod speed;
#[cfg(not(loom))]
mod yields;

#[cfg(loom)]
use of_models::note_interval;
#[cfg(loom)]
pub use of_models::{Budget, LongPolls, Then, rest_if_contended, yield_if_brief, yield_or_sleep};
#[cfg(not(loom))]
use rest::note_interval;
#[cfg(not(loom))]
pub use {
    budget::Budget,
    hand_over::LongPolls,
    rest::rest_if_contended,
    yields::{Burst, Then, poll_briefly, yield_if_brief, yield_or_sleep},
};

/// Models do not poll.
#[cfg(loom)]
mod of_models {
    pub struct Budget;

    impl Budget {
        pub fn at(_: usize, _: u32) -> Self {
            Self
        }
        pub fn most(&self, _: u32) -> u32 {
            0
        }
        pub fn is_spent(&self) -> bool {
            true
        }
        pub fn sleeps(&self) {}
        pub fn polls_again(&self) {}
    }

    #[derive(Default)]
    pub struct LongPolls;

    impl LongPolls {
        pub const NONE: Self = Self;
        pub fn next(&mut self, _: u32) -> u32 {
            0
        }
        pub fn paid(self) {}
    }

    pub struct Collision;

    pub fn rest_if_contended(_: u32) -> Collision {
        Collision
    }

    pub fn note_interval(_: bool) {}

    pub fn yield_if_brief() -> bool {
        false
    }

    #[derive(PartialEq)]
    pub enum Then {
        Yielded,
        Sleep,
    }

    pub fn yield_or_sleep(_: bool) -> Then {
        Then::Yielded
    }
}

use crate::atomic::spin_hint;
pub use exponential::ExponentialBackoff;

/// `number` polls, or none in a model.
const fn polls(number: u32) -> u32 {
    if cfg!(loom) { 0 } else { number }
}

/// Polls at the start of every wait, without a yield. A thread learns nothing from them: where a lock is handed over at
/// once, any other work of the waiter is time in which no task has the lock.
pub const FIRST_POLLS: u32 = polls(20);
/// Polls of a wait-wake, robust, region or reader/writer lock before a sleep. Before the first sleep of a wait, [`LongPolls`] may
/// follow them (not at reader/writer locks). A hand-over between two processors takes 50 to 200 ns, and a sleep and a wake-up 6
/// to 20 µs.
pub const HAND_OVER: u32 = polls(200);
/// Polls of a newcomer at a throughput lock. An owner that runs is done by their end; a waiter sleeps only for an owner
/// that does not run. With 200 or 400, 4 tasks did no more work, and 16 tasks 3 to 10 % less.
pub const NEWCOMER: u32 = polls(1000);
/// Polls of a throughput lock's top waiter between two checks whether the owner runs; a check takes 0.3 µs.
pub const TOP_WAITER: u32 = polls(500);
/// Polls of a semaphore before the queue: once tasks queue, each hand-over costs a context switch.
pub const BEFORE_QUEUE: u32 = polls(1640);
/// Polls of a semaphore's waiter for its own hand-over: about what a sleep and a wake-up cost.
pub const IN_QUEUE: u32 = polls(150);

/// Microseconds of polls that cost as much as a sleep. The cost of a sleep is the time of a futex wait and its wake-up
/// on both processors, and the time in which no task has the lock. (With 3 here, two tasks that pass three throughput
/// locks round on two processors take 4.1 to 9.4 µs for a hand-over, and 0.45 with 10.)
pub const SLEEP: u32 = 10;
/// The same for a priority-inheritance futex: the kernel passes the lock on, so no task steals it before the sleeper runs.
/// (With 10 here, 4 tasks with critical sections of 100 pauses do 0.74 of the work that they do with polls.)
pub const INHERIT_SLEEP: u32 = 25;

/// Microseconds of one rest.
pub const REST: u32 = 1;
/// Microseconds of one rest in the checking interposer: reporting a short critical section takes several times as long
/// as the section. (sysbench's run time with few contended mutexes, relative to glibc: 1.19 with four, 1.26 with one.)
pub const REPORTED_REST: u32 = 4;

/// Polls before the first yield. A hand-over between two processors takes a fifth of this time, and a yield without a
/// task to run takes a third, so that a waiter on another processor normally does not yield. (After 20 polls, half of a
/// chain of such hand-overs yielded, each because of the other's yield.)
const FIRST_YIELD: u32 = 30;
/// Polls from one yield to the next.
const NEXT_YIELD: u32 = 100;

/// More pauses than any wait makes: see [`pause`].
pub const ALL: u32 = 1 << 30;

/// The interval between two polls is so large a part of the time that the wait has polled for.
const PART: u32 = 4;
/// The longest interval between two polls, in pauses.
const LONGEST_INTERVAL: u32 = 64;

/// Passes the time until the next poll of a wait that has polled for the time of `polls` pauses. Returns the number of
/// pauses that it made; or, where the wait is to [sleep](Then::Sleep), [`ALL`] of them, so that it ends its polls. (A waiter
/// that watches whether the owner runs looks then, and polls on if it does.)
///
/// A poll takes the lock's cache line from the processor of the owner, which then needs as long for its next access to
/// the lock as for some ten uses without polls. So the interval grows with the wait, which becomes a quarter longer at
/// most. (Where tasks use a lock for 10 to 40 ns, again and again, they do 1.1 to 1.5 times the work that they do with
/// one pause between two polls.)
///
/// The owner may be waiting for the very processor that the caller polls from. If the caller yields it, the lock
/// changes hands without a sleep and a wake-up. A yield replaces no pause: each pause fewer makes it likelier
/// that the wait sleeps just before a woken task has the lock (see `hand_over.rs`).
#[inline]
pub fn pause(polls: u32) -> u32 {
    let pauses = (polls / PART).clamp(1, LONGEST_INTERVAL);
    for _ in 0..pauses {
        spin_hint();
    }
    if cfg!(loom) || !contains_yield(polls, pauses) {
        note_interval(false);
        return pauses;
    }
    let then = yield_or_sleep(polls < NEXT_YIELD);
    note_interval(then == Then::Yielded);
    if then == Then::Sleep { ALL } else { pauses }
}

/// Whether the interval of so many pauses, after so many polls, contains the time of a yield.
const fn contains_yield(polls: u32, pauses: u32) -> bool {
    // The number of yields before a time. (A wait that polls for minutes wraps.)
    const fn yields(before: u32) -> u32 {
        before.wrapping_add(NEXT_YIELD - FIRST_YIELD - 1) / NEXT_YIELD
    }
    yields(polls.wrapping_add(pauses)) != yields(polls)
}

/// As [`pause`], with one pause, or one yield, between two polls: where the owner hands over to this waiter, the first
/// moment counts. Returns whether to poll on.
#[inline]
pub fn pause_once(polls: u32) -> bool {
    if cfg!(not(loom)) && polls % NEXT_YIELD == FIRST_YIELD {
        return yield_or_sleep(polls == FIRST_YIELD) != Then::Sleep;
    }
    spin_hint();
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::own_record::with_habits;

    #[test]
    fn yields_come_at_the_same_times_whatever_the_intervals() {
        for step in 1..=LONGEST_INTERVAL {
            let yields = (0..1000)
                .step_by(step as usize)
                .filter(|polls| contains_yield(*polls, step));
            let expected = 1000_u32
                .next_multiple_of(step)
                .saturating_sub(FIRST_YIELD + 1)
                / NEXT_YIELD
                + 1;
            assert_eq!(
                yields.count() as u32,
                expected,
                "intervals of {step} pauses"
            );
        }
    }

    #[test]
    fn a_wait_becomes_a_quarter_longer_at_most() {
        let mut polls = 0;
        while polls < 1000 {
            // Other programs may need the processor.
            with_habits(|mine| mine.yields_from.set(0));
            let pauses = pause(polls);
            assert!(pauses == 1 || pauses <= polls / 4 && pauses <= LONGEST_INTERVAL);
            polls += pauses;
        }
    }
}
