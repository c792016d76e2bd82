//! The priority that a task has, and that the ceilings of what it holds give it.
//!
//! The task's *own* scheduling is what it has, or what anybody gives it, outside of this file. Over
//! it lies the *boost*: while the task holds something whose ceiling is above its own priority, it
//! runs at the highest such ceiling.
//!
//! Where it is kept: what is held in [`Ceilings`], in the record that is wiped on fork, for a child
//! holds nothing; what the kernel was told in [`Told`], which a fork leaves: from it the child knows
//! that the priority that it began with is no longer due, and gives it back
//! ([`drop_inherited_boost`]), as soon as it gets a record of its own.
//!
//! Invariants
//! 1. `effective` is the priority that the kernel was last told, or said; so while nothing is changed
//!    from outside, the task's.
//! 2. `effective` is no lower than `own`, nor than any ceiling held, unless the kernel refused.
//! 3. The priority is changed only when the highest of `own`, what is held and what is kept changes.
//! 4. Nothing that was changed from outside is changed back. The boost is a number, so it must be
//!    looked up before it is replaced: what is found becomes the own scheduling, unless it is the
//!    boost. A look is a system call, before each of ours, unless the caller has declared that it
//!    alone changes its priority ([`Ceilings::declare`]). Only a change to the very priority of the
//!    boost, or in the instant between look and change, goes unseen. The policy of a real-time task,
//!    its flag for forks and everybody's niceness are never written, so they need no look.
//!
//! *Not for signal handlers:* one that interrupts a change would act on half of it.
//!
//! *Cost:* [`enter`](Ceilings::enter) and [`leave`](Ceilings::leave) are a few loads and stores when
//! the priority need not change. When it must, a look and a change each. Measured (pair of bare
//! changes between real-time priorities = 1): looks by `sched_getparam` add 0.13 each, by
//! `sched_getattr` 0.17; `sched_setparam` instead of `sched_setscheduler` saves 0.01, and keeps the
//! policy by itself. After a system call the processor mispredicts one return after the other, so
//! what is between the calls is inlined into [`raise`](Ceilings::raise) and
//! [`lower`](Ceilings::lower): 0.03.

use super::{Me, TaskError};
use crate::sys::each_thread::each_thread;
use crate::sys::scheduling::{self, Scheduling};
use core::cell::Cell;
use rustix::io::Errno;

/// Why the calling task cannot have the priority of a ceiling. Nothing is taken then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtectFault {
    /// A task must not use what a lower ceiling protects.
    #[error("the task's own priority, {own}, is above the ceiling, {ceiling}")]
    AboveCeiling {
        /// The task's real-time priority without any boost.
        own: u8,
        /// The ceiling.
        ceiling: u8,
    },
    /// The privilege is missing: `CAP_SYS_NICE`, or a limit on real-time priorities (`rtprio` in
    /// limits.conf) that reaches the ceiling.
    ///
    /// With a limit that does reach it the system has another reason: a control group without
    /// real-time runtime, or a `SCHED_IDLE` task without an `RLIMIT_NICE`.
    #[error(
        "no right to priority {ceiling}: it takes CAP_SYS_NICE, or an RLIMIT_RTPRIO of {ceiling} (it is {limit})"
    )]
    Permission {
        /// The ceiling.
        ceiling: u8,
        /// The process's soft `RLIMIT_RTPRIO`; `u64::MAX` is no limit.
        limit: u64,
    },
    /// A `SCHED_DEADLINE` task is ahead of every priority, and a ceiling would put it back.
    #[error("a SCHED_DEADLINE task cannot run at a ceiling")]
    Deadline,
    /// The thread cannot be a task.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The system refuses to tell or to change the priority, for instance in a sandbox.
    #[error("the system refuses a change of priority: {0}")]
    System(Errno),
}

/// Highest real-time priority.
pub(crate) const HIGHEST: u8 = 99;

/// What a task holds, by ceiling. All zero: nothing, and nothing known. Only its task touches it.
#[derive(Debug)]
pub(crate) struct Ceilings {
    /// One bit for each ceiling of which something is held.
    held: Cell<u128>,
    /// How much is held of each ceiling.
    counts: [Cell<u16>; HIGHEST as usize + 1],
    /// How many guards ask for the boost to be kept.
    keeping: Cell<u32>,
    /// How many guards declare that nobody else changes this task's priority.
    declared: Cell<u32>,
    /// The real-time priority without the boost, 0 if none.
    own: Cell<u8>,
    /// The real-time priority with it.
    effective: Cell<u8>,
    /// The highest ceiling that was left while the boost was to be kept.
    kept: Cell<u8>,
}

const _: () = assert!(size_of::<Ceilings>() <= 256);

/// What the kernel was told of the calling thread. It survives a fork.
#[derive(Clone, Copy)]
struct Told {
    own: Scheduling,
    /// The priority of the boost; 0: none.
    boost: u8,
    known: bool,
}

each_thread! {
    static TOLD: Cell<Told> = Cell::new(Told { own: Scheduling::ORDINARY, boost: 0, known: false });
}

impl Ceilings {
    /// What the calling task holds, or nobody, who holds nothing and may not be changed.
    #[inline]
    pub(crate) fn here() -> &'static Self {
        &Me::whoever().record.ceilings
    }

    /// Raises the calling task to `ceiling` (1 to [`HIGHEST`]), which is held from now on.
    #[inline]
    pub(crate) fn enter(ceiling: u8) -> Result<(), ProtectFault> {
        let here = Self::here();
        if here.own.get() <= ceiling && ceiling <= here.effective.get() {
            here.count(ceiling);
            Ok(())
        } else {
            Self::raise(ceiling)
        }
    }

    /// Ends one [`enter`](Self::enter) of the calling task. In another process than that, nothing.
    #[inline]
    pub(crate) fn leave(ceiling: u8) {
        let here = Self::here();
        if here.uncount(ceiling) && here.kept.get() < ceiling {
            here.lower(ceiling);
        }
    }

    /// As [`leave`](Self::leave), but the boost is not kept: the task will sleep, in the order of
    /// its own priority.
    pub(crate) fn leave_to_sleep(ceiling: u8) {
        let here = Self::here();
        here.uncount(ceiling);
        here.drop_kept();
    }

    /// Asks for the boost to be kept from now on.
    pub(crate) fn keep() -> Result<(), TaskError> {
        let keeping = &Me::get()?.record.ceilings.keeping;
        keeping.set(keeping.get() + 1);
        Ok(())
    }

    /// Ends one [`keep`](Self::keep).
    pub(crate) fn keep_no_longer() {
        let here = Self::here();
        if let Some(left) = here.keeping.get().checked_sub(1) {
            here.keeping.set(left);
            if left == 0 {
                here.drop_kept();
            }
        }
    }

    /// Takes the caller's word that nobody else changes this task's priority from now on.
    pub(crate) fn declare() -> Result<(), ProtectFault> {
        let here = &Me::get()?.record.ceilings;
        here.see(TOLD.with(Cell::get).look().map_err(ProtectFault::System)?);
        here.declared.set(here.declared.get() + 1);
        Ok(())
    }

    /// Ends one [`declare`](Self::declare).
    pub(crate) fn declare_no_longer() {
        let here = Self::here();
        if let Some(left) = here.declared.get().checked_sub(1) {
            here.declared.set(left);
        }
    }

    /// What is known of the calling task's priority is not to be relied upon.
    pub(crate) fn forget() {
        let (here, told) = (Self::here(), TOLD.with(Cell::get));
        TOLD.with(|known| {
            known.set(Told {
                known: false,
                ..told
            });
        });
        // The end of a boost looks in any case. And a record of nobody is zero already.
        if told.boost == 0 && here.effective.get() > 0 {
            here.own.set(0);
            here.effective.set(0);
        }
    }

    #[inline]
    fn count(&self, ceiling: u8) {
        let count = &self.counts[usize::from(ceiling)];
        let Some(more) = count.get().checked_add(1) else {
            crate::fatal(format_args!("too much held of priority ceiling {ceiling}"));
        };
        count.set(more);
        self.held.set(self.held.get() | 1 << ceiling);
    }

    /// Whether that was the last of this ceiling, and it may be why the priority is what it is.
    #[inline]
    fn uncount(&self, ceiling: u8) -> bool {
        let count = &self.counts[usize::from(ceiling)];
        // None: entered by the parent of this process.
        let Some(left) = count.get().checked_sub(1) else {
            return false;
        };
        count.set(left);
        if left > 0 {
            return false;
        }
        self.held.set(self.held.get() & !(1 << ceiling));
        self.own.get() < ceiling && self.effective.get() <= ceiling
    }

    /// The highest ceiling held, 0 if none.
    fn highest(&self) -> u8 {
        self.held.get().checked_ilog2().unwrap_or(0) as u8
    }

    #[cold]
    fn raise(ceiling: u8) -> Result<(), ProtectFault> {
        let here = &Me::get()?.record.ceilings;
        let told = here.told().map_err(ProtectFault::System)?;
        if told.own.is_deadline() {
            return Err(ProtectFault::Deadline);
        }
        let own = told.own.priority();
        if own > ceiling {
            return Err(ProtectFault::AboveCeiling { own, ceiling });
        }
        here.bring(told, ceiling.max(here.highest()))
            .map_err(|error| match error {
                Errno::PERM => ProtectFault::Permission {
                    ceiling,
                    limit: scheduling::priority_limit(),
                },
                error => ProtectFault::System(error),
            })?;
        here.count(ceiling);
        Ok(())
    }

    #[cold]
    fn lower(&self, ceiling: u8) {
        if self.keeping.get() > 0 {
            self.kept.set(ceiling);
        } else {
            self.settle();
        }
    }

    fn drop_kept(&self) {
        if self.kept.get() > 0 {
            self.kept.set(0);
        }
        if self.effective.get() > self.own.get().max(self.highest()) {
            self.settle();
        }
    }

    /// Brings the priority to what is held. If the kernel refuses, the boost stays, and the next
    /// [`leave`](Self::leave) of this ceiling tries again.
    #[inline]
    fn settle(&self) {
        if let Ok(told) = self.told() {
            let _ = self.bring(told, self.highest());
        }
    }

    /// What the kernel was told, or has been told meanwhile by others.
    #[inline(always)]
    fn told(&self) -> Result<Told, Errno> {
        let told = TOLD.with(Cell::get);
        if self.declared.get() > 0 && told.known {
            return Ok(told);
        }
        Ok(self.see(told.look()?))
    }

    #[inline]
    fn see(&self, told: Told) -> Told {
        TOLD.with(|known| known.set(told));
        self.own.set(told.own.priority());
        self.effective.set(told.priority());
        told
    }

    /// Brings the priority to `ceiling`, or to the own one if that is higher.
    #[inline(always)]
    fn bring(&self, told: Told, ceiling: u8) -> Result<(), Errno> {
        let done = match told.bring(ceiling) {
            // No longer in the class that it was last seen in.
            Err(Errno::INVAL) => self
                .see(
                    Told {
                        known: false,
                        ..told
                    }
                    .look()?,
                )
                .bring(ceiling),
            done => done,
        };
        self.see(done?);
        Ok(())
    }
}

impl Told {
    /// The real-time priority at present.
    fn priority(self) -> u8 {
        self.own.priority().max(self.boost)
    }

    /// What is true now: this, if the boost is still there. Otherwise what somebody else has made of
    /// it, which is the task's own from now on.
    #[inline(always)]
    fn look(self) -> Result<Self, Errno> {
        let real_time = self.own.priority() > 0;
        if self.known && real_time {
            match scheduling::own_priority()? {
                0 => {}
                priority if priority == self.boost => return Ok(self),
                priority => return Ok(Self::unboosted(self.own.at(priority))),
            }
        }
        let now = Scheduling::own()?;
        let own = self.own.with_flag_of(now);
        let is_boost = if real_time {
            now.priority() == self.boost
        } else {
            now == own.at(self.boost)
        };
        Ok(if self.boost > 0 && is_boost {
            Self {
                own,
                known: true,
                ..self
            }
        } else {
            Self::unboosted(now)
        })
    }

    fn unboosted(own: Scheduling) -> Self {
        Self {
            own,
            boost: 0,
            known: true,
        }
    }

    /// Sets the priority to `ceiling`, or to the own one if that is higher.
    #[inline(always)]
    fn bring(self, ceiling: u8) -> Result<Self, Errno> {
        let own = self.own.priority();
        let boost = if ceiling > own { ceiling } else { 0 };
        // Nobody puts a deadline task back: see `ProtectFault::Deadline`.
        if boost == self.boost || self.own.is_deadline() {
            return Ok(self);
        }
        if own > 0 {
            // Keeps the policy and the flag.
            scheduling::set_own_priority(own.max(ceiling))?;
        } else if ceiling > 0 {
            // Both, also where it has a boost: another policy, given since the look, would be kept,
            // and the boost not be known again.
            self.own.at(ceiling).apply()?;
        } else {
            self.own.apply()?;
        }
        Ok(Self { boost, ..self })
    }
}

/// Gives back the boost that a process had when it forked the calling one, unless it is gone already.
#[cold]
pub(super) fn drop_inherited_boost() {
    let told = TOLD.with(Cell::get);
    if told.boost > 0 {
        // If the kernel refuses, what the process began with is its own.
        let unboosted = told.look().and_then(|told| told.bring(0));
        let told = unboosted.unwrap_or(Told {
            known: false,
            boost: 0,
            ..told
        });
        TOLD.with(|known| known.set(told));
    }
}
