//! The throughput lock: for data that many tasks use all the time, in short critical sections.
//!
//! It is used as any other mutex:
//!
//! ```
//! use latchwork::mutex::{Mutex, Throughput};
//!
//! static HITS: Mutex<u64, Throughput> = Mutex::throughput(0);
//! *HITS.lock() += 1;
//! ```
//!
//! # What it is
//! Not robust (see [`Robust`](super::Robust)), not recursive, no priority inheritance. Source: W. Long,
//! *throughput-optimized (TP) futexes*, patches to Linux of 2017, here in user space.
//!
//! A lock has four words of 4 bytes:
//!
//! | word | what it says |
//! | --- | --- |
//! | `word` | which task owns the lock |
//! | `gate` | which task is the *top waiter*. The gate is a queueing mutex in front of the lock (`gate.rs`) |
//! | `request` | 1: a top waiter wants the lock handed off. The unlock that does so sets it to 0 |
//! | `threshold` | after how many microseconds a top waiter is *overdue*, and sets the request. It never changes |
//!
//! A task that calls `lock` has up to three roles, one after the other:
//!
//! | role | what it does |
//! | --- | --- |
//! | newcomer | polls the word for a short time, and *steals*: it takes a free word ahead of all waiters |
//! | waiter at the gate | sleeps on the gate until the task that leaves the gate wakes it |
//! | top waiter | has entered the gate, or has slept on it. Polls the word while the owner runs, and sleeps on the word while it does not |
//!
//! So an unlock normally finds no sleeper on the word, and makes no system call. It makes one if the top waiter sleeps,
//! as a rule because the owner was not running. (`top_waiter.rs` says how a waiter knows that.)
//!
//! # States
//! TID is the thread ID of a task, and `WAITERS` is the word's highest bit. The word holds nothing else.
//!
//! | `word` | meaning | entered by |
//! | --- | --- | --- |
//! | 0 | free, no task sleeps on it | unlock: CAS TID→0, Release; or swap 0, Release, after which the unlock wakes all sleepers on the word |
//! | TID | held, no task sleeps on it | lock, by a newcomer or a top waiter: CAS 0→TID, Acquire |
//! | TID + `WAITERS` | held, a top waiter may sleep on it | a top waiter, which sets the bit before it sleeps; or the task that takes a reserved word |
//! | `WAITERS` | free, *reserved* for top waiters | unlock, if the request is 1: swap, Release; the unlock wakes one sleeper on the word. Or an overdue top waiter that sets the bit in a free word |
//!
//! | `gate` | meaning | entered by |
//! | --- | --- | --- |
//! | 0 | no top waiter | the task that leaves the gate: CAS TID→0; or CAS `WAITERS`→0, if its wake call found no sleeper |
//! | TID | that task is the top waiter | the task that enters: CAS 0→TID |
//! | TID + `WAITERS` | the same, and others may sleep on the gate | a task that is about to sleep on the gate; a task that enters after a sleep; an overdue top waiter: swap |
//! | `WAITERS` | a sleeper was woken, and will enter unless a newcomer enters first | the task that leaves the gate: CAS TID + `WAITERS`→`WAITERS` |
//!
//! # Invariants
//! 1. The task whose TID is in the word has the lock. Each task puts its own TID there, by CAS, into a word without a
//!    TID. A hand-off writes no TID.
//! 2. While a task sleeps on the word, the word has `WAITERS`, or an unlock that has removed the bit is about to wake
//!    all sleepers. A task that takes the word keeps the bit.
//! 3. A task sleeps on the gate only while the gate has `WAITERS`. The bit is removed only after a wake call found no
//!    sleeper; all that came in between are woken then.
//! 4. A task that was woken at the gate goes on to the word, even if another task has the gate by that time.
//! 5. The gate gives its owner two rights only: to poll, and to take a reserved word. Two top waiters at a time, or
//!    none, do no harm.
//! 6. A top waiter may be without the gate: a real-time task does not enter it, a task that was woken goes on
//!    without it, and another task may take it away. Before it sleeps, such a waiter takes the gate if it is free. An
//!    overdue one takes it in any case. So the gate is not 0 when a word is reserved for it, which keeps newcomers
//!    away; and the tasks at the gate stay there as long as it waits, instead of passing the gate one after the other
//!    and taking what is reserved.
//!
//! # Lock, step by step
//! 1. CAS 0→TID. If it succeeds, that is all.
//! 2. As a newcomer, the task polls 20 times, and steals a word that is 0. (If the tasks collide often, it rests
//!    first: `backoff/rest.rs`.)
//! 3. It polls for up to 1,000 pauses more, unless the process has learned that polls for this lock do not pay (`backoff/learned.rs`).
//! 4. It enters the gate, or sleeps on the gate until it is woken. From here on it is a top waiter. A sleep that the
//!    kernel refuses, since the gate has changed, does not count: the task tries again. (A real-time task does not
//!    enter the gate, free or held: it becomes a top waiter at once.)
//! 5. As a top waiter, it polls the word 20 times. If polls pay, it goes on, 500 pauses
//!    between two checks whether the owner runs, until the owner does not run, or the threshold or the deadline has
//!    passed.
//! 6. It sets `WAITERS` in a word that has a TID, sleeps on the word, and goes back to step 5 when it wakes up, at the
//!    threshold at the latest. If it is overdue, it takes the gate and sets the request first, and sets `WAITERS` by a
//!    `fetch_or`, in whatever word. After its first sleep it is overdue after an eighth of the threshold: where owners
//!    sleep in their critical sections, a newcomer would always win against a task that was just woken, and would save
//!    little by it.
//! 7. When it has the word, or gives up, it leaves the gate, and wakes one waiter that sleeps there.
//!
//! # Unlock, step by step
//! 1. CAS TID→0. It succeeds unless the word has `WAITERS`, and then that is all: a top waiter that polls sees the 0.
//! 2. If the request is 1, the unlock hands off: it sets the request to 0, swaps `WAITERS` into the word, and wakes one
//!    sleeper on the word.
//! 3. If the request is 0, the unlock removes `WAITERS`, reads the request once more, frees the word by CAS TID→0, and
//!    wakes all sleepers on the word. As a rule that is the one top waiter. It competes with newcomers for the word,
//!    and sets `WAITERS` again before it sleeps again. A request that is set between the two reads sets `WAITERS`
//!    again, so the CAS fails. Then the unlock hands off as in step 2, whether there is a request or not: so it ends.
//!    (The robust form frees the word and wakes the sleepers in one system call, so it reads the request once.)
//!
//! # Hand-off
//! Newcomers leave a reserved word alone as long as the gate is not 0. Their fast path does so by itself, since the
//! word is not 0. The task that the unlock has woken, or another top waiter that polls, takes the word by CAS
//! `WAITERS`→TID + `WAITERS`. Its own unlock will see the bit, and wake a task that still sleeps on the word.
//!
//! A reservation names no task. So a task that set the request and then gave up, was interrupted or died does not take
//! the lock with it. The next top waiter takes the word; or a newcomer does, if the gate is 0; or a `try_lock`, or a
//! waiter at the gate that gives up, if the gate has no TID or that of a dead task. A top waiter that gives up tries to
//! take the word once more; a word that is reserved after that waits for the next task that comes.
//!
//! An unlock reads the request and then stores 0. If that erases a second request, the reservation that follows serves
//! both: one of the top waiters takes the word, and the others request again.
//!
//! # Turns
//! A thread counts the locks that it has stolen since it last slept on a gate. At 2,000 its turn is over, and the count
//! starts again. If a waiter sleeps on the gate then, the thread wakes it, and sleeps there in its place; the woken
//! task goes on to the word, as a second top waiter (invariant 5). It runs on the processor that the thread leaves,
//! which would otherwise often be idle until the kernel's next tick: the top waiter was woken to run on another
//! processor.
//!
//! # No wake-up is lost
//! On the word, by invariant 2: the kernel compares the word again as it enqueues a sleeper. A sleeper that gives up
//! was not the one that was woken; or its last attempt takes the word for which it was woken; or another task has the
//! word, with the bit.
//!
//! At the gate: a task that was woken enters the gate or goes on without it (invariant 4). A task that enters after a
//! sleep enters with `WAITERS`, so that it wakes the next one when it leaves, whether it got the lock or gave up.
//!
//! A wake-up may go to a task that is killed or stopped before it runs. So each sleep is a *nap*, after which the task
//! reads the gate or the word again: 50 ms on the gate; on the word 100 ms, or up to the threshold.
//!
//! # How long a waiter waits
//! It is assumed that each critical section ends, that ready tasks get a processor, and that hand-off is not switched
//! off: without it no wait has a bound.
//!
//! 1. *A newcomer* has no bound of its own: it polls 1,020 times at most, and goes to the gate.
//! 2. *A waiter at the gate*, the *n*th in the kernel's order, becomes a top waiter when *n* top waiters have left the
//!    gate; or after 50 ms, out of order, with the gate (a sleeper whose nap ends takes the gate also from a top waiter
//!    that is alive, since it cannot know whether that one is stopped) or without it.
//! 3. *A top waiter* sets its request when the threshold has passed, asleep or awake: the time of a wake-up, or of one
//!    round of at most 520 polls, may come on top.
//! 4. *A top waiter that has set its request and is the only one* gets the lock at the next unlock. From the request on
//!    no newcomer enters: it waits for the rest of one critical section, or for none if the word was free. (In the
//!    robust form, an unlock that has read the request before may free the word once; the waiter then sets its request
//!    again, and meanwhile newcomers may enter, as in bound 5.)
//! 5. *If there are k other top waiters,* each of them may take what is reserved, or a word that is free, before it.
//!    Each time the waiter that loses has to set its request again. So it waits for at most k critical sections more,
//!    and k times for the sections that newcomers steal in the time in which it wakes up and polls (20 times, or
//!    520 times while the owner runs). That part is bounded in time, and not in sections.
//! 6. *k cannot grow without a bound:* an overdue waiter takes the gate (invariant 6), and no task passes the gate as
//!    long as it has it. What can still come is a real-time task; a waiter whose 50 ms at the gate are over; one waiter
//!    that the end of a turn wakes, for each 2,000 locks that a thread steals; and, if another overdue waiter has taken
//!    the gate, those that pass until this one sets its request again.
//! 7. There is no order among top waiters, but for sleeping real-time tasks.
//!
//! # The rest
//! *Orderings:* the Release of an unlock pairs with the Acquire of the CAS that takes the word. The Release of the
//! `fetch_or` that sets `WAITERS` pairs with an Acquire load of the word in the unlock's slow path: an unlock that
//! finds the bit finds the request. The gate orders nothing.
//!
//! *After the CAS or swap in `unlock`* the memory may be gone; only its address is passed to the kernel.
//!
//! *Real-time tasks* poll as newcomers, and then sleep on the word in the order of their priorities. They are overdue
//! at once, unless hand-off is switched off. An ordinary top waiter that is awake may take the word before them.
//!
//! *Hostile events:* EINTR ends interruptible waits only. The death of an owner leaves the lock held for ever. A top
//! waiter says so once, on standard error, after its next nap, or when it gives up (`dead_owner.rs`, which also says why
//! no waiter takes the lock); [`Throughput::owner_is_gone`] answers on request. The death or stop of a top waiter delays the waiters behind it by one nap.
//! While a top waiter is stopped, or dead and not yet waited for by its parent, `try_lock` and waits shorter than a nap
//! do not get a word that was reserved for it; nor do they if the ID of a dead top waiter was given to another task
//! that lives. (A task that finds its own ID there takes the word.)
//!
//! In the child of a fork no lock is held: an inherited guard belongs to the parent. Dropping it in the child aborts if
//! the lock is held by another task, and changes nothing if it is free: the child's CAS is then 0→0. (A child that has
//! locked it itself would release its own lock.) Locking again aborts for [`Private`](crate::sharing::Private), and
//! waits for ever for [`Shared`](crate::sharing::Shared). Tasks of two PID namespaces may have the same TID. Mutual
//! exclusion of tasks that release only what they have acquired does not depend on TIDs being different; but a task may
//! then release the gate of another with the same TID, `try_lock` may take a reserved word, and `owner_is_gone` and the
//! report are wrong. A child with its parent's TID that drops an inherited guard of a shared lock releases it. A signal
//! handler must not take a lock that the code it interrupts may hold.
//!
//! *Frozen:* word, gate, request, threshold, each 4 bytes; size 16, alignment 4; zero = unlocked.
//!
//! *Cost, free:* two compare-and-swaps, inlined. *Checked by:* `tests/loom_throughput.rs` (two and three tasks,
//! hand-off, bound 4, deadlines, gates that are taken away, negative twins), `tests/throughput.rs` (bounds 3 and 6),
//! `tests/throughput_traced.rs` (what calls say of themselves), `tests/throughput_dead_owner.rs`, `tests/mutex.rs`. The
//! models leave out polls, turns, and the check whether the owner runs.

mod contended;
mod dead_owner;
mod gate;
mod lock;
mod top_waiter;
mod trace;
mod words;

pub(super) use contended::{change_steals, end_turn_if_due};
pub(super) use gate::Gate;
pub use lock::Throughput;
pub(super) use top_waiter::Timing;
#[cfg(not(loom))]
pub use trace::Counters;
#[cfg(all(feature = "foreign", not(loom)))]
pub(super) use trace::Foreign;
pub use trace::{Acquisition, Counting, Entry, Event, Released, Uncounted};
#[doc(hidden)]
pub use trace::{Countable, Tally};
#[cfg(all(feature = "foreign", not(loom)))]
pub(super) use words::DEFAULT;
#[cfg(not(loom))]
pub(super) use words::stored_threshold;
pub(super) use words::{Words, is_not_in_process, mark_if_gone, release_contended, take};
