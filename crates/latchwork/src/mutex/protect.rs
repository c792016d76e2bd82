//! The priority-protect mutex: who holds it runs at its ceiling (immediate ceiling protocol).
//!
//! Not robust (see [`Robust`](super::Robust)), not recursive. Source: POSIX `PTHREAD_PRIO_PROTECT`; unlike glibc's it serves tasks of
//! every policy but `SCHED_DEADLINE`, and changes of priority from outside are not undone.
//!
//! | field | meaning | changed by |
//! | --- | --- | --- |
//! | `lock` | a [`WaitWake`]; its states, its orderings | as there |
//! | `ceiling` | 1 to 99, a `SCHED_FIFO` priority | [`set_ceiling`](Mutex::set_ceiling), under the lock |
//!
//! *A lock:* enter the ceiling (`task/ceiling.rs`: the priority is raised, unless it is high enough),
//! then take the word. *An unlock:* release the word, then leave the ceiling. What is taken under a
//! ceiling that was changed meanwhile is kept under the new one.
//!
//! *Waiting:* a newcomer polls at the ceiling, as the holder runs. Before it sleeps it leaves the
//! ceiling: at the ceiling all sleepers would be equal, so the kernel would wake them in the order of
//! their arrival, and not in that of their priorities. It enters again when it is woken, before it
//! takes the word. A task that is woken and then kept off its processor by others of more than its
//! own priority holds nothing; who comes meanwhile takes the lock, and sleepers behind it have no
//! higher priority.
//!
//! *No wake-up is lost:* as for [`WaitWake`]; one that meets a task which may not enter any more is
//! passed on.
//!
//! *Progress:* as for [`WaitWake`]. *Hostile events:* as for [`WaitWake`]; a task that is killed
//! inside takes its priority with it. *Fork:* the child of a task that is inside holds nothing; it
//! starts at the ceiling, and gives the boost back when it first uses a lock of this kind, a robust
//! one, or a region, as our coprocs do before they run anything. One that does none of this, for
//! instance since it becomes another program, stays there, as does a thread that is started inside:
//! neither can be known from here. Start them outside, or set `SCHED_RESET_ON_FORK`, which is kept.
//! *Timer slack* of an ordinary task is its default after a boost: the kernel clears it for real-time
//! tasks.
//!
//! *Frozen:* size 8, alignment 4, zero in the first word = unlocked; a ceiling of 0 counts as 1.
//!
//! *Cost:* when the priority is high enough already, as for [`WaitWake`], and some 10 plain loads and
//! stores. Otherwise two changes of priority, each with a look in front (see `task/ceiling.rs`);
//! [`Protect::trust_priority`] saves the looks, [`Protect::keep_boost`] nearly all.
//!
//! *Checked by:* the loom models of [`WaitWake`], whose word this is; `tests/protect.rs`.
#![allow(unsafe_code)]

use super::{Interruptible, Mutex, Patience, Protocol, RawLock, Unfinished, WaitWake};
use crate::TaskError;
use crate::atomic::{AtomicU32, Ordering};
use crate::hook::{Traits, traits_of};
use crate::sharing::{Private, Shared, Sharing};
use crate::sys::futex;
use crate::task::{Ceilings, HIGHEST, ProtectFault};
use crate::time::Deadline;
use core::fmt;
use core::marker::PhantomData;

/// The priority-protect protocol: while a task holds the lock it runs at the lock's ceiling, or at
/// its own priority if that is the same.
///
/// So no task that the ceiling covers waits for one of lower priority that was kept off its
/// processor by a third. The ceiling is a `SCHED_FIFO` priority, no lower than that of any task that
/// uses the lock: one that is above gets [`ProtectFault::AboveCeiling`]. A `SCHED_RR` task runs as
/// such at the ceiling, one without real-time priority as a `SCHED_FIFO` task; it has its policy and
/// niceness back afterwards. A task that holds several locks runs at the highest ceiling, in whatever
/// order it releases them.
///
/// Needs `CAP_SYS_NICE`, or an `RLIMIT_RTPRIO` that reaches the ceiling, unless the task has that
/// priority itself. Whatever fails leaves the lock untaken, and the priority as it was.
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
/// *The own priority* may be changed at any time, by the task or by others, also while it is inside:
/// from the next change of priority here it is what counts, and what it will go back to. (To see a
/// change from within a boost, this looks at the priority before it changes it. A change to the very
/// priority of the boost cannot be told from the boost.) As long as no lock changes the priority
/// nothing is looked at: tell it by [`Protect::priority_changed`].
///
/// Owner death leaves it locked. Fork: the child holds nothing, and gives the boost back at its first
/// use of this crate's locks; what becomes another program without that keeps it, and so does a
/// thread that is started inside. A signal handler must not use one.
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

    /// The ceiling. Only under the lock it stays what it is.
    #[inline]
    fn ceiling(&self) -> u8 {
        // Relaxed: changed and confirmed under the lock.
        // The bounds are for memory that was zeroed, or is shared with something broken.
        self.ceiling
            .load(Ordering::Relaxed)
            .clamp(1, HIGHEST.into()) as u8
    }

    /// Whether somebody holds the lock at this moment.
    #[cfg(feature = "foreign")]
    pub(crate) fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }

    fn set_ceiling(&self, ceiling: u8) -> u8 {
        check(ceiling);
        // For a moment's hold; that may be all the same if the task is above, or has no privilege.
        let hold = self.ceiling().max(ceiling);
        let entered = Ceilings::enter(hold).is_ok();
        self.lock.lock();
        let old = self.ceiling();
        self.ceiling.store(ceiling.into(), Ordering::Relaxed);
        // SAFETY: taken above.
        unsafe { self.lock.unlock() };
        if entered {
            Ceilings::leave(hold);
        }
        old
    }

    #[inline]
    fn lock(&self, patience: Patience) -> Result<Result<(), Unfinished>, ProtectFault> {
        let entered = self.ceiling();
        Ceilings::enter(entered)?;
        if self.lock.try_lock() {
            self.confirm(entered).map(Ok)
        } else {
            self.lock_contended(entered, patience)
        }
    }

    #[cold]
    fn lock_contended(
        &self,
        mut entered: u8,
        patience: Patience,
    ) -> Result<Result<(), Unfinished>, ProtectFault> {
        let ended = self.lock.lock_contended_by(|word, expected| {
            Ceilings::leave_to_sleep(entered);
            let ended = futex::wait(word, expected, S::FLAG, patience.deadline());
            patience.check(ended).map_err(Ok)?;
            entered = self.ceiling();
            Ceilings::enter(entered).map_err(|fault| {
                // The wake-up may have been this task's.
                futex::wake(word, 1, S::FLAG);
                Err(fault)
            })
        });
        match ended {
            Ok(()) => self.confirm(entered).map(Ok),
            Err(gave_up) => gave_up.map(Err),
        }
    }

    /// The lock is taken, under the ceiling `entered`.
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
            // SAFETY: the caller has taken it.
            unsafe { self.lock.unlock() };
        }
        Ceilings::leave(entered);
        changed
    }
}

/// Panics unless it is a ceiling.
pub(super) const fn check(ceiling: u8) {
    assert!(
        1 <= ceiling && ceiling <= HIGHEST,
        "a priority ceiling is 1 to 99"
    );
}

// SAFETY: the inner lock's, which is held exactly from a success here to the release.
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
        // Nothing else ends it.
        self.lock(Patience::ENDLESS).map(|_| ())
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
        self.lock(Patience::until(Some(deadline)))
            .map(|ended| ended.is_ok())
    }

    #[inline]
    unsafe fn release(&self) {
        let ceiling = self.ceiling();
        // SAFETY: by the contract.
        unsafe { self.lock.unlock() };
        Ceilings::leave(ceiling);
    }
}

// SAFETY: as above.
unsafe impl<S: Sharing> Interruptible for Protect<S> {
    #[inline]
    fn acquire_interruptible(
        &self,
        deadline: Option<Deadline>,
    ) -> Result<Result<(), Unfinished>, ProtectFault> {
        self.lock(Patience::interruptible(deadline))
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
    /// Takes the lock for it, so the task must not hold it; whoever waits for it meanwhile will have
    /// it under the new ceiling. Any task may do this, whatever its priority and privilege.
    ///
    /// # Panics
    /// If `ceiling` is not 1 to 99.
    pub fn set_ceiling(&self, ceiling: u8) -> u8 {
        self.raw().set_ceiling(ceiling)
    }
}

impl Protect {
    /// Keeps the boost after an unlock, for the calling task, until the guard is dropped.
    ///
    /// The next section under that ceiling, or a lower one, then costs no system call. *What it costs
    /// others:* the task runs at the ceiling between its sections, too, and tasks between its own
    /// priority and the ceiling have to wait for it: keep it as short as a section could be. A sleep
    /// for a lock of this kind ends the boost, for the order of the sleepers; others do not.
    ///
    /// # Errors
    /// The thread cannot be a task.
    pub fn keep_boost() -> Result<KeptBoost, TaskError> {
        Ceilings::keep()?;
        Ok(KeptBoost(PhantomData))
    }

    /// Declares that until the guard is dropped nobody but this crate changes the policy or the
    /// priority of the calling task. So it need not be looked up before each change, which saves a
    /// fifth of what they cost.
    ///
    /// Should anybody do it nevertheless, the change may be undone, as with glibc's mutexes.
    ///
    /// # Errors
    /// The priority cannot be found out.
    pub fn trust_priority() -> Result<TrustedPriority, ProtectFault> {
        Ceilings::declare()?;
        Ok(TrustedPriority(PhantomData))
    }

    /// Has the calling task's policy and priority looked up again at the next lock, in any case.
    ///
    /// For a task whose own priority was its ceiling, so that no lock changed it, and is not any
    /// more. Otherwise a change is noticed without this.
    pub fn priority_changed() {
        Ceilings::forget();
    }
}

/// Locks leave the calling task its boost: [`Protect::keep_boost`].
#[derive(Debug)]
#[must_use = "the boost is kept as long as this lives"]
pub struct KeptBoost(PhantomData<*const ()>);

impl Drop for KeptBoost {
    fn drop(&mut self) {
        Ceilings::keep_no_longer();
    }
}

/// Nobody else changes the calling task's priority: [`Protect::trust_priority`].
#[derive(Debug)]
#[must_use = "the declaration holds as long as this lives"]
pub struct TrustedPriority(PhantomData<*const ()>);

impl Drop for TrustedPriority {
    fn drop(&mut self) {
        Ceilings::declare_no_longer();
    }
}
