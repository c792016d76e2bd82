//! Region locks: robust in one word, which names its owner as a task of the region.
//!
//! A robust futex names its owner by thread ID, and the kernel finds it through a list on which the owner links and
//! announces it. A region has its own list of tasks already, and decides by life-words which of them are alive (see
//! `region/task_table.rs`). So a lock in a region needs no list: its word names the slot of its owner, and the
//! slot's generation. It is robust, and yet it has 8 bytes, may move while it is unlocked, and a task can hold any
//! number of such locks. Since no lock word contains a thread ID, no two tasks can be confused whose IDs are equal.
//!
//! This text holds for the form of each protocol, and word for word for the wait-wake one:
//!
//! | protocol | differences |
//! | --- | --- |
//! | [`WaitWake`](super::WaitWake) | none |
//! | [`Throughput`](super::Throughput) | a gate (a queueing lock in front of the lock), in a second word; a word that may be reserved: `throughput.rs` |
//!
//! The word has 64 bits. Zero is free. Sleepers sleep on the high half.
//!
//! | bits | meaning |
//! | --- | --- |
//! | 0–31 | the generation of the owner's slot, which is not 0; or 0: free |
//! | 32 | `WAITERS`: a task may sleep |
//! | 33 | `INCONSISTENT`: an owner died or panicked, and no later owner has repaired the data yet |
//! | 34 | `NOT_RECOVERABLE`: an owner released the lock without repairing the data. This state is final |
//! | 48–63 | the owner's slot, counted from 1; or 0: free. So the half on which tasks sleep is another one while a task holds the lock |
//!
//! | word | state | entered by |
//! | --- | --- | --- |
//! | 0 | free, the data is whole | unlock: CAS from the owner's identity, Release; with `WAITERS` in it, the unlock wakes one sleeper |
//! | identity (+ `WAITERS`) | held | lock: CAS, Acquire |
//! | identity + `INCONSISTENT` (+ `WAITERS`) | held by a task to which a death was reported | lock: CAS from a free word with this flag, or from the identity of a task that is gone |
//! | `INCONSISTENT` | free, the data is not whole | unlock in a panic, or one that passes the death on |
//! | `NOT_RECOVERABLE` | free for ever | unlock without a repair; it wakes all sleepers |
//!
//! Invariants
//! 1. An identity names one task of the region for ever. A task that has ended its own identity (it left the region, or
//!    a sweep has freed its slot) runs no instruction with it any more.
//! 2. Only the task with the identity in the word frees a held word. Other tasks set `WAITERS` in it; once the owner is
//!    *gone*, one of them replaces the identity by its own.
//! 3. A task is gone when its life-word says so, or when its generation has ended. Neither is ever undone. What it left may
//!    not be settled yet: a task that gets the lock from it has the region swept before it accesses the data.
//! 4. A task that has locks of a region never ends its identity in good order. (The thread counts them, in its own
//!    memory. A thread that ends with some leaves its slot to its process's keeper; or to the kernel, which ends its
//!    life, if C has acquired all of them (`task/membership.rs` says why). If the keeper takes no more, the slot names a
//!    living task for ever, and its locks stay locked even when the process is dead: see `task/keeper.rs`.)
//! 5. A task sleeps only while the word has `WAITERS`, or while a wake-up is under way, as with the robust mutex. A task
//!    that has slept takes the lock with `WAITERS`.
//! 6. A sleep ends within `NAP` or, if the lock changes owners, `NAP_AMONG_MANY` (in an interruptible wait, within
//!    `INTERRUPTIBLE_NAP`); or it also watches the life-words of the region's other tasks, and ends when one of them dies
//!    (`region/park.rs`). Such a watch begins before the waiter checks that the owner is not gone. How long a nap lasts
//!    decides when a death is noticed, and never whether: a waiter checks the owner before each sleep.
//! 7. The life-word of a thread that does not exist may say that it lives: the kernel does not mark each death. So a waiter that
//!    has slept beside one owner for `PATIENCE`, or gives up, asks whether the thread exists. If not, the life-word is marked.
//!
//! *No lock is lost:* let an owner die. If a task waits, it checks by 6 whether the owner is gone, within a nap or when
//! the death wakes it; a newcomer checks before it sleeps. Each of them that sees the owner gone tries to replace exactly
//! the word that it read. That cannot be mistaken: by 1 and 2 the same identity in the word means that nobody has had
//! the lock since. (The generation has 32 bits. A lock that nobody touched while its dead owner's slot had exactly 2³²
//! further tasks would be taken for held by the last of these.)
//!
//! *No live owner is taken for gone:* by 3 and 4. In the child of a fork the record of the thread is empty, so the child
//! is no task yet, and no guard of its parent is its own; it gets a slot of its own with its first lock.
//!
//! *No wake-up is lost.* Between living tasks: as for the wait-wake mutex, with `WAITERS` in place of its 2. If an unlock
//! is killed between its CAS and its wake-up, or a woken task before it takes the lock, that wake-up is gone. But such a
//! death, too, ends all sleeps that watch life-words, and all others end by themselves (6): each sleeper checks the word
//! again, and sets `WAITERS` if a newcomer has taken the lock without it.
//!
//! *A kill between any two lines.* Before the CAS of a lock call: nothing has happened. After it: the word names a task
//! that is dead. Between CAS and the return of a call that took over from a dead owner: the same, and the word has
//! `INCONSISTENT`. Between two lines of a repair: the same. In an unlock: before its CAS the task is a dead
//! owner, with whole data that is reported as torn; after it, see above. The count of held locks dies with its thread.
//!
//! *Orderings:* an unlock's Release pairs with the Acquire of the next CAS. A waiter's CAS that sets `WAITERS`, and the
//! fetch-and that clears `INCONSISTENT`, are read-modify-writes, which continue the release sequence. A dead owner's
//! last writes come before the kernel's change of its life-word, which the check of that word reads with Acquire.
//!
//! *After the releasing step* no instruction accesses the lock: only its address goes to the kernel.
//!
//! *Progress:* as for the wait-wake mutex: newcomers may barge in. A waiter polls at most [`HAND_OVER`] times before each
//! sleep. If neither a deadline nor a signal handler may end the wait, it polls for 25 µs more before the first sleep, where
//! that pays (`backoff/hand_over.rs`). A call that gets the lock from a dead owner, also `try_lock` and one with a deadline,
//! waits for the sweep: up to a second for a task that dies slowly, and as long as another task sweeps, even if that is
//! stopped.
//!
//! *Signal handlers:* one that locks what its thread holds gets `Deadlock`; other locks it may take and release, between
//! any two lines of a lock call or an unlock, if its thread is a task of their region. It must not make its thread a task,
//! as a first lock call does, nor run while its thread joins or leaves that region: neither is reentrant. If it finds a dead
//! owner, it sweeps the region, which allocates; and if it has interrupted a sweep, it gets the lock before the rest of what
//! the dead task left is settled. In the child of a fork by a handler, an interrupted lock call may acquire the lock in the
//! name of the parent, which gets `Deadlock` from then on; an interrupted unlock may free it, once.
//!
//! *Hostile events:* stop and continue: the owner stays alive. exec and the end of a process are deaths; a
//! thread that ends by the bare system call `exit` dies alone. The limits of a region's life-words hold here, too (see
//! there: a death among more than some 120 tasks may be noticed 100 ms late). A death that the kernel does not mark (exec by a
//! thread that is not the first, for one) is noticed by a waiter that has slept for a second beside the owner. A word that a
//! hostile task has filled with rubbish names a task that is gone, or a living one: the lock is reported as its dead
//! owner's, or stays locked.
//!
//! *An exclusive reference* to a mutex lends its data, and the mutex drops it, only if the word names no owner. Whether an
//! owner has died cannot be asked everywhere: a mutex can be moved into another region, or out of all, with the word of a
//! dead owner, and identities of two regions may be equal.
//!
//! *Frozen:* size 8, alignment 8, the bits above, zero = unlocked; for the free path of the C header also what it reads
//! of the thread's record.
//!
//! *Cost, free:* two compare-and-swaps, three comparisons, two additions in the thread's own memory, all inlined, in the
//! region that the thread attached first; some 20 more instructions in others. *Checked by:* `tests/loom_in_region.rs`
//! (a victim that dies at each of its steps, successors in its slot, negative twins), `tests/in_region.rs`
//! (forks, ends of threads, several regions), `tests/mutex.rs`, `tests/kill_in_region.rs` (storms, and kills at each
//! instruction); for the C interface by `region_mutex.c`, `with_rust.rs` and `kill_region_mutex.rs` of `latchwork-c`.
//!
//! [`HAND_OVER`]: crate::backoff::HAND_OVER

#[cfg(not(loom))]
mod at_rest;
mod forms;
mod guard;
mod lock;
mod methods;
mod part;
mod patience;
mod throughput;
#[cfg(all(feature = "foreign", not(loom)))]
mod unguarded;
mod wait;

#[cfg(not(loom))]
use crate::task as membership;
#[cfg(loom)]
use latchwork_sys::model::membership;

pub use forms::RegionProtocol;
#[doc(hidden)]
pub use forms::{RawError, RegionOps};
pub use guard::{LockError, OwnerDied, RegionGuard};
pub use lock::InRegion;
pub use membership::NotATask;
pub use methods::Movable;
