//! Condition variables: wait for a change of data that a mutex protects.
//!
//! A task that holds a mutex and finds a predicate false waits here. The wait releases the mutex, sleeps until
//! another task has changed the data and notified, and acquires the mutex again. [`Condvar::wait_while`]
//! re-checks the predicate itself; for robust mutexes there is [`Condvar::wait_robust_while`].
//!
//! ```
//! use latchwork::condvar::Condvar;
//! use latchwork::mutex::Mutex;
//!
//! static JOBS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
//! static MORE: Condvar = Condvar::new();
//!
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         JOBS.lock().push(7);
//!         MORE.notify_one();
//!     });
//!     let mut jobs = MORE.wait_while(JOBS.lock(), |jobs| jobs.is_empty());
//!     assert_eq!(jobs.pop(), Some(7));
//! });
//! ```
//!
//! # How it works
//!
//! The crate has its own algorithm, since a process-shared pthread condition variable hangs in its next
//! broadcast after a waiter was killed. Sources: U. Drepper, *Futexes are tricky*; the counter of Rust std's
//! condition variable; for inheriting mutexes, `Documentation/locking/futex-requeue-pi.rst` of Linux.
//!
//! Waiters sleep in one of two places. The *crowd* is for shared condition variables, and for waiters of a
//! [`Private`](crate::sharing::Private) one that use another mutex than the gathering's. There a `notify_all` wakes all
//! waiters, which then contend for the mutex. The *gathering* is for the waiters of a private condition variable that
//! use the same mutex. There a notification *releases* waiters: each is woken when it can have the mutex, or shortly
//! before. Until then it is *requeued*: the kernel moves it to another word without waking it. That word is the
//! mutex's, or the *relay*, a word of the condition variable on which each woken waiter wakes the next.
//!
//! | mutex | `notify_one` | `notify_all` | a released waiter |
//! | --- | --- | --- | --- |
//! | [`WaitWake`](crate::mutex::WaitWake) | wakes one | wakes two, requeues the others to the mutex's word | is woken by an unlock |
//! | [`Inherit`](crate::mutex::Inherit), [`InheritPlain`](crate::mutex::InheritPlain), where the kernel's requeue-PI is known to work | requeues one to the mutex's word | requeues all | is woken as the mutex's owner, the highest priority first; lends its priority until then |
//! | any other mutex, or one that processes share, or where requeue-PI is not used | wakes one | requeues all to the relay, wakes two | is woken when the waiter before it has acquired the mutex |
//!
//! | word | meaning | changed by |
//! | --- | --- | --- |
//! | `crowd.ticket` | the value that the kernel compares for sleepers in the crowd | +1 by each notification that sees waiters |
//! | `crowd.waiters` | at least the number of waiters in the crowd | +1 by a waiter under the mutex, −1 when it returns |
//! | `state` | the mutex of the waiters in the gathering and how they get to it, and their number | a waiter, under the mutex: +1; if there was none, it also sets the mutex; −1 when it returns |
//! | `ticket` | the value that the kernel compares for sleepers in the gathering; bit 0: there has been a `notify_all` | +2 by each notification that sees waiters, and by a waiter that changes the mutex |
//! | `relay` | at least the number of sleepers on this word | + the number requeued, by the notifier that requeued them; −1 by a task that is about to wake one |
//!
//! Invariants
//! 1. A waiter counts itself, reads the ticket, and begins its `DeathWatch` (`sleep.rs`) while it holds the mutex.
//! 2. A notification advances the ticket before it wakes or requeues.
//! 3. The counts of waiters are too high by the number of waiters that were killed, never too low.
//! 4. All waiters that are counted in `state`, asleep on the ticket or wherever they were requeued, use the
//!    mutex that `state` names. A waiter that comes with another mutex meanwhile joins the crowd.
//! 5. While a waiter sleeps on the relay, an awake task will wake one sleeper, the highest priority first. That
//!    task is a waiter that was woken from the relay (it wakes the next when it has acquired the mutex, when
//!    the mutex was refused, or when it unwinds), or a notifier.
//!
//! *No wake-up is lost.* The predicate changes under the mutex. If the notifier locked the mutex before the
//! waiter, the waiter has seen the change. If after, the mutex orders the waiter's count before the notifier's
//! load of it (so Relaxed suffices there). The kernel then either finds the waiter asleep, or refuses its sleep
//! because the ticket has moved (1, 2). The ticket wraps after 2³¹ notifications; a waiter would have to be
//! descheduled between its unlock and its sleep for exactly that many, which does not happen in practice.
//!
//! *No waiter is requeued to a mutex that is not its own.* A notifier reads the ticket, then the mutex, and the
//! kernel compares the ticket as it requeues. A waiter with another mutex changes the mutex, then the ticket,
//! then sleeps. So either the notifier reads the new mutex, or the kernel finds another ticket and the notifier
//! reads both again. If the address is stale, no waiter is asleep and the kernel does not touch the address.
//!
//! *Requeued to the mutex's word:* a waiter that the notification wakes, or that wakes up on the mutex's word,
//! acquires the mutex as a task that has slept for it, so that its unlock wakes the next. A waiter that cannot
//! know whether it was requeued (bit 0 of the ticket is set) does the same, at the cost of one system call at
//! its unlock. *Requeued for the kernel to own:* the kernel passes the mutex on from one waiter to the next.
//! These waiters sleep on the word and not in the gate of [`Inherit`](crate::mutex::Inherit), the queueing
//! mutex in front of that lock: each has to be woken once in any case, so the gate, which saves the sleep,
//! saves nothing here, and on the word their priorities count at once.
//!
//! *Requeued to the relay:* the notifier raises the count once the waiters sleep there, and then wakes the first two.
//! Each wake-up takes one from the count first. If the wake-up finds no sleeper, the count was that of a waiter that
//! has given up, and the task takes the next. So the count is too low only between a notifier's requeue and its
//! addition, and this notifier wakes two after the addition. *Priorities on the relay:* each `notify_all` wakes the two
//! sleepers with the highest priority, and each of them, when it has the mutex, wakes the first of those left. So a
//! sleeper on the relay has two waiters of its own or a higher priority in front of it, awake or waiting for the mutex.
//! If the mutex inherits priority, these lend its owner as much as the sleeper would.
//!
//! *A deadline* ends the sleep on whichever word it is. The waiter then acquires the mutex in the usual way, however
//! long that takes. [`Waited::TimedOut`] means that the waiter consumed no `notify_one`: the kernel says whether a
//! waiter was woken, and a waiter that may have been requeued checks whether the ticket has moved.
//!
//! *Death:* a waiter may be killed after `notify_one` chose it and before it read the predicate, or a notifier after it
//! changed the predicate and before it notified. In a region the death wakes the other waiters, asleep or about to
//! sleep, and they re-check the predicate as after a spurious wake-up. That holds by (1): a task that died after the
//! waiter read the predicate is one whose death the waiter has not counted. It needs tasks of the region; a notifier
//! must be one (see `sleep.rs`). Outside a region, between processes, this one notification is lost, as with POSIX: use
//! `notify_all` there. For the same reason waiters of a shared condition variable are in the crowd: a chain of wake-ups
//! would break with a task that dies, and stall while one is stopped. The threads of a gathering die, and are stopped,
//! together. A leftover count (3) costs each later notification one system call. With a robust mutex a wait returns the
//! mutex's result: `OwnerDied` if its owner died meanwhile.
//!
//! *Requeue-PI*, the kernel's way to an inheriting mutex, has had bugs that crash the kernel, or hang a processor, when
//! a requeue meets a deadlock of the application or a time-out. A test for them would trigger them. So requeue-PI is
//! used only in versions of Linux that are known to be without them (6.18.36 and later of that series; 7.1.1 and
//! later), and unless a sandbox forbids the calls. Elsewhere the relay is used, with this difference: each waiter is
//! woken while the one before it has the mutex, and may sleep again. *A refused requeue:* the kernel refuses to requeue
//! a waiter if the mutex's owner has died, if the requeue would complete a wait-for cycle, or if there is no memory. It
//! then leaves that waiter, and those behind it in that notification, asleep, and no other call can wake them. So such
//! waiters sleep for at most 10 s at a time and return if the ticket has moved. They cannot know whether they were
//! refused, were requeued, or missed a notification between two sleeps; the notification may as well have been for
//! another waiter. This is at most one needless wake-up in 10 s, and costs a sleeper its place among those of its own
//! priority.
//!
//! *Progress of a notification:* lock-free, not bounded: a notifier that finds the ticket moved by another task starts
//! again. It allocates nothing and preserves `errno`, so a signal handler may notify. *Spurious wake-ups* happen: wait
//! in a loop, or use `wait_while`. *Order:* as the kernel wakes: by real-time priority, then in order of arrival. On
//! the relay a waiter of lower priority that was woken earlier may still come first. *Fork:* as for the mutex; a count
//! may stay too high in the child. A child that returns from its parent's wait (a signal handler has forked) leaves a
//! shared count to the parent. *Frozen:* size 24, alignment 8, zero = no waiters. *Cost:* without waiters a
//! notification is two loads. *Checked by:* `tests/loom_condvar.rs` (no lost notification, with one and two waiters,
//! each row of the first table, spurious wake-ups, deadlines, two and three mutexes, a death; negative twins),
//! `tests/condvar.rs`, `tests/condvar_release.rs` (counts of sleeps, priorities), `tests/condvar_events.rs` (panics,
//! forks, a sandbox), and the kill tests. The models leave out the sleeps of 10 s.
mod crowd;
mod gathering;
#[cfg(not(loom))]
mod other_mutexes;
#[cfg(all(feature = "foreign", not(loom)))]
pub(crate) mod steps;
mod variable;

pub use self::variable::Condvar;

/// How a timed wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// A notification, or a spurious wake-up: check the predicate.
    Woken,
    /// The deadline passed.
    TimedOut,
}

impl Waited {
    fn unless(timed_out: bool) -> Self {
        if timed_out {
            Self::TimedOut
        } else {
            Self::Woken
        }
    }
}
