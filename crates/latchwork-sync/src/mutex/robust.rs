//! Robust locks: the death of an owner is reported to the next owner, which can repair the data.
//!
//! Source: `Documentation/locking/robust-futex-ABI.rst` of Linux; POSIX `PTHREAD_MUTEX_ROBUST` for the semantics. Not
//! recursive, but locking again reports [`LockError::Deadlock`].
//!
//! This text holds for the robust form of each protocol, and word for word for the wait-wake one. The heads of the
//! other protocols' files say where they differ:
//!
//! | protocol | differences |
//! | --- | --- |
//! | [`WaitWake`](super::WaitWake) | none |
//! | [`Protect`](super::Protect) | a ceiling, entered before and left after all steps below |
//! | [`Throughput`](super::Throughput) | a gate (a queueing mutex in front of the lock); a word that may be reserved |
//! | [`Inherit`](super::Inherit) | a gate; the kernel passes the word on, and then drops `OWNER_DIED`: each lock call reads the state |
//!
//! The word:
//!
//! | word | meaning | entered by |
//! | --- | --- | --- |
//! | 0 | free | unlock: CAS TID→0, Release; or swap 0, Release, and the unlock wakes one sleeper |
//! | TID | held; no task sleeps, or a sleeper was woken that will set `WAITERS` | lock: CAS 0→TID, Acquire |
//! | TID + `WAITERS` | held, a task may sleep | a waiter sets the bit before it sleeps, and takes the lock with it after a sleep |
//! | `OWNER_DIED` (+ `WAITERS`) | free, the data is not whole | the kernel, as the owner dies; unlock of such data |
//!
//! The state:
//!
//! | state | name | meaning |
//! | --- | --- | --- |
//! | 0 | `CONSISTENT` | the data is whole |
//! | 1 | `INCONSISTENT` | an owner died, or panicked, and no later owner has repaired the data yet |
//! | 2 | `NOT_RECOVERABLE` | an owner released the lock without repairing the data. This state is final |
//!
//! Invariants
//! 1. The word holds only the bits that the kernel knows; all else is in the state, which only the owner changes.
//! 2. While a task waits for, takes or releases the lock, the lock is *announced* in the task's robust list head; while
//!    a task holds it, it is on the task's list. A lock call does: announce, take, link, settle (end the announcement).
//!    An unlock does: announce, unlink, release, wake, settle.
//! 3. A task sleeps only while the word has `WAITERS`, or while a wake-up is under way: an unlock that has removed the
//!    bit is about to wake one sleeper, or has woken one. A task that has slept takes the lock with `WAITERS`, since
//!    others may still sleep. No sleep lasts longer than a second. (The first sentence does not hold after one of the
//!    two deaths described under *No wake-up is lost*.)
//! 4. The state is `INCONSISTENT` before the task that took a word with `OWNER_DIED` returns from its lock call.
//! 5. While the lock is free without `OWNER_DIED`, the state is `CONSISTENT`: the fast path need not read it.
//!
//! *A kill between any two lines.*
//! - Before the CAS: the announced word is not this task's. If it is free (no TID) the kernel wakes one sleeper, so
//!   that a wake-up that this task has consumed is passed on. (Kernels before Linux 6.2 and its stable releases do so
//!   only for a word of exactly 0: not if the owner died.)
//! - After the CAS and before the link: the kernel finds the TID through the announcement.
//! - Linked: through the list.
//! - Between unlink and release: through the announcement again.
//! - After the release and before the wake: the word is free and announced: the kernel wakes one sleeper.
//! - Between taking a dead owner's word and storing the state (invariant 4): the death of this task sets `OWNER_DIED`
//!   again.
//!
//! *No wake-up is lost:* as for the wait-wake mutex, with `WAITERS` in place of its 2. A dead owner's word keeps
//! `WAITERS`, so that each of several sleepers is freed in turn. The kernel's wake at a death is never private, so no
//! wait here is private. Two deaths need more: an unlocker that is killed between its swap and its wake, and a sleeper
//! that is killed after it was woken. If the lock is free then, the kernel passes the wake-up on. If a newcomer has
//! taken it in between, the word has no `WAITERS`, the kernel does nothing, and the newcomer's unlock wakes no sleeper.
//! So every sleep is a nap: after a second the waiter checks the word and sets `WAITERS` if it is missing. Such a death
//! costs the waiters a second at most.
//!
//! *Rejected:* to keep `WAITERS` in the word while any task sleeps, which needs no naps. Each unlock then makes a
//! system call, also while the waiter that the last unlock woke has not run yet: with 16 tasks whose critical sections
//! take 10 µs, each operation took more than one context switch and twice the processor time.
//!
//! *Orderings:* unlock's Release pairs with lock's Acquire. The kernel orders the death of an owner: it changes the
//! word after the task's last instruction.
//!
//! *After the word is free in `unlock`* only its address is used, in the announcement. The memory may be unmapped, or
//! hold other data, with one exception that every robust futex has. If this task is killed before it settles, the
//! kernel reads the word. If the word holds this task's TID in its low 30 bits (another robust word that this task took
//! there, or plain data that happens to be that number), the kernel sets `OWNER_DIED`, bit 30, in it. If those bits are
//! 0, the kernel at most causes a spurious wake-up.
//!
//! *Progress:* newcomers may barge in, so the wait of an unlucky waiter has no bound. A waiter polls at most 200 times before
//! each sleep, and only while the word has no `WAITERS`. If neither a deadline nor a signal handler may end the wait, and the
//! lock has no ceiling, it polls for 25 µs more before the first sleep, where that pays (`backoff/hand_over.rs`). Sleepers wake
//! in the kernel's order; the end of a nap costs a sleeper its place among those of its priority.
//!
//! *Hostile events:* after EINTR the wait goes on. exec counts as the death of all threads of the process, except for a
//! thread that calls exec and is not the first: the kernel gives it the first thread's ID before it walks the list, and
//! then its locks name another task (Linux 6.18). A process whose memory is taken away before it ends (`process_mrelease`) has
//! no list to walk. A waiter sees such a death when a nap ends: no thread has the owner's ID. It sets the word as the kernel would
//! have set it, and then takes it as any task would; if it is killed in between, the others find the word so after their naps.
//! In the child of a fork no lock is held: an inherited guard belongs to the parent, and dropping it in the child
//! aborts. If a signal handler forks in the middle of a lock call or an unlock, the child must not return into it: it has
//! no record of a task any more, and may acquire or release the lock in the name of its parent. A signal handler that
//! takes another robust lock saves and restores the announcement. There is only one: if the task is
//! killed while the handler takes or releases its lock, and the interrupted code was between taking and linking (or
//! unlinking and releasing) another lock, that other lock stays locked. TIDs are compared in the dying task's PID
//! namespace: never share a robust lock across namespaces (a region refuses that: at attach, or, if it is for any namespace,
//! when the lock is made).
//!
//! *Frozen:* the node's layout is libc's; zero is not valid for the whole node, but is for the word.
//!
//! *Cost, free:* two compare-and-swaps, some 20 plain instructions. *Checked by:* `tests/loom_robust.rs` and
//! `tests/loom_robust_protocols.rs` (a victim that dies at each of its steps, one and two survivors, negative twins),
//! `tests/robust/` (threads, fork, raw clone, pthread neighbours), `tests/robust_protocols.rs` and
//! `tests/robust_special.rs` (all protocols, side by side), `tests/robust_signals.rs` (a handler that locks at each
//! instruction) and the kill tests.

#[cfg(not(loom))]
mod at_rest;
mod both;
mod failure;
mod guard;
mod inherit;
mod lock;
mod ops;
#[cfg(not(loom))]
mod protect;
mod throughput;
mod unpinned;
mod wait_wake;

pub(crate) use both::{NoGuard, edits_in_place, exclusive_access, lock_reporting};
pub use failure::LockFailure;
pub(crate) use failure::{from_raw_error, lock_error, methods_of_owner_died};
pub use guard::{LockError, OwnerDied, RobustGuard};
pub use lock::Robust;
#[doc(hidden)]
pub use lock::owner_of_guard;
pub use ops::RobustProtocol;
#[doc(hidden)]
pub use ops::{Acquired, RawError, RobustOps};
pub(crate) use unpinned::methods_of_unpinned;
pub use unpinned::{Pinned, Unpinned};

#[doc(hidden)]
pub use crate::sys::futex_bits::{OWNER_DIED, TID_MASK, WAITERS};
