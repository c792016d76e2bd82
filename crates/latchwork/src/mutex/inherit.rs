//! Priority inheritance: whoever waits lends its priority to the holder, in two sizes.
//!
//! | type | fields | who waits in the kernel |
//! | --- | --- | --- |
//! | [`InheritPlain`] | the word | every waiter, on the word |
//! | [`Inherit`] | the word, the gate | one waiter on the word; the others on the gate |
//!
//! Not robust (see [`Robust`](super::Robust)), not recursive; locking again reports [`InheritFault::Deadlock`], as does any other
//! circle of such waits. Source: `Documentation/locking/pi-futex.rst` of Linux, whose futexes the word
//! and the gate are. The kernel alone knows who waits; it passes a word for which tasks sleep on to
//! the first of them, so that with one word each hand-over costs a sleep. The gate is the remedy:
//! who comes polls the word, and takes it when it is free, while one sleeps on it at most.
//!
//! | word | meaning | entered by |
//! | --- | --- | --- |
//! | 0 | free, nobody sleeps | unlock: CAS TID→0, Release; or the kernel, if it finds no sleeper |
//! | TID | held, nobody sleeps | lock: CAS 0→TID, Acquire |
//! | TID + `WAITERS` | held, somebody may sleep | the kernel, before a task sleeps and when it passes the word on |
//! | TID + `WAITERS` + `OWNER_DIED` | the owner died; TID is its heir, the first of those who slept | the kernel |
//! | `GONE` (+ `WAITERS`) | an owner died: nobody gets the lock any more | the heir, or who finds the dead owner |
//!
//! The gate has the same states but `GONE`: a dead owner's gate goes on to the heir, or to who finds
//! it. It stands for nothing but the right to go on to the word without polling much.
//!
//! Invariants
//! 1. Who has the TID in the word has the lock. Only the kernel puts another task's TID there.
//! 2. While a task sleeps for a word, `WAITERS` is set, so that the unlock goes to the kernel.
//! 3. The gate's owner takes the word or gives up within a bounded number of polls and one sleep, and
//!    then releases the gate, whatever happened.
//! 4. A word becomes `GONE` while its owner is dead or its heir does so; it stays.
//!
//! *A lock:* CAS 0→TID. Else some 200 polls; give way to others of the same priority up to 16 times,
//! for a millisecond at most, with some polls in between (20 polls in place of all these if the thread's latest waits
//! for this lock have polled for longer than a sleep costs); pass the gate; some 200 polls, until
//! somebody sleeps on the word; sleep on the word; release the gate. ([`InheritPlain`]: the first
//! polls, until somebody sleeps on the word; sleep on the word.) *An unlock:* CAS TID→0, else the
//! kernel passes the word on.
//!
//! *Inheritance.* Who sleeps on the word lends its priority to the owner. Who sleeps on the gate lends
//! it to the gate's owner, and through that to the word's owner once the gate's owner sleeps, too: it
//! polls for some 4 µs before. Lent are real-time priorities (`SCHED_FIFO`, `SCHED_RR`,
//! `SCHED_DEADLINE`), not niceness. A task that was lent one before it came here polls for 25 µs at
//! most: the processor is then its own, and giving way returns at once.
//! *Real-time tasks* (by policy) poll for half a microsecond, then sleep on the word, past the gate: it
//! is theirs in the order of their priorities at the next unlock, and the owner has their priority at
//! once. They do not poll longer, since the owner may be one that they keep off their own processor,
//! and a look at where it runs costs as much as the sleep.
//!
//! *No wake-up is lost:* the kernel compares, sets `WAITERS` and enqueues in one step, and an unlock
//! with `WAITERS` is the kernel's. A word or gate that was passed on in the moment of a deadline is
//! the waiter's. A time-out leaves `WAITERS` set, at the price of one call at the next unlock.
//!
//! *Condition variables* that private locks are used with may have the kernel put their waiters to sleep
//! on the word, past the gate, and make them its owner in turn.
//!
//! *Deadlock* is what the kernel finds when a task is about to close a circle of sleeps. It queues a task
//! first and looks then: so it tells all who close a circle in the same moment, and who comes to wait
//! for one of them just then. The owner of
//! a gate can do that without having any lock of the circle: somebody else in it waits at the gate. It
//! then releases the gate, and asks again.
//!
//! *Death of an owner.* The next one to wait gets ESRCH from the kernel, a task that sleeps becomes the
//! heir. Either buries the lock: the data may be torn, so nobody gets it any more, and all are told
//! [`InheritFault::OwnerGone`]. An heir could pass its knowledge on to nobody if it released the word:
//! so it keeps it, and those who still sleep for it (several on a plain word; on a gated one, real-time
//! tasks) look for themselves when their nap ends, within a second. Until then they count as
//! waiting for the heir, also where the kernel looks for deadlocks. (The end of a nap costs a sleeper its
//! place among those of its own priority.) A dead owner's word that nobody
//! looks at until its TID is another task's cannot be told from a held one. exec with the lock held is
//! noticed when the process ends.
//!
//! *Death, or a stop, of the gate's owner* delays those at the gate for a nap at most; they then go on
//! without it. A dead one's gate is taken over. (If its TID is another task's before anybody looks, each
//! wait takes a nap longer until that task ends.) In the child of a fork a private lock's gate may be owned by a thread of
//! the parent: the first waiter that the kernel refuses, or whose nap ends, takes it over.
//!
//! *Orderings:* unlock's Release pairs with lock's Acquire; the kernel's exchange is a full barrier. The
//! gate orders nothing.
//!
//! *After the CAS in unlock, or the kernel's exchange*, the memory may be gone; nothing touches it.
//!
//! *Progress:* newcomers pass those who sleep, but not for long: the kernel lets tasks of one priority
//! through the gate in the order of their arrival, and the gate's owner, once it sleeps, gets the word
//! at the next unlock. So who is the *n*th at the gate gets in after at most *n* times the polls at the
//! gate, a section, and a switch of tasks.
//!
//! *Hostile events:* a signal handler runs and the wait goes on (there is no interruptible lock); in a
//! handler, a lock that the interrupted code holds is reported as a deadlock. In the child of a fork
//! nothing is held: an inherited guard is the parent's, and dropping it there aborts. Do not share one
//! across PID namespaces: TIDs are compared.
//!
//! *Frozen:* word and gate as above; sizes 4 and 8, alignment 4, zero = unlocked; movable while unlocked.
//!
//! *Cost, free:* two compare-and-swaps, inlined. *Checked by:* `tests/loom_inherit.rs` (two to four tasks,
//! the kernel modelled, deaths, deadlines, negative twins), `tests/inherit.rs` (with the real kernel:
//! priorities, deadlocks, deaths), `tests/mutex.rs`. Left out of the models: the polls, the naps.
#![allow(unsafe_code)]

mod gate;
mod way;
mod word;

#[cfg(not(loom))]
use super::Mutex;
use super::{Arrival, By, Protocol, Queue, Sleeps, WAITERS};
use crate::atomic::const_unless_loom;
use crate::backoff::{FIRST_POLLS, HAND_OVER};
use crate::hook::{Traits, traits_of};
use crate::sharing::{Private, Sharing};
use crate::sys::futex::Sharing as Flag;
use crate::sys::futex_pi;
use crate::time::Deadline;
use core::fmt;
use core::marker::PhantomData;
pub(super) use gate::Gate;
pub(super) use way::Way;
use word::task_id;
pub(super) use word::{Word, release_by_kernel};
pub(crate) use word::{end_of_nap, is_over};

/// Why a lock that inherits priority was not taken. It never will be taken by waiting longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InheritFault {
    /// The calling task holds it already, or waits for a task that waits, through locks of this kind
    /// or pthread's, for the calling one. Of a circle's tasks at least one is told; several, if they
    /// close it in the same moment, and then also who just came to wait for one of them.
    #[error("waiting for the lock would be a deadlock")]
    Deadlock,
    /// An owner died while it held the lock. The data may be torn; nobody gets it any more. (`try_lock`
    /// says so once a call that waits has noticed; until then the lock is held. A wait for a condition
    /// variable says so once it is notified.)
    #[error("an owner of the lock died while it held it")]
    OwnerGone,
    /// The kernel had no memory for the wait. Nothing has changed; it may have some later.
    #[error("the kernel has no memory for the wait")]
    NoMemory,
    /// The kernel, or a sandbox, refuses the system call. A lock that is free can be taken all the
    /// same.
    #[error("this system has no futexes that inherit priority")]
    Unsupported,
    /// The lock's memory says something that no state of the lock can be: it was overwritten, or
    /// waited for by other means.
    #[error("the lock's memory was overwritten")]
    Corrupt,
}

/// Priority inheritance for locks that many tasks use at once, as the parameter of a [`Mutex`].
///
/// While a real-time task waits, the holder runs at its priority, also if the holder waits for another
/// such lock in turn. Methods give a `Result`: what can go wrong is in [`InheritFault`].
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
/// Ordinary tasks poll for up to 25 µs, and may give way to each other for up to a millisecond, before
/// they sleep; real-time tasks sleep after half a microsecond. The kernel keeps the order among
/// sleepers: by priority, then first come. Inheritance needs no privilege.
///
/// The death of its owner ends a lock: all who wait for it or come later get
/// [`InheritFault::OwnerGone`]. Fork: see [`Private`] and [`Shared`](crate::sharing::Shared); dropping an
/// inherited guard in the child aborts it. A signal handler does not end a wait.
///
/// Eight bytes; zero is unlocked; movable while unlocked. For processes that map it:
/// `Mutex::from_raw(Inherit::<Shared>::new(), value)`, within one PID namespace.
#[repr(C)]
pub struct Inherit<S: Sharing = Private> {
    word: Word,
    gate: Gate,
    sharing: PhantomData<S>,
}

/// As [`Inherit`], in four bytes: for locks that are rarely held when another task comes.
///
/// From the third task on at the latest every hand-over is a sleep and a wake-up, in the kernel's
/// order; [`Inherit`] then does ten times as much. A task that is not a real-time one polls for up to
/// 5 µs before it sleeps, as long as none does.
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
    word: Word,
    sharing: PhantomData<S>,
}

#[cfg(not(loom))]
impl<T> Mutex<T, Inherit> {
    /// An unlocked mutex that inherits priority, for the threads of this process; for many at once.
    #[must_use]
    pub const fn inherit(value: T) -> Self {
        Self::from_raw(Inherit::new(), value)
    }
}

#[cfg(not(loom))]
impl<T> Mutex<T, InheritPlain> {
    /// An unlocked mutex that inherits priority, for the threads of this process; the smallest.
    #[must_use]
    pub const fn inherit_plain(value: T) -> Self {
        Self::from_raw(InheritPlain::new(), value)
    }
}

impl<S: Sharing> Inherit<S> {
    const_unless_loom! {
        /// An unlocked lock.
        #[must_use]
        pub fn new() -> Self {
            Self { word: Word::new(), gate: Gate::new(), sharing: PhantomData }
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self, deadline: Option<Deadline>) -> Result<bool, InheritFault> {
        Way::<S, false>::new(&self.word, &self.gate).go(task_id(), deadline)
    }
}

impl<S: Sharing> InheritPlain<S> {
    const_unless_loom! {
        /// An unlocked lock.
        #[must_use]
        pub fn new() -> Self {
            Self { word: Word::new(), sharing: PhantomData }
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self, deadline: Option<Deadline>) -> Result<bool, InheritFault> {
        let me = task_id();
        let polled = self.word.poll(me, 0..FIRST_POLLS, WAITERS)?
            || !futex_pi::is_real_time() && self.word.poll(me, FIRST_POLLS..HAND_OVER, WAITERS)?;
        if polled {
            return Ok(true);
        }
        self.word.sleep::<S>(deadline)
    }
}

/// What both have: all but the waiting.
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
                if self.word.take_free() {
                    return Ok(());
                }
                // Without a deadline it was taken, if nothing went wrong.
                self.lock_contended(None).map(drop)
            }

            #[inline]
            fn try_acquire(&self) -> Result<bool, InheritFault> {
                if self.word.take_free() {
                    return Ok(true);
                }
                self.word.try_contended::<S>()
            }

            #[inline]
            fn acquire_until(&self, deadline: Deadline) -> Result<bool, InheritFault> {
                if self.word.take_free() {
                    return Ok(true);
                }
                self.lock_contended(Some(deadline))
            }

            #[inline]
            unsafe fn release(&self) {
                // SAFETY: by the caller's contract.
                unsafe { self.word.release::<S>() }
            }

            fn queue(&self) -> Queue<'_> {
                if S::FLAG == Flag::Private && futex_pi::can_requeue() {
                    Queue(Sleeps::Owning(self.word.futex()))
                } else {
                    Queue::NONE
                }
            }

            fn acquire_again(&self, arrival: Arrival) -> Result<(), InheritFault> {
                match arrival.0 {
                    By::Kernel => self.word.settle(futex_pi::Pi::Done).map(drop),
                    _ => self.acquire(),
                }
            }
        }

        impl<S: Sharing> $lock<S> {
            /// The task that holds the lock at this moment, by its thread ID; none if its owner died and
            /// somebody has noticed.
            #[must_use]
            pub fn owner(&self) -> Option<u32> {
                self.word.owner()
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
