//! Priority ceilings: the priority of a task while it holds locks that have one.
//!
//! The task's *own* scheduling is the policy and priority that it has by itself, or that another program gives it.
//! Above it lies the *boost*: while the task holds a lock whose ceiling is above its own priority, it runs at the
//! highest such ceiling.
//!
//! Where the state is kept: the ceilings held are in [`Ceilings`], in the record that a fork wipes, since a child holds
//! no lock. The scheduling that the kernel was asked for is in [`Requested`], which a fork leaves: from it the child knows
//! that it no longer needs the priority with which it began. It gives the boost back
//! ([`drop_inherited_boost`](Ceilings::drop_inherited_boost)) as soon as it gets a record of its own. The calls of the
//! task are in `boost.rs`.
//!
//! Invariants
//! 1. `effective` is the priority that the kernel was last asked for, or last reported. So it is the task's priority,
//!    as long as no other program changes it.
//! 2. `effective` is no lower than `own`, nor than any ceiling held, unless the kernel refused.
//! 3. The priority is changed only when the highest of `own`, the ceilings held and the boost kept changes.
//! 4. A change by another program is never undone. The boost is a number, so the priority must be read before it is
//!    replaced: the value read becomes the own scheduling, unless it is the boost. Each read is a system call, before
//!    each change, unless the caller has declared that only this crate changes its priority ([`Ceilings::declare`]).
//!    Two changes go unnoticed: one to the very priority of the boost, and one in the instant between read and change.
//!    The policy of a real-time task, its flag for forks and every task's niceness are never written, so they need no
//!    read.
//!
//! *Not for signal handlers:* one that interrupts a change would act on a half-changed state.
//! *Cost:* [`enter`](Ceilings::enter) and [`leave`](Ceilings::leave) are a few loads and stores when the priority need
//! not change. When it must, each costs a read and a change. Measured (pair of bare changes between real-time
//! priorities = 1): reads by `sched_getparam` add 0.13 each, by `sched_getattr` 0.17; `sched_setparam` instead of
//! `sched_setscheduler` saves 0.01, and keeps the policy by itself. After a system call the processor mispredicts one
//! return after the other, so the code between the calls is inlined into [`raise`](Ceilings::raise) and
//! [`lower`](Ceilings::lower): 0.03.

use crate::sys::each_thread::each_thread;
use crate::sys::scheduling::{self, Scheduling};
use core::cell::Cell;
use rustix::io::Errno;

/// Highest real-time priority.
pub const HIGHEST: u8 = 99;

/// The ceilings that a task holds. All zero: it holds none, and its priority is not known. Only its task uses it.
#[derive(Debug)]
pub struct Ceilings {
    /// One bit for each ceiling of which at least one lock is held.
    held: Cell<u128>,
    /// How many locks are held, by ceiling.
    counts: [Cell<u16>; HIGHEST as usize + 1],
    /// How many guards keep the boost.
    pub(super) keeping: Cell<u32>,
    /// How many guards declare that only this crate changes this task's priority.
    pub(super) declared: Cell<u32>,
    /// The real-time priority without the boost, 0 if none.
    pub(super) own: Cell<u8>,
    /// The real-time priority with the boost.
    pub(super) effective: Cell<u8>,
    /// The highest ceiling that was left while the boost was kept.
    pub(super) kept: Cell<u8>,
}

const _: () = assert!(size_of::<Ceilings>() <= 256);

/// The scheduling that the kernel was last asked for, for the calling thread. It survives a fork.
#[derive(Clone, Copy)]
pub(super) struct Requested {
    pub(super) own: Scheduling,
    /// The priority of the boost; 0: none.
    pub(super) boost: u8,
    pub(super) known: bool,
}

each_thread! {
    pub(super) static REQUESTED: Cell<Requested> = Cell::new(Requested { own: Scheduling::ORDINARY, boost: 0, known: false });
}

impl Ceilings {
    #[inline]
    pub(super) fn count(&self, ceiling: u8) {
        let count = &self.counts[usize::from(ceiling)];
        let Some(more) = count.get().checked_add(1) else {
            crate::fatal(format_args!("too much held of priority ceiling {ceiling}"));
        };
        count.set(more);
        self.held.set(self.held.get() | 1 << ceiling);
    }

    /// Returns whether that was the last lock of this ceiling, and the ceiling may be the reason for the present
    /// priority.
    #[inline]
    pub(super) fn uncount(&self, ceiling: u8) -> bool {
        let count = &self.counts[usize::from(ceiling)];
        // The count is 0 if the parent of this process entered the ceiling.
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
    pub(super) fn highest(&self) -> u8 {
        self.held.get().checked_ilog2().unwrap_or(0) as u8
    }

    #[cold]
    pub(super) fn lower(&self, ceiling: u8) {
        if self.keeping.get() > 0 {
            self.kept.set(ceiling);
        } else {
            self.settle();
        }
    }

    pub(super) fn drop_kept(&self) {
        if self.kept.get() > 0 {
            self.kept.set(0);
        }
        if self.effective.get() > self.own.get().max(self.highest()) {
            self.settle();
        }
    }

    /// Sets the priority to the highest ceiling held. If the kernel refuses, the boost stays, and the next
    /// [`leave`](Self::leave) of this ceiling tries again.
    #[inline]
    fn settle(&self) {
        if let Ok(requested) = self.requested() {
            let _ = self.request(requested, self.highest());
        }
    }

    /// The scheduling that the kernel was last asked for, or that another program has set meanwhile.
    #[inline(always)]
    pub(super) fn requested(&self) -> Result<Requested, Errno> {
        let requested = REQUESTED.with(Cell::get);
        if self.declared.get() > 0 && requested.known {
            return Ok(requested);
        }
        Ok(self.store(requested.refreshed()?))
    }

    #[inline]
    pub(super) fn store(&self, requested: Requested) -> Requested {
        REQUESTED.with(|known| known.set(requested));
        self.own.set(requested.own.priority());
        self.effective.set(requested.priority());
        requested
    }

    /// Sets the priority to `ceiling`, or to the task's own priority if that is higher.
    #[inline(always)]
    pub(super) fn request(&self, requested: Requested, ceiling: u8) -> Result<(), Errno> {
        let done = match requested.request(ceiling) {
            // The task is no longer in the scheduling class in which it was last seen.
            Err(Errno::INVAL) => self
                .store(requested.unknown().refreshed()?)
                .request(ceiling),
            done => done,
        };
        self.store(done?);
        Ok(())
    }

    /// Gives back the boost that a process had when it forked the calling one, unless the boost is already gone.
    #[cold]
    pub(super) fn drop_inherited_boost() {
        let requested = REQUESTED.with(Cell::get);
        if requested.boost > 0 {
            // If the kernel refuses, the priority with which the process began counts as its own.
            let unboosted = requested
                .refreshed()
                .and_then(|requested| requested.request(0));
            let own = Requested::unboosted(requested.own).unknown();
            REQUESTED.with(|known| known.set(unboosted.unwrap_or(own)));
        }
    }
}

impl Requested {
    /// The real-time priority at present.
    fn priority(self) -> u8 {
        self.own.priority().max(self.boost)
    }

    /// The scheduling at present: `self`, if the boost is still there. Otherwise another program has changed it, and
    /// the present scheduling is the task's own from now on.
    #[inline(always)]
    pub(super) fn refreshed(self) -> Result<Self, Errno> {
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

    /// The same, to be read before it is relied on.
    #[inline]
    pub(super) fn unknown(self) -> Self {
        Self {
            known: false,
            ..self
        }
    }

    fn unboosted(own: Scheduling) -> Self {
        Self {
            own,
            boost: 0,
            known: true,
        }
    }

    /// Sets the priority to `ceiling`, or to the task's own priority if that is higher.
    #[inline(always)]
    fn request(self, ceiling: u8) -> Result<Self, Errno> {
        let own = self.own.priority();
        let boost = if ceiling > own { ceiling } else { 0 };
        // A deadline task is never lowered: see `ProtectFault::Deadline`.
        if boost == self.boost || self.own.is_deadline() {
            return Ok(self);
        }
        if own > 0 {
            // Keeps the policy and the flag.
            scheduling::set_own_priority(own.max(ceiling))?;
        } else if ceiling > 0 {
            // Set both policy and priority, also where the task has a boost: otherwise another policy, set by another
            // program since the read, would stay, and the boost would not be recognised again.
            self.own.at(ceiling).apply()?;
        } else {
            self.own.apply()?;
        }
        Ok(Self { boost, ..self })
    }
}
