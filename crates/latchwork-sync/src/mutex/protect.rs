//! The priority-protect mutex: its owner runs at the lock's ceiling (immediate ceiling protocol).
//!
//! Not robust (see [`Robust`](super::Robust)), not recursive. Source: POSIX `PTHREAD_PRIO_PROTECT`. Unlike glibc's, it
//! serves tasks of every policy but `SCHED_DEADLINE`, and does not undo changes of priority that others make.
//!
//! | field | meaning | changed by |
//! | --- | --- | --- |
//! | `lock` | a [`WaitWake`]; its states, its orderings | see there |
//! | `ceiling` | 1 to 99, a `SCHED_FIFO` priority | [`set_ceiling`](Mutex::set_ceiling), under the lock |
//!
//! *A lock:* enter the ceiling (`task/ceiling.rs`: the priority is raised, unless it is high enough), then take the
//! word. *An unlock:* release the word, then leave the ceiling. If the ceiling was changed between the two steps of a
//! lock call, the call enters the new ceiling and leaves the old one.
//!
//! *Waiting:* a newcomer polls at the ceiling, while the owner runs. Before it sleeps it leaves the ceiling: at the
//! ceiling all sleepers would have the same priority, and the kernel would wake them in the order of their arrival
//! instead of their own priorities. When it is woken it enters the ceiling again, before it takes the word. A woken
//! task that tasks above its own priority keep off its processor holds nothing. Another task may acquire the lock
//! meanwhile; and the sleepers behind the woken task have no higher priority than it.
//!
//! *No wake-up is lost, progress, hostile events:* as for [`WaitWake`]. A task that is woken, but may no longer enter
//! the ceiling, passes the wake-up on. The boost of an owner that is killed ends with it. *Timer slack* of an ordinary
//! task has its default value after a boost: the kernel clears it for real-time tasks.
//!
//! *Frozen:* size 8, alignment 4, zero in the first word = unlocked; a ceiling of 0 counts as 1.
//!
//! *Cost:* when the priority is high enough already, as for [`WaitWake`], and some 10 plain loads and stores. Otherwise
//! two changes of priority, each with a system call before it that reads the priority (see `task/ceiling.rs`).
//! [`Protect::trust_priority`] saves the reads, [`Protect::keep_boost`] nearly all of the cost. *Checked by:* the loom
//! models of [`WaitWake`], whose word this is; `tests/protect.rs`.
#![allow(unsafe_code)]

use super::protocol::Attempt;
use super::{Interruptible, Mutex, Protocol, RawLock, WaitMode, WaitWake};
use crate::TaskError;
use crate::atomic::{AtomicU32, Ordering};
use crate::backoff::LongPolls;
use crate::hook::{Traits, traits_of};
use crate::sharing::{Private, Shared, Sharing};
use crate::sys::futex;
use crate::task::{Ceilings, HIGHEST, ProtectFault};
use crate::time::Deadline;
use core::fmt;
use core::marker::PhantomData;

/// The priority-protect protocol: while a task holds the lock it runs at the lock's ceiling, or at its own priority if
/// the two are equal.
///
/// So a task that the ceiling covers never waits for a task of lower priority that a third task keeps off its
/// processor. The ceiling is a `SCHED_FIFO` priority, no lower than that of any task that uses the lock: a task with a
/// higher priority gets [`ProtectFault::AboveCeiling`]. A `SCHED_RR` task stays one at the ceiling; a task without
/// real-time priority runs as a `SCHED_FIFO` task, and has its policy and niceness back afterwards. A task that holds
/// several locks runs at the highest ceiling, in whatever order it releases them.
///
/// Needs `CAP_SYS_NICE`, or an `RLIMIT_RTPRIO` that reaches the ceiling, unless the task has that priority itself. A
/// lock call that fails takes nothing, and leaves the priority as it was.
///
/// ```no_run
/// use latchwork::mutex::Mutex;
///
/// let positions = Mutex::protect(50, [0_f64; 3]);
/// {
///     let mut positions = positions.lock()?; // at priority 50 …
///     positions[0] += 0.5;
/// } // … and back
/// # Ok::<(), latchwork::mutex::ProtectFault>(())
/// ```
///
/// *The task's own priority* may be changed at any time, by the task or by others, also while it holds the lock: from
/// the next change of priority by this library on, the new priority counts, and is the one that the task goes back to.
/// (To detect such a change during a boost, this library reads the priority before it changes it. It cannot distinguish
/// a change to the very priority of the boost from the boost.) While no lock changes the priority, the library does not
/// read it: report a change by [`Protect::priority_changed`].
///
/// Owner death leaves it locked. Fork: the child of an owner holds nothing. It starts at the ceiling, and gives the
/// boost back when it first uses a lock of this kind, a robust lock, or a region (a coproc does so before it runs any
/// code). A child that executes another program before that keeps the boost, and so does a thread that the owner
/// starts: this library can detect neither. Start them while the lock is not held, or set `SCHED_RESET_ON_FORK`, which
/// is kept. A signal handler must not use such a lock.
///
/// Eight bytes.
#[repr(C)]
pub struct Protect<S: Sharing = Private> {
    lock: WaitWake<S>,
    ceiling: AtomicU32,
}

impl<S: Sharing> Protect<S> {
    /// An unlocked lock.
    ///
    /// # Panics
    /// If `ceiling` is not 1 to 99.
    #[must_use]
    pub const fn with_ceiling(ceiling: u8) -> Self {
        check(ceiling);
        Self {
            lock: WaitWake::new(),
            ceiling: AtomicU32::new(ceiling as u32),
        }
    }

    /// The ceiling at this moment. It can change, except while the caller holds the lock.
    #[inline]
    fn ceiling(&self) -> u8 {
        // Relaxed: it is changed under the lock, and a lock call confirms it under the lock. The clamp is for memory
        // that was zeroed, or is shared with a faulty program.
        self.ceiling
            .load(Ordering::Relaxed)
            .clamp(1, HIGHEST.into()) as u8
    }

    /// Whether a task holds the lock at this moment.
    #[cfg(feature = "foreign")]
    pub(crate) fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }

    #[inline]
    fn lock(&self, wait_mode: WaitMode) -> Attempt<ProtectFault> {
        let entered = self.ceiling();
        Ceilings::enter(entered)?;
        if self.lock.try_lock() {
            self.confirm(entered).map(Ok)
        } else {
            self.lock_contended(entered, wait_mode)
        }
    }

    #[cold]
    fn lock_contended(&self, mut entered: u8, wait_mode: WaitMode) -> Attempt<ProtectFault> {
        let ended = self
            .lock
            .lock_contended_by(LongPolls::NONE, |word, expected| {
                Ceilings::leave_to_sleep(entered);
                let ended = futex::wait(word, expected, S::FLAG, wait_mode.deadline());
                wait_mode.check(ended).map_err(Ok)?;
                entered = self.ceiling();
                Ceilings::enter(entered).map_err(|fault| {
                    // This task may have consumed the wake-up: pass it on.
                    futex::wake(word, 1, S::FLAG);
                    Err(fault)
                })
            });
        match ended {
            Ok(()) => self.confirm(entered).map(Ok),
            Err(gave_up) => gave_up.map(Err),
        }
    }

    /// Completes a lock call: the lock is taken, and the ceiling `entered` was entered for it. The ceiling may have
    /// changed since.
    #[inline]
    fn confirm(&self, entered: u8) -> Result<(), ProtectFault> {
        let ceiling = self.ceiling();
        if ceiling == entered {
            Ok(())
        } else {
            self.change(entered, ceiling)
        }
    }

    #[cold]
    fn change(&self, entered: u8, ceiling: u8) -> Result<(), ProtectFault> {
        let changed = Ceilings::enter(ceiling);
        if changed.is_err() {
            // SAFETY: the caller has acquired the lock.
            unsafe { self.lock.unlock() };
        }
        Ceilings::leave(entered);
        changed
    }
}

/// Panics unless `ceiling` is a valid ceiling.
pub(super) const fn check(ceiling: u8) {
    assert!(
        1 <= ceiling && ceiling <= HIGHEST,
        "a priority ceiling is 1 to 99"
    );
}

// SAFETY: the inner lock excludes other tasks, and is held exactly from a success here to the release.
unsafe impl<S: Sharing> Protocol for Protect<S> {
    const TRAITS: Traits = traits_of::<S>(Traits::LENDS);

    type Fault = ProtectFault;
    type Outcome<G> = Result<G, ProtectFault>;

    #[inline]
    fn outcome<G>(result: Result<G, ProtectFault>) -> Result<G, ProtectFault> {
        result
    }

    #[inline]
    fn acquire(&self) -> Result<(), ProtectFault> {
        // Without a deadline nothing but success or a fault ends the wait.
        self.lock(WaitMode::FOREVER).map(|_| ())
    }

    #[inline]
    fn try_acquire(&self) -> Result<bool, ProtectFault> {
        if self.lock.is_locked() {
            return Ok(false);
        }
        let entered = self.ceiling();
        Ceilings::enter(entered)?;
        if self.lock.try_lock() {
            return self.confirm(entered).map(|()| true);
        }
        Ceilings::leave(entered);
        Ok(false)
    }

    #[inline]
    fn acquire_until(&self, deadline: Deadline) -> Result<bool, ProtectFault> {
        self.lock(WaitMode::until(Some(deadline)))
            .map(|ended| ended.is_ok())
    }

    #[inline]
    unsafe fn release(&self) {
        let ceiling = self.ceiling();
        // SAFETY: the caller holds the lock, by the contract of `release`.
        unsafe { self.lock.unlock() };
        Ceilings::leave(ceiling);
    }
}

// SAFETY: it takes the inner lock as `acquire` does; see `Protocol` above.
unsafe impl<S: Sharing> Interruptible for Protect<S> {
    #[inline]
    fn acquire_interruptible(&self, deadline: Option<Deadline>) -> Attempt<ProtectFault> {
        self.lock(WaitMode::interruptible(deadline))
    }
}

impl<S: Sharing> fmt::Debug for Protect<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Protect")
            .field("locked", &self.lock.is_locked())
            .field("ceiling", &self.ceiling())
            .finish()
    }
}

impl<T> Mutex<T, Protect> {
    /// An unlocked mutex with a priority ceiling, for the threads of this process.
    ///
    /// # Panics
    /// If `ceiling` is not 1 to 99.
    #[must_use]
    pub const fn protect(ceiling: u8, value: T) -> Self {
        Self::from_raw(Protect::with_ceiling(ceiling), value)
    }
}

impl<T> Mutex<T, Protect<Shared>> {
    /// An unlocked mutex with a priority ceiling, for every process that maps it.
    ///
    /// # Panics
    /// If `ceiling` is not 1 to 99.
    #[must_use]
    pub const fn protect_shared(ceiling: u8, value: T) -> Self {
        Self::from_raw(Protect::with_ceiling(ceiling), value)
    }
}

impl<T: ?Sized, S: Sharing> Mutex<T, Protect<S>> {
    /// The priority ceiling, 1 to 99, at this moment.
    #[must_use]
    pub fn ceiling(&self) -> u8 {
        self.raw().ceiling()
    }

    /// Changes the priority ceiling, and returns the old one.
    ///
    /// The call acquires the lock, so the calling task must not hold it; tasks that wait for the lock meanwhile get it
    /// under the new ceiling. Any task may do this, whatever its priority and privilege.
    ///
    /// # Panics
    /// If `ceiling` is not 1 to 99.
    pub fn set_ceiling(&self, ceiling: u8) -> u8 {
        check(ceiling);
        let raw = self.raw();
        // Enter the higher ceiling while the lock is held. This call may change the ceiling even if the task cannot
        // enter: its priority is higher, or it has no privilege.
        let hold = raw.ceiling().max(ceiling);
        let entered = Ceilings::enter(hold).is_ok();
        raw.lock.lock();
        let old = raw.ceiling();
        raw.ceiling.store(ceiling.into(), Ordering::Relaxed);
        // SAFETY: `raw.lock.lock()` above has acquired the lock.
        unsafe { raw.lock.unlock() };
        if entered {
            Ceilings::leave(hold);
        }
        old
    }
}

impl Protect {
    /// Keeps the boost after an unlock, for the calling task, until the guard is dropped.
    ///
    /// The next critical section under that ceiling, or a lower one, then costs no system call. *What it costs others:*
    /// the task runs at the ceiling between its critical sections, too, and tasks with priorities between its own and
    /// the ceiling have to wait for it: keep it no longer than a critical section may last. A sleep for a lock of this
    /// kind ends the boost, so that the sleepers keep their order; other sleeps do not.
    ///
    /// # Errors
    /// The thread cannot be a task: it can have no record.
    pub fn keep_boost() -> Result<KeptBoost, TaskError> {
        Ceilings::keep()?;
        Ok(KeptBoost(PhantomData))
    }

    /// Declares that until the guard is dropped only this crate changes the policy or the priority of the calling task.
    /// So the crate need not read it before each change, which saves a fifth of the cost.
    ///
    /// If another program changes it nevertheless, the change may be undone, as with glibc's mutexes.
    ///
    /// # Errors
    /// The priority cannot be read.
    pub fn trust_priority() -> Result<TrustedPriority, ProtectFault> {
        Ceilings::declare()?;
        Ok(TrustedPriority(PhantomData))
    }

    /// The next lock of the calling task reads its policy and priority again in any case.
    ///
    /// For a task whose own priority was its ceiling, so that no lock changed it, and that now has another priority.
    /// Every other change is noticed without this call.
    pub fn priority_changed() {
        Ceilings::forget();
    }
}

/// While it lives, the calling task keeps its boost after an unlock: [`Protect::keep_boost`].
#[derive(Debug)]
#[must_use = "the boost ends when this is dropped"]
pub struct KeptBoost(PhantomData<*const ()>);

impl Drop for KeptBoost {
    fn drop(&mut self) {
        Ceilings::keep_no_longer();
    }
}

/// While it lives, only this crate changes the calling task's priority: [`Protect::trust_priority`].
#[derive(Debug)]
#[must_use = "the declaration ends when this is dropped"]
pub struct TrustedPriority(PhantomData<*const ()>);

impl Drop for TrustedPriority {
    fn drop(&mut self) {
        Ceilings::declare_no_longer();
    }
}

#[cfg(not(loom))]
crate::relocatable::relocatable_locks!(Protect);
