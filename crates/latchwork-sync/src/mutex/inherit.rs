//! Priority inheritance: a waiter lends its priority to the owner. There are two sizes.
//!
//! | type | fields | which waiters sleep where |
//! | --- | --- | --- |
//! | [`InheritPlain`] | the word | every waiter sleeps on the word |
//! | [`Inherit`] | the word, and the *gate*: a queueing mutex in front of the word | one waiter sleeps on the word; the others sleep on the gate |
//!
//! Not robust (see [`Robust`](super::Robust)), not recursive. Locking again reports [`InheritFault::Deadlock`], as does
//! any other wait-for cycle of such locks. Source: `Documentation/locking/pi-futex.rst` of Linux. The word and the gate
//! are priority-inheritance futexes. Only the kernel knows the waiters; it passes a word that tasks sleep on to the
//! first of them. With one word each hand-over therefore costs a sleep. The gate avoids that: a newcomer polls the word
//! and takes it when it is free, while at most one waiter sleeps on it.
//!
//! | word | meaning | entered by |
//! | --- | --- | --- |
//! | 0 | free, no task sleeps | unlock: CAS TID→0, Release; or the kernel, if it finds no sleeper |
//! | TID | held, no task sleeps | lock: CAS 0→TID, Acquire |
//! | TID + `WAITERS` | held, a task may sleep | the kernel, before a task sleeps and when it passes the word on |
//! | TID + `WAITERS` + `OWNER_DIED` | the owner died; TID is its *heir*, the first of its sleepers | the kernel |
//! | `GONE` (+ `WAITERS`) | an owner died: no task gets the lock any more | the heir, or the task that detects the dead owner |
//!
//! The gate has the same states except `GONE`: the gate of a dead owner goes to the heir, or to the task that detects
//! the death. It gives its owner one right only: to go on to the word without polling much.
//!
//! Invariants
//! 1. The task whose TID is in the word has the lock. Only the kernel writes another task's TID there.
//! 2. While a task sleeps on a word, `WAITERS` is set, so that the unlock goes to the kernel.
//! 3. The gate's owner takes the word or gives up within a bounded number of polls and one sleep, and then releases the
//!    gate in every case.
//! 4. A word becomes `GONE` only while its owner is dead, or when the owner's heir makes it so; it then stays `GONE`.
//!
//! *A lock:* CAS 0→TID. If that fails:
//! 1. Some 200 polls; then up to 16 yields to tasks of the same priority, in at most a millisecond, with some polls
//!    between them. (Where the process has learned that polls for this lock do not pay: 20 polls
//!    instead.)
//! 2. Enter the gate, or sleep on the gate until the kernel passes it on.
//! 3. Some 200 polls, until a task sleeps on the word. Then sleep on the word, and release the gate.
//!
//! ([`InheritPlain`]: the first polls of 1, until a task sleeps on the word; then sleep on the word.)
//!
//! *An unlock:* CAS TID→0. If that fails, the kernel passes the word on.
//!
//! *Inheritance.* A task that sleeps on the word lends its priority to the owner. A task that sleeps on the gate lends
//! it to the gate's owner, and through that to the word's owner once the gate's owner sleeps, too. (The gate's owner
//! polls for some 4 µs before it sleeps.) Real-time priorities (`SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE`) are lent,
//! niceness is not. A task that runs at a lent priority when it comes to this lock polls for 25 µs at most: no other
//! task has the priority to use the processor, and a yield returns at once.
//!
//! *Real-time tasks* (by policy) poll for half a microsecond. They then bypass the gate and sleep on the word: the next
//! unlock passes it to them in the order of their priorities, and the owner has their priority at once. They do not
//! poll longer: the owner may be a task that they keep off their own processor, and a check where the owner runs costs
//! as much as the sleep.
//!
//! *No wake-up is lost:* the kernel compares, sets `WAITERS` and enqueues in one step, and an unlock with `WAITERS`
//! goes to the kernel. If the word or gate is passed to a waiter at the moment of its deadline, the waiter has it. A
//! time-out leaves `WAITERS` set, which costs one system call at the next unlock.
//!
//! *Condition variables* used with private locks may have the kernel move their waiters to sleep on the word, bypassing
//! the gate, and make each of them its owner, one after the other.
//!
//! *Deadlock* is detected by the kernel when a sleep is about to complete a wait-for cycle. The kernel queues a task
//! first and checks then. So it reports the deadlock to all tasks that complete a cycle at the same moment, and to a
//! task that begins to wait for one of them just then. The owner of the gate can complete a cycle without owning a lock
//! in it, when another task of the cycle waits at the gate. It then releases the gate, and asks the kernel again.
//!
//! *Death of an owner.* The next task that waits gets ESRCH from the kernel; a task that sleeps becomes the heir.
//! Either marks the lock `GONE`: the data may be torn, so no task gets the lock any more, and every lock call returns
//! [`InheritFault::OwnerGone`]. If the heir released the word, its knowledge of the death would be lost. So it keeps
//! the word, and the tasks that still sleep on it (several on a plain word; on a gated one, real-time tasks) read the
//! word when their nap ends, within a second. Until then they count as waiting for the heir, also in the kernel's check
//! for deadlocks. (The end of a nap costs a sleeper its place among the sleepers of its priority.) If no task reads a
//! dead owner's word before another task gets the owner's TID, the word looks held. exec with the lock held is detected
//! when the process ends.
//!
//! *Death, or a stop, of the gate's owner* delays the tasks at the gate for one nap at most; they then go on without
//! the gate. The gate of a dead owner is taken over. (If its TID belongs to another task before a waiter checks it,
//! each wait takes a nap longer until that task ends.) In the child of a fork, a thread of the parent may own the gate
//! of a private lock: the first waiter that the kernel refuses, or whose nap ends, takes the gate over.
//!
//! *Orderings:* unlock's Release pairs with lock's Acquire; the kernel's exchange is a full barrier. The gate orders
//! nothing. *After the CAS in unlock, or the kernel's exchange*, the memory may be gone; no code touches it.
//!
//! *Progress:* newcomers overtake sleepers, but not for long: the kernel lets tasks of one priority through the gate in
//! the order of their arrival, and the gate's owner, once it sleeps, gets the word at the next unlock. So the *n*th
//! task at the gate gets the lock after at most *n* times the polls at the gate, a critical section, and a context
//! switch.
//!
//! *Hostile events:* a signal handler runs, and the wait goes on (there is no interruptible lock). In a handler,
//! locking a lock that the interrupted code holds reports a deadlock. In the child of a fork no lock is held: an
//! inherited guard belongs to the parent, and dropping it in the child aborts. Do not share a lock across PID
//! namespaces: TIDs are compared.
//!
//! *Frozen:* word and gate as above; sizes 4 and 8, alignment 4, zero = unlocked; movable while unlocked.
//!
//! *Cost, free:* two compare-and-swaps, inlined. *Checked by:* `tests/loom_inherit.rs` (two to four tasks, the kernel
//! modelled, owner deaths, deadlines, negative twins), `tests/inherit/` (with the real kernel: priorities, deadlocks,
//! owner deaths), `tests/mutex.rs`. The models leave out the polls and the naps.
#![allow(unsafe_code)]

mod gate;
mod word;

use super::{Protocol, Relock, RelockAs, SleepPlace, SleepWord, WAITERS, constructors};
use crate::atomic::{AtomicU32, const_unless_loom};
use crate::backoff::{FIRST_POLLS, HAND_OVER};
use crate::hook::{Traits, traits_of};
use crate::sharing::{Private, Sharing};
use crate::sys::futex::Sharing as Flag;
use crate::sys::futex_pi;
use crate::sys::slow_paths;
use crate::time::Deadline;
use core::fmt;
use core::marker::PhantomData;
pub(super) use gate::{PiGate, lock_slowly};
pub use word::InheritFault;
use word::{Taken, task_id};
pub(super) use word::{Word, release_by_kernel};

/// Priority inheritance for locks that many tasks use at once, as the parameter of a [`Mutex`](super::Mutex).
///
/// While a real-time task waits, the owner runs at the waiter's priority, also while the owner itself waits for another
/// such lock. Methods return a `Result`; [`InheritFault`] lists what can go wrong.
///
/// ```
/// use latchwork::mutex::{InheritFault, Mutex};
///
/// static SETPOINT: Mutex<f64, latchwork::mutex::Inherit> = Mutex::inherit(0.0);
/// *SETPOINT.lock()? += 1.5;
/// let held = SETPOINT.lock()?;
/// assert_eq!(SETPOINT.lock().err(), Some(InheritFault::Deadlock));
/// # drop(held);
/// # Ok::<(), InheritFault>(())
/// ```
///
/// Ordinary tasks poll for up to 25 µs, and may yield to each other for up to a millisecond, before they sleep;
/// real-time tasks sleep after half a microsecond. The kernel orders the sleepers: by priority, then first come.
/// Inheritance needs no privilege.
///
/// The death of its owner ends a lock: all current waiters and all later callers get [`InheritFault::OwnerGone`]. Fork:
/// see [`Private`] and [`Shared`](crate::sharing::Shared); dropping an inherited guard in the child aborts it. A signal
/// handler does not end a wait.
///
/// Eight bytes; zero is unlocked; movable while unlocked. For processes that map it:
/// `Mutex::from_raw(Inherit::<Shared>::new(), value)`, within one PID namespace (a region for any namespace refuses it).
#[repr(C)]
pub struct Inherit<S: Sharing = Private> {
    word: AtomicU32,
    gate: AtomicU32,
    sharing: PhantomData<S>,
}

/// As [`Inherit`], in four bytes: for locks that rarely have waiters.
///
/// As soon as three tasks compete, every hand-over is a sleep and a wake-up, in the kernel's order; [`Inherit`] then
/// does ten times as much work. A task that is not a real-time task polls for up to 5 µs before it sleeps, as long as
/// no task sleeps.
///
/// ```
/// use latchwork::mutex::Mutex;
///
/// let log = Mutex::inherit_plain(Vec::new());
/// log.lock()?.push("started");
/// # Ok::<(), latchwork::mutex::InheritFault>(())
/// ```
#[repr(transparent)]
pub struct InheritPlain<S: Sharing = Private> {
    word: AtomicU32,
    sharing: PhantomData<S>,
}

constructors! {
    /// An unlocked mutex that inherits priority, for the threads of this process; for many at once.
    inherit: Inherit;
    /// An unlocked mutex that inherits priority, for the threads of this process; the smallest.
    inherit_plain: InheritPlain;
}

impl<S: Sharing> Inherit<S> {
    const_unless_loom! {
        /// An unlocked lock.
        #[must_use]
        pub fn new() -> Self {
            Self { word: AtomicU32::new(0), gate: AtomicU32::new(0), sharing: PhantomData }
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self, deadline: Option<Deadline>) -> Taken {
        slow_paths::acquisition();
        lock_slowly::<S, false>(self.word(), PiGate(&self.gate), task_id(), deadline)
    }
}

impl<S: Sharing> InheritPlain<S> {
    const_unless_loom! {
        /// An unlocked lock.
        #[must_use]
        pub fn new() -> Self {
            Self { word: AtomicU32::new(0), sharing: PhantomData }
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self, deadline: Option<Deadline>) -> Taken {
        slow_paths::acquisition();
        let (me, word) = (task_id(), self.word());
        Ok(word.poll(me, 0..FIRST_POLLS, WAITERS)?
            || !futex_pi::is_real_time() && word.poll(me, FIRST_POLLS..HAND_OVER, WAITERS)?
            || word.sleep::<S>(deadline)?)
    }
}

/// What both types have in common: all but the waiting.
macro_rules! implement {
    ($lock:ident) => {
        // SAFETY: by invariant 1 one task has the word, which it takes with Acquire and releases with
        // Release, by itself or by the kernel.
        unsafe impl<S: Sharing> Protocol for $lock<S> {
            const TRAITS: Traits = traits_of::<S>(Traits::LENDS);

            type Fault = InheritFault;
            type Outcome<G> = Result<G, InheritFault>;

            #[inline]
            fn outcome<G>(result: Result<G, InheritFault>) -> Self::Outcome<G> {
                result
            }

            #[inline]
            fn acquire(&self) -> Result<(), InheritFault> {
                if self.word().take_free() {
                    return Ok(());
                }
                // Without a deadline the lock was taken, unless an error ended the wait.
                self.lock_contended(None).map(drop)
            }

            #[inline]
            fn try_acquire(&self) -> Taken {
                Ok(self.word().take_free() || self.word().try_contended::<S>()?)
            }

            #[inline]
            fn acquire_until(&self, deadline: Deadline) -> Taken {
                Ok(self.word().take_free() || self.lock_contended(Some(deadline))?)
            }

            #[inline]
            unsafe fn release(&self) {
                // SAFETY: the caller holds the lock, by the contract of `release`.
                unsafe { self.word().release::<S>() }
            }

            fn sleep_place(&self) -> SleepPlace<'_> {
                if S::FLAG == Flag::Private && futex_pi::can_requeue() {
                    SleepPlace(SleepWord::Pi(&self.word))
                } else {
                    SleepPlace::NONE
                }
            }

            fn acquire_again(&self, relock: Relock) -> Result<(), InheritFault> {
                match relock.0 {
                    RelockAs::Owner => self.word().interpret(futex_pi::Pi::Done).map(drop),
                    _ => self.acquire(),
                }
            }
        }

        impl<S: Sharing> $lock<S> {
            #[inline(always)]
            fn word(&self) -> Word<'_, false> {
                Word(&self.word)
            }

            /// The task that holds the lock at this moment, by its thread ID; none if its owner died and a task has
            /// detected that.
            #[must_use]
            pub fn owner(&self) -> Option<u32> {
                self.word().owner()
            }
        }

        impl<S: Sharing> Default for $lock<S> {
            fn default() -> Self {
                Self::new()
            }
        }

        impl<S: Sharing> fmt::Debug for $lock<S> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter
                    .debug_struct(stringify!($lock))
                    .field("owner", &self.owner())
                    .finish()
            }
        }
    };
}
implement!(Inherit);
implement!(InheritPlain);

#[cfg(not(loom))]
crate::relocatable::relocatable_locks!(Inherit, InheritPlain);
