//! The handle on a MrsP semaphore, and its guard.

use crate::atomic::{AtomicU8, Ordering};
use crate::hook::Site;
use crate::region::{Region, Reused, SpareKind, TaskId, fingerprint};
use crate::semaphore::handle::{ObjectRef, Place, Properties, guard, obtaining};
use crate::semaphore::{
    Caller, Core, Discipline, Form, Kind, Obtained, Priority, Refusal, WaitLimit,
};
use crate::semaphore::{ObtainError, ReleaseError, SemaphoreError, UseError, priority};
use crate::sys::scheduling::MAX_CPUS;
use crate::time::Deadline;
use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

/// The object in the region: a semaphore, and the ceilings of the CPUs.
#[repr(C)]
pub(super) struct Shared {
    pub(super) core: Core,
    /// Indexed by CPU number. CPUs beyond the array have the core's ceiling.
    ceilings: [AtomicU8; MAX_CPUS],
}

impl Reused for Shared {
    const FINGERPRINT: u64 = fingerprint(
        "MrsP semaphore",
        size_of::<Self>(),
        align_of::<Self>(),
        &[2],
    );
    const KIND: SpareKind = SpareKind {
        list: 2,
        link: Core::NEXT_SPARE,
    };

    fn new() -> Self {
        Self {
            core: Core::new(),
            ceilings: [const { AtomicU8::new(0) }; MAX_CPUS],
        }
    }

    fn has_ended(&self) -> bool {
        self.core.key().is_none()
    }
}

impl Place for Shared {
    fn core(&self) -> &Core {
        &self.core
    }

    fn prepare(&self, properties: &Properties) {
        for place in &self.ceilings {
            // Relaxed: published with the key.
            place.store(properties.ceiling as u8, Ordering::Relaxed);
        }
    }
}

/// Obtains the semaphore, at the ceiling that `ceiling_on` returns for a CPU.
#[cold]
pub(crate) fn obtain_at(
    object: &ObjectRef<'_>,
    limit: WaitLimit,
    site: Site,
    ceiling_on: impl Fn(u32) -> u32,
) -> Result<Obtained, Refusal> {
    object.obtain_owned(limit, site, |access, limit| {
        super::obtain(access, limit, &ceiling_on)
    })
}

/// Releases the semaphore. `torn`: the next owner gets the report of owner death.
#[cold]
pub(crate) fn release_from(
    object: &ObjectRef<'_>,
    torn: bool,
    site: Site,
) -> Result<(), ReleaseError> {
    object.release_owned(site, |access| super::release(access, torn))
}

/// Whether waiters of MrsP semaphores can lend their CPUs; if not, the reason.
///
/// Order, ceilings and refusals follow the recorded priorities in either case. Without help a waiter sleeps, and a
/// preempted owner waits for its own CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Helping {
    /// The calling task spins and lends as a waiter, and is helped as an owner.
    Works,
    /// The kernel does not know the task's priority: see [`TaskPriority::mirror`](crate::semaphore::TaskPriority::mirror).
    NotMirrored,
    /// The task may run on several CPUs: bind it to one.
    NotPinned,
    /// The process has no right to the ceiling's real-time priority: `CAP_SYS_NICE`, or an `RLIMIT_RTPRIO`.
    NoPrivilege,
    /// Tasks of other PID namespaces are in the region: neither do they help this task, nor is one of them helped by it. Tasks of
    /// one namespace help each other.
    OtherPidNamespaces,
    /// The kernel does not distinguish the ceiling from the next lower priority: its number is 98 or larger.
    LowCeiling,
}

/// A semaphore for tasks on several CPUs, each of which has a ceiling of its own.
///
/// The owner and the waiters have the ceilings of the CPUs that they are on, if those are better than their own
/// priorities; tasks with a better priority must not use the semaphore. It is served in order of arrival. A waiter
/// spins; a preempted owner continues on the CPU of a task that waits for it. When the owner releases, it is on its own
/// CPU again, at the priority that it had.
///
/// | what is guaranteed | where |
/// | --- | --- |
/// | order, ceilings and refusals, by the recorded priorities | everywhere |
/// | a critical section takes at most its own time, multiplied by the number of CPUs that use the semaphore, even if its owner is preempted | where [`Self::helping`] returns [`Helping::Works`] to all tasks that use it, until the kernel's share of time for real-time tasks is used up |
/// | no lower task runs on the owner's CPU while the owner is helped, or sleeps in a critical section | nowhere: Linux has no such placeholder |
///
/// Helping needs real-time tasks: each bound to one CPU, [mirrored](crate::semaphore::TaskPriority::mirror), with the privilege for the
/// ceilings' real-time priorities. [`Self::helping`] reports whether the calling task is one. All others sleep while
/// they wait, and run on their own CPUs only; the rules are the same. A ceiling should be one better than the best
/// priority of any task that uses the semaphore, and all CPUs should have the same ceiling where possible: a Linux
/// thread has *one* priority, even where it is helped. Spinning real-time tasks use up the time that the kernel allows
/// them: 950 ms of each second, by default.
///
/// *No recursion:* an obtain by the owner is refused ([`ObtainError::Deadlock`]), as is one that would complete a cycle
/// of waits. *Owner death:* [`MrspHeld::owner_died`] reports it to the next owner; a guard dropped by a panic counts as
/// owner death. *Fork:* the child owns nothing. *Signal handlers* must not use it.
///
/// ```
/// use latchwork::region::RegionOptions;
/// use latchwork::semaphore::{MrspSemaphore, ObtainError, Priority, TaskPriority as _};
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let ceiling = Priority::new(50).expect("it is not 0");
/// let bus = MrspSemaphore::create(&region, "bus", ceiling)?;
/// let held = bus.obtain()?;
/// assert!(matches!(bus.try_obtain(), Err(ObtainError::Deadlock)));
/// assert_eq!(region.task_id()?.current_priority(&region)?, ceiling);
/// drop(held);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct MrspSemaphore<'r> {
    object: ObjectRef<'r>,
    shared: &'r Shared,
}

impl<'r> MrspSemaphore<'r> {
    /// The size of a semaphore in the region, in bytes.
    pub const BYTES: usize = size_of::<Shared>();

    /// Creates the semaphore of this name, with this ceiling on all CPUs; or opens it if it exists, whatever its
    /// ceilings.
    ///
    /// # Errors
    /// See [`SemaphoreError`].
    #[track_caller]
    pub fn create(
        region: &'r Region,
        name: &str,
        ceiling: Priority,
    ) -> Result<Self, SemaphoreError> {
        Self::make(region, name, ceiling, false, Site::caller())
    }

    /// As [`Self::create`]; the calling task owns a semaphore that it creates, and must [release](Self::release) it.
    ///
    /// # Errors
    /// [`SemaphoreError::AboveCeiling`], and as for [`Self::create`].
    #[track_caller]
    pub fn create_obtained(
        region: &'r Region,
        name: &str,
        ceiling: Priority,
    ) -> Result<Self, SemaphoreError> {
        Self::make(region, name, ceiling, true, Site::caller())
    }

    fn make(
        region: &'r Region,
        name: &str,
        ceiling: Priority,
        obtained: bool,
        site: Site,
    ) -> Result<Self, SemaphoreError> {
        let properties = Properties {
            form: Form::new(Kind::Mrsp, Discipline::Fifo),
            count: 0,
            ceiling: ceiling.get().into(),
            obtained,
        };
        let (object, shared) = ObjectRef::create(region, name, &properties, site)?;
        Ok(Self { object, shared })
    }

    /// Opens the semaphore of this name.
    ///
    /// # Errors
    /// See [`SemaphoreError`].
    #[track_caller]
    pub fn open(region: &'r Region, name: &str) -> Result<Self, SemaphoreError> {
        let (object, shared) = ObjectRef::open(region, name, Site::caller(), |_| true)?;
        Ok(Self { object, shared })
    }

    obtaining! {
        MrspHeld<'r>, "Obtains the semaphore, waiting for it, also while the task helps,";
        /// Obtains the semaphore, waiting while another task owns it.
        ///
        /// # Errors
        /// [`ObtainError::Deadlock`], also if the calling task owns it; [`ObtainError::AboveCeiling`],
        /// [`ObtainError::Deleted`], [`ObtainError::Attach`].
        obtain;
        /// Obtains the semaphore if no task owns it at this moment.
        ///
        /// # Errors
        /// [`ObtainError::WouldBlock`], and as for [`Self::obtain`].
        try_obtain
    }

    fn obtain_with(&self, limit: WaitLimit, site: Site) -> Result<MrspHeld<'r>, ObtainError> {
        let obtained = obtain_at(&self.object, limit, site, |processor| {
            self.recorded_ceiling(processor as usize)
        })?;
        Ok(MrspHeld::new(*self, obtained))
    }

    /// Releases the semaphore. Required if the guard was [kept](MrspHeld::keep), and for a semaphore that was created
    /// obtained. The first waiter gets it, if there is one; the calling task is bound to its own CPU again, and has the
    /// priority that it had.
    ///
    /// # Errors
    /// [`ReleaseError::NotOwner`], [`ReleaseError::Deleted`], [`ReleaseError::Attach`].
    #[track_caller]
    pub fn release(&self) -> Result<(), ReleaseError> {
        self.release_with(false, Site::caller())
    }

    fn release_with(&self, torn: bool, site: Site) -> Result<(), ReleaseError> {
        release_from(&self.object, torn, site)
    }

    /// Deletes the semaphore, which no task may own: later calls get [`ObtainError::Deleted`]. A new one of this name
    /// can be created; the handles on this one do not affect it.
    ///
    /// # Errors
    /// [`UseError::InUse`], [`UseError::Deleted`], [`UseError::Attach`].
    #[track_caller]
    pub fn delete(&self) -> Result<(), UseError> {
        self.object.delete_named(self.shared, Site::caller())
    }

    /// The ceiling of a CPU, by its number.
    #[must_use]
    pub fn ceiling(&self, processor: usize) -> Priority {
        Priority::recorded(self.recorded_ceiling(processor))
    }

    fn recorded_ceiling(&self, processor: usize) -> u32 {
        // Relaxed, both: the value may be stale when the call returns.
        match self.shared.ceilings.get(processor) {
            Some(ceiling) => ceiling.load(Ordering::Relaxed).into(),
            None => self.object.core.ceiling.load(Ordering::Relaxed),
        }
    }

    /// Changes the ceiling of a CPU; returns the one before. It takes effect for tasks that obtain the semaphore, or
    /// begin to wait for it, after this; the owner and the waiters keep the ceilings that they have.
    ///
    /// # Errors
    /// [`UseError::NoCeiling`] if no CPU can have this number, from 1024 on; [`UseError::Deleted`],
    /// [`UseError::Attach`].
    pub fn set_ceiling(&self, processor: usize, ceiling: Priority) -> Result<Priority, UseError> {
        let place = self
            .shared
            .ceilings
            .get(processor)
            .ok_or(UseError::NoCeiling)?;
        let _locked = self.object.lock()?;
        // Relaxed: under the lock; an obtain at the same moment may read either value.
        let before = place.swap(ceiling.get(), Ordering::Relaxed);
        Ok(Priority::recorded(before.into()))
    }

    /// Whether the calling task is helped and helps, at the ceiling of its CPU. The call tries it: the task has the
    /// ceiling for a moment.
    ///
    /// # Errors
    /// [`UseError::Attach`].
    pub fn helping(&self) -> Result<Helping, UseError> {
        let inner = self.object.inner;
        let caller = Caller::new(inner.task()?);
        let standing = &caller.record.standing;
        // Relaxed: set by this task, or the value of any moment will do.
        if standing.mirrored.load(Ordering::Relaxed) == 0 {
            return Ok(Helping::NotMirrored);
        }
        let processor = super::lend::note_home(caller);
        if caller.record.lending.home.load(Ordering::Relaxed) == 0 {
            return Ok(Helping::NotPinned);
        }
        let ceiling = self.recorded_ceiling(processor as usize);
        if ceiling >= super::lend::LOWEST_TO_SPIN {
            return Ok(Helping::LowCeiling);
        }
        let raised_to = |waits_at| {
            standing.waits_at.store(waits_at, Ordering::SeqCst);
            priority::refresh(inner, caller.task, false);
            standing.kernel_priority.load(Ordering::Relaxed)
        };
        let has_right = raised_to(ceiling) != 0;
        raised_to(0);
        Ok(match has_right {
            false => Helping::NoPrivilege,
            true if inner.has_tasks_elsewhere() => Helping::OtherPidNamespaces,
            true => Helping::Works,
        })
    }

    /// The task that owns it at this moment. It may have died, if no task has come for the semaphore since.
    #[must_use]
    pub fn owner(&self) -> Option<TaskId> {
        self.object.owner()
    }

    /// The number of tasks that wait at this moment, spinning or asleep.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.object.waiting()
    }
}

impl fmt::Debug for MrspSemaphore<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MrspSemaphore")
            .field("owner", &self.owner())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

guard! {
    /// A MrsP semaphore that the calling task has obtained; dropping this releases it.
    MrspHeld of MrspSemaphore
}
